"""scikit-learn's digits as a graph."""

from dataclasses import dataclass
from typing import Annotated, Literal

from vflbench.cards.data import divide
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


@dataclass
class Config(divide.Division):
    """Keys of the data set."""

    name: str = "digits_graph"
    source: Literal["auto", "real"] = "auto"  # real data that needs no twin
    variant: Literal["auto"] = "auto"
    # nearest neighbours that a node is joined with, in either direction
    neighbours: Annotated[int, Range(at_least=1, at_most=100)] = 5
    train_per_class: Annotated[int, Range(at_least=1, at_most=174)] = 20  # training nodes per digit
    validation: Annotated[int, Range(at_least=1, at_most=1797)] = 300  # validation nodes
    test: Annotated[int, Range(at_least=1, at_most=1797)] = 500  # test nodes
