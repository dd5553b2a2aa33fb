"""Reading run folders: what is right is read, what is not is named."""

import json
import re

import numpy as np
import pytest

from tests.every import few_fast
from vflbench.results import folder, inventory, parquet, reader
from vflbench.types import VflbenchError


def test_reads_a_run(make_run):
    run = make_run("a")
    assert run.status == "completed"
    assert run.summary["metric"]["final"] == 30 / 90
    assert run.curve["round"].tolist() == [10, 20, 30]
    assert run.manifest["config"]["algorithm"]["name"] == "glasu"


def test_find(make_run, tmp_path):
    for name in ("10", "2", "deep/1"):
        make_run(name, seed=int(name[-1]))
    (tmp_path / "2" / "summary.json").unlink()
    runs = reader.find(tmp_path)
    assert [run.folder.name for run in runs] == ["2", "10", "1"]
    assert [run.status for run in runs] == [None, "completed", "completed"]
    with pytest.raises(VflbenchError, match="is no folder"):
        reader.find(tmp_path / "none")
    with pytest.raises(VflbenchError, match="is no run folder"):
        reader.load(tmp_path)


@pytest.mark.parametrize("name", ["summary.json", "manifest.json", "curve.csv", "ledger.parquet", "trace.parquet"])
def test_missing_file_is_named(make_run, name):
    run = make_run("a")
    (run.folder / name).unlink(missing_ok=True)
    with pytest.raises(VflbenchError, match=rf"a/{name} is missing"):
        getattr(run, name.split(".")[0])


@pytest.mark.parametrize("cut", [3, 30, 200])
def test_truncated_json_is_named(make_run, cut):
    run = make_run("a")
    path = run.folder / "summary.json"
    path.write_text(path.read_text()[:cut])
    with pytest.raises(VflbenchError, match=r"summary.json is truncated or malformed at line"):
        _ = run.summary


@pytest.mark.parametrize("cut", [0, 20, 150, -1, -8, -25])
def test_truncated_curve_is_named(make_run, cut):
    run = make_run("a")
    path = run.folder / "curve.csv"
    path.write_text(path.read_text()[:cut])
    with pytest.raises(VflbenchError, match=r"curve.csv line \d+: "):
        _ = run.curve


def test_malformed_files_are_named(make_run):
    run = make_run("a")
    path = run.folder / "curve.csv"
    path.write_text(path.read_text().replace("20000", "many"))
    with pytest.raises(VflbenchError, match=r"curve.csv line 3: .*many"):
        _ = run.curve
    (run.folder / "manifest.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(VflbenchError, match=r"manifest.json cannot be read"):
        _ = run.manifest
    (run.folder / "summary.json").write_text("[1]")
    with pytest.raises(VflbenchError, match=r"summary.json is malformed"):
        _ = run.summary


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("attack", {"success": "much", "floor": 0.1}, "attack.success: 'much' has the wrong type"),
        ("attack", {"success": 0.9, "floor": 0.1, "interval": 3}, "attack.interval: 3 has the wrong type"),
        ("privacy", {"epsilon": -1.0}, "privacy.epsilon: -1.0 is below 0"),
    ],
)
def test_a_malformed_attack_or_budget_is_named(make_run, key, value, said):
    run = make_run("a")
    path = run.folder / "summary.json"
    summary = json.loads(path.read_text())
    path.write_text(json.dumps(summary | {key: summary.get(key, {}) | value}))
    with pytest.raises(VflbenchError, match=re.escape(said)):
        _ = run.summary


DEEP, DIGITS = "[" * 100_000, "1" * 5000


