"""How a run ends: budgets, target, divergence, failures; and that the time of exchanges is what the ledger sums to."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import vflbench
from tests.every import few_fast
from vflbench.data.tasks import GraphPart
from vflbench.federation import replay
from vflbench.federation.ledger import LEDGER_FIELDS, TRACE_KINDS
from vflbench.federation.links import LINK_KINDS
from vflbench.federation.party import PartySpec
from vflbench.federation.simulated import SimulatedEngine
from vflbench.results import inventory, reader
from vflbench.results.reader import Run
from vflbench.runner.evaluate import Observer
from vflbench.types import DataSource, FederationError, LinkConfig, NetworkConfig, VflbenchError

SMALL = [
    "dataset=digits_graph",
    "model.hidden=24",
    "rounds=12",
    "eval_every=2",
    "checkpoint_every=4",
    "engine.threads=1",
    "plot=none",
]


def run(folder: Path, *more: str) -> Run:
    return vflbench.run(["algorithm=glasu", *SMALL, *more, f"hydra.run.dir={folder}"])


@pytest.fixture(autouse=True)
def no_pictures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than these runs."""
    if "pictures" not in request.node.name:
        monkeypatch.setattr("vflbench.plots.curves.draw_run", lambda folder, summary: None)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Run]:
    """Runs that several tests compare with, each made once; to be read only."""

    @functools.cache
    def make(*more: str) -> Run:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("vflbench.plots.curves.draw_run", lambda folder, summary: None)
            return run(tmp_path_factory.mktemp("undisturbed") / "run", *more)

    return make


def test_a_run_has_pictures_and_its_summary_is_its_last_file(tmp_path: Path) -> None:
    folder = run(tmp_path / "run", "plot=auto").folder
    pictures = [folder / f"{name}.{kind}" for name in ("curve", "bytes", "rounds") for kind in ("png", "svg")]
    written = [
        path.stat().st_mtime_ns
        for path in (*pictures, folder / "manifest.json", folder / "ledger.parquet", folder / "curve.csv")
    ]
    assert (folder / "summary.json").stat().st_mtime_ns >= max(written)


def test_target_stops_at_the_evaluation_that_reaches_it(tmp_path: Path, undisturbed: Callable[..., Run]) -> None:
    whole = undisturbed()
    target = float(whole.curve["val_accuracy"].iloc[2])
    reached = whole.curve[whole.curve["val_accuracy"] >= target].iloc[0]
    stopped = run(tmp_path / "stopped", f"target={target!r}")
    assert stopped.summary["status"] == "target_reached"
    assert stopped.summary["rounds"] == reached["round"]
    assert stopped.curve.equals(whole.curve[whole.curve["round"] <= reached["round"]])
    assert int(stopped.ledger["round"].max()) == reached["round"]


def test_budgets_stop_at_the_first_round_that_reaches_them(tmp_path: Path, undisturbed: Callable[..., Run]) -> None:
    whole = undisturbed()
    by_round = whole.ledger.groupby("round")["bytes"].sum().cumsum()
    stopped = run(tmp_path / "bytes", f"max_bytes={int(by_round[7])}")
    assert (stopped.summary["status"], stopped.summary["rounds"]) == ("budget", 7)
    assert stopped.summary["bytes"]["total"] == by_round[7]
    assert "max_bytes" in stopped.summary["reason"]
    seconds = float(whole.curve.set_index("round")["virtual_seconds"][4])
    timed = run(tmp_path / "seconds", f"max_virtual_seconds={seconds!r}")
    assert (timed.summary["status"], timed.summary["rounds"]) == ("budget", 4)


def test_a_budget_waits_for_the_first_evaluation(tmp_path: Path) -> None:
    """One byte is spent in round 1, and round 2 is the first that is evaluated: a run without a single number would be
    worth nothing."""
    ended = run(tmp_path / "run", "max_bytes=1")
    assert (ended.summary["status"], ended.summary["rounds"], list(ended.curve["round"])) == ("budget", 2, [2])


