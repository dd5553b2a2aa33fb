"""All messages, and what a method assumes."""

from vflbench.types import OptionInfo

OPTIONS = (OptionInfo("everything", "every message that was sent, the alignment, and what the method assumes"),)