@pytest.mark.parametrize(
    ("name", "text"),
    few_fast(
        [
            ("summary.json", DEEP),
            ("manifest.json", DEEP),
            ("summary.json", '{"schema": 1, "seed": ' + DIGITS + "}"),
            (".hydra/overrides.yaml", "- 2001-13-45"),
            (".hydra/overrides.yaml", DEEP[:20_000]),
            ("curve.csv", "x" * 200_000),
            ("files.jsonl", '{"vflbench": "the files it wrote here"}\n{"writing": "model\\u0000/x"}\n'),
            ("files.jsonl", '{"vflbench": "the files it wrote here"}\n{"writing": "%s"}\n' % ("x" * 5000)),
            ("files.jsonl", '{"vflbench": "the files it wrote here"}\n' + DEEP + "\n"),
        ],
        3,
    ),
)
def test_hostile_values_are_named(make_run, name, text):
    run = make_run("a")
    (run.folder / name).parent.mkdir(exist_ok=True)
    (run.folder / name).write_text(text)
    with pytest.raises(VflbenchError):
        damaged = reader.load(run.folder)
        damaged.check_curve()
        assert damaged.manifest and damaged.overrides
    if name == "files.jsonl":
        inventory.tidy(run.folder)
        inventory.clear(run.folder)


@pytest.mark.parametrize(("key", "value"), [("rounds", 10**30), ("seed", 10**30), ("messages", -(10**30))])
def test_numbers_beyond_measure_are_named(make_run, key, value):
    run = make_run("a")
    path = run.folder / "summary.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(VflbenchError):
        reader.load(run.folder).check_curve()


def test_damaged_parquet_is_named(make_run):
    run = make_run("a")
    path = run.folder / "ledger.parquet"
    parquet.write_parquet(path, {"bytes": np.arange(1000)})
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(VflbenchError, match=r"ledger.parquet is truncated"):
        _ = run.ledger


def test_other_schema_is_refused(make_run, monkeypatch):
    run = make_run("a")
    path = run.folder / "summary.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 2}))
    with pytest.raises(VflbenchError, match=r"summary.json has schema version 2; this vflbench reads version 1"):
        _ = run.summary
    with monkeypatch.context() as other:
        other.setattr(parquet, "SCHEMA", 7)
        parquet.write_parquet(run.folder / "ledger.parquet", {"bytes": np.arange(3)})
    with pytest.raises(VflbenchError, match=r"ledger.parquet has schema version 7"):
        _ = run.ledger


def test_empty_curve_is_a_curve(tmp_path):
    folder.write_curve(tmp_path / "curve.csv", [], "accuracy")
    assert reader.Run(tmp_path).curve.shape == (0, 15)


def write_marks(run, rounds):
    """A trace in which one party ends each of `rounds`."""
    (run.folder / "trace.parquet").unlink(missing_ok=True)
    marks = [(parquet.EVENT_KINDS.index("mark"), -1, -1, round) for round in rounds]
    parquet.trace_parquet(run.folder / "trace.parquet", {"server": np.array(marks, dtype=float).reshape(-1, 4)})


def test_a_run_whose_trace_lacks_rounds_is_refused(make_run):
    run = make_run("a")  # 30 rounds
    write_marks(run, range(1, 31))
    run.check_curve()
    write_marks(run, range(11, 31))  # as of a run that was continued without what came before
    with pytest.raises(
        VflbenchError, match=r"a/trace.parquet is not of the whole run: it lacks 10 rounds, the first of them 1$"
    ):
        run.check_curve()
    (run.folder / "trace.parquet").write_text("cut")
    run.check_curve()  # it cannot be read: whoever needs it says so


@pytest.mark.parametrize(
    ("last_round", "nbytes", "messages", "told"),
    [
        (30, 30000, 9, ""),
        (30, 29999, 9, ""),  # fractions of bytes, rounded tag by tag
        (30, 29998, 9, "29998 bytes; summary.json has 30000"),
        (30, 30002, 9, "30002 bytes"),
        (30, 30000, 8, "8 messages; summary.json has 9"),
        (29, 20000, 8, ""),  # it went on after its last evaluation
        (29, 30000, 10, "10 messages"),
    ],
)
def test_a_curve_that_does_not_end_with_the_summarys_sums_is_refused(make_run, last_round, nbytes, messages, told):
    run = make_run("a")
    run.curve.loc[2, ["round", "bytes", "messages"]] = last_round, nbytes, messages
    run.summary["metric"]["selected_round"] = None
    if not told:
        run.check_curve()
        return
    with pytest.raises(VflbenchError, match=f"a/curve.csv is another run's: it ends with {told}"):
        run.check_curve()
