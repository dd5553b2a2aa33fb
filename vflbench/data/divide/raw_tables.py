"""Tables as loaders give them, and how they become a task: splits, standardisation, horizontal parts, joined blocks."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vflbench.data import prepared, sources
from vflbench.data.divide.splits import SPLITS, WORDS
from vflbench.data.tasks import AlignedTask, Equality, HeldOut, RelationalPart, RelationalTask
from vflbench.data.tasks.join import Keys, hand_over, join
from vflbench.data.tasks.relational import table_size
from vflbench.types import ConfigError, DataError, DataSource, Metric, Problem


@dataclass(frozen=True)
class RawTable:
    """One organisation's table."""

    name: str
    keys: Mapping[str, np.ndarray]  # key column -> (n,), as data/tasks/join.py takes them
    features: np.ndarray  # (n, d) float32: raw values, NaN where one is missing; without keys and label
    columns: tuple[str, ...]  # names of the feature columns


@dataclass(frozen=True)
class RawTables:
    """The tables before they are standardised and divided."""

    tables: tuple[RawTable, ...]
    label_table: str
    labels: np.ndarray  # (n,) of the label table's rows: float64 target, or int64 class
    classes: int  # 0: regression
    joins: tuple[Equality, ...]


def kept(
    title: str, made: Callable[[], tuple[RawTables, dict[str, np.ndarray]]], *made_of: Any
) -> tuple[RawTables, dict[str, np.ndarray]]:
    """The tables and splits that `made` makes of `made_of`, kept in the cache folder, where a later job finds them.

    Keys are numbers, not objects.
    """

    def arrays() -> dict[str, np.ndarray]:
        raw, splits = made()
        tables = [(table.name, list(table.keys), table.columns) for table in raw.tables]
        joins = [(join.left, join.right) for join in raw.joins]
        about = json.dumps([tables, raw.label_table, raw.classes, joins])
        held = {"about": np.frombuffer(about.encode(), np.uint8), "labels": raw.labels}
        for table in raw.tables:
            held |= {f"{table.name}.features": table.features}
            held |= {f"{table.name}.key.{key}": values for key, values in table.keys.items()}
        return held | {f"rows.{split}": rows for split, rows in splits.items()}

    held = prepared.arrays(sources.cache_folder() / "tables" / f"{title}-{prepared.key(*made_of)}", arrays)
    tables, label_table, classes, joins = json.loads(held["about"].tobytes())
    opened = tuple(
        RawTable(name, {key: held[f"{name}.key.{key}"] for key in keys}, held[f"{name}.features"], tuple(columns))
        for name, keys, columns in tables
    )
    equal = tuple(Equality(tuple(left), tuple(right)) for left, right in joins)
    raw = RawTables(opened, label_table, held["labels"], classes, equal)
    return raw, {split: held[f"rows.{split}"] for split in SPLITS}


