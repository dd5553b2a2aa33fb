"""What makes a tabular data set: its columns, its files and their reader, its target, its twin.

All of them are checked, found and divided in the same way, by the code of this file.
"""

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from vflbench.cards.data.tabular.table import Keys
from vflbench.data import prepared, sources, twins
from vflbench.data.published_files import Rows, Size
from vflbench.data.sources import FileSet, Found, Part, RawFile
from vflbench.data.tabular import table
from vflbench.data.tabular.table import Table
from vflbench.data.tasks import AlignedTask, RelationalTask, ShardedTask
from vflbench.types import DataError, DatasetInfo, DataSource, Metric, Problem, refuse

Contents = Iterator[tuple[bytes, str]]  # of files, one after the other: the bytes, and the file's name in errors


@dataclass(frozen=True)
class TabularSet:
    """A data set. Its functions take its configuration."""

    info: DatasetInfo
    metric: Metric  # of problem=learning
    columns: Callable[[Any], int]  # how many it has
    make: Callable[[Any, Path | None], tuple[Table, DataSource]]  # the second is data_root
    problems: Callable[[Any], list[Problem]] = lambda config: []  # of the keys that no other set has
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
        whole, source = self.make(config, root)
        how: dict[str, Any] = {"layout": layout, "parties": parties, "seed": seed}
        return table.divide(config, whole, source, self.metric, **how, scaling=self.scaling, shape=self.shape)


# --- read from files --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Form:
    """One form in which a table is published."""

    files: tuple[RawFile, ...]
    read: Callable[[Contents], Table]
    size: Callable[[Path], Size]  # rows and columns of one of the files
    width: int  # columns of a file, with those that are not read; 0: it has none
    members: tuple[str, ...] = ()  # where the file is a zip archive: what is read of it
    rows_in: int | None = None  # how many of the files hold the rows, the first ones; None: all

    def contents(self, found: Found) -> Contents:
        """What `read` takes, file by file.

        Raises
        ------
        DataError : a file or a member cannot be read.
        """
        for file in self.files:
            data, label = found.read(file), found.label(file)
            if not self.members:
                yield data, label
            for name in self.members:
                yield member(data, label, name), f"{label}, {name}"


@dataclass(frozen=True)
class Edition:
    """What is published under one name."""

    columns: tuple[str, ...]
    forms: tuple[Form, ...]  # the first one that is there is read
    twin: Callable[[], Table]
    samples: int  # how many are published
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
        """How many columns the edition has."""
        return len(self.asked(config.variant)[0].columns)

    def file_set(self, variant: str = "auto") -> FileSet:
        """The files to look for."""
        forms = [(edition, form) for edition in self.asked(variant) for form in edition.forms]
        variants = tuple(edition.variant for edition, _ in forms if edition.variant)
        part = Part(self.rows, tuple(form.files for _, form in forms), variants=variants)
        rows = tuple(
            Rows(
                self.rows,
                (edition.samples,),
                form.width,
                tuple(file.path for file in form.files[: form.rows_in]),
                form.size,
            )
            for edition, form in forms
        )
        return FileSet(self.info.name, self.info.folder or "", (part,), rows=rows)

    def make(self, config: Keys, root: Path | None) -> tuple[Table, DataSource]:
        """The table of the first form that is there, or the twin.

        Raises
        ------
        DataError : a file cannot be read, or is not what it should be.
        """
        editions = self.asked(config.variant)
        found = sources.locate(self.file_set(config.variant), root, config.source, self.verify(config))
        if found is None:
            return self._kept(editions[0], editions[0].twin), twins.twin_source(editions[0].variant)
        edition, form = next((e, f) for e in editions for f in e.forms if all(file in found for file in f.files))
        source = found.source(edition.variant, used=form.files)
        return self._kept(edition, lambda: form.read(form.contents(found)), source.files), source

    def _kept(self, edition: Edition, made: Callable[[], Table], made_of: tuple[tuple[str, str], ...] = ()) -> Table:
        return kept(self.info.name, made, edition.variant, made_of)


def member(data: bytes, label: str, name: str) -> bytes:
    """The content of the file `name` in the zip archive `data`.

    Raises
    ------
    DataError : it is no zip archive, is damaged, or holds no such file.
    """
    import zipfile
    import zlib

    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return archive.read(name)
    except KeyError:
        raise DataError(f"{label}: this archive holds no file {name}. Get it again.") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, RuntimeError, NotImplementedError) as error:
        raise DataError(f"{label}: a damaged zip archive ({error}). Get it again.") from None


# --- kept between jobs ------------------------------------------------------------------------------------------------


def kept(name: str, made: Callable[[], Table], *made_of: Any) -> Table:
    """The table that `made` makes of `made_of`, in memory maps of the cache folder, where a later job finds it."""

    def arrays() -> dict[str, np.ndarray]:
        whole = made()
        about = json.dumps([whole.columns, dict(whole.levels), whole.classes])
        held = {"values": whole.values, "labels": whole.labels, "about": np.frombuffer(about.encode(), np.uint8)}
        return held if whole.times is None else {**held, "times": whole.times}

    held = prepared.arrays(sources.cache_folder() / "tables" / f"{name}-{prepared.key(*made_of)}", arrays)
    columns, levels, classes = json.loads(held["about"].tobytes())
    return Table(
        held["values"],
        tuple(columns),
        {column: tuple(names) for column, names in levels.items()},
        held["labels"],
        classes,
        times=held.get("times"),
    )
