"""Gisette (Guyon et al., NIPS 2003 feature selection challenge): is it a 4 or a 9? 6,000 published training samples, 5,000 columns.

Read in its original format (gisette_train.data, gisette_train.labels) and in libsvm's (gisette_scale). Both give the same numbers: each
column is scaled to [0, 1], so that zeros stay zeros.
"""

from __future__ import annotations

import bz2
import io
import warnings
from dataclasses import dataclass
from typing import Literal

import numpy as np

from vflbench.data.sources import RawFile
from vflbench.data.tabular import table
from vflbench.data.tabular.sets import Contents, Edition, Files, Form, TabularSet
from vflbench.data.tabular.table import Table
from vflbench.seeding import stream
from vflbench.types import DataError, DatasetInfo, Metric

DATASETS = (
    DatasetInfo(
        name="gisette",
        summary="Gisette: 6,000 samples, 5,000 columns, 13 % not zero, sparse logistic regression (MTCD) or learning",
        layouts=("aligned", "sharded", "relational"),
        folder="gisette",
    ),
)

SAMPLES, WIDTH = 6000, 5000
COLUMNS = tuple(f"x{number}" for number in range(1, WIDTH + 1))


@dataclass
class Config(table.ClassKeys):
    name: str = "gisette"
    problem: Literal["learning", "sparse_logistic"] = "sparse_logistic"


def _read_uci(contents: Contents) -> Table:
    data, file = next(contents)
    values = read_dense(data, file)
    signs, beside = next(contents)
    labels = read_signs(signs, beside)
    if len(values) != len(labels):
        raise DataError(f"{beside}: {len(labels)} labels for the {len(values)} samples of {file}. Get the files again.")
    return Table(values, COLUMNS, {}, labels, 2)


def read_dense(data: bytes, label: str) -> np.ndarray:
    """(n, 5000) float32 of lines of 5,000 integers."""
    lines = data.rstrip(b"\r\n ").split(b"\n")
    values = np.empty((len(lines), WIDTH), np.float32)
    for number, line in enumerate(lines, 1):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", DeprecationWarning)  # how numpy says that it stopped before the end
                row = np.fromstring(line.decode("ascii"), dtype=np.float32, sep=" ")
        except (ValueError, DeprecationWarning):
            raise DataError(f"{label}, line {number}: not numbers between spaces. Correct the line, or get the file again.") from None
        if len(row) != WIDTH or not np.isfinite(row).all():
            raise DataError(
                f"{label}, line {number}: {len(row)} numbers, not {WIDTH} finite ones. Correct the line, or get the file again."
            )
        values[number - 1] = row
    return values


def read_signs(data: bytes, label: str) -> np.ndarray:
    """(n,) int64 classes: 1 for a line `1` (or `+1`), 0 for `-1`."""
    signs = {b"1": 1, b"+1": 1, b"-1": 0}
    labels = []
    for number, line in enumerate(data.rstrip(b"\r\n ").split(b"\n"), 1):
        if line.strip() not in signs:
            raise DataError(f"{label}, line {number}: {line[:40].decode('ascii', 'replace')!r} is not 1 or -1. Get the file again.")
        labels.append(signs[line.strip()])
    return np.array(labels)


def _read_libsvm(contents: Contents) -> Table:
    """Lines `sign index:value index:value ...`, indices from 1."""
    from sklearn.datasets import load_svmlight_file

    data, label = next(contents)
    try:
        features, signs = load_svmlight_file(io.BytesIO(data), n_features=WIDTH, dtype=np.float32, zero_based=False)
        if len(signs) and np.isin(signs, (-1, 1)).all() and np.isfinite(features.data).all():
            return Table(features.toarray(), COLUMNS, {}, (signs > 0).astype(np.int64), 2)
    except (ValueError, OverflowError):
        pass
    for number, line in enumerate(data.rstrip(b"\r\n").split(b"\n"), 1):
        if problem := _wrong_libsvm(line.decode("ascii", "replace")):
            raise DataError(f"{label}, line {number}: {problem}. Correct the line, or get the file again.")
    raise DataError(f"{label}: not a file in libsvm's format. Get the file again.")


def _unpacked(contents: Contents) -> Contents:
    for data, label in contents:
        try:
            yield bz2.decompress(data), label
        except (OSError, ValueError, EOFError) as error:
            raise DataError(f"{label}: cannot be read ({error}). Get the file again.") from None


def _wrong_libsvm(line: str) -> str | None:
    """What is wrong with a line."""
    sign, *entries = line.split("#")[0].split() or [""]
    if sign not in ("1", "+1", "-1"):
        return f"the label {sign[:40]!r} is not +1 or -1"
    last = 0
    for entry in entries:
        index, _, value = entry.partition(":")
        try:
            place, finite = int(index), bool(np.isfinite(float(value)))
        except ValueError:
            return f"{entry[:40]!r} is not index:value"
        if not finite or not last < place <= WIDTH:
            return f"{entry[:40]!r}: indices ascend from 1 to {WIDTH}, values are finite"
        last = place
    return None


def twin(samples: int = SAMPLES) -> Table:
    """Made-up samples with the original's shape: integers from 0 to 999, 13 % not zero, two equal classes, most columns noise.

    A column is busy or rare; of 400 columns the chance to be not zero differs between the classes.
    """
    rng = stream(0, "twin/gisette")
    labels = rng.permutation(np.arange(samples) % 2)
    busy = rng.beta(0.5, 3.0, WIDTH)
    busy *= 0.13 / busy.mean()
    tells = np.zeros(WIDTH)
    tells[rng.permutation(WIDTH)[:400]] = rng.normal(0, 0.35, 400)
    values = np.empty((samples, WIDTH), np.float32)
    for sign in (0, 1):
        rows = np.flatnonzero(labels == sign)
        chance = (busy * np.exp((2 * sign - 1) * tells)).clip(0, 0.98).astype(np.float32)
        present = rng.random((len(rows), WIDTH), dtype=np.float32) < chance
        values[rows] = np.where(present, np.floor(1 + 999 * rng.random((len(rows), WIDTH), dtype=np.float32)).clip(1, 999), 0)
    return Table(values, COLUMNS, {}, labels, 2)


_FORMS = (
    Form((RawFile("gisette/gisette_train.data"), RawFile("gisette/gisette_train.labels")), _read_uci),
    Form((RawFile("gisette/gisette_scale"),), _read_libsvm),
    Form((RawFile("gisette/gisette_scale.bz2"),), lambda contents: _read_libsvm(_unpacked(contents))),
)
FILES = Files(DATASETS[0], "training samples", (Edition(COLUMNS, _FORMS, twin),))
FILE_SETS = (FILES.file_set(),)
SET = TabularSet(DATASETS[0], Metric("accuracy", "max"), FILES.columns, FILES.make, scaling="range")
check, load = SET.check, SET.load
