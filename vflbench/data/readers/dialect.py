"""How a text file of cells is written: its separator, encoding and header line, inferred unless the user says them.

CleverCSV infers the separator from the first lines. The encoding follows from all bytes, the header from the cells.
"""

import codecs
import contextlib
import io
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO

from vflbench.data.readers.cells import means_missing
from vflbench.types import DataError

log = logging.getLogger(__name__)
SEPARATORS = (",", ";", "\t", "|")
DEFAULTS = {".tsv": "\t", ".tab": "\t"}  # where the cells do not tell: by the file's ending, else a comma
# what Python calls the encodings that people have; it knows many more
ENCODINGS = ("utf-8", "utf-16", "cp1252", "latin-1", "cp1250", "cp1251", "cp850", "mac-roman", "gb18030", "shift_jis")
SAMPLE = 10_000  # characters from which the separator is inferred
RECORDS = 1_000  # records from which the header is inferred
TITLES = 10  # lines above the header that may be no part of the table

_SEP_LINE = re.compile(r'"?sep=([^\w"])"?[\r\n]*', re.IGNORECASE)  # Excel's own first line
_DIGITS = re.compile(r"[+\-.,]*\d[\d\s.,:/'’+\-TZeE%]*")  # a number, a date or a time, however it is written
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")
_COMMA = re.compile(r"[+-]?\d+(,\d+)?")
_BOMS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_WORDS = {"utf-8-sig": "UTF-8 with a BOM", "utf-16": "UTF-16", "utf-16-le": "UTF-16", "utf-16-be": "UTF-16"}
# What cp1252 makes of other encodings: signs or a capital within a word, or a word without plain letters.
_ODD = re.compile(r"(?<=[^\W\d_])[„”‚‡†ˆ™ƒ§¶¤¢£¥¨¬‰‹›³¹¿](?=[^\W\d_])|(?<=[A-Za-z])[ŠŽŸ](?=[a-z])|[À-ÖØ-öø-ſ]{4}")
_WORD = re.compile(r"[^\s\d,;|\"()]*[^\x00-\x7f][^\s\d,;|\"()]*")
OTHERS = ("cp850", "mac-roman", "cp1250", "cp1251")  # encodings that a message suggests
_SIGNS = {"\t": "tab"}


@dataclass(frozen=True)
class Dialect:
    """How one text file is written."""

    separator: str
    encoding: str  # a codec of Python
    header: bool  # whether a line names the columns; else they are column1, column2, ...
    names: tuple[str, ...]  # of the columns
    width: int  # cells of a row: a last column without a name and a value is none of `names`
    skip: int  # lines above the first row, the header among them
    above: int  # of these, lines above the header: sep=, titles, blank ones
    example: str = ""  # a word that shows whether the encoding is right

    @property
    def plain(self) -> bool:
        """Whether it is written as a program would: UTF-8 with a header in its first line, and commas."""
        return (self.separator, self.encoding, self.header, self.above) == (",", "utf-8", True, 0)

    def in_words(self) -> list[str]:
        """What a reader should know of it."""
        shown = _SIGNS.get(self.separator, f"'{self.separator}'")
        encoding = _WORDS.get(self.encoding, self.encoding.upper() if self.encoding == "utf-8" else self.encoding)
        example = f" (as in {', which '.join(filter(None, (repr(self.example), doubt(self.example))))})"
        example = example if self.example else ""
        header = header_in_words(self.header, len(self.names), self.above)
        return [f"separated by {shown}", f"{encoding}{example}", *header]


def header_in_words(header: bool, columns: int, above: int) -> list[str]:
    """Whether a table has a header, and how many lines are `above` it."""
    called = f"column1 to column{columns}" if columns > 1 else "column1"
    told = "with a header line" if header else f"without a header line, so its columns are {called}"
    return [told, *([f"{above} line{'s' if above > 1 else ''} above the table skipped"] if above else [])]


def can_separate(text: str) -> bool:
    """Whether `text` can separate cells: one character of ASCII that is no part of numbers, words and quotes."""
    return len(text) == 1 and text.isascii() and not text.isalnum() and text not in "\"'.+-_\r\n\x00"


def known_encoding(name: str) -> bool:
    """Whether Python has such an encoding of text."""
    try:
        return bool(codecs.lookup(name)._is_text_encoding)
    except LookupError:
        return False


# --- encoding ---------------------------------------------------------------------------------------------------------


def encoding_of(opened: Callable[[], IO[bytes]], label: str) -> tuple[str, str]:
    """The encoding of all bytes, and a word of the text where it is a guess.

    Text that is not UTF-8 is taken for Windows-1252, which Excel writes in Western Europe.

    Raises
    ------
    DataError : it is neither, or no text.
    """
    with opened() as stream:
        first = stream.read(4096)
    for mark, name in _BOMS.items():
        if first.startswith(mark):
            return name, ""
    zeros = [first[start::2].count(0) for start in (0, 1)]
    if any(zeros):
        if max(zeros) > len(first) // 8 and not min(zeros):
            return ("utf-16-be" if zeros[0] else "utf-16-le"), ""
        what = (
            "is a Parquet file; name it .parquet"
            if first.startswith(b"PAR1")
            else "has bytes of zero, so it is no text file"
        )
        raise DataError(f"{label}: {what}")
    try:
        with opened() as stream, io.TextIOWrapper(stream, "utf-8") as text:
            while text.read(1 << 20):
                pass
    except UnicodeDecodeError:
        word = _word_of_cp1252(opened, label)
        if wrong := doubt(word):
            log.warning(
                "%s: read as Windows-1252, but %r %s; say its encoding, as {path: FILE, encoding: cp850}",
                label,
                word,
                wrong,
            )
        return "cp1252", word
    return "utf-8", ""


