"""A table of columns with a label: how it is read from text, and how it becomes a task.

Layout aligned: the columns are divided between the parties in their order, or that of `dataset.order`, evenly or as
`dataset.columns` says. A category is one column, and its one-hot columns stay with one party. With `problem=learning`
rows are held out. With `ridge` or `sparse_logistic` all rows are training samples of a convex problem
(tabular/convex.py).

Layout sharded (learning only): whole rows are dealt to workers.

Layout relational (learning only): every organisation's columns are a table, and tables join where their row ids are
equal. Matching them costs messages, as any join does.

Categories, means and scales are fitted on training rows. With shards these are the rows of all workers together. The
few numbers count as public: no epsilon covers them.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from vflbench.cards.data.tabular.table import ClassKeys as ClassKeys  # where plug-ins look for it
from vflbench.cards.data.tabular.table import Keys, Order
from vflbench.cards.data.tabular.table import RegressionKeys as RegressionKeys
from vflbench.data.divide import partition
from vflbench.data.divide import raw_tables as joined
from vflbench.data.divide.raw_tables import RawTable, RawTables
from vflbench.data.divide.splits import SPLITS, check_fractions, draw
from vflbench.data.readers import csv_files
from vflbench.data.tabular.convex import task
from vflbench.data.tasks import AlignedTask, Equality, Objective, OwnRows, RelationalTask, Shard, ShardedTask
from vflbench.seeding import stream
from vflbench.types import ConfigError, DataError, DataSource, Metric, Problem


@dataclass(frozen=True)
class Table:
    """Rows and columns, not encoded yet."""

    values: np.ndarray  #: (n, d): numbers, NaN: missing; in a categorical column the index of the level
    columns: tuple[str, ...]  #: d names
    levels: Mapping[str, tuple[str, ...]]  #: categorical column -> its levels
    labels: np.ndarray  #: (n,) float64 targets, or int64 classes
    classes: int  #: 0: regression
    #: per party, (m_k, w_k): its columns of rows that not all parties have, which count for means, scales and levels
    own: tuple[np.ndarray, ...] = ()
    #: of party 0's `own`, the places of rows to learn from, and their labels; None: none is
    labelled: tuple[np.ndarray, np.ndarray] | None = None
    times: np.ndarray | None = None  #: (n,) of rows that have one: later is larger
    entities: np.ndarray | None = None  #: (n,) int64, equal for rows of one entity, where they have one
    splits: Mapping[str, np.ndarray] | None = None  #: the rows of each part, where they are drawn already


# --- the configuration's keys -----------------------------------------------------------------------------------------


def check(config: Keys, layout: str, parties: int, columns: int) -> list[Problem]:
    """What is wrong with the keys that all tabular data sets share.

    Parameters
    ----------
    columns : how many the data set has.
    """
    problems = check_fractions(config.validation, config.test)
    if config.plan.split == "time" and config.problem != "learning":
        problems.append(Problem("dataset.split", "time", f"problem={config.problem} holds no rows out: use random"))
    if layout == "relational" and config.problem != "learning":
        allowed = "methods over joins have no convex problem: use learning"
        problems.append(Problem("dataset.problem", config.problem, allowed))
    if layout != "sharded":
        return problems + check_columns(config.columns, parties if layout == "aligned" else tables(config), columns)
    if config.columns is not None:
        allowed = "workers with rows of their own have all columns: leave it null"
        problems.append(Problem("dataset.columns", config.columns, allowed))
    if config.order != "file":
        allowed = "workers with rows of their own have all columns, which are not divided: use file"
        problems.append(Problem("dataset.order", config.order, allowed))
    if config.problem != "learning":
        allowed = "workers with rows of their own have no convex problem: use learning"
        problems.append(Problem("dataset.problem", config.problem, allowed))
    return problems + partition.check_sharding(config, config.regression)


def tables(config: Keys) -> int:
    """Layout relational: how many tables the columns make, one for each organisation."""
    return 2 if config.columns is None else len(config.columns)


def check_columns(given: Sequence[int] | None, parties: int, columns: int) -> list[Problem]:
    """What is wrong with a division of columns: every party needs one, and every column a party.

    Parameters
    ----------
    given : how many each party has; None: evenly.
    """
    if not 1 <= parties <= columns:
        allowed = f"must lie between 1 and {columns}, the number of columns to divide between the parties"
        return [Problem("algorithm.parties", parties, allowed)]
    if given is None:
        return []
    if len(given) != parties:
        allowed = f"has {len(given)} numbers, but there are {parties} parties: one for each, the labels' owner first"
        return [Problem("dataset.columns", list(given), allowed)]
    if min(given) < 1:
        return [Problem("dataset.columns", list(given), "every party needs at least 1 column")]
    if sum(given) != columns:
        allowed = f"adds up to {sum(given)}, but there are {columns} columns to divide"
        return [Problem("dataset.columns", list(given), allowed)]
    return []


def party_columns(
    given: Sequence[int] | None, parties: int, columns: int, order: Order = "file", seed: int = 0
) -> list[slice] | list[np.ndarray]:
    """The columns of each party, ascending.

    Parameters
    ----------
    given : how many each party has; None: evenly.
    order : `file` gives each party the next ones; `interleaved` deals them one by one until a party has all of its own;
        `shuffled` gives each the next ones of a random order, by the stream "columns" of `seed`.
    """
    sizes = [len(own) for own in np.array_split(np.arange(columns), parties)] if given is None else list(given)
    if order == "file":
        ends = np.cumsum([0, *sizes]).tolist()
        return [slice(first, end) for first, end in itertools.pairwise(ends)]
    if order == "interleaved":
        turns = sorted((turn, party) for party, size in enumerate(sizes) for turn in range(size))
        owner = np.array([party for _, party in turns])
        return [np.flatnonzero(owner == party) for party in range(parties)]
    drawn = stream(seed, "columns").permutation(columns)
    return [np.sort(own) for own in np.split(drawn, np.cumsum(sizes)[:-1])]


# --- to a task --------------------------------------------------------------------------------------------------------


def divide(
    config: Keys,
    table: Table,
    source: DataSource,
    metric: Metric,
    *,
    layout: str,
    parties: int,
    seed: int,
    scaling: Literal["standard", "range"] = "standard",
    shape: tuple[int, ...] = (-1,),
) -> AlignedTask | RelationalTask | ShardedTask:
    """The task of `table`, divided between `parties`.

    Layout aligned divides the columns (party 0 has the labels), sharded the rows. Relational divides the columns
    between as many tables as `tables` says, each in `parties` horizontal parts.

    learning: features are float32, and `drawn` gives the splits. Convex: features are float64 of
    all rows. Ridge divides standardised rows and labels by sqrt(N): f is then half the mean squared error plus the
    penalty, whatever N is.

    Parameters
    ----------
    metric : of `problem=learning`; that of a convex problem is suboptimality.
    scaling : of numbers: to mean 0 and variance 1, or to 0 .. 1; a constant column becomes 0.
    shape : of a worker's row, where it is an image and all columns are numbers.

    Raises
    ------
    ConfigError : columns that do not divide between the parties; see also partition.shard.
    DataError : a constant target; numbers whose spread is not finite; see also convex.task.
    """
    if layout == "aligned" and (problems := check_columns(config.columns, parties, table.values.shape[1])):
        raise ConfigError(problems)
    rows = sampled(config, table.labels)
    if len(rows) < len(table.labels):
        note = "; ".join(filter(None, (source.note, f"{len(rows)} of its {len(table.labels)} rows")))
        source = replace(source, note=note)
    splits = {"train": rows}
    if config.problem == "learning":
        splits = dict(table.splits or drawn(config, table, seed))
    if layout == "relational":
        encodings = _blocks(config, table, tables(config), {**splits, "all": rows}, scaling, np.float32, seed)
        whole = _by_row_id([encoding["all"] for encoding in encodings], table.labels[rows], table.classes)
        divided = {split: np.searchsorted(rows, splits.get(split, rows[:0])) for split in SPLITS}
        return joined.divide(
            config.name, whole, divided, source, metric, layout=layout, parts=parties, standardized=True
        )
    labels = {split: table.labels[chosen] for split, chosen in splits.items()}
    if layout == "sharded":
        encoded = encode(table, slice(None), splits, scaling, np.float32, largest=config.largest)
        kind = np.int64 if table.classes else np.float32
        shards = {split: Shard(encoded[split].reshape(len(y), *shape), y.astype(kind)) for split, y in labels.items()}
        how = {"classes": table.classes, "workers": parties, "seed": seed}
        return partition.shard(config.name, shards.pop("train"), shards, source, metric, config, **how)
    dtype = np.float32 if config.problem == "learning" else np.float64
    parts = _blocks(config, table, parties, splits, scaling, dtype, seed)
    if config.problem != "learning":
        return _convex(config, [part["train"] for part in parts], labels["train"], source)
    return _aligned(config.name, table, parts, labels, source, metric)


def _aligned(
    name: str,
    table: Table,
    parts: Sequence[Mapping[str, np.ndarray]],
    labels: dict[str, np.ndarray],
    source: DataSource,
    metric: Metric,
) -> AlignedTask:
    """The task of encoded columns, per party and split."""
    blocks = {split: tuple(part[split] for part in parts) for split in labels}
    train, known = blocks.pop("train"), labels.pop("train")
    more = None
    if table.labelled is not None:
        places, more_labels = table.labelled
        more = OwnRows(parts[0]["own"][places], more_labels, places)
    return AlignedTask(name, source, metric, table.classes, 0, train, known, blocks, labels, own=more)


def _convex(config: Keys, features: list[np.ndarray], target: np.ndarray, source: DataSource) -> AlignedTask:
    """The convex problem of encoded columns, per party."""
    assert config.problem != "learning"
    if config.problem == "ridge":
        if target.std() <= 1e-12 * np.abs(target).max():
            reason = f"the target is the same in all {len(target)} rows: there is nothing to learn"
            raise DataError(f"dataset {config.name}: {reason}")
        target = (target - target.mean()) / (target.std() * np.sqrt(len(target)))
        features = [block / np.sqrt(len(target)) for block in features]
    return task(config.name, source, features, target, Objective(config.problem, config.weight))


def sampled(config: Keys, labels: np.ndarray) -> np.ndarray:
    """The rows that `dataset.samples` leaves, ascending; of each class alike where the split is stratified."""
    count = len(labels)
    if config.samples is None or config.samples >= count:
        return np.arange(count)
    order = stream(0, f"samples/{config.name}").permutation(count)
    if config.plan.stratified:
        _, codes, sizes = np.unique(labels[order], return_inverse=True, return_counts=True)
        places = np.empty(count)  # of each row among those of its class
        places[np.argsort(codes, kind="stable")] = np.concatenate([np.arange(size) for size in sizes])
        share = np.where(places < len(SPLITS), -1, (places + 0.5) / sizes[codes])  # first a row for each part
        order = order[np.argsort(share, kind="stable")]
    return np.sort(order[: config.samples])


def drawn(config: Keys, table: Table, seed: int) -> dict[str, np.ndarray]:
    """The rows of each part that has any, ascending.

    Raises
    ------
    DataError : see `splits.draw`.
    """
    rows = sampled(config, table.labels)
    times, entities = (None if own is None else own[rows] for own in (table.times, table.entities))
    how = config.plan
    found = draw(how, table.labels[rows], config.validation, config.test, seed, times=times, entities=entities)
    return {split: rows[chosen] for split, chosen in found.items() if len(chosen)}


def _blocks(
    config: Keys, table: Table, parties: int, splits: Mapping[str, np.ndarray], scaling: str, dtype: type, seed: int
) -> list[dict[str, np.ndarray]]:
    """Per party its columns, encoded."""
    owned: Sequence[slice | np.ndarray] = party_columns(
        config.columns, parties, table.values.shape[1], config.order, seed
    )
    return [
        encode(table, own, splits, scaling, dtype, table.own[party] if table.own else None, config.largest)
        for party, own in enumerate(owned)
    ]


def _by_row_id(blocks: Sequence[np.ndarray], labels: np.ndarray, classes: int) -> RawTables:
    """Each block as a table, joined with the first one, which has the labels, where row ids are equal."""
    made = [RawTable(f"party_{k}", {"row": np.arange(len(labels))}, block, ()) for k, block in enumerate(blocks)]
    joins = [Equality((made[0].name, "row"), (other.name, "row")) for other in made[1:]]
    return RawTables(tuple(made), made[0].name, labels, classes, tuple(joins))


def encode(
    table: Table,
    own: slice | np.ndarray,
    splits: Mapping[str, np.ndarray],
    scaling: str,
    dtype: type,
    more: np.ndarray | None = None,
    largest: float = np.inf,
) -> dict[str, np.ndarray]:
    """The columns `own` as features: numbers scaled and clipped, categories one-hot, in the order of the columns.

    Means, scales and levels are fitted on the split `train`, and on the rows `more`, (m, w), if any. A level that does
    not occur there gets no column. A missing number becomes 0, which is the mean if scaling is standard.

    Returns
    -------
    split -> (N_s, w); the rows `more` as `own`.
    """
    mine = table.values[:, own]
    fitted = mine[splits["train"]]
    known = fitted if more is None or not len(more) else np.concatenate([fitted, more])
    columns = np.array(table.columns, dtype=object)[own]
    numeric = np.array([name not in table.levels for name in columns])
    levels = [None if number else np.unique(known[:, i]) for i, number in enumerate(numeric)]
    ends = np.cumsum([1 if seen is None else len(seen) for seen in levels])
    names = [name for name, number in zip(columns, numeric, strict=True) if number]
    shift, scale = _scales(known[:, numeric], scaling, names)
    encoded = {}
    for split in [*splits, "own"] if known is not fitted else splits:
        values = known[len(fitted) :] if split == "own" else fitted if split == "train" else mine[splits[split]]
        out: np.ndarray = np.zeros((len(values), int(ends[-1])), dtype)
        with np.errstate(over="ignore"):
            if numeric.all():
                np.divide(values - shift.astype(values.dtype), scale, out=out, casting="same_kind")
            else:
                out[:, ends[numeric] - 1] = (values[:, numeric] - shift) / scale
        if largest < np.inf:
            np.clip(out, -largest, largest, out=out)
        elif len(out) and np.isinf([np.fmin.reduce(out, axis=None), np.fmax.reduce(out, axis=None)]).any():
            row, place = np.argwhere(np.isinf(out))[0]
            i = int(np.searchsorted(ends, place, side="right"))
            raise DataError(f"column {columns[i]}: {values[row, i]:g} is too far from the numbers of the training rows")
        if len(out) and np.isnan(out.min()):
            np.nan_to_num(out, copy=False, nan=0.0)
        for i, seen in enumerate(levels):
            if seen is not None:
                out[:, ends[i] - len(seen) : ends[i]] = values[:, i, None] == seen
        encoded[split] = out
    return encoded


def _scales(values: np.ndarray, scaling: str, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """What to subtract from each column, and then to divide it by: infinity for a constant one.

    Raises
    ------
    DataError : a column's numbers are so large that their spread is not finite.
    """
    shift, scale = _spread(values, scaling)
    for i in np.flatnonzero(np.isnan(shift)):
        known = values[~np.isnan(values[:, i]), i]
        if len(known) < len(values):  # else sums overflowed, both up and down
            shift[i], scale[i] = _spread(known, scaling) if len(known) else (0.0, 0.0)
    if (wrong := ~np.isfinite(shift) | ~np.isfinite(scale)).any():
        column = names[int(wrong.argmax())]
        raise DataError(f"column {column}: its numbers are so large that their spread is not finite")
    return shift, np.where(scale > 1e-12 * np.abs(shift), scale, np.inf)


def _spread(values: np.ndarray, scaling: str) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each column, or its smallest number and its range."""
    with np.errstate(over="ignore", invalid="ignore"):
        if scaling == "range":
            return values.min(axis=0).astype(np.float64), np.ptp(values, axis=0).astype(np.float64)
        return values.mean(axis=0, dtype=np.float64), values.std(axis=0, dtype=np.float64)


