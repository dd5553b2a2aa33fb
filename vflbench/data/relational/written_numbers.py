"""Numbers as people write them: 1234.5, 1.234,5, 1 234,5 or 1'234.5.

A column has one way of writing. It follows from the cells, except where each could be read in two ways: 1,234 is a
thousand or a little above one. Then the decimal sign of the file's other columns decides.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

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
        whole = rf"(?:0|[1-9]\d{{0,2}}(?:{GROUPS[self.group]}\d{{3}})*)" if self.group else r"\d+"
        sign = rf"\{self.decimal}"
        return rf"^[+-]?(?:{whole}(?:{sign}\d*)?|{sign}\d+)(?:[eE][+-]?\d+)?$"


class Undecided(Exception):
    """Each number of a column can be read in two ways, and nothing says which one is meant."""


def writings(cells: Any) -> list[Writing]:
    """The ways in which all `cells` of an Arrow column of text, without blanks around them, can be read as numbers.

    Two ways give different numbers. A column of texts has none.
    """
    import pyarrow.compute as pc

    def all_are(way: Writing, some: Any) -> bool:
        return bool(pc.all(pc.match_substring_regex(some, way.pattern), min_count=0).as_py())

    def some_has(group: str) -> bool:
        return not group or bool(pc.any(pc.match_substring_regex(cells, GROUPS[group]), min_count=0).as_py())

    ways = [Writing(decimal, group) for decimal in DECIMALS for group in ("", *GROUPS) if group != decimal]
    first = cells.slice(0, FIRST)
    possible = [way for way in ways if all_are(way, first)]  # of a text none, and of a number few, so it is fast
    found = [way for way in possible if some_has(way.group) and all_are(way, cells)]
    if len(found) == 2 and found[0].group == found[1].group:  # no cell has a decimal sign
        return [Writing("", found[0].group)]
    return found


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


def plain(cells: Any, way: Writing) -> Any:
    """The cells as a program writes the numbers."""
    import pyarrow.compute as pc

    if way.group:
        cells = pc.replace_substring_regex(cells, GROUPS[way.group], "")
    return pc.replace_substring(cells, ",", ".") if way.decimal == "," else cells
