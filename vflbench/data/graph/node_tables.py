"""Tables of a user's graph: features, edges and labels of text files, spreadsheets, Parquet, arrays and tensors."""

from __future__ import annotations

import functools
import hashlib
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from vflbench.data.graph import pyg_file
from vflbench.data.readers import delimited, identifiers, packed, table_sources
from vflbench.data.readers.cells import Column, Wrong, infer
from vflbench.data.readers.table_sources import Source
from vflbench.data.readers.untrusted import load_npy, load_npz, load_sparse, npz_names
from vflbench.types import DataError

TENSORS = ("x", "edge_index", "y")  # of a Data: features, edges and labels
_NAMELESS = re.compile(r"(Unnamed:.*|\.\.\.\d+|__index_level_.*)?")  # as pandas and R write that a column has no name
_MADE_UP = re.compile(r"(column)?\d+")  # of files without names
PYG = {"features": "x", "edges": "edge_index", "labels": "y"}  # as torch_geometric calls them, and archives may, too
FORMATS = ".csv, .tsv, .parquet, .npy and .npz are read"
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Table:
    """Columns of one file."""

    file: str
    names: Sequence[str]
    columns: Sequence[Column]
    place: Callable[[int], str]  # how a message names a row
    header: bool | None = None  # whether a line of a text file names the columns; None: a file without lines
    named: bool = True  # whether the columns have names of their own

    @property
    def rows(self) -> int:
        """How many there are."""
        return len(self.columns[0].values) if self.columns else 0

    def at(self, row: int) -> str:
        """How a message names a row of this file."""
        return f"{self.file}, {self.place(row)}"

    def only(self, chosen: Sequence[int]) -> Table:
        """The columns with these numbers."""
        return replace(self, names=[self.names[i] for i in chosen], columns=[self.columns[i] for i in chosen])

    def nameless(self, column: int) -> bool:
        """Whether a column has no name, or one that a program made up."""
        return (_NAMELESS if self.named else _MADE_UP).fullmatch(self.names[column].strip()) is not None

    def called(self, column: int) -> str:
        """How a message names a column."""
        first = column == 0 and self.nameless(column)
        return "the first column, which has no name," if first else f"column {self.names[column]}"

    def ids(self, column: int) -> identifiers.Ids:
        """The IDs in a column.

        Raises
        ------
        DataError : a cell is no exact ID.
        """
        try:
            return identifiers.ids(self.columns[column])
        except Wrong as error:
            raise DataError(f"{self.at(error.row)}, {self.called(column)}: {error.reason}.") from None

    @functools.cached_property
    def values(self) -> np.ndarray:
        """The cells, (rows, columns): numbers, or objects where a cell is none; NaN where it is empty."""
        if all(column.values.dtype.kind in "iufb" for column in self.columns):
            return np.column_stack([column.values for column in self.columns]) if self.columns else np.empty((0, 0))
        cells = np.column_stack([column.values.astype(object) for column in self.columns])
        cells[np.column_stack([column.null for column in self.columns])] = np.nan
        return cells

    def numbers(self) -> np.ndarray:
        """The cells as float64, NaN where empty.

        Raises
        ------
        DataError : naming the line of a cell that is no number.
        """
        try:
            return self.values.astype(np.float64)
        except (ValueError, TypeError):
            for row, cells in enumerate(self.values):
                for name, cell in zip(self.names, cells, strict=True):
                    try:
                        float(cell)
                    except (ValueError, TypeError):
                        raise DataError(f"{self.at(row)}, column {name!r}: {cell!r} is not a number.") from None
            raise

    def whole(self, what: str, low: int, end: int | None) -> np.ndarray:
        """The cells as int64.

        Raises
        ------
        DataError : naming the first cell that is no whole number of at least `low` and below `end`.
        """
        numbers = self.numbers()
        others = np.argwhere(~((numbers >= low) & (numbers < (end or np.inf)) & (numbers == np.floor(numbers))))
        if len(others):
            row, column = others[0]
            most = "" if end is None else f" to {end - 1}"
            allowed = f"{what}s are whole numbers from {low}{most}"
            raise DataError(f"{self.at(row)}: {what} {as_written(self.values[row, column])}; {allowed}.")
        return numbers.astype(np.int64)


