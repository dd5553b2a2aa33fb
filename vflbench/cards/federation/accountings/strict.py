"""The card of `strict`."""

from vflbench.types import OptionInfo

OPTIONS = (OptionInfo("strict", "every message costs what was sent"),)
