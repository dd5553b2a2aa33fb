"""The phases beside training, as the report shows them."""

from collections.abc import Sequence
from typing import Any

from vflbench.results.folder import PER
from vflbench.results.pricing import LIFE, Charged, Priced
from vflbench.results.reader import Run

NAMES = {"align": "alignment", "setup": "setup", "predict": "predictions"}


def words(runs: Sequence[Run], charged: Charged) -> str:
    """What "to target" has, in one line; empty where no run has phases."""
    known = [run.summary for run in runs if run.summary.get("phases")]
    if not known:
        return ""
    kept = [NAMES[name] for name in LIFE if name not in charged.without]
    if "predictions" in kept:
        numbers = {s["predictions"] if charged.predictions is None else charged.predictions for s in known}
        kept[-1] = f"{' or '.join(f'{number:,}' for number in sorted(numbers))} predictions"
    return f"to target: training{''.join(f', {name}' for name in kept)}"


def entry(run: Run, priced: Priced) -> dict[str, Any]:
    """What the page's script knows of a run's phases; nothing of a run of an older version."""
    phases = run.summary.get("phases")
    if not phases:
        return {}
    found = {name: dict(phases[name]) for name in LIFE if phases.get(name)}
    for name, (chains, links) in priced.phases.items():
        if name in found:
            times = PER / found[name]["rows"] if name == "predict" else 1.0
            found[name]["chains"] = [number for lat, nbytes in chains for number in (lat, nbytes * times)]
            found[name]["links"] = [nbytes * times for nbytes in links]
    return {"life": found, "predictions": run.summary.get("predictions", 0), "charged_before": "before" in run.summary}
