"""What networks for image views have in common."""

from typing import Any

from vflbench.types import Problem

CHANNELS_PER_GROUP = 8  # of group normalisation


def check(config: Any) -> list[Problem]:
    """What is wrong with the configuration of a network for images."""
    key = "channels" if hasattr(config, "channels") else "width"
    value = getattr(config, key)
    widths = value if isinstance(value, list) else [value]
    if not widths or min(widths) < 1:
        return [Problem(f"model.{key}", value, "must be at least 1, all of them")]
    if config.norm == "group" and any(width % CHANNELS_PER_GROUP for width in widths):
        allowed = f"group normalisation takes multiples of {CHANNELS_PER_GROUP}; or model.norm=none"
        return [Problem(f"model.{key}", value, allowed)]
    return []
