"""DataFrames as data: the same samples as from files, types that are kept, and every problem at once."""

from __future__ import annotations

import copy
import datetime
import decimal
import stat
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import vflbench
from tests.every import few_fast
from vflbench import config
from vflbench.cards.data.tabular import tabular_files as tabular_files_card
from vflbench.data.columns import extremes
from vflbench.data.tabular import tabular_files
from vflbench.types import ConfigError, DataError, VflbenchError

EXAMPLES = Path(__file__).resolve().parents[2] / "examples/data"
N = 40


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copies go to a cache folder of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def frames() -> dict[str, pd.DataFrame]:
    """Two hospitals' tables without a fault."""
    rng = np.random.default_rng(3)
    city = pd.DataFrame({"patient": [f"p{i:02d}" for i in range(N)], "age": rng.normal(60, 9, N).round(1)})
    city["smoker"], city["died"] = rng.choice(["no", "yes"], N), np.arange(N) % 2
    clinic = pd.DataFrame({"patient": city.patient[::-1], "sugar": rng.normal(6, 1, N).round(2), "stay": np.arange(N)})
    return {"clinic": clinic, "city": city}


def task_of(overrides: list[str]) -> Any:
    """What `dataset=tabular_files` loads for a run with these overrides."""
    with config.session() as hydra:
        values = config.plain(config.compose(hydra, ["algorithm=vfl", *overrides]))["dataset"]
    made, problems = config.convert(tabular_files_card.Config, values)
    assert made is not None and not problems
    return tabular_files.load(made, "aligned", len(made.files), 0, None)


def told(tables: Any, label: Any = "died", **how: Any) -> list[str]:
    with pytest.raises((ConfigError, DataError)) as caught:
        vflbench.tables(tables, label, **how)
    return str(caught.value).splitlines()


