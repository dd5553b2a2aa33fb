"""The card of `everything`."""

from vflbench.types import OptionInfo

OPTIONS = (OptionInfo("everything", "every message that was sent, the alignment, and what the method assumes"),)
