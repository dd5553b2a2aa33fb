"""Small aligned tasks, convex and not, and a way to run a program on them without the runner."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import numpy as np

from tests.options import card_of, privacy_config, topology_config
from vflbench.cards.models.split_network import Config as ModelConfig
from vflbench.data.tasks import AlignedTask, Objective
from vflbench.federation import topology
from vflbench.federation.ledger import COLUMN, sort_ledger
from vflbench.federation.party import SERVER
from vflbench.federation.simulated import SimulatedEngine
from vflbench.models.glm import Loss
from vflbench.runner.evaluate import Observer
from vflbench.types import ComputeConfig, DataSource, EngineConfig, Metric, NetworkConfig, RunConfig


def ridge(samples: int = 40, features: int = 30, parties: int = 6, alpha: float = 1.0, seed: int = 0) -> AlignedTask:
    """X ~ N(0, 1) / sqrt(N), y = X theta + noise; f* in closed form."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(samples, features)) / np.sqrt(samples)
    y = x @ rng.normal(size=features) + rng.normal(size=samples) / 10
    best = np.linalg.solve(x.T @ x + alpha * np.eye(features), x.T @ y)
    optimum = float(np.sum((x @ best - y) ** 2) / 2 + alpha / 2 * best @ best)
    return _task(x, y, 0, parties, Objective("ridge", alpha), optimum)


@functools.cache  # modules ask for it when they are collected
def sparse(samples: int = 60, features: int = 18, parties: int = 6, beta: float = 0.01, seed: int = 0) -> AlignedTask:
    """Logistic labels; f* by proximal gradient descent with momentum, long enough."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(samples, features))
    y = (x[:, :3].sum(axis=1) + rng.normal(size=samples) > 0).astype(np.int64)
    objective = Objective("sparse_logistic", beta)
    loss = Loss(objective, y)
    eta = 1 / (np.linalg.eigvalsh(x.T @ x)[-1] / (4 * samples))
    theta = old = np.zeros(features)
    for i in range(20_000):
        point = theta + i / (i + 3) * (theta - old)
        moved = point - eta * (x.T @ loss.gradient(x @ point))
        old, theta = theta, np.sign(moved) * np.maximum(np.abs(moved) - eta * beta, 0)
        if (theta - old) @ (point - theta) > 0:  # O'Donoghue and Candes: restart
            old = theta
    return _task(x, y, 2, parties, objective, loss.value(x @ theta) + loss.penalty(theta))


def classes(samples: int = 60, features: int = 12, parties: int = 4, classes: int = 3, seed: int = 0) -> AlignedTask:
    """No objective: for networks. With `classes` 0 a regression."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(samples, features))
    score = x @ rng.normal(size=features) + np.tanh(x[:, 0])
    y = np.digitize(score, np.quantile(score, np.linspace(0, 1, classes + 1)[1:-1])) if classes else score
    metric = Metric("accuracy", "max") if classes else Metric("rmse", "min")
    return _task(x, y, classes, parties, None, None, metric, held_out=20)


def _task(
    x: np.ndarray, y: np.ndarray, classes: int, parties: int, objective: Objective | None, optimum: float | None,
    metric: Metric | None = None, held_out: int = 0,
) -> AlignedTask:  # fmt: skip
    train = len(x) - held_out
    columns = np.array_split(np.arange(x.shape[1]), parties)
    blocks = [
        tuple(np.ascontiguousarray(rows[:, c]) for c in columns)
        for rows in (x[:train], x[train : train + held_out // 2], x[-held_out:])
    ]
    apart = {"val": blocks[1], "test": blocks[2]} if held_out else {}
    labels = {"val": y[train : train + held_out // 2], "test": y[-held_out:]} if held_out else {}
    metric = metric or Metric("suboptimality", "min")
    return AlignedTask(
        "toy", DataSource("synthetic"), metric, classes, 0, blocks[0], y[:train], apart, labels, objective, optimum
    )


def config(module: ModuleType, task: AlignedTask, rounds: int = 2, graph: Any = "path", **options: Any) -> RunConfig:
    known = card_of(module).Config.__dataclass_fields__
    algorithm = card_of(module).Config(
        **{"parties": task.parties, **{key: value for key, value in options.items() if key in known}}
    )
    model = replace(ModelConfig("split_mlp", hidden=5, embedding=3, dtype="float64"), **options.get("model", {}))
    graph = topology_config(graph) if isinstance(graph, str) else graph
    others = options.get("network", NetworkConfig("ideal")), graph, privacy_config(), EngineConfig(), ComputeConfig()
    run = RunConfig(algorithm, None, None if task.objective else model, *others)
    return replace(run, rounds=rounds, device="cpu", seed=options.get("seed", 0), target=options.get("target"))


@dataclass
class Result:
    task: AlignedTask
    engine: SimulatedEngine
    observer: Observer
    ledger: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.ledger = sort_ledger(self.engine.ledger.take())

    @property
    def theta(self) -> np.ndarray:
        """All clients' parameters, one behind the other."""
        states = [p.state.model for p in self.engine.order if p.name != SERVER]
        return np.concatenate([np.asarray(model.theta) for model in states])

    @property
    def fusion(self) -> np.ndarray:
        return np.concatenate(
            [p.detach().numpy().ravel() for p in self.engine.parties[SERVER].state.model.parameters()]
        )

    @property
    def gaps(self) -> list[float]:
        return [row["train_suboptimality"] for row in self.observer.rows]

    def sent(self, *tags: str) -> dict[tuple[int, str], tuple[int, int]]:
        """(round, tag) -> messages, bytes."""
        names = list(self.engine.tags)
        total: dict[tuple[int, str], tuple[int, int]] = {}
        for row in self.ledger:
            key = int(row[COLUMN["round"]]), names[int(row[COLUMN["tag"]])]
            messages, nbytes = total.get(key, (0, 0))
            total[key] = messages + 1, nbytes + int(row[COLUMN["bytes"]])
        return total


def run(module: ModuleType, task: AlignedTask, cfg: RunConfig, **options: Any) -> Result:
    """Run `module` on `task`, scored by the observer after every round."""
    rounds = cfg.rounds or 1
    observer = Observer(task, cfg)
    specs = module.parties(task, cfg)
    graph = topology.build(
        cfg.topology, [SERVER] if SERVER in specs else [], [name for name in specs if name != SERVER], cfg.seed
    )
    engine = SimulatedEngine(
        specs, task.public, cfg, rounds=rounds, seed=cfg.seed, connected=graph.connected, neighbours=graph.neighbours,
        **{"network": cfg.network, "on_report": observer.on_report, "on_round": observer.on_round, **options},
    )  # fmt: skip
    engine.run()
    return Result(task, engine, observer)
