"""Numbers of a user's own table that are not finite, too large, or far from the others of their column."""

from typing import Literal

import numpy as np

from vflbench.data.readers import table_sources
from vflbench.data.readers.table_sources import Source

LARGEST = 1e30  # a number beyond it, up or down, is none to learn from
LARGE = 1e15  # a number beyond it may be a mistake
FAR = 1e9  # interquartile ranges from the median
TOO_FAR = 1e30  # standard deviations of the other numbers: float32 may overflow
_ADVICE = "correct it, or list it in dataset.missing_words"


def beyond(values: np.ndarray) -> tuple[int, str] | None:
    """The row of the first number that is infinite or huge, and which of the two it is; None: there is none."""
    wrong = np.flatnonzero(np.abs(values) > LARGEST)
    if not len(wrong):
        return None
    return int(wrong[0]), "not finite" if np.isinf(values[wrong[0]]) else f"too large (at most {LARGEST:g})"


def too_large(values: np.ndarray, source: Source) -> str:
    """What is wrong with the first number that is infinite or huge; empty: there is none."""
    if (found := beyond(values)) is None:
        return ""
    row, size = found
    return f"{values[row]:g} in {table_sources.within(source, row)} is {size}; {_ADVICE}"


def far(values: np.ndarray, source: Source) -> tuple[Literal["ok", "warning", "error"], str]:
    """How bad it is that a number is far from the others, and what to say of it; "ok": none is."""
    known = values[~np.isnan(values)]
    low, median, high = np.quantile(known, (0.25, 0.5, 0.75))
    with np.errstate(over="ignore"):
        away = np.abs(np.where(np.isnan(values), median, values) - median)
        row = int(away.argmax())
        if away[row] <= FAR * (high - low) or low == high:
            return "ok", ""
        spread = known[known != values[row]].std()
    severity: Literal["warning", "error"] = "error" if away[row] > TOO_FAR * spread > 0 else "warning"
    if severity == "warning" and abs(values[row]) < LARGE:
        return "ok", ""
    where = table_sources.within(source, row)
    how = "too far" if severity == "error" else "far"
    told = f"{values[row]:g} in {where} is {how} from the other numbers (their median is {median:g})"
    return severity, f"{told}; {_ADVICE}"
