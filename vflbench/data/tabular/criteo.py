"""Criteo's click logs (Kaggle 2014, or the Terabyte logs), layout aligned: advertisements, clicked or not.

A line is a label, 13 integers and 26 hexadecimal tokens between tabs. Any of the 39 may be empty. They are divided
between the parties in their order. A party's numbers become sign(x) log(1 + |x|), standardised by the training rows; a
missing one becomes the mean. Its categories are hashed into `dataset.hashed` columns, which count them; a missing one
is a category of its own. The hash is a fixed mix of column and token (splitmix64), equal on every machine.

The data are never in memory as a whole. Blocks of lines go into raw arrays in the cache folder (157 bytes a row, once
for each file). From there they go into a memory-mapped float32 array for each party (once for each split). Only the
split and the labels are in memory, about 50 bytes a row. An algorithm should read rows from the arrays batch by batch.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vflbench.cards.data.tabular.criteo import Config
from vflbench.data import prepared, sources
from vflbench.data.divide.raw_tables import in_order, moments, take
from vflbench.data.divide.splits import SPLITS, check_fractions, split_rows
from vflbench.data.published_files import Lines, Rows
from vflbench.data.readers import csv_files
from vflbench.data.sources import FileSet, Found, Part, RawFile
from vflbench.data.tabular import table
from vflbench.data.tasks import AlignedTask
from vflbench.seeding import stream
from vflbench.types import DataError, DataSource, Metric, Problem, refuse

if TYPE_CHECKING:
    import pyarrow as pa


NUMBERS = 13
CATEGORIES = 26
COLUMNS = (*(f"I{i}" for i in range(1, NUMBERS + 1)), *(f"C{i}" for i in range(1, CATEGORIES + 1)))
TWIN_ROWS = 100_000
SAMPLES = 45_840_617  # of the Kaggle file
_DAYS = (  # rows of day_0 to day_23 of the Terabyte logs, 4,373,472,329 in all
    *(195_841_983, 199_563_535, 196_792_019, 181_115_208, 152_115_810, 172_548_507, 204_846_845, 200_801_003),
    *(193_772_492, 198_424_372, 185_778_055, 153_588_700, 169_003_364, 194_216_520, 194_081_279, 187_154_596),
    *(177_984_934, 163_382_602, 142_061_091, 156_534_237, 193_627_464, 192_215_183, 189_747_893, 178_274_637),
)
_ROWS = 1 << 16  # encoded at a time
log = logging.getLogger(__name__)


_SAMPLE = "63cad82efb528edd1f80e93a5fca23c880955c80f31c58ce15dc9a17045374bd"


def _groups(days: int) -> dict[str, tuple[RawFile, ...]]:
    return {
        "kaggle": (RawFile("criteo/train.txt"),),
        "terabyte": tuple(RawFile(f"criteo/day_{day}") for day in range(days)),
        "sample": (RawFile("criteo_sample/train.txt", digest=_SAMPLE),),
    }


def _file_set(variant: str, days: int) -> FileSet:
    groups, size = _groups(days), Lines("\t", header=0)
    rows = (
        *(Rows("clicks", (SAMPLES,), 40, (groups[name][0].path,), size) for name in ("kaggle", "sample")),
        *(Rows(f"clicks of day {d}", (count,), 40, (f"criteo/day_{d}",), size) for d, count in enumerate(_DAYS)),
    )
    lacks = {"terabyte": f"{days} of 24 days"} if days < len(_DAYS) else {}
    part = Part("clicks", tuple(groups.values()), variants=tuple(groups))
    return FileSet("criteo", "criteo", (part,), rows=rows, lacks=lacks).only(variant)


FILE_SETS = (_file_set("auto", 1),)


def check(config: Config, layout: str, parties: int) -> list[Problem]:
    """What is wrong with the configuration, before anything is read."""
    problems = check_fractions(config.validation, config.test)
    if config.source == "synthetic" and config.variant == "sample":
        problems.append(Problem("dataset.variant", config.variant, "is real data: with source=synthetic use auto"))
    return problems + table.check_columns(config.columns, parties, len(COLUMNS))


def load(config: Config, layout: str, parties: int, seed: int, root: Path | None) -> AlignedTask:
    """The clicks, their columns divided between `parties`.

    Returns
    -------
    The task, with per party a read-only memory map, (N, numbers + hashed) float32.

    Raises
    ------
    ConfigError : see `check`.
    DataError : naming file and line; also where the disk is full.
    """
    refuse(check(config, layout, parties))
    found = sources.locate(_file_set(config.variant, config.days), root, config.source)
    if found is None:
        rows = config.samples or TWIN_ROWS
        blocks, names = twin(rows), [f"twin of {rows} rows"]
        source = DataSource("synthetic", note="synthetic twin: made-up clicks")
    else:
        variant, files = next(
            (name, files) for name, files in _groups(config.days).items() if all(file in found for file in files)
        )
        blocks = (block for file in files for block in read(found, file))
        note = "a sample of the Kaggle file, not the benchmark" if variant == "sample" else ""
        first = f"only the first {config.samples:,}, as dataset.samples asks" if config.samples else ""
        source = found.source(variant, note, files, lacks=first)
        names = [stamp for _, stamp in source.files]
    held = raw(blocks, names, config.samples)
    count = len(held.labels)
    if count < 10:
        raise DataError(f"dataset criteo: {count} rows; at least 10 are needed. Get the file again.")
    split_seed = seed if config.split_seed is None else config.split_seed
    splits = split_rows(count, config.validation, config.test, split_seed)
    folder = held.folder.with_name(f"{held.folder.name}-split-{split_seed}-{config.validation!r}-{config.test!r}")
    owned = table.party_columns(config.columns, parties, len(COLUMNS), config.order, seed)
    blocks_of = [encode(held, own, config.hashed, splits, folder) for own in owned]
    note = f"{count} rows, a party's categories hashed into {config.hashed} columns"
    source = dataclasses.replace(source, note="; ".join(filter(None, (source.note, note))))
    features = {
        split: tuple(take(block, rows) for block in blocks_of) for split, rows in in_order(splits).items() if len(rows)
    }
    labels = {split: held.labels[splits[split]].astype(np.int64) for split in features}
    train, known = features.pop("train"), labels.pop("train")
    return AlignedTask(config.name, source, Metric("auroc", "max"), 2, 0, train, known, features, labels)


# --- from text to raw arrays ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """Some lines, not encoded yet."""

    labels: np.ndarray  # (n,) uint8: 0 or 1
    numbers: np.ndarray  # (n, 13) float64; NaN: empty
    tokens: np.ndarray  # (n, 26) uint32
    present: np.ndarray  # (n, 26) bool: not empty


@dataclass(frozen=True)
class Raw:
    """All rows on disk, in the order of the file."""

    folder: Path
    labels: np.ndarray  # (N,) uint8, in memory
    numbers: np.ndarray  # (N, 13) float32: sign(x) log(1 + |x|); NaN: empty
    hashes: np.ndarray  # (N, 26) uint32 of column and token


def read(found: Found, file: RawFile) -> Iterator[Block]:
    """The lines of a file, plain or gzipped, some at a time.

    Raises
    ------
    DataError : naming file and line.
    """
    label = found.label(file)
    kinds = dict.fromkeys(("label", *COLUMNS[:NUMBERS]), "integer") | dict.fromkeys(COLUMNS[NUMBERS:], "text")
    for line, batch in csv_files.batches(
        found.paths[file.path], label, list(kinds), kinds, skip=0, separator="\t", quotes=False
    ):
        yield _block(batch, label, line)


def _block(batch: pa.RecordBatch, label: str, first: int) -> Block:
    """The rows of a batch, the first of which is line `first` of the file `label`.

    Raises
    ------
    DataError : naming file and line.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    clicked = batch.column(0).fill_null(-1)
    numbers, texts = batch.columns[1 : 1 + NUMBERS], batch.columns[1 + NUMBERS :]
    try:
        tokens = [
            pc.binary_join_element_wise("0x", text, "").cast(pa.uint32()).fill_null(0).to_numpy() for text in texts
        ]
    except pa.ArrowInvalid:
        for name, text in zip(COLUMNS[NUMBERS:], texts, strict=True):
            others = pc.invert(pc.match_substring_regex(text, "^[0-9a-fA-F]{1,8}$").fill_null(True))
            csv_files.refuse(label, first, text, others, f"is no hexadecimal token of at most 8 digits ({name})")
        raise
    csv_files.refuse(
        label, first, batch.column(0), pc.invert(pc.is_in(clicked, pa.array([0, 1]))), "is no label, 0 or 1"
    )
    values = np.column_stack([number.to_numpy(zero_copy_only=False).astype(np.float64) for number in numbers])
    present = np.column_stack([text.is_valid().to_numpy(zero_copy_only=False) for text in texts])
    return Block(clicked.to_numpy().astype(np.uint8), values, np.column_stack(tokens), present)


