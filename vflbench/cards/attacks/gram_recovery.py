"""Rows recovered from svfl's search for a step size."""

from vflbench.defaults import from_conf
from vflbench.types import Count, OptionInfo

OPTIONS = (OptionInfo("gram_recovery", "the server recovers a client's rows from svfl's search for a step size"),)


@from_conf()
class Config:
    """Keys of gram_recovery."""

    name: str
    aux_rows: Count
