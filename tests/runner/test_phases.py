"""What each phase of a run's life costs, worked by hand for a method of each family, and what everything adds."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import vflbench
from tests.every import few_fast, for_each
from vflbench import registry
from vflbench.data.matching import psi_bytes
from vflbench.results import reader
from vflbench.results.pricing import Charged
from vflbench.results.reader import Run
from vflbench.runner.evaluate import Observer
from vflbench.runner.reprice import Profile, reprice
from vflbench.types import VflbenchError

Trains = Callable[..., Run]
LATENCY, BANDWIDTH = 0.136, 0.42e9 / 8  # us_uk: seconds, bytes a second


@pytest.fixture
def train(tmp_path: Path) -> Trains:
    def make(*words: str) -> Run:
        folder = tmp_path / f"run_{len(list(tmp_path.iterdir()))}"
        return vflbench.run([*words, "engine.threads=1", "plot=none", f"hydra.run.dir={folder}"])

    return make


def phase(run: Run, name: str) -> tuple[int, int, float]:
    found = run.summary["phases"][name]
    return found["bytes"], found["messages"], found["seconds"]


DIGITS = ["dataset=digits", "dataset.problem=learning", "rounds=1"]  # 1,797 rows: 1,078 to train, 180 and 539 held out
HELD_OUT = 180 + 539
EVERYTHING, DEAR = Profile({"accounting": "everything"}, None), Profile({"network.ratio": 2.0}, None)


def test_split_learning(train: Trains) -> None:
    run = train("algorithm=vfl", *DIGITS, "algorithm.parties=2", "model.embedding=8", "model.depth=3")
    assert phase(run, "align") == phase(run, "setup") == (0, 0, 0.0)
    assert phase(run, "train")[:2] == (run.summary["bytes"]["total"], run.summary["messages"])
    nbytes, messages, seconds = phase(run, "predict")
    assert run.summary["phases"]["predict"]["rows"] == HELD_OUT
    assert (nbytes, messages) == (1000 * 8 * 4, 1)  # one embedding of 8 float32
    assert seconds == pytest.approx(LATENCY + 32_000 / BANDWIDTH)
    assert run.summary["predictions"] == 539 and run.summary["assumes"] == ["aligned_rows"]
    served = run.messages[run.messages["phase"] == "predict"]
    assert served[["src", "dst", "tag", "bytes"]].values.tolist() == [["passive_1", "active", "embedding", 23_008]]


@pytest.mark.slow
def test_predictions_pass_the_codec(train: Trains) -> None:
    words = ["algorithm=vfl", *DIGITS, "algorithm.parties=2", "model.embedding=8", "model.depth=3"]
    assert phase(train(*words, "codec=fp16"), "predict")[0] == 1000 * 8 * 2


@pytest.mark.slow
def test_what_is_sent_once_serves_later_rounds(train: Trains) -> None:
    run = train("algorithm=send_once", *DIGITS, "rounds=3", "algorithm.form=raw", "algorithm.learner=linear")
    columns = run.summary["bytes"]["total"] // (4 * 1078)  # float32
    size = HELD_OUT * 4 * columns + 16  # two splits in one message
    served = run.messages[run.messages["phase"] == "predict"]
    assert served[["src", "dst", "bytes"]].values.tolist() == [["passive_1", "active", size]]
    assert phase(run, "predict")[:2] == (pytest.approx(size * 1000 / HELD_OUT, abs=1), 1)


@pytest.mark.slow
@pytest.mark.parametrize("every", [1, 2])  # round 1, in which held-out rows are sent too, is scored or is not
def test_predictions_of_what_is_sent_once(train: Trains, every: int) -> None:
    once = ["algorithm=send_once", "algorithm.form=raw", *DIGITS[:2], "rounds=2", f"eval_every={every}"]
    run = train(*once, "algorithm.parties=2", "floor=none")
    nbytes, messages, seconds = phase(run, "predict")
    assert messages == 1 and nbytes == pytest.approx(1000 * 32 * 4, rel=1e-3)  # half of 64 columns, float32
    assert seconds == pytest.approx(LATENCY + nbytes / BANDWIDTH)


@pytest.mark.slow
def test_joins(train: Trains) -> None:
    run = train("algorithm=vfl_sgd", *DIGITS, "algorithm.parties=2")
    assert phase(run, "setup")[:2] == (1078 * 8, 1)  # labels, int64
    assert phase(run, "setup")[2] == pytest.approx(LATENCY + 1078 * 8 / BANDWIDTH)
    # each party sends 10 float32 for a row, side by side
    assert phase(run, "predict")[:2] == (2 * 1000 * 10 * 4, 2)
    assert phase(run, "predict")[2] == pytest.approx(LATENCY + 40_000 / BANDWIDTH)
    seconds = [run.summary["phases"][name]["seconds"] for name in ("setup", "train")]
    assert sum(seconds) == pytest.approx(run.summary["communication_seconds"])
    total = run.summary["phases"]["setup"]["bytes"] + run.summary["phases"]["train"]["bytes"]
    assert total == run.summary["bytes"]["total"]
    assert run.summary["assumes"] == ["join"]


def test_a_header_is_charged_for_each_message_in_every_phase(train: Trains) -> None:
    words = ["algorithm=vfl_sgd", *DIGITS, "algorithm.parties=2"]
    sent, framed = train(*words), train(*words, "accounting=framed", "network.header_bytes=100")
    for name in ("setup", "train", "predict"):
        (nbytes, messages, seconds), found = phase(sent, name), phase(framed, name)
        assert found == (nbytes + 100 * messages, messages, seconds)  # times have no headers
    assert framed.summary["bytes"]["total"] == sent.summary["bytes"]["total"] + 100 * sent.summary["messages"]
    headed = Profile({"accounting": "framed", "network.header_bytes": 100}, None)
    (again,) = reprice([str(sent.folder)], [headed], sent.folder / "framed", command="", refused=[].append)
    assert reader.load(again.folder).summary["bytes"] == framed.summary["bytes"]


@pytest.mark.slow
def test_graphs(train: Trains) -> None:
    run = train("algorithm=glasu", "dataset=digits_graph", "rounds=1", "model.hidden=24", "algorithm.parties=3")
    kept = run.manifest["config"]["algorithm"]["aggregations"]
    nodes, rows = 1797, run.summary["phases"]["predict"]["rows"]
    # every node's 24 float32 to the server and back, for 3 clients, K times
    assert phase(run, "predict")[:2] == (round(kept * 3 * 2 * nodes * 24 * 4 * 1000 / rows), kept * 3 * 2)
    assert run.summary["assumes"] == ["aligned_rows", "labels"]


RIDGE = ["dataset=ridge", "dataset.samples=40", "dataset.features=24", "algorithm.parties=4", "rounds=2"]


def test_tokens(train: Trains) -> None:
    alone = train("algorithm=stcd", *RIDGE, "topology=path")
    # a share of 8 bytes a row is added up from one end of the path to the first client
    assert phase(alone, "predict")[:2] == (3 * 8 * 1000, 3)
    assert phase(alone, "predict")[2] == pytest.approx(3 * (LATENCY + 8000 / BANDWIDTH))
    served = alone.messages[alone.messages["phase"] == "predict"]
    assert sorted(zip(served["src"], served["dst"], served["bytes"], strict=True)) == [
        ("client_1", "client_0", 320), ("client_2", "client_1", 320), ("client_3", "client_2", 320)
    ]  # fmt: skip
    assert alone.summary["predictions"] == 0  # a convex problem has no test rows
    server = train("algorithm=svfl", *RIDGE)
    assert phase(server, "predict")[:2] == (4 * 8 * 1000, 4)
    assert phase(server, "predict")[2] == pytest.approx(LATENCY + 8000 / BANDWIDTH)
    smoothness = server.ledger[server.ledger["tag"] == "smoothness"]
    assert len(smoothness) and set(smoothness["phase"]) == {"setup"}
    assert phase(server, "setup")[:2] == (smoothness["bytes"].sum(), len(smoothness))


@pytest.mark.slow
def test_gossip(train: Trains) -> None:
    run = train("algorithm=d_psgd", *DIGITS, "algorithm.workers=3", "model.widths=[16]")
    assert phase(run, "predict") == (0, 0, 0.0)  # every worker has a whole model
    assert run.summary["assumes"] == ["seed"]


# --- accounting=everything --------------------------------------------------------------------------------------------


def test_everything_charges_what_is_assumed(train: Trains) -> None:
    """Matched rows, labels, seed: on top of all points of the curve, and nothing else changes."""
    strict, everything = (train("algorithm=mtcd", *RIDGE, f"accounting={rule}") for rule in ("strict", "everything"))
    psi = 3 * (sum(psi_bytes(40, 40)) + 40 * 32)
    handed = 3 * (40 * 8 + 8)
    assert psi == 3 * ((40 * 35 + 3) + (40 * 35 + 2) + 40 * 35 + 1280)
    assert everything.summary["bytes"]["total"] - strict.summary["bytes"]["total"] == psi + handed
    assert set(everything.curve["bytes"] - strict.curve["bytes"]) == {psi + handed}
    assert everything.summary["bytes"]["by_tag"]["labels"] == 3 * 320
    assert phase(everything, "align")[:2] == (psi, 12)
    assert phase(everything, "setup")[0] - phase(strict, "setup")[0] == handed
    # three messages of the intersection and the order of the rows, one after the other
    setup, request, response = psi_bytes(40, 40)
    long = 4 * LATENCY + (setup + request + response + 1280) / BANDWIDTH
    assert phase(everything, "align")[2] == pytest.approx(long)
    assert phase(everything, "train")[:2] == phase(strict, "train")[:2]
    for column in ("round", "train_loss", "train_suboptimality"):
        assert everything.curve[column].tolist() == strict.curve[column].tolist()
    assert everything.ledger.equals(strict.ledger) and phase(strict, "align") == (0, 0, 0.0)


def priced(run: Run, out: Path) -> tuple[Run | None, list[str]]:
    refused: list[str] = []
    found = reprice([str(run.folder)], [EVERYTHING], out, command="", refused=refused.append)
    return (reader.load(found[0].folder) if found else None), refused


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [["algorithm=mtcd", *RIDGE], ["algorithm=vfl_sgd", *DIGITS], ["algorithm=vfl", *DIGITS]]
)
def test_a_run_is_priced_with_everything_as_a_fresh_one(train: Trains, tmp_path: Path, words: list[str]) -> None:
    strict, fresh = train(*words), train(*words, "accounting=everything")
    made, refused = priced(strict, tmp_path / "priced")
    assert made is not None and not refused
    assert (made.folder / "curve.csv").read_text() == (fresh.folder / "curve.csv").read_text()
    both = [{key: value for key, value in one.summary.items() if key != "wall_seconds"} for one in (made, fresh)]
    assert both[0] == both[1]


def test_methods_in_one_place_have_no_such_price(train: Trains) -> None:
    with pytest.raises(VflbenchError, match="accounting=everything"):
        train("algorithm=centralized_gd", *RIDGE, "accounting=everything")


@for_each("name", registry.algorithms())
def test_what_cannot_be_sent_is_not_charged(name: str) -> None:
    info = registry.algorithms()[name]
    assert ("everything" in info.accounting) == (not {"pooled", "edges"} & set(info.assumes))


# --- alignment --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("alignment", "tags"),
    few_fast(
        [
            ("hashed", {"hashes": 32 * 48, "kept": 8 * 40}),
            ("psi", {"psi_setup": 48 * 35 + 3, "psi_request": 50 * 35 + 2, "psi_response": 50 * 35, "kept": 32 * 40}),
        ]
    ),
)
def test_alignment_is_on_the_ledger(train: Trains, tmp_path: Path, alignment: str, tags: dict[str, int]) -> None:
    if alignment == "psi":
        pytest.importorskip("private_set_intersection")
    files = tmp_path / "files"
    files.mkdir()
    (files / "a.csv").write_text("id,x,y\n" + "".join(f"p{i},{i % 7},{'yes' if i % 3 else 'no'}\n" for i in range(50)))
    (files / "b.csv").write_text("id,z\n" + "".join(f"p{i},{i % 5}\n" for i in range(10, 58)))
    words = ["algorithm=vfl", "dataset=tabular_files", f"data_root={files}", "dataset.files=[a.csv,b.csv]", "rounds=1"]
    words += ["dataset.label=y", "dataset.id=id", f"dataset.alignment={alignment}", "algorithm.batch_size=8"]
    run = train(*words, "model.width=8", "model.depth=2")
    rows = run.messages[run.messages["phase"] == "align"]
    assert dict(zip(rows["tag"].astype(str), rows["bytes"], strict=True)) == tags
    assert phase(run, "align")[:2] == (sum(tags.values()), len(tags))
    assert phase(run, "align")[2] == pytest.approx(len(tags) * LATENCY + sum(tags.values()) / BANDWIDTH)
    assert run.summary["assumes"] == [] and set(run.ledger["phase"]) == {"train"}
    assert run.ledger["bytes"].sum() == run.summary["bytes"]["total"]  # it is no part of training
    assert Charged(predictions=0).more(run, "bytes") == sum(tags.values())
    assert Charged(frozenset({"align"}), 0).more(run, "bytes") == 0
    # what was matched is charged once, as it was
    made, refused = priced(run, tmp_path / "priced")
    assert made is not None and not refused
    assert made.summary["bytes"]["total"] - run.summary["bytes"]["total"] == sum(tags.values())


# --- what is asked of a model -----------------------------------------------------------------------------------------


def test_predictions_are_as_many_as_the_user_says(train: Trains) -> None:
    words = ["algorithm=vfl", *DIGITS, "algorithm.parties=2", "model.embedding=8", "model.depth=3"]
    own, many = train(*words), train(*words, "predictions=5000")
    assert (own.summary["predictions"], many.summary["predictions"]) == (539, 5000)
    assert own.manifest["config_hash"] == many.manifest["config_hash"]  # it is the same experiment
    assert Charged().more(own, "bytes") == 539 * 32 and Charged().more(many, "bytes") == 5000 * 32
    assert Charged(predictions=10).more(many, "bytes") == 320
    assert Charged(frozenset({"predict"})).more(many, "bytes") == 0
    assert Charged().more(own, "round") == 0


# --- older runs -------------------------------------------------------------------------------------------------------


def older(run: Run, folder: Path) -> Run:
    """The run as an older version left it: no phases anywhere."""
    folder.mkdir()
    for name in ("ledger", "trace"):
        table = pq.read_table(run.folder / f"{name}.parquet")
        own = [at for at, phase in enumerate(table["phase"].to_pylist()) if phase in ("setup", "train")]
        pq.write_table(table.take(own).drop_columns(["phase"]), folder / f"{name}.parquet")
    shutil.copy(run.folder / "curve.csv", folder / "curve.csv")
    shutil.copytree(run.folder / ".hydra", folder / ".hydra")
    gone: dict[str, Any] = {"summary": ("phases", "predictions", "assumes"), "manifest": ("assumed",)}
    for name, keys in gone.items():
        content = json.loads((run.folder / f"{name}.json").read_text())
        (folder / f"{name}.json").write_text(json.dumps({k: v for k, v in content.items() if k not in keys}))
    return reader.load(folder)


def test_an_older_run_is_read_and_priced_as_before(train: Trains, tmp_path: Path) -> None:
    run = train("algorithm=vfl_sgd", *DIGITS)
    old = older(run, tmp_path / "old")
    assert old.ledger["phase"].tolist() == run.ledger["phase"].tolist()
    assert set(old.ledger.loc[old.ledger["round"] == 0, "phase"]) == {"setup"}
    assert old.trace.equals(run.trace) and Charged().more(old, "bytes") == 0
    refused: list[str] = []
    (made,) = reprice([str(old.folder)], [DEAR], tmp_path / "r", command="", refused=refused.append)
    assert reader.load(made.folder).summary["cost"] == 2 * run.summary["cost"] and not refused
    _, refused = priced(old, tmp_path / "priced")
    assert len(refused) == 1 and "its manifest.json lacks `assumed`" in refused[0]


# --- damage and stops -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "said"),
    few_fast(
        [
            ({"phases": {"align": 3}}, "phases.align: 3 is no object"),
            ({"phases": {}}, "phases.align: None is no object"),
            ({"assumes": "labels"}, "assumes: 'labels' has the wrong type"),
        ]
    ),
)
def test_a_malformed_summary_is_named(train: Trains, wrong: dict[str, Any], said: str) -> None:
    run = train("algorithm=local_sgd", *DIGITS, "algorithm.workers=2", "model.widths=[16]")
    path = run.folder / "summary.json"
    (run.folder / "files.jsonl").unlink()
    path.write_text(json.dumps(json.loads(path.read_text()) | wrong))
    with pytest.raises(VflbenchError, match=said):
        reader.load(run.folder).summary  # noqa: B018


@pytest.mark.slow
def test_malformed_assumptions_are_named(train: Trains, tmp_path: Path) -> None:
    run = train("algorithm=vfl", *DIGITS)
    path = run.folder / "manifest.json"
    (run.folder / "files.jsonl").unlink()
    for wrong in (
        [["align"]],
        [["align", ["nobody", "active", "x", 3]]],
        [["align", ["passive_1", "active", "x", "y"]]],
    ):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"assumed": wrong}))
        made, refused = priced(reader.load(run.folder), tmp_path / "priced")
        assert made is None and "manifest.json is malformed: assumed" in refused[0], wrong


# the one reports shares, the other sends embeddings
@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["vfl_sgd", "vfl"])
def test_a_run_that_goes_on_knows_what_predictions_cost(
    algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends at a budget in a round that is not scored: its last evaluation was before the checkpoint."""
    words = [f"algorithm={algorithm}", "dataset=digits", "dataset.problem=learning", "engine.threads=1", "plot=none"]
    words += ["algorithm.parties=2", "rounds=4", "eval_every=2", "checkpoint_every=2", "algorithm.batch_size=400"]
    whole = vflbench.run([*words, f"hydra.run.dir={tmp_path / 'whole'}"])
    words += [f"max_bytes={whole.curve['bytes'][0] + 1}", f"hydra.run.dir={tmp_path / 'stopped'}"]
    closes = Observer.on_round

    def stops(self: Observer, round: int, engine: Any) -> bool:
        if round == 3:
            raise KeyboardInterrupt
        return closes(self, round, engine)

    monkeypatch.setattr(Observer, "on_round", stops)
    with pytest.raises(KeyboardInterrupt):
        vflbench.run(words)
    monkeypatch.setattr(Observer, "on_round", closes)
    resumed = vflbench.run([*words, "resume=true"])
    assert (resumed.summary["status"], resumed.summary["rounds"]) == ("budget", 3)
    assert phase(resumed, "predict") == phase(whole, "predict") and phase(whole, "predict")[0] > 0
