"""Whose running time a report shows.

Modelled seconds are predictions. `scripts/validate_architectures.py` compares those of split learning with real
processes, and writes running_time.json. A method whose prediction is further off than WANTED has no running time in a
report, unless it was measured.
"""

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vflbench.plots import style
from vflbench.results.reader import Run

FILE = Path(__file__).with_suffix(".json")
WANTED = 0.25  # how far a prediction may be off


@functools.cache
def ratios() -> dict[str, float]:
    """Algorithm -> real over predicted seconds of an epoch."""
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return {name: float(ratio) for name, ratio in found["ratios"].items()}


def proven(algorithm: str, compute_clock: str) -> bool:
    """Whether the running time of such runs may be shown."""
    return compute_clock != "modelled" or abs(ratios().get(algorithm, 1.0) - 1) <= WANTED


def may_be_shown(run: Run) -> bool:
    """Whether the running time of this run may be shown."""
    return proven(run.summary["algorithm"], run.summary["compute_clock"])


def clock(run: Run) -> str:
    """The compute clock, with the delay model's name: only under one of both are running times compared."""
    found: str = run.summary["compute_clock"]
    model = (run.manifest["config"].get("compute") or {}).get("name")
    return f"{found} ({model})" if found == "modelled" and model else found


def caveat(runs: Sequence[Run]) -> str:
    """Which methods have no running time here, and why; else an empty text."""
    names = sorted({style.look(run.summary["algorithm"]).label for run in runs if not may_be_shown(run)})
    if not names:
        return ""
    return (
        f"No running time of {', '.join(names)}: predictions were more than {WANTED:.0%} off when they were compared "
        "with real processes"
    )
