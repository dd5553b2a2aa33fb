"""Small relational tasks, and a way to run a program on them without the runner."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np
import torch

from tests.options import card_of, privacy_config, topology_config
from vflbench.cards.models.partial import Config as ModelConfig
from vflbench.data.divide.raw_tables import RawTable, RawTables, divide
from vflbench.data.tasks import AlignedTask, Equality, RelationalTask
from vflbench.federation.ledger import COLUMN, sort_ledger
from vflbench.federation.simulated import SimulatedEngine
from vflbench.types import ComputeConfig, DataSource, EngineConfig, Metric, NetworkConfig, RunConfig


def raw(
    seed: int = 0, rows: int = 60, movies: int = 12, users: int = 9, classes: int = 0, one_to_one: bool = False
) -> RawTables:
    """Ratings, movies (some stand twice, one never), users. With `one_to_one`, every row joins exactly once."""
    rng = np.random.default_rng(seed)
    if one_to_one:
        movies = users = rows
    movie = np.arange(rows) if one_to_one else rng.integers(0, movies - 1, rows)
    user = rng.permutation(rows) if one_to_one else rng.integers(0, users, rows)
    ids = np.arange(movies) if one_to_one else np.sort(np.concatenate([np.arange(movies), rng.integers(0, movies, 5)]))
    tables = (
        RawTable("ratings", {"movie": movie, "user": user}, rng.normal(size=(rows, 2)).astype(np.float32), ("a", "b")),
        RawTable("movies", {"id": ids}, rng.normal(size=(len(ids), 3)).astype(np.float32), ("c", "d", "e")),
        RawTable("users", {"id": np.arange(users)}, rng.normal(size=(users, 2)).astype(np.float32), ("f", "g")),
    )
    score = (
        tables[0].features.sum(axis=1)
        + tables[2].features[user, 0]
        - tables[1].features[np.searchsorted(ids, movie), 1]
    )
    labels = score + rng.normal(size=rows) / 3 + 2
    if classes:
        labels = np.digitize(labels, np.quantile(labels, np.linspace(0, 1, classes + 1)[1:-1]))
    joins = (Equality(("ratings", "movie"), ("movies", "id")), Equality(("ratings", "user"), ("users", "id")))
    return RawTables(tables, "ratings", labels.astype(np.int64 if classes else np.float64), classes, joins)


def tables(parts: int = 1, **how: Any) -> RelationalTask:
    task = _divide(raw(**how), "relational", parts)
    assert isinstance(task, RelationalTask)
    return task


def aligned(**how: Any) -> AlignedTask:
    task = _divide(raw(**how), "aligned", 1)
    assert isinstance(task, AlignedTask)
    return task


def _divide(tables: RawTables, layout: str, parts: int) -> RelationalTask | AlignedTask:
    rows = len(tables.labels)
    splits = {"train": np.arange(rows - 20), "val": np.arange(rows - 20, rows - 10), "test": np.arange(rows - 10, rows)}
    metric = Metric("accuracy", "max") if tables.classes else Metric("rmse", "min")
    return divide("toy", tables, splits, DataSource("synthetic"), metric, layout=layout, parts=parts)


def config(module: ModuleType, rounds: int = 2, model: dict[str, Any] | None = None, **options: Any) -> RunConfig:
    known = card_of(module).Config.__dataclass_fields__
    algorithm = card_of(module).Config(**{key: value for key, value in options.items() if key in known})
    network = ModelConfig(**{"dtype": "float64", **(model or {})})
    run = RunConfig(
        algorithm,
        None,
        network,
        NetworkConfig("ideal"),
        topology_config(),
        privacy_config(),
        EngineConfig(),
        ComputeConfig(),
    )
    return replace(run, rounds=rounds, device="cpu")


@dataclass
class Result:
    engine: SimulatedEngine
    reports: list[tuple[str, int, dict[str, Any]]]

    def theta(self, *clients: int) -> torch.Tensor:
        """Parameters of the clients with these numbers (all), one behind the other."""
        names = [name for name in self.engine.parties if name != "server"]
        chosen = [names[c] for c in clients] if clients else names
        return torch.cat([p.detach() for name in chosen for p in self.engine.parties[name].state.model.parameters()])

    @property
    def losses(self) -> list[float]:
        return [values["train_loss"] for _, _, values in self.reports if "train_loss" in values]

    def sent(self) -> dict[tuple[int, str], int]:
        """Bytes by round and tag."""
        tags = list(self.engine.tags)
        total: dict[tuple[int, str], int] = {}
        for row in sort_ledger(self.engine.ledger.take()):
            key = int(row[COLUMN["round"]]), tags[int(row[COLUMN["tag"]])]
            total[key] = total.get(key, 0) + int(row[COLUMN["bytes"]])
        return total


def run(module: ModuleType, task: RelationalTask | AlignedTask, cfg: RunConfig, **options: Any) -> Result:
    reports: list[tuple[str, int, dict[str, Any]]] = []
    rounds = cfg.rounds or 1
    engine = SimulatedEngine(
        module.parties(task, cfg), task.public, cfg, rounds=rounds, seed=cfg.seed,
        on_report=lambda name, round, values: reports.append((name, round, values)), **options,
    )  # fmt: skip
    engine.run()
    return Result(engine, reports)
