"""What a method would send, and the floor and ceiling of its task, without a run."""

from __future__ import annotations

import time
from typing import Any

from vflbench.privacy import keys
from vflbench.runner import task_baselines
from vflbench.runner.federation import Federation
from vflbench.types import AlgorithmInfo, RunConfig, hook


def first_round(config: RunConfig, info: AlgorithmInfo) -> dict[str, Any]:
    """One round, run in memory and thrown away.

    Returns
    -------
    dict : `bytes`, virtual `seconds` and `wall_seconds` of the round, `rounds` until the first evaluation, the task's
        `metric` and its `goal`, and `floor`: floor and ceiling as in a run's summary, {} with floor=none. `most` has
        the keys of the algorithm that the data limit, with the largest value of each. `large_delta` is a sentence
        where delta is no guarantee for so few rows.

    Raises
    ------
    VflbenchError : the method cannot run on these data.
    """
    federation = Federation(config, info)
    privacy = federation.mechanisms()
    engine = federation.engine(on_round=lambda round, _: True, eval_every=federation.rounds + 1, privacy=privacy)
    began = time.perf_counter()
    engine.run()
    wall = time.perf_counter() - began
    metric, floor, most = federation.task.metric, {}, hook(federation.module, "most")
    if config.floor != "none":
        floor = federation.baselines()
        floor["ship_it"] = task_baselines.on_network(floor["ship_it"], config.network)
    return {
        "bytes": engine.bytes_sent,
        "seconds": engine.boundary_clock,
        "wall_seconds": wall,
        "rounds": 1 if info.one_shot else min(federation.eval_every, federation.rounds),
        "metric": metric.name,
        "goal": metric.goal,
        "floor": floor,
        "most": most(federation.task, federation.config) if most else {},
        "large_delta": keys.large_delta(federation.decided.privacy, federation.task.units),
    }
