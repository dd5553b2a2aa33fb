"""Small sharded tasks, and a way to run a program on them without the runner. All in float64."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import torch

from tests.algorithms.small_joins import Result
from tests.options import card_of, make_mechanism, privacy_config, topology_config
from vflbench.cards.models import classifiers as classifiers_card
from vflbench.data.tasks import Shard, ShardedTask
from vflbench.federation import topology
from vflbench.federation.simulated import SimulatedEngine
from vflbench.models import classifiers
from vflbench.types import ComputeConfig, DataSource, EngineConfig, Metric, NetworkConfig, RunConfig


def task(
    workers: int = 5, rows: int = 24, width: int = 3, classes: int = 3, seed: int = 0, equal: bool = False
) -> ShardedTask:
    """Random features; classes (or, with 0, targets) from a linear rule and noise. `equal`: all workers have the same
    rows."""
    rng = np.random.default_rng(seed)
    rule = rng.normal(size=(width, max(classes, 1)))

    def shard() -> Shard:
        x = rng.normal(size=(rows, width)).astype(np.float32)
        score = x @ rule + rng.normal(size=(rows, max(classes, 1))) / 2
        return Shard(x, score.argmax(axis=1) if classes else score[:, 0].astype(np.float32))

    shards = [shard()] * workers if equal else [shard() for _ in range(workers)]
    metric = Metric("accuracy", "max") if classes else Metric("rmse", "min")
    return ShardedTask(
        "toy", DataSource("synthetic"), metric, classes, tuple(shards), {"val": shard(), "test": shard()}
    )


def config(
    module: ModuleType, rounds: int = 2, graph: str = "complete", privacy: Any = None, **options: Any
) -> RunConfig:
    model = classifiers_card.Config(options.pop("model", "logistic"), [4], [2], 3, "float64")
    parts = (
        model,
        NetworkConfig("ideal"),
        topology_config(graph),
        privacy or privacy_config(),
        EngineConfig(),
        ComputeConfig(),
    )
    kind = card_of(module).Config
    own = {key: value for key, value in options.items() if key in kind.__dataclass_fields__}
    algorithm = kind(**{"batch_size": 8, **own})
    return replace(RunConfig(algorithm, None, *parts), rounds=rounds, device="cpu", seed=options.get("seed", 0))


def run(
    module: ModuleType, data: ShardedTask, cfg: RunConfig, programs: dict[str, Any] | None = None, **options: Any
) -> Result:
    """`programs` take the place of those of the parties named."""
    reports: list[tuple[str, int, dict[str, Any]]] = []
    specs = module.parties(data, cfg)
    for name, program in (programs or {}).items():
        specs[name] = replace(specs[name], program=program)
    clients = [name for name, spec in specs.items() if spec.role != "server"]
    graph = topology.build(cfg.topology, [name for name in specs if name not in clients], clients, cfg.seed)
    secrets = (
        {name: make_mechanism(cfg.privacy, layout="sharded") for name in clients} if cfg.privacy.name != "none" else {}
    )
    engine = SimulatedEngine(
        specs, data.public, cfg, rounds=cfg.rounds or 1, seed=cfg.seed, connected=graph.connected,
        neighbours=graph.neighbours,
        on_report=lambda name, round, values: reports.append((name, round, values)), **{"privacy": secrets, **options},
    )  # fmt: skip
    engine.run()
    return Result(engine, reports)


def models(result: Result) -> torch.Tensor:
    """(workers, D)."""
    return torch.stack([classifiers.flat(p.state.model) for p in result.engine.order if p.role != "server"])
