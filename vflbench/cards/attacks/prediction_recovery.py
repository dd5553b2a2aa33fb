"""Rows recovered from predictions."""

from dataclasses import dataclass
from typing import Literal

from vflbench.types import Count, OptionInfo, Positive

OPTIONS = (OptionInfo("prediction_recovery", "the server solves for a table's rows from a linear model's predictions"),)


@dataclass
class Config:
    """Keys of prediction_recovery."""

    name: str = "prediction_recovery"
    # how the server knows theta: every iterate is public | from the protocol
    parameters: Literal["released", "received"] = "released"
    rows: Count = 1000  # attacked rows per client, drawn at random
    tolerance: Positive = 0.05  # a row counts as recovered up to this relative error
