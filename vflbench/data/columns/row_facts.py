"""The time of a row, and whose row it is: columns of the labels' table that a split may follow."""

import logging
import unicodedata
from collections import Counter
from collections.abc import Callable

import numpy as np

from vflbench.cards.data.columns.judging import Order
from vflbench.data.columns import dates
from vflbench.data.readers import identifiers
from vflbench.data.readers.cells import Column, means_missing
from vflbench.types import DataError

Place = Callable[[int], str]  # how a message names a row of the file
log = logging.getLogger(__name__)


def times(cells: Column, column: str, place: Place, used: np.ndarray, order: Order = "auto") -> np.ndarray:
    """The time of each row as a number, (n,) int64 or float64: later is larger; 0 in rows that are not used.

    Parameters
    ----------
    cells : numbers, dates, or texts that are dates.
    order : dataset.dates.
    used : (m,) the rows that count.

    Raises
    ------
    DataError : the time of a row that is used is missing, or is no time. Names file and line.
    """
    out: np.ndarray = np.zeros(len(cells.values), np.int64)
    _refuse_missing(_missing(cells, means_missing), f"no time (dataset.time={column})", column, place, used)
    values = cells.values[used]
    if cells.kind == "number":
        known = values if values.dtype == np.int64 else values.astype(np.float64)
        if not np.isfinite(known).all():
            raise DataError(f"{place(int(used[~np.isfinite(known)][0]))}, column {column}: a time is not finite")
    elif cells.kind == "date":
        known = values.astype("datetime64[us]").astype(np.int64)
    elif cells.kind == "text":
        known = _dates(values, column, place, used, order)
    else:
        raise DataError(f"{place(0)}, column {column}: holds {cells.kind}; a time is a number or a date")
    out = out.astype(known.dtype)
    out[used] = known
    return out


def entities(cells: Column, column: str, place: Place, used: np.ndarray) -> np.ndarray:
    """A number for each row, (n,) int64, equal where rows are of one entity; -1 in rows that are not used.

    Texts that differ only in blanks, capitals, Unicode forms or what nobody sees are one entity: so none is in two
    parts by its writing. A word such as NA is an entity: it may be a country.

    Raises
    ------
    DataError : a row that is used has none. Names file and line.
    """
    import pandas as pd

    _refuse_missing(_missing(cells, str.isspace), f"no entity (dataset.entity={column})", column, place, used)
    values = cells.values[used]
    if cells.kind == "text":
        for word, count in Counter(value for value in values if means_missing(value)).items():
            log.warning("column %s: %r counts as an entity, of %d rows; it may be a missing one", column, word, count)
        values = np.array([_plain(value) for value in values], dtype=object)
    out = np.full(len(cells.values), -1)
    out[used] = pd.factorize(values)[0]
    return out


def _plain(text: str) -> str:
    return identifiers.plain(unicodedata.normalize("NFKC", identifiers.normal(text)))


def _missing(cells: Column, word: Callable[[str], bool]) -> np.ndarray:
    """Which cells are empty, or a text that is a `word` for none, (n,) bool."""
    if cells.kind != "text":
        return cells.null
    return np.array([not value or word(value) for value in cells.values], dtype=bool)


def _refuse_missing(missing: np.ndarray, lacks: str, column: str, place: Place, used: np.ndarray) -> None:
    """Refuse rows that lack what the split needs."""
    if count := int(missing[used].sum()):
        where = place(int(used[missing[used]].min()))
        more = f" ({count} rows lack it)" if count > 1 else ""
        raise DataError(f"{where}, column {column}: {lacks}{more}; fill it in, or remove the row")


def _dates(texts: np.ndarray, column: str, place: Place, used: np.ndarray, order: Order) -> np.ndarray:
    """Dates or times of day as days, (m,) float64.

    Raises
    ------
    DataError : a text is none.
    """
    found = dates.read(texts, order)
    wrong = np.full(len(texts), True) if found is None else np.isnan(found.days)
    if found is None or wrong.any():
        first = int(wrong.argmax())
        allowed = "a time is a number or a date, as 2024-01-31, 2024-01-31 18:30 or 31.01.2024"
        raise DataError(f"{place(int(used[first]))}, column {column}: {texts[first]!r} is no time; {allowed}")
    if found.ambiguous:
        log.warning("column %s: read as %s; no cell shows whether the day comes first", column, found.writing)
    return found.days
