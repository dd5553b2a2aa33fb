"""Reads run folders.

Every file is checked first. An error names what is missing, damaged, malformed or of another schema version; nothing is
guessed.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vflbench import registry
from vflbench.results import inventory
from vflbench.results.folder import curve_columns
from vflbench.results.parquet import PARQUET
from vflbench.results.run_schema import PHASES, SCHEMA, UNCHARGED_LINK, validate_manifest, validate_summary
from vflbench.results.texts import in_line, result_line
from vflbench.types import VflbenchError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

OWN = ("setup", "train")  # the phases of a run's own program
COMMUNICATION, IDLE = "communication_seconds", "idle_seconds"


@dataclass(frozen=True)
class Coded:
    """A text column: the names, and for each row a code into them, (rows,) int32, -1 for none."""

    names: list[str]
    codes: np.ndarray

    def by(self, index: Mapping[str, int]) -> np.ndarray:
        """For each row the place of its name in `index`, (rows,) int64, -1 for none."""
        found: np.ndarray = np.array([*(index.get(name, -1) for name in self.names), -1])[self.codes]
        return found


@dataclass(frozen=True)
class Arrays:
    """A ledger or a trace as arrays; a DataFrame of millions of rows takes as long to make as to use."""

    numbers: dict[str, np.ndarray]
    texts: dict[str, Coded]
    rows: int

    def __len__(self) -> int:
        return self.rows

    def of_phases(self, phases: Sequence[str]) -> Arrays:
        """The rows of `phases`."""
        chosen = self.texts["phase"].by(dict.fromkeys(phases, 0)) == 0
        if chosen.all():
            return self
        numbers = {key: column[chosen] for key, column in self.numbers.items()}
        texts = {key: replace(column, codes=column.codes[chosen]) for key, column in self.texts.items()}
        return Arrays(numbers, texts, int(chosen.sum()))


@dataclass(frozen=True, repr=False)
class Run:
    """One run folder; each file is read when it is first asked for.

    Every attribute may raise a VflbenchError, which names the file.
    """

    folder: Path

    def __repr__(self) -> str:
        """What the run is and what came out, in a line; its folder in another."""
        return f"Run of {in_line(self._words())}\n{in_line(str(self.folder))}"

    def _words(self) -> str:
        """Method, data set, seed and result."""
        try:
            if self.status is not None:
                told = self.summary
                return f"{told['algorithm']} on {told['dataset']}, seed {told['seed']}: {result_line(told)}"
            told = self.manifest["config"]
            return f"{told['algorithm']['name']} on {told['dataset']['name']}, seed {told['seed']}: not ended"
        except (VflbenchError, OSError, KeyError, TypeError) as damaged:  # a debugger shows damaged runs, too
            return f"what cannot be read: {damaged}"

    @property
    def status(self) -> str | None:
        """Status of the run; None while it has not ended (no summary.json)."""
        return self.summary["status"] if (self.folder / "summary.json").exists() else None

    @cached_property
    def summary(self) -> dict[str, Any]:
        """`summary.json`."""
        return _with_infinities(_read_json(self.folder / "summary.json", validate_summary, _with_idle))

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """`manifest.json`: configuration, hash, versions, hardware, command."""
        return _read_json(self.folder / "manifest.json", validate_manifest)

    @cached_property
    def overrides(self) -> list[str] | None:
        """The overrides that started the run, from `.hydra/overrides.yaml`; None where there is no such file."""
        import yaml

        path = self.folder / ".hydra/overrides.yaml"
        if not path.parent.is_dir():
            return None
        try:
            words = yaml.safe_load(_read_text(path))
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise VflbenchError(f"{path} is truncated or malformed: {error}") from error
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise VflbenchError(f"{path} is malformed: a list of words was expected")
        return words

    @cached_property
    def curve(self) -> pd.DataFrame:
        """`curve.csv`, one row per evaluation; numbers are as written, to the last bit."""
        import pandas as pd

        columns, rows = self.cells
        return pd.DataFrame(rows, columns=columns, dtype=None if rows else "float64")

    @cached_property
    def cells(self) -> tuple[list[str], list[list[int | float]]]:
        """The columns and rows of `curve.csv`; whole numbers are integers, an empty cell is NaN."""
        columns, rows = _read_curve(self.folder / "curve.csv")
        if IDLE not in columns:  # of before there was that column
            place = columns.index(COMMUNICATION)
            idle = self.summary[IDLE] is not None
            columns = [*columns[: place + 1], IDLE, *columns[place + 1 :]]
            for row in rows:
                seconds = row[place]
                row[place : place + 1] = [math.nan, seconds] if idle else [seconds, math.nan]
        return columns, rows

    def check_curve(self) -> None:
        """Check that curve and summary agree, and that the trace has every round.

        A curve that was cut between two lines looks whole. A run that was continued without its first part has counted
        nothing that was sent before.

        Raises
        ------
        VflbenchError : they do not agree.
        """
        metric, column = self.summary["metric"], self.curve.columns[-1]
        rounds, scores = (
            self.curve["round"].tolist(),
            [score if math.isfinite(score) else None for score in self.curve[column].tolist()],
        )
        chosen = metric["selected_round"]
        if (scores[-1:] or [None]) != [metric["final"]] or (chosen is not None and chosen not in rounds):
            last = f"ends with round {rounds[-1]}, {column} {scores[-1]}" if rounds else "has no evaluation"
            raise VflbenchError(
                f"{self.folder / 'curve.csv'} is truncated or another run's: it {last}; summary.json ends with "
                f"{metric['final']}"
            )
        if rounds:
            self._check_sums()
        self._check_rounds()

    def _check_sums(self) -> None:
        """Check that the curve ends with the summary's sums, or below them if the run went on after its last row."""
        last, summary = self.curve.iloc[-1], self.summary
        rounding = len(summary["bytes"]["by_tag"])  # an accounting's fractions of bytes are rounded tag by tag
        for column, whole, slack in (
            ("bytes", summary["bytes"]["total"], rounding),
            ("messages", summary["messages"], 0),
        ):
            if last[column] > whole + slack or (last["round"] >= summary["rounds"] and last[column] < whole - slack):
                raise VflbenchError(
                    f"{self.folder / 'curve.csv'} is another run's: it ends with {last[column]:.0f} {column}; "
                    f"summary.json has {whole}"
                )

    def _check_rounds(self) -> None:
        """Check that a party marked the end of every round, if there is a trace."""
        try:
            trace = self.arrays("trace")
        except VflbenchError:  # an error for those who need the trace; the curve does not
            return
        marks = np.unique(trace.numbers["value"][trace.texts["kind"].by({"mark": 0}) == 0])
        rounds = self.summary["rounds"]
        marked = marks[(marks >= 1) & (marks <= rounds)]
        if lacking := rounds - len(marked):
            # not an array of all rounds: their number comes from a file
            first = np.setdiff1d(np.arange(1, len(marked) + 2), marked)[0]
            path = self.folder / "trace.parquet"
            raise VflbenchError(f"{path} is not of the whole run: it lacks {lacking} rounds, the first of them {first}")

    @cached_property
    def ledger(self) -> pd.DataFrame:
        """The run's own messages, those of the phases setup and train, a row each; text columns categorical."""
        whole = self.messages
        return whole[whole["phase"].isin(OWN)].reset_index(drop=True)

    @cached_property
    def messages(self) -> pd.DataFrame:
        """`ledger.parquet`: one row per message, of all phases."""
        table: pd.DataFrame = self._table("ledger").to_pandas()
        return table

    @cached_property
    def trace(self) -> pd.DataFrame:
        """The run's own events of `trace.parquet`, one row per event of a party."""
        table: pd.DataFrame = self._table("trace").to_pandas()
        return table[table["phase"] == "train"].reset_index(drop=True)

    def arrays(self, name: str) -> Arrays:
        """`ledger` or `trace` as arrays, of all phases; read each time."""
        content = self._table(name)
        numbers, texts = {}, {}
        for key, kind in PARQUET[name].items():
            column = content[key].combine_chunks()
            if kind == "text":
                texts[key] = Coded(column.dictionary.to_pylist(), column.indices.fill_null(-1).to_numpy())
            else:
                numbers[key] = column.to_numpy(zero_copy_only=False)
        return Arrays(numbers, texts, len(content))

    def _table(self, name: str) -> pa.Table:
        content = _read_parquet(self.folder / f"{name}.parquet", PARQUET[name])
        if name == "ledger" and self.status is not None:
            self._check_totals(content)
        return content

    def _check_totals(self, ledger: pa.Table) -> None:
        """Check that the ledger has the messages and bytes that the summary counts."""
        before = self.summary.get("before", {})  # what the accounting charges that the run did not send
        own = np.isin(ledger["phase"].to_numpy(zero_copy_only=False), OWN)
        link = ledger["link"].combine_chunks()
        free = [code for code, name in enumerate(link.dictionary.to_pylist()) if name == UNCHARGED_LINK]
        charged = own & ~np.isin(link.indices.to_numpy(), free)
        sums = [("messages", int(charged.sum()), self.summary["messages"] - before.get("messages", 0))]
        if self.summary["accounting"] == "strict":  # any other counts bytes in its own way
            sums.append(("bytes", int(ledger["bytes"].to_numpy()[charged].sum()), self.summary["bytes"]["total"]))
        for what, found, wanted in sums:
            if found != wanted:
                path = self.folder / "ledger.parquet"
                raise VflbenchError(f"{path} is another run's: it has {found} {what}; summary.json has {wanted}")


