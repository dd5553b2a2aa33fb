"""Splits of the user's own files: rare classes, patients with several rows, rows in time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.every import few_fast
from vflbench.cards.data.tabular.tabular_files import Config
from vflbench.data import sanity
from vflbench.data.columns import inspection
from vflbench.data.tabular import checking, table, tabular_files
from vflbench.data.tabular.tabular_files import load
from vflbench.types import ConfigError, DataError

N = 120


@pytest.fixture
def frame() -> pd.DataFrame:
    """Visits of 40 patients in 120 days, in random order; five are fatal; `n` is the number of the row."""
    rng = np.random.default_rng(0)
    died = np.zeros(N, np.int64)
    died[[3, 31, 59, 80, 101]] = 1
    day = rng.permutation(N)
    date = pd.Timestamp("2023-11-20") + pd.to_timedelta(day, unit="D")
    return pd.DataFrame(
        {
            "id": [f"v{i:03d}" for i in range(N)],
            "n": np.arange(N),
            "died": died,
            "patient": [f"P{i}" for i in rng.integers(0, 40, N)],
            "day": day,
            "iso": date.strftime("%Y-%m-%d"),
            "german": date.strftime("%d.%m.%Y"),
        }
    )


FACTS = ["patient", "day", "iso", "german"]


def two_files(folder: Path, frame: pd.DataFrame, **keys: Any) -> Config:
    """The labels' owner's file, and another one with the same visits in another order."""
    frame.to_csv(folder / "a.csv", index=False)
    other = pd.DataFrame({"id": frame.id, "m": frame.n}).sample(frac=1, random_state=1)
    other.to_csv(folder / "b.csv", index=False)
    return Config(files=["a.csv", "b.csv"], **{"label": "died", "id": "id", "leave_out": FACTS, **keys})


def parts(task: Any, rows: int = N) -> dict[str, np.ndarray]:
    """The rows of each part, by the column `n`, whose order standardising keeps."""
    blocks = {"train": task.features[0], **{split: own[0] for split, own in task.held_out_features.items()}}
    values = np.concatenate([block[:, 0] for block in blocks.values()])
    assert len(values) == rows
    ranks, ends = values.argsort().argsort(), np.cumsum([0, *(len(block) for block in blocks.values())])
    return {split: np.sort(ranks[ends[i] : ends[i + 1]]) for i, split in enumerate(blocks)}


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_five_positives_are_in_all_parts(tmp_path: Path, frame: pd.DataFrame, seed: int) -> None:
    task = load(two_files(tmp_path, frame), "aligned", 2, seed, tmp_path)
    sanity.check(task)
    assert [int(labels.sum()) for labels in (task.labels, task.truth("val"), task.truth("test"))] == [3, 1, 1]
    made = task.source.tables[0]["splits"]
    assert made["classes"]["1"] == {"train": 3, "val": 1, "test": 1} and made["rows"]["train"] == len(task.labels)
    assert inspection.in_words(task.source.tables)[-2:] == [
        "Rows (split=random, by class): 72 training, 12 validation, 36 test.",
        "Rows of each class: 1: 3 training, 1 validation, 1 test; 0: 69 training, 11 validation, 35 test.",
    ]


def test_workers_share_a_split_by_class(tmp_path: Path, frame: pd.DataFrame) -> None:
    config = two_files(tmp_path, frame)
    config.files = ["a.csv"]
    task = load(config, "sharded", 3, 1, tmp_path)
    sanity.check(task)
    assert task.training_labels().sum() == 3 and task.truth("test").sum() == 1


def test_without_stratify_rows_are_drawn_as_before(tmp_path: Path, frame: pd.DataFrame) -> None:
    from vflbench.data.divide.splits import split_rows

    task = load(two_files(tmp_path, frame, stratify="none"), "aligned", 2, 0, tmp_path)
    assert all((parts(task)[split] == rows).all() for split, rows in split_rows(N, 0.1, 0.3, 0).items())
    said = r"class 1: 70 and 2 training, 12 and 0 validation, 33 and 3 test. What .* dataset.stratify=auto"
    with pytest.raises(DataError, match=said):
        sanity.check(task, two_files(tmp_path, frame, stratify="none"))


def test_classes_of_one_and_two_rows(tmp_path: Path, frame: pd.DataFrame) -> None:
    frame["kind"] = np.where(frame.n < 1, "one", np.where(frame.n < 3, "two", np.where(frame.n < 6, "three", "many")))
    task = load(two_files(tmp_path, frame, label="kind", leave_out=[*FACTS, "died"]), "aligned", 2, 2, tmp_path)
    counted = task.source.tables[0]["splits"]["classes"]
    assert {name: [*own.values()] for name, own in counted.items()} == {
        **{"one": [1, 0, 0], "two": [1, 0, 1], "three": [1, 1, 1]},
        "many": [69, 11, 34],
    }


@pytest.mark.parametrize("how", few_fast(["hashed", "psi"]))
def test_matched_rows_are_divided_by_class(tmp_path: Path, frame: pd.DataFrame, how: str) -> None:
    if how == "psi":
        pytest.importorskip("private_set_intersection")
    config = two_files(tmp_path, frame, alignment=how)
    pd.read_csv(tmp_path / "b.csv").query("m >= 20 and m != 80").to_csv(tmp_path / "b.csv", index=False)
    for seed in range(3):  # rows 31, 59 and 101 are left
        task = load(config, "aligned", 2, seed, tmp_path)
        sanity.check(task)
        assert [int(own.sum()) for own in (task.labels, task.truth("val"), task.truth("test"))] == [1, 1, 1]
        for party in (0, 1):
            alone = tabular_files.load_own(config, "aligned", 2, seed, tmp_path, task.facts_for(party, False), party)
            np.testing.assert_array_equal(alone.features[party], task.features[party])
            for split, blocks in task.held_out_features.items():
                np.testing.assert_array_equal(alone.held_out_features[split][party], blocks[party])
    pd.read_csv(tmp_path / "b.csv").query("m != 59 and m != 31").to_csv(tmp_path / "b.csv", index=False)
    said = r"1 training, .* and 0 validation, .* and 0 test. What may help: more rows of class 1 \(each of the 3 parts"
    with pytest.raises(DataError, match=said):
        sanity.check(load(config, "aligned", 2, 0, tmp_path), config)


# --- entities and time ------------------------------------------------------------------------------------------------


def test_patients_never_cross(tmp_path: Path, frame: pd.DataFrame) -> None:
    frame.loc[frame.n % 3 == 0, "patient"] = frame.patient.str.lower() + " "  # written in two ways
    config = two_files(tmp_path, frame, split="group", entity="patient", leave_out=FACTS[1:])
    task = load(config, "aligned", 2, 0, tmp_path)
    found = parts(task)
    own = {split: {*frame.patient[rows].str.strip().str.upper()} for split, rows in found.items()}
    assert not own["train"] & own["test"] and not own["train"] & own["val"] and not own["val"] & own["test"]
    assert [block.shape[1] for block in task.features] == [1, 1], "the patient is no feature"
    assert np.abs(np.array([len(rows) for rows in found.values()]) - [72, 12, 36]).max() <= 3
    assert all(frame.died[rows].sum() >= 1 for rows in found.values())
    alone = tabular_files.load_own(config, "aligned", 2, 0, tmp_path, task.facts_for(1, False), 1)
    np.testing.assert_array_equal(alone.features[1], task.features[1])
    other = load(config, "aligned", 2, 1, tmp_path)
    assert {*parts(other)["test"]} != {*found["test"]}, "the seed decides"


@pytest.mark.parametrize("column", ["day", "iso", "german"])
def test_later_rows_never_train(tmp_path: Path, frame: pd.DataFrame, column: str) -> None:
    rest = [name for name in FACTS if name != column]
    keys = {"label": "day2", "task": "regression", "leave_out": [*rest, "died"]}
    frame["day2"] = frame.day**2
    task = load(two_files(tmp_path, frame, split="time", time=column, **keys), "aligned", 2, 0, tmp_path)
    found = parts(task)
    days = {split: frame.day[rows] for split, rows in found.items()}
    assert (days["train"].max(), days["val"].min(), days["val"].max(), days["test"].min()) == (71, 72, 83, 84)
    assert task.features[0].shape[1] == 1, "the time is no feature"


def test_a_date_in_parquet_is_a_time(tmp_path: Path, frame: pd.DataFrame) -> None:
    frame["died"] = frame.n % 2
    config = two_files(tmp_path, frame, split="time", time="iso", leave_out=["patient", "day", "german"])
    frame.assign(iso=pd.to_datetime(frame.iso)).to_parquet(tmp_path / "a.parquet")
    texts = parts(load(config, "aligned", 2, 0, tmp_path))
    config.files[0] = "a.parquet"
    dates = parts(load(config, "aligned", 2, 0, tmp_path))
    assert all((texts[split] == rows).all() for split, rows in dates.items())


def test_time_and_patients_together(tmp_path: Path, frame: pd.DataFrame) -> None:
    frame["died"] = frame.n % 2
    keys = {"split": "time", "time": "day", "entity": "patient", "leave_out": ["iso", "german"]}
    task = load(two_files(tmp_path, frame, **keys), "aligned", 2, 0, tmp_path)
    assert task.splits is not None and task.source.tables[0]["splits"]["unused"] > 0
    found = {split: frame.loc[rows] for split, rows in task.splits.items()}
    assert found["train"].day.max() < found["val"].day.min() <= found["val"].day.max() < found["test"].day.min()
    patients = [{*rows.patient} for rows in found.values()]
    assert sum(map(len, patients)) == len(set.union(*patients))


def test_own_rows_follow_the_split(tmp_path: Path, frame: pd.DataFrame) -> None:
    """Rows that only the labels' owner has train, but for later ones and those of patients who are held out."""
    frame["died"] = frame.n % 2
    keys: dict[str, Any] = {"alignment": "hashed", "own_rows": "train", "split": "time", "time": "day"}
    config = two_files(tmp_path, frame, **keys, leave_out=["patient", "iso", "german"])
    pd.read_csv(tmp_path / "b.csv").query("m >= 40").to_csv(tmp_path / "b.csv", index=False)
    task = load(config, "aligned", 2, 0, tmp_path)
    last = frame.day[40:].iloc[task.splits["train"]].max()
    assert task.own is not None and task.own.places.tolist() == frame.n[:40][frame.day[:40] <= last].tolist()
    keys |= {"split": "group", "time": None, "entity": "patient"}
    config = two_files(tmp_path, frame, **keys, leave_out=["day", "iso", "german"])
    pd.read_csv(tmp_path / "b.csv").query("m >= 40").to_csv(tmp_path / "b.csv", index=False)
    task = load(config, "aligned", 2, 0, tmp_path)
    apart = {*frame.patient[40:].iloc[np.concatenate([task.splits["val"], task.splits["test"]])]}
    assert task.own is not None and 0 < len(task.own.places) < 40
    assert not apart & {*frame.patient[task.own.places]}