def in_order(splits: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The rows of train, val and test once they are in this order."""
    ends = np.cumsum([len(splits[split]) for split in SPLITS])
    return {split: np.arange(end - len(splits[split]), end) for split, end in zip(SPLITS, ends, strict=True)}


def divide(
    name: str,
    raw: RawTables,
    splits: Mapping[str, np.ndarray],
    source: DataSource,
    metric: Metric,
    *,
    layout: str,
    parts: int = 1,
    sizes: Mapping[str, Sequence[int]] | None = None,
    standardized: bool = False,
) -> RelationalTask | AlignedTask:
    """The task of `raw`.

    Every table is imputed by the mean and standardised by itself: the label table by its training rows, the others,
    which serve all splits, by all rows. A constant column becomes 0.

    Parameters
    ----------
    splits : train | val | test -> rows of the label table; val may be empty. A memory map stays one if each split's
        rows are contiguous.
    layout : `relational`: each table is cut into `parts` contiguous equal horizontal parts; `aligned`: the joined rows
        of every split.
    sizes : table -> rows of its horizontal parts, where it comes in such parts and is not to be cut.
    standardized : whether the features are standardised already.

    Raises
    ------
    DataError : labels are out of range or not finite, a feature is infinite, or keys do not join.
    ConfigError : a table has fewer rows than parts.
    """
    _check_labels(raw)
    raw = replace(raw, tables=tuple(replace(table, keys=joining(table, raw.joins)) for table in raw.tables))
    label = next(table for table in raw.tables if table.name == raw.label_table)
    features = {t.name: t.features for t in raw.tables}
    if not standardized:
        features = {t.name: standardize(t, splits["train"] if t is label else None) for t in raw.tables}
    mapped = _mapped(raw, splits, layout)
    _check_classes(raw, splits, mapped, metric)
    answers = {split: raw.labels[splits[split]][rows[raw.label_table]] for split, rows in mapped.items()}
    if layout == "aligned":
        return _aligned(name, raw, features, splits, mapped, answers, source, metric)
    names = tuple(features)
    held_out = {s: HeldOut(tuple(rows[n] for n in names), answers[s]) for s, rows in mapped.items() if s != "train"}
    clients: list[RelationalPart] = []
    for table in raw.tables:
        apart = {split: splits[split] for split in held_out}
        own = {"train": splits["train"], **apart} if table is label else None
        known = raw.labels if table is label else None
        clients += horizontal(table, features[table.name], own, known, parts, (sizes or {}).get(table.name))
    return RelationalTask(
        name, source, metric, raw.classes, names, raw.label_table, raw.joins, tuple(clients), held_out
    )


def _mapped(raw: RawTables, splits: Mapping[str, np.ndarray], layout: str) -> dict[str, dict[str, np.ndarray]]:
    """Per split that is scored, and per table, which of its rows belongs to each joined row; aligned: of all splits."""
    mapped = {}
    for split in SPLITS:
        rows = splits[split]
        if (not len(rows) and split == "val") or (split == "train" and layout != "aligned"):
            continue
        keys = {}
        for table in raw.tables:
            own = rows if table.name == raw.label_table else np.arange(len(table.features))
            keys[table.name] = _handed_over(table, own)
        try:
            mapped[split] = join(keys, raw.joins, raw.label_table)
        except DataError as error:
            raise DataError(f"{split} rows ({len(rows)} of {raw.label_table}): {error}") from None
    return mapped


def _aligned(
    name: str,
    raw: RawTables,
    features: Mapping[str, np.ndarray],
    splits: Mapping[str, np.ndarray],
    mapped: Mapping[str, Mapping[str, np.ndarray]],
    answers: dict[str, np.ndarray],
    source: DataSource,
    metric: Metric,
) -> AlignedTask:
    """The joined rows of every split, a block for each table."""
    blocks = {}
    for split, rows in mapped.items():
        of = {n: take(values, splits[split]) if n == raw.label_table else values for n, values in features.items()}
        blocks[split] = tuple(take(values, rows[n]) for n, values in of.items())
    train, labels = blocks.pop("train"), answers.pop("train")
    sent = {t.name: table_size(features[t.name], t.keys) for t in raw.tables if t.name != raw.label_table}
    owner = list(features).index(raw.label_table)
    return AlignedTask(name, source, metric, raw.classes, owner, train, labels, blocks, answers, table_sizes=sent)


def horizontal(
    table: RawTable,
    features: np.ndarray,
    splits: Mapping[str, np.ndarray] | None,
    labels: np.ndarray | None,
    parts: int,
    sizes: Sequence[int] | None,
) -> list[RelationalPart]:
    """The horizontal parts of a table.

    Parameters
    ----------
    table : its `keys` are those that join.
    splits, labels : of the label table.

    Raises
    ------
    ConfigError : there are fewer training rows than parts.
    """
    own = splits or {"train": np.arange(len(features))}
    if len(own["train"]) < parts:
        allowed = f"table {table.name} has only {len(own['train'])} training rows"
        raise ConfigError([Problem("algorithm.parts", parts, allowed)])
    cut = {split: _parts(rows, parts, sizes) for split, rows in own.items()}
    found = []
    for number, rows in enumerate(cut["train"]):
        columns = {column: take(values, rows) for column, values in table.keys.items()}
        apart = {split: take(features, cut[split][number]) for split in cut if split != "train"}
        known = None if labels is None else labels[rows]
        found.append(RelationalPart(table.name, columns, take(features, rows), known, apart))
    return found


def _parts(rows: np.ndarray, parts: int, sizes: Sequence[int] | None) -> list[np.ndarray]:
    """Ascending `rows` of a table, cut into its horizontal parts: equal ones, or of the given `sizes`."""
    if sizes is None:
        return np.array_split(rows, parts)
    return np.split(rows, np.searchsorted(rows, np.cumsum(sizes)[:-1]))


def _check_labels(raw: RawTables) -> None:
    labels = raw.labels
    where = f"table {raw.label_table}"
    if not np.isfinite(labels).all():
        raise DataError(f"{where}: {int((~np.isfinite(labels)).sum())} labels are missing or not finite")
    if raw.classes and len(labels) and (labels.min() < 0 or labels.max() >= raw.classes):
        row = int(np.flatnonzero((labels < 0) | (labels >= raw.classes))[0])
        raise DataError(f"{where}, row {row}: label {labels[row]} is not a class from 0 to {raw.classes - 1}")


def joining(table: RawTable, joins: Sequence[Equality]) -> dict[str, np.ndarray]:
    """The keys that some predicate names: a NULL in any other drops no row."""
    named = {column for equality in joins for name, column in (equality.left, equality.right) if name == table.name}
    return {column: values for column, values in table.keys.items() if column in named}


def _check_classes(
    raw: RawTables, splits: Mapping[str, np.ndarray], mapped: Mapping[str, Mapping[str, np.ndarray]], metric: Metric
) -> None:
    """Check that AUROC has both classes among the joined rows that are scored."""
    for split in mapped.keys() - {"train"} if metric.name == "auroc" else ():
        joined = raw.labels[splits[split]][mapped[split][raw.label_table]]
        if len(found := np.unique(joined)) < 2:
            reason = f"the {split} rows that join have class {found[0]} only, and auroc needs two"
            zero, one = np.bincount(raw.labels, minlength=2)
            counted = (
                f"It has {zero} rows of class 0 and {one} of class 1; {len(splits[split])} are {WORDS[split]} rows"
            )
            advice = f"A larger dataset.{'validation' if split == 'val' else 'test'} or another seed may help"
            raise DataError(f"table {raw.label_table}: {reason}. {counted}. {advice}")


def _handed_over(table: RawTable, rows: np.ndarray) -> Keys:
    keys = {column: take(values, rows) for column, values in table.keys.items()}
    return hand_over(keys, len(rows), "none", table.name)


def take(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """`values[rows]`, as a view if the rows are contiguous, so that a memory map is not read."""
    contiguous = len(rows) and rows[-1] - rows[0] == len(rows) - 1 and bool((np.diff(rows) == 1).all())
    taken: np.ndarray = values[rows[0] : rows[-1] + 1] if contiguous else values[rows]
    return taken


def moments(values: np.ndarray, pieces: Sequence[np.ndarray | slice]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the known values of each column, float64.

    Parameters
    ----------
    pieces : rows, in pieces that fit into memory.
    """
    count = np.maximum(sum((~np.isnan(values[rows])).sum(axis=0) for rows in pieces), 1)
    mean = sum(np.nansum(values[rows], axis=0, dtype=np.float64) for rows in pieces) / count
    with np.errstate(over="ignore", invalid="ignore"):  # the caller refuses infinite values
        squares = sum(np.nansum((values[rows] - mean) ** 2, axis=0) for rows in pieces)
    return mean, np.sqrt(squares / count)


def standardize(table: RawTable, fit_on: np.ndarray | None = None) -> np.ndarray:
    """Features with mean 0 and variance 1 over the rows `fit_on` (None: all), (n, d) float32.

    Missing values become the mean, and constant columns 0.

    Raises
    ------
    DataError : a value is infinite, or a column's variance is beyond float64.
    """
    values = table.features
    infinite = np.isinf(values)
    if infinite.any():
        row, place = np.argwhere(infinite)[0]
        where = f"table {table.name}, column {table.columns[place]}, row {row}"
        raise DataError(f"{where}: {values[row, place]} is not a finite number")
    mean, spread = moments(values, [slice(None) if fit_on is None else fit_on])
    if not np.isfinite(spread).all():
        place = int(np.argmin(np.isfinite(spread)))
        row = int(np.nanargmax(np.abs(values[:, place])))
        where = f"table {table.name}, column {table.columns[place]}, row {row}"
        raise DataError(f"{where}: {values[row, place]} is too large a number")
    scale = np.where(spread > 1e-12 * np.maximum(np.abs(mean), 1e-300), spread, np.inf)
    scaled: np.ndarray = np.nan_to_num((values - mean) / scale, nan=0.0)
    return scaled.astype(np.float32)
