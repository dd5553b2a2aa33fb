"""Tables of the user's own, each in its organisation's files or database; no party sees their join.

Every table is read twice, as in a federation: first all keys, for the mapping, then keys and features together. If the
keys differ, the table was changed meanwhile, which is an error. Each part is read from its own source over a connection
of its own.
"""

import dataclasses
import hashlib
import itertools
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from vflbench.cards.data.divide import plan
from vflbench.cards.data.relational.sql import Config
from vflbench.data.columns import inspection, row_facts
from vflbench.data.divide import raw_tables, splits
from vflbench.data.divide.raw_tables import RawTables
from vflbench.data.readers import table_sources
from vflbench.data.readers.cells import TYPES, Column, concatenate, digest, hashes, stable_order
from vflbench.data.readers.identifiers import near, quoted_pair
from vflbench.data.readers.table_sources import ReadTable, Source
from vflbench.data.relational.sql_columns import as_text, marked, misspelt, place_of, raw_table, summary
from vflbench.data.relational.sql_config import TASKS, called, check, deciding, joins_of, keys_of, parts_of, roles_of
from vflbench.data.tasks import AlignedTask, RelationalTask
from vflbench.data.tasks.base import replace_at
from vflbench.types import ConfigError, DataError, DataSource, Metric, Problem, closest, refuse

METRICS = {"rmse": Metric("rmse", "min"), "accuracy": Metric("accuracy", "max"), "auroc": Metric("auroc", "max")}
log = logging.getLogger(__name__)


# --- loading ----------------------------------------------------------------------------------------------------------


_Stamp = tuple[str | None, tuple[int, int] | None]  # checksum of the file, (rows, checksum) of the keys


def load(config: Config, layout: str, parties: int, seed: int, root: Path | None) -> RelationalTask | AlignedTask:
    """The user's tables: one that comes in several parts keeps them, any other is cut into `parties` equal parts.

    Parameters
    ----------
    root : not used; paths are relative to where vflbench was started.

    Raises
    ------
    ConfigError : see `check`; also columns that are not there.
    DataError : naming the table, its source as the user wrote it, the column, and the line of a CSV; never a password.
    """
    refuse(check(config, layout, parties))
    sources = {name: parts_of(config, name) for name in config.tables}
    held = {name: [table_sources.columns(source) for source in parts] for name, parts in sources.items()}
    refuse([problem for name in sources for problem in _check_columns(config, name, sources[name], held[name])])
    for part in itertools.chain(*sources.values()):
        if (form := table_sources.form(part)) and not form.plain:
            log.info("%s: %s", part, form.words)
    mapping = {name: [_read_keys(config, name, source) for source in parts] for name, parts in sources.items()}
    _check_kinds(config, sources, {name: [columns for columns, _ in parts] for name, parts in mapping.items()})
    stamps = {name: [stamp for _, stamp in parts] for name, parts in mapping.items()}
    _warn_of_near(config, mapping)
    del mapping
    raw, judged, found = [], [], {}
    for name in config.tables:
        found[name] = [_read(config, name, *part) for part in zip(sources[name], held[name], stamps[name], strict=True)]
        table, columns = raw_table(config, name, found[name])
        raw.append(table)
        judged.append(columns)

    label = next(name for name, table in config.tables.items() if table.label is not None)
    labels, classes = _labels(config, label, found[label])
    metric = METRICS[config.metric or TASKS[config.task][0]]
    if metric.name == "auroc" and classes != 2:
        allowed = f"is for two classes; {called(config, label)} has {classes}"
        raise ConfigError([Problem("dataset.metric", "auroc", allowed)])
    known = _known(config, found[label])
    divided = _divided(config, label, known, labels, classes, seed)
    sizes = {name: [part.rows for part in parts] for name, parts in found.items() if len(parts) > 1}
    whole, source = RawTables(tuple(raw), label, labels, classes, joins_of(config)), _source(config, found)
    judged = marked(config, whole, judged, known.get("entity"))
    for line in inspection.remark_lines((one.report for own in judged for one in own), "warning"):
        log.warning("%s", line)
    source = dataclasses.replace(source, tables=summary(judged))
    return raw_tables.divide(config.name, whole, divided, source, metric, layout=layout, parts=parties, sizes=sizes)


