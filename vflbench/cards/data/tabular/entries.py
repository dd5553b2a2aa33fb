"""The entries of `dataset.files`: a path, or a path with what is to be known of the file."""

from dataclasses import dataclass


@dataclass
class Entry:
    """One file; all but its path is inferred where it is null."""

    path: str
    id: str | list[str] | None = None  # its columns that identify a sample; null: dataset.id
    separator: str | None = None  # one character, or tab
    decimal: str | None = None  # . or , where each number of a column can be read in two ways, as 1,234
    encoding: str | None = None  # as Python calls it, e.g. cp1252
    header: bool | None = None  # whether its first line names the columns
    sheet: str | None = None  # of a spreadsheet: its name, or its number from 1
