"""Bank Marketing."""

from dataclasses import dataclass
from typing import Literal

from vflbench.cards.data.tabular import table
from vflbench.types import DatasetInfo

DATASETS = (
    DatasetInfo(
        name="bank",
        summary="Bank Marketing: 41,188 calls, 20 columns (10 of them categories), 11 % yes; also as sparse logistic "
        "regression",
        layouts=("aligned", "sharded", "relational"),
        folder="bank_marketing",
    ),
)


@dataclass
class Config(table.ClassKeys):
    """Keys of the data set."""

    name: str = "bank"
    # auto (additional where it is there) | additional (41,188 x 20) | full (45,211 x 16, the older one)
    variant: Literal["auto", "additional", "full"] = "auto"  # type: ignore[assignment]
    verify: bool = True  # compare the files with the known checksums
