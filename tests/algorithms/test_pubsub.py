"""PubSub-VFL and its baselines: joint autograd, what every run must keep, bytes, times by hand, the planner, bad
input."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
import yaml
from hypothesis import example, given, settings
from torch import nn

from tests.algorithms.small_columns import Result, classes, ridge
from tests.every import few_fast
from tests.federation.toys import behind
from tests.options import card_of, privacy_config, topology_config
from vflbench import cli
from vflbench.algorithms.split import avfl, avfl_ps, epoch, pubsub_vfl, vfl, vfl_ps, worker_replica
from vflbench.algorithms.split.epoch import PassiveEpoch
from vflbench.algorithms.split.planner import Setting, played_epoch_seconds
from vflbench.algorithms.split.worker_replica import Side
from vflbench.cards.algorithms.split import pubsub_vfl as pubsub_vfl_card
from vflbench.cards.models import split_learning as split_learning_card
from vflbench.config import config_dir, convert
from vflbench.data.tasks import AlignedTask
from vflbench.federation import topology
from vflbench.federation.clock import ComputeClock
from vflbench.federation.delays import PARTS, Delays
from vflbench.federation.ledger import COLUMN
from vflbench.federation.links import link_kind
from vflbench.federation.simulated import SimulatedEngine
from vflbench.models import split_learning
from vflbench.privacy.mechanisms import Facts, make
from vflbench.runner.costs import Costs, PartyInfo
from vflbench.runner.evaluate import Observer
from vflbench.seeding import batches, torch_stream
from vflbench.types import (
    ComputeConfig,
    ConfigError,
    Delay,
    EngineConfig,
    FederationError,
    LinkConfig,
    NetworkConfig,
    RunConfig,
    division,
)

MODEL = split_learning_card.Config(depth=4, width=6, embedding=3, top_width=5, dtype="float64")
SMALL = {"depth": 2, "width": 4, "top_width": 3}
AS_VFL = {
    "workers": 1,
    "passive_workers": 1,
    "outstanding": 1,
    "deadline": None,
}


def constant(
    forward: float = 0.0, active: float = 0.0, backward: float = 0.0, slower: Sequence[float] = (1.0,), **keys: float
) -> ComputeConfig:
    """Seconds of a batch, whatever its size and the workers; one party after the other is `slower` by a factor."""
    seconds = {"passive_forward": forward, "passive_backward": backward, "active_forward": active}
    delays = {part: Delay(seconds.get(part, 0.0), -1.0) for part in PARTS}
    assert list(slower) == [1.0] or not keys
    return (
        ComputeConfig(delays=delays, cores=[1000], **keys)
        if list(slower) == [1.0]
        else Slower(delays=delays, factors=slower)
    )


@dataclass
class Slower(ComputeConfig):
    """Delays that differ by party."""

    factors: Sequence[float] = ()


class PartyDelays(Delays):
    def seconds(self, part: str, batch: int, party: int, workers: int) -> float:
        factors = self.config.factors if isinstance(self.config, Slower) else [1.0]
        return float(self.config.delays[part].scale * factors[min(party, len(factors) - 1)])


def config(module: ModuleType, task: AlignedTask, rounds: int = 2, **options: Any) -> RunConfig:
    """Options of the algorithm; `model`, `compute`, `network`, `privacy` are groups."""
    algorithm = card_of(module).Config(**{"parties": task.parties, "batch_size": 8, "lr": 0.05, "optimizer": "sgd"})
    known = {key: value for key, value in options.items() if key in card_of(module).Config.__dataclass_fields__}
    model = replace(MODEL, **options.get("model", {}))
    groups = (
        options.get("network", NetworkConfig("ideal")),
        topology_config("star"),
        options.get("privacy", privacy_config()),
    )
    others = EngineConfig(), options.get("compute", constant())
    run = RunConfig(replace(algorithm, **known), None, model, *groups, *others)
    return replace(run, rounds=rounds, device="cpu", seed=options.get("seed", 0))


class Run(Result):
    @property
    def thetas(self) -> dict[str, np.ndarray]:
        """The parameters of every organisation's own party."""
        return {p.name: p.state.model.theta.numpy().copy() for p in self.engine.order if p.organisation == p.name}

    @cached_property
    def total(self) -> Counter[str]:
        """Bytes between organisations, by tag."""
        found: Counter[str] = Counter()
        names = list(self.engine.tags)
        for row in self.ledger:
            kind = link_kind(*(self.engine.order[int(row[COLUMN[end]])] for end in ("src", "dst")))
            if kind != "local":
                found[names[int(row[COLUMN["tag"]])]] += int(row[COLUMN["bytes"]])
        return found

    @property
    def seconds(self) -> float:
        return max(p.now for p in self.engine.order)


def run(module: ModuleType, task: AlignedTask, rounds: int = 2, **options: Any) -> Run:
    """Run `module` on `task` in modelled time; scored at the end."""
    cfg = config(module, task, rounds, **options)
    specs = module.parties(task, cfg)
    servers = [name for name, spec in specs.items() if spec.role == "server"]
    clients = [name for name in specs if name not in servers]
    graph = topology.build(cfg.topology, servers, clients, cfg.seed)
    observer = Observer(task, cfg)
    facts = Facts("aligned", rounds, cfg.algorithm.batch_size, task.public.samples, task.classes)
    private = {name: make(cfg.privacy, facts, spec.role == "server") for name, spec in specs.items()}
    engine = SimulatedEngine(
        specs, task.public, cfg, rounds=rounds, seed=cfg.seed, network=cfg.network, connected=graph.connected,
        neighbours=graph.neighbours, clock=ComputeClock("modelled", cfg.compute),
        eval_every=options.get("eval_every", 1),
        on_report=observer.on_report, on_round=observer.on_round, privacy=private,
        on_read=options.get("on_read"),
    )  # fmt: skip
    engine.run()
    unread = [
        (p.name, src, tag) for p in engine.order for src, boxes in p.boxes.items() for tag, box in boxes.items() if box
    ]
    assert unread == []
    return Run(task, engine, observer)


# --- the joint network ------------------------------------------------------------------------------------------------


class Residual(nn.Module):
    """Pre-activation residual blocks of two layers."""

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(i, o) for i, o in itertools.pairwise(widths))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, *inner, last = self.layers
        norm = nn.LayerNorm(MODEL.width, elementwise_affine=False)
        x = first(x)
        for one, two in zip(inner[::2], inner[1::2], strict=True):
            x = x + two(torch.relu(one(torch.relu(norm(x)))))
        out: torch.Tensor = last(torch.relu(norm(x)))
        return out


