"""What holds for every algorithm of the registry: it runs, repeats itself, goes on after a stop, and is re-timed
exactly."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import vflbench
from vflbench import exposure, registry
from vflbench.federation.simulated import SimulatedEngine
from vflbench.results.reader import Run
from vflbench.results.run_schema import PHASES, validate_summary
from vflbench.runner.evaluate import Observer
from vflbench.runner.inference import PARTIAL
from vflbench.types import ASSUMED, Sent, VflbenchError, messages

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
    "tree_cg",
    "extra",
    "centralized_gd",
}  # methods for convex objectives; the first, third and last also take networks
DRAWS_NOTHING = {"dcpa", "tree_cg", "extra", "centralized_gd"}  # the same for every seed, on data that is
# what it does: with another clock it is another run
DEPENDS_ON_TIME = {"leasgd_async", "fedbuff", "pubsub_vfl", "avfl", "avfl_ps"}
SPLIT = ["model.width=8", "model.depth=3", "algorithm.batch_size=64"]  # split learning, in epochs: two of them
SPLIT_WORKERS = {
    "vfl": [],
    "avfl": [],
    "vfl_ps": ["algorithm.workers=2"],
    "avfl_ps": ["algorithm.workers=2"],
    "pubsub_vfl": ["algorithm.workers=2", "algorithm.passive_workers=2", "algorithm.failure_rate=0.05"],
}
CASES = [(name, layout) for name, info in registry.algorithms().items() for layout in info.layouts if layout in DATASET]
# In the fast tests these stand for all algorithms: one of each family, and of split learning one that depends on time.
REPRESENTATIVES = {"glasu", "rfl_admm_v", "mtcd", "leasgd", "vfl", "pubsub_vfl", "send_once"}


FEW = {"vfl"}  # in tests of several runs each


def marks(algorithm: str, fast: Collection[str] = REPRESENTATIVES) -> list[pytest.MarkDecorator]:
    """A test of an algorithm that others stand for is slow."""
    return [] if algorithm in fast else [pytest.mark.slow]


def represented(cases: Iterable[tuple[str, ...]], fast: Collection[str] = REPRESENTATIVES) -> list[Any]:
    """Parameters of a test, of which the first is the algorithm; slow are those that others stand for."""
    return [pytest.param(*case, marks=marks(case[0], fast)) for case in cases]


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
    """An algorithm on a layout, and the run of it that the tests compare with; `options` are those of all its runs."""

    def __init__(self, algorithm: str, layout: str, folder: Path, *options: str) -> None:
        self.algorithm, self.layout, self.folder, self.options = algorithm, layout, folder, options

    def run(self, folder: Path, *more: str) -> Run:
        return run(folder, self.algorithm, self.layout, *self.options, *more)

    @cached_property
    def whole(self) -> Run:
        return self.run(self.folder)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames:
        once = metafunc.function is test_every_algorithm_runs_and_keeps_the_contract
        cases = [
            pytest.param(found, marks=marks(found[0], REPRESENTATIVES if once else FEW), id="-".join(found))
            for found in CASES
        ]
        metafunc.parametrize("case", cases, indirect=True, scope="module")


@pytest.fixture(scope="module")
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Of the module: pytest then runs all tests of a case one after the other."""
    algorithm, layout = request.param
    return Case(algorithm, layout, tmp_path_factory.mktemp("whole") / "run")


def test_every_family_has_a_representative() -> None:
    infos = registry.algorithms()
    assert {infos[name].family for name in REPRESENTATIVES} == {info.family for info in infos.values()}


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
    declared = {sent.tag for sent in messages(registry.exposed(case.algorithm))}
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
    named = {(one.tag, one.sender, one.receiver) for one in declared(case)}
    sent = {(tag, *ends) for tag, *ends in ways(case.whole.ledger)}
    assert sent <= named
    # of workers' organisations; of clients that train alone
    scoring = {("embedding", "passive", "active"), ("prediction", "client", "server")}
    assert named - sent <= scoring


def declared(case: Case) -> list[Sent]:
    """What EXPOSES says is sent with the run's keys: no privacy, nothing encrypted."""
    keys = {**case.whole.manifest["config"]["algorithm"], "privacy": "none", "privacy.split": False}
    keys |= {"protection": "none"}
    exposes = messages(registry.exposed(case.algorithm))
    return [one for one in exposes if registry.chosen(one, keys)]


def ways(rows: pd.DataFrame) -> list[tuple[str, str, str]]:
    """(tag, sender's role, receiver's role) of each message."""
    roles = {name: re.sub(r"_\d+", "", name) for name in {*rows["src"], *rows["dst"]}}
    return [(tag, roles[src], roles[dst]) for tag, src, dst in zip(rows["tag"], rows["src"], rows["dst"], strict=True)]