# --- what is refused --------------------------------------------------------------------------------------------------


def test_a_word_that_may_be_a_missing_entity_counts_as_one_and_is_told(
    tmp_path: Path, frame: pd.DataFrame, caplog: pytest.LogCaptureFixture
) -> None:
    """As a country, NA is Namibia."""
    frame.loc[:2, "patient"] = "NA"
    config = two_files(tmp_path, frame, split="group", entity="patient", leave_out=FACTS[1:])
    load(config, "aligned", 2, 0, tmp_path)
    assert "column patient: 'NA' counts as an entity, of 3 rows; it may be a missing one" in caplog.text


@pytest.mark.parametrize(
    ("change", "keys", "said"),
    [
        ({"iso": None}, {"split": "time", "time": "iso"}, "line 9, column iso: no time (dataset.time=iso)"),
        (
            {"iso": "soon"},
            {"split": "time", "time": "iso"},
            "line 9, column iso: 'soon' is no time; a time is a number",
        ),
        ({"patient": " "}, {"split": "group", "entity": "patient"}, "line 9, column patient: no entity (dataset.ent"),
    ],
)
def test_a_row_without_time_or_entity_is_named(
    tmp_path: Path, frame: pd.DataFrame, change: dict[str, Any], keys: dict[str, Any], said: str
) -> None:
    ((column, value),) = change.items()
    frame.loc[7, column] = value
    frame["died"] = frame.n % 2
    others = [name for name in FACTS if name != column]
    with pytest.raises(DataError) as error:
        load(two_files(tmp_path, frame, **keys, leave_out=others), "aligned", 2, 0, tmp_path)
    assert said in str(error.value)