def doubt(word: str) -> str:
    """Why a word of a text in Windows-1252 may have another encoding; empty: it looks right."""
    if not _ODD.search(word) or "\u201c" in word:  # in quotation marks
        return ""
    found = []
    for name in OTHERS:
        with contextlib.suppress(UnicodeError):
            other = word.encode("cp1252").decode(name)
            found += [f"{other!r} in {name}"] if other.isalpha() and not _ODD.search(other) else []
    return f"looks wrong ({', '.join(found)})" if found else "looks wrong"


def _word_of_cp1252(opened: Callable[[], IO[bytes]], label: str) -> str:
    """The first word that is not ASCII, of a text in Windows-1252; one that looks wrong where a fifth of lines do.

    Raises
    ------
    DataError : a line is not; or most lines are UTF-8.
    """
    right, wrong, odd, word, strange = 0, 0, 0, "", ""
    advice = "say its encoding, as {path: FILE, encoding: cp850}, or convert the file to UTF-8"
    with opened() as stream:
        for number, line in enumerate(stream, start=1):
            if line.isascii():
                continue
            try:
                line.decode("utf-8")
                right += 1
                continue
            except UnicodeDecodeError as error:
                wrong = wrong or number
                right -= 1
                byte = line[error.start]
            try:
                text = line.decode("cp1252")
            except UnicodeDecodeError as error:
                byte = line[error.start]
                raise DataError(
                    f"{label}, line {number}: neither UTF-8 nor Windows-1252 (byte 0x{byte:02X}); {advice}"
                ) from None
            if not word and (found := re.search(r"[^\W\d]*[^\W\x00-\x7f][^\W\d]*", text)):
                word = found[0]
            if doubtful := next(filter(doubt, _WORD.findall(text)), ""):
                odd, strange = odd + 1, strange or doubtful
    if right >= 0:
        raise DataError(f"{label}, line {wrong}: not UTF-8 (byte 0x{byte:02X}), as other lines are; {advice}")
    return strange if 5 * odd > -right else word


# --- separator and header ---------------------------------------------------------------------------------------------


def separator_of(text: str, ending: str) -> str:
    """What separates the cells of a sample of whole lines.

    Parameters
    ----------
    ending : of the file's name, for a table of one column.
    """
    import clevercsv

    if said := _SEP_LINE.match(text):
        return said[1]
    with contextlib.suppress(clevercsv.Error):
        found = clevercsv.Sniffer().sniff(text, delimiters=SEPARATORS)
        lines = [line for line in text.splitlines() if line.strip()]
        if "," in "".join(lines[1:]) and "," not in lines[0] and all(map(_COMMA.fullmatch, lines[1:])):
            return ";"  # one column of numbers with decimal commas, below its name
        if _blanks_separate(lines[1:]):
            return " "
        if found and found.delimiter in SEPARATORS:
            return str(found.delimiter)
    return DEFAULTS.get(ending, ",")


def _blanks_separate(lines: Sequence[str]) -> bool:
    """Whether lines are numbers with single blanks between them, as lists of edges are, and not digit groups."""
    cells = [line.strip().split(" ") for line in lines]
    several = len({*map(len, cells)}) == 1 and len(cells[0]) > 1
    known = several and all(_NUMBER.fullmatch(cell) for row in cells for cell in row)
    return known and not all(len(cell) == 3 for row in cells for cell in row[1:])


def is_sep_line(text: str) -> bool:
    """Whether a whole line is the one that tells Excel the separator."""
    return _SEP_LINE.fullmatch(text) is not None


def titles_above(records: Sequence[Sequence[str]]) -> int:
    """How many of the first records are no part of the table: blank ones, and titles of a single cell."""
    widths = [len(cells) for cells in records]
    width = max(set(widths), key=widths.count, default=0)
    for above, cells in enumerate(records[: TITLES + 1]):
        first_alone = any(cells) and not any(cells[1:]) and (len(cells) < width or width > 2)
        if any(cells) and not (width > 1 and first_alone):
            return above
    return next((above for above, cells in enumerate(records) if any(cells)), 0)


def has_header(records: Sequence[Sequence[str]]) -> bool:
    """Whether the first record names the columns: texts above numbers do, numbers above numbers do not.

    Where all columns are texts it does, unless each of its cells is a value of its column again and again.
    """
    first, rest = [cell.strip() for cell in records[0]], records[1:]
    columns = [[cells[i].strip() for cells in rest if i < len(cells)] for i in range(len(first))]
    texts, digits, again = 0, 0, []
    for name, cells in zip(first, columns, strict=True):
        known = [cell for cell in cells if not means_missing(cell)]
        if means_missing(name) or not known:
            continue
        again.append(known.count(name) > 1)
        if 10 * sum(map(_is_digits, known)) > 9 * len(known):
            digits, texts = digits + _is_digits(name), texts + (not _is_digits(name))
    if texts or not again:
        return True
    return _counts(first, columns) if digits else not all(again)


def _is_digits(cell: str) -> bool:
    return _DIGITS.fullmatch(cell) is not None


def _counts(first: Sequence[str], columns: Sequence[Sequence[str]]) -> bool:
    """Whether numbers in the first record are the names 0, 1, 2, ... or 1, 2, 3, ... that programs give to columns."""
    names = first[1:] if first[0] == "" else first
    starts = [[str(i) for i in range(start, start + len(names))] for start in (0, 1)]
    whole = all(cell.lstrip("+-").isdigit() for cells in columns for cell in cells if cell)
    return names in starts and (len(names) > 2 or not whole)
