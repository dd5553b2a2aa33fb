"""Edges inferred from ids or embeddings."""

from typing import Literal

from vflbench.defaults import from_conf
from vflbench.types import Count, OptionInfo

OPTIONS = (OptionInfo("edge_inference", "the server infers edges from sampled node ids, or from embeddings"),)


@from_conf()
class Config:
    """Keys of edge_inference."""

    name: str
    source: Literal["ids", "embeddings"]
    rows: Count
