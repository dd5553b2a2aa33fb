"""Rows recovered from predictions."""

from typing import Literal

from vflbench.defaults import from_conf
from vflbench.types import Count, OptionInfo, Positive

OPTIONS = (OptionInfo("prediction_recovery", "the server solves for a table's rows from a linear model's predictions"),)


@from_conf()
class Config:
    """Keys of prediction_recovery."""

    name: str
    parameters: Literal["released", "received"]
    rows: Count
    tolerance: Positive