def plain(widths: Sequence[int]) -> nn.Module:
    layers: list[nn.Module] = []
    for i, o in itertools.pairwise(widths):
        layers += [nn.Linear(i, o), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def joint(task: AlignedTask, cfg: RunConfig) -> tuple[dict[str, np.ndarray], list[float], float]:
    """The whole network in one place, by torch.nn and autograd: parameters by organisation, mean loss of each epoch,
    test metric. Of local steps all but the first see the other bottoms' outputs, and their gradients, as they were."""
    names = ["active", *(f"passive_{k}" for k in range(1, task.parties))]
    model, public = cfg.model, task.public
    bottoms = []
    for k, name in enumerate(names):
        widths = [task.features[k].shape[1], *[model.width] * (model.depth - 1), model.embedding]
        bottoms.append((plain if model.name == "mlp10" else Residual)(widths).double())
        drawn = torch_stream(cfg.seed, f"init/{name}")
        part = task.part(k)
        if k:
            whole = split_learning.Passive(model, part.features.shape[1:], drawn)
        else:
            whole = split_learning.Active(model, part.features.shape[1:], public, part.labels, drawn)  # type: ignore[arg-type, assignment]
            top = nn.Sequential(
                nn.ReLU(),
                nn.Linear(task.parties * model.embedding, model.top_width),
                nn.ReLU(),
                nn.Linear(model.top_width, public.outputs),
            ).double()
        modules = [bottoms[0], top] if not k else [bottoms[k]]
        parameters = [p for module in modules for p in module.parameters()]
        nn.utils.vector_to_parameters(whole.theta, parameters)
    everything = nn.ModuleList([*bottoms, top])
    kind = torch.optim.SGD if cfg.algorithm.optimizer == "sgd" else torch.optim.Adam
    optimiser = kind(everything.parameters(), lr=cfg.algorithm.lr)
    x, y = [torch.from_numpy(f) for f in task.features], torch.from_numpy(task.labels)
    shift, scale = (0.0, 1.0) if task.classes else (y.mean(), y.std(correction=0))
    means = []
    for t in range(1, (cfg.rounds or 0) + 1):
        losses = []
        for rows in batches(cfg.seed, t, public.samples, cfg.algorithm.batch_size):
            zs = [bottom(f[rows]).detach().requires_grad_() for bottom, f in zip(bottoms[1:], x[1:], strict=True)]
            for q in range(getattr(cfg.algorithm, "local_steps", 1)):
                scores = top(torch.cat([bottoms[0](x[0][rows]), *zs], dim=1))
                error = nn.functional.mse_loss(scores[:, 0], (y[rows] - shift) / scale)
                loss = nn.functional.cross_entropy(scores, y[rows]) if task.classes else error
                optimiser.zero_grad()
                loss.backward()
                if not q:
                    answers = [z.grad.clone() for z in zs]  # type: ignore[union-attr]
                    losses.append(loss.item())
                for bottom, f, answer in zip(bottoms[1:], x[1:], answers, strict=True):
                    bottom(f[rows]).backward(answer)
                optimiser.step()
        means.append(float(np.mean(losses)))
    with torch.no_grad():
        held = [torch.from_numpy(f) for f in task.held_out_features["test"]]
        scores = top(torch.cat([bottom(f) for bottom, f in zip(bottoms, held, strict=True)], dim=1)) * scale + shift
    truth = torch.from_numpy(task.held_out_labels["test"])
    metric = (
        (scores.argmax(1) == truth).double().mean() if task.classes else ((scores[:, 0] - truth) ** 2).mean().sqrt()
    )
    thetas = {
        name: nn.utils.parameters_to_vector(bottoms[k].parameters()).detach().numpy() for k, name in enumerate(names)
    }
    thetas["active"] = np.concatenate(
        [thetas["active"], nn.utils.parameters_to_vector(top.parameters()).detach().numpy()]
    )
    return thetas, means, float(metric)


def close(a: dict[str, np.ndarray], b: dict[str, np.ndarray], atol: float = 1e-10) -> None:
    assert list(a) == list(b)
    for name in a:
        np.testing.assert_allclose(a[name], b[name], rtol=0, atol=atol, err_msg=name)


def differ(a: dict[str, np.ndarray], b: dict[str, np.ndarray], atol: float = 1e-6) -> None:
    assert list(a) == list(b) and all(np.abs(a[name] - b[name]).max() > atol for name in a)


@pytest.mark.parametrize("model", ["mlp10", "residual_mlp"])
@pytest.mark.parametrize("parties", [2, 3])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_vfl_is_gradient_descent_on_the_joint_network(optimizer: str, parties: int, model: str) -> None:
    # 24 training rows: the fourth batch of 7 has 3. A regression where there are two parties and Adam
    task = classes(samples=44, parties=parties, classes=0 if (parties, optimizer) == (2, "adam") else 3)
    options = {
        "optimizer": optimizer,
        "lr": 0.05 if optimizer == "sgd" else 0.01,
        "batch_size": 7,
        "model": {"name": model},
        "rounds": 2,
    }
    result = run(vfl, task, **options)
    thetas, losses, metric = joint(task, config(vfl, task, **options))
    close(result.thetas, thetas)
    rows = result.observer.rows
    assert [row["train_loss"] for row in rows] == pytest.approx(losses, abs=1e-10)
    assert rows[-1][f"test_{task.metric.name}"] == pytest.approx(metric, abs=1e-10)
    differ(result.thetas, joint(task, config(vfl, task, **options | {"rounds": 0}))[0], atol=1e-3)  # and it moved


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_local_steps_of_vfl_are_fedbcds(optimizer: str) -> None:
    """Q steps for one exchange: as many bytes, other parameters."""
    task = classes(samples=44, parties=3)
    options = {"optimizer": optimizer, "batch_size": 7, "lr": 0.02, "rounds": 2}
    result = run(vfl, task, **options, local_steps=3)
    thetas, losses, _ = joint(task, config(vfl, task, **options, local_steps=3))
    close(result.thetas, thetas)
    rows = result.observer.rows
    assert [row["train_loss"] for row in rows] == pytest.approx(losses, abs=1e-10)
    assert rows[-1]["iterations"] == 2 * 4 * 3
    once = run(vfl, task, **options)
    assert result.total == once.total
    differ(result.thetas, once.thetas)


@pytest.mark.parametrize("parties", few_fast([2, 4]))
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_with_one_worker_that_waits_every_method_is_vfl(optimizer: str, parties: int) -> None:
    task = classes(samples=44, parties=parties)
    options = {
        "optimizer": optimizer,
        "rounds": 2,
        "batch_size": 7,
        "compute": constant(1, 2, 1),
        "seed": 5,
        "model": {"depth": 2},
    }
    expected = run(vfl, task, **options)
    for aggregation in ("semi_async", "every_epoch", "never"):
        found = run(pubsub_vfl, task, **options, **AS_VFL, aggregation=aggregation)
        close(found.thetas, expected.thetas, atol=0)
        assert [{**row, "bytes": None} for row in found.observer.rows] == [  # it names batches, in 4 bytes each
            {**row, "bytes": None} for row in expected.observer.rows
        ]
    for module in (avfl, avfl_ps, vfl_ps):
        found = run(module, task, **options, workers=1, outstanding=1)
        close(found.thetas, expected.thetas, atol=0)
        assert [row["train_loss"] for row in found.observer.rows] == [
            row["train_loss"] for row in expected.observer.rows
        ]
    for module in (avfl, avfl_ps, pubsub_vfl):  # running ahead is another method
        differ(run(module, task, **options, **AS_VFL | {"outstanding": 3}).thetas, expected.thetas)


@pytest.mark.slow
def test_vfl_ps_with_equal_parts_is_vfl() -> None:
    task = classes(parties=3)
    expected = run(vfl, task, rounds=3)
    for workers in (2, 4):
        found = run(vfl_ps, task, rounds=3, workers=workers)
        close(found.thetas, expected.thetas)
        assert [row["train_loss"] for row in found.observer.rows] == pytest.approx(
            [r["train_loss"] for r in expected.observer.rows]
        )
    # parts of 3, 3 and 2 rows count by their rows; of 8 rows 9 workers get one or none; Adam's moments are a worker's
    # own
    close(run(vfl_ps, task, rounds=3, workers=3).thetas, expected.thetas)
    close(run(vfl_ps, task, rounds=3, workers=9).thetas, expected.thetas)
    differ(run(vfl_ps, task, workers=2, optimizer="adam").thetas, run(vfl, task, optimizer="adam").thetas)


def test_a_full_batch_is_gradient_descent() -> None:
    """One batch, one worker: nothing to run ahead with, whatever may be outstanding."""
    task = classes(parties=3)
    options = {"batch_size": 40, "rounds": 4, "lr": 0.1}
    expected = joint(task, config(vfl, task, **options))[0]
    for module in (vfl, avfl, avfl_ps, vfl_ps, pubsub_vfl):
        close(run(module, task, **options, workers=1, passive_workers=1, outstanding=5).thetas, expected)


def test_averages_are_of_the_replicas() -> None:
    """Two workers each, an epoch of two batches: each steps once from the start, and the hub has the mean."""
    task = classes(parties=2)
    cfg = {"batch_size": 20, "rounds": 1, "workers": 2, "passive_workers": 2, "compute": constant(1, 1, 1), "lr": 0.1}
    whole = run(pubsub_vfl, task, **cfg)
    # all gradients at the start: the mean of two halves is the whole
    full = run(vfl, task, batch_size=40, rounds=1, lr=0.1)
    close(whole.thetas, full.thetas)
    close(run(pubsub_vfl, task, **cfg, aggregation="never").thetas, full.thetas)
    replicas = [p.state.model.theta for p in whole.engine.order if p.name.startswith("passive_1_worker")]
    assert all(np.array_equal(replica, whole.thetas["passive_1"]) for replica in replicas)


def test_averages_within_an_epoch_are_of_the_steps_since_the_last() -> None:
    """Two workers, batches of half the size, an average after each two steps: a step on both, where none runs ahead."""
    task = classes(parties=3)
    halves = {"batch_size": 10, "workers": 2, "passive_workers": 2, "outstanding": 1, "average_every": 2}
    whole = run(vfl, task, batch_size=20)
    result = run(pubsub_vfl, task, **halves, compute=constant(1, 1, 1))
    close(result.thetas, whole.thetas)
    close(run(avfl_ps, task, **halves).thetas, whole.thetas)
    # 4 batches an epoch: after two of them, and at the end
    for tag in ("replica", "model"):
        sent = {t: count for (t, name), (count, _) in result.sent().items() if name == tag}
        assert sent == dict.fromkeys([1, 2], 2 * 2 * 3)
    # a pair's halves of two batches are its two batches; the replicas meet at the end of the epoch only
    apart = run(avfl_ps, task, **halves | {"average_every": None})
    close(run(vfl_ps, task, batch_size=20, workers=2, average_every=2).thetas, apart.thetas)
    differ(apart.thetas, whole.thetas)
    # of a replica alone, and beyond the epoch, it changes nothing
    for module, every in ((pubsub_vfl, 1), (avfl_ps, 1), (vfl_ps, 3)):
        one = run(module, task, workers=1, passive_workers=1, average_every=every)
        apart = run(module, task, workers=1, passive_workers=1)
        assert all(np.array_equal(theta, apart.thetas[name]) for name, theta in one.thetas.items())
    for keys in ({"aggregation": "every_epoch"}, {"average_every": 5}):
        assert [pubsub_vfl.averages(pubsub_vfl_card.Config(**keys), t, 9) for t in (5, 6, 9)] == [True] * 3


def test_staleness_is_the_steps_between_an_embedding_and_its_gradient() -> None:
    """Four batches: one worker that waits has none, one that embeds all of them first has 0, 1, 2 and 3."""
    task = classes(parties=2)
    for outstanding, mean in ((1, 0.0), (4, 1.5)):
        options = {"batch_size": 10, "workers": 1, "passive_workers": 1, "outstanding": outstanding}
        found = run(pubsub_vfl, task, **options, compute=constant(0, 1, 0))
        assert found.observer.extra["staleness_passive_1"] == mean


def test_so_many_epochs_end_with_an_average() -> None:
    ways = [{"aggregation": way} for way in ("semi_async", "every_epoch", "never")] + [{"average_every": 4}]
    made = [pubsub_vfl_card.Config(**way, interval=longest) for way in ways for longest in (1, 5, 7)]
    for cfg in made:
        for last in (1, 2, 9, 100, 101, 500):
            counted = sum(pubsub_vfl.averages(cfg, t, last) for t in range(1, last + 1))
            assert pubsub_vfl.averages_per_epoch(cfg, last) == counted / last
        assert 0 < pubsub_vfl.averages_per_epoch(cfg, 10**12) <= 1


def test_the_interval_between_averages() -> None:
    assert [pubsub_vfl.interval(t, 5) for t in range(1, 13)] == [1, 1, 1, 2, 3, 4, 5, 5, 5, 5, 5, 5]
    assert {pubsub_vfl.interval(t, 1) for t in range(1, 20)} == {1}
    assert max(pubsub_vfl.interval(t, 3) for t in range(1, 50)) == 3

    def epochs(last: int, **keys: Any) -> list[int]:
        return [t for t in range(1, last + 1) if pubsub_vfl.averages(pubsub_vfl_card.Config(**keys), t, last)]

    assert epochs(25) == [1, 2, 3, 4, 10, 15, 20, 25]
    assert epochs(6, aggregation="every_epoch") == [1, 2, 3, 4, 5, 6]
    assert epochs(6, aggregation="never") == [6]


def test_a_run_averages_in_these_epochs() -> None:
    result = run(
        pubsub_vfl,
        classes(parties=3),
        rounds=11,
        workers=2,
        passive_workers=3,
        batch_size=10,
        model=SMALL,
        eval_every=20,
    )
    for tag, senders in (("model", 2 + 2 * 3), ("replica", 2 + 2 * 3)):
        sent = {t: count for (t, name), (count, _) in result.sent().items() if name == tag}
        assert sent == dict.fromkeys([1, 2, 3, 4, 10], senders)


# --- whatever happens -------------------------------------------------------------------------------------------------


@dataclass
class Record:
    """What the workers of a run did."""

    task: AlignedTask
    steps: Counter[tuple[str, int, int]]  # organisation, epoch, batch
    embedded: Counter[tuple[str, int, int]]
    held: int = 0  # most batches of a passive worker that were under way

    @property
    def again(self) -> int:
        """How often an organisation embedded a batch that it had embedded before."""
        return sum(count - 1 for count in self.embedded.values())

    def check_once(self, rounds: int, count: int) -> None:
        names = ["active", *(f"passive_{k}" for k in range(1, self.task.parties))]
        assert self.steps == Counter((name, t, j) for name in names for t in range(1, rounds + 1) for j in range(count))


@contextmanager
def recorded(task: AlignedTask, cfg: RunConfig) -> Iterator[Record]:
    """Watch every computation of the workers: which batch it belongs to, and that a gradient is that of its own batch
    and parameters."""
    record = Record(task, Counter(), Counter())
    ids: dict[int, dict[bytes, int]] = {}
    # (epoch, batch) -> theta, zs
    learnt: dict[tuple[int, int], list[tuple[torch.Tensor, list[torch.Tensor]]]] = defaultdict(list)
    model: list[split_learning.Active] = []
    embed, backward, learn, step = Side._embed, Side._backward, Side._learn, Side._step
    serve = PassiveEpoch.serve

    def place(side: Side, rows: np.ndarray) -> tuple[int, int]:
        t = behind(side.me).round
        if t not in ids:
            ids[t] = {
                rows.tobytes(): j
                for j, rows in enumerate(batches(cfg.seed, t, task.public.samples, cfg.algorithm.batch_size))
            }
        return t, ids[t][rows.tobytes()]

    def on_embed(side: Side, rows: np.ndarray, waiting: int) -> split_learning.Embedded:
        record.embedded[behind(side.me).organisation, *place(side, rows)] += 1
        return embed(side, rows, waiting)

    def on_learn(side: Side, rows: np.ndarray, zs: Sequence[torch.Tensor], steps: bool) -> Any:
        model[:] = [side.model]
        learnt[place(side, rows)].append((side.theta.detach().clone(), [z.clone() for z in zs]))
        record.steps["active", *place(side, rows)] += steps
        return learn(side, rows, zs, steps)

    def on_backward(side: Side, made: split_learning.Embedded, rows: np.ndarray, dz: torch.Tensor, steps: bool) -> None:
        t, j = place(side, rows)
        party = int(behind(side.me).organisation.rpartition("_")[2])
        x = torch.from_numpy(task.features[party][rows])
        z = side.model.network(made.theta.detach(), x)  # the embedding that these parameters make
        assert torch.equal(z, made.z)
        took = [(at, zs) for at, zs in learnt[t, j] if torch.equal(zs[party - 1], z)]
        assert took, "nobody trained this batch with this embedding"
        mine, y = torch.from_numpy(task.features[0][rows]), torch.from_numpy(task.labels[rows])
        found = []
        for at, zs in took:
            inputs = [other.clone().requires_grad_(i == party - 1) for i, other in enumerate(zs)]
            loss = nn.functional.cross_entropy(model[0].outputs(at, mine, inputs), y)
            found.append(torch.autograd.grad(loss, inputs[party - 1])[0])
        assert any(torch.equal(dz, one) for one in found)
        record.steps[behind(side.me).organisation, t, j] += steps
        backward(side, made, rows, dz, steps)

    def on_step(side: Side, gradient: torch.Tensor) -> None:
        assert "_worker_" in side.me.name or cfg.algorithm.name in ("vfl", "avfl")
        step(side, gradient)

    def on_serve(epoch: PassiveEpoch, now: float) -> None:
        assert len(set(epoch.idle)) == len(epoch.idle) and not any(epoch.task[worker] for worker in epoch.idle)
        serve(epoch, now)
        record.held = max(record.held, *map(len, epoch.held.values()))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Side, "_embed", on_embed)
        patch.setattr(Side, "_learn", on_learn)
        patch.setattr(Side, "_backward", on_backward)
        patch.setattr(Side, "_step", on_step)
        patch.setattr(PassiveEpoch, "serve", on_serve)
        patch.setattr(worker_replica, "Delays", PartyDelays)
        yield record