def load(folder: str | Path) -> Run:
    """The run in `folder`; raises VflbenchError where there is none."""
    folder = Path(folder)
    if not any((folder / name).is_file() for name in ("manifest.json", "summary.json")):
        raise VflbenchError(f"{folder} is no run folder: it holds neither manifest.json nor summary.json")
    return Run(folder)


def find(root: str | Path) -> list[Run]:
    """Every run at or below `root` (a run has a manifest.json), in the natural order of paths: 2 before 10.

    Raises
    ------
    VflbenchError : `root` is no folder.
    """
    root = Path(root)
    if not root.is_dir():
        raise VflbenchError(f"{root} is no folder")
    below = [path.parent for path in inventory.found_below(root, "manifest.json")]
    return [Run(folder) for folder in sorted(below, key=lambda folder: natural(str(folder)))]


def natural(text: str) -> list[tuple[int, str]]:
    """A sort key that puts `run2` before `run10`."""
    return [(int(digits or -1), other) for digits, other in re.findall(r"(\d+)|(\D+)", text)]


# --- files ------------------------------------------------------------------------------------------------------------


def _read_text(path: Path) -> str:
    inventory.check(path)
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        hint = ": the run has not ended; continue it with resume=true" if path.name == "summary.json" else ""
        raise VflbenchError(f"{path} is missing{hint}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise VflbenchError(f"{path} cannot be read: {error}") from error


def _read_json(
    path: Path,
    validate: Callable[[dict[str, Any]], list[str]],
    upgrade: Callable[[dict[str, Any]], dict[str, Any]] = dict,
) -> dict[str, Any]:
    text = _read_text(path)
    try:
        value = json.loads(text)
        if "\\ud" in text.lower():  # half of a surrogate pair is no character, and cannot be written to a file
            value = json.loads(json.dumps(value, ensure_ascii=False).encode(errors="replace"))
    except json.JSONDecodeError as error:
        raise VflbenchError(f"{path} is truncated or malformed at line {error.lineno}: {error.msg}") from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, thousands of brackets
        raise VflbenchError(f"{path} is malformed: {error}") from error
    if not isinstance(value, dict):
        raise VflbenchError(f"{path} is malformed: an object was expected")
    _check_schema(path, value.get("schema", SCHEMA))
    value = upgrade(value)
    if problems := validate(value):
        more = f" and {len(problems) - 3} more" if problems[3:] else ""
        raise VflbenchError(f"{path} is malformed: {'; '.join(problems[:3])}{more}")
    return value


def _with_idle(summary: dict[str, Any]) -> dict[str, Any]:
    """`summary`, with `idle_seconds`, as it is written today.

    Before there was that key, a run that cannot be replayed had its value as communication time.
    """
    if IDLE in summary or COMMUNICATION not in summary:
        return summary
    info = registry.algorithms().get(str(summary.get("algorithm")))
    seconds = summary[COMMUNICATION]
    if summary.get("timing") == "measured" or (info is not None and info.time_dependent):
        return {**summary, COMMUNICATION: None, IDLE: seconds}
    return {**summary, IDLE: None}


def _with_infinities(summary: dict[str, Any]) -> dict[str, Any]:
    """`summary`, with infinite numbers for the text `inf` of its budgets.

    Before there was that text, the epsilon of a run without noise was null.
    """
    privacy = {key: _number_of(value) for key, value in summary["privacy"].items()}
    if privacy["mechanism"] != "none" and privacy["epsilon"] is None:
        privacy["epsilon"] = math.inf
    return {**summary, "privacy": privacy}


def _number_of(value: Any) -> Any:
    """Infinity for the text `inf`, also inside."""
    if isinstance(value, dict):
        return {key: _number_of(item) for key, item in value.items()}
    return math.inf if value == "inf" else value


def _check_schema(path: Path, version: object) -> None:
    if str(version) != str(SCHEMA):
        raise VflbenchError(f"{path} has schema version {version}; this vflbench reads version {SCHEMA}")


def _read_curve(path: Path) -> tuple[list[str], list[list[int | float]]]:
    text = _read_text(path)
    try:
        header, *lines = list(csv.reader(text.splitlines())) or [[]]
    except csv.Error as error:
        raise VflbenchError(f"{path} is malformed: {error}") from error
    columns = curve_columns(header[-1].partition("_")[2]) if header else ()
    if not header or tuple(header) not in (columns, tuple(name for name in columns if name != IDLE)):
        raise VflbenchError(f"{path} line 1: these are not the columns of a curve")
    rows = []
    for number, line in enumerate(lines, start=2):
        if len(line) != len(header):
            raise VflbenchError(
                f"{path} line {number}: {len(line)} values for {len(header)} columns; the file is truncated"
            )
        try:
            rows.append([_number(cell) for cell in line])  # Python's own parsing: exact in every version of pandas
        except ValueError as error:
            raise VflbenchError(f"{path} line {number}: {error}") from error
        round, before = rows[-1][0], rows[-2][0] if rows[1:] else -1
        if not isinstance(round, int) or round <= before:
            raise VflbenchError(
                f"{path} line {number}: round {round} after round {before}; rounds are whole numbers, and rise"
            )
    if not text.endswith("\n"):
        raise VflbenchError(f"{path} line {len(lines) + 1}: the file is truncated")
    return header, rows


def _number(cell: str) -> int | float:
    return float(cell or "nan") if not cell.isdecimal() else int(cell)


def _read_parquet(path: Path, types: Mapping[str, str]) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.exists():
        raise VflbenchError(f"{path} is missing")
    inventory.check(path)
    try:
        content = pq.ParquetFile(path).read(use_threads=False)  # for such small files threads cost more than they save
        content.validate(full=True)
        version = (content.schema.metadata or {}).get(b"vflbench_schema", b"none").decode()
    except Exception as error:  # damaged bytes make pyarrow raise errors of many kinds
        raise VflbenchError(f"{path} is truncated or malformed: {error}") from error
    _check_schema(path, version)
    if "phase" not in content.column_names and "phase" in types:
        content = content.append_column("phase", _inferred(content))
    if lacking := types.keys() - set(content.column_names):
        raise VflbenchError(f"{path} is malformed: it lacks {', '.join(sorted(lacking))}")
    for name, kind in types.items():
        column = content[name]
        wanted = pa.dictionary(pa.int32(), pa.string()) if kind == "text" else pa.from_numpy_dtype(kind)
        if column.type != wanted or (column.null_count and name != "peer"):
            raise VflbenchError(
                f"{path} is malformed: its column {name} is {column.type}, {column.null_count} of it null"
            )
    return content


def _inferred(content: pa.Table) -> pa.Array:
    """The phase of each row in a file of an older version: before the first round `setup`, else `train`."""
    import pyarrow as pa

    if "round" not in content.column_names or content.num_rows == 0:
        codes = np.full(content.num_rows, PHASES.index("train"), np.int32)
    else:
        codes = np.where(content["round"].to_numpy() > 0, PHASES.index("train"), PHASES.index("setup"))
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(PHASES, pa.string()))
