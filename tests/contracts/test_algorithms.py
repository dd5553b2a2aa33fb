"""What holds for every algorithm of the registry: it runs, repeats itself, goes on after a stop, and is re-timed
exactly."""

from __future__ import annotations

import json
import re
from functools import cached_property
from pathlib import Path

import pandas as pd
import pytest

import vflbench
from vflbench import registry
from vflbench.federation.simulated import SimulatedEngine
from vflbench.results.folder import PHASES, validate_summary
from vflbench.results.reader import Run
from vflbench.runner.evaluate import Observer
from vflbench.runner.serving import PARTIAL
from vflbench.types import ASSUMED, VflbenchError

# Per layout, small data that every machine has.
TABLES = ["dataset=star_schema", "dataset.rows=300", "dataset.dimension_rows=60", "dataset.width=3"]
DATASET = {
    "graph": ["dataset=digits_graph", "model.hidden=24"],
    "relational": TABLES,
    "aligned": TABLES,
    "sharded": ["dataset=digits", "model.widths=[16]"],
}
CONVEX = ["dataset=ridge", "dataset.samples=40", "dataset.features=24", "algorithm.parties=4"]
ON_CONVEX = {
    "mtcd",
    "stcd",
    "svfl",
    "dcpa",
    "centralized_gd",
}  # methods for convex objectives; the first, third and last also take networks
DRAWS_NOTHING = {"dcpa", "centralized_gd"}  # the same for every seed, on data that is
# what it does: with another clock it is another run
DEPENDS_ON_TIME = {"leasgd_async", "pubsub_vfl", "avfl", "avfl_ps"}
SPLIT = ["model.width=8", "model.depth=3", "algorithm.batch_size=64"]  # split learning, in epochs: two of them
SPLIT_WORKERS = {
    "vfl": [],
    "avfl": [],
    "vfl_ps": ["algorithm.workers=2"],
    "avfl_ps": ["algorithm.workers=2"],
    "pubsub_vfl": ["algorithm.workers=2", "algorithm.passive_workers=2", "algorithm.failure_rate=0.05"],
}
CASES = [(name, layout) for name, info in registry.algorithms().items() for layout in info.layouts if layout in DATASET]


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than these runs."""
    monkeypatch.setattr("vflbench.plots.curves.draw_run", lambda folder, summary: None)


def rounds(algorithm: str) -> int:
    return 2 if algorithm in SPLIT_WORKERS else 6


def each(algorithm: str) -> int:
    """Rounds from one evaluation or checkpoint to the next."""
    return rounds(algorithm) // (2 if algorithm in SPLIT_WORKERS else 3)


def run(folder: Path, algorithm: str, layout: str, *more: str) -> Run:
    small = [
        f"rounds={rounds(algorithm)}",
        *(f"{key}={each(algorithm)}" for key in ("eval_every", "checkpoint_every")),
        "engine.threads=1",
        "plot=none",
    ]
    data = CONVEX if algorithm in ON_CONVEX else DATASET[layout]
    if algorithm in SPLIT_WORKERS:
        data = [*data, *SPLIT, *SPLIT_WORKERS[algorithm]]
    return vflbench.run([f"algorithm={algorithm}", *data, *small, *more, f"hydra.run.dir={folder}"])


class Case:
    """An algorithm on a layout, and the run of it that the tests compare with."""

    def __init__(self, algorithm: str, layout: str, folder: Path) -> None:
        self.algorithm, self.layout, self.folder = algorithm, layout, folder

    def run(self, folder: Path, *more: str) -> Run:
        return run(folder, self.algorithm, self.layout, *more)

    @cached_property
    def whole(self) -> Run:
        return self.run(self.folder)


TYPICAL = {"glasu", "rfl_admm_v", "mtcd", "leasgd", "vfl", "pubsub_vfl"}  # in the fast tests: all are in the slow ones
TWICE = {  # tests of several runs each
    "test_every_algorithm_repeats_itself_and_goes_on_where_it_was_stopped",
    "test_communication_time_is_the_time_without_computing",
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames:
        few = metafunc.function.__name__ in TWICE
        marks = {name: [pytest.mark.slow] if few and name not in TYPICAL else [] for name, _ in CASES}
        cases = [pytest.param(found, marks=marks[found[0]], id="-".join(found)) for found in CASES]
        metafunc.parametrize("case", cases, indirect=True, scope="module")


@pytest.fixture(scope="module")
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Of the module: pytest then runs all tests of a case one after the other."""
    algorithm, layout = request.param
    return Case(algorithm, layout, tmp_path_factory.mktemp("whole") / "run")


