"""The user's own tables."""

from dataclasses import dataclass, field
from typing import Literal

from vflbench.cards.data import divide
from vflbench.cards.data.columns import judging
from vflbench.cards.data.tabular import table
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


@dataclass
class OwnKeys(divide.SplitKeys, judging.Keys, table.Clipped):
    """Keys of a table of the user's own."""

    task: Literal["classes", "regression"] = "classes"  # classes (AUROC of two, accuracy of more) | regression (RMSE)

    @property
    def plan(self) -> divide.Plan:
        """How rows are divided, as the keys say."""
        return divide.plan(self, self.task == "classes")


@dataclass
class Config(OwnKeys):
    """Keys of the data set."""

    name: str = "tabular_files"
    source: Literal["auto", "real"] = "auto"  # your files are never replaced by made-up data
    problem: Literal["learning"] = "learning"
    # one, or one per party; paths below data_root, or relative to where vflbench is started; or {path: ..., id: ...}
    files: list[str | Entry] = field(default_factory=list)
    label: str | None = None  # the column to predict, in the first file
    id: str | list[str] | None = None  # the column that identifies a sample, or several together; never features
    alignment: Literal["given", "psi", "hashed"] = "given"
    # rows of a party that not all have: fit: they count for the means and scales of its own columns; train: and those
    # with labels are training rows of `alone`, and of methods that can do without the others' columns
    own_rows: Literal["ignore", "fit", "train"] = "ignore"