def test_the_table_of_who_learns_what_agrees_with_the_ledger(case: Case) -> None:
    """Tags, ways, phases and numbers of messages: what the table says is sent is sent, and nothing else is."""
    run, exposes = case.whole, declared(case)
    found = run.messages[run.messages["link"] != "local"].assign(way=lambda rows: ways(rows))
    entries = run.summary["exposure"]["entries"]
    assert registry_table(case) == run.summary["exposure"]
    for phase in ("setup", "train", "predict"):
        rows = found[(found["phase"] == phase) & (found["round"] > 0 if phase == "train" else True)]
        rows = rows[~rows["tag"].isin(registry.algorithms()[case.algorithm].assumes)]  # accounting=everything's
        named = "evaluation" if phase == "predict" else phase
        sent = [entry for entry in entries if entry["phase"] == named and entry["how"] == "sent"]
        table = {tag for entry in sent for tag in entry["tags"]}
        if phase == "predict":  # a convex problem's is a sum of shares, a network's is not
            assert set(rows["tag"]) <= table and (set(rows["tag"]) or not table)
        else:
            assert set(rows["tag"]) == table, phase
    own = found[found["phase"].isin(["setup", "train"])]
    for (way, _, _), rows in own.groupby(["way", "src", "dst"], observed=True):
        times = {sent.times for sent in exposes if (sent.tag, sent.sender, sent.receiver) == way}
        assert len(times) == 1, f"{way} is declared to come {times}"
        often = times.pop()
        if often == "per round":
            assert set(rows["round"]) <= set(range(1, rounds(case.algorithm) + 1))
        else:
            assert often == "per hop" or len(rows) == (often if isinstance(often, int) else 1), way
            assert set(rows["round"]) == ({1} if often == "round 1" else {0}), way
    for sent in exposes:  # over all pairs of parties: rounds, not one alone
        seen = own[own["way"] == (sent.tag, sent.sender, sent.receiver)]["round"].nunique()
        assert sent.times != "per round" or seen != 1, sent.tag


def registry_table(case: Case) -> dict[str, Any]:
    """The table as `vflbench privacy` makes it of the run's configuration, from sources."""
    config = case.whole.manifest["config"]
    keys = {**config["algorithm"], "protection": config["protection"]["name"]}
    parts = keys, config["privacy"], config["codec"]["name"], config.get("model")
    return exposure.table(case.algorithm, *parts)


def stopped_and_resumed(train: Callable[..., Run], folder: Path, stop: int = 5) -> Run:
    """`train(folder, *more)`, which an error ends in round `stop`, gone on with."""
    on_round = Observer.on_round

    def breaks(self: Observer, round: int, engine: SimulatedEngine) -> bool:
        if round == stop:
            raise VflbenchError("the power went")
        return on_round(self, round, engine)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(VflbenchError, match="the power went"):
        patch.setattr(Observer, "on_round", breaks)
        train(folder)
    assert json.loads((folder / "summary.json").read_text())["status"] == "failed"
    return train(folder, "resume=true")


def test_every_algorithm_repeats_itself_and_goes_on_where_it_was_stopped(case: Case, tmp_path: Path) -> None:
    """The run that is stopped is a second one, in a folder of its own: each of its rounds must equal the first one's,
    to the last bit."""
    last = 5 if rounds(case.algorithm) == 6 else 2
    same(case.whole, stopped_and_resumed(case.run, tmp_path / "stopped", last))


@pytest.mark.slow
def test_counts_of_ciphertexts_go_on_where_they_were_stopped(tmp_path: Path) -> None:
    case = Case("secureboost", "aligned", tmp_path / "whole", "protection=paillier")
    resumed = stopped_and_resumed(case.run, tmp_path / "stopped", 2)
    counts = case.whole.summary["protection"]
    assert counts["active"]["decrypted"] and counts["passive_1"]["added"]
    assert resumed.summary["protection"] == counts


WORKERS = ("leasgd", "leasgd_async", "fedbuff", "d_psgd")  # the others make d_psgd's steps


@pytest.mark.slow  # split learning and tokens stand for them in the fast tests
@pytest.mark.parametrize("algorithm", WORKERS)
def test_private_workers_go_on_where_they_were_stopped(algorithm: str, tmp_path: Path) -> None:
    """The same noise and batches, and what was spent before the stop still counts."""
    more = ["privacy=dp_sgd", "privacy.epsilon=null", "privacy.noise_multiplier=1.5"]
    more += ["algorithm.ranking=noisy", "algorithm.recategorise_every=3"] if algorithm == "leasgd" else []
    case = Case(algorithm, "sharded", tmp_path / "whole", *more)
    whole = case.whole
    goes_on = stopped_and_resumed(case.run, tmp_path / "stopped")
    same(whole, goes_on)
    assert goes_on.summary["privacy"] == whole.summary["privacy"] and whole.summary["privacy"]["steps"] > 0


