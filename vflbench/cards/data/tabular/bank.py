"""Bank Marketing."""

from typing import Literal

from vflbench.cards.data.tabular import table
from vflbench.defaults import from_conf
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


@from_conf()
class Config(table.ClassKeys):
    """Keys of the data set."""

    variant: Literal["auto", "additional", "full"]  # type: ignore[assignment]
    verify: bool
