"""Learning over joins: an epoch at MovieLens-1M's size, the table mapping, and how time grows with joined rows."""

import itertools
import resource
import statistics
import time
from typing import Any

from benchmarks.common import say, topology_config


def epochs(algorithm: str, task: Any, count: int = 4, dtype: str = "float64", **options: Any) -> list[float]:
    """CPU seconds of every epoch but the first, which also maps the tables and factors what stays."""
    from vflbench import registry
    from vflbench.federation.simulated import SimulatedEngine
    from vflbench.models.partial import Config as ModelConfig
    from vflbench.types import ComputeConfig, EngineConfig, NetworkConfig, PrivacyConfig, RunConfig

    module = registry.load_algorithm(algorithm)
    others = NetworkConfig(), topology_config("star"), PrivacyConfig(), EngineConfig(), ComputeConfig()
    config = RunConfig(module.Config(**options), None, ModelConfig(dtype=dtype), *others, rounds=count, device="cpu")  # type: ignore[arg-type]
    marks: list[float] = []

    def on_round(round: int, engine: SimulatedEngine) -> bool:
        marks.append(time.process_time())
        return False

    specs = module.parties(task, config)
    SimulatedEngine(specs, task.public, config, rounds=count, seed=0, eval_every=10 * count, on_round=on_round).run()
    return [after - before for before, after in itertools.pairwise(marks)]


def joined(task: Any, how: str) -> tuple[float, Any]:
    """CPU seconds of the table mapping: keys as clients hand them over, united and joined. And how many rows join."""
    from vflbench.data.relational.join import hand_over, join, unite

    began = time.process_time()
    keys = {}
    for table, clients in zip(task.tables, task.public.parts, strict=True):
        keys[table] = unite([hand_over(task.clients[c].keys, task.clients[c].rows, how, table) for c in clients], table)
    behind = join(keys, task.joins, task.label_table)
    return time.process_time() - began, behind


def clients_half(task: Any, count: int = 9) -> float:
    """CPU seconds an epoch that the clients of `rfl_admm_v` spend on their updates, all together."""
    from vflbench.algorithms.joins.admm import ThetaUpdate

    spent: list[float] = []
    update = ThetaUpdate.__call__

    def timed(self: ThetaUpdate, *args: Any) -> None:
        began = time.process_time()
        update(self, *args)
        spent.append(time.process_time() - began)

    ThetaUpdate.__call__ = timed  # type: ignore[method-assign]
    try:
        epochs("rfl_admm_v", task, count)
    finally:
        ThetaUpdate.__call__ = update  # type: ignore[method-assign]
    tables = len(task.tables)
    return statistics.median(sum(spent[at : at + tables]) for at in range(tables, len(spent), tables))


def row_by_row(task: Any, behind: Any, rows: int) -> float:
    """CPU seconds a joined row of the server's half of an epoch, written as a plain loop over joined rows."""
    h = [{} for _ in task.tables]  # type: ignore[var-annotated]
    places = [behind[table][:rows].tolist() for table in task.tables]
    for table, place in enumerate(places):
        h[table] = dict.fromkeys(place, 0.1)
    y = [3.0] * rows
    z, dual, sums = [0.0] * rows, [0.0] * rows, [dict.fromkeys(place, 0.0) for place in places]
    began = time.process_time()
    for j in range(rows):
        own = [h[table][places[table][j]] for table in range(len(places))]
        total = sum(own)
        z[j] = (y[j] + dual[j] + total) / 2
        dual[j] += total - z[j]
        for table in range(len(places)):
            sums[table][places[table][j]] += dual[j] + total - own[table] - z[j]
    return (time.process_time() - began) / rows


def tablepuppet() -> None:
    import logging

    import numpy as np

    from vflbench.data.relational import movielens, star_schema
    from vflbench.data.tasks import RelationalTask

    logging.disable(logging.WARNING)  # that the twin is made up
    twin = movielens.load(movielens.Config(source="synthetic", variant="1m"), "relational", 1, 0, None)
    assert isinstance(twin, RelationalTask)
    for how, limit in (("none", "0.5"), ("sha256", "1.5")):
        seconds = min(joined(twin, how)[0] for _ in range(3))
        name = "integer keys" if how == "none" else "hashed keys"
        say(f"tablepuppet: CPU s, mapping of MovieLens-1M's size, {name} (under {limit})", f"{seconds:.2f}")
    behind = joined(twin, "none")[1]
    total = len(behind["ratings"])
    exact, sgd = epochs("rfl_admm_v", twin, solver="exact"), epochs("rfl_admm_v", twin)
    say("tablepuppet: CPU s, RFL-ADMM-V epoch, exact (under 0.3)", f"{statistics.median(exact):.2f}")
    say(
        "tablepuppet: CPU s, RFL-ADMM-V epoch, 10 local epochs of batch 1,024 (under 3)",
        f"{statistics.median(sgd):.2f}",
    )
    say("tablepuppet: CPU s, RFL-SGD-V epoch, batch 10,240", f"{statistics.median(epochs('rfl_sgd_v', twin)):.2f}")
    plain = row_by_row(twin, behind, 100_000) * total
    say(f"tablepuppet: the server's half by a plain loop over {total:,} rows, CPU s", f"{plain:.2f}")
    say("tablepuppet: that over the whole exact epoch", f"{plain / statistics.median(exact):.1f}")

    sizes, halves = [], []
    for duplication in (1, 4, 16, 64):
        config = star_schema.Config(rows=20_000, dimension_rows=6_400, duplication=duplication, width=16)
        task = star_schema.load(config, "relational", 1, 0, None)
        assert isinstance(task, RelationalTask)
        sizes.append(len(joined(task, "none")[1]["facts"]))
        whole, clients = statistics.median(epochs("rfl_admm_v", task, count=9)), clients_half(task)
        halves.append((clients, whole - clients))
        numbers = f"{clients * 1e3:.1f} {(whole - clients) * 1e3:.1f}"
        say(
            f"tablepuppet: duplication {duplication}, {sizes[-1]:,} joined rows: CPU ms an epoch, clients server",
            numbers,
        )
    slopes = []
    # the server's is a difference of two times: where that is lost in noise it says nothing
    for half in zip(*halves, strict=True):
        pairs = [(size, seconds) for size, seconds in zip(sizes, half, strict=True) if seconds > 0]
        slopes.append(float(np.polyfit(*np.log(np.transpose(pairs)), 1)[0]))
    say(
        "tablepuppet: slope of log time over log joined rows (1: linear), clients server",
        f"{slopes[0]:.2f} {slopes[1]:.2f}",
    )

    big = star_schema.load(
        star_schema.Config(rows=1_115_000, dimension_rows=64_000, duplication=64, width=1), "relational", 1, 0, None
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    _, behind = joined(big, "none")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    say(
        f"tablepuppet: s, mapping of {len(behind['facts']):,} joined rows (under 60)",
        f"{time.perf_counter() - began:.1f}",
    )
    say("tablepuppet: peak memory of this process, GB (under 8)", f"{max(before, peak) / 2**20:.1f}")
