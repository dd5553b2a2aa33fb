"""The planner: its two models of an epoch against each other and by hand, its choice against brute force."""

from __future__ import annotations

import csv
import dataclasses
import random
from pathlib import Path

import numpy as np
import pytest
import yaml

from tests.algorithms.small_columns import classes
from tests.options import privacy_config, topology_config
from vflbench.algorithms.split import pubsub_vfl
from vflbench.algorithms.split.planner import (
    HEADER,
    Plan,
    Setting,
    epoch_seconds,
    growth,
    largest_batch,
    plan,
    played_epoch_seconds,
)
from vflbench.cards.algorithms.split import pubsub_vfl as pubsub_vfl_card
from vflbench.cards.models.split_learning import Config as Network
from vflbench.config import config_dir
from vflbench.federation import topology
from vflbench.federation.clock import ComputeClock
from vflbench.federation.delays import Delays
from vflbench.federation.simulated import SimulatedEngine
from vflbench.types import (
    ComputeConfig,
    Delay,
    EngineConfig,
    LinkConfig,
    NetworkConfig,
    RunConfig,
    VflbenchError,
)

TABLE_8 = {
    part: Delay(**d)
    for part, d in yaml.safe_load((config_dir() / "compute" / "paper_table8.yaml").read_text())["delays"].items()
}
PAPER = ComputeConfig(delays=TABLE_8, batch_latency=0.01, server_seconds=0.05, penalty_batch=128.0)


def constant(forward: float, active: float, backward: float, **keys: float) -> Delays:
    """Per-batch seconds that depend on neither the batch nor the workers."""
    seconds = {"passive_forward": forward, "passive_backward": backward, "active_forward": active}
    parts = {part: Delay(seconds.get(part, 0.0), -1.0) for part in TABLE_8}
    return Delays(ComputeConfig(delays=parts, cores=[100], **keys))


def played(
    delays: Delays, batches: int, workers: tuple[int, int] = (1, 1), link: LinkConfig | None = None, **keys: int
) -> float:
    """Seconds of an epoch of batches of ten samples, and the formula's are near."""
    grid = {"active_workers": [workers[0]], "passive_workers": [workers[1]], "batch_sizes": [10]}
    setting = Setting(batches * 10, 8, link or LinkConfig(), **grid, **keys)  # type: ignore[arg-type]
    seconds = played_epoch_seconds(delays, setting, *workers, 10)
    assert epoch_seconds(delays, setting)[0, 0, 0] == pytest.approx(seconds, rel=0.07)
    return seconds


def test_an_epoch_by_hand() -> None:
    slow_active = constant(1, 2, 1)
    # forward 0-1, 1-2, 2-3; active 1-3, 3-5, 5-7; backward 3-4, 5-6, 7-8
    assert played(slow_active, 3) == pytest.approx(8)
    assert played(slow_active, 3, outstanding=1) == pytest.approx(3 * 4)  # one after the other
    assert played(slow_active, 3, (3, 3)) == pytest.approx(4)  # all side by side
    # the fourth batch waits for an active worker: 3-5, backward 5-6
    assert played(slow_active, 4, (3, 3)) == pytest.approx(6)
    # Two passive workers: forward 0-1, 0-1, 1-2, 1-2; active 1-3, 3-5, 5-7, 7-9; backward 9-10
    assert played(slow_active, 4, (1, 2)) == pytest.approx(10)
    # Gradients first: forward 0-3, 3-6, back 6-8, and the gradient of 7 is there: back 8-10; forward 10-13, back 14-16
    assert played(constant(3, 1, 2), 3) == pytest.approx(16)


def test_latency_bandwidth_and_fixed_costs_by_hand() -> None:
    slow_active = constant(1, 2, 1)
    size = HEADER + 4 * 8 * 10  # bytes
    one_second = LinkConfig(500.0, size * 8 / 1e9)  # a second until the last byte has left, then half a second
    # and two notices
    assert played(slow_active, 1, link=one_second) == pytest.approx(1 + 1.5 + 2 + 1.5 + 1 + 2 * (8 / size + 0.5))
    # Five seconds a batch: embeddings leave at 6, 11, 16; active 16-18; gradients leave at 13, 18, 23; two notices
    assert played(slow_active, 3, link=LinkConfig(0.0, size * 8 / 5e9)) == pytest.approx(24 + 2 * 8 * 5 / size)
    fixed = constant(1, 2, 1, batch_latency=0.5, server_seconds=0.25)
    assert played(fixed, 1) == pytest.approx(4 + 2 * 0.5 + 0.25)
    assert played(fixed, 3, (3, 2), synchronisations=2) == pytest.approx(1.5 * 2 + 2.5 + 1 + 2 * 3 * 0.25)


