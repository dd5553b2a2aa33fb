"""Tables of your own: one CSV or Parquet file that is divided, or one file per party, the labels' owner first.

`dataset.alignment` says how rows of several files are brought together. They stand in the order of the first file.

given  With `id` every file has the same IDs, in any order. Without it row i of all files is the same sample, and you
       vouch for that. If files share a column of distinct values in another order, they are refused (positions.py). A
       column of whole numbers, texts or dates that confirms the order is no feature.
psi    The rows whose ID is in every file, found by private set intersection (ECDH; openmined-psi). The labels' owner is
       the client, and every other party is a server. The owner learns which of its IDs each other party has; the others
       learn how many it has. Then it tells them the IDs that all have, as SHA-256. This is done once, before the run
       and in this process, in about 0.5 ms per ID.
hashed The rows whose ID is in every file, found by comparing hashes: every other party sends the SHA-256 of its IDs to
       the labels' owner, which answers with the places of those that all have. Whoever can guess an ID can try its
       hash: this keeps only IDs secret that nobody can list.

`data/readers/identifiers.py` says when two IDs are equal. Rounded IDs are refused. Similar ones are named and never
matched.

The messages of both are on the ledger, in the phase `align`; no wall time includes them.
"""

import contextlib
import dataclasses
import importlib.util
import itertools
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from vflbench.cards.data.tabular.tabular_files import Config
from vflbench.data.columns import inspection, judging, labels, leaks
from vflbench.data.columns.judging import Judged
from vflbench.data.columns.labels import Labels
from vflbench.data.divide import splits
from vflbench.data.readers import table_sources
from vflbench.data.readers.table_sources import ReadTable, Source
from vflbench.data.tabular import alignment, entries, own_splits, table
from vflbench.data.tabular.alignment import Alignment
from vflbench.data.tabular.table import Table
from vflbench.data.tasks import AlignedTask, RelationalTask, ShardedTask
from vflbench.data.tasks.base import replace_at
from vflbench.types import ConfigError, DataError, DataSource, Metric, Problem, closest, refuse

log = logging.getLogger(__name__)
FEWEST = 10  # samples that can be divided into training, validation and test
FEW = 64  # columns of a file: of more, enough become features for every default number of parties


def check(config: Config, layout: str, parties: int) -> list[Problem]:
    """What is wrong with the configuration, before anything is read."""
    # the real number is known once the header is read
    columns = sum(config.columns) if config.columns else max(parties, 1)
    problems = table.check(config, layout, parties, columns)
    several, count = len(config.files) > 1, f"({len(config.files)} files)"

    def add(key: str, value: object, allowed: str) -> None:
        problems.append(Problem(f"dataset.{key}", value, allowed))

    if not config.files:
        add("files", "[]", f"must name a file, or one for each party: {table_sources.TABLES}")
    elif several and layout == "sharded":
        add("files", count, "workers share one file, whose rows are dealt to them")
    elif several and len(config.files) != parties:
        add("files", count, f"must be one file, or one for each of the {parties} parties, the labels' owner first")
    problems += entries.check(config.files)
    if len(set(map(len, ids := ids_of(config)))) > 1:
        found = ", ".join(f"{entries.as_entry(file).path}: {own}" for file, own in zip(config.files, ids, strict=True))
        add("id", found, "every file needs as many columns that identify a sample together, in the same order")
    if several and config.columns is not None:
        add("columns", config.columns, "every party has its own file and the columns in it: leave it null")
    if several and config.order != "file":
        add("order", config.order, "every party has its own file and the columns in it: use file")
    if not config.label:
        add("label", "null", "must name the column to predict, which is in the first file")
    if config.own_rows != "ignore" and (not several or config.alignment == "given"):
        add("own_rows", config.own_rows, "is for a file per party with alignment=psi or hashed: else all have all rows")
    alone = ids[0][0] if ids and len(ids[0]) == 1 else None  # of several columns one may name the entity, or the time
    problems += splits.check_keys(config, {"dataset.label": config.label, "dataset.id": alone})
    return problems + (_check_matching(config) if config.alignment != "given" else [])


