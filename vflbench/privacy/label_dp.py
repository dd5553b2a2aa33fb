"""`privacy=label_dp`: Laplace noise on one-hot labels, over joins (tables.py)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vflbench.privacy import keys, tables
from vflbench.privacy.mechanisms import Facts
from vflbench.types import OptionInfo, Problem

OPTIONS = (OptionInfo("label_dp", "Laplace noise on one-hot labels"),)


@dataclass
class Config(keys.Labels):
    name: str = "label_dp"


def check_labels(config: Config, labels: np.ndarray, classes: int) -> list[Problem]:
    return tables.check_labels(labels, classes, config.rating_classes)


def make(config: Config, facts: Facts) -> tables.TablePrivacy:
    return tables.TablePrivacy(config.name, facts.layout, labels=config)