def as_written(cell: object) -> str:
    """A cell as the user wrote it: in a column with a gap 2 has become 2.0."""
    return f"{cell:g}" if isinstance(cell, float) else str(cell)


def of_array(file: str, values: np.ndarray) -> Table:
    """The table of an array, (rows, columns)."""
    columns = [Column("number", values[:, i]) for i in range(values.shape[1])]
    return Table(file, [str(i) for i in range(values.shape[1])], columns, lambda row: f"row {row}", named=False)


class Files:
    """Reads the user's files and keeps their names and checksums in `stamps`.

    With a file `pyg` its tensors take the place of the files of features, edges and labels: x, edge_index and y.
    """

    def __init__(self, root: Path | None, pyg: str | None = None) -> None:
        self.root = root
        self.stamps: list[tuple[str, str]] = []
        self.pyg = pyg
        self.tensors = pyg_file.read(self._bytes(pyg)[1], pyg) if pyg else {}
        #: of the archives that were read, all arrays: archive -> names
        self.archives: dict[str, set[str]] = {}
        if unused := ", ".join(name for name in ("edge_weight", "edge_attr") if name in self.tensors):
            log.warning("%s: %s is not used: edges have no weights here", pyg, unused)

    def table(self, file: str, key: str, header: bool | None = None) -> Table:
        """The table in a file of any format.

        Parameters
        ----------
        key : features | edges | labels | split; the name of the array in an .npz. Cells of edges and splits are IDs.
        header : whether a line of a text file names the columns; None: as its cells suggest.

        Raises
        ------
        DataError : it cannot be read, or holds no table of numbers.
        """
        if file in TENSORS and self.pyg:
            return self._tensor(file, key)
        path, data = self._bytes(file)
        if file.removesuffix(".gz").endswith((".npz", ".npy")):
            values = self._array(data, file, key)
            values = values[:, None] if values.ndim == 1 else values
            if values.ndim != 2 or values.dtype.kind not in "iufb":
                found = f"an array of shape {values.shape} and type {values.dtype}"
                raise DataError(f"{file}: {found}; a table of numbers is needed.")
            return of_array(file, values)
        source = Source(str(path), header=header)
        if source.kind not in table_sources.FILES:
            advice = "; dataset.pyg is the key of a torch_geometric Data" if file.endswith((".pt", ".pth")) else ""
            raise DataError(f"{file}: format not known; {FORMATS}{advice}.")
        try:
            return _of_source(source, file, key)
        except DataError as error:
            told = str(error).removeprefix(str(source)).lstrip(":, ")
            raise DataError(f"{file}: cannot be read, perhaps cut short ({told}).") from None

    def array(self, file: str, name: str) -> np.ndarray:
        """An array of an archive."""
        return load_npz(self._bytes(file)[1], file, (name,))[name]

    def path(self, file: str) -> Path:
        """Where a file is: below `root`, or as it is named."""
        path = Path(file).expanduser()
        if self.root is not None and not path.is_absolute():
            below = self.root / path
            path = below if below.is_file() or (file == self.pyg and below.is_dir()) else path
        return pyg_file.find(path, file) if file == self.pyg else path

    def _bytes(self, file: str) -> tuple[Path, bytes]:
        path = self.path(file)
        try:
            data = path.read_bytes()
        except OSError as error:
            places = "Looked below data_root and in the current folder"
            raise DataError(f"{file}: cannot be read ({error.strerror}). {places}.") from None
        if (stamp := (path.name, hashlib.sha256(data).hexdigest())) not in self.stamps:
            self.stamps.append(stamp)
        return path, data

    def _array(self, data: bytes, file: str, key: str) -> np.ndarray:
        if file.endswith(".npy"):
            return load_npy(data, file)
        names = npz_names(data, file)
        if {"format", "shape", "data"} <= names:
            matrix = load_sparse(data, file)
            return np.stack([matrix.row, matrix.col], axis=1) if key == "edges" else matrix.toarray()
        self.archives[file] = set(names)
        called = next((name for name in (key, PYG.get(key)) if name in names), None)
        if called is None and len(names) != 1:
            held = ", ".join(sorted(names)) or "nothing"
            raise DataError(f"{file}: holds {held}; an array called {key}, or a single one, is needed.")
        key = called or names.pop()
        return load_npz(data, file, (key,))[key]

    def _tensor(self, name: str, key: str) -> Table:
        """The tensor `name` as the table of `key`."""
        where = f"{self.pyg}, {name}"
        if name not in self.tensors:
            held = ", ".join(self.tensors) or "no tensor"
            raise DataError(f"{self.pyg}: has no {name}, the {key} (it has {held}).")
        values = self.tensors[name]
        values = values[:, None] if values.ndim == 1 and name == "y" else values
        shape = {"x": "(nodes, features)", "edge_index": "(2, edges)", "y": "(nodes,) or (nodes, 1)"}[name]
        wrong = values.ndim != 2 or values.dtype.kind not in "iufb"
        if wrong or (name == "edge_index" and len(values) != 2) or (name == "y" and values.shape[1] != 1):
            found = f"shape {self.tensors[name].shape} and type {values.dtype}"
            raise DataError(f"{where}: {found}; numbers of shape {shape} are needed.")
        return of_array(where, values.T if name == "edge_index" else values)


