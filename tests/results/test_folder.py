"""Writing a run folder: atomic files, the curve and the ledger exact, the summary's contract."""

import errno
import itertools
import json
import math
import os
import re
import resource
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest

from vflbench.results import folder, inventory, parquet, reader, run_schema
from vflbench.types import DataSource, Metric, VflbenchError

ACCURACY = Metric("accuracy", "max")


def rows(validation, test=(0.1, 0.2, 0.3, 0.4)):
    return [
        {"round": 10 * i, "val_accuracy": v, "test_accuracy": t}
        for i, (v, t) in enumerate(zip(validation, test, strict=False), start=1)
    ]


def summary(**changes):
    arguments = {
        **{
            "status": "completed",
            "algorithm": "glasu",
            "dataset": "cora",
            "source": DataSource("real", "public"),
            "seed": 0,
        },
        **{"metric": ACCURACY, "rows": rows([0.5, 0.7, 0.7, 0.6]), "rounds": 40, "epochs": None},
        **{
            "bytes_by_tag": {"embedding": 70, "indices": 30},
            "bytes_by_link": {"client_server": 60, "client_client": 40, "local": 5},
        },
        **{
            "messages": 7,
            "vectors": 3,
            "cost": 100.0,
            "communication_seconds": 1.5,
            "compute_seconds": 0.0,
            "virtual_seconds": 1.5,
        },
        **{"wall_seconds": 0.1, "compute_clock": "none", "timing": "causal", "accounting": "strict", "device": "cpu"},
    }
    return folder.summarise(**arguments | changes)


def test_what_partial_data_lack_is_in_the_summary():
    found = summary(source=DataSource("partial", "1m", lacks="1 of 2 ratings"))
    assert (found["data_source"], found["data_lacks"]) == ("partial", "1 of 2 ratings")
    assert run_schema.validate_summary(found) == [] and "data_lacks" not in summary()


# --- files ------------------------------------------------------------------------------------------------------------


def test_atomic_write_replaces(tmp_path):
    inventory.start(tmp_path)
    folder.atomic_write(tmp_path / "a", "one é")
    folder.atomic_write(tmp_path / "a", b"two")
    assert (tmp_path / "a").read_bytes() == b"two"
    assert sorted(os.listdir(tmp_path)) == ["a", inventory.NAME]


@pytest.mark.parametrize("listed", [False, True])
def test_atomic_write_replaces_no_file_of_the_users(tmp_path, listed):
    if listed:
        inventory.start(tmp_path)
        folder.atomic_write(tmp_path / "a", "ours")
    (tmp_path / "a").write_text("theirs")
    with pytest.raises(VflbenchError, match=r"a is there, and is not what vflbench wrote: move it away"):
        folder.atomic_write(tmp_path / "a", "ours again")
    assert (tmp_path / "a").read_text() == "theirs"
    folder.atomic_write(tmp_path / "a", "as told", replace=True)
    assert (tmp_path / "a").read_text() == "as told"


@pytest.mark.parametrize("function", ["replace", "fsync"])
def test_failing_write_leaves_what_was_there(tmp_path, monkeypatch, function):
    inventory.start(tmp_path)
    folder.atomic_write(tmp_path / "a", "before")

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, function, full)
    with pytest.raises(VflbenchError, match=r"/a: No space left on device"):
        folder.atomic_write(tmp_path / "a", "after")
    assert (tmp_path / "a").read_text() == "before" and inventory.foreign(tmp_path) == []
    assert sorted(os.listdir(tmp_path)) == ["a", inventory.NAME]