TOKENS = ["privacy=gaussian_embedding", "privacy.noise_multiplier=0.1"]
NETWORK = [*TABLES, "algorithm.parties=3", "algorithm.lr=0.01", "model=split_mlp"]
PRIVATE_TOKENS = [
    pytest.param("mtcd", CONVEX, id="mtcd"),
    pytest.param("stcd", CONVEX, marks=pytest.mark.slow, id="stcd"),
    pytest.param("mtcd", [*NETWORK, "algorithm.hops=2"], marks=pytest.mark.slow, id="mtcd-networks"),
    pytest.param("mtcd", [*CONVEX, "codec=int8"], marks=pytest.mark.slow, id="mtcd-codec"),
    pytest.param("svfl", [*CONVEX, "algorithm.lr=0.01"], marks=pytest.mark.slow, id="svfl"),
    pytest.param("svfl", NETWORK, marks=pytest.mark.slow, id="svfl-networks"),
    pytest.param("dcpa", CONVEX, marks=pytest.mark.slow, id="dcpa"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "data"), PRIVATE_TOKENS)
def test_private_tokens_go_on_where_they_were_stopped(algorithm: str, data: list[str], tmp_path: Path) -> None:
    """What clients have published is kept: the same noise is replaced after the stop, and releases go on counting."""
    small = ["rounds=6", "eval_every=2", "checkpoint_every=2", "engine.threads=1", "plot=none"]

    def train(folder: Path, *more: str) -> Run:
        return vflbench.run([f"algorithm={algorithm}", *data, *small, *TOKENS, *more, f"hydra.run.dir={folder}"])

    whole = train(tmp_path / "whole")
    goes_on = stopped_and_resumed(train, tmp_path / "stopped")
    same(whole, goes_on)
    releases = whole.summary["privacy"]["releases"]
    assert goes_on.summary["privacy"] == whole.summary["privacy"] and releases["done"] == releases["planned"] > 0


GRAPH_PRIVATE = [
    ("glasu_exact", ["privacy=gaussian_embedding"]),
    ("glasu", ["privacy=edge_rr", "privacy.row_epsilon=8"]),
    ("glasu_exact", ["privacy=edge_rr"]),
    ("glasu", ["privacy=gaussian_embedding"]),
    ("simulated_centralized", ["privacy=gaussian_embedding"]),
]


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "more"), GRAPH_PRIVATE)
def test_private_graphs_go_on_where_they_were_stopped(algorithm: str, more: list[str], tmp_path: Path) -> None:
    """The same noise and the same edges shown; ids are not rehearsed again, and releases go on counting."""
    case = Case(algorithm, "graph", tmp_path / "whole", *more)
    whole = case.whole
    goes_on = stopped_and_resumed(case.run, tmp_path / "stopped")
    same(whole, goes_on)
    found = whole.summary["privacy"]
    assert goes_on.summary["privacy"] == found and found["releases"]["done"] == found["releases"]["planned"] > 0
    if "row_releases" in found:
        assert found["row_releases"]["done"] == found["row_releases"]["planned"] > 0


SPLIT_PRIVATE = [
    ("vfl_ps", "embedding_and_label"),
    pytest.param("pubsub_vfl", "gaussian_gradient", marks=pytest.mark.slow),
    pytest.param("avfl_ps", "label_rr", marks=pytest.mark.slow),
    pytest.param("avfl", "gdp_embedding", marks=pytest.mark.slow),
    pytest.param("vfl", "label_rr", marks=pytest.mark.slow),
]


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "mechanism"), SPLIT_PRIVATE)
def test_private_split_learning_goes_on_where_it_was_stopped(algorithm: str, mechanism: str, tmp_path: Path) -> None:
    """The same noise and randomised labels, and releases go on counting."""
    more = [f"privacy={mechanism}", "dataset.task=classes"]
    case = Case(algorithm, "aligned", tmp_path / "whole", *more)
    whole = case.whole
    goes_on = stopped_and_resumed(case.run, tmp_path / "stopped", 2)
    same(whole, goes_on)
    releases = whole.summary["privacy"]["releases"]
    assert goes_on.summary["privacy"] == whole.summary["privacy"] and releases["done"] == releases["planned"] > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "layout"), [case for case in CASES if case[0] in REPRESENTATIVES - DEPENDS_ON_TIME]
)
@pytest.mark.parametrize("timing", ["causal", "round"])
def test_communication_time_is_the_time_without_computing(
    algorithm: str, layout: str, timing: str, tmp_path: Path
) -> None:
    """With a compute clock, communication_seconds comes from a replay: it must be the virtual time of a run whose clock
    is `none`. The replay reads messages, whichever algorithm sent them."""
    compare_times(Case(algorithm, layout, tmp_path / "whole"), timing, tmp_path)


def compare_times(case: Case, timing: str, tmp_path: Path) -> None:
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


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["mtcd", "svfl", "centralized_gd"])
@pytest.mark.parametrize("batch_size", ["null", "50"])
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

    def train(folder: Path, *more: str) -> Run:
        return vflbench.run([f"algorithm={algorithm}", *network, *small, *more, f"hydra.run.dir={folder}"])

    whole = train(tmp_path / "whole")
    assert (
        whole.summary["status"] == "completed" and whole.curve.columns[-1] == f"test_{whole.summary['metric']['name']}"
    )
    same(whole, stopped_and_resumed(train, tmp_path / "stopped"))