def test_a_row_without_time_is_told_with_other_problems(tmp_path: Path, frame: pd.DataFrame) -> None:
    frame.loc[7, ["iso", "died"]] = None
    with pytest.raises(DataError, match=r"^2 problems in your files:\n.* line 9, column died.*\n.* line 9, column iso"):
        load(two_files(tmp_path, frame, split="time", time="iso", leave_out=FACTS[:2]), "aligned", 2, 0, tmp_path)


def test_columns_that_are_not_there_are_named(tmp_path: Path, frame: pd.DataFrame) -> None:
    config = two_files(tmp_path, frame, split="time", time="days", entity="patients")
    with pytest.raises(ConfigError) as error:
        load(config, "aligned", 2, 0, tmp_path)
    assert [(p.key, p.closest) for p in error.value.problems] == [
        ("dataset.time", "day"),
        ("dataset.entity", "patient"),
    ]
    keys = {"split": "group", "entity": "id"}
    assert [str(p) for p in tabular_files.check(two_files(tmp_path, frame, **keys), "aligned", 2)] == [
        "dataset.entity=id: is also dataset.id: each names a column of its own."
    ]


def test_a_check_of_the_files_says_what_divides_the_rows(tmp_path: Path, frame: pd.DataFrame) -> None:
    checked = checking.check(two_files(tmp_path, frame, split="group", entity="patient", leave_out=FACTS[1:]), tmp_path)
    (about,) = (own for own in checked.files[0].columns if own.column == "patient")
    assert (about.why, about.becomes) == ("dataset.entity names it", "divides the rows") and not checked.problems


def test_fewer_samples_keep_rare_classes(tmp_path, frame):
    task = load(two_files(tmp_path, frame, samples=30), "aligned", 2, 0, tmp_path)
    assert len(parts(task, 30)) == 3
    assert all(1 in labels for labels in (task.labels, *task.held_out_labels.values()))
    labels = np.random.default_rng(0).permutation(np.repeat([0, 1, 2], [9000, 970, 30]))
    kept = labels[table.sampled(Config(samples=1000), labels)]
    np.testing.assert_allclose(np.bincount(kept), [900, 97, 3], atol=3)
    assert len(table.sampled(Config(samples=10), np.arange(100))) == 10
