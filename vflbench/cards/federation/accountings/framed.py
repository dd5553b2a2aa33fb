"""All messages, each with a header."""

from vflbench.types import OptionInfo

OPTIONS = (OptionInfo("framed", "every message that was sent, with the header that a transport puts before it"),)
