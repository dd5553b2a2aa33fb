"""Planetoid: Cora, CiteSeer and PubMed."""

from typing import Literal

from vflbench.cards.data import divide
from vflbench.defaults import from_conf
from vflbench.types import Count, DatasetInfo

DATASETS = (
    DatasetInfo(
        name="cora",
        summary="Cora: 2,708 papers, 1,433 words, 7 topics",
        layouts=("graph",),
        folder="planetoid/Cora/raw",
    ),
    DatasetInfo(
        name="citeseer",
        summary="CiteSeer: 3,327 papers, 3,703 words, 6 topics",
        layouts=("graph",),
        folder="planetoid/CiteSeer/raw",
    ),
    DatasetInfo(
        name="pubmed",
        summary="PubMed: 19,717 papers, 500 tf-idf words, 3 topics",
        layouts=("graph",),
        folder="planetoid/PubMed/raw",
    ),
)


@from_conf()
class Config(divide.Division):
    """Keys of the data set."""

    name: str
    source: Literal["auto", "real", "synthetic"]
    variant: Literal["auto"]
    verify: bool
    split: Literal["random", "public"]
    train_per_class: Count | None
    validation: Count
    test: Count
