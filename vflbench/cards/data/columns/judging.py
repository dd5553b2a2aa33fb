"""Keys that say how the columns of the user's own tables are read."""

from typing import Literal

from vflbench.defaults import from_conf

Order = Literal["auto", "day_first", "month_first"]


@from_conf("dataset/tabular_files")
class Keys:
    """The keys of a data set that say how columns are read."""

    leave_out: list[str]
    categories: list[str]
    numbers: list[str]
    missing_words: list[str]
    dates: Order