def hashes(tokens: np.ndarray, present: np.ndarray) -> np.ndarray:
    """Hashes of (column, token) pairs, (n, 26) uint32: the upper half of splitmix64 (Steele, Lea, Flood 2014).

    A missing token has a hash of its own.
    """
    column = np.arange(1, CATEGORIES + 1, dtype=np.uint64)
    known = np.where(present, tokens, 0).astype(np.uint64)
    mixed: np.ndarray = (column << np.uint64(33)) | (present.astype(np.uint64) << np.uint64(32)) | known
    mixed *= np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    upper: np.ndarray = (mixed ^ (mixed >> np.uint64(31))) >> np.uint64(32)
    return upper.astype(np.uint32)


def raw(blocks: Iterable[Block], names: Sequence[str], samples: int | None) -> Raw:
    """The first `samples` rows of `blocks` (None: all) on disk, written unless the cache folder has them.

    Parameters
    ----------
    names : what identifies the content: checksums, or size and time.

    Raises
    ------
    DataError : as `read`; there are no rows; the cache folder cannot be written.
    """
    folder = sources.cache_folder() / "criteo" / prepared.key(list(names), samples)
    try:
        prepared.keep(folder, functools.partial(_write, blocks, samples, folder))
    except OSError as error:
        advice = "Set XDG_CACHE_HOME to another disk."
        raise DataError(f"{folder}: cannot be written ({error.strerror}). {advice}") from None
    labels = np.fromfile(folder / "labels.u8", np.uint8)
    numbers = np.memmap(folder / "numbers.f32", np.float32, "r", shape=(len(labels), NUMBERS))
    mixed = np.memmap(folder / "hashes.u32", np.uint32, "r", shape=(len(labels), CATEGORIES))
    return Raw(folder, labels, numbers, mixed)


