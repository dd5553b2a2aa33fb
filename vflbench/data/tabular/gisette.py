"""Gisette (Guyon et al., NIPS 2003 feature selection challenge): 4 against 9.

There are 6,000 published training samples of 5,000 columns. Two formats can be read: the original one
(gisette_train.data, gisette_train.labels) and libsvm's (gisette_scale). Both give the same numbers: each column is
scaled to [0, 1], so that zeros stay zeros.
"""

import bz2
import io

import numpy as np

from vflbench.cards.data.tabular.gisette import DATASETS
from vflbench.data.published_files import Lines
from vflbench.data.sources import RawFile
from vflbench.data.tabular import table
from vflbench.data.tabular.sets import Contents, Edition, Files, Form, TabularSet
from vflbench.data.tabular.table import Layout, Table
from vflbench.seeding import stream
from vflbench.types import DataError, Metric

SAMPLES, WIDTH = 6000, 5000
COLUMNS = tuple(f"x{number}" for number in range(1, WIDTH + 1))


_SIGNS = Layout(("sign",), {"sign": ("-1", "1", "+1")}, header=0)


def _read_uci(contents: Contents) -> Table:
    """The table of lines of 5,000 integers, with a blank after each, and lines of signs."""
    data, file = next(contents)
    lines = b"\n".join(line.rstrip() for line in data.splitlines())
    values = table.read_text(lines, file, Layout(COLUMNS, {}, " ", header=0)).astype(np.float32)
    signs, other = next(contents)
    labels = (table.read_text(signs, other, _SIGNS)[:, 0] > 0).astype(np.int64)
    if len(values) != len(labels):
        raise DataError(f"{other}: {len(labels)} labels for the {len(values)} samples of {file}. Get the files again.")
    return Table(values, COLUMNS, {}, labels, 2)


def _read_libsvm(contents: Contents) -> Table:
    """The table of lines `sign index:value index:value ...`, indices from 1."""
    data, label = next(contents)
    try:
        return _libsvm(data)
    except ValueError as error:
        for number, line in enumerate(data.split(b"\n"), 1):
            try:
                _libsvm(line if line.strip() else b"1")
            except ValueError as of_line:
                reason = str(of_line).rstrip(".")
                raise DataError(f"{label}, line {number}: {reason}. Correct the line, or get the file again.") from None
        raise DataError(f"{label}: not a file in libsvm's format ({error}). Get the file again.") from None


def _libsvm(lines: bytes) -> Table:
    """The table of such lines.

    Raises
    ------
    ValueError : they are not in the format.
    """
    from sklearn.datasets import load_svmlight_file

    features, signs = load_svmlight_file(io.BytesIO(lines), n_features=WIDTH, dtype=np.float32, zero_based=False)
    if not len(signs) or not np.isin(signs, (-1, 1)).all():
        raise ValueError("a label is not +1 or -1")
    if not np.isfinite(features.data).all():
        raise ValueError("a value is not finite")
    return Table(features.toarray(), COLUMNS, {}, (signs > 0).astype(np.int64), 2)


def _unpacked(contents: Contents) -> Contents:
    for data, label in contents:
        try:
            yield bz2.decompress(data), label
        except (OSError, ValueError, EOFError) as error:
            raise DataError(f"{label}: cannot be read ({error}). Get the file again.") from None


def twin(samples: int = SAMPLES) -> Table:
    """Made-up samples with the original's shape: integers from 0 to 999, 13 % of them not zero, in two equal classes.

    A column is busy or rare. In 400 columns the chance to be not zero differs between the classes; the others are
    noise.
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
        values[rows] = np.where(
            present, np.floor(1 + 999 * rng.random((len(rows), WIDTH), dtype=np.float32)).clip(1, 999), 0
        )
    return Table(values, COLUMNS, {}, labels, 2)


_UCI = RawFile("gisette/gisette_train.data"), RawFile("gisette/gisette_train.labels")
_SPARSE = Lines(header=0, columns=False)  # a line has only the columns that are not zero
_FORMS = (
    Form(_UCI, _read_uci, Lines(None, header=0), WIDTH, rows_in=1),
    Form((RawFile("gisette/gisette_scale"),), _read_libsvm, _SPARSE, 0),
    Form((RawFile("gisette/gisette_scale.bz2"),), lambda contents: _read_libsvm(_unpacked(contents)), _SPARSE, 0),
)
FILES = Files(DATASETS[0], "training samples", (Edition(COLUMNS, _FORMS, twin, SAMPLES),))
FILE_SETS = (FILES.file_set(),)
SET = TabularSet(DATASETS[0], Metric("accuracy", "max"), FILES.columns, FILES.make, scaling="range")
check, load = SET.check, SET.load
