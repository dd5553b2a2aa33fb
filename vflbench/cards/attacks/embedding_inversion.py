"""Rows recovered from embeddings."""

from vflbench.defaults import from_conf
from vflbench.types import Count, OptionInfo, Positive

OPTIONS = (OptionInfo("embedding_inversion", "the active party inverts the embeddings that it received"),)


@from_conf()
class Config:
    """Keys of embedding_inversion."""

    name: str
    rows: Count
    tolerance: Positive