def checked(module: ModuleType, task: AlignedTask, rounds: int = 2, **options: Any) -> tuple[Run, Record]:
    options = {"model": SMALL, "eval_every": rounds, **options}
    cfg = config(module, task, rounds, **options)
    with recorded(task, cfg) as record:
        result = run(module, task, rounds, **options)
    return result, record


TIMES = st.sampled_from([0.0, 0.1, 1.0, 1.0, 2.5])
quick = settings(max_examples=25, deadline=None, derandomize=True)


@st.composite
def settings_of_a_run(draw: st.DrawFn) -> tuple[AlignedTask, dict[str, Any]]:
    parties = draw(st.integers(2, 4))
    task = classes(samples=44, features=8, parties=parties, seed=draw(st.integers(0, 99)))  # 24 training rows
    names = ["active", *(f"passive_{k}" for k in range(1, parties))]
    pairs = [f"{a}->{b}" for k in names[1:] for a, b in (("active", k), (k, "active"))]
    latencies = draw(st.lists(st.sampled_from([0.0, 1.0, 300.0, 2000.0]), min_size=len(pairs), max_size=len(pairs)))
    links = {
        pair: LinkConfig(ms, draw(st.sampled_from([None, 1e-5]))) for pair, ms in zip(pairs, latencies, strict=True)
    }
    compute = constant(
        draw(TIMES),
        draw(TIMES),
        draw(TIMES),
        slower=draw(st.lists(st.floats(0.5, 4.0), min_size=parties, max_size=parties)),
    )
    options = {
        "batch_size": draw(st.sampled_from([4, 5])),  # 6 or 5 batches, the last of which may be shorter
        "workers": draw(st.integers(1, 3)),
        "passive_workers": draw(st.integers(1, 3)),
        "outstanding": draw(st.integers(1, 4)),
        "aggregation": draw(st.sampled_from(["semi_async", "every_epoch", "never"])),
        "average_every": draw(st.sampled_from([None, None, 1, 2])),
        "network": NetworkConfig("test", links=links),
        "compute": compute,
        "seed": draw(st.integers(0, 99)),
    }
    return task, options