def _check_matching(config: Config) -> list[Problem]:
    problems = []
    if len(config.files) < 2:
        allowed = "is for a file per party; one file has nothing to align"
        problems.append(Problem("dataset.alignment", config.alignment, allowed))
    if not all(ids_of(config)):
        allowed = f"alignment={config.alignment} needs the column that identifies a sample in every file"
        problems.append(Problem("dataset.id", "null", allowed))
    if config.alignment == "psi" and importlib.util.find_spec("private_set_intersection") is None:
        allowed = "needs the package openmined-psi: pip install 'vflbench[psi]'"
        problems.append(Problem("dataset.alignment", "psi", allowed))
    return problems


def ids_of(config: Config) -> list[list[str]]:
    """Per file the columns that together identify a sample; none: rows are matched by their order."""
    own = [config.id if (id := entries.as_entry(file).id) is None else id for file in config.files]
    return [[id] if isinstance(id, str) else [*(id or ())] for id in own]


def looked_at(config: Config, names: Sequence[Iterable[str]]) -> list[list[str]]:
    """Per file the columns, of those it has, that may show how rows of several files belong together."""
    return [[name for name in own if name not in {config.label, *config.leave_out}] for own in names]


def most_parties(config: Config, layout: str, root: Path | None) -> int | None:
    """How many features one file has to divide; None for a file per party, whose number is that of the files.

    Raises
    ------
    ConfigError, DataError : as `load`.
    """
    if layout != "aligned" or len(config.files) != 1:
        return None
    (source,) = entries.find(config.files, root)
    (names,) = _features(config, [source], [table_sources.columns(source)])
    if len(names) > FEW:
        return len(names)
    return len(_kept(inspection.inspect(table_sources.read_table(source, names), names, slice(None), config)))


def load(
    config: Config, layout: str, parties: int, seed: int, root: Path | None
) -> AlignedTask | RelationalTask | ShardedTask:
    """The samples: each party has the columns of its file, or its share of the one file.

    Raises
    ------
    ConfigError : see `check`; also columns that the files' headers lack.
    DataError : naming the file, and of text the line.
    """
    refuse(check(config, layout, parties))
    try:
        return _load(config, layout, parties, seed, root)
    except (ConfigError, DataError) as error:
        with alignment.quiet():  # it has said what it found
            raise problems(config, root).error(error) from None


def _load(
    config: Config, layout: str, parties: int, seed: int, root: Path | None
) -> AlignedTask | RelationalTask | ShardedTask:
    """As `load`, up to the first problem."""
    assert config.label
    sources = entries.find(config.files, root)
    names = [table_sources.columns(source) for source in sources]
    features, ids = _features(config, sources, names), ids_of(config)
    several, evidence = len(sources) > 1, looked_at(config, names)
    tables = _read(config, sources, evidence)
    as_given = tables[0].columns[config.label].values
    label = labels.read(tables[0], config.label, config.task, config)
    blanks = [[*inspection.blank(*own)] for own in zip(tables, features, strict=True)]
    matched = alignment.align(ids, config.alignment, tables, evidence)
    rows = matched.rows
    labels.refuse_missing(label.null, config.label, tables[0], rows[0])
    judged = _judged(config, tables, features, matched, label)
    reports = [
        [*([label.judged.report] if i == 0 else []), *(one.report for one in own)] for i, own in enumerate(judged)
    ]
    for line in inspection.remark_lines(itertools.chain(*reports), "warning"):
        log.warning("%s", line)
    if layout == "aligned" and not several:
        refuse(table.check_columns(config.columns, parties, len(_kept(judged[0]))))
    whole = _table(config, judged, rows, label.values[rows[0]], label.classes)
    if len(whole.labels) < FEWEST:
        raise DataError(f"{' and '.join(map(str, sources))}: {len(whole.labels)} samples; at least {FEWEST} are needed")
    whole = _divided(config, whole, tables[0], rows[0], label, seed)
    if several:
        config = dataclasses.replace(config, columns=[len(_kept(own)) for own in judged])
    origin, metric = _origin(sources, matched, label), _metric(label.classes)
    task = table.divide(config, whole, origin, metric, layout=layout, parties=parties, seed=seed)
    labelled = int((~label.null[inspection.take(rows[0], tables[0].rows)]).sum())
    about = inspection.summary(tables, rows, reports, blanks, labelled, matched.named)
    about = own_splits.with_split_sizes(config, about, whole, as_given[rows[0]])
    task = dataclasses.replace(task, source=dataclasses.replace(task.source, tables=about))
    if not several:
        return task
    assert isinstance(task, AlignedTask)  # of several files there is no other layout
    every = np.arange(len(whole.labels))
    held_rows = tuple(every if isinstance(own, slice) else own for own in rows)
    return dataclasses.replace(task, rows=held_rows, splits=whole.splits)


