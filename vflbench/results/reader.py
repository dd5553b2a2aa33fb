"""Reads run folders back. Every file is checked first: missing, truncated or of another schema version is named, never guessed at."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vflbench.results.folder import PARQUET, SCHEMA, curve_columns
from vflbench.types import VflbenchError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


@dataclass(frozen=True)
class Coded:
    """A text column: the names, and for each row a code into them, (rows,) int32, -1 where it has none."""

    names: list[str]
    codes: np.ndarray

    def by(self, index: Mapping[str, int]) -> np.ndarray:
        """The column's names by their place in `index`, -1 for none, (rows,) int64."""
        found: np.ndarray = np.array([*(index.get(name, -1) for name in self.names), -1])[self.codes]
        return found


@dataclass(frozen=True)
class Arrays:
    """A ledger or a trace as arrays: of millions of rows, reading them into a DataFrame takes as long as what is then done with them."""

    numbers: dict[str, np.ndarray]
    texts: dict[str, Coded]
    rows: int

    def __len__(self) -> int:
        return self.rows


@dataclass(frozen=True)
class Run:
    """One run folder; each file is read when first asked for. Every attribute may raise VflbenchError naming the file."""

    folder: Path

    @property
    def status(self) -> str | None:
        """Status of the run; None while it has not ended (no summary.json)."""
        return self.summary["status"] if (self.folder / "summary.json").exists() else None

    @cached_property
    def summary(self) -> dict[str, Any]:
        """`summary.json`."""
        return _read_json(self.folder / "summary.json")

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """`manifest.json`: configuration, hash, versions, hardware, command."""
        return _read_json(self.folder / "manifest.json")

    @cached_property
    def curve(self) -> pd.DataFrame:
        """`curve.csv`, one row per evaluation; numbers equal to the last bit what was written."""
        return _read_curve(self.folder / "curve.csv")

    def check_curve(self) -> None:
        """That the curve is the one which the summary sums up, and that the trace has every round. Raises VflbenchError.

        A curve that is cut between two lines looks whole; a run that was continued without what came before counts nothing sent until then.
        """
        metric, column = self.summary["metric"], self.curve.columns[-1]
        rounds, scores = self.curve["round"].tolist(), [score if math.isfinite(score) else None for score in self.curve[column].tolist()]
        chosen = metric["selected_round"]
        if (scores[-1:] or [None]) != [metric["final"]] or (chosen is not None and chosen not in rounds):
            last = f"ends with round {rounds[-1]}, {column} {scores[-1]}" if rounds else "has no evaluation"
            raise VflbenchError(
                f"{self.folder / 'curve.csv'} is truncated or another run's: it {last}; summary.json ends with {metric['final']}"
            )
        if rounds:
            self._check_sums()
        self._check_rounds()

    def _check_sums(self) -> None:
        """That the curve ends with the summary's sums, or below them where the run went on after its last evaluation."""
        last, summary = self.curve.iloc[-1], self.summary
        rounding = len(summary["bytes"]["by_tag"])  # an accounting's fractions of bytes are rounded tag by tag
        for column, whole, slack in (("bytes", summary["bytes"]["total"], rounding), ("messages", summary["messages"], 0)):
            if last[column] > whole + slack or (last["round"] >= summary["rounds"] and last[column] < whole - slack):
                raise VflbenchError(
                    f"{self.folder / 'curve.csv'} is another run's: it ends with {last[column]:.0f} {column}; summary.json has {whole}"
                )

    def _check_rounds(self) -> None:
        """That some party marked the end of every round, where there is a trace to tell."""
        path = self.folder / "trace.parquet"
        try:
            content = _read_parquet(path, ["kind", "value"])
            marks = np.unique(content["value"].to_numpy()[np.asarray(content["kind"]) == "mark"])
        except (VflbenchError, KeyError):  # whoever needs the trace itself is told; the curve does not
            return
        if len(lacking := np.setdiff1d(np.arange(1, self.summary["rounds"] + 1), marks)):
            raise VflbenchError(f"{path} is not of the whole run: it lacks {len(lacking)} rounds, the first of them {lacking[0]}")

    @cached_property
    def ledger(self) -> pd.DataFrame:
        """`ledger.parquet`, one row per message; text columns categorical."""
        return _read_parquet(self.folder / "ledger.parquet").to_pandas()

    @cached_property
    def trace(self) -> pd.DataFrame:
        """`trace.parquet`, one row per event of a party."""
        return _read_parquet(self.folder / "trace.parquet").to_pandas()

    def arrays(self, name: str) -> Arrays:
        """`ledger` or `trace` as arrays, read anew each time."""
        path = self.folder / f"{name}.parquet"
        content = _read_parquet(path)
        if lacking := PARQUET[name].keys() - set(content.column_names):
            raise VflbenchError(f"{path} is malformed: it lacks {', '.join(sorted(lacking))}")
        numbers, texts = {}, {}
        for key, kind in PARQUET[name].items():
            column = content[key].combine_chunks()
            try:
                if kind == "text":
                    texts[key] = Coded(column.dictionary.to_pylist(), column.indices.fill_null(-1).to_numpy())
                else:
                    numbers[key] = column.to_numpy(zero_copy_only=False)
            except (AttributeError, ValueError) as error:  # another type than the one that is written
                raise VflbenchError(f"{path} is malformed: its column {key} is {column.type}") from error
        return Arrays(numbers, texts, len(content))


