"""Writes a run folder: every file atomically, so that a full disk or a kill never leaves half a file."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import io
import json
import math
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vflbench.results import inventory
from vflbench.results.run_schema import (
    PRIVACY,
    SCHEMA,
    SUMMARY,
    charged,
    infinities,
    validate_manifest,
    validate_summary,
)
from vflbench.types import TRAINING_METRIC, DataSource, Metric, VflbenchError

PER = 1000  # predictions that the phase `predict` is told of: one request for so many

_CURVE_COLUMNS = (
    *("round", "epoch", "iterations", "virtual_seconds", "communication_seconds", "idle_seconds", "compute_seconds"),
    *("bytes", "messages", "vectors", "cost", "epsilon", "train_loss"),
)
PICTURES = tuple(f"{name}.{kind}" for name in ("curve", "bytes", "rounds") for kind in ("png", "svg"))
# What a run writes into its folder: the first parts of names.
FILES = frozenset(("manifest.json", "summary.json", "curve.csv", "ledger.parquet", "trace.parquet", "checkpoint"))
FILES |= {"model", "transcript", "logs", "error.log", ".hydra", *PICTURES}
SWEEP_FILES = frozenset(("multirun.yaml", "curve.csv", "curve.png", "curve.svg"))


# --- files ------------------------------------------------------------------------------------------------------------


def prepare(folder: Path, key: str = "hydra.run.dir=...") -> None:
    """Make `folder` and begin its list of files, which shows before any work that it can be written to.

    Only the user may read a folder made here, and its files (0700, 0600; the umask may be stricter). `key` is what the
    user changes for another folder.

    Raises
    ------
    VflbenchError : has the folder and the reason.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        inventory.start(folder, 0o600)
        inventory.tidy(folder)
    except OSError as error:
        raise VflbenchError(
            f"cannot write to the run folder {folder}: {_reason(error)}; choose another one with {key}"
        ) from error


@contextlib.contextmanager
def atomic(path: Path, replace: bool = False) -> Iterator[Path]:
    """A temporary path beside `path`, moved onto it when the block ends well and removed otherwise.

    `replace`: even a file that vflbench did not write; then no list names the new file. It has the permissions of the
    file that it replaces.

    Raises
    ------
    VflbenchError : has `path` and the reason (no space, no permission, a file there that is not vflbench's). What was
        at `path` is untouched.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    folder = None if replace else inventory.listed_by(path)
    try:
        if folder is not None:
            inventory.writing(folder, temporary.relative_to(folder).as_posix())
        mode = 0o666 if folder is None else inventory.mode(folder)
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
        if folder is None and path.exists():
            temporary.chmod(stat.S_IMODE(path.stat().st_mode))
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        if os.path.lexists(path) and not replace and not (folder is not None and inventory.owns(folder, path)):
            raise VflbenchError(f"{path} is there, and is not what vflbench wrote: move it away")
        if folder is not None:
            inventory.written(folder, path.relative_to(folder).as_posix(), temporary)
        os.replace(temporary, path)
    except OSError as error:
        raise VflbenchError(f"cannot write {path}: {_reason(error)}") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def atomic_write(path: Path, data: str | bytes, replace: bool = False) -> None:
    """Write `data` to `path`, wholly or not at all; `replace` and errors as in `atomic`.

    Text is written as UTF-8, with escapes for what UTF-8 cannot write.
    """
    with atomic(path, replace) as temporary:
        temporary.write_bytes(data.encode(errors="backslashreplace") if isinstance(data, str) else data)


def _reason(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)  # pyarrow's own text is long


# --- JSON -------------------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """`value` in JSON's own types; NaN and infinity become None.

    NumPy scalars and arrays, tuples, paths and dataclasses are converted.
    """
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    raise TypeError(f"{type(value).__name__} does not go into JSON: {value!r}")


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write `manifest.json`. Raises VflbenchError, and writes nothing, where a reader would refuse it."""
    _write_checked(folder / "manifest.json", manifest, validate_manifest)


def write_summary(folder: Path, summary: Mapping[str, Any]) -> None:
    """Write `summary.json`. Raises VflbenchError, and writes nothing, where a reader would refuse it."""
    _write_checked(folder / "summary.json", summary, validate_summary)


def _write_checked(path: Path, value: Mapping[str, Any], validate: Callable[[Mapping[str, Any]], list[str]]) -> None:
    value = plain(value)
    _refuse(path, validate(value))
    write_json(path, value)


def _refuse(path: Path, problems: Sequence[str]) -> None:
    """Raise VflbenchError where there are problems: vflbench could not read what it wrote."""
    if problems:
        more = f" and {len(problems) - 3} more" if problems[3:] else ""
        raise VflbenchError(
            f"{path} is not written, as no reader would accept it: {'; '.join(problems[:3])}{more}. This is a fault of "
            "the method, the mechanism or another option that gave it"
        )