def load_own(
    config: Config, layout: str, parties: int, seed: int, root: Path | None, task: RelationalTask, index: int
) -> RelationalTask:
    """`task`, which was joined elsewhere, with the part of client `index`, read from its own table's sources alone.

    Horizontal parts of one table are read together, as they share means, scales and categories.

    Raises
    ------
    DataError : as `load`; the sources have changed since.
    """
    name = task.clients[index].table
    found = []
    for source in parts_of(config, name):
        found.append(_read(config, name, source, table_sources.columns(source), _read_keys(config, name, source)[1]))
    for stamp in _source(config, {name: found}).files:
        if stamp not in task.source.files:
            advice = "has changed since the join was made; start again once it is left alone"
            raise DataError(f"{called(config, name)}: {stamp[0]} {advice}")
    raw, _ = raw_table(config, name, found)
    raw = dataclasses.replace(raw, keys=raw_tables.joining(raw, task.joins))
    labels, divided = None, None
    if name == task.label_table:
        labels, classes = _labels(config, name, found)
        drawn = _divided(config, name, _known(config, found), labels, classes, seed)
        divided = {split: rows for split, rows in drawn.items() if split != "val" or len(rows)}
    features = raw_tables.standardize(raw, divided["train"] if divided else None)
    sizes = [part.rows for part in found] if len(found) > 1 else None
    own = raw_tables.horizontal(raw, features, divided, labels, parties, sizes)
    first = next(number for number, part in enumerate(task.clients) if part.table == name)
    return dataclasses.replace(task, clients=replace_at(task.clients, index, own[index - first]))


def _divided(
    config: Config, name: str, known: Mapping[str, np.ndarray], labels: np.ndarray, classes: int, seed: int
) -> dict[str, np.ndarray]:
    """The rows of each split of the label table `name`, which its owner draws from that table alone.

    Raises
    ------
    DataError : there are too few rows, times or entities.
    """
    how = plan(config, classes > 0)
    fractions = config.validation, config.test
    drawn = splits.draw(how, labels, *fractions, seed, times=known.get("time"), entities=known.get("entity"))
    if not len(drawn["train"]) or not len(drawn["test"]):
        raise DataError(f"{called(config, name)}: {len(labels)} rows are too few for training and test rows")
    for line in splits.in_words(splits.counts(how, drawn, labels, {c: f"class {c}" for c in range(classes)})):
        log.info("%s", line)
    return drawn


def _known(config: Config, parts: Sequence[ReadTable]) -> dict[str, np.ndarray]:
    """What the split follows: the time and the entity of each row, where a key names their columns.

    Raises
    ------
    DataError : a row has none.
    """
    place, every = partial(place_of, parts), np.arange(sum(part.rows for part in parts))
    known = {}
    for key, read in (("time", row_facts.times), ("entity", row_facts.entities)):
        if column := getattr(config, key):
            known[key] = read(concatenate([part.columns[column] for part in parts]), column, place, every)
    return known


def _check_columns(
    config: Config, name: str, sources: Sequence[Source], held: Sequence[Sequence[str]]
) -> list[Problem]:
    """The columns that the configuration names and a part lacks."""
    table = config.tables[name]
    problems = []
    for source, columns in zip(sources, held, strict=True):
        for key, column in deciding(config, name).items():
            if column not in columns:
                allowed = f"{called(config, name)}: {source} has no such column; it has {', '.join(columns)}"
                problems.append(Problem(key, column, allowed, closest(column, columns)))
        for role, wanted in {**roles_of(config, name), "types": list(table.types)}.items():
            for column in wanted:
                if column not in columns:
                    key = "dataset.joins" if role == "keys" and table.keys is None else f"dataset.tables.{name}.{role}"
                    allowed = f"{called(config, name)}: {source} has no such column; it has {', '.join(columns)}"
                    problems.append(Problem(key, column, allowed, closest(column, columns)))
        if table.features is None and not problems and set(columns) != set(held[0]):
            odd = f"{', '.join(sorted(set(columns) ^ set(held[0])))} in {sources[0]} or {source} alone"
            allowed = f"list them: the parts of {called(config, name)} have unlike columns ({odd})"
            problems.append(Problem(f"dataset.tables.{name}.features", "null", allowed))
    return problems


def _read_keys(config: Config, name: str, source: Source) -> tuple[dict[str, Column], _Stamp]:
    """The key columns of a part for the mapping, and a stamp that changes with the part."""
    keys = keys_of(config, name)
    file = _file_stamp(source)
    columns = table_sources.read_table(source, keys, config.tables[name].types, keys).columns if keys else {}
    return columns, (file, digest(list(columns.values())) if keys else None)


