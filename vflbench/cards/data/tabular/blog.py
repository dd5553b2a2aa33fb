"""BlogFeedback."""

from dataclasses import dataclass

from vflbench.cards.data.tabular.table import Clipped, TimedKeys
from vflbench.types import DatasetInfo, Positive

DATASETS = (
    DatasetInfo(
        name="blog",
        summary="BlogFeedback: 60,021 blog posts, 280 columns, regression; also as ridge regression",
        layouts=("aligned", "sharded", "relational"),
        folder="blogfeedback",
    ),
)


@dataclass
class Config(Clipped, TimedKeys):
    """Keys of the data set."""

    name: str = "blog"
    clip: Positive | None = 10.0
