"""The card of `tabular_files`."""

from dataclasses import dataclass, field
from typing import Literal

from vflbench.cards.data.tabular import own_splits
from vflbench.cards.data.tabular.entries import Entry
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
class Config(own_splits.OwnKeys):
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
