"""`privacy=tablepuppet`: label_dp and dp_sgd together, over joins (tables.py)."""

from vflbench.cards.privacy.tablepuppet import Config
from vflbench.privacy import keys, tables
from vflbench.types import Problem

check_labels, make = tables.check_labels, tables.TablePrivacy


def check(config: Config) -> list[Problem]:
    """What is wrong with the keys."""
    return keys.check_gradients(config)