def _read(config: Config, sources: Sequence[Source], evidence: Sequence[Sequence[str]]) -> list[ReadTable]:
    """Per file its columns to learn from, its IDs, and what may show how rows belong together; of the first the label.

    Raises
    ------
    DataError : a file cannot be read, or has no rows.
    """
    tables = []
    for i, (source, own, ids) in enumerate(zip(sources, evidence, ids_of(config), strict=True)):
        decisive = [config.label, config.time, config.entity] if i == 0 else []  # about the rows, of the labels' owner
        wanted = list(dict.fromkeys([*own, *filter(None, decisive), *ids]))
        tables.append(table_sources.read_table(source, wanted, dict.fromkeys(ids, "id")))
        _refuse_empty(tables[-1])
    return tables


def _judged(
    config: Config,
    tables: Sequence[ReadTable],
    features: Sequence[Sequence[str]],
    matched: Alignment,
    label: Labels,
) -> list[list[Judged]]:
    """Per file what becomes of its columns, which are taken out of `tables`.

    Raises
    ------
    DataError : columns must be mended, or none is left.
    """
    assert config.label
    rows = matched.rows
    files = zip(tables, features, rows, matched.named, strict=True)
    judged = [inspection.inspect(file, own, used, config, named) for file, own, used, named in files]
    _refuse(tables, judged)
    who = judging.category(tables[0].columns[config.entity])[0][rows[0]] if config.entity else None
    return leaks.mark(judged, rows, label.values[rows[0]], label.classes, config.label, who)


def _divided(
    config: Config, whole: Table, file: ReadTable, used: np.ndarray | slice, label: Labels, seed: int
) -> Table:
    """The table with its splits, and with the rows to train on that only the labels' owner has.

    Parameters
    ----------
    whole : the rows `used` of the labels' `file`.
    """
    others = inspection.take(used, file.rows)
    labelled = np.flatnonzero(~label.null[others])
    more = others[labelled] if config.own_rows == "train" else others[:0]
    whole, train = own_splits.divided(config, whole, file, np.arange(file.rows)[used], more, seed)
    if train.any():
        whole = dataclasses.replace(whole, labelled=(labelled[train], label.values[more[train]]))
    return whole


def _origin(sources: Sequence[Source], matched: Alignment, label: Labels) -> DataSource:
    """Where the data come from."""
    note = "; ".join(filter(None, ("the user's own files", matched.note, label.note)))
    files = tuple((Path(source.url).name, table_sources.stamp(source) or "") for source in sources)
    return DataSource("real", note=note, files=files, alignment=matched.messages)


def _metric(classes: int) -> Metric:
    return Metric("rmse", "min") if not classes else Metric("auroc" if classes == 2 else "accuracy", "max")


def load_own(
    config: Config, layout: str, parties: int, seed: int, root: Path | None, task: AlignedTask, index: int
) -> AlignedTask:
    """`task`, which was aligned elsewhere, with the columns of party `index`, read from its own file alone.

    `task.rows[index]` says which of its rows are the samples, in their order. So the party sees no other party's IDs.

    Raises
    ------
    DataError : as `load`; the file has changed since.
    """
    assert task.rows is not None
    (source,) = entries.find([config.files[index]], root)
    name = Path(source.url).name
    if (name, table_sources.stamp(source) or "") not in task.source.files:
        advice = "start again once it is left alone"
        raise DataError(f"{source} has changed since the files were brought together; {advice}")
    none = {*ids_of(config)[index], config.time, config.entity, *config.leave_out}
    none |= {config.label} if index == 0 else set()
    names = [column for column in table_sources.columns(source) if column not in none]
    rows = task.rows[index]
    named = task.source.tables[index]["names_rows"]
    judged = inspection.inspect(table_sources.read_table(source, names), names, rows, config, named)
    part = _table(config, [judged], [rows], np.zeros(len(rows)), 0)
    more = (task.own.places, task.own.labels) if index == task.owner and task.own is not None else None
    part = dataclasses.replace(part, splits=task.splits, labelled=more)
    config = dataclasses.replace(config, columns=[len(_kept(judged))])
    own = table.divide(config, part, task.source, task.metric, layout=layout, parties=1, seed=seed)
    assert isinstance(own, AlignedTask)
    held_out = {
        split: replace_at(blocks, index, own.held_out_features[split][0])
        for split, blocks in task.held_out_features.items()
    }
    features = replace_at(task.features, index, own.features[0])
    return dataclasses.replace(task, features=features, held_out_features=held_out, own=own.own)


