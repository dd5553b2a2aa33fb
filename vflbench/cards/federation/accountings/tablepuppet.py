"""The rule of TablePuppet's figures."""

from vflbench.types import OptionInfo

OPTIONS = (
    OptionInfo("tablepuppet", "the rule of TablePuppet's figures: a row of a table once an epoch, 8 bytes a number"),
)