def _file_stamp(source: Source) -> str | None:
    """Checksum of a CSV or Parquet file; None for a database, whose file may change while its content does not."""
    return table_sources.stamp(source) if source.kind in ("csv", "parquet") else None


def _check_kinds(
    config: Config, sources: Mapping[str, Sequence[Source]], parts: Mapping[str, Sequence[Mapping[str, Column]]]
) -> None:
    """Check that keys can be compared.

    A key must have a known kind, the same one in all parts and on both sides of a predicate. It cannot be NULL in all
    rows.

    Raises
    ------
    DataError : with all that is wrong.
    """
    reasons = []
    kinds: dict[tuple[str, str], str] = {}
    for name, columns in parts.items():
        for key in keys_of(config, name):
            each = {str(source): part[key].kind for source, part in zip(sources[name], columns, strict=True)}
            found = {kind: source for source, kind in each.items() if kind != "empty"}
            where = f"{called(config, name)}, key column {key}"
            kinds[name, key] = next(iter(found), "empty")
            if not found:
                rows = sum(len(part[key].values) for part in columns)
                reason = "every key is NULL, which joins with nothing" if rows else "the table has no rows"
                reasons.append(f"{where}: {reason}")
            elif len(found) > 1:
                listed = ", ".join(f"{kind} in {source}" for kind, source in found.items())
                declare = f"declare how they are read: {_declaration(name, key)}"
                reasons.append(f"{where}: its parts have unlike keys ({listed}); {declare}")
            elif kinds[name, key] not in TYPES:
                declare = f"cast it in a query, or declare {_declaration(name, key)}"
                reasons.append(f"{where} ({next(iter(found.values()))}): a key cannot be {kinds[name, key]}; {declare}")
    for equality in joins_of(config):
        sides = [(table, column, kinds[table, column]) for table, column in (equality.left, equality.right)]
        if sides[0][2] != sides[1][2] and {kind for _, _, kind in sides} <= set(TYPES):
            listed = " and ".join(f"{table}.{column} is {kind}" for table, column, kind in sides)
            reasons.append(f"{listed}: they cannot be joined; declare how one is read: {_declaration(*equality.left)}")
    if reasons:
        raise DataError("; ".join(reasons))


def _warn_of_near(config: Config, mapping: Mapping[str, Sequence[tuple[Mapping[str, Column], _Stamp]]]) -> None:
    """Warn of texts that two tables join on and that differ only in how they are written."""
    for equality in joins_of(config):
        sides = []
        for table, column in (equality.left, equality.right):
            cells = concatenate([columns[column] for columns, _ in mapping[table]])
            sides.append(set(cells.values[~cells.null].tolist()) if cells.kind == "text" else set())
        for kind, pairs in near(*sides):
            names = " and ".join(f"{table}.{column}" for table, column in (equality.left, equality.right))
            pair = " and ".join(quoted_pair(*min(pairs)))
            log.warning("%d keys of %s differ only in %s, as %s; they are not joined", len(pairs), names, kind, pair)


def _declaration(table: str, column: str) -> str:
    return f"dataset.tables.{table}.types={{{column}: {'|'.join(TYPES)}}}"


def _read(config: Config, name: str, source: Source, held: Sequence[str], stamp: _Stamp) -> ReadTable:
    """A part's keys and features together.

    Raises
    ------
    DataError : it is empty, or has changed since the mapping.
    """
    table, keys = config.tables[name], keys_of(config, name)
    wanted = list(held)
    if table.features is not None:
        named = [*roles_of(config, name).values(), deciding(config, name).values()]
        wanted = list(dict.fromkeys(column for columns in named for column in columns))
    part = table_sources.read_table(source, wanted, table.types, [key for key in keys if key in wanted])
    part, columns = dataclasses.replace(part, stamp=_file_stamp(source)), part.columns
    now = (part.stamp, digest([columns[key] for key in keys]) if keys else None)
    if now != stamp:
        rows = f" (rows then and now: {stamp[1][0]}, {part.rows})" if stamp[1] else ""
        advice = "start again once it is left alone"
        raise DataError(f"{called(config, name)}: {source} changed between mapping and training{rows}; {advice}")
    if not part.rows:
        raise DataError(f"{called(config, name)}: {source} has no rows")
    if source.kind in ("csv", "parquet"):
        return part
    order = stable_order(columns, keys)
    ordered = {column: Column(cells.kind, cells.values[order]) for column, cells in columns.items()}
    return dataclasses.replace(part, columns=ordered, stamp=table_sources.stamp(source))


