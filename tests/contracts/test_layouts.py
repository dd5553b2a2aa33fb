"""A fifth layout is one file: the runner asks a task, never which layout it has. Here the file is this one."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import pytest
import torch

from tests.options import privacy_config, topology_config
from vflbench import registry
from vflbench.cards.models import classifiers as classifiers_card
from vflbench.data import sanity, shipping
from vflbench.data.tasks import Objective, Shard, ShardedTask, Task
from vflbench.data.tasks.base import no_rows, replace_at
from vflbench.federation.party import SERVER, Party, PartySpec
from vflbench.results.reader import Run
from vflbench.runner.distributed import Surveyor, party, same
from vflbench.runner.evaluate import Observer
from vflbench.runner.federation import Federation, Known
from vflbench.runner.run import run
from vflbench.types import (
    AlgorithmInfo,
    ComputeConfig,
    DataError,
    DatasetInfo,
    DataSource,
    EngineConfig,
    Metric,
    NetworkConfig,
    RunConfig,
    Sent,
)

VFLBENCH = Path(__file__).resolve().parents[2] / "vflbench"
LAYOUTS = {layout.__name__ for layout in Task.__subclasses__() if layout.__module__.startswith("vflbench.")}
INFO = AlgorithmInfo(
    name="multiply", summary="A toy.", paper="none", layouts=("factors",), divided_by=None, reports=("partial",)
)
DATA = DatasetInfo(name="numbers", summary="A toy.", layouts=("factors",))


# --- the layout -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Factors:
    """One party's own part: a factor of every number."""

    train: np.ndarray  # (N,)
    test: np.ndarray


@dataclass(frozen=True)
class FactorTask(Task):
    """A party has a factor of every number, and the label is their product."""

    parts: tuple[Factors, ...]
    products: Factors

    @property
    def public(self) -> int:
        return len(self.parts)

    def training_labels(self) -> np.ndarray:
        return self.products.train

    def training_features(self) -> dict[str, list[np.ndarray]]:
        return {f"factor {k}": [part.train] for k, part in enumerate(self.parts)}

    def shipped(self) -> dict[str, shipping.Size]:
        return {f"factor {k}": shipping.rows(part.train) for k, part in enumerate(self.parts)}

    def truth(self, split: str) -> np.ndarray | None:
        return self.products.test if split == "test" else None

    def combine(self, split: str, partial: Any) -> np.ndarray:
        return np.asarray(np.prod([part[split] for part in partial], axis=0))

    def without_features(self) -> Self:
        return replace(self, parts=tuple(Factors(no_rows(part.train), no_rows(part.test)) for part in self.parts))

    def own_files(self, dataset: Any) -> bool:
        return True

    def facts_for(self, index: int | None, labelled: bool) -> Self:
        unknown = Factors(np.zeros_like(self.products.train), np.zeros_like(self.products.test))
        return replace(self.without_features(), products=unknown)

    def with_part(self, whole: Self, index: int) -> Self:
        return replace(self, parts=replace_at(self.parts, index, whole.parts[index]))


def load(config: Any, layout: str, parties: int, seed: int, root: Path | None) -> FactorTask:
    assert layout == "factors"
    rng = np.random.default_rng(seed)
    parts = tuple(Factors(rng.normal(size=20), rng.normal(size=10)) for _ in range(parties))
    products = Factors(np.prod([part.train for part in parts], axis=0), np.prod([part.test for part in parts], axis=0))
    return FactorTask("numbers", DataSource("synthetic"), Metric("rmse", "min"), 0, parts, products)


def load_own(
    config: Any, layout: str, parties: int, seed: int, root: Path | None, task: FactorTask, index: int
) -> FactorTask:
    assert not any(len(part.train) for part in task.parts) and not task.products.test.any()
    return task.with_part(load(config, layout, parties, seed, root), index)


# --- an algorithm that knows it ---------------------------------------------------------------------------------------


@dataclass
class Config:
    name: str
    parties: int = 3
    default_rounds: int = 2


def parties(task: FactorTask, config: RunConfig) -> dict[str, PartySpec]:
    clients = {f"client_{k}": PartySpec(client, part) for k, part in enumerate(task.parts)}
    return {SERVER: PartySpec(server, None, "server"), **clients}


async def server(me: Party, data: None, public: int, config: RunConfig) -> None:
    async for _ in me.rounds():
        await me.recv_all(me.clients, tag="factors")


