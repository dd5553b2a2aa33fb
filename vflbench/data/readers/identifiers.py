"""IDs: each is exact, and in the one writing in which it is compared, or it is refused.

Two files may write one ID in several ways that nobody can see: composed or decomposed letters, invisible characters,
blanks at the ends, the apostrophe with which Excel marks a text. These are taken away. What may be a difference between
two persons is kept: capitals, inner blanks, leading zeros, compatibility forms of letters.

Digit grouping and a final .0 belong to a column, not to a cell: they go only where every cell of a column has them.
"""

import re
import sys
import unicodedata
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np

from vflbench.data.readers.cells import EXACT, Column, Wrong, as_type

# Characters of other categories that print nothing (Unicode: Default_Ignorable_Code_Point).
_IGNORED = "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef"
_ENDS = re.compile(r"^[\s']+|\s+$")
_GROUPED = re.compile(r"[+-]?\d{1,3}(?:([,.'\u2019\s])\d{3}(?:\1\d{3})*)?")
_WHOLE_FLOAT = re.compile(r"[+-]?[\d,.'\u2019\s]*\d([.,])0{1,2}")
_BIG_FLOAT = re.compile(r"[+-]?(\d+|\d{1,3}(?:([,.'\u2019\s])\d{3})(?:\2\d{3})*)(?!\2)[.,]0+")
_ROUNDED = re.compile(r"[+-]?\d(?:[.,]\d+)?[eE]\+\d{2,3}")  # as Excel, R and C write large numbers
_NUMBER = re.compile(r"[+-]?\d+(?:[.,]\d*)?(?:[eE][+-]?\d+)?")


@dataclass(frozen=True)
class Ids:
    """The IDs of a column."""

    values: np.ndarray  # (n,) objects: texts as they are compared; None where there is none
    raw: np.ndarray  # (n,) objects: as they were written
    note: str = ""  # what was taken from all of them

    def refuse_clashes(self) -> None:
        """Refuse IDs that are written differently and would count as one, where an ID may be there several times.

        Raises
        ------
        Wrong : there are some.
        """
        known: dict[str, str] = {}
        for row, (name, raw) in enumerate(zip(self.values, self.raw, strict=True)):
            if name is not None and (before := known.setdefault(name, raw)) != raw:
                raise Wrong(row, f"{alike(before, raw)}: write them alike")


def ids(column: Column) -> Ids:
    """The IDs of a column of any kind, as a source holds it.

    Raises
    ------
    Wrong : a cell is no exact ID: a float rounded it, or it is in scientific notation.
    """
    raw = np.array(as_type(column, "text").values, dtype=object)
    raw[column.null] = None
    if column.kind != "text":
        return Ids(np.array([cell if cell is None else str(cell) for cell in raw], dtype=object), raw)
    known = {cell: normal(cell) for cell in dict.fromkeys(raw.tolist()) if cell is not None}
    texts = {cell: name for cell, name in known.items() if name}
    if (rounded := _rounded(texts.values())) is not None:
        row = next(row for row, cell in enumerate(raw) if texts.get(cell) == rounded[0])
        raise Wrong(row, rounded[1])
    taken, note = _whole_column(set(texts.values()))
    values = np.array([None if (name := texts.get(cell)) is None else taken.get(name, name) for cell in raw], object)
    return Ids(values, raw, note)


def normal(text: str) -> str:
    """The text in Unicode's form NFC, without invisible characters, blanks at its ends and Excel's apostrophe."""
    if text.isascii() and text.isalnum():
        return text
    return _ENDS.sub("", unicodedata.normalize("NFC", _invisible().sub("", text)))


def plain(text: str) -> str:
    """A text without what only its writing shows: forms of Unicode, spaces, capitals. No ID is compared so."""
    return " ".join(unicodedata.normalize("NFC", text).split()).casefold()


@cache
def _invisible() -> re.Pattern[str]:
    """Characters that print nothing; tabs and ends of lines are blanks."""
    found = [
        c for c in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(c) in ("Cc", "Cf") and not c.isspace()
    ]
    return re.compile(f"[{''.join(map(re.escape, found))}{_IGNORED}]")