def problems(config: Config, root: Path | None) -> inspection.Findings:
    """Every problem of the files, as far as each can be read; the label may be missing."""
    found = inspection.Findings()
    sources = [named[0] if (named := found.attempt(entries.find, [file], root)) else None for file in config.files]
    names: list[list[str] | None] = []
    for source in sources:
        names.append(None if source is None else found.attempt(table_sources.columns, source))
    known = [source or entries.source(file) for source, file in zip(sources, config.files, strict=True)]
    # A file that cannot be read is not blamed for lacking a column.
    ids, wanted = ids_of(config), [*config.leave_out, *config.categories, *config.numbers]
    listed = [own or [*([config.label or ""] if i == 0 else []), *ids[i], *wanted, "?"] for i, own in enumerate(names)]
    found.attempt(_features, config, known, listed)
    held: list[ReadTable | None] = []
    for source, own, named_ids in zip(known, names, ids, strict=True):
        types = {column: "id" for column in named_ids if own and column in own}
        read = own and found.attempt(table_sources.read_table, source, own, types)
        held.append(read if read and found.attempt(_refuse_empty, read) is not None else None)
    whole = [own is not None and _has_ids(own, named) for own, named in zip(held, ids, strict=True)]
    evidence = looked_at(config, [() if own is None else own.columns for own in held])
    tables = [own for own in held if own is not None]
    files = alignment.Files(ids, tables, evidence) if all(whole) else None
    for i, one in enumerate(held):
        if one is not None:
            _note_columns(config, one, ids[i], None if i else _in_all(config, held), found)
            for line in alignment.rows_of(one, ids[i], files).wrong if ids[i] and whole[i] else ():
                found.note(line)
    if config.alignment == "given" and all(whole):
        found.attempt(alignment.align, ids, config.alignment, tables, evidence)
    return found


def _has_ids(table: ReadTable, ids: Sequence[str]) -> bool:
    return set(ids) <= table.columns.keys()


def _in_all(config: Config, tables: Sequence[ReadTable | None]) -> np.ndarray | slice:
    """The rows of the first file that all files have, as far as their IDs can be read."""
    known = zip(tables, ids_of(config), strict=True)
    files = [(table, ids) for table, ids in known if table is not None and _has_ids(table, ids)]
    if config.alignment == "given" or not files or files[0][0] is not tables[0]:
        return slice(None)
    first, *others = (alignment.rows_of(*own).of for own in files)
    return np.array([row for name, row in first.items() if all(name in other for other in others)], np.int64)


def _note_columns(
    config: Config,
    table: ReadTable,
    ids: Sequence[str],
    used: np.ndarray | slice | None,
    found: inspection.Findings,
) -> None:
    """Note the problems of a file's columns; of the labels' file `used` says which rows all files have."""
    none = {*ids, config.time, config.entity, *config.leave_out, *([config.label] if used is not None else [])}
    features = [name for name in table.columns if name not in none]
    if used is not None and config.label and config.label in table.columns:
        label = found.attempt(labels.read, table, config.label, config.task, config)
        if label is not None:
            found.attempt(labels.refuse_missing, label.null, config.label, table, used)
    if used is not None and all(name in table.columns for name in (config.time, config.entity) if name):
        found.attempt(own_splits.facts, config, table, np.arange(table.rows)[used])
    copied = dataclasses.replace(table, columns=dict(table.columns))
    judged = inspection.inspect(copied, features, slice(None), config)
    for line in inspection.errors(table, judged):
        found.note(line)


# --- files and their columns ------------------------------------------------------------------------------------------


