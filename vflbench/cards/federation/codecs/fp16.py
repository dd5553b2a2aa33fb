"""Half precision."""

from dataclasses import dataclass

from vflbench.types import CodecConfig, OptionInfo

OPTIONS = (OptionInfo("fp16", "half precision, 2 bytes a number"),)


@dataclass
class Config(CodecConfig):
    """The keys of codec=fp16."""

    name: str = "fp16"
    warned = False  # no key: whether this run has said so