@pytest.fixture
def small_disk():
    """The kernel really refuses to let a file grow past 4 kB, halfway through the write."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_write_that_the_system_cuts_short(tmp_path, small_disk):
    with pytest.raises(VflbenchError, match=r"cannot write .*big: File too large"):
        folder.atomic_write(tmp_path / "big", b"x" * 100_000)
    with pytest.raises(VflbenchError, match=r"cannot write .*p\.parquet"):
        parquet.write_parquet(tmp_path / "p.parquet", {"a": np.random.default_rng(0).random(10_000)})
    assert os.listdir(tmp_path) == []


def test_interrupt_while_writing_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt), folder.atomic(tmp_path / "a") as temporary:
        temporary.write_text("half")
        raise KeyboardInterrupt
    assert os.listdir(tmp_path) == []


def test_prepare(tmp_path):
    folder.prepare(tmp_path / "x" / "y")
    assert os.listdir(tmp_path / "x" / "y") == [inventory.NAME]
    assert (tmp_path / "x" / "y").stat().st_mode & 0o777 == 0o700
    folder.atomic_write(tmp_path / "x" / "y" / "a", "private")
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "x" / "y").iterdir()} == {0o600}
    (tmp_path / "file").touch()
    with pytest.raises(
        VflbenchError, match=r"cannot write to the run folder .*file/run: Not a directory; choose another"
    ):
        folder.prepare(tmp_path / "file" / "run")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_prepare_names_a_folder_without_permission(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(VflbenchError, match="Permission denied"):
        folder.prepare(tmp_path / "run")


# --- JSON and CSV -----------------------------------------------------------------------------------------------------


def test_json_is_plain(tmp_path):
    value = {
        "z": np.float32(0.5),
        "a": [float("nan"), math.inf, np.int64(3)],
        "m": (np.array([1.0, -np.inf]), True, None),
        "s": ACCURACY,
    }
    folder.write_json(tmp_path / "a.json", value)
    text = (tmp_path / "a.json").read_text()
    assert "NaN" not in text and "Infinity" not in text
    read = json.loads(text)
    assert read == {
        "z": 0.5,
        "a": [None, None, 3],
        "m": [[1.0, None], True, None],
        "s": {"name": "accuracy", "goal": "max"},
    }
    assert list(read) == ["z", "a", "m", "s"]
    with pytest.raises(TypeError, match="set does not go into JSON"):
        folder.plain({1})


def test_curve_round_trips_to_the_last_bit(tmp_path):
    rng = np.random.default_rng(0)
    numbers = rng.random(50) * 10.0 ** rng.integers(-300, 300, 50)
    written = [
        {
            "round": np.int64(i),
            "virtual_seconds": x,
            "train_loss": np.float32(x),
            "bytes": 2**53 + i,
            "test_accuracy": float(x),
            "epsilon": None,
        }
        for i, x in enumerate(numbers % 1e38)
    ]
    written.append({"round": 50, "train_loss": float("nan"), "virtual_seconds": 0.1, "bytes": 1, "test_accuracy": 0.5})
    folder.write_curve(tmp_path / "curve.csv", written, "accuracy")
    header = (
        "round,epoch,iterations,virtual_seconds,communication_seconds,idle_seconds,compute_seconds,bytes,messages,vectors,"
        "cost,epsilon,train_loss,val_accuracy,test_accuracy"
    )
    assert (tmp_path / "curve.csv").read_text().splitlines()[0] == header
    curve = reader.Run(tmp_path).curve
    for name in ("round", "virtual_seconds", "bytes", "test_accuracy"):
        assert curve[name].tolist() == [row[name] for row in written]
    assert curve["train_loss"][:50].tolist() == [float(row["train_loss"]) for row in written[:50]]
    assert math.isnan(curve["train_loss"][50]) and curve["epsilon"].isna().all()
    assert curve["bytes"].dtype == np.int64


def test_curve_refuses_a_column_it_would_lose(tmp_path):
    with pytest.raises(ValueError, match="test_f1"):
        folder.write_curve(tmp_path / "curve.csv", [{"round": 1, "test_f1": 0.5}], "accuracy")


# --- parquet ----------------------------------------------------------------------------------------------------------


def ledger(count):
    rng = np.random.default_rng(0)
    return {
        **{"round": np.arange(count) // 12, "src": rng.integers(0, 3, count), "dst": rng.integers(0, 3, count)},
        **{
            "link": np.zeros(count, int),
            "tag": rng.integers(0, 2, count),
            "bytes": rng.integers(0, 2**40, count),
            "vectors": np.ones(count),
        },
        **{"sent": rng.random(count), "delivered": rng.random(count) + 1, "seq": np.arange(count)},
    }


@pytest.mark.slow
def test_ledger_of_a_million_messages(tmp_path):
    arrays, parties, tags = ledger(1_000_000), ["server", "client_0", "client_1"], ["embedding", "aggregate"]
    calls = itertools.count()
    sys.setprofile(lambda *_: next(calls))
    try:
        parquet.ledger_parquet(tmp_path / "ledger.parquet", arrays.values(), parties, tags, ["client_server"])
    finally:
        sys.setprofile(None)
    assert next(calls) < 100_000  # of functions: a loop over rows would call a million times
    schema = pq.read_schema(tmp_path / "ledger.parquet")
    columns = ("round", "src", "dst", "link", "tag", "bytes", "vectors", "sent", "delivered", "seq", "phase")
    assert tuple(schema.names) == columns
    kinds = [str(kind).removesuffix(", ordered=0>").split("<")[0] for kind in schema.types]
    assert kinds == ["int32", *["dictionary"] * 4, "int64", "int32", "double", "double", "int64", "dictionary"]
    assert schema.metadata[b"vflbench_schema"] == b"1"
    read = reader.Run(tmp_path).ledger
    for name in ("round", "bytes", "vectors", "sent", "delivered", "seq"):
        np.testing.assert_array_equal(read[name], arrays[name])
    np.testing.assert_array_equal(read["src"].to_numpy(), np.array(parties)[arrays["src"]])
    np.testing.assert_array_equal(read["tag"].to_numpy(), np.array(tags)[arrays["tag"]])


def test_empty_ledger_and_wrong_columns(tmp_path):
    parquet.ledger_parquet(tmp_path / "ledger.parquet", ledger(0).values(), ["server"], [], [])
    assert len(reader.Run(tmp_path).ledger) == 0
    with pytest.raises(ValueError, match="shorter"):
        parquet.ledger_parquet(tmp_path / "ledger.parquet", [np.zeros(1)], [], [], [])


def test_trace(tmp_path):
    traces = {"server": np.array([[0, -1, 0, 0.25]]), "client_0": np.array([[1, 0, 5, 8.0], [3, -1, 1, 1.0]])}
    parquet.trace_parquet(tmp_path / "trace.parquet", traces)
    read = reader.Run(tmp_path).trace
    assert read["kind"].tolist() == ["compute", "send", "mark"]
    assert read["peer"].isna().tolist() == [True, False, True] and read["peer"][1] == "server"
    assert read["value"].tolist() == [0.25, 8.0, 1.0]


# --- summary ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("goal", "validation", "place"),
    [
        ("max", [0.5, 0.7, 0.7, 0.6], 1),  # of equals the earliest
        ("min", [0.5, 0.3, 0.4, 0.3], 1),
        ("max", [None, 0.2, float("nan"), 0.1], 1),
        ("max", [-2.0, -1.0, -3.0, -1.0], 1),
        ("max", [None] * 4, None),
    ],
)
def test_validation_selects(goal, validation, place):
    result = summary(metric=Metric("accuracy", goal), rows=rows(validation))["metric"]
    assert result["final"] == 0.4  # the best or last test value decides nothing
    if place is None:
        assert result["selected"] is result["selected_round"] is result["selected_validation"] is None
    else:
        assert (result["selected"], result["selected_round"], result["selected_validation"]) == (
            0.2,
            20,
            validation[place],
        )


def test_summary_keeps_the_contract():
    result = summary(extra={"utilisation": 0.5})
    assert run_schema.validate_summary(result) == []
    assert result["bytes"] == {
        **{"total": 100, "by_tag": {"embedding": 70, "indices": 30}},
        "by_link": {"client_server": 60, "client_client": 40, "local": 5},
    }
    assert result["privacy"]["mechanism"] == "none" and result["utilisation"] == 0.5
    assert run_schema.validate_summary(summary(rows=[], status="failed", reason="boom", rounds=0)) == []
    assert run_schema.validate_summary(summary(rows=rows([0.5], [float("nan")]), status="diverged")) == []


def test_summary_of_what_never_ran():
    names = {
        "algorithm": "glasu",
        "dataset": "cora",
        "seed": 0,
        "compute_clock": "none",
        "timing": "causal",
        "accounting": "strict",
    }
    result = folder.summarise_unrun(status="skipped", reason="no common layout", device="cpu", **names)
    assert run_schema.validate_summary(result) == []
    assert set(result) == set(summary())
    assert run_schema.validate_summary({**result, "status": "completed"}) == [
        "data_source, metric.name: null with status completed"
    ]


def test_summary_checks():
    good = summary()
    assert run_schema.validate_summary({**good, "seed": "0"}) == ["seed: '0' has the wrong type"]
    assert run_schema.validate_summary({**good, "cost": math.inf}) == ["cost: inf has the wrong type"]
    assert run_schema.validate_summary({key: value for key, value in good.items() if key != "cost"}) == [
        "cost: missing"
    ]
    assert "is none of" in run_schema.validate_summary({**good, "status": "fine"})[0]
    assert "metric.goal" in run_schema.validate_summary({**good, "metric": {**good["metric"], "goal": "up"}})[0]
    assert run_schema.validate_summary({**good, "bytes": None}) == ["bytes: None is no object"]
    assert "bytes.by_tag sums to 70" in run_schema.validate_summary(summary(bytes_by_tag={"embedding": 70}))[0]
    assert run_schema.validate_summary(summary(status="failed")) == ["reason: missing for status failed"]
    with pytest.raises(ValueError, match="overwrite"):
        summary(extra={"seed": 1})


def test_imports_are_light():
    import subprocess
    import sys

    code = "import sys, vflbench.results.folder, vflbench.results.reader, vflbench.cli; print(*sys.modules)"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    assert not loaded & {"torch", "pandas", "pyarrow", "matplotlib", "scipy", "yaml", "rich", "hydra", "omegaconf"}


# --- what a reader would refuse is not written ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("privacy", {"mechanism": "x", "epsilon": -0.5}, "privacy.epsilon: -0.5 is below 0"),
        ("seed", "7", "seed: '7' has the wrong type"),
        ("status", "fine", "status: 'fine' is none of"),
        ("messages", 2**63, "messages: is too large"),
        ("utilisation", "high", "utilisation: 'high' has the wrong type"),
    ],
)
def test_a_summary_that_no_reader_accepts_is_not_written(tmp_path, key, value, said):
    good = summary()
    if key == "privacy":
        value = {**good["privacy"], **value}
    with pytest.raises(VflbenchError, match=re.escape(said)):
        folder.write_summary(tmp_path, {**good, key: value})
    assert not list(tmp_path.iterdir())
    folder.write_summary(tmp_path, good)
    assert reader.load(tmp_path).summary["seed"] == good["seed"]


def test_a_manifest_that_no_reader_accepts_is_not_written(tmp_path):
    good = {"config": {"algorithm": {"name": "a"}, "dataset": {"name": "d"}, "network": {}}, "config_hash": "x"}
    with pytest.raises(VflbenchError, match=r"manifest.json is not written.*config_hash: 1 has the wrong type"):
        folder.write_manifest(tmp_path, {**good, "config_hash": 1})
    with pytest.raises(VflbenchError, match=r"config.network: missing"):
        folder.write_manifest(
            tmp_path, {**good, "config": {key: good["config"][key] for key in ("algorithm", "dataset")}}
        )
    assert not list(tmp_path.iterdir())
    folder.write_manifest(tmp_path, good)
    assert reader.load(tmp_path).manifest["config_hash"] == "x"


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"round": 1}, {"round": 1}], "round: 1 after 1"),
        ([{"round": 1.5}], "round: 1.5 after -1"),
        ([{"round": 1, "test_accuracy": "high"}], "test_accuracy of round 1: 'high' is no number"),
        ([{"round": 1, "epsilon": np.True_}], "epsilon of round 1: True is no number"),
    ],
)
def test_a_curve_that_no_reader_accepts_is_not_written(tmp_path, rows, said):
    with pytest.raises(VflbenchError, match=re.escape(said)):
        folder.write_curve(tmp_path / "curve.csv", rows, "accuracy")
    assert not list(tmp_path.iterdir())