def _write(blocks: Iterable[Block], samples: int | None, folder: Path, part: Path) -> None:
    log.info("reading Criteo's lines (once; they are kept in %s)", folder)
    count = 0
    with (
        (part / "labels.u8").open("wb") as labels,
        (part / "numbers.f32").open("wb") as numbers,
        (part / "hashes.u32").open("wb") as mixed,
    ):
        for block in blocks:
            some = slice(None if samples is None else samples - count)
            labels.write(block.labels[some].tobytes())
            values = block.numbers[some]
            numbers.write((np.sign(values) * np.log1p(np.abs(values))).astype(np.float32).tobytes())
            mixed.write(hashes(block.tokens[some], block.present[some]).tobytes())
            count += len(values)
            if count == samples:
                break
    if not count:
        raise DataError("dataset criteo: the file holds no rows. Get it again.")


# --- from raw arrays to a party's features ----------------------------------------------------------------------------


def encode(
    held: Raw, own: slice | np.ndarray, hashed: int, splits: Mapping[str, np.ndarray], folder: Path
) -> np.ndarray:
    """The columns `own` as features, in a read-only memory map, which is written if it is missing.

    Returns
    -------
    (N, w) float32: rows of train, val and test, one after the other. w is the number of numeric columns, plus `hashed`
    if there are categories.

    Raises
    ------
    DataError : the disk is full.
    """
    places = np.arange(len(COLUMNS))[own]
    number, category = places[places < NUMBERS], places[places >= NUMBERS] - NUMBERS
    count, held_numbers = len(held.labels), len(number)
    width = held_numbers + (hashed if len(category) else 0)
    named = f"{own.start}-{own.stop}" if isinstance(own, slice) else prepared.key(places.tolist())

    def fill(out: np.ndarray) -> None:
        train, order = splits["train"], np.concatenate([splits[split] for split in SPLITS])
        batches = [train[first : first + _ROWS] for first in range(0, len(train), _ROWS)]
        if isinstance(own, slice):  # moments of a view: other columns are not read
            mean, spread = moments(held.numbers[:, own][:, :held_numbers], batches)
        else:
            mean, spread = (found[number] for found in moments(held.numbers, batches))
        scale = np.where(spread > 1e-12 * np.abs(mean), spread, np.inf)  # a constant column becomes 0
        for first in range(0, count, _ROWS):
            rows = order[first : first + _ROWS]
            block = np.zeros((len(rows), width), np.float32)
            block[:, :held_numbers] = np.nan_to_num((held.numbers[rows][:, number] - mean) / scale, nan=0.0)
            columns = (held.hashes[rows][:, category].astype(np.uint64) * np.uint64(hashed)) >> np.uint64(32)
            for column in columns.T.astype(np.int64):
                block[np.arange(len(rows)), held_numbers + column] += 1
            out[first : first + len(rows)] = block

    return prepared.memory_map(folder / f"columns-{named}-hashed-{hashed}", (count, width), fill)