async def client(me: Party, data: Factors, public: int, config: RunConfig) -> None:
    async for _ in me.rounds():
        await me.send(SERVER, data.train, tag="factors")
        me.report(partial={"test": data.test[:, None]})


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    monkeypatch.setattr(registry, "datasets", lambda: {"numbers": DATA})
    monkeypatch.setattr(registry, "load_dataset", lambda name: SimpleNamespace(load=load, load_own=load_own))
    monkeypatch.setattr(registry, "load_algorithm", lambda name: SimpleNamespace(parties=parties))
    monkeypatch.setattr(registry, "exposed", lambda name: (Sent("factors", "client", "server", "sums", "client"),))
    groups: tuple[Any, ...] = (
        NetworkConfig(),
        topology_config(),
        privacy_config(),
        EngineConfig(threads=1),
        ComputeConfig(),
    )
    return RunConfig(Config("multiply"), Config("numbers"), None, *groups, rounds=2, eval_every=1, device="cpu")


# --- what the runner does with it -------------------------------------------------------------------------------------


def test_a_run_loads_checks_and_scores_a_fifth_layout(config: RunConfig, tmp_path: Path) -> None:
    plain = {"algorithm": {"name": "multiply"}, "dataset": {"name": "numbers"}, "network": {}}
    summary = run(
        config, tmp_path / "run", command="", choices={}, plain=plain, identity="", hidden={}, info=INFO, quiet=True
    )
    # the product, as the layout combines it
    assert (summary["status"], summary["metric"]["final"]) == ("completed", 0.0)
    assert list(Run(tmp_path / "run").curve["test_rmse"]) == [0.0, 0.0]
    flat = replace(load(None, "factors", 3, 0, None), parts=(Factors(np.ones(20), np.ones(10)),) * 3)
    with pytest.raises(DataError, match="no feature differs"):
        sanity.check(flat)


@pytest.mark.slow
def test_its_parties_open_their_own_files_and_the_driver_none(config: RunConfig) -> None:
    whole = Federation(config, INFO)
    found: Any = Surveyor().survey(config, INFO)
    known: Known = found[0]
    assert isinstance(known.task, FactorTask) and not any(len(part.test) for part in known.task.parts)
    assert set(found[1]) == set(whole.specs)
    for name, message in found[1].items():
        told = replace(known, task=message.task)
        own = party(config, INFO, 1, None, name, known=told, index=message.index)["specs"][name]
        assert same(own.data, whole.specs[name].data), name


def test_it_may_be_scored_by_an_objective_or_by_rows(config: RunConfig) -> None:
    class Convex(FactorTask):
        @property
        def convex(self) -> tuple[Objective, float]:
            return Objective("ridge", 1.0), 0.5

    class ByRows(FactorTask):
        @property
        def by_rows(self) -> ShardedTask:
            rows = [np.stack([getattr(part, split) for part in self.parts], axis=1) for split in ("train", "test")]
            train, test = Shard(rows[0], self.products.train), Shard(rows[1], self.products.test)
            return ShardedTask(self.name, self.source, self.metric, 0, (train,), {"test": test})

    task = load(None, "factors", 3, 0, None)
    assert Observer(task, config).models is None and Observer(task, config).convex is None
    convex = Observer(Convex(**vars(task) | {"metric": Metric("suboptimality", "min")}), config).convex
    assert (
        convex is not None
        and convex.at_zero == pytest.approx(task.products.train @ task.products.train / 2)
        and convex(1.0) == 1.0
    )
    model = classifiers_card.Config("logistic", dtype="float64")
    models = Observer(ByRows(**vars(task)), replace(config, model=model)).models
    assert models is not None
    zero = torch.zeros(4, dtype=torch.float64)  # a weight per factor, and the intercept: it predicts 0
    assert models.score(1, [zero])["test_rmse"] == pytest.approx(np.sqrt(np.mean(task.products.test**2)))


@pytest.mark.parametrize("room", ["attacks", "federation", "models", "privacy", "runner"])
def test_nobody_asks_a_task_for_its_layout(room: str) -> None:
    assert len(LAYOUTS) == 4
    asking = {
        f"{path.relative_to(VFLBENCH)}:{node.lineno}"
        for path in (VFLBENCH / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance"
        for name in ast.walk(node.args[1])
        if {getattr(name, "id", None), getattr(name, "attr", None)} & LAYOUTS
    }
    assert not asking