def write_json(path: Path, value: Any) -> None:
    """Write `plain(value)` as JSON, with the keys in their order."""
    atomic_write(path, json.dumps(plain(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n")


# --- curve ------------------------------------------------------------------------------------------------------------


def curve_columns(metric: str) -> tuple[str, ...]:
    """The columns of `curve.csv`, in order."""
    return (*_CURVE_COLUMNS, *(f"{split}_{metric}" for split in splits(metric)))


def splits(metric: str) -> tuple[str, ...]:
    """The samples that a metric is measured on; a run is judged by the last of them."""
    return ("train",) if metric == TRAINING_METRIC else ("val", "test")


def write_curve(path: Path, rows: Sequence[Mapping[str, Any]], metric: str) -> None:
    """Write the evaluations as CSV.

    Numbers read back to the last bit; a missing value, None and NaN are empty.

    Raises
    ------
    ValueError : a row has a key that is no column and would be lost.
    VflbenchError : a reader would refuse it; nothing is written.
    """
    columns = curve_columns(metric)
    _refuse(path, validate_curve(rows))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: _cell(value) for key, value in row.items()})
    atomic_write(path, text.getvalue())


def validate_curve(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Where the rows break the run folder's contract, one line each."""
    problems, before = list[str](), -1
    for row in rows:
        cells = {key: value.item() if isinstance(value, np.generic) else value for key, value in row.items()}
        for key, value in cells.items():
            if isinstance(value, bool) or not isinstance(value, int | float | None):
                problems.append(f"{key} of round {row.get('round')}: {value!r} is no number")
        number = cells.get("round")
        if not isinstance(number, int) or number <= before:
            problems.append(f"round: {number!r} after {before}; rounds are whole numbers, and rise")
        else:
            before = number
    return problems


def _cell(value: Any) -> str:
    value = value.item() if isinstance(value, np.generic) else value
    return "" if value is None or value != value else repr(value)


# --- summary ----------------------------------------------------------------------------------------------------------


def select(rows: Sequence[Mapping[str, Any]], metric: Metric) -> Mapping[str, Any] | None:
    """The row with the best `val_<metric>`, the earliest of equals; None without validation."""
    key, sign = f"val_{metric.name}", 1 if metric.goal == "max" else -1
    scored = [row for row in rows if row.get(key) is not None and math.isfinite(row[key])]
    return max(scored, key=lambda row: sign * row[key], default=None)  # max keeps the first of equals


def score_of(scores: Mapping[str, Any]) -> float | None:
    """The test value at the round that validation chose, else that at the end: of `metric` or `averaged_model`."""
    value: float | None = scores.get("selected")
    return scores.get("final") if value is None else value


def summarise(
    *,
    source: DataSource | None,
    metric: Metric | None,
    rows: Sequence[Mapping[str, Any]],
    bytes_by_tag: Mapping[str, int],
    bytes_by_link: Mapping[str, int],
    privacy: Mapping[str, Any] | None = None,
    extra: Mapping[str, Any] | None = None,
    **given: Any,
) -> dict[str, Any]:
    """The content of `summary.json`.

    Parameters
    ----------
    source, metric : None only where the run ended before its data were loaded.
    rows : the curve's; the last one is `final`, the one that validation chose is `selected`.
    bytes_by_tag : charged bytes.
    bytes_by_link : bytes of each link kind; those of `local` are in no total.
    privacy : {mechanism, epsilon, delta, unit, neighbouring, covers, ...}; None: no mechanism. An infinite number is
        the text `inf`.
    extra : keys that only some runs have: utilisation, waiting_seconds, attack.
    given : all other keys of the contract (`SUMMARY`). Three may be left out: `epochs`, `idle_seconds`, and `reason`,
        which says why the run failed, was skipped, diverged or stopped at a budget.

    Raises
    ------
    ValueError : a key of the contract is missing, `given` has one that is not in it, or `extra` one that is.
    """
    chosen = select(rows, metric) if metric else None
    validation, test = (f"val_{metric.name}", f"{splits(metric.name)[-1]}_{metric.name}") if metric else ("", "")
    summary = {
        "schema": SCHEMA,
        "reason": None,
        "epochs": None,
        "idle_seconds": None,
        **given,
        "data_source": source.kind if source else None,
        "data_variant": source.variant if source else None,
        "metric": {
            "name": metric.name if metric else None,
            "goal": metric.goal if metric else None,
            "final": rows[-1].get(test) if rows else None,
            "selected": chosen.get(test) if chosen else None,
            "selected_round": chosen["round"] if chosen else None,
            "selected_validation": chosen[validation] if chosen else None,
        },
        "bytes": {"total": charged(bytes_by_link), "by_tag": bytes_by_tag, "by_link": bytes_by_link},
        "privacy": infinities({**dict.fromkeys(PRIVACY), "mechanism": "none", **(privacy or {})}),
    }
    if mismatched := summary.keys() ^ SUMMARY.keys():
        raise ValueError(
            f"a summary has each of the keys {', '.join(SUMMARY)}, and no others: {', '.join(sorted(mismatched))}"
        )
    if clash := set(extra or {}) & set(summary):
        raise ValueError(f"extra would overwrite {sorted(clash)}")
    lacks = {"data_lacks": source.lacks} if source and source.lacks else {}
    result: dict[str, Any] = plain({**{key: summary[key] for key in SUMMARY}, **lacks, **(extra or {})})
    return result


def summarise_unrun(**given: Any) -> dict[str, Any]:
    """The summary of a run that was skipped, or ended before its first round, with every key of the contract.

    `given`: status, reason, algorithm, dataset, seed, compute_clock, timing, accounting, device.
    """
    seconds = ("communication_seconds", "compute_seconds", "virtual_seconds", "wall_seconds")
    given |= {**dict.fromkeys(("rounds", "messages", "vectors"), 0), **dict.fromkeys(("cost", *seconds), 0.0)}
    return summarise(source=None, metric=None, rows=(), bytes_by_tag={}, bytes_by_link={}, **given)
