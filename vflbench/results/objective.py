"""What a job of a sweep returns to the sweeper: one number, which a sweeper that adapts makes better."""

import math

import numpy as np

from vflbench.results.pricing import Charged
from vflbench.results.reader import Run
from vflbench.results.selection import judged, reached
from vflbench.types import ENDED_WELL, Objective, VflbenchError


def value(run: Run | None, objective: Objective) -> float:
    """The objective of a job's run, as the report counts it; one that failed, diverged or is damaged has none.

    Parameters
    ----------
    run : None where the job has none.

    Returns
    -------
    float : `metric`: the best validation value (of a convex problem the best in training), NaN where there is none.
        The two costs: bytes, or seconds of the federation, up to the first evaluation at the run's target. The
        target is judged on validation rows; on test rows only where a data set holds none out for validation.
        Infinity where it is not reached, or the run has no target.
    """
    try:
        if run is not None and run.status in ENDED_WELL:
            return _best(run) if objective == "metric" else _cost(run, objective)
    except VflbenchError:
        pass  # the sweep's table says what is damaged
    return math.nan if objective == "metric" else math.inf


def _best(run: Run) -> float:
    column = judged(run)
    if column is None:
        return math.nan
    values = run.curve[column].to_numpy(dtype=float)
    return float(np.nanmax(values) if run.summary["metric"]["goal"] == "max" else np.nanmin(values))


def _cost(run: Run, objective: Objective) -> float:
    target = run.manifest["config"].get("target")
    column = judged(run) or f"test_{run.summary['metric']['name']}"
    place = reached(run, float(target), column) if target is not None and column in run.curve else None
    if place is None:
        return math.inf
    timed = run.curve["communication_seconds"].notna().all()  # else what it does depends on time
    key = "bytes" if objective == "bytes_to_target" else "communication_seconds" if timed else "virtual_seconds"
    return float(run.curve[key].iloc[place]) + Charged().more(run, key)
