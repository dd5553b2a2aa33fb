"""The entries of largest magnitude."""

from typing import Annotated

from vflbench.defaults import from_conf
from vflbench.types import CodecConfig, OptionInfo, Range

OPTIONS = (OptionInfo("topk", "the entries of largest magnitude, 8 bytes each"),)


@from_conf()
class Config(CodecConfig):
    """The keys of codec=topk."""

    name: str
    fraction: Annotated[float, Range(above=0, at_most=1)]
