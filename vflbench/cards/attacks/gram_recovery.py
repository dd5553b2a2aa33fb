"""Rows recovered from svfl's search for a step size."""

from dataclasses import dataclass

from vflbench.types import Count, OptionInfo

OPTIONS = (OptionInfo("gram_recovery", "the server recovers a client's rows from svfl's search for a step size"),)


@dataclass
class Config:
    """Keys of gram_recovery."""

    name: str = "gram_recovery"
    aux_rows: Count = 20  # rows of each client that the server knows, drawn at random