def same(a: Run, b: Run) -> None:
    pd.testing.assert_frame_equal(a.curve, b.curve, check_exact=True)
    pd.testing.assert_frame_equal(a.ledger, b.ledger, check_exact=True)
    pd.testing.assert_frame_equal(a.trace, b.trace, check_exact=True)
    for path in sorted((a.folder / "model").glob("*")):
        assert path.read_bytes() == (b.folder / "model" / path.name).read_bytes(), path.name


def test_every_message_has_a_phase_and_phases_add_up_to_the_ledger(case: Case) -> None:
    run, phases = case.whole, case.whole.summary["phases"]
    every = run.messages[run.messages["link"] != "local"]
    assert set(every["phase"]) <= set(PHASES) and list(phases) == list(PHASES)
    declared = {sent.tag for sent in registry.load_algorithm(case.algorithm).EXPOSES}
    for name, rows in every.groupby("phase", observed=True):
        assert set(rows["tag"]) <= declared | ({PARTIAL} if name == "predict" else set()), name
        assert (rows["round"] == 0).all() if name == "setup" else (rows["round"] > 0).all()
    times = 1000 / phases["predict"]["rows"]
    for name in PHASES:
        rows = every[every["phase"] == name]
        found = rows["bytes"].sum() * (times if name == "predict" else 1)
        assert (round(found), len(rows)) == (phases[name]["bytes"], phases[name]["messages"]), name
    own = [phases[name] for name in ("setup", "train")]
    assert sum(one["bytes"] for one in own) == run.summary["bytes"]["total"]
    assert sum(one["messages"] for one in own) == run.summary["messages"]
    if own[1]["seconds"] is not None:
        assert sum(one["seconds"] for one in own) == pytest.approx(run.summary["communication_seconds"])
    assert set(run.summary["assumes"]) <= set(ASSUMED)


def test_every_algorithm_runs_and_keeps_the_contract(case: Case, tmp_path: Path) -> None:
    first = case.whole
    assert validate_summary(first.summary) == []
    assert first.summary["status"] == "completed"
    assert list(first.curve["round"]) == list(
        range(each(case.algorithm), rounds(case.algorithm) + 1, each(case.algorithm))
    )
    assert first.summary["bytes"]["total"] == int(first.ledger.query("link != 'local'")["bytes"].sum())
    for name in ("curve.csv", "ledger.parquet", "trace.parquet", "manifest.json", ".hydra/config.yaml", "checkpoint"):
        assert (first.folder / name).exists(), name
    other = case.run(tmp_path / "other", "seed=1", f"rounds={each(case.algorithm)}")  # as far as the first evaluation
    assert (first.curve["train_loss"][0] == other.curve["train_loss"][0]) == (case.algorithm in DRAWS_NOTHING)


def test_every_message_is_declared_with_its_way(case: Case) -> None:
    declared = {(sent.tag, sent.sender, sent.receiver) for sent in registry.load_algorithm(case.algorithm).EXPOSES}
    ledger = case.whole.ledger
    roles = {name: re.sub(r"_\d+", "", name) for name in {*ledger["src"], *ledger["dst"]}}
    sent = {
        (tag, roles[src], roles[dst]) for tag, src, dst in zip(ledger["tag"], ledger["src"], ledger["dst"], strict=True)
    }
    assert sent <= declared
    # batch by batch, with privacy
    elsewhere = {"rows"} if "dp_sgd" in registry.algorithms()[case.algorithm].privacy else set()
    # of workers' organisations; of clients that train alone
    scoring = {("embedding", "passive", "active"), ("prediction", "client", "server")}
    assert {way for way in declared - sent if way[0] not in elsewhere} <= scoring