def longest(task: AlignedTask, options: dict[str, Any]) -> float:
    """A deadline that every batch meets which has its way to itself: seconds of all its computations and messages."""
    compute, links = options["compute"], options["network"].links
    times = sum(delay.scale for delay in compute.delays.values()) * max(compute.factors)
    nbytes = 24 + 8 * 3 * options["batch_size"]
    return 2 * times + 2 * max(
        link.latency_ms / 1e3 + (0.0 if link.bandwidth_gbps is None else 8e-9 * nbytes / 1e-5)
        for link in links.values()
    )


INSTANT = {
    **{"batch_size": 4, "workers": 1, "passive_workers": 1, "outstanding": 1, "compute": constant(slower=[1.0, 1.0])},
    "network": NetworkConfig("test", links={"active->passive_1": LinkConfig()}),
}


@pytest.mark.slow
@quick
@example((classes(samples=44, features=8, parties=2), INSTANT), 0.0, 0.0)
@given(settings_of_a_run(), st.sampled_from([None, 0.0, 0.5, 2.0, 20.0]), st.sampled_from([0.0, 0.0, 0.1, 0.3, 0.5]))
def test_every_batch_is_trained_once_by_everyone_whatever_happens(
    drawn: tuple[AlignedTask, dict[str, Any]], slack: float | None, failures: float
) -> None:
    task, options = drawn
    # where nothing takes any time: 0 is refused
    deadline = None if slack is None else max(longest(task, options) + slack, 1e-3)
    failures = 0.0 if deadline is None and task.parties > 2 else failures  # refused: test_bad_input_is_told
    # more workers have to meet: above these, runs end with advice
    failures = min(failures, {2: 0.5, 3: 0.3, 4: 0.1}[task.parties])
    count = -(-24 // options["batch_size"])
    result, record = checked(pubsub_vfl, task, **options, deadline=deadline, failure_rate=failures)
    record.check_once(2, count)
    assert record.held <= options["outstanding"]
    facts = result.observer.extra["batches"]
    assert facts["trained"] == 2 * count
    assert record.again <= (task.parties - 1) * facts["repeated"]  # nothing is repeated that is not told
    assert facts["dropped"] == 0
    if deadline is None and not failures:
        assert facts["repeated"] == facts["discarded"] == 0 and not record.again
    expected = (task.parties - 1) * (2 * 24 * 3 * 8 + 48 * count + 16) * 2
    assert (
        (sum(result.total.values()) == expected) if not facts["repeated"] else (sum(result.total.values()) > expected)
    )


@pytest.mark.parametrize("module", [vfl, avfl, avfl_ps])
@pytest.mark.parametrize("parties", [2, 4])
def test_the_baselines_train_every_batch_once(module: ModuleType, parties: int) -> None:
    task = classes(samples=44, features=8, parties=parties)
    _, record = checked(
        module, task, workers=3, outstanding=3, batch_size=5, compute=constant(1, 2, 1, slower=[1, 0.3, 2, 1.5])
    )
    record.check_once(2, 5)
    assert not record.again


def test_crashes_and_deadlines_repeat_batches_and_the_summary_says_so() -> None:
    """Three passive parties of different speed, a tenth of all tasks lost."""
    task = classes(samples=44, features=8, parties=4)
    compute = constant(1, 1, 1, slower=[1, 0.5, 1, 2])
    options = {"batch_size": 4, "workers": 2, "passive_workers": 2, "outstanding": 2, "compute": compute}
    result, record = checked(pubsub_vfl, task, **options, deadline=30.0, failure_rate=0.1)
    record.check_once(2, 6)
    assert record.again > 0 and result.observer.extra["batches"]["repeated"] > 0
    again, _ = checked(pubsub_vfl, task, **options, deadline=30.0, failure_rate=0.1)
    close(again.thetas, result.thetas, atol=0)
    assert again.seconds == result.seconds and again.observer.extra == result.observer.extra
    assert result.seconds > checked(pubsub_vfl, task, **options, deadline=30.0)[0].seconds


@pytest.mark.parametrize("seed", range(2))
def test_passive_parties_that_retry_do_not_wait_for_one_another(seed: int) -> None:
    """One slot each and crashes: queued at the end, a batch that is tried again would be taken in another order by
    every party."""
    task = classes(samples=44, features=8, parties=4)
    options = {
        "batch_size": 4,
        "workers": 1,
        "passive_workers": 1,
        "outstanding": 1,
        "compute": constant(1, 1, 1),
        "seed": seed,
    }
    result, record = checked(pubsub_vfl, task, **options, deadline=1000.0, failure_rate=0.2)
    record.check_once(2, 6)
    # a pair of deadlines now and then, where one party's slot is taken as another one crashes
    assert result.seconds < 4000


@pytest.mark.parametrize("seed", range(3))
def test_a_retry_sends_the_same_noisy_rows_and_costs_nothing(seed: int) -> None:
    """Crashes repeat batches: nobody receives a row with noise of another draw, and exactly mu is spent."""
    task = classes(samples=44, features=8, parties=4)
    options = {
        "batch_size": 4,
        "workers": 2,
        "passive_workers": 2,
        "outstanding": 1,
        "compute": constant(1, 1, 1),
        "model": SMALL,
    }
    read: dict[tuple[str, int, int], list[torch.Tensor]] = {}

    def on_read(src: str, dst: str, tag: str, round: int, payload: Any) -> None:
        if tag == "embedding" and dst == "active":
            sent = worker_replica.Embedding(*payload)
            read.setdefault((src, round, sent.batch), []).append(sent.z.clone())

    privacy = privacy_config("gdp_embedding", mu=1.0)
    more = {"deadline": 30.0, "failure_rate": 0.2}
    result = run(pubsub_vfl, task, 3, **options, seed=seed, privacy=privacy, **more, on_read=on_read)
    assert result.observer.extra["batches"]["repeated"] > 0 and max(map(len, read.values())) > 1
    assert all(torch.equal(z, sent[0]) for sent in read.values() for z in sent)
    for k in range(1, 4):
        spent = result.engine.parties[f"passive_{k}"].privacy.spent()
        assert spent["releases"] == {"planned": 3, "done": 3} and spent["mu"] == pytest.approx(1.0, rel=1e-12)


def test_a_deadline_that_no_attempt_can_meet_ends_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a second each way and five at the active party: six from an embedding to its gradient."""
    task = classes(samples=44, features=8, parties=2)
    network = NetworkConfig(
        "test", links=dict.fromkeys(("active->passive_1", "passive_1->active"), LinkConfig(500.0, None))
    )
    options = {"compute": constant(1, 5, 1), "network": network, "model": SMALL, "batch_size": 12}
    assert run(pubsub_vfl, task, **options, **AS_VFL | {"deadline": 6.01}).observer.extra["batches"]["repeated"] == 0
    monkeypatch.setattr(epoch, "MOST_ATTEMPTS", 50)
    with pytest.raises(
        FederationError, match=r"algorithm\.deadline=5\.9 is too short for this network and these delays\n"
    ):
        run(pubsub_vfl, task, **options, **AS_VFL | {"deadline": 5.9})
    with pytest.raises(FederationError, match=r"these delays, or algorithm\.failure_rate=0\.01 too high\n"):
        run(pubsub_vfl, task, **options, **AS_VFL | {"deadline": 5.9}, failure_rate=0.01)


def test_a_deadline_that_the_delay_model_cannot_meet_is_refused_before_any_work() -> None:
    """The same half second each way, of all links."""
    task = classes(samples=44, features=8, parties=2)
    network = NetworkConfig("test", client_server=LinkConfig(500.0, None))
    options = {"compute": constant(1, 5, 1), "network": network, "model": SMALL, "batch_size": 12}
    with pytest.raises(ConfigError, match=r"algorithm\.deadline=6\.0: a gradient takes 6 s to come"):
        run(pubsub_vfl, task, **options, **AS_VFL | {"deadline": 6.0})
    assert run(pubsub_vfl, task, **options, **AS_VFL | {"deadline": 6.01}).observer.extra["batches"]["repeated"] == 0


def test_a_deadline_that_all_meet_changes_nothing() -> None:
    """Ten embeddings wait for one worker, the oldest for ten seconds of twelve: in turn, each is in time."""
    task = classes(samples=180, features=8, parties=2)
    options = {"compute": constant(0.1, 1, 0.01), "workers": 1, "passive_workers": 2, "outstanding": 5, "model": SMALL}
    timed, _record = checked(pubsub_vfl, task, 1, **options, deadline=12.0)
    assert timed.observer.extra["batches"]["repeated"] == 0
    patient = run(pubsub_vfl, task, 1, **options, deadline=None)
    close(timed.thetas, patient.thetas, atol=0)
    assert timed.seconds == patient.seconds


def test_an_overloaded_active_party_gets_done_in_time_what_it_can() -> None:
    """Ten embeddings wait for one worker that takes a second for each: the oldest one's gradient would always come too
    late."""
    task = classes(samples=180, features=8, parties=2)
    options = {
        "compute": constant(0.8, 1, 0.01),
        "workers": 1,
        "passive_workers": 2,
        "outstanding": 5,
        "deadline": 3.3,
        "model": SMALL,
    }
    done, _record = checked(pubsub_vfl, task, 1, **options)
    assert done.observer.extra["batches"]["repeated"] > 0


@pytest.mark.parametrize("module", [vfl, pubsub_vfl])
def test_images_are_rows_of_pixels(module: ModuleType) -> None:
    """Views of uint8 as the flat columns of their pixels over 255, and a convex problem refused."""
    flat = classes(samples=60, features=18, parties=2)
    rng = np.random.default_rng(0)
    pixels = [rng.integers(0, 256, (len(flat.labels), 1, 3, 3), dtype=np.uint8) for _ in range(2)]
    held_out = {
        s: tuple(rng.integers(0, 256, (len(y), 1, 3, 3), dtype=np.uint8) for _ in range(2))
        for s, y in flat.held_out_labels.items()
    }
    views = replace(flat, features=tuple(pixels), held_out_features=held_out)
    columns = {s: tuple(x.reshape(len(x), -1) / 255 for x in blocks) for s, blocks in held_out.items()}
    table = replace(flat, features=tuple(x.reshape(len(x), -1) / 255 for x in pixels), held_out_features=columns)
    options = {} if module is vfl else {"workers": 2, "passive_workers": 2}
    one, other = (run(module, task, 2, **options) for task in (views, table))
    close(one.thetas, other.thetas)
    assert [row["test_accuracy"] for row in one.observer.rows] == [row["test_accuracy"] for row in other.observer.rows]
    with pytest.raises(ConfigError, match=r"dataset\.problem=ridge: .*dataset\.problem=learning"):
        run(module, ridge(parties=2), 2, **options)


@pytest.mark.parametrize("module", [vfl, pubsub_vfl])
def test_held_out_rows_are_scored_in_parts(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A regression's error, which every row moves: in parts of 3, the last of them smaller, as in one."""
    task = classes(samples=44, parties=3, classes=0)
    assert min(map(len, task.held_out_labels.values())) % 3
    options = {} if module is vfl else {"workers": 2, "passive_workers": 2}
    whole = run(module, task, 1, **options).observer.rows[-1]
    seen = []
    monkeypatch.setattr(worker_replica, "SCORED", 3)
    real = worker_replica._parts
    monkeypatch.setattr(worker_replica, "_parts", lambda x: seen.append(real(x)) or real(x))
    parts = run(module, task, 1, **options).observer.rows[-1]
    assert max(map(len, seen)) > 1
    assert {k: v for k, v in parts.items() if "rmse" in k} == pytest.approx(
        {k: v for k, v in whole.items() if "rmse" in k}, rel=1e-12
    )
    assert any("test_rmse" in key for key in whole)


# --- bytes, times, cores ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parties", [2, 4])
def test_bytes_between_organisations(parties: int) -> None:
    """float32; per passive party and epoch 2 n d_e 4, 24 per message, and 16 that end PubSub-VFL's epoch."""
    task = classes(parties=parties)
    each = 2 * (parties - 1)  # two epochs
    options = {"batch_size": 7, "model": {"dtype": "float32"}, "compute": constant(1, 1, 1)}
    for workers in (1, 3):
        sizes = {
            pubsub_vfl: 2 * 40 * 3 * 4 + 48 * 6 + 16,
            vfl: 2 * 40 * 3 * 4 + 48 * 6,
            avfl: 2 * 40 * 3 * 4 + 48 * 6,
            avfl_ps: 2 * 40 * 3 * 4 + 48 * 6,
            vfl_ps: 2 * 40 * 3 * 4 + 48 * 6 * workers,  # every part of a batch is a message
        }
        for module, size in sizes.items():
            found = run(module, task, workers=workers, passive_workers=workers, **options)
            assert sum(found.total.values()) == each * size == found.engine.bytes_sent, module
            assert set(found.total) <= {"embedding", "gradient", "epoch"}
            assert found.total["embedding"] == found.total["gradient"]


ONE_SECOND = 24 + 20 * 3 * 8  # bytes of a batch of 20
# a second until it has left, then half a second
SLOW = NetworkConfig("test", client_server=LinkConfig(500.0, 8e-9 * ONE_SECOND))


def test_times_by_hand() -> None:
    """Two batches; forward 1 s, active 2 s, backward 1 s."""
    task = classes(parties=2)
    options = {"rounds": 1, "batch_size": 20, "compute": constant(1, 2, 1)}
    # 0-1, sent by 2, there at 2.5, trained at 4.5, sent by 5.5, there at 6, done at 7; and once more
    assert run(vfl, task, **options, network=SLOW).seconds == pytest.approx(14)
    # Ahead: the second is embedded 1-2, there at 3.5, trained 4.5-6.5, back at 8, done at 9
    assert run(avfl, task, **options, network=SLOW).seconds == pytest.approx(9)
    one = {"workers": 1, "passive_workers": 1}
    notice = 8 / ONE_SECOND + 0.5
    assert run(pubsub_vfl, task, **options, **one, network=SLOW).seconds == pytest.approx(9 + 2 * notice)
    # Pairs on links of their own, latency half a second; a parameter server takes a quarter of a second for each of its
    # workers
    late = NetworkConfig("test", client_server=LinkConfig(500.0, None))
    two = {
        "workers": 2,
        "passive_workers": 2,
        "network": late,
        **options,
        "compute": constant(1, 2, 1, server_seconds=0.25),
    }
    assert run(vfl_ps, task, **two).seconds == pytest.approx(2 * (1 + 0.5 + 2 + 0.5 + 1 + 0.5))
    assert run(avfl_ps, task, **two).seconds == pytest.approx(1 + 0.5 + 2 + 0.5 + 1 + 0.5)
    assert run(pubsub_vfl, task, **two).seconds == pytest.approx(1 + 0.5 + 2 + 0.5 + 1 + 2 * 0.5 + 0.5)
    # No core is busy for half a second before each forward pass, at both parties
    fixed = {**options, "compute": constant(1, 2, 1, batch_latency=0.5)}
    assert run(vfl, task, **fixed).seconds == pytest.approx(2 * 5)


def test_a_deadline_by_hand() -> None:
    """Two batches embedded 0-1 and 1-2, training takes five seconds, a message half a second, the deadline is eight
    seconds.

    The first gradient is there at 7, the second at 12, too late: at 10 its batch is embedded again, is there at 11.5
    when training ends, is trained once more without a step, is back at 17 and done at 18; a second later all know.
    """
    task = classes(parties=2)
    network = NetworkConfig("test", client_server=LinkConfig(500.0, None))
    options = {
        "batch_size": 20,
        "workers": 1,
        "passive_workers": 1,
        "outstanding": 2,
        "compute": constant(1, 5, 1),
        "network": network,
    }
    result, record = checked(pubsub_vfl, task, 1, **options, deadline=8.0)
    record.check_once(1, 2)
    assert result.seconds == pytest.approx(19) and record.again == 1
    assert result.observer.extra["batches"] == {"trained": 2, "repeated": 1, "discarded": 0, "dropped": 0}
    assert result.total["notice"] == 16 and result.total["embedding"] == 3 * ONE_SECOND
    assert run(pubsub_vfl, task, 1, **options, deadline=None).seconds == pytest.approx(14)


def test_utilisation_and_waiting_by_hand() -> None:
    """VFL, nine seconds a batch: active half a second of latency and three of computing, passive half and two; three
    cores in all."""
    task = classes(parties=2)
    compute = replace(constant(1, 3, 1, batch_latency=0.5), cores=[2, 1])
    network = NetworkConfig("test", client_server=LinkConfig(1500.0, None))
    for module, more in ((vfl, {}), (pubsub_vfl, AS_VFL)):
        options = {"rounds": 2, "batch_size": 20, "compute": compute, "network": network, **more}
        result = run(module, task, **options)
        extra = 2 * 2 * 1.5 if more else 0.0  # PubSub-VFL's epochs end with a message there and one back
        made = config(module, task, **options)
        infos = {n: PartyInfo(s.role, s.organisation, s.cores) for n, s in module.parties(task, made).items()}
        cores = Delays(made.compute).total_cores(division(made.algorithm))
        costs = SimpleNamespace(parties=infos, traces=result.engine.take_trace())
        found = Costs.use(costs, cores, result.engine.boundary_clock, 2)  # type: ignore[arg-type]
        seconds = 2 * 2 * (0.5 + 1 + 1.5 + 0.5 + 3 + 1.5 + 1) + extra
        assert result.seconds == pytest.approx(seconds)
        assert found["utilisation"] == pytest.approx(2 * 2 * (3 + 2) / (3 * seconds))
        assert found["waiting_seconds"] == pytest.approx((seconds - 4 * (3.5 + 2.5) / 2) / 2)


TABLE_8 = yaml.safe_load((config_dir() / "compute" / "paper_table8.yaml").read_text())["delays"]


@pytest.mark.parametrize("passive", [1, 2])
@pytest.mark.parametrize(
    ("workers", "size", "outstanding"), [((1, 1), 8, 5), ((4, 2), 8, 2), ((3, 5), 16, 5), ((8, 8), 4, 1)]
)
def test_the_planners_epoch_is_the_simulators(
    workers: tuple[int, int], size: int, outstanding: int, passive: int
) -> None:
    """A passive party 30 times as slow as Table 8's, so that both sides matter; not the same cores."""
    task = classes(samples=220, features=8, parties=passive + 1)
    delays = {
        part: Delay(d["scale"] * (30 if part.startswith("passive") else 1), d["exponent"])
        for part, d in TABLE_8.items()
    }
    compute = ComputeConfig(delays=delays, cores=[8, 4, 6], batch_latency=0.01, server_seconds=0.05)
    link = LinkConfig(30.0, 0.001)
    setting = Setting(200, 3, link, passive, [workers[0]], [workers[1]], [size], outstanding)
    options = {
        "workers": workers[0],
        "passive_workers": workers[1],
        "batch_size": size,
        "outstanding": outstanding,
        "deadline": None,
    }
    network = NetworkConfig("test", client_server=link)
    found = run(pubsub_vfl, task, 1, **options, compute=compute, network=network, model={**SMALL, "dtype": "float32"})
    assert found.seconds == pytest.approx(played_epoch_seconds(Delays(compute), setting, *workers, size), rel=0.05)


# --- bad input --------------------------------------------------------------------------------------------------------

TABLES = ["dataset=star_schema", "dataset.rows=300", "dataset.dimension_rows=60", "dataset.width=3"]
BAD = {
    "before any data": (
        [
            "algorithm=pubsub_vfl",
            "algorithm.deadline=0",
            "algorithm.outstanding=0",
            "algorithm.parties=1",
            "algorithm.interval=0",
        ],
        {
            "algorithm.deadline=0.0": "must be greater than 0, or null",
            "algorithm.outstanding=0": "at least 1",
            "algorithm.parties=1": "at least 2",
            "algorithm.interval=0": "at least 1",
        },
    ),
    "across keys": (
        [
            "algorithm=pubsub_vfl",
            "algorithm.failure_rate=1",
            "algorithm.memory=[[100,10,1,1]]",
            "network.timing=round",
            "model=residual_mlp",
            "model.depth=5",
        ],
        {
            "algorithm.failure_rate=1.0": "below 0.9",
            "algorithm.memory=[[100.0, 10.0, 1.0, 1.0]]": "an entry for each of the 2 parties",
            "network.timing=round": "causal",
            "model.depth=5": "must be even",
        },
    ),
    "late": (
        ["algorithm=pubsub_vfl", "algorithm.deadline=0.01", "network=us_uk"],
        {"algorithm.deadline=0.01": "every batch would be dropped"},
    ),
    "crash": (
        ["algorithm=pubsub_vfl", "algorithm.failure_rate=0.1", "algorithm.deadline=null", "algorithm.parties=3"],
        {"algorithm.failure_rate=0.1": "set algorithm.deadline"},
    ),
    "workers": (
        ["algorithm=pubsub_vfl", "algorithm.workers=5", "algorithm.passive_workers=6"],
        {
            "algorithm.workers=5": "an epoch has 4 batches: at most that many",
            "algorithm.passive_workers=6": "an epoch has 4 batches",
        },
    ),
    "aggregation": (
        ["algorithm=pubsub_vfl", "algorithm.aggregation=weekly"],
        {"algorithm.aggregation=weekly": "semi_async, every_epoch, never"},
    ),
    "batch": (
        ["algorithm=vfl", "algorithm.batch_size=1000"],
        {"algorithm.batch_size=1000": "there are 840 training rows"},
    ),
}


@pytest.mark.parametrize("which", few_fast(BAD, 2))
def test_bad_input_is_told(which: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Key, value and what is allowed, all at once; exit code 1 and no traceback."""
    words, told = BAD[which]
    assert cli.command([*words, *TABLES, "rounds=1", "engine.threads=1", f"hydra.run.dir={tmp_path / 'run'}"]) == 1
    said = capsys.readouterr().err
    assert "Traceback" not in said
    lines = {key: [line for line in said.splitlines() if f"{key}:" in line] for key in told}
    assert all(len(lines[key]) == 1 and allowed in lines[key][0] for key, allowed in told.items()), said


def test_the_baselines_refuse_the_same() -> None:
    task = classes(parties=2)
    for module in (vfl, vfl_ps, avfl, avfl_ps, pubsub_vfl):
        whole = config(module, task)
        check = getattr(card_of(module), "check", lambda config: [])
        assert check(whole) == []
        assert {problem.key for problem in convert(card_of(module).Config, {"parties": 1, "default_rounds": 0})[1]} == {
            "parties",
            "default_rounds",
        }
        bad = replace(whole, network=replace(whole.network, timing="round"))
        assert [problem.key for problem in check(bad)] == ["network.timing"] * (module in (avfl, avfl_ps, pubsub_vfl))
        with pytest.raises(ConfigError, match="there are 40 training rows"):
            module.parties(task, config(module, task, batch_size=41))
    with pytest.raises(ConfigError, match="an epoch has 2 batches"):
        avfl_ps.parties(task, config(avfl_ps, task, batch_size=20, workers=3))
    with pytest.raises(ConfigError, match="an epoch has 2 batches"):
        pubsub_vfl.parties(task, config(pubsub_vfl, task, batch_size=20, workers=3, passive_workers=None))