def load(folder: str | Path) -> Run:
    """The run in `folder`.

    Raises
    ------
    VflbenchError : there is no run.
    """
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
    return [Run(path.parent) for path in sorted(root.rglob("manifest.json"), key=lambda path: natural(str(path)))]


def natural(text: str) -> list[tuple[int, str]]:
    """Sort key by which `run2` comes before `run10`."""
    return [(int(digits or -1), other) for digits, other in re.findall(r"(\d+)|(\D+)", text)]


def table(runs: Iterable[Run]) -> pd.DataFrame:
    """One row per run, one column per number or name that runs are compared by; a run that has not ended has status None."""
    import pandas as pd

    return pd.DataFrame([_row(run) for run in runs])


def _row(run: Run) -> dict[str, Any]:
    row: dict[str, Any] = {"folder": str(run.folder), "status": run.status}
    if (run.folder / "manifest.json").exists():
        config = run.manifest.get("config", {})
        row |= {group: config.get(group, {}).get("name") for group in ("algorithm", "dataset", "network", "privacy")}
        row |= {"seed": config.get("seed"), "config_hash": run.manifest.get("config_hash")}
    if row["status"] is None:
        return row
    for key, value in run.summary.items():
        if key == "metric":
            row |= {"metric": value["name"], **{name: item for name, item in value.items() if name != "name"}}
        elif key == "bytes":
            row["bytes"] = value["total"]
        elif key == "privacy":
            row |= {"privacy": value["mechanism"], "epsilon": value["epsilon"], "delta": value["delta"]}
        elif not isinstance(value, dict | list) and key != "schema":
            row[key] = value
    return row


# --- files --------------------------------------------------------------------------------------------------------------


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        hint = ": the run has not ended; continue it with resume=true" if path.name == "summary.json" else ""
        raise VflbenchError(f"{path} is missing{hint}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise VflbenchError(f"{path} cannot be read: {error}") from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(_read_text(path))
    except json.JSONDecodeError as error:
        raise VflbenchError(f"{path} is truncated or malformed at line {error.lineno}: {error.msg}") from error
    if not isinstance(value, dict):
        raise VflbenchError(f"{path} is malformed: an object was expected")
    _check_schema(path, value.get("schema", SCHEMA))
    return value


def _check_schema(path: Path, version: object) -> None:
    if str(version) != str(SCHEMA):
        raise VflbenchError(f"{path} has schema version {version}; this vflbench reads version {SCHEMA}")


def _read_curve(path: Path) -> pd.DataFrame:
    import pandas as pd

    text = _read_text(path)
    header, *lines = list(csv.reader(text.splitlines())) or [[]]
    if not header or tuple(header) != curve_columns(header[-1].partition("_")[2]):
        raise VflbenchError(f"{path} line 1: these are not the columns of a curve")
    rows = []
    for number, line in enumerate(lines, start=2):
        if len(line) != len(header):
            raise VflbenchError(f"{path} line {number}: {len(line)} values for {len(header)} columns; the file is truncated")
        try:
            rows.append([_number(cell) for cell in line])  # Python's own parsing: exact in every version of pandas
        except ValueError as error:
            raise VflbenchError(f"{path} line {number}: {error}") from error
    if not text.endswith("\n"):
        raise VflbenchError(f"{path} line {len(lines) + 1}: the file is truncated")
    return pd.DataFrame(rows, columns=header, dtype=None if rows else "float64")


def _number(cell: str) -> int | float:
    return float(cell or "nan") if not cell.isdecimal() else int(cell)


def _read_parquet(path: Path, columns: list[str] | None = None) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.exists():
        raise VflbenchError(f"{path} is missing")
    try:
        content = pq.ParquetFile(path).read(columns, use_threads=False)  # of such small files threads cost more than they save
    except (pa.ArrowException, OSError) as error:
        raise VflbenchError(f"{path} is truncated or malformed: {error}") from error
    _check_schema(path, (content.schema.metadata or {}).get(b"vflbench_schema", b"none").decode())
    return content
