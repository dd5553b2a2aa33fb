"""Codecs that methods of all families try: entries of `SEARCH`."""

from typing import Any

from vflbench.types import Interval

ROUNDING: dict[str, Any] = {"codec": ("none", "fp16", "int8")}
ALL: dict[str, Any] = {
    "codec": ("none", "fp16", "int8", "topk"),
    "codec.fraction": Interval(0.02, 0.3, log=True, most=0.5),  # of topk
    "codec.feedback": (True, False),
}
