"""Dates and times in several writings, read as days: a whole column is read in one way."""

import datetime
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from vflbench.cards.data.columns.judging import Order

_TIME = r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2}(?:[.,]\d+)?))?(?: ?(?P<half>[ap])\.?m\.?)?"
_TIME += r"(?: ?(?P<zone>z|utc|[+-]\d{2}:?\d{2}))?"
_AFTER = rf"(?:(?:t|,? +){_TIME})?"  # a time behind a date
_YEAR = r"(?P<year>\d{4}|\d{2})"
_MONTH = r"(?P<month>[a-zäéû]{3,10})\.?"
_WRITINGS = {
    "year": rf"(?P<year>\d{{4}})(?P<sign>[-/.])(?P<month>\d{{1,2}})(?P=sign)(?P<day>\d{{1,2}}){_AFTER}",
    "month": rf"(?P<year>\d{{4}})(?P<sign>[-/.])(?P<month>\d{{1,2}}){_AFTER}",
    "numbers": rf"(?P<day>\d{{1,2}})(?P<sign>[-/.]) ?(?P<month>\d{{1,2}})(?P=sign) ?{_YEAR}{_AFTER}",
    "name": rf"(?P<day>\d{{1,2}})(?:st|nd|rd|th|\.)?[ -]*{_MONTH},?[ -]*{_YEAR}{_AFTER}",
    "name first": rf"{_MONTH} *(?P<day>\d{{1,2}})(?:st|nd|rd|th)?,? +{_YEAR}{_AFTER}",
    "time": _TIME,
}
_PATTERNS = {kind: re.compile(pattern) for kind, pattern in _WRITINGS.items()}
_NAMES = (  # in English, German, French and Spanish, whole or short
    "jan january januar jänner jän janv janvier ene enero",
    "feb february februar feber febr fév févr février febrero",
    "mar march mär märz mrz mars marzo",
    "apr april avr avril abr abril",
    "may mai mayo",
    "jun june juni juin junio",
    "jul july juli juil juillet julio",
    "aug august août aout ago agosto",
    "sep sept september septembre septiembre setiembre",
    "oct october okt oktober octobre octubre",
    "nov november novembre noviembre",
    "dec december dez dezember déc décembre dic diciembre",
)
_MONTHS = {name: number for number, names in enumerate(_NAMES, start=1) for name in names.split()}
_EPOCH = datetime.date(1970, 1, 1).toordinal()
_SAMPLE = 200  # values that are tried before all are


class _Cell(NamedTuple):
    """What a cell says; of the kind `numbers` day and month may have to be exchanged."""

    kind: str
    year: int = 1970
    month: int = 1
    day: int = 1
    seconds: float = 0.0
    dotted: bool = False
    half: bool = False
    short: bool = False


@dataclass(frozen=True)
class Dates:
    """A column of texts, read as dates."""

    days: np.ndarray  #: (n,) float64 days since 1970-01-01, of times alone fractions of a day; NaN: missing, or no date
    writing: str  #: how they are written, for a message
    ambiguous: bool  #: no cell shows whether the day or the month comes first
    short: bool  #: some years have two digits
    why: str = ""  #: the day comes first, or the month

    @property
    def doubt(self) -> str:
        """What to say where they are ambiguous."""
        return f"no cell shows whether the day or the month comes first: read as {self.writing}"

    def all_of(self, cells: np.ndarray) -> bool:
        """Whether each of the `cells`, (n,) bool, is a date."""
        return not (cells & np.isnan(self.days)).any()


