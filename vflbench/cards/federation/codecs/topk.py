"""The entries of largest magnitude."""

from dataclasses import dataclass
from typing import Annotated

from vflbench.types import CodecConfig, OptionInfo, Range

OPTIONS = (OptionInfo("topk", "the entries of largest magnitude, 8 bytes each"),)


@dataclass
class Config(CodecConfig):
    """The keys of codec=topk."""

    name: str = "topk"
    fraction: Annotated[float, Range(above=0, at_most=1)] = 0.1  # share of an array's entries that are sent