def _labels(config: Config, name: str, parts: Sequence[ReadTable]) -> tuple[np.ndarray, int]:
    """Targets, (n,) float64, and 0; or classes, (n,) int64, and their number."""
    import pandas as pd

    column = str(config.tables[name].label)
    where = f"{called(config, name)}, label column {column}"
    kinds = {part.columns[column].kind for part in parts} - {"empty"}
    wanted = ("number",) if config.task == "regression" else ("number", "text")
    for part in parts:
        cells = part.columns[column]
        if len(kinds) > 1 or not kinds <= set(wanted):
            row = misspelt(cells)
            found = f"{part.source}: {' and '.join(sorted(kinds))}"
            if row is not None:
                found = f"{part.place(row)}: {cells.values[row]!r}"
            raise DataError(f"{where}: {found}; labels of task={config.task} are {' or '.join(wanted)}")
        missing = cells.null if cells.kind != "number" else ~np.isfinite(cells.values.astype(np.float64))
        if missing.any():
            place, count = part.place(int(missing.argmax())), int(missing.sum())
            reason = f"{f'{count} labels are' if count > 1 else 'a label is'} missing or not finite"
            raise DataError(f"{where}: {place}: {reason}; leave such rows out, e.g. by a query")
    if config.task == "regression":
        return np.concatenate([part.columns[column].values.astype(np.float64) for part in parts]), 0
    allowed = _classes(config, where, [part.columns[column] for part in parts])
    encoded = []
    for part in parts:
        codes = pd.Index(allowed).get_indexer(pd.Index(as_text(part.columns[column]))).astype(np.int64)
        if (codes < 0).any():
            row = int((codes < 0).argmax())
            shown = ", ".join(allowed if len(allowed) <= 10 else [*allowed[:3], "...", allowed[-1]])
            found = as_text(part.columns[column])[row]
            raise DataError(f"{where}: {part.place(row)}: label {found!r} is out of range; the classes are {shown}")
        encoded.append(codes)
    return np.concatenate(encoded), len(allowed)


def _classes(config: Config, where: str, parts: Sequence[Column]) -> list[str]:
    """The labels as text, in the order of their classes."""
    if isinstance(config.classes, int):
        return [str(label) for label in range(config.classes)]
    if config.classes is not None:
        return [
            str(int(label)) if isinstance(label, float) and label.is_integer() else str(label)
            for label in config.classes
        ]
    whole = concatenate(parts)
    found: list[Any] = np.unique(whole.values if whole.kind == "text" else whole.values.astype(np.float64)).tolist()
    if whole.kind == "number":
        if found != list(range(len(found))):
            listed = ", ".join(f"{value:g}" for value in found[:10]) + (", ..." if len(found) > 10 else "")
            advice = f"classes are numbered without a gap from 0, or listed: dataset.classes=[{listed}]"
            amounts = "Numbers that are amounts are predicted by task=regression"
            raise DataError(f"{where}: labels {listed}; {advice}. {amounts}")
        found = [str(int(value)) for value in found]
    if len(found) < 2:
        raise DataError(f"{where}: a single label, {found[0]!r}; at least two classes are needed")
    return found


def _source(config: Config, found: Mapping[str, Sequence[ReadTable]]) -> DataSource:
    """Names and checksums of files, and checksums of a server's rows: no paths, hosts or users."""
    kinds = {"csv": "CSV", "parquet": "Parquet", "excel": "spreadsheet", "sqlite": "SQLite"}
    kinds |= {"duckdb": "DuckDB", "postgresql": "PostgreSQL"}
    notes, files = [], []
    for name, parts in found.items():
        several = f" in {len(parts)} parts" if len(parts) > 1 else ""
        formats = ", ".join(dict.fromkeys(kinds[part.source.kind] for part in parts))
        notes.append(f"{called(config, name)}: {formats}{several}")
        for part in parts:
            if part.source.path is not None:
                files.append((part.source.path.name, str(part.stamp)))
                files += table_sources.beside(part.source)
            else:
                content = np.sort(hashes(list(part.columns.values())))
                files.append((f"{name} (rows in PostgreSQL)", hashlib.sha256(content.tobytes()).hexdigest()))
    return DataSource(kind="real", note="the user's own tables: " + "; ".join(notes), files=tuple(dict.fromkeys(files)))
