"""The entries of `dataset.files`: a path, or a path with what is to be known of the file."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from vflbench.cards.data.readers.table_sources import redacted
from vflbench.cards.data.tabular.tabular_files import Entry
from vflbench.data.readers import table_sources
from vflbench.data.readers.table_sources import Source
from vflbench.types import Problem, closest, refuse

DATABASES = (".db", ".db3", ".sqlite", ".sqlite3", ".duckdb")
GRAPHS = (".npz", ".npy", ".pt", ".pth")


def as_entry(file: str | Entry) -> Entry:
    """The entry; of a plain path one without anything else."""
    return Entry(file) if isinstance(file, str) else file


def source(file: str | Entry, path: Path | None = None) -> Source:
    """Where the table lies: at `path`, or as the entry has it."""
    entry = as_entry(file)
    separator = "\t" if entry.separator in ("tab", "\\t") else entry.separator
    said = {name: getattr(entry, name) for name in ("decimal", "encoding", "header", "sheet")}
    return replace(Source(str(path or entry.path)), separator=separator, **said)


def check(files: Sequence[str | Entry]) -> list[Problem]:
    """What is wrong with the entries, before anything is read."""
    return [
        problem
        for i, file in enumerate(files)
        for problem in _check(as_entry(file), source(file), f"dataset.files[{i}]")
    ]


def _check(entry: Entry, table: Source, key: str) -> list[Problem]:
    if table.kind not in table_sources.FILES:
        allowed = f"must be {table_sources.TABLES}{_elsewhere(entry.path)}"
        return [Problem("dataset.files", redacted(entry.path), allowed)]
    return [*table_sources.check_package(table, "dataset.files"), *table_sources.check_form(table, key)]


def _elsewhere(path: str) -> str:
    """Which data set reads what is no table."""
    if "://" in path or path.lower().endswith(DATABASES):
        return "; dataset=sql reads tables of a database"
    if path.lower().endswith(GRAPHS):
        return "; dataset=graph_files reads the files of a graph"
    if Path(path).expanduser().is_dir():
        return ". It is a folder: name the files in it; dataset=graph_files reads those of a graph"
    return ""


def find(files: Sequence[str | Entry], root: Path | None) -> list[Source]:
    """The files, each below `root` or as it is named.

    Raises
    ------
    ConfigError : some are not there.
    """
    found, problems = [], []
    for file in files:
        named = as_entry(file).path
        path = Path(named).expanduser()
        if root is not None and (root / path).is_file():
            path = root / path
        if not path.is_file():
            names = [p.name for p in path.parent.iterdir() if p.is_file()] if path.parent.is_dir() else []
            allowed = "there is no such file below data_root, nor where vflbench is started"
            problems.append(Problem("dataset.files", named, allowed, closest(path.name, names)))
        found.append(source(file, path))
    refuse(problems)
    return found
