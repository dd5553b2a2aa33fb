"""One byte a number."""

from dataclasses import dataclass

from vflbench.types import CodecConfig, OptionInfo

OPTIONS = (OptionInfo("int8", "1 byte a number and a scale per array, right in the mean"),)


@dataclass
class Config(CodecConfig):
    """The keys of codec=int8."""

    name: str = "int8"
