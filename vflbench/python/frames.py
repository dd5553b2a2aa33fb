"""DataFrames as columns of Parquet files; all their problems are reported together."""

from __future__ import annotations

import io
import re
import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vflbench.data.columns.judging import as_texts
from vflbench.data.readers.cells import MISSING
from vflbench.types import Problem, closest

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

NAME = re.compile(r"\w[\w .-]{0,99}")
KINDS = "numbers, texts, dates, times, or true and false"


def of_tables(tables: Any) -> list[Problem]:
    """Problems of the tables as such: each must be a DataFrame with a name, rows, and named columns."""
    import pandas as pd

    form = 'must be a dict of DataFrames with a name each: {"hospital": df_a, "laboratory": df_b}'
    if not isinstance(tables, Mapping) or not tables:
        return [Problem("tables", "{}" if isinstance(tables, Mapping) else type(tables).__name__, form)]
    problems, seen = list[Problem](), dict[str, Any]()
    for name, frame in tables.items():
        if not isinstance(name, str) or not NAME.fullmatch(name):
            allowed = "a table's name must be a text of letters, digits, blanks and ._- that begins with a letter"
            problems.append(Problem("tables", repr(name), allowed))
        elif (other := seen.setdefault(name.casefold(), name)) != name:  # they are names of files, too
            problems.append(Problem("tables", name, f"differs from {other} only in capitals: give it another name"))
        if not isinstance(frame, pd.DataFrame):
            more = ": use its to_pandas()" if hasattr(frame, "to_pandas") else ""
            problems.append(Problem(f"tables.{name}", type(frame).__name__, f"must be a pandas DataFrame{more}"))
        else:
            problems += _of_columns(str(name), frame)
    return problems


def _of_columns(name: str, frame: pd.DataFrame) -> list[Problem]:
    key = f"tables.{name}"
    if 0 in frame.shape:
        return [Problem(key, "an empty DataFrame", f"has no {'columns' if frame.shape[0] else 'rows'}")]
    if others := [column for column in frame.columns if not isinstance(column, str)]:
        allowed = "names of columns must be texts: df.columns = df.columns.astype(str)"
        if isinstance(others[0], tuple):
            allowed = "names of columns must be texts: df.columns = df.columns.map('_'.join)"
        return [Problem(key, f"columns {_listed(map(repr, others))}", allowed)]
    if len(twice := frame.columns[frame.columns.duplicated()].unique()):
        return [Problem(key, f"columns {_listed(twice)}", "occur twice: give each its own name")]
    return []


def of_roles(
    frames: Mapping[str, pd.DataFrame], label: Any, id: Any, leave_out: Sequence[str], by_order: bool
) -> tuple[list[Problem], str | None]:
    """Problems of the columns that have a role, and the name of the table that has the label.

    Parameters
    ----------
    by_order : whether rows of tables without IDs are matched by their order.
    """
    every = list(dict.fromkeys(column for frame in frames.values() for column in frame.columns))
    problems = [
        Problem("leave_out", column, "no table has such a column", closest(str(column), every))
        for column in leave_out
        if column not in every
    ]
    owners = [name for name, frame in frames.items() if label in frame.columns] if isinstance(label, str) else []
    if not isinstance(label, str):
        problems.append(Problem("label", label, "must name the column to predict"))
    elif not owners:
        problems.append(Problem("label", label, "no table has such a column", closest(label, every)))
    elif label in leave_out or label in ids_of(id):
        problems.append(Problem("label", label, "is also id or in leave_out"))
    elif len(owners) > 1:
        allowed = f"is a column of {' and '.join(owners)}: one party owns it; drop or rename the other"
        problems.append(Problem("label", label, allowed))
    problems += _of_order(frames) if id is None and by_order else _of_ids(frames, id, leave_out)
    return problems, owners[0] if owners else None


def _of_ids(frames: Mapping[str, pd.DataFrame], id: Any, leave_out: Sequence[str]) -> list[Problem]:
    """Problems of the column of the IDs. If it is missing where it is needed, the keys are checked for that."""
    if id is None:
        return []
    ids = ids_of(id)
    if not ids or not all(isinstance(column, str) for column in ids):
        return [Problem("id", id, "must name the column that identifies a row in every table, or be None")]
    problems = [
        Problem("id", column, f"{name} has no such column, nor an index of that name", closest(column, frame.columns))
        for column in ids
        for name, frame in frames.items()
        if column not in frame.columns
    ]
    return problems + [Problem("id", column, "is also in leave_out") for column in ids if column in leave_out]


def _of_order(frames: Mapping[str, pd.DataFrame]) -> list[Problem]:
    """Problems of tables whose rows are matched by their order: their indexes may suggest another order."""
    first, *others = frames
    differing = [
        name
        for name in others
        if len(frames[name]) == len(frames[first]) and not frames[name].index.equals(frames[first].index)
    ]
    if not differing:
        return []
    advice = "name the column of the IDs, or give both df.reset_index(drop=True) if row i is the same sample"
    who = f"{first} and {' and '.join(differing)}"
    return [Problem("id", None, f"rows are matched by their order, but the indexes of {who} differ: {advice}")]


