"""Planetoid: Cora, CiteSeer and PubMed."""

from dataclasses import dataclass
from typing import Literal

from vflbench.cards.data import divide
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


@dataclass
class Config(divide.Division):
    """Keys of the data set."""

    name: str = "cora"
    source: Literal["auto", "real", "synthetic"] = "auto"
    variant: Literal["auto"] = "auto"
    verify: bool = True  # compare the files with the published checksums
    split: Literal["random", "public"] = "random"  # random (drawn by the run's seed) | public (Planetoid's)
    train_per_class: Count | None = None  # split=random: training nodes per class; null: the paper's 60, 84, 320
    validation: Count = 500  # split=random: validation nodes
    test: Count = 1000  # split=random: test nodes
