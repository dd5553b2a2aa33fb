"""What was sent."""

from vflbench.types import OptionInfo

OPTIONS = (OptionInfo("strict", "every message costs what was sent"),)
