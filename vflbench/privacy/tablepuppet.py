"""`privacy=tablepuppet`: label_dp and dp_sgd together, over joins (tables.py)."""

from dataclasses import dataclass

from vflbench.privacy import keys, tables
from vflbench.types import OptionInfo, Problem

OPTIONS = (OptionInfo("tablepuppet", "label_dp and dp_sgd together"),)
check_labels, make = tables.check_labels, tables.TablePrivacy


@dataclass
class Config(keys.Gradients, keys.Labels):
    """Keys of tablepuppet."""

    name: str = "tablepuppet"


def check(config: Config) -> list[Problem]:
    """What is wrong with the keys."""
    return keys.check_gradients(config)
