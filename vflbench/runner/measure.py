"""What a method would send, and the floor and ceiling of its task, without a run."""

from __future__ import annotations

from typing import Any

from vflbench.runner import bounds
from vflbench.runner.federation import Federation
from vflbench.types import AlgorithmInfo, RunConfig


def first_round(config: RunConfig, info: AlgorithmInfo) -> dict[str, Any]:
    """One round, run in memory and thrown away.

    Returns
    -------
    dict : `bytes` and virtual `seconds` of the round, `rounds` until the first evaluation, the task's `metric` and its
        `goal`.

    Raises
    ------
    VflbenchError : the method cannot run on these data.
    """
    federation = Federation(config, info)
    privacy = federation.mechanisms()
    engine = federation.engine(on_round=lambda round, _: True, eval_every=federation.rounds + 1, privacy=privacy)
    engine.run()
    metric = federation.task.metric
    return {
        "bytes": engine.bytes_sent,
        "seconds": engine.boundary_clock,
        "rounds": 1 if info.one_shot else min(federation.eval_every, federation.rounds),
        "metric": metric.name,
        "goal": metric.goal,
    }


def floor(config: RunConfig, info: AlgorithmInfo) -> dict[str, Any]:
    """Floor and ceiling of the task, as a run's summary has them."""
    federation = Federation(config, info)
    found = federation.bounds()
    return {**found, "ship_it": bounds.on_network(found["ship_it"], config.network)}