def test_the_last_batch_is_shorter() -> None:
    # a tenth of a second per sample
    parts = {part: Delay(0.1 if part == "active_forward" else 0.0, 0.0) for part in TABLE_8}
    setting = Setting(25, 8, LinkConfig(), active_workers=[1], passive_workers=[1], batch_sizes=[10])
    delays = Delays(ComputeConfig(delays=parts))
    assert played_epoch_seconds(delays, setting, 1, 1, 10) == pytest.approx(2.5)
    assert epoch_seconds(delays, setting)[0, 0, 0] == pytest.approx(2.5)


def test_of_several_passive_parties_the_weakest_decides() -> None:
    delays = Delays(
        dataclasses.replace(PAPER, delays=TABLE_8 | {"passive_forward": Delay(0.5, -0.8)}, cores=[50, 20, 3, 20])
    )
    alone = Delays(dataclasses.replace(delays.config, cores=[50, 3]))
    three = Setting(20_000, 32, LinkConfig(10.0, 1.0), passive=3)
    assert plan(delays, three) == plan(alone, dataclasses.replace(three, passive=1))
    assert plan(delays, dataclasses.replace(three, passive=1)).target_seconds < plan(delays, three).target_seconds


def random_setting(rng: random.Random) -> tuple[Delays, Setting]:
    # how much slower the passive party is than in Table 8, whose active one is the bottleneck
    scale = rng.choice([1, 10, 30, 100])
    delays = {
        part: Delay(d.scale * (scale if part.startswith("passive") else 1), d.exponent) for part, d in TABLE_8.items()
    }
    cores = rng.choice([[32], [50, 14], [14, 50], [8, 4], [50, 10, 14, 20]])
    costs = {"batch_latency": rng.choice([0.0, 0.01, 0.05]), "server_seconds": rng.choice([0.0, 0.05])}
    config = ComputeConfig(delays=delays, cores=cores, core_cap=rng.choice([1.0, 2.0]), penalty_batch=128.0, **costs)
    link = LinkConfig(rng.choice([0.0, 0.1, 30.0, 136.0]), rng.choice([None, 1.0, 0.42, 0.01]))
    return Delays(config), Setting(
        rng.choice([2000, 20_000]), 32, link, rng.choice([1, 1, 3]), outstanding=rng.choice([1, 2, 5, 5])
    )


