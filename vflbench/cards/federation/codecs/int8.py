"""One byte a number."""

from vflbench.defaults import from_conf
from vflbench.types import CodecConfig, OptionInfo

OPTIONS = (OptionInfo("int8", "1 byte a number and a scale per array, right in the mean"),)


@from_conf()
class Config(CodecConfig):
    """The keys of codec=int8."""

    name: str