# --- from text --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """The columns of a text file, and which of them are categories."""

    columns: tuple[str, ...]
    levels: Mapping[str, tuple[str, ...]]
    separator: str = ","
    header: int = 1  #: the line with the names of the columns, where data begin below; 0: there is none
    skipped: tuple[str, ...] = ()  #: columns that are not read
    time: str | None = None  #: the column with a row's time, no feature
    in_turn: bool = False  #: rows of a file are later than those of the files before it

    @property
    def read(self) -> tuple[str, ...]:
        """The columns that are read."""
        return tuple(name for name in self.columns if name not in self.skipped)


def read_text(data: bytes, label: str, layout: Layout) -> np.ndarray:
    """The columns that are read, (n, d) float64: numbers, the index of a category's level, seconds since 1970.

    Raises
    ------
    DataError : naming file and line of the first line that does not fit the layout.
    """
    import pandas as pd

    if layout.header:
        csv_files.check_header(data, label, layout.columns, layout.separator, layout.header)
    kinds = {name: "text" if name in layout.levels else "number" for name in layout.read}
    kinds |= {layout.time: "time"} if layout.time else {}
    lines = data.rstrip(b"\r\n") + b"\n"
    held = csv_files.read(lines, label, layout.columns, kinds, skip=layout.header, separator=layout.separator)
    values = np.empty((len(held[layout.read[0]]), len(kinds)))
    for i, (name, cells) in enumerate(held.items()):
        levels = layout.levels.get(name)
        cells = cells.astype("datetime64[s]").astype(np.int64) if name == layout.time else cells
        values[:, i] = cells if levels is None else pd.Index(levels).get_indexer(pd.Index(cells))
        wrong = ~np.isfinite(values[:, i]) if levels is None else values[:, i] < 0
        allowed = "a number" if levels is None else f"one of {', '.join(levels)}"
        csv_files.refuse(label, layout.header + 1, cells, wrong, f"is not {allowed} ({name})")
    return values


def read_table(texts: Iterable[tuple[bytes, str]], layout: Layout, target: str) -> Table:
    """The lines of several texts of one layout as one table.

    Parameters
    ----------
    texts : each with its name in errors.
    target : the column to predict; its levels are the classes.

    Raises
    ------
    DataError : as `read_text`.
    """
    parts = [read_text(data, label, layout) for data, label in texts]
    values = np.concatenate(parts)
    place, classes = layout.read.index(target), len(layout.levels.get(target, ()))
    labels = values[:, place].astype(np.int64) if classes else values[:, place]
    apart, times = [place], np.repeat(np.arange(len(parts)), [*map(len, parts)]) if layout.in_turn else None
    if layout.time:
        apart.append(layout.read.index(layout.time))
        times = values[:, apart[-1]].astype(np.int64)
    columns = tuple(name for name in layout.read if name not in (target, layout.time))
    levels = {name: layout.levels[name] for name in columns if name in layout.levels}
    return Table(np.delete(values, apart, axis=1), columns, levels, labels, classes, times=times)
