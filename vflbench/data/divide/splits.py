"""Which rows train, validate and test: drawn at random, class by class or by entity, or cut by time.

Built-in data sets draw at random (`split_rows`), as published. The user's own tables have the keys `SplitKeys`, and
`draw` follows them. The labels' owner draws, and the others are told which rows are in which part.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vflbench.cards.data.divide import Plan, SplitKeys
from vflbench.seeding import stream
from vflbench.types import DataError, Problem

SPLITS = ("train", "val", "test")
WORDS = {"train": "training", "val": "validation", "test": "test"}
SHOWN = 8  # classes whose rows a sentence counts
Splits = dict[str, np.ndarray]


def check_fractions(validation: float, test: float) -> list[Problem]:
    """What is wrong with the fractions of `split_rows`."""
    if validation >= 0 and test > 0 and validation + test < 1:
        return []
    allowed = "must be fractions, test above 0, that leave something for training"
    return [Problem("dataset.validation, dataset.test", f"{validation}, {test}", allowed)]


def check_keys(keys: SplitKeys, taken: Mapping[str, str | None]) -> list[Problem]:
    """What is wrong with the keys of a split.

    Parameters
    ----------
    taken : other keys that name a column -> the column.
    """
    problems = []
    if keys.split == "time" and not keys.time:
        problems.append(Problem("dataset.time", "null", "split=time needs the column with the time of a row"))
    if keys.split == "group" and not keys.entity:
        problems.append(Problem("dataset.entity", "null", "split=group needs the column that says whose row it is"))
    if keys.time and keys.split != "time":
        problems.append(Problem("dataset.time", keys.time, "counts with dataset.split=time only"))
    if keys.entity and keys.split == "random":
        problems.append(Problem("dataset.entity", keys.entity, "counts with dataset.split=group or time only"))
    others = {**taken, "dataset.time": keys.time}
    for key, column in (("dataset.time", keys.time), ("dataset.entity", keys.entity)):
        for other, name in others.items():
            if column and column == name and other != key:
                problems.append(Problem(key, column, f"is also {other}: each names a column of its own"))
    return problems


# --- at random --------------------------------------------------------------------------------------------------------


def split_rows(rows: int, validation: float, test: float, seed: int) -> Splits:
    """Random train, val and test rows of the label table, ascending int64, by the stream "split" of `seed`."""
    order = stream(seed, "split").permutation(rows)
    first, second = round(test * rows), round((test + validation) * rows)
    return {"train": np.sort(order[second:]), "val": np.sort(order[first:second]), "test": np.sort(order[:first])}


def draw(
    how: Plan,
    labels: np.ndarray,
    validation: float,
    test: float,
    seed: int,
    *,
    times: np.ndarray | None = None,
    entities: np.ndarray | None = None,
) -> Splits:
    """Train, val and test rows, ascending int64, by the stream "split" of `seed`.

    Parameters
    ----------
    labels : (n,); int64 classes where the plan is stratified.
    times, entities : (n,) numbers that are equal where the times or the entities are; what the plan needs.

    Raises
    ------
    DataError : there are too few times or entities.
    """
    if how.split == "time":
        assert times is not None
        return by_time(times, validation, test, entities)
    if how.split == "group":
        assert entities is not None
        return by_entity(
            entities, labels if how.stratified else np.zeros(len(labels), np.int64), validation, test, seed
        )
    if how.stratified:
        return by_class(labels, validation, test, seed)
    return split_rows(len(labels), validation, test, seed)


def by_class(labels: np.ndarray, validation: float, test: float, seed: int) -> Splits:
    """Random rows of each class, in parts as near to the fractions as whole rows allow.

    A class of three rows or more is in every part. Of two rows one trains and one is for testing; a single row trains.
    What rounding takes from a part in one class, it gets in the next larger one.
    """
    order = stream(seed, "split").permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    fractions, owed = _fractions(validation, test), np.zeros(3)
    parts: list[list[np.ndarray]] = [[], [], []]
    for rows in sorted(np.split(order, np.cumsum(np.unique(labels, return_counts=True)[1])[:-1]), key=len):
        sizes = _sizes(len(rows), fractions, owed)
        owed += len(rows) * fractions - sizes
        for part, own in zip(parts, np.split(rows, np.cumsum(sizes)[:-1]), strict=True):
            part.append(own)
    return {split: np.sort(np.concatenate(own)) for split, own in zip(SPLITS, parts, strict=True)}


def _fractions(validation: float, test: float) -> np.ndarray:
    """Of training, validation and test rows."""
    return np.array([1 - validation - test, validation, test])


def _sizes(count: int, fractions: np.ndarray, owed: np.ndarray) -> np.ndarray:
    """How many of `count` rows each part gets: by largest remainder, and each at least one.

    Parameters
    ----------
    owed : what each part should have got of earlier classes; it decides between remainders.
    """
    least = np.zeros(3, np.int64)
    least[[part for part in (0, 2, 1) if fractions[part] > 0][:count]] = 1
    share = count * fractions
    sizes = np.maximum(np.floor(share + 1e-9).astype(np.int64), least)
    while sizes.sum() < count:
        sizes[np.where(sizes < share - 1e-9, share + owed - sizes, -np.inf).argmax()] += 1
    while sizes.sum() > count:
        sizes[np.where(sizes > least, share + owed - sizes, np.inf).argmin()] -= 1
    return sizes


# --- by entity --------------------------------------------------------------------------------------------------------


def by_entity(entities: np.ndarray, labels: np.ndarray, validation: float, test: float, seed: int) -> Splits:
    """Whole entities, chosen one by one so that rows of each class are near the fractions.

    First every class, the rarest first, gets an entity in every part: training, then test, then validation. Then each
    further entity goes to the part that lacks its classes most (the smallest chi-squared distance).

    Parameters
    ----------
    labels : (n,) int64.

    Raises
    ------
    DataError : there are fewer entities than parts.
    """
    fractions = _fractions(validation, test)
    parts = [part for part in (0, 2, 1) if fractions[part] > 0]
    _, entities = np.unique(entities, return_inverse=True)
    _, labels = np.unique(labels, return_inverse=True)
    shape = int(entities.max(initial=-1)) + 1, int(labels.max(initial=-1)) + 1
    if shape[0] < len(parts):
        needs = f"split=group needs one for each of {_listed(parts)}"
        raise DataError(f"dataset.entity: {shape[0]} different entities in {len(entities)} rows; {needs}")
    counts = np.bincount(entities * shape[1] + labels, minlength=shape[0] * shape[1]).reshape(shape)
    totals = counts.sum(axis=0)
    order = stream(seed, "split").permutation(shape[0])
    order = order[np.argsort(-(counts[order] / totals).max(axis=1), kind="stable")]  # what is hard to place comes first
    wanted, had = np.outer(fractions, totals), np.zeros((3, shape[1]))
    place = np.full(shape[0], -1)

    def distances(own: np.ndarray, part: int | list[int]) -> np.ndarray:
        """How much the distance of a part from what is wanted changes with the counts `own`."""
        changes: np.ndarray = (own**2 - 2 * own * (wanted[part] - had[part])) / (wanted[part] * totals)
        return np.asarray(changes.sum(axis=-1))

    def put(entity: int, part: int) -> None:
        place[entity] = part
        had[part] += counts[entity]

    def open_to(part: int) -> bool:
        """Whether enough entities would be left for the parts that have none yet."""
        others = [other for other in parts if other != part and not had[other].any()]
        return int((place < 0).sum()) > len(others)

    for known in np.argsort((counts > 0).sum(axis=0), kind="stable"):
        holders = order[counts[order, known] > 0]
        for part in parts:
            free = holders[place[holders] < 0]
            if not had[part, known] and len(free) and open_to(part):
                put(free[distances(counts[free], part).argmin()], part)
    for entity in order[place[order] < 0]:
        near = np.argsort(distances(counts[entity], parts), kind="stable")
        put(entity, next(parts[i] for i in near if open_to(parts[i])))
    return {split: np.flatnonzero(place[entities] == part) for part, split in enumerate(SPLITS)}


# --- by time ----------------------------------------------------------------------------------------------------------


def by_time(times: np.ndarray, validation: float, test: float, entities: np.ndarray | None = None) -> Splits:
    """The earliest rows train, later ones validate, the latest are for testing; rows of one time are in one part.

    The cuts are as near to the fractions as times allow. With `entities`, an entity belongs to the part where most of
    its rows are, of equals to the last one. Its other rows are in no part.

    Raises
    ------
    DataError : there are too few times; or no entity has most of its rows in a part.
    """
    order = np.argsort(times, kind="stable")
    later = np.flatnonzero(np.diff(times[order])) + 1  # where a later time begins
    cuts = 2 if validation > 0 else 1
    if len(later) < cuts:
        parts = _listed([0, 1, 2] if cuts == 2 else [0, 2])
        found = f"{len(later) + 1} different times in {len(times)} rows" if len(times) else "no row"
        raise DataError(f"dataset.time: {found}; split=time needs one for each of {parts}")
    first = second = _nearest(later[: len(later) - cuts + 1], len(times) * (1 - validation - test))
    if cuts == 2:
        second = _nearest(later[later > first], first + (len(times) - first) * validation / (validation + test))
    part = np.empty(len(times), np.int64)
    part[order] = np.repeat(np.arange(3), [first, second - first, len(times) - second])
    own = part
    if entities is not None:
        _, entities = np.unique(entities, return_inverse=True)
        rows = np.bincount(3 * entities + part, minlength=3 * (int(entities.max()) + 1)).reshape(-1, 3)
        own = 2 - rows[:, ::-1].argmax(axis=1)[entities]
    drawn = {split: np.flatnonzero((part == number) & (own == part)) for number, split in enumerate(SPLITS)}
    for number, split in enumerate(SPLITS):
        if not len(drawn[split]) and (number != 1 or cuts == 2):
            held = (
                f"the entities of all {int((part == number).sum())} {WORDS[split]} rows have more rows in another part"
            )
            raise DataError(f"dataset.entity: {held}; use split=group, or split=time without dataset.entity")
    return drawn


def _nearest(places: np.ndarray, wanted: float) -> int:
    return int(places[np.abs(places - wanted).argmin()])


# --- in words ---------------------------------------------------------------------------------------------------------


def counts(how: Plan, drawn: Mapping[str, np.ndarray], labels: np.ndarray, names: Mapping[int, str]) -> dict[str, Any]:
    """How many rows each part has, as a run's manifest has it.

    Parameters
    ----------
    drawn : rows of each part, as places in `labels`.
    labels : (n,), with int64 classes where there are `names`.
    names : of the classes that occur; none: a regression.

    Returns
    -------
    `split`, `stratified`, `rows` by part, `unused` (rows in no part), `classes`: name -> rows by part.
    """
    own = {split: labels[rows] for split, rows in drawn.items()}
    rows = {split: len(found) for split, found in own.items()}
    by_name = {
        name: {split: int((found == code).sum()) for split, found in own.items()} for code, name in names.items()
    }
    unused = len(labels) - sum(rows.values())
    return {"split": how.split, "stratified": how.stratified, "rows": rows, "unused": unused, "classes": by_name}


def in_words(made: Mapping[str, Any]) -> list[str]:
    """What `counts` found, in sentences: rows of each part, and classes that are in few."""
    how = f"split={made['split']}" + (", by class" if made["stratified"] else "")
    parts = list(made["rows"])
    lines = [f"Rows ({how}): {_numbers(made['rows'], parts)}."]
    if classes := made["classes"]:
        rarest = sorted(classes, key=lambda name: sum(classes[name].values()))
        more = f" The other {len(rarest) - SHOWN} classes have more rows." if len(rarest) > SHOWN else ""
        shown = "; ".join(f"{name}: {_numbers(classes[name], parts)}" for name in rarest[:SHOWN])
        lines.append(f"Rows of each class: {shown}.{more}")
    if made["unused"]:
        lines.append(f"{made['unused']} rows are in no part, because most rows of their entities are in another part.")
    return lines


def _numbers(rows: Mapping[str, int], parts: Sequence[str]) -> str:
    return ", ".join(f"{rows[part]} {WORDS[part]}" for part in parts)


def _listed(parts: Sequence[int]) -> str:
    *most, last = [WORDS[SPLITS[part]] for part in sorted(parts)]
    return f"{', '.join(most)} and {last}"
