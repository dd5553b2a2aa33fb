"""Default of credit card clients."""

from vflbench.cards.data.tabular import table
from vflbench.defaults import from_conf
from vflbench.types import DatasetInfo

DATASETS = (
    DatasetInfo(
        name="credit",
        summary="Default of credit card clients: 30,000 clients, 23 columns, 22 % default; also as sparse logistic "
        "regression",
        layouts=("aligned", "sharded", "relational"),
        folder="credit_default",
    ),
)


@from_conf()
class Config(table.ClassKeys):
    """Keys of the data set."""
