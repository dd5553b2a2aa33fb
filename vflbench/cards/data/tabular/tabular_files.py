"""The user's own tables."""

from dataclasses import dataclass
from typing import Literal

from vflbench.cards.data import divide
from vflbench.cards.data.columns import judging
from vflbench.cards.data.tabular import table
from vflbench.defaults import from_conf
from vflbench.types import DatasetInfo

DATASETS = (
    DatasetInfo(
        name="tabular_files",
        summary="your own tables: one CSV or Parquet file, or one per party (aligned by an ID, also by private set "
        "intersection or hashes)",
        layouts=("aligned", "sharded"),
        sources=("real",),
    ),
)


@dataclass
class Entry:
    """One file of `dataset.files`; all but its path is inferred where it is null."""

    path: str
    id: str | list[str] | None = None  # its columns that identify a sample; null: dataset.id
    separator: str | None = None  # one character, or tab
    decimal: str | None = None  # . or , where each number of a column can be read in two ways, as 1,234
    encoding: str | None = None  # as Python calls it, e.g. cp1252
    header: bool | None = None  # whether its first line names the columns
    sheet: str | None = None  # of a spreadsheet: its name, or its number from 1


@from_conf("dataset/tabular_files")
class OwnKeys(divide.SplitKeys, judging.Keys, table.Clipped):
    """Keys of a table of the user's own."""

    task: Literal["classes", "regression"]

    @property
    def plan(self) -> divide.Plan:
        """How rows are divided, as the keys say."""
        return divide.plan(self, self.task == "classes")


@from_conf()
class Config(OwnKeys):
    """Keys of the data set."""

    source: Literal["auto", "real"]
    problem: Literal["learning"]
    files: list[str | Entry]
    label: str | None
    id: str | list[str] | None
    alignment: Literal["given", "psi", "hashed"]
    own_rows: Literal["ignore", "fit", "train"]