def _rounded(texts: Collection[str]) -> tuple[str, str] | None:
    """An ID whose digits are lost, and why; None if there is none."""
    numeric = all(_NUMBER.fullmatch(text) for text in texts)
    for text in texts:
        if _ROUNDED.fullmatch(text) or (numeric and "e" in text.lower()):
            reason = "is in scientific notation, which drops digits of an ID"
        elif (found := _BIG_FLOAT.fullmatch(text)) and int(re.sub(r"\D", "", found[1])) >= EXACT:
            reason = "is a float from 2**53 on, where IDs are rounded and cannot be told apart"
        else:
            continue
        return text, f"{text!r} {reason}; save the IDs as whole numbers or as text"
    return None


def _whole_column(texts: Collection[str]) -> tuple[dict[str, str], str]:
    """The texts without a final .0 and digit grouping, where all have them, and what was taken; else nothing."""
    taken, what = {text: text for text in texts}, []
    signs = {found and found[1] for found in map(_WHOLE_FLOAT.fullmatch, taken.values())}
    if len(signs) == 1 and None not in signs:
        taken = {text: re.split(r"[.,]0{1,2}$", name)[0] for text, name in taken.items()}
        what.append("the final .0")
    found = [_GROUPED.fullmatch(name) for name in taken.values()]
    grouping = {str(match[1]) for match in found if match and match[1]}
    if len(grouping) == 1 and all(found):
        (sign,) = grouping
        taken = {text: name.replace(sign, "") for text, name in taken.items()}
        what.append("digit grouping")
    if not what:
        return {}, ""
    text = max(taken, key=len)
    return taken, f"{' and '.join(what)} {'are' if len(what) > 1 else 'is'} ignored, as {text!r} is {taken[text]!r}"


def alike(one: str, other: str) -> str:
    """How two IDs differ that count as one."""
    pair = " and ".join(quoted_pair(one, other))
    return f"{pair} differ only in characters that cannot be seen, or in their composition"


# --- IDs that are nearly equal ----------------------------------------------------------------------------------------


def _loose(name: str) -> str:
    return re.sub(r"\s", "", name).casefold().removesuffix(".0").lstrip("0")


def _compatible(name: str) -> str:
    return _loose(_compatible_form(name))


def _compatible_form(name: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


def _ungrouped(name: str) -> str:
    return _loose(re.sub(r"(?<=\d)[,.'\u2019](?=\d{3}(?:\D|$))", "", name))


def plainest(name: str) -> str:
    """The text without any of these differences."""
    if name.isascii() and name.isalnum():  # as most IDs are
        return name.casefold().lstrip("0")
    return _ungrouped(_compatible_form(name))


NEAR: dict[str, Callable[[str], str]] = {
    "blanks, capitals, leading zeros or a final .0": _loose,
    "Unicode's compatibility forms (NFKC)": _compatible,
    "digit grouping": _ungrouped,
    "digit grouping and compatibility forms (NFKC)": plainest,
}


def near(ids: Iterable[str], others: Iterable[str]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Pairs of IDs, of which neither is on the other side, that differ only in their writing: per kind of difference.

    They are named, and never joined: they may be two persons.
    """
    here, there = dict.fromkeys(ids), dict.fromkeys(others)
    lacking, other = [name for name in here if name not in there], [name for name in there if name not in here]
    found = []
    for kind, plain in NEAR.items():
        known = {plain(name): name for name in other}
        pairs = [(name, known[plain(name)]) for name in lacking if plain(name) in known]
        if pairs:
            found.append((kind, pairs))
            paired = {name for name, _ in pairs}
            lacking = [name for name in lacking if name not in paired]
    return found


def quoted_pair(one: str, other: str) -> tuple[str, str]:
    """Two IDs for a message, with the code points in which they differ where these are not plain letters."""
    if (one + other).isascii() and (one + other).isprintable():
        return repr(one), repr(other)
    shorter, first = min(len(one), len(other)), 0
    while first < shorter and one[first] == other[first]:
        first += 1
    last = 0
    while last < shorter - first and one[-1 - last] == other[-1 - last]:
        last += 1
    parts = [text[first : len(text) - last] for text in (one, other)]
    points = [" ".join(f"U+{ord(sign):04X}" for sign in part) for part in parts]
    return tuple(
        f"{text!r} ({codes})" if codes else repr(text) for text, codes in zip((one, other), points, strict=True)
    )  # type: ignore[return-value]
