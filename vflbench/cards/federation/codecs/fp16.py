"""Half precision."""

from vflbench.defaults import from_conf
from vflbench.types import CodecConfig, OptionInfo

OPTIONS = (OptionInfo("fp16", "half precision, 2 bytes a number"),)


@from_conf()
class Config(CodecConfig):
    """The keys of codec=fp16."""

    name: str
    warned = False  # no key: whether this run has said so