def ids_of(id: Any) -> list[Any]:
    """The columns that together identify a row."""
    return [] if id is None else [*id] if isinstance(id, list | tuple) else [id]


def with_id(frame: pd.DataFrame, id: Any) -> pd.DataFrame:
    """The frame, with the levels of its index as columns where they have a name of `id` and no column has."""
    names = [column for column in ids_of(id) if isinstance(column, str) and column not in frame.columns]
    return frame.assign(**{name: frame.index.get_level_values(name) for name in names if name in frame.index.names})


# --- cells ------------------------------------------------------------------------------------------------------------


def parquet(columns: Mapping[str, pa.Array]) -> bytes:
    """A Parquet file of the columns; equal ones are equal bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = io.BytesIO()
    pq.write_table(pa.table(dict(columns)), file, compression="zstd")
    return file.getvalue()


def columns(
    name: str, frame: pd.DataFrame, words: Sequence[str] = ()
) -> tuple[dict[str, pa.Array], list[str], list[str]]:
    """The columns of a table, the names of those that are codes, and a line for each column that cannot be kept.

    A column has codes if it is categorical and its values are not texts. Texts are categories anyway. Numbers beside
    `words` for a missing one are kept as texts, which `dataset=tabular_files` reads as numbers.
    """
    import pandas as pd

    kept, codes, lines = dict[str, Any](), list[str](), list[str]()
    for column in frame.columns:
        cells = _cells(frame[column], {*words})
        if cells is None:
            held = _held(frame[column])
            advice = f"a column must have {KINDS}, all of one kind; convert it, or name it in leave_out"
            lines.append(f"{name}, column {column}: holds {held}; {advice}")
            continue
        kept[column] = cells
        if isinstance(frame[column].dtype, pd.CategoricalDtype) and not _is_text(cells.type):
            codes.append(column)
    return kept, codes, lines


def mixed(codes: Mapping[str, Sequence[str]], frames: Mapping[str, pd.DataFrame]) -> list[Problem]:
    """Problems of columns that are codes in one table and numbers in another: `dataset.categories` would mean both."""
    problems = []
    for name, own in codes.items():
        for column in own:
            others = [o for o, f in frames.items() if column in f.columns and column not in codes.get(o, ())]
            others = [o for o in others if frames[o][column].dtype.kind in "iufbM"]
            if others:
                allowed = f"is categorical in {name} and not in {' and '.join(others)}: make them alike, or rename one"
                problems.append(Problem("categories", column, allowed))
    return problems


def _cells(series: Any, words: Collection[str]) -> pa.Array | None:
    """The column as an Arrow array; None if our Parquet files may not have such a column."""
    import pandas as pd
    import pyarrow as pa

    if isinstance(series.dtype, pd.SparseDtype):
        series = series.sparse.to_dense()
    if series.dtype == object and {*map(type, series.dropna())} == {uuid.UUID}:
        series = series.map(str, na_action="ignore")
    if series.dtype == object:
        series = _with_words(series, words)
    try:
        cells = pa.array(series, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError, NotImplementedError):
        return None
    if isinstance(cells, pa.ChunkedArray):
        cells = cells.combine_chunks()
    if pa.types.is_dictionary(cells.type):
        cells = cells.dictionary_decode()
    if pa.types.is_float16(cells.type):
        cells = cells.cast(pa.float32())
    kinds = pa.types
    fits = (
        *(kinds.is_boolean, kinds.is_integer, kinds.is_floating, kinds.is_decimal, kinds.is_null),
        *(kinds.is_date, kinds.is_timestamp, kinds.is_time, kinds.is_duration, _is_text),
    )
    return cells if any(fit(cells.type) for fit in fits) else None


def _with_words(series: pd.Series, words: Collection[str]) -> pd.Series:
    """The column, all as texts where it holds words for a missing value beside numbers or dates."""
    known = series.dropna()
    texts = {cell for cell in known if isinstance(cell, str)}
    missing = {own.strip().casefold() for own in (*words, *MISSING)}
    if not texts or len(texts) == len(known) or any(text.strip().casefold() not in missing for text in texts):
        return series
    if (written := as_texts([*known])) is None:
        return series
    cells = series.copy()
    cells[series.notna().to_numpy()] = written
    return cells


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _held(series: pd.Series) -> str:
    """What a column holds, in words."""
    import pandas as pd

    if isinstance(series.dtype, pd.CategoricalDtype):
        return f"categories of {_held(series.cat.categories.to_series())}"
    if series.dtype != object:
        return str(series.dtype)
    found = sorted({type(cell).__name__ for cell in series[series.notna()]})
    words = {"int": "integers beyond 64 bits", "str": "texts with characters that Unicode does not have"}
    return words.get(found[0], found[0]) if len(found) == 1 else _listed(found, "and")


def _listed(names: Any, last: str = "") -> str:
    shown = [*names]
    more = [f"{len(shown) - 5} more"] if len(shown) > 5 else []
    return (f" {last} " if last else ", ").join([*shown[:5], *more])