# --- the synthetic twin -----------------------------------------------------------------------------------------------


def twin(rows: int) -> Iterator[Block]:
    """Made-up clicks: skewed counts, and categories of 10 to 1,000,000 levels; about a quarter is clicked.

    Some numbers and categories are missing. Row i is the same however many rows there are.
    """
    rng = stream(0, "twin/criteo")
    sizes = np.round(10 ** rng.uniform(1, 6, CATEGORIES)).astype(np.int64)
    gone = rng.choice([0.0, 0.0, 0.05, 0.4], NUMBERS + CATEGORIES)
    spread, slope = rng.uniform(0.5, 2.0, NUMBERS), rng.normal(0, 0.35, NUMBERS)
    for number, first in enumerate(range(0, rows, _ROWS)):
        rng = stream(0, f"twin/criteo/{number}")
        known = rng.random((_ROWS, NUMBERS + CATEGORIES)) >= gone
        numbers = rng.standard_normal((_ROWS, NUMBERS))
        levels = (sizes * rng.random((_ROWS, CATEGORIES)) ** 4).astype(np.uint32)  # a few are common, most are rare
        present = known[:, NUMBERS:]
        tokens = np.where(present, hashes(levels, np.ones_like(present)), 0).astype(np.uint32)
        effects = tokens / 2**32 - 0.5  # of a level on the score: as random as its token
        score = np.where(known[:, :NUMBERS], numbers * slope, 0).sum(axis=1) + np.where(present, effects, 0).sum(axis=1)
        labels = (score + rng.logistic(0, 1, _ROWS) > 1.2).astype(np.uint8)
        counts = np.where(known[:, :NUMBERS], np.floor(np.exp(1.5 + spread * numbers)) - 1, np.nan)
        some = slice(rows - first)
        yield Block(labels[some], counts[some], tokens[some], present[some])