@pytest.mark.slow
def test_the_formula_is_within_5_percent_of_events_nearly_everywhere() -> None:
    rng = random.Random(5)
    errors = []
    while len(errors) < 150:
        delays, setting = random_setting(rng)
        active, passive, size = rng.randint(1, 30), rng.randint(1, 30), rng.choice([16, 64, 256, 1024])
        one = dataclasses.replace(setting, active_workers=[active], passive_workers=[passive], batch_sizes=[size])
        formula = epoch_seconds(delays, one)[0, 0, 0]
        if max(active, passive) > -(-setting.samples // size):
            assert formula == np.inf
            continue
        errors.append(abs(formula / played_epoch_seconds(delays, one, active, passive, size) - 1))
    assert np.median(errors) < 1e-9
    assert np.mean(np.array(errors) < 0.05) > 0.93
    assert max(errors) < 0.25


@pytest.mark.parametrize("seed", range(8))
def test_the_choice_is_brute_forces_within_5_percent(seed: int) -> None:
    delays, setting = random_setting(random.Random(seed))
    setting = dataclasses.replace(
        setting,
        samples=2000,
        active_workers=range(2, 11, 2),
        passive_workers=range(2, 11, 2),
        batch_sizes=(16, 64, 128, 256),
    )
    times = {
        (a, p, b): played_epoch_seconds(delays, setting, a, p, b) * (1 + b / 128)
        for a in setting.active_workers
        for p in setting.passive_workers
        for b in setting.batch_sizes
        if max(a, p) <= -(-2000 // b)
    }
    found = plan(delays, setting)
    assert found.target_seconds == pytest.approx(times[found.active_workers, found.passive_workers, found.batch_size])
    assert found.target_seconds <= min(times.values()) * 1.05
    assert found.epoch_seconds * (1 + found.batch_size / 128) == pytest.approx(found.target_seconds)


@pytest.mark.parametrize("seed", range(6))
def test_the_chosen_points_time_is_the_simulators(seed: int) -> None:
    """pubsub_vfl itself, in virtual time, on the chosen workers and batch size."""
    delays, setting = random_setting(random.Random(100 + seed))
    task = classes(samples=420, features=8, parties=setting.passive + 1, classes=2)
    setting = dataclasses.replace(
        setting,
        samples=400,
        width=3,
        active_workers=range(2, 9),
        passive_workers=range(2, 9),
        batch_sizes=(4, 8, 16, 32),
    )
    found = plan(delays, setting)
    algorithm = pubsub_vfl_card.Config(
        parties=task.parties, workers=found.active_workers, passive_workers=found.passive_workers,
        batch_size=found.batch_size,
        outstanding=setting.outstanding, deadline=None, aggregation="every_epoch",
    )  # fmt: skip
    network = NetworkConfig("test", client_server=setting.link, client_client=setting.link)
    others = topology_config("star"), privacy_config(), EngineConfig(), delays.config
    config = RunConfig(
        algorithm, None, Network(depth=2, width=4, embedding=3, top_width=3), network, *others, rounds=1, device="cpu"
    )
    specs = pubsub_vfl.parties(task, config)
    servers = [name for name, spec in specs.items() if spec.role == "server"]
    graph = topology.build(config.topology, servers, [name for name in specs if name not in servers], 0)
    engine = SimulatedEngine(
        specs, task.public, config, rounds=1, seed=0, network=network, connected=graph.connected,
        neighbours=graph.neighbours,
        clock=ComputeClock("modelled", delays.config),
    )  # fmt: skip
    engine.run()
    assert max(party.now for party in engine.order) == pytest.approx(found.epoch_seconds, rel=1e-9)


@pytest.mark.slow
def test_with_table_8_the_best_workers_and_batch_are_inside_their_ranges() -> None:
    """700,000 samples, 32 cores each (section 10 item 2): what makes it so is the server's cost and the penalty, and
    nothing else."""
    setting = Setting(700_000, 32, LinkConfig(1.0, 1.0))
    found = plan(Delays(PAPER), setting)
    assert 2 < found.active_workers < 50 and 16 < found.batch_size < 1024
    assert found.batch_size == 256  # 2 B_c
    assert plan(Delays(dataclasses.replace(PAPER, penalty_batch=None)), setting).batch_size == 1024
    cheap = dataclasses.replace(PAPER, server_seconds=0.0, batch_latency=0.2)
    assert plan(Delays(cheap), setting).active_workers > found.active_workers


def test_more_workers_need_more_epochs_as_measured() -> None:
    """Table 2 as we measured it, 4 to 50 workers: within a quarter of 1 + w."""
    path = Path(__file__).resolve().parents[2] / "docs/results/pubsub_vfl/table2.csv"
    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    workers, epochs = (np.array([float(row[key]) for row in rows]) for key in ("algorithm.workers", "epochs"))
    paper = Delays(ComputeConfig(**yaml.safe_load((config_dir() / "compute/paper_table8.yaml").read_text())))
    grown = growth(paper, workers, workers, np.full(len(workers), 32.0))
    shares = epochs / grown / (epochs[-1] / grown[-1])
    assert len(rows) == 7 and shares == pytest.approx(np.ones(7), rel=0.25)
    assert growth(Delays(PAPER), 4, 50, np.array([128.0])) == pytest.approx([2.0])
    # so a target wants fewer workers than an epoch does
    setting = Setting(700_000, 32, LinkConfig(1.0, 1.0))
    found = plan(Delays(dataclasses.replace(PAPER, penalty_workers=1.0)), setting)
    free = plan(Delays(PAPER), setting)
    assert found.active_workers < free.active_workers and found.epoch_seconds > free.epoch_seconds


def test_the_literal_objective_takes_the_fewest_workers_and_the_batch_that_the_link_allows() -> None:
    """Section 10 item 3."""
    for gbps, size in ((1.0, 128), (10.0, 512), (None, 1024)):
        found = plan(Delays(PAPER), Setting(700_000, 32, LinkConfig(1.0, gbps)), "paper")
        assert (found.active_workers, found.passive_workers, found.batch_size) == (2, 2, size)
    best = plan(Delays(PAPER), Setting(700_000, 32, LinkConfig(1.0, 1.0)))
    assert found.target_seconds > 5 * best.target_seconds  # what following it would cost


@pytest.mark.slow
def test_memory_bounds_the_batch() -> None:
    assert largest_batch(maximum=1000.0, base=100.0, per_sample=0.9, exponent=1.5) == pytest.approx(100.0)
    setting = Setting(700_000, 32, LinkConfig(), memory=[(1000.0, 100.0, 0.9, 1.5)])
    for planner in ("epoch", "paper"):
        assert plan(Delays(PAPER), setting, planner).batch_size == 64  # type: ignore[arg-type]
    with pytest.raises(VflbenchError, match="memory allows 0 samples, the smallest is 16"):
        plan(Delays(PAPER), dataclasses.replace(setting, memory=[(50.0, 100.0, 0.9, 1.5)]))
    with pytest.raises(VflbenchError, match="the fewest, 2, are more than the 1 batches"):
        plan(Delays(PAPER), dataclasses.replace(setting, samples=10))


def test_equal_times_take_the_fewest_workers_then_the_fewest_active_then_the_smallest_batch() -> None:
    free = Delays(ComputeConfig(base_seconds=0.0, seconds_per_unit=0.0))
    assert plan(free, Setting(1000, 8, LinkConfig())) == Plan(2, 2, 16, 0.0, 0.0)
    setting = Setting(64, 8, LinkConfig(), active_workers=[4, 2], passive_workers=[4, 2], batch_sizes=[8, 4])
    # An active worker a second a batch: 8 batches over 4 of them beat 2; of passive workers 2 do as well as 4
    found = plan(constant(0, 1, 0), setting)
    assert (found.active_workers, found.passive_workers, found.batch_size) == (4, 2, 8)
    assert found.epoch_seconds == pytest.approx(2.0)
