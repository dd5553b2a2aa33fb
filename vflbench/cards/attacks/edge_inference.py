"""Edges inferred from ids or embeddings."""

from dataclasses import dataclass
from typing import Literal

from vflbench.types import Count, OptionInfo

OPTIONS = (OptionInfo("edge_inference", "the server infers edges from sampled node ids, or from embeddings"),)


@dataclass
class Config:
    """Keys of edge_inference."""

    name: str = "edge_inference"
    source: Literal["ids", "embeddings"] = "ids"  # what is read: sampled node ids | rows of embeddings
    rows: Count = 1000  # attacked nodes of each client, drawn at random
