"""Rows recovered from embeddings."""

from dataclasses import dataclass

from vflbench.types import Count, OptionInfo, Positive

OPTIONS = (OptionInfo("embedding_inversion", "the active party inverts the embeddings that it received"),)


@dataclass
class Config:
    """Keys of embedding_inversion."""

    name: str = "embedding_inversion"
    rows: Count = 1000  # attacked training rows, drawn at random
    tolerance: Positive = 0.5  # a number counts as recovered within so many standard deviations