@pytest.mark.slow
def test_a_run_that_fails_keeps_what_it_has(
    tmp_path: Path, undisturbed: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = undisturbed()
    on_round = Observer.on_round

    def breaks(self: Observer, round: int, engine: SimulatedEngine) -> bool:
        if round == 7:
            raise FederationError("client_1 has left")
        return on_round(self, round, engine)

    monkeypatch.setattr(Observer, "on_round", breaks)
    with pytest.raises(FederationError, match="client_1 has left"):
        run(tmp_path / "run")
    monkeypatch.undo()
    failed = reader.load(tmp_path / "run")
    assert (failed.summary["status"], failed.summary["reason"]) == ("failed", "after round 7: client_1 has left")
    assert failed.summary["rounds"] == 7
    pd.testing.assert_frame_equal(failed.curve, whole.curve[whole.curve["round"] <= 6], check_exact=True)
    assert failed.summary["bytes"]["total"] > failed.curve["bytes"].iloc[-1] > 0
    pd.testing.assert_frame_equal(run(tmp_path / "run", "resume=true").curve, whole.curve, check_exact=True)


def test_a_loss_that_is_not_finite_ends_the_run_as_diverged(tmp_path: Path) -> None:
    ended = run(tmp_path / "run", "algorithm.optimizer=sgd", "algorithm.lr=1e12", "algorithm.schedule=none")
    assert ended.summary["status"] == "diverged"
    assert "not finite" in ended.summary["reason"]
    assert ended.summary["rounds"] < 12
    text = (ended.folder / "summary.json").read_text()
    assert "NaN" not in text and "Infinity" not in text
    json.loads(text)


@pytest.mark.slow
def test_round_timing_is_the_ledgers_sums(tmp_path: Path) -> None:
    """An exchange costs 2 L + its bytes / B. With K = 2 there are three a round; the batch rides with the scatter
    before it, but for the first one, a scatter alone, which takes one L."""
    ended = run(tmp_path / "run", "network.timing=round")
    ledger, network = ended.ledger, ended.manifest["config"]["network"]["client_server"]
    transfer = ledger["bytes"].sum() * 8 / (network["bandwidth_gbps"] * 1e9)
    latencies = (12 * 3 * 2 + 1) * network["latency_ms"] / 1e3
    assert ended.summary["communication_seconds"] == pytest.approx(transfer + latencies, rel=1e-12)


@pytest.mark.slow
def test_a_trace_replays_to_the_same_times_and_under_another_network_to_a_fresh_runs(
    tmp_path: Path, undisturbed: Callable[..., Run]
) -> None:
    us_uk, us_us = undisturbed(), run(tmp_path / "us", "network=us_us")
    names = ["server", "client_0", "client_1", "client_2"]
    ledger, trace = us_uk.ledger, us_uk.trace
    tags = sorted(set(ledger["tag"]))
    code = {"src": names, "dst": names, "tag": tags, "kind": list(LINK_KINDS)}
    frame = ledger.rename(columns={"link": "kind"})
    columns = [[code[f].index(v) for v in frame[f]] if f in code else frame[f].astype(float) for f in LEDGER_FIELDS]
    rows = np.stack([np.asarray(column, dtype=float) for column in columns], axis=1)
    traces = {}
    for name in names:
        own = trace[trace["party"] == name]
        kinds = [TRACE_KINDS.index(kind) for kind in own["kind"]]
        peers = [names.index(peer) if isinstance(peer, str) else -1 for peer in own["peer"]]
        traces[name] = np.stack([kinds, peers, own["seq"], own["value"], np.zeros(len(own))], axis=1).astype(float)
    roles = {name: "server" if name == "server" else "client" for name in names}
    for finished, latency, bandwidth in ((us_uk, 136.0, 0.42), (us_us, 67.0, 1.15)):
        link = LinkConfig(latency, bandwidth)
        ends = replay.Program(rows, traces, roles).retime(NetworkConfig("x", link, link)).ends
        assert [ends[r] for r in finished.curve["round"]] == list(finished.curve["virtual_seconds"])


@pytest.mark.slow
def test_privacy_noises_what_is_sent_and_says_what_it_covers(tmp_path: Path, undisturbed: Callable[..., Run]) -> None:
    private = run(tmp_path / "run", "privacy=gaussian_embedding", "privacy.noise_multiplier=4")
    privacy = private.summary["privacy"]
    assert privacy["mechanism"] == "gaussian_embedding"
    assert privacy["covers"] == "transcript"
    assert privacy["epsilon"] > 0
    assert private.curve["epsilon"].is_monotonic_increasing
    assert private.curve["epsilon"].iloc[-1] == privacy["epsilon"]
    assert private.summary["bytes"]["total"] == undisturbed().summary["bytes"]["total"]
    bounded = run(tmp_path / "bounded", "privacy=gaussian_embedding", "privacy.epsilon=8")
    assert 0 < bounded.summary["privacy"]["epsilon"] <= 8


@pytest.mark.slow
def test_another_partys_features_are_out_of_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An algorithm that reaches for its neighbour's data fails, naming both."""
    from vflbench.algorithms.graph import standalone_gnn

    honest, seen = standalone_gnn.parties, []

    def parties(task, config):  # type: ignore[no-untyped-def]
        specs = honest(task, config)

        async def thief(me, data: GraphPart, public, config):  # type: ignore[no-untyped-def]
            seen.append(data)
            async for _ in me.rounds():
                _ = seen[0].features

        return {name: PartySpec(thief, spec.data, spec.role) for name, spec in specs.items()}

    monkeypatch.setattr(standalone_gnn, "parties", parties)
    with pytest.raises(FederationError, match=r"client_1 touched `features` of client_0's data"):
        vflbench.run(["algorithm=standalone_gnn", *SMALL, f"hydra.run.dir={tmp_path / 'run'}"])


@pytest.mark.slow
def test_a_run_is_not_continued_on_other_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vflbench.data.graph import digits_graph

    on_round = Observer.on_round

    def breaks(self: Observer, round: int, engine: SimulatedEngine) -> bool:
        if round == 7:
            raise FederationError("stopped")
        return on_round(self, round, engine)

    monkeypatch.setattr(Observer, "on_round", breaks)
    with pytest.raises(FederationError, match="stopped"):
        run(tmp_path / "run")
    monkeypatch.undo()
    load = digits_graph.load
    monkeypatch.setattr(digits_graph, "load", lambda *a: replace(load(*a), source=DataSource("synthetic")))
    with pytest.raises(VflbenchError, match="begun on real data; now there is synthetic data"):
        run(tmp_path / "run", "resume=true")
    monkeypatch.undo()
    assert run(tmp_path / "run", "resume=true").summary["data_source"] == "real"


@pytest.mark.slow
def test_a_file_too_large_for_the_disk_is_one_message(tmp_path: Path) -> None:
    """A real limit on the size of files: what torch, pyarrow and json write fails as on a full disk."""
    command = [
        sys.executable,
        "-c",
        "from vflbench.cli import main; main()",
        "algorithm=glasu",
        *SMALL,
        f"hydra.run.dir={tmp_path / 'run'}",
    ]
    limit = "ulimit -f 100; trap '' XFSZ; exec \"$@\""
    ended = subprocess.run(["bash", "-c", limit, "bash", *command], capture_output=True, text=True, cwd=tmp_path)
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr and "error:" in ended.stderr
    assert not list((tmp_path / "run").rglob("*.tmp*"))


def test_a_disk_that_fills_up_ends_in_one_message_and_leaves_other_runs_alone(
    tmp_path: Path, undisturbed: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = undisturbed()
    kept = {
        path: path.read_bytes() for path in before.folder.rglob("*") if path.is_file() and path.name != inventory.NAME
    }
    from vflbench.runner import checkpoint

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", str(tmp_path / "run"))

    monkeypatch.setattr(checkpoint, "write_parquet", full)
    with pytest.raises(VflbenchError, match="No space left"):
        run(tmp_path / "run")
    assert not list((tmp_path / "run").rglob("*.tmp*"))
    assert kept == {
        path: path.read_bytes() for path in before.folder.rglob("*") if path.is_file() and path.name != inventory.NAME
    }


@pytest.mark.slow
@pytest.mark.parametrize("part", ["ledger", "trace"])
def test_a_checkpoint_that_cannot_be_written_loses_no_rows(
    tmp_path: Path, undisturbed: Callable[..., Run], monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    from vflbench.runner import checkpoint

    whole, write = undisturbed("engine.compute_clock=modelled"), checkpoint.write_parquet

    def full(path: Path, *more: Any) -> None:  # of the two parts the ledger's comes first
        if path.name == f"{part}_00000008_0.parquet":
            raise OSError(28, "No space left on device", str(path))
        write(path, *more)

    monkeypatch.setattr(checkpoint, "write_parquet", full)
    with pytest.raises(VflbenchError, match="No space left"):
        run(tmp_path / "run", "engine.compute_clock=modelled")
    failed = reader.load(tmp_path / "run")
    assert (failed.summary["status"], failed.summary["rounds"]) == ("failed", 8)
    assert failed.summary["bytes"]["total"] == failed.ledger["bytes"].sum()
    kept = whole.ledger[whole.ledger["round"] <= 8].reset_index(drop=True)
    pd.testing.assert_frame_equal(failed.ledger, kept, check_exact=True)
    pd.testing.assert_frame_equal(failed.curve, whole.curve[whole.curve["round"] <= 8], check_exact=True)


@pytest.mark.parametrize(
    "where", few_fast(["vflbench.data.graph.digits_graph.load", "vflbench.privacy.mechanisms.make"])
)
def test_ctrl_c_before_the_run_has_begun_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(where, stop)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", "privacy=gaussian_embedding", "privacy.epsilon=8")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_run_that_cannot_start_leaves_the_one_it_was_to_replace(tmp_path: Path) -> None:
    before = run(tmp_path / "run")
    kept = {
        path: path.read_bytes() for path in before.folder.rglob("*") if path.is_file() and path.name != inventory.NAME
    }
    with pytest.raises(VflbenchError, match="nowhere"):
        run(tmp_path / "run", "overwrite=true", "dataset=cora", "data_root=/nowhere/at/all")
    assert kept == {
        path: path.read_bytes() for path in before.folder.rglob("*") if path.is_file() and path.name != inventory.NAME
    }
    replaced = run(tmp_path / "run", "overwrite=true", "rounds=4")
    assert replaced.summary["rounds"] == 4


DIGITS = ["dataset=digits", "model.widths=[4]", "epochs=1", "engine.threads=1", "plot=none"]


@pytest.mark.slow
def test_an_epsilon_that_no_noise_reaches_leaves_the_run_it_was_to_replace(tmp_path: Path) -> None:
    """Found by calibrating, which comes before the first file is touched."""
    folder = f"hydra.run.dir={tmp_path / 'run'}"
    vflbench.run(["algorithm=leasgd", *DIGITS, folder])
    kept = {
        path: path.read_bytes()
        for path in (tmp_path / "run").rglob("*")
        if path.is_file() and path.name != inventory.NAME
    }
    part = r"is a part of privacy\.epsilon=1, and models need some of it"
    for key, why, private in (
        (
            r"algorithm\.ranking_epsilon=0\.0025",
            "no noise reaches",
            ["privacy.epsilon=0.005", "privacy.accountant=prv"],
        ),
        (r"algorithm\.ranking_epsilon=0\.02", "no noise reaches", ["algorithm.ranking_epsilon=0.02"]),
        (r"algorithm\.ranking_epsilon=1\.0", part, ["privacy.epsilon=1", "algorithm.ranking_epsilon=1"]),
    ):
        with pytest.raises(VflbenchError, match=f"{key}: {why}"):
            vflbench.run(["algorithm=leasgd", *DIGITS, "privacy=dp_sgd", *private, "overwrite=true", folder])
        assert kept == {
            path: path.read_bytes()
            for path in (tmp_path / "run").rglob("*")
            if path.is_file() and path.name != inventory.NAME
        }


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ["algorithm=local_sgd"],
        ["algorithm=leasgd", "algorithm.ranking=noisy"],
    ]
    + [[f"algorithm={name}"] for name in ("leasgd_async", "d_psgd", "easgd", "allreduce_sgd", "centralized_sgd")],
    ids=lambda options: options[0].partition("=")[2],
)
def test_all_noise_is_calibrated_before_a_file_is_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    """What is asked for later has been asked for before; uneven shards have a noise each. Ctrl-C while it is computed
    leaves nothing."""
    from vflbench.privacy import accountant

    calibrate, asked, seen = accountant.calibrate_steps.__wrapped__, {}, []

    def counted(*args: Any) -> float:
        if not (tmp_path / "run" / "manifest.json").exists():
            asked[args] = calibrate(*args)
        seen.append(args)
        return float(asked[args])  # a KeyError: of a run that has begun

    monkeypatch.setattr(accountant, "calibrate_steps", counted)
    arguments = [*options, *DIGITS, "privacy=dp_sgd", "dataset.sharding=dirichlet", f"hydra.run.dir={tmp_path / 'run'}"]
    arguments += [] if "centralized" in options[0] else ["algorithm.workers=3"]
    ended = vflbench.run(arguments)
    assert ended.summary["status"] == "completed" and len(seen) > len(asked) == (
        1 if "centralized" in options[0] else len(options) * 3
    )

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(accountant, "calibrate_steps", stop)
    with pytest.raises(KeyboardInterrupt):
        vflbench.run([*arguments, f"hydra.run.dir={tmp_path / 'other'}"])
    assert not (tmp_path / "other").exists()


@pytest.mark.slow
def test_a_private_runs_epsilons_are_those_of_its_steps_and_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dirichlet shards: each worker's from its own rate b / n_i, the largest in the curve."""
    from vflbench.privacy import accountant
    from vflbench.runner import outcome as runner

    tasks = []
    load = runner.Federation._load
    monkeypatch.setattr(runner.Federation, "_load", lambda self: (tasks.append(load(self)), tasks[-1])[1])
    private = ["privacy=dp_sgd", "privacy.noise_multiplier=1.5", "privacy.delta=1e-5", "dataset.sharding=dirichlet"]
    ended = vflbench.run(["algorithm=d_psgd", *DIGITS, *private, "epochs=2", f"hydra.run.dir={tmp_path / 'run'}"])
    rows = [len(shard.labels) for shard in tasks[0][0].shards]
    steps = ended.curve["iterations"].tolist()
    assert len(set(rows)) > 1
    expected = [[accountant.spent_epsilon([(1.5, min(32, n) / n, count)], 1e-5) for n in rows] for count in steps]
    assert ended.curve["epsilon"].tolist() == pytest.approx([max(row) for row in expected])
    privacy = ended.summary["privacy"]
    assert privacy["steps"] == steps[-1] and privacy["sample_rate"] == 32 / min(rows)
    assert list(privacy["epsilon_by_party"].values()) == pytest.approx(expected[-1])


@pytest.mark.slow
def test_a_link_of_its_own_must_join_two_parties(tmp_path: Path, undisturbed: Callable[..., Run]) -> None:
    options = tmp_path / "options" / "network"
    options.mkdir(parents=True)
    text = (
        "name: us_uk\nclient_server: {latency_ms: 136.0, bandwidth_gbps: 0.42}\nlinks: {'%s': {latency_ms: 300.0, "
        "bandwidth_gbps: 0.42}}\n"
    )
    (options / "slow.yaml").write_text(text % "client_0->server")
    (options / "typo.yaml").write_text(text % "client_0->srver")
    arguments = ["algorithm=glasu", *SMALL]
    slow = vflbench.run(
        [*arguments, "network=slow", f"hydra.run.dir={tmp_path / 'slow'}"], config_dir=str(tmp_path / "options")
    )
    assert slow.summary["communication_seconds"] > undisturbed().summary["communication_seconds"]
    with pytest.raises(VflbenchError, match=r"client_0->server"):
        vflbench.run(
            [*arguments, "network=typo", f"hydra.run.dir={tmp_path / 'typo'}"], config_dir=str(tmp_path / "options")
        )


@pytest.mark.parametrize(
    ("algorithm", "dataset"),
    [("rfl_admm", "star_schema"), ("glasu", "digits_graph")],
)
def test_model_holds_the_parties_parameters_and_nothing_else(tmp_path: Path, algorithm: str, dataset: str) -> None:
    """ADMM's server keeps z, lambda and predictions in its state, for checkpoints; they are no parameters."""
    from safetensors.numpy import load_file

    from vflbench.runner import outcome as runner

    engines = []
    save = runner._save_models
    small = ["dataset.rows=60", "dataset.dimension_rows=20"] if dataset == "star_schema" else ["model.hidden=8"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "_save_models", lambda engine, folder: (engines.append(engine), save(engine, folder)))
        folder = vflbench.run(
            [f"algorithm={algorithm}", f"dataset={dataset}", *small, "rounds=1", f"hydra.run.dir={tmp_path / 'run'}"]
        ).folder
    saved = {path.stem: load_file(path) for path in (folder / "model").iterdir()}
    states = {name: party.state for name, party in engines[0].parties.items()}
    learning = {name: state.model.state_dict() for name, state in states.items() if hasattr(state, "model")}
    assert set(saved) == set(learning) != set()
    for name, tensors in learning.items():
        assert set(saved[name]) == {f"model.{key}" for key in tensors}
        for key, tensor in tensors.items():
            np.testing.assert_array_equal(saved[name][f"model.{key}"], tensor.numpy())
