"""What a tabular data set is: its columns, its files and their reader, its target, its twin.

How one is checked, found, announced and divided is the same for all of them, and stands here.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from vflbench.data import sources, twins
from vflbench.data.sources import FileSet, Found, Part, RawFile
from vflbench.data.tabular import table
from vflbench.data.tabular.table import Keys, Table
from vflbench.data.tasks import AlignedTask, RelationalTask, ShardedTask
from vflbench.types import DatasetInfo, DataSource, Metric, Problem, refuse

Contents = Iterator[tuple[bytes, str]]  # of files, one after the other: the bytes, and how errors call them


@dataclass(frozen=True)
class TabularSet:
    """A data set. The functions are given its configuration."""

    info: DatasetInfo
    metric: Metric  # of problem=learning
    columns: Callable[[Any], int]  # how many it has
    make: Callable[[Any, Path | None], tuple[Table, DataSource]]  # the second is data_root
    problems: Callable[[Any], list[Problem]] = lambda config: []  # of the keys that are its own
    scaling: Literal["standard", "range"] = "standard"  # this and the next: see table.divide
    shape: tuple[int, ...] = (-1,)

    def check(self, config: Keys, layout: str, parties: int) -> list[Problem]:
        """What is wrong with the configuration, before anything is read."""
        return table.check(config, layout, parties, self.columns(config)) + self.problems(config)

    def load(
        self, config: Keys, layout: str, parties: int, seed: int, root: Path | None
    ) -> AlignedTask | RelationalTask | ShardedTask:
        """The table, its columns or its rows divided between `parties`."""
        refuse(self.check(config, layout, parties))
        made, source = self.make(config, root)
        how: dict[str, Any] = {
            "layout": layout,
            "parties": parties,
            "seed": seed,
            "scaling": self.scaling,
            "shape": self.shape,
        }
        return table.divide(config, made, source, self.metric, **how)


# --- read from files --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Form:
    """One form in which a table is published. `members`: what is read of the zip archive that the file is."""

    files: tuple[RawFile, ...]
    read: Callable[[Contents], Table]
    members: tuple[str, ...] = ()

    def contents(self, found: Found) -> Contents:
        """What `read` takes, file by file. Raises DataError."""
        for file in self.files:
            data, label = found.read(file), found.label(file)
            if not self.members:
                yield data, label
            for name in self.members:
                yield table.member(data, label, name), f"{label}, {name}"


@dataclass(frozen=True)
class Edition:
    """What is published under one name: `forms`, of which the first that is there is read, and what stands in for
    it."""

    columns: tuple[str, ...]
    forms: tuple[Form, ...]
    twin: Callable[[], Table]
    variant: str | None = None  # as dataset.variant names it, where there are several


@dataclass(frozen=True)
class Files:
    """The files of a data set, by edition: `auto` takes the first that is there."""

    info: DatasetInfo
    rows: str  # what they are
    editions: tuple[Edition, ...]
    verify: Callable[[Any], bool] = lambda config: True  # whether to compare with known checksums, by the configuration

    def asked(self, variant: str) -> list[Edition]:
        """The editions that `dataset.variant` allows."""
        return [edition for edition in self.editions if variant in ("auto", edition.variant)]

    def columns(self, config: Keys) -> int:
        """How many the edition has."""
        return len(self.asked(config.variant)[0].columns)

    def file_set(self, variant: str = "auto") -> FileSet:
        """What is looked for."""
        groups = tuple(form.files for edition in self.asked(variant) for form in edition.forms)
        return FileSet(self.info.name, self.info.folder or "", (Part(self.rows, groups),))

    def make(self, config: Keys, root: Path | None) -> tuple[Table, DataSource]:
        """The table of the first form that is there, or the twin. Raises DataError."""
        editions = self.asked(config.variant)
        found = sources.locate(self.file_set(config.variant), root, config.source, self.verify(config))
        if found is None:
            return editions[0].twin(), twins.twin_source(editions[0].variant)
        edition, form = next((e, f) for e in editions for f in e.forms if all(file in found for file in f.files))
        return form.read(form.contents(found)), found.source(edition.variant, used=form.files)
