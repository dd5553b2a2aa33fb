"""`vflbench.tables`: DataFrames as the tables of the parties.

Runs read files, so that other processes, a cluster and resumed runs can read them, too. So the frames are written once
as Parquet, into a private folder that is named by their content. `dataset=tabular_files` reads and checks them, as it
reads and checks a user's files.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vflbench import config
from vflbench.cards.data.tabular.tabular_files import Config
from vflbench.data import prepared, sources
from vflbench.data.columns import inspection
from vflbench.data.tabular import alignment as matching
from vflbench.data.tabular import tabular_files
from vflbench.defaults import filled
from vflbench.python import frames
from vflbench.types import ConfigError, DataError, Problem, VflbenchError, refuse

if TYPE_CHECKING:
    import pandas as pd

ARGUMENT = re.compile(
    r"\bdataset\.(?=(label|id|task|alignment|leave_out|categories|numbers|missing_words|dates|own_rows"
    r"|split|stratify|time|entity)\b)"
)


@dataclass(frozen=True, repr=False)
class Tables:
    """DataFrames that a run can take: ``vflbench.run([...], data=tables)``.

    `folder` has copies of the frames as Parquet files that only you can read. They stay until you call `remove`, so
    that runs can be resumed and repeated.
    """

    folder: Path  #: where the copies are
    files: Mapping[str, Path]  #: name of a table -> its copy, the labels' owner first
    keys: Mapping[str, Any]  #: other keys of `dataset=tabular_files` whose values are not the defaults
    about: tuple[Mapping[str, Any], ...]  #: what was matched, imputed and encoded, for each table

    @functools.cached_property
    def overrides(self) -> list[str]:
        """The overrides that name these data, for a list or a command line."""
        files = [_without_home(path) for path in self.files.values()]
        keys = {"files": files, **self.keys}
        return ["dataset=tabular_files", *(config.quoted(f"dataset.{key}", value) for key, value in keys.items())]

    @property
    def summary(self) -> list[str]:
        """What was matched, imputed and encoded, a line for each table."""
        return [_named(line, self.files) for line in inspection.in_words(self.about, self._key("own_rows", "ignore"))]

    def _key(self, name: str, default: str = "") -> str:
        return str(self.keys.get(name, default))

    def remove(self) -> None:
        """Delete the copies. Runs on them can then no longer be resumed or repeated.

        Nothing else in the folder is touched.
        """
        for path in (*self.files.values(), self.folder / prepared.LIST):
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # something else is in it
            self.folder.rmdir()

    def __repr__(self) -> str:
        """The tables with their rows, and the folder of the copies on a second line."""
        shown = [f"{name} ({about['rows']} rows)" for name, about in zip(self.files, self.about, strict=True)]
        matched = f", {self.about[0]['matched']} rows in all" if len(shown) > 1 else ""
        return (
            f"Tables {', '.join(shown)}{matched}; {shown[0].partition(' (')[0]} has {self._key('label')}\n{self.folder}"
        )


def tables(
    tables: Mapping[str, pd.DataFrame],
    label: str,
    *,
    id: str | Sequence[str] | None = None,
    task: Literal["classes", "regression"] = "classes",
    alignment: Literal["given", "psi", "hashed"] = "given",
    leave_out: Sequence[str] = (),
    categories: Sequence[str] = (),
    numbers: Sequence[str] = (),
    missing_words: Sequence[str] = (),
    dates: Literal["auto", "day_first", "month_first"] = "auto",
    own_rows: Literal["ignore", "fit", "train"] = "ignore",
    split: Literal["random", "time", "group"] = "random",
    stratify: Literal["auto", "none"] = "auto",
    time: str | None = None,
    entity: str | None = None,
    folder: str | Path | None = None,
) -> Tables:
    """Make DataFrames the data of runs, one for each party.

    The frames are checked together, as ``dataset=tabular_files`` checks files, and are never changed. The party whose
    table has the label comes first: it is the active party. A single table is divided between parties by columns, or
    between workers by rows.

    Types are kept. A date is a date. A categorical column becomes a 0/1 column for each value, even if the values are
    numbers. Missing values (NaN, None, NaT, NA) stay missing. The index is not used, unless `id` is its name.

    Parameters
    ----------
    tables : the DataFrames, by the names of the parties' tables.
    label : the column to predict, which one of the tables has.
    id : the column that identifies a row in every table, or several that do so together; None: row i of every table is
        the same sample. Tables that share a column of distinct values in another order are then refused.
    task : `classes` (judged by AUROC, or by accuracy if there are more than two) or `regression` (judged by RMSE).
    alignment : how rows are matched. given: all tables have the same IDs, in any order. psi, hashed: only rows that all
        tables have are kept, found by private set intersection or by hashes.
    leave_out : columns that are not features; they are not copied.
    categories : columns whose numbers are codes.
    numbers : columns of numbers; other cells count as missing, and a column that numbers the rows is kept.
    missing_words : texts that count as missing in every column. Among numbers and dates ?, -, n/a, null and others
        always do.
    dates : what 3/4/2020 is, if no other cell of the column shows whether the day or the month comes first.
    own_rows : how rows are used that some tables lack. ignore: not at all. fit: for means and scales. train: also for
        training.
    split : random: rows train, validate or test at random. group: whole entities do. time: the earliest rows train, and
        the latest are for testing.
    stratify : auto: of a classification each part gets rows of each class, in proportion; not with `split="time"`.
    time : the column with the time of a row, in the label's table: dates or numbers. It is not a feature.
    entity : the column that says whose row it is (a patient), in the label's table. No entity is in two parts. It is
        not a feature.
    folder : the folder in which a folder with the copies is made; None: `vflbench/tables` in your cache folder.

    Returns
    -------
    Tables : for ``vflbench.run(["algorithm=vfl"], data=tables)``.

    Raises
    ------
    ConfigError, DataError : the tables have problems; the error lists all, by table, column and row (from row 0).
    """
    refuse(frames.of_tables(tables))
    left = [leave_out] if isinstance(leave_out, str) else [*leave_out]
    words = [missing_words] if isinstance(missing_words, str) else [*missing_words]
    held = {name: frames.with_id(frame, id) for name, frame in tables.items()}
    problems, owner = frames.of_roles(held, label, id, left, by_order=alignment == "given")
    dropped = [column for column in left if column not in (time, entity)]
    held = {name: frame.drop(columns=dropped, errors="ignore") for name, frame in held.items()}
    held = {name: held[name] for name in sorted(held, key=lambda name: name != owner)}
    columns, codes, lines = {}, {}, list[str]()
    for name, frame in held.items():
        columns[name], coded, faults = frames.columns(name, frame, words)
        codes[name] = [column for column in coded if column not in (label, time, entity, *frames.ids_of(id))]
        lines += faults
    problems += frames.mixed(codes, held)
    typed = [categories] if isinstance(categories, str) else [*categories]
    named = [*typed, *(column for own in codes.values() for column in own)]
    named_id = [*id] if isinstance(id, tuple) else id
    keys: dict[str, Any] = {"label": label, "id": named_id, "task": task, "alignment": alignment, "own_rows": own_rows}
    keys |= {"split": split, "stratify": stratify, "time": time, "entity": entity}
    keys["categories"], keys["dates"] = list(dict.fromkeys(named)), dates
    keys["numbers"], keys["missing_words"] = [numbers] if isinstance(numbers, str) else [*numbers], words
    files = {f"{name}.parquet": frames.parquet(own) for name, own in columns.items()}
    roles = [("label", label), *(("id", column) for column in frames.ids_of(id))]
    gone = [key for key, name in roles if isinstance(name, str) and not any(name in own for own in columns.values())]
    unkept = {column for frame in held.values() for column in frame.columns if isinstance(column, str)}
    unkept -= {column for own in columns.values() for column in own}
    gone += [key for key, name in {"time": time, "entity": entity}.items() if isinstance(name, str) and name in unkept]
    about = _checked(files, keys, problems, lines, {*gone, *(problem.key for problem in problems)})
    folder = _kept(files, Path(folder) if folder is not None else sources.cache_folder() / "tables")
    paths = {file.removesuffix(".parquet"): folder / file for file in files}
    defaults = vars(filled(Config))
    return Tables(folder, paths, {key: value for key, value in keys.items() if value != defaults[key]}, about)


@contextlib.contextmanager
def naming(data: Tables) -> Iterator[None]:
    """Errors of the block name the tables, not the files of the copies."""
    try:
        yield
    except (ConfigError, DataError) as error:
        raise _translated(error, lambda text: _named(text, data.files)) from None


def _checked(
    files: Mapping[str, bytes], keys: Mapping[str, Any], problems: list[Problem], lines: list[str], reported: set[str]
) -> tuple[Mapping[str, Any], ...]:
    """What `dataset=tabular_files` makes of the files; in place of a psi the IDs are compared.

    Parameters
    ----------
    problems, lines : what is already known to be wrong.
    reported : arguments whose problems are already reported.

    Raises
    ------
    ConfigError, DataError : its problems, and those that are known already.
    """
    tried = matching.quiet() if keys["alignment"] == "psi" else contextlib.nullcontext()
    with tempfile.TemporaryDirectory(prefix="vflbench-") as place, tried:
        paths = {name.removesuffix(".parquet"): Path(place, name) for name in files}
        for path, content in zip(paths.values(), files.values(), strict=True):
            path.write_bytes(content)
        try:
            made, mistyped = config.convert(Config, {**keys, "files": [*map(str, paths.values())]})
            refuse(mistyped)
            assert made is not None
            refuse(tabular_files.check(made, "aligned", len(paths)))
            made = replace(made, alignment="hashed") if made.alignment == "psi" else made
            task = tabular_files.load(made, "aligned", len(paths), 0, None)
        except (ConfigError, DataError) as error:
            refused = _translated(error, lambda text: ARGUMENT.sub("", _named(text, paths)))
            raise _together(problems, lines, refused, reported, keys["label"]) from None
    if lines or problems:
        raise _together(problems, lines, None, reported, keys["label"])
    return task.source.tables


def _together(
    problems: list[Problem], lines: list[str], refused: VflbenchError | None, reported: set[str], label: Any
) -> VflbenchError:
    """All problems as one error; `refused` may repeat some of them, and has others."""
    if isinstance(refused, ConfigError):
        problems = [*problems, *(problem for problem in refused.problems if problem.key not in reported)]
    elif refused is not None:
        head, *rest = str(refused).split("\n  ")
        again = f", column {label}: " if "label" in reported else "\n"
        fresh = [line for line in rest or [head] if line.partition("=")[0] not in reported]
        lines = [*lines, *(line for line in fresh if again not in line)]
    if not lines:
        return ConfigError(problems) if problems or refused is None else refused
    every = [*map(str, problems), *lines]
    return DataError("\n  ".join([f"{len(every)} problems in your tables:", *every]) if every[1:] else every[0])


def _kept(files: Mapping[str, bytes], base: Path) -> Path:
    """The folder below `base` with these files, which is made if it is not there.

    Raises
    ------
    DataError : it cannot be written.
    """
    content = hashlib.sha256()
    for name, own in files.items():
        content.update(hashlib.sha256(name.encode()).digest() + hashlib.sha256(own).digest())
    folder = base.expanduser().absolute() / content.hexdigest()[:16]

    def write(part: Path) -> None:
        for name, own in files.items():
            (part / name).write_bytes(own)

    try:
        prepared.keep(folder, write)
    except OSError as error:
        raise DataError(f"{folder}: cannot be written ({error}); name another place with folder=") from None
    return folder


def _without_home(path: Path) -> str:
    """The path, with ~ for the home folder: so a run's manifest does not name the user."""
    return f"~/{path.relative_to(Path.home())}" if path.is_relative_to(Path.home()) else str(path)


def _named(text: str, files: Mapping[str, Path]) -> str:
    """The text, with names of tables in place of names of files."""
    for name, path in files.items():
        text = text.replace(str(path), name).replace(path.name, name)
    return text


def _translated(error: ConfigError | DataError, words: Callable[[str], str]) -> VflbenchError:
    """The error in other words."""
    if isinstance(error, DataError):
        return DataError(words(str(error)))
    problems = [
        replace(p, key=words(p.key), value=words(str(p.value)), allowed=words(p.allowed)) for p in error.problems
    ]
    return ConfigError(problems)
