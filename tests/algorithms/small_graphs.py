"""Tiny graph tasks, and running an algorithm on them through the simulated engine, in float64 unless told otherwise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np
import torch

from tests.options import card_of, privacy_config, topology_config
from vflbench.cards.models.gnn import Config as ModelConfig
from vflbench.data.tasks import GraphTask
from vflbench.federation.ledger import COLUMN, sort_ledger
from vflbench.federation.simulated import SimulatedEngine
from vflbench.types import (
    ComputeConfig,
    DataSource,
    EngineConfig,
    Metric,
    NetworkConfig,
    RunConfig,
)


def symmetric(pairs: np.ndarray) -> np.ndarray:
    pairs = pairs[:, pairs[0] != pairs[1]]
    return np.unique(np.concatenate([pairs, pairs[::-1]], axis=1), axis=1)


def task(
    parties: int = 2, nodes: int = 20, width: int = 4, classes: int = 3, keep: float = 0.8, seed: int = 0
) -> GraphTask:
    """`width` positive features per party; each party keeps every edge with probability `keep`."""
    rng = np.random.default_rng(seed)
    pairs = rng.integers(0, nodes, (2, 2 * nodes))
    pairs = np.unique(np.sort(pairs[:, pairs[0] != pairs[1]], axis=0), axis=1)
    labels = rng.integers(0, classes, nodes)
    third = nodes // 3
    splits = {"train": np.arange(third), "val": np.arange(third, 2 * third), "test": np.arange(2 * third, nodes)}
    return GraphTask(
        name="small",
        source=DataSource("synthetic"),
        metric=Metric("accuracy", "max"),
        classes=classes,
        labels=labels,
        splits=splits,
        features=tuple(rng.random((nodes, width)).astype(np.float32) for _ in range(parties)),
        edges=tuple(symmetric(pairs[:, rng.random(pairs.shape[1]) < keep]) for _ in range(parties)),
        all_edges=symmetric(pairs),
    )


def config(module: ModuleType, model: dict[str, Any] | None = None, **options: Any) -> RunConfig:
    """Deterministic by default: no dropout, all neighbours, all training nodes, plain SGD at a constant rate."""
    rounds = options.pop("rounds", 3)
    privacy = options.pop("privacy", privacy_config())
    seed = options.pop("seed", 0)
    defaults = {
        "layers": 2,
        "fanout": None,
        "batch_size": 100,
        "optimizer": "sgd",
        "lr": 0.5,
        "schedule": "none",
        "weight_decay": 0.0,
    }
    known = card_of(module).Config.__dataclass_fields__
    algorithm = card_of(module).Config(**{key: value for key, value in (defaults | options).items() if key in known})
    network = ModelConfig(
        **{"name": "gcn", "hidden": 12, "heads": 2, "dropout": 0.0, "dtype": "float64", **(model or {})}
    )
    run = RunConfig(
        algorithm,
        None,
        network,
        NetworkConfig("ideal"),
        topology_config(),
        privacy,
        EngineConfig(),
        ComputeConfig(),
        seed=seed,
        rounds=rounds,
    )
    return replace(run, device="cpu")


@dataclass
class Result:
    engine: SimulatedEngine
    reports: list[tuple[str, int, dict[str, Any]]]

    def parameters(self, party: str) -> dict[str, torch.Tensor]:
        return {name: p.detach().clone() for name, p in self.engine.parties[party].state.model.named_parameters()}

    @property
    def clients(self) -> list[str]:
        return [name for name in self.engine.parties if name != "server"]

    @property
    def losses(self) -> list[float]:
        return [values["train_loss"] for _, _, values in self.reports if "train_loss" in values]

    def predictions(self, party: str) -> list[dict[str, torch.Tensor]]:
        return [values["predictions"] for name, _, values in self.reports if name == party and "predictions" in values]

    def ledger(self) -> list[dict[str, Any]]:
        names, tags = list(self.engine.parties), list(self.engine.tags)
        rows = []
        for row in sort_ledger(self.engine.ledger.take()):
            entry = {name: row[i] for name, i in COLUMN.items()}
            rows.append(
                entry
                | {"src": names[int(entry["src"])], "dst": names[int(entry["dst"])], "tag": tags[int(entry["tag"])]}
            )
        return rows


def run(module: ModuleType, graph: GraphTask, cfg: RunConfig, **options: Any) -> Result:
    """Evaluates after the last round only, unless `eval_every` is given."""
    reports: list[tuple[str, int, dict[str, Any]]] = []
    rounds = cfg.rounds or 1
    options = {"eval_every": rounds, **options}
    engine = SimulatedEngine(
        module.parties(graph, cfg), graph.public, cfg, rounds=rounds, seed=cfg.seed,
        on_report=lambda name, round, values: reports.append((name, round, values)), **options,
    )  # fmt: skip
    engine.run()
    return Result(engine, reports)


def assert_same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(
            a[name], b[name], rtol=1e-10, atol=1e-10, msg=lambda text, name=name: f"{name}: {text}"
        )


def differ(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return any(not torch.allclose(a[name], b[name], rtol=1e-6, atol=1e-8) for name in a)