def _of_source(source: Source, file: str, key: str) -> Table:
    """The table of a text file, a spreadsheet or a Parquet file; what is inferred of its form is reported."""
    names = table_sources.columns(source)
    header = delimited.dialect_of(source).header if source.kind == "csv" else None
    named = header is not False
    if form := table_sources.form(source):
        log.log(logging.DEBUG if form.plain else logging.INFO, "%s: %s", file, form.words)

    if len(names) == 1 and source.kind == "csv" and key == "labels":
        first, cells = _lines(source)
        return Table(file, names, [cells], lambda row: f"line {first + row}", header, named)
    kind = "id" if key in ("edges", "split") else None
    held = table_sources.read_table(source, names, {name: kind for name in names if kind}).columns
    place = functools.partial(table_sources.within, source)
    table = Table(file, names, [held[name] for name in names], place, header, named)
    return replace(table, columns=[_as_id(source, table, i) for i in range(len(names))]) if kind is None else table


def _as_id(source: Source, table: Table, column: int) -> Column:
    """The column; a text, which may be an ID, as it was written."""
    name, held = table.names[column], table.columns[column]
    return table_sources.read_table(source, [name], {name: "id"}).columns[name] if held.kind == "text" else held


def _lines(source: Source) -> tuple[int, Column]:
    """The line of the first row, and a column that has one cell in each line: an empty line is a missing value."""
    import pyarrow as pa

    how = delimited.dialect_of(source)
    assert source.path is not None
    with packed.opened(source.path) as file:
        text = file.read().decode(how.encoding)
    first = how.above + how.header
    cells = [line.strip().strip('"') or None for line in text.splitlines()[first:]]
    return first + 1, infer(pa.chunked_array([pa.array(cells, pa.string())]), delimited.numbers_of(source).decimal)


def is_counter(table: Table, column: int, in_order: bool = True) -> bool:
    """Whether a column has no name and numbers at least three rows, in their order or in any."""
    return table.nameless(column) and table.rows >= 3 and counts(table.columns[column], in_order)


def counts(column: Column, in_order: bool = True) -> bool:
    """Whether the cells are 0, 1, 2, ... or 1, 2, 3, ..., in this order or in any."""
    values, count = column.values, len(column.values)
    if column.kind == "text":
        texts = [np.arange(first, first + count).astype(str).tolist() for first in (0, 1)]
        return values.tolist() in texts if in_order else {*values} in map(set, texts)
    if column.kind != "number" or not count or values.max() not in (count - 1, count):  # of many columns this is fast
        return False
    values = values if in_order else np.sort(values)
    return bool(values[0] == values[-1] - count + 1) and np.array_equal(values, np.arange(count) + values[0])