def read(values: np.ndarray, order: Order = "auto") -> Dates | None:
    """The texts `values`, (n,), as dates; None where fewer than half of the different ones are.

    Two digits are a year from 1969 to 2068. Times with an offset are converted to UTC. If no cell shows whether day or
    month comes first, the day does, except beside am or pm.
    """
    import pandas as pd

    codes, found = pd.factorize(values)
    tried = found[:: max(1, len(found) // _SAMPLE)]
    if not len(found) or 2 * sum(_cell(text) is not None for text in tried) < len(tried):
        return None
    cells = [_cell(text) for text in found]
    dates = [cell for cell in cells if cell and cell.kind != "time"]
    times = [cell for cell in cells if cell and cell.kind == "time"]
    if 2 * max(len(dates), len(times)) < len(found):
        return None
    if len(times) > len(dates):
        days = [cell.seconds / 86400 if cell and cell.kind == "time" else np.nan for cell in cells]
        return Dates(np.append(days, np.nan)[codes], "times of day", ambiguous=False, short=False)
    numbers = [cell for cell in dates if cell.kind == "numbers"]
    month_first, why = _order(numbers, order)
    days = [_days(cell, month_first) if cell and cell.kind != "time" else np.nan for cell in cells]
    writing = "months" if all(cell.kind == "month" for cell in dates) else "dates"
    if numbers:
        writing = f"dates, the {'month' if month_first else 'day'} first"
    short = any(cell.short for cell in dates)
    return Dates(np.append(days, np.nan)[codes], writing, bool(numbers) and not why, short, why)


def of_integers(values: np.ndarray) -> np.ndarray | None:
    """Whole numbers as 20201231, (n,) with NaN, as days since 1970-01-01; None where some are no date from 1900 on."""
    known = values[~np.isnan(values)]
    whole = known.astype(np.int64) if len(known) and known.min() >= 19000101 and known.max() <= 21001231 else None
    if whole is None or (whole != known).any() or len(np.unique(whole)) < 3:
        return None
    days = np.full(len(values), np.nan)
    found = {
        number: _days(_Cell("year", number // 10_000, number // 100 % 100, number % 100))
        for number in np.unique(whole).tolist()
    }
    days[~np.isnan(values)] = [found[number] for number in whole.tolist()]
    return days if not np.isnan([*found.values()]).any() else None


def _cell(text: str) -> _Cell | None:
    """What a text says, if it may be a date or a time."""
    plain = text.strip().lower()
    tried = _PATTERNS.items() if plain[:1].isalnum() and len(plain) < 50 else ()
    kind, found = next(((kind, found) for kind, pattern in tried if (found := pattern.fullmatch(plain))), ("", None))
    if found is None:
        return None
    said = found.groupdict()
    seconds = _seconds(said) if said["hour"] else 0.0
    named = said.get("month") or "1"
    month = int(named) if named.isdecimal() else _MONTHS.get(named)
    if seconds is None or month is None:
        return None
    year = said.get("year") or "1970"
    full = int(year) if len(year) == 4 else int(year) + (1900 if int(year) > 68 else 2000)
    day, short = int(said.get("day") or 1), len(year) == 2
    return _Cell(kind, full, month, day, seconds, said.get("sign") == ".", bool(said["half"]), short)


def _seconds(said: dict[str, str | None]) -> float | None:
    """Since midnight in UTC; None where there is no such time."""
    hour, minute = int(said["hour"] or 0), int(said["minute"] or 0)
    second = float((said["second"] or "0").replace(",", "."))
    if said["half"]:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if said["half"] == "p" else 0)
    if hour > 23 or minute > 59 or second >= 61:
        return None
    offset = 0
    if (zone := said["zone"]) and zone[0] in "+-":
        offset = int(f"{zone[0]}1") * (60 * int(zone[1:3]) + int(zone[-2:]))
    return 3600.0 * hour + 60.0 * (minute - offset) + second


def _order(cells: Sequence[_Cell], order: Order) -> tuple[bool, str]:
    """Whether the month comes first, and why; an empty text where nothing shows it."""
    if order != "auto":
        return order == "month_first", f"as dataset.dates={order} says"
    first, second = (sum(number > 12 for number in own) for own in ([c.day for c in cells], [c.month for c in cells]))
    if first or second:
        return second > first, "as other orders do not fit all cells"
    if all(cell.day == cell.month for cell in cells):
        return False, "which makes no difference here"
    if all(cell.dotted for cell in cells):
        return False, "as dates with points are written so"
    return any(cell.half for cell in cells), ""


def _days(cell: _Cell, month_first: bool = False) -> float:
    """Since 1970-01-01; NaN where the calendar has no such day."""
    month, day = (cell.day, cell.month) if month_first and cell.kind == "numbers" else (cell.month, cell.day)
    try:
        return datetime.date(cell.year, month, day).toordinal() - _EPOCH + cell.seconds / 86400
    except ValueError:
        return np.nan
