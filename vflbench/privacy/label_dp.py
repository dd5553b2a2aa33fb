"""`privacy=label_dp`: Laplace noise on one-hot labels, over joins (tables.py)."""

from dataclasses import dataclass

from vflbench.privacy import keys, tables
from vflbench.types import OptionInfo

OPTIONS = (OptionInfo("label_dp", "Laplace noise on one-hot labels"),)
check, check_labels, make = keys.check_budget, tables.check_labels, tables.TablePrivacy


@dataclass
class Config(keys.Labels):
    """Keys of label_dp."""

    name: str = "label_dp"
