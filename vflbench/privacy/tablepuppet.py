"""`privacy=tablepuppet`: label_dp and dp_sgd together, over joins (tables.py)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vflbench.privacy import keys, tables
from vflbench.privacy.mechanisms import Facts
from vflbench.types import OptionInfo, Problem

OPTIONS = (OptionInfo("tablepuppet", "label_dp and dp_sgd together"),)


@dataclass
class Config(keys.Gradients, keys.Labels):
    name: str = "tablepuppet"


def check(config: Config) -> list[Problem]:
    return keys.check_target(config, rdp=True)


def check_labels(config: Config, labels: np.ndarray, classes: int) -> list[Problem]:
    return tables.check_labels(labels, classes, config.rating_classes)


def make(config: Config, facts: Facts) -> tables.TablePrivacy:
    return tables.TablePrivacy(config.name, facts.layout, labels=config, gradients=config)