def test_every_algorithm_repeats_itself_and_goes_on_where_it_was_stopped(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run that is stopped is a second one, in a folder of its own: each of its rounds must equal the first one's,
    to the last bit."""
    whole = case.whole
    last = 5 if rounds(case.algorithm) == 6 else 2
    on_round = Observer.on_round

    def breaks(self: Observer, round: int, engine: SimulatedEngine) -> bool:
        if round == last:
            raise VflbenchError("the power went")
        return on_round(self, round, engine)

    monkeypatch.setattr(Observer, "on_round", breaks)
    with pytest.raises(VflbenchError, match="the power went"):
        case.run(tmp_path / "stopped")
    monkeypatch.undo()
    assert json.loads((tmp_path / "stopped" / "summary.json").read_text())["status"] == "failed"
    same(whole, case.run(tmp_path / "stopped", "resume=true"))


SAME_PIECES = [
    pytest.param(name, marks=pytest.mark.slow)
    for name in ("leasgd_async", "d_psgd", "easgd", "local_sgd", "allreduce_sgd", "centralized_sgd")
]


@pytest.mark.parametrize("algorithm", ["leasgd", *SAME_PIECES])
def test_private_workers_go_on_where_they_were_stopped(
    algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same noise and batches, and what was spent before the stop still counts."""
    more = ["privacy=dp_sgd", "privacy.epsilon=null", "privacy.noise_multiplier=1.5"]
    more += ["algorithm.ranking=noisy", "algorithm.recategorise_every=3"] if algorithm == "leasgd" else []
    whole = run(tmp_path / "whole", algorithm, "sharded", *more)
    on_round = Observer.on_round

    def breaks(self: Observer, round: int, engine: SimulatedEngine) -> bool:
        if round == 5:
            raise VflbenchError("the power went")
        return on_round(self, round, engine)

    monkeypatch.setattr(Observer, "on_round", breaks)
    with pytest.raises(VflbenchError, match="the power went"):
        run(tmp_path / "stopped", algorithm, "sharded", *more)
    monkeypatch.undo()
    goes_on = run(tmp_path / "stopped", algorithm, "sharded", *more, "resume=true")
    same(whole, goes_on)
    assert goes_on.summary["privacy"] == whole.summary["privacy"] and whole.summary["privacy"]["steps"] > 0


@pytest.mark.parametrize("timing", ["causal", pytest.param("round", marks=pytest.mark.slow)])
def test_communication_time_is_the_time_without_computing(case: Case, timing: str, tmp_path: Path) -> None:
    """With a compute clock, communication_seconds comes from a replay: it must be the virtual time of a run whose clock
    is `none`."""
    if case.algorithm in DEPENDS_ON_TIME:
        pytest.skip("what it does depends on time: no such equality is claimed")
    clock_is_none = timing == "causal" and not registry.algorithms()[case.algorithm].modelled
    none = [f"network.timing={timing}", "engine.compute_clock=none"]
    instant = case.whole if clock_is_none else case.run(tmp_path / "none", *none)
    slow = case.run(tmp_path / "modelled", f"network.timing={timing}", "engine.compute_clock=modelled")
    assert list(slow.curve["communication_seconds"]) == list(instant.curve["virtual_seconds"])
    assert slow.summary["communication_seconds"] == instant.summary["virtual_seconds"]
    assert (slow.curve["virtual_seconds"] >= instant.curve["virtual_seconds"]).all()
    assert slow.summary["compute_seconds"] >= 0  # 0: all of it beside messages that take longer
    assert (slow.trace["kind"] == "compute").any()
    metric = slow.curve.columns[-1]  # the test metric, or of convex objectives the training one
    assert list(slow.curve[metric]) == list(instant.curve[metric])


@pytest.mark.parametrize(
    "algorithm", ["mtcd", *(pytest.param(name, marks=pytest.mark.slow) for name in ("svfl", "centralized_gd"))]
)
@pytest.mark.parametrize("batch_size", ["null", pytest.param("50", marks=pytest.mark.slow)])
def test_networks_of_tokens_go_on_where_they_were_stopped(algorithm: str, batch_size: str, tmp_path: Path) -> None:
    """The same methods with split networks, on tables joined: repeated, and stopped after four rounds."""
    network = [
        *TABLES,
        "algorithm.parties=3",
        "algorithm.lr=0.01",
        f"algorithm.batch_size={batch_size}",
        "model=split_mlp",
    ]
    network += ["algorithm.tokens=2", "algorithm.hops=2", "algorithm.local_steps=3"] if algorithm == "mtcd" else []
    small = ["eval_every=2", "checkpoint_every=2", "engine.threads=1", "plot=none", "rounds=6"]
    whole = vflbench.run([f"algorithm={algorithm}", *network, *small, f"hydra.run.dir={tmp_path / 'whole'}"])
    assert (
        whole.summary["status"] == "completed" and whole.curve.columns[-1] == f"test_{whole.summary['metric']['name']}"
    )
    stopped = f"hydra.run.dir={tmp_path / 'stopped'}"
    ended = Observer.on_round

    def breaks(self: Observer, round: int, engine: SimulatedEngine) -> bool:
        if round == 5:
            raise VflbenchError("the power went")
        return ended(self, round, engine)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Observer, "on_round", breaks)
        with pytest.raises(VflbenchError, match="the power went"):
            vflbench.run([f"algorithm={algorithm}", *network, *small, stopped])
    same(whole, vflbench.run([f"algorithm={algorithm}", *network, *small, stopped, "resume=true"]))