def test_frames_are_divided_as_the_arguments_say(frames: dict[str, pd.DataFrame]) -> None:
    frames["city"]["died"] = (np.arange(N) % 13 == 0).astype(int)  # 4 of 40
    data = vflbench.tables(frames, "died", id="patient")
    task = task_of(data.overrides)
    assert [int(own.sum()) for own in (task.labels, task.truth("val"), task.truth("test"))] == [2, 1, 1]
    assert "Rows of each class: 1: 2 training, 1 validation, 1 test" in data.summary[-1]
    frames["city"] = frames["city"].assign(family=np.arange(N) // 4, when=pd.Timestamp("2024-01-01"))
    frames["city"]["when"] += pd.to_timedelta(np.arange(N)[::-1], unit="D")
    grouped = vflbench.tables(frames, "age", id="patient", task="regression", split="group", entity="family")
    task = task_of(grouped.overrides)
    assert task.splits is not None and not {*(task.splits["train"] // 4)} & {*(task.splits["test"] // 4)}
    how: dict[str, Any] = {"task": "regression", "split": "time", "time": "when"}
    task = task_of(vflbench.tables(frames, "age", id="patient", leave_out=["when"], **how).overrides)
    assert task.splits is not None and task.splits["test"].tolist() == list(range(12))
    assert told(frames, "age", id="patient", split="time", task="regression") == [
        "time=null: split=time needs the column with the time of a row."
    ]
    assert "time=whenn: city has no such column" in told(frames, "age", id="patient", **{**how, "time": "whenn"})[0]


@pytest.mark.parametrize(
    ("names", "how"),
    few_fast(
        [
            (("hospital", "laboratory"), {"label": "died"}),
            (("city", "clinic"), {"label": "readmitted", "alignment": "hashed", "own_rows": "train"}),
        ]
    ),
)
def test_frames_are_the_samples_of_the_same_files(names: tuple[str, str], how: dict[str, Any]) -> None:
    files = [str(EXAMPLES / f"{name}.csv") for name in names]
    read = {name: pd.read_csv(file) for name, file in zip(names, files, strict=True)}
    before = copy.deepcopy(read)
    data = vflbench.tables(dict(reversed(read.items())), id="patient", **how)
    assert list(data.files) == list(names), "the labels' owner comes first"
    typed = [f"dataset.{key}={value}" for key, value in how.items()]
    ours = task_of(data.overrides)
    theirs = task_of(["dataset=tabular_files", f"dataset.files=[{','.join(files)}]", "dataset.id=patient", *typed])
    for own, other in zip(
        [*ours.features, ours.labels, *ours.held_out_labels.values()],
        [*theirs.features, theirs.labels, *theirs.held_out_labels.values()],
        strict=True,
    ):
        np.testing.assert_array_equal(own, other)
    assert ours.source.alignment == theirs.source.alignment
    own = {"file": "", "not_in_all_at": "", "written": None}  # row 0 is line 2
    assert [{**about, **own} for about in data.about] == [{**about, **own} for about in theirs.source.tables]
    assert data.summary[0].startswith(f"{names[0]}: ") and "one 0/1 column for each value" in data.summary[0]
    for name, frame in read.items():
        pd.testing.assert_frame_equal(frame, before[name])


@pytest.mark.slow
def test_a_run_on_frames_is_that_on_the_same_files(tmp_path: Path) -> None:
    read = {name: pd.read_csv(EXAMPLES / f"{name}.csv") for name in ("hospital", "laboratory")}
    words = ["algorithm=vfl", "rounds=2", "plot=none", "engine.threads=1", "floor=none"]
    data = vflbench.tables(read, "died", id="patient")
    ours = vflbench.run(words, data=data)
    files = f"dataset.files=[{EXAMPLES / 'hospital.csv'},{EXAMPLES / 'laboratory.csv'}]"
    theirs = vflbench.run([*words, "dataset=tabular_files", files, "dataset.id=patient", "dataset.label=died"])
    pd.testing.assert_frame_equal(ours.curve, theirs.curve)
    pd.testing.assert_frame_equal(ours.messages, theirs.messages)
    manifest = ours.manifest
    assert [name for name, _ in manifest["data"]["files"]] == ["hospital.parquet", "laboratory.parquet"]
    with pytest.raises(ConfigError) as caught:
        vflbench.run([*words, "dataset=cora", "dataset.label=age"], data=data)
    assert [str(problem) for problem in caught.value.problems] == [
        "dataset=cora: is set by data=: leave it out.",
        "dataset.label=age: is set by data=: leave it out.",
    ]
    with pytest.raises(ConfigError, match=r"data=dict: must be what vflbench.tables"):
        vflbench.run(words, data=read)  # type: ignore[arg-type]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(extremes, "LARGEST", 90)
        with pytest.raises(VflbenchError, match=r"\n  hospital, column age: .* in row 1 is too large"):
            vflbench.run([*words, "seed=3"], data=data)
    data.remove()
    with pytest.raises(ConfigError, match="there is no such file"):
        vflbench.run([*words, "seed=4"], data=data)


def test_types_are_kept(frames: dict[str, pd.DataFrame]) -> None:
    city = frames["city"]
    city["born"] = pd.Timestamp("2000-01-01") + pd.to_timedelta(np.arange(N), "D")
    city.loc[3, "born"] = pd.NaT
    city["ward"] = pd.Categorical(np.arange(N) % 3 + 10, categories=[12, 11, 10, 9])
    city["code"] = np.arange(N) % 2 + 1
    city["stage"] = pd.array([None, *range(1, N)], dtype="Int64")
    city["smoker"] = (city.smoker == "yes").astype("boolean")
    city["died"] = pd.Categorical(np.where(city.died == 1, "yes", "no"))
    before = copy.deepcopy(frames)
    data = vflbench.tables(frames, "died", id="patient", categories=["code"], leave_out="age")
    owner, other = data.about
    assert owner["encoded"] == {"ward": 3, "code": 2} and owner["imputed"] == {"born": 1, "stage": 1}
    assert pd.read_parquet(data.files["city"]).columns.tolist() == [name for name in city.columns if name != "age"]
    kept = pd.read_parquet(data.files["city"])
    pd.testing.assert_series_equal(kept.born, city.born.astype(kept.born.dtype))
    task = task_of(data.overrides)
    assert (task.classes, task.features[0].shape[1], task.features[1].shape[1]) == (2, 1 + 1 + 3 + 2 + 1, 2)
    assert other["encoded"] == {}
    for name, frame in frames.items():
        pd.testing.assert_frame_equal(frame, before[name])


def test_cells_that_arrow_has_no_type_for(frames: dict[str, pd.DataFrame]) -> None:
    odd = {
        "period": pd.period_range("2000-01", periods=N, freq="M"),
        "span": pd.cut(pd.Series(np.arange(N)), 3),
        "large": [10**30 + i for i in range(N)],
        "broken": pd.Series(["\udcff", "a"] * (N // 2), dtype=object),
        "pair": [np.ones(2)] * N,
    }
    lines = told({**frames, "city": frames["city"].assign(**odd)}, id="patient")
    assert [line.partition(";")[0] for line in lines[1:]] == [
        "  city, column period: holds period[M]",
        "  city, column span: holds categories of interval[float64, right]",
        "  city, column large: holds integers beyond 64 bits",
        "  city, column broken: holds texts with characters that Unicode does not have",
        "  city, column pair: holds ndarray",
    ]
    fine = {
        "sparse": pd.arrays.SparseArray(np.arange(N) % 3),
        "exact": [decimal.Decimal(i) / 4 for i in range(N)],
        "key": [uuid.UUID(int=i % 3) for i in range(N)],
        "${oc.env:HOME}": pd.Categorical([1, 2] * (N // 2)),
    }
    data = vflbench.tables({**frames, "city": frames["city"].assign(**fine)}, "died", id="patient")
    assert data.about[0]["encoded"] == {"smoker": 2, "key": 3, "${oc.env:HOME}": 2}
    assert task_of(data.overrides).source.tables == data.about


def test_words_and_times_beside_numbers_and_dates(frames: dict[str, pd.DataFrame]) -> None:
    """As read_excel gives them: a column of Python objects of several types."""
    odd = {
        "chol": ["?" if i % 4 == 0 else i / 7 for i in range(N)],
        "seen": ["n/a" if i % 5 == 0 else datetime.date(2020, 1 + i % 12, 3) for i in range(N)],
        "named": ["perhaps" if i % 2 else np.int64(3 * i) for i in range(N)],
        "at": [datetime.time(i % 24, 30) for i in range(N)],
        "stay": pd.to_timedelta(np.arange(N) % 7, "h"),
    }
    data = vflbench.tables(
        {**frames, "city": frames["city"].assign(**odd)}, "died", id="patient", missing_words=["perhaps"]
    )
    assert data.about[0]["imputed"] == {"chol": 10, "seen": 8, "named": 20} and data.about[0]["encoded"] == {
        "smoker": 2
    }
    assert task_of(data.overrides).features[0].shape[1] == 1 + 2 + 5
    assert any("'?' (10), first in row 0" in line for line in data.summary)
    with pytest.raises(DataError, match="column named: holds int64 and str"):
        vflbench.tables({**frames, "city": frames["city"].assign(named=odd["named"])}, "died", id="patient")


def test_one_table_and_an_index_of_ids(frames: dict[str, pd.DataFrame]) -> None:
    indexed = {name: frame.set_index("patient") for name, frame in frames.items()}
    assert vflbench.tables(indexed, "died", id="patient").about == vflbench.tables(frames, "died", id="patient").about
    alone = vflbench.tables({"city": frames["city"]}, "age", id="patient", task="regression")
    assert task_of([*alone.overrides]).metric.name == "rmse"
    assert repr(alone) == f"Tables city (40 rows); city has age\n{alone.folder}"
    assert "dataset.task='regression'" in alone.overrides


def test_copies_are_private_and_made_once_and_removed(frames: dict[str, pd.DataFrame], tmp_path: Path) -> None:
    first, again = (vflbench.tables(frames, "died", id="patient") for _ in range(2))
    assert first == again and first.folder.parent == tmp_path / "cache/vflbench/tables"
    assert repr(first) == f"Tables city (40 rows), clinic (40 rows), 40 rows in all; city has died\n{first.folder}"
    for path in (first.folder, *first.files.values()):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
    other = vflbench.tables({**frames, "city": frames["city"].assign(age=1.5)}, "died", id="patient", folder="mine")
    assert other.folder.parent == tmp_path / "mine"
    (first.folder / "notes.txt").write_text("the user's own")
    first.remove()
    assert [path.name for path in first.folder.iterdir()] == ["notes.txt"]
    other.remove()
    other.remove()
    assert not other.folder.exists()


def test_a_folder_below_home_names_nobody(
    frames: dict[str, pd.DataFrame], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    data = vflbench.tables(frames, "died", id="patient", folder="~/a, b's [c]")
    assert data.folder.parent == tmp_path / "a, b's [c]" and str(tmp_path) not in " ".join(data.overrides)
    assert task_of(data.overrides).source.tables == data.about


# --- what is wrong ----------------------------------------------------------------------------------------------------


def test_what_is_no_table_is_told(frames: dict[str, pd.DataFrame]) -> None:
    city, clinic = frames["city"], frames["clinic"]
    form = 'must be a dict of DataFrames with a name each: {"hospital": df_a, "laboratory": df_b}.'
    assert told(city) == [f"tables=DataFrame: {form}"] and told({}) == [f"tables={{}}: {form}"]
    import pyarrow as pa

    lines = told(
        {
            "a/b": clinic,
            "x": [1],
            "X": pa.table({"a": [1]}),
            "y": clinic[:0],
            "z": pd.concat([city, city[["age"]]], axis=1),
            "w": city.rename(columns={"age": 5}),
            "v": pd.concat({"a": city}, axis=1),
        }
    )
    assert [line.partition(": ")[0] for line in lines] == [
        "tables='a/b'",
        "tables.x=list",
        "tables=X",
        "tables.X=Table",
        "tables.y=an empty DataFrame",
        "tables.z=columns age",
        "tables.w=columns 5",
        "tables.v=columns ('a', 'patient'), ('a', 'age'), ('a', 'smoker'), ('a', 'died')",
    ]
    assert "use its to_pandas()" in lines[3] and "df.columns.astype(str)" in lines[6] and "'_'.join" in lines[7]


def test_every_problem_of_two_broken_frames_is_told_at_once(frames: dict[str, pd.DataFrame]) -> None:
    city, clinic = frames["city"], frames["clinic"]
    city["died"] = city.died.astype(object)
    city.loc[[2, 5], "died"] = None
    city.loc[[4, 9], "patient"] = "p00"
    city["scans"], city["mixed"] = [[1]] * N, [1, "a"] * (N // 2)
    clinic = clinic.rename(columns={"patient": "pat_id"})
    clinic.iloc[3, 1] = np.inf
    kept = "a column must have numbers, texts, dates, times, or true and false, all of one kind; "
    kept += "convert it, or name it in "
    assert told({"city": city, "clinic": clinic}, id="patient", leave_out=["stey"], task="class") == [
        "5 problems in your tables:",
        "  leave_out=stey: no table has such a column. Did you mean 'stay'?",
        "  id=patient: clinic has no such column, nor an index of that name. Did you mean 'pat_id'?",
        "  task=class: must be one of classes, regression. Did you mean 'classes'?",
        f"  city, column scans: holds list; {kept}leave_out",
        f"  city, column mixed: holds int and str; {kept}leave_out",
    ]
    assert told({"city": city, "clinic": clinic}, id="patient", leave_out=["scans", "mixed"]) == [
        "4 problems in your tables:",
        "  id=patient: clinic has no such column, nor an index of that name. Did you mean 'pat_id'?",
        "  city, row 2, column died: no label; remove the row (also row 5)",
        "  city, row 4, column patient: the ID 'p00' is there twice (also row 9)",
        "  clinic, column sugar: inf in row 3 is not finite; correct it, or list it in missing_words",
    ]


def test_the_label_is_in_one_table(frames: dict[str, pd.DataFrame]) -> None:
    assert told(frames, "dyed", id="patient") == [
        "label=dyed: no table has such a column. Did you mean 'died'?",
    ]
    both = {**frames, "clinic": frames["clinic"].assign(died=1)}
    assert told(both, id="patient") == [
        "label=died: is a column of clinic and city: one party owns it; drop or rename the other."
    ]
    assert told(frames, [3], id=4)[:2] == [
        "label=[3]: must name the column to predict.",
        "id=4: must name the column that identifies a row in every table, or be None.",
    ]
    assert told(frames, id="patient", leave_out=["died"]) == ["label=died: is also id or in leave_out."]
    frames["city"]["died"] = [[1]] * N
    (line,) = told(frames, id="patient")
    assert line.startswith("city, column died: holds list;")


def test_rows_are_not_matched_by_accident(frames: dict[str, pd.DataFrame]) -> None:
    """Without IDs the order counts: frames whose indexes differ were sorted or filtered in different ways."""
    without = {name: frame.drop(columns="patient") for name, frame in frames.items()}
    (line,) = told(without)
    assert line.startswith("id=None: rows are matched by their order, but the indexes of clinic and city differ")
    reset = {name: frame.reset_index(drop=True) for name, frame in without.items()}
    assert vflbench.tables(reset, "died").about[0]["matched"] == N
    (line,) = told({**reset, "clinic": reset["clinic"][:-1]})
    assert line.startswith("city has 40 rows and clinic has 39: without id row i of all files must be the same sample")
    (line,) = told({**frames, "clinic": frames["clinic"][:-2]}, id="patient")
    assert line.endswith("are not in clinic; use alignment=psi or hashed, which keep the samples that all have")


def test_ids_of_frames_are_exact_and_may_be_several_columns(frames: dict[str, pd.DataFrame]) -> None:
    big = {name: frame.assign(patient=2**53 + np.arange(N)) for name, frame in frames.items()}
    assert vflbench.tables(big, "died", id="patient").about[0]["matched"] == N
    big["clinic"]["patient"] = big["clinic"].patient.astype(float)
    (line,) = told(big, id="patient")
    assert line.startswith("clinic, row 0, column patient: 9007199254740992.0 is a float from 2**53 on")
    (line,) = told({name: frame.reset_index(drop=True) for name, frame in frames.items()})
    assert line.startswith("city and clinic have the same values in column patient, but in another order (city, row 0")
    several = {name: frame.assign(visit=[i % 2 for i in range(N)]) for name, frame in frames.items()}
    several["clinic"] = several["clinic"].set_index(["patient", "visit"])
    several["city"]["visit"] = several["clinic"].index.get_level_values("visit")[::-1]
    data = vflbench.tables(several, "died", id=["patient", "visit"])
    assert data.about[1]["matched"] == N and "dataset.id=['patient','visit']" in data.overrides
    assert told(several, id=["patient", "visits"]) == [
        "id=visits: clinic has no such column, nor an index of that name.",
        "id=visits: city has no such column, nor an index of that name. Did you mean 'visit'?",
    ]


def test_an_intersection_is_only_tried_when_a_run_begins(
    frames: dict[str, pd.DataFrame], caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("private_set_intersection")
    data = vflbench.tables({**frames, "clinic": frames["clinic"][:-2]}, "died", id="patient", alignment="psi")
    assert data.about[0]["matched"] == N - 2 and "hashed" not in caplog.text
    assert "dataset.alignment='psi'" in data.overrides
    assert told(frames, alignment="psi")[0].startswith("id=null: alignment=psi needs the column")


def test_a_name_that_is_codes_here_and_numbers_there(frames: dict[str, pd.DataFrame]) -> None:
    frames["city"]["stay"] = pd.Categorical(np.arange(N) % 3)
    assert told(frames, id="patient") == [
        "categories=stay: is categorical in city and not in clinic: make them alike, or rename one."
    ]
