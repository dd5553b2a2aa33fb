"""Words that the answer, its page and the terminal share."""

from collections.abc import Mapping
from typing import Any

from vflbench.plots import style
from vflbench.results.texts import human_bytes

PAGE = "answer.html"


def label(algorithm: str, privacy: str | None) -> str:
    """The algorithm as its paper calls it, and the mechanism where there is one."""
    own = style.look(algorithm).label
    return own if privacy in (None, "none") else f"{own} · {privacy}"


def spent_words(row: Mapping[str, Any], key: str) -> str:
    """What a method took to the target, or what else there is to say."""
    value = row[key]
    if value is None:
        return "–"
    if key == "bytes":
        return human_bytes(value)
    return f"{value:.3g} s" if key.endswith("seconds") else f"{human_bytes(value)} weighted"


def scored(value: float | None, sd: float | None) -> str:
    """A mean with its deviation."""
    return "–" if value is None else f"{value:.4g}" + ("" if sd is None else f" ± {sd:.2g}")
