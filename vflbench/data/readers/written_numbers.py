"""Numbers as people write them: 1234.5, 1.234,5, 1 234,5 or 1'234.5.

A column has one way of writing. It follows from the cells, except where each could be read in two ways: 1,234 is a
thousand or a little above one. Then the decimal sign of the file's other columns decides.
"""

import contextlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

DECIMALS = (".", ",")
# Thousands signs, as a pattern each: a blank may also be a narrow or a non-breaking one, an apostrophe a curly one.
GROUPS = {".": r"\.", ",": ",", " ": "[ \u00a0\u2009\u202f]", "'": "['’]"}
FIRST = 1000  # cells that are tried before all others


@dataclass(frozen=True)
class Writing:
    """A decimal sign and a thousands sign, each empty where no cell has one."""

    decimal: str
    group: str = ""

    @property
    def pattern(self) -> str:
        """What a whole cell looks like; with a thousands sign, every number from 1,000 on has it."""
        whole, sign = r"\d+", rf"\{self.decimal}"
        if self.group:
            indian = r"|[1-9]\d?(?:,\d{2})+,\d{3}" if self.group == "," else ""  # 12,34,567
            whole = rf"(?:0|[1-9]\d{{0,2}}(?:{GROUPS[self.group]}\d{{3}})*{indian})"
        return rf"^(?:[+-]?(?:{whole}(?:{sign}\d*)?|{sign}\d+)(?:[eE][+-]?\d+)?|[+-]?(?i:inf(?:inity)?))$"


class Undecided(Exception):
    """Each number of a column can be read in two ways, and nothing says which one is meant."""


def writings(cells: Any) -> list[Writing]:
    """The ways in which all `cells` of an Arrow column of text, without blanks around them, can be read as numbers.

    Two ways give different numbers. A column of texts has none.
    """
    import pyarrow.compute as pc

    def match(way: Writing) -> bool:
        return bool(pc.all(pc.match_substring_regex(cells, way.pattern), min_count=0).as_py())

    def has(pattern: str) -> bool:
        return bool(pc.any(pc.match_substring_regex(cells, pattern), min_count=0).as_py())

    def all_are(way: Writing) -> bool:
        if way.group:
            return has(GROUPS[way.group]) and match(way)
        mixed = pc.any(pc.match_substring(cells, "." if way.decimal == "," else ","), min_count=0).as_py()
        return not mixed and _can_be_cast(plain(cells, way))

    first = [cell for cell in cells.slice(0, FIRST).to_pylist() if cell is not None]
    # in a text no way passes the first test; Python keeps compiled patterns, and Arrow compiles them for each column
    found = [way for way in _ways() if all(map(re.compile(way.pattern, re.ASCII).fullmatch, first)) and all_are(way)]
    if len(found) == 2 and found[0].group == found[1].group:  # no cell has a decimal sign
        return [Writing("", found[0].group)]
    return found


def _can_be_cast(cells: Any) -> bool:
    """Whether all cells are numbers as a program writes them; much faster than a pattern."""
    import pyarrow as pa

    with contextlib.suppress(pa.ArrowInvalid):
        cells.cast(pa.float64())
        return True
    return False


def evidence(columns: Iterable[list[Writing]]) -> str | None:
    """The decimal sign on which all columns that can be read in one way agree; None where none tells, or two differ."""
    signs = {ways[0].decimal for ways in columns if len(ways) == 1} - {""}
    return signs.pop() if len(signs) == 1 else None


def chosen(ways: list[Writing], decimal: str | None) -> Writing | None:
    """The way to read a column; None for texts.

    Parameters
    ----------
    decimal : the sign that decides between two ways.

    Raises
    ------
    Undecided : there are two, and no such sign.
    """
    if len(ways) < 2:
        return ways[0] if ways else None
    if decimal is None:
        raise Undecided
    return next(way for way in ways if way.decimal == decimal)


def values(texts: np.ndarray, decimal: str) -> tuple[np.ndarray, np.ndarray]:
    """Texts, of which some are numbers.

    Parameters
    ----------
    texts : (n,) objects, None where one is missing.
    decimal : the sign that decides where numbers can be read in two ways.

    Returns
    -------
    values : (n,) float64, NaN where a cell is not written as most numbers of the column are.
    meant : (n,) bool: a cell is a number, written in any way.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    cells = pc.utf8_trim_whitespace(pa.array(texts, pa.string()))
    fitting = {way: pc.match_substring_regex(cells, way.pattern).fill_null(False) for way in _ways()}
    most = max(fitting, key=lambda way: (pc.sum(fitting[way]).as_py() or 0, way.decimal == decimal, way.group == ""))
    numbers = pc.if_else(fitting[most], plain(pc.replace_substring_regex(cells, r"^\+", ""), most), None)
    found = numbers.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return found.astype(np.float64), np.any([mask.to_numpy(zero_copy_only=False) for mask in fitting.values()], axis=0)


def _ways() -> list[Writing]:
    return [Writing(decimal, group) for decimal in DECIMALS for group in ("", *GROUPS) if group != decimal]


def plain(cells: Any, way: Writing) -> Any:
    """The cells as a program writes the numbers."""
    import pyarrow.compute as pc

    if way.group:
        cells = pc.replace_substring_regex(cells, GROUPS[way.group], "")
    return pc.replace_substring(cells, ",", ".") if way.decimal == "," else cells
