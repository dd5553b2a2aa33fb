"""BlogFeedback."""

from vflbench.cards.data.tabular.table import Clipped, TimedKeys
from vflbench.defaults import from_conf
from vflbench.types import DatasetInfo

DATASETS = (
    DatasetInfo(
        name="blog",
        summary="BlogFeedback: 60,021 blog posts, 280 columns, regression; also as ridge regression",
        layouts=("aligned", "sharded", "relational"),
        folder="blogfeedback",
    ),
)


@from_conf()
class Config(Clipped, TimedKeys):
    """Keys of the data set."""
