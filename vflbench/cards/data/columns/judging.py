"""Keys that say how the columns of the user's own tables are read."""

from dataclasses import dataclass, field
from typing import Literal

Order = Literal["auto", "day_first", "month_first"]


@dataclass
class Keys:
    """The keys of a data set that say how columns are read."""

    leave_out: list[str] = field(default_factory=list)  # columns that are no features
    # columns of numbers that are codes: one 0/1 feature for each code, as for texts
    categories: list[str] = field(default_factory=list)
    # columns that are numbers: other cells count as missing; a column that numbers the rows is kept
    numbers: list[str] = field(default_factory=list)
    # texts that count as missing in every column; among numbers and dates ?, -, n/a, null and others always do
    missing_words: list[str] = field(default_factory=list)
    dates: Order = "auto"  # 3/4/2020: auto: other cells of the column decide | day_first | month_first
