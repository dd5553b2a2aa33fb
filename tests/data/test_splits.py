"""Which rows train, validate and test: classes in every part, entities in one, nothing later in training."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vflbench.cards.data.divide import Plan, SplitKeys
from vflbench.data.columns import row_facts
from vflbench.data.divide import splits
from vflbench.data.divide.splits import by_class, by_entity, by_time, draw, split_rows
from vflbench.data.readers.cells import Column
from vflbench.types import DataError

quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
SEEDS = st.integers(0, 5)
FRACTIONS = st.sampled_from([(0.1, 0.3), (0.15, 0.15), (0.0, 0.3), (0.4, 0.5), (0.02, 0.02)])


def parts_of(drawn: dict[str, np.ndarray], rows: int, every: bool = True) -> np.ndarray:
    """0, 1 or 2 for each row, and -1 in no part; each row is in one part, and the parts are ascending."""
    part = np.full(rows, -1)
    for number, split in enumerate(splits.SPLITS):
        own = drawn[split]
        assert (np.diff(own) > 0).all() and (part[own] == -1).all()
        part[own] = number
    assert not every or (part >= 0).all()
    return part


def test_random_rows_are_the_published_ones() -> None:
    """The splits of built-in data sets: numbers in papers and tables depend on them."""
    drawn = draw(Plan(), np.zeros(20), 0.1, 0.3, 7)
    assert all((drawn[split] == rows).all() for split, rows in split_rows(20, 0.1, 0.3, 7).items())
    assert drawn["test"].tolist() == [1, 2, 7, 10, 12, 14]


@quick
@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), FRACTIONS, SEEDS)
def test_every_class_of_three_rows_is_in_all_parts(sizes: list[int], fractions: Any, seed: int) -> None:
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    part, wanted = parts_of(by_class(labels, *fractions, seed), len(labels)), [0, 1, 2] if fractions[0] else [0, 2]
    for code, size in enumerate(sizes):
        rows = np.bincount(part[labels == code], minlength=3)
        if size >= len(wanted):
            assert (rows[wanted] >= 1).all()
        else:
            assert rows.tolist() == [[1, 0, 0], [1, 0, 1]][size - 1]
        # no part is further than a row from its share, but for the rows that parts have to give up for one of each
        share = size * np.array([1 - sum(fractions), *fractions])
        assert (np.abs(rows - share) < 1 + np.maximum(1 - share, 0)[wanted].sum() + 1e-9).all()


def test_shares_of_many_small_classes_add_up() -> None:
    """What rounding takes from a part in one class, it gets in the next."""
    part = parts_of(by_class(np.repeat(np.arange(100), 8), 0.1, 0.3, 0), 800)
    assert np.abs(np.bincount(part) - [480, 80, 240]).max() <= 20


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_five_positives_of_three_hundred(seed: int) -> None:
    labels = np.zeros(300, np.int64)
    labels[[5, 50, 150, 200, 250]] = 1
    part = parts_of(draw(Plan(stratified=True), labels, 0.1, 0.3, seed), 300)
    assert np.bincount(part[labels == 1]).tolist() == [3, 1, 1]
    assert np.abs(np.bincount(part) - [180, 30, 90]).max() <= 1


def test_a_seed_is_a_split() -> None:
    labels = np.arange(60) % 3
    drawn = [by_class(labels, 0.1, 0.3, seed)["test"].tolist() for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]


# --- entities ---------------------------------------------------------------------------------------------------------


@quick
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 2)), min_size=8, max_size=80), FRACTIONS, SEEDS)
def test_entities_never_cross(rows: list[tuple[int, int]], fractions: Any, seed: int) -> None:
    entities, labels = np.array(rows).T
    wanted = [0, 1, 2] if fractions[0] else [0, 2]
    if len(np.unique(entities)) < len(wanted):
        with pytest.raises(DataError, match=r"dataset.entity: \d different entities in \d+ rows"):
            by_entity(entities, labels, *fractions, seed)
        return
    part = parts_of(by_entity(entities, labels, *fractions, seed), len(entities))
    assert all(len(set(part[entities == own])) == 1 for own in set(entities))
    assert set(part) == set(wanted)


@quick
@given(st.lists(st.sampled_from(["p", "n", "pn"]), min_size=3, max_size=30), SEEDS)
def test_two_classes_of_three_entities_each_are_in_all_parts(kinds: list[str], seed: int) -> None:
    rows = [(own, code) for own, kind in enumerate(kinds) for code, name in enumerate("np") if name in kind]
    entities, labels = np.array(rows).T
    part = parts_of(by_entity(entities, labels, 0.1, 0.3, seed), len(rows))
    for code in (0, 1):
        if len(set(entities[labels == code])) >= 3:
            assert set(part[labels == code]) == {0, 1, 2}


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_patients_are_near_the_fractions(seed: int) -> None:
    """80 patients with about four rows each, 5 % positive rows."""
    rng = np.random.default_rng(1)
    entities, labels = rng.integers(0, 80, 300), (np.arange(300) % 20 == 0).astype(np.int64)
    part = parts_of(by_entity(entities, labels, 0.1, 0.3, seed), 300)
    assert np.abs(np.bincount(part) - [180, 30, 90]).max() <= 4
    assert np.abs(np.bincount(part[labels == 1]) - [9, 1.5, 4.5]).max() <= 1.5


# --- time -------------------------------------------------------------------------------------------------------------


@quick
@given(st.lists(st.tuples(st.integers(-5, 20), st.integers(0, 9)), min_size=1, max_size=60), FRACTIONS, st.booleans())
def test_nothing_later_trains(rows: list[tuple[int, int]], fractions: Any, grouped: bool) -> None:
    times, entities = np.array(rows).T
    wanted = [0, 1, 2] if fractions[0] else [0, 2]
    try:
        drawn = by_time(times, *fractions, entities if grouped else None)
    except DataError as error:
        assert "dataset.entity: the entities of all" in str(error) if len(set(times)) >= len(wanted) else True
        return
    part = parts_of(drawn, len(times), every=not grouped)
    assert set(part) - {-1} == set(wanted)
    for earlier, later in itertools.pairwise(wanted):
        assert times[part == earlier].max() < times[part == later].min()
    if grouped:
        assert all(len(set(part[entities == own]) - {-1}) <= 1 for own in set(entities))


def test_cuts_are_near_the_fractions_and_between_times() -> None:
    drawn = by_time(np.arange(100)[::-1], 0.1, 0.3)
    assert [len(drawn[split]) for split in splits.SPLITS] == [60, 10, 30] and drawn["train"].min() == 40
    ties = by_time(np.repeat([0, 1, 2, 3], [55, 20, 5, 20]), 0.1, 0.3)
    assert [len(ties[split]) for split in splits.SPLITS] == [55, 20, 25]
    with pytest.raises(
        DataError, match="2 different times in 50 rows; split=time needs one for each of training, valid"
    ):
        by_time(np.arange(50) % 2, 0.1, 0.3)


def test_of_an_entity_in_two_parts_most_rows_are_kept() -> None:
    entities = np.array([0, 0, 0, 1, 1, 2, 2, 3, 3, 0])
    drawn = by_time(np.arange(10), 0.2, 0.3, entities)
    assert {split: rows.tolist() for split, rows in drawn.items()} == {
        "train": [0, 1, 2, 3, 4],
        "val": [5, 6],
        "test": [7, 8],
    }


# --- keys and words ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"split": "time"}, "dataset.time=null: split=time needs the column with the time of a row."),
        ({"split": "group"}, "dataset.entity=null: split=group needs the column that says whose row it is."),
        ({"time": "day"}, "dataset.time=day: counts with dataset.split=time only."),
        ({"entity": "who"}, "dataset.entity=who: counts with dataset.split=group or time only."),
        ({"split": "group", "entity": "id"}, "dataset.entity=id: is also dataset.id: each names a column of its own."),
        (
            {"split": "time", "time": "t", "entity": "t"},
            "dataset.entity=t: is also dataset.time: each names a column of its own.",
        ),
    ],
)
def test_keys_that_do_not_go_together(keys: dict[str, Any], said: str) -> None:
    assert [str(problem) for problem in splits.check_keys(SplitKeys(**keys), {"dataset.id": "id"})] == [said]


def test_parts_are_counted_in_words() -> None:
    labels = np.array([0, 0, 0, 0, 1, 1, 0])
    drawn = {"train": np.array([0, 1, 4]), "val": np.array([2]), "test": np.array([3, 5])}
    assert splits.in_words(splits.counts(Plan("time"), drawn, labels, {0: "no", 1: "yes"})) == [
        "Rows (split=time): 3 training, 1 validation, 2 test.",
        "Rows of each class: yes: 1 training, 0 validation, 1 test; no: 2 training, 1 validation, 1 test.",
        "1 rows are in no part, because most rows of their entities are in another part.",
    ]


def test_an_entity_is_one_however_its_name_is_written() -> None:
    """As IDs are compared; capitals and blanks do not count either."""
    names = np.array(["P1", "\u200bP1", "'P1", "p1 ", "P\u00a01", "P2"], dtype=object)
    found = row_facts.entities(Column("text", names), "patient", str, np.arange(6))
    assert found.tolist() == [0, 0, 0, 0, 1, 2]