def _features(config: Config, sources: Sequence[Source], names: Sequence[Sequence[str]]) -> list[list[str]]:
    """The columns to learn from, per file."""
    problems, ids = [], ids_of(config)

    def needs(column: str | None, key: str, where: int) -> None:
        if column is not None and column not in names[where]:
            near = closest(column, names[where])
            allowed = f"{sources[where]} has no such column (of {len(names[where])})"
            problems.append(Problem(key, column, allowed + _in_quotes(key, column, names[where]), near))

    for key in ("label", "time", "entity"):
        needs(getattr(config, key) or None, f"dataset.{key}", 0)
    for i, source in enumerate(sources):
        for column in ids[i]:
            needs(
                column,
                f"dataset.files[{i}].id" if entries.as_entry(config.files[i]).id is not None else "dataset.id",
                i,
            )
        if i and config.label in names[i] and config.label not in config.leave_out:
            allowed = f"{source}, another party's file, has a column of this name, too: give it another name"
            problems.append(Problem("dataset.label", config.label, allowed))
    problems += _unknown(config, {name for own in names for name in own})
    if config.label and (config.label in config.leave_out or config.label in ids[0]):
        problems.append(Problem("dataset.label", config.label, "is also dataset.id or in dataset.leave_out"))
    none = {config.label, config.time, config.entity, *config.leave_out}
    features = [[name for name in own if name not in none.union(ids[i])] for i, own in enumerate(names)]
    for source, own in zip(sources, features, strict=True):
        if not own:
            problems.append(Problem("dataset.files", source.url, "has no column to learn from"))
    refuse(problems)
    return features


def _unknown(config: Config, known: set[str]) -> list[Problem]:
    """Columns that a key lists and no file has."""
    problems = []
    for option in ("leave_out", "categories", "numbers"):
        for column in getattr(config, option):
            if column not in known:
                allowed = "no file has such a column" + _in_quotes(f"dataset.{option}", column, known, "[{}]")
                problems.append(Problem(f"dataset.{option}", column, allowed, closest(column, known)))
    return problems


def _in_quotes(key: str, column: str, names: Iterable[str], form: str = "{}") -> str:
    """How to write the name of a column that was read as a number; an empty text where no name is that number."""
    try:
        number = float(column)
    except ValueError:
        return ""
    for name in names:
        with contextlib.suppress(ValueError):
            if float(name) == number:
                quoted = form.format(f'"{name}"')
                leaf = key.removeprefix("dataset.")
                return (
                    f"; it is read as a number. Quote {name}: {leaf}: {quoted} in an option file, or {key}='{quoted}'"
                )
    return ""


# --- columns as numbers -----------------------------------------------------------------------------------------------


def _kept(judged: Sequence[Judged]) -> list[Judged]:
    """The columns that become features."""
    return [own for own in judged if own.values is not None]


def _refuse(tables: Sequence[ReadTable], judged: Sequence[Sequence[Judged]]) -> None:
    """Refuse columns that must be mended, and files of which no column is left."""
    for file, own in zip(tables, judged, strict=True):
        if wrong := inspection.errors(file, own):
            raise DataError(wrong[0])
        if not _kept(own):
            why = "; ".join(
                f"{one.report.name}: {one.report.remarks[0].message}" for one in own[: inspection.MOST_NAMED]
            )
            raise DataError(f"{file}: no column is left to learn from ({why})")


def _table(
    config: Config,
    judged: Sequence[Sequence[Judged]],
    rows: Sequence[np.ndarray | slice],
    labels: np.ndarray,
    classes: int,
) -> Table:
    """The chosen rows of all files side by side."""
    names: list[str] = []
    levels: dict[str, tuple[str, ...]] = {}
    values = np.empty((len(labels), sum(len(_kept(own)) for own in judged)))
    alone = []  # what each party knows of the rows that not all have
    for party, (own, chosen) in enumerate(zip(map(_kept, judged), rows, strict=True)):
        others = []
        for one in own:
            assert one.values is not None
            name = f"{party}/{one.report.column}"  # two files may have columns of one name
            if one.levels is not None:
                levels[name] = one.levels
            values[:, len(names)] = one.values[chosen]
            others.append(one.values[inspection.take(chosen, len(one.values))])
            names.append(name)
        alone.append(np.stack(others, axis=1))
    fit = config.own_rows != "ignore" and any(map(len, alone))
    return Table(values, tuple(names), levels, labels, classes, tuple(alone) if fit else ())


def _refuse_empty(table: ReadTable) -> None:
    if not table.rows:
        raise DataError(f"{table}: has no rows")
