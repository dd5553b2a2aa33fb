"""scikit-learn's digits as a graph."""

from typing import Annotated, Literal

from vflbench.cards.data import divide
from vflbench.defaults import from_conf
from vflbench.types import DatasetInfo, Range

DATASETS = (
    DatasetInfo(
        name="digits_graph",
        summary="scikit-learn's digits with a nearest-neighbour graph: 1,797 images, 64 pixels, 10 digits; needs no "
        "files",
        layouts=("graph",),
        sources=("real",),
        comes_with="comes with scikit-learn",
    ),
)


@from_conf()
class Config(divide.Division):
    """Keys of the data set."""

    name: str
    source: Literal["auto", "real"]
    variant: Literal["auto"]
    neighbours: Annotated[int, Range(at_least=1, at_most=100)]
    train_per_class: Annotated[int, Range(at_least=1, at_most=174)]
    validation: Annotated[int, Range(at_least=1, at_most=1797)]
    test: Annotated[int, Range(at_least=1, at_most=1797)]
