"""MNIST from its original idx files (LeCun, Cortes, Burges): 70,000 handwritten digits of 28 x 28 grey values.

An idx file begins with a big-endian header: two zero bytes, the type of a value, the number of dimensions, one 32-bit
size per dimension. The values follow, row by row.
"""

from pathlib import Path

import numpy as np

from vflbench.cards.data.images.mnist import TRAIN, Config
from vflbench.data import prepared, sources, twins
from vflbench.data.divide import partition
from vflbench.data.published_files import Idx, Rows
from vflbench.data.sources import FileSet, Found, Part, RawFile
from vflbench.data.tasks import Shard, ShardedTask
from vflbench.seeding import stream
from vflbench.types import DataError, Metric

TEST, SIDE, CLASSES = 10_000, 28, 10
# usual values for the training images' grey values from 0 to 1: public, of no worker
MEAN, DEVIATION = 0.1307, 0.3081


_FOLDER = "mnist/MNIST/raw"
_ADDRESS = "https://ossci-datasets.s3.amazonaws.com/mnist"
_FILES = tuple(  # sha256 of the decompressed files
    RawFile(f"{_FOLDER}/{name}", f"{_ADDRESS}/{name}.gz", sha256)
    for name, sha256 in (
        ("train-images-idx3-ubyte", "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
        ("train-labels-idx1-ubyte", "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
        ("t10k-images-idx3-ubyte", "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
        ("t10k-labels-idx1-ubyte", "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
    )
)
_ROWS = tuple(
    Rows(f"{split} {what}", (count,), width, (file.path,), Idx(dimensions))
    for split, count, files in (("training", TRAIN, _FILES[:2]), ("test", TEST, _FILES[2:]))
    for file, what, width, dimensions in zip(files, ("images", "labels"), (SIDE * SIDE, 1), (3, 1), strict=True)
)
FILE_SETS = (FileSet("mnist", _FOLDER, (Part("idx files", (_FILES,)),), also=("MNIST/raw", "mnist"), rows=_ROWS),)


def load(config: Config, layout: str, parties: int, seed: int, root: Path | None) -> ShardedTask:
    """MNIST, its training images dealt to `parties` workers."""
    found = sources.locate(FILE_SETS[0], root, config.source, config.verify)
    source = found.source() if found is not None else twins.twin_source()

    def made() -> dict[str, np.ndarray]:
        train, test = read(found) if found is not None else twin()
        return {"train": train.features, "digits": train.labels, "test": test.features, "test_digits": test.labels}

    held = prepared.arrays(sources.cache_folder() / "images" / f"mnist-{prepared.key(source.files)}", made)
    train = Shard(held["train"], held["digits"])
    test = Shard(np.array(held["test"]), np.array(held["test_digits"]))  # the task may change its own
    order = stream(seed, "split").permutation(len(train.labels))
    kept, rest = (Shard(train.features[rows], train.labels[rows]) for rows in np.split(order, [config.validation]))
    metric = Metric("accuracy", "max")
    held_out, how = {"val": kept, "test": test}, {"classes": CLASSES, "workers": parties, "seed": seed}
    return partition.shard(config.name, rest, held_out, source, metric, config, **how)


# --- the format -------------------------------------------------------------------------------------------------------


def read(found: Found) -> tuple[Shard, Shard]:
    """Training and test images, (n, 1, 28, 28) of standardised grey values, and their digits.

    Raises
    ------
    DataError : naming the file.
    """
    parts = []
    for (images_file, labels_file), count in ((_FILES[:2], TRAIN), (_FILES[2:], TEST)):
        images = read_idx(found.read(images_file), 3, found.label(images_file))
        labels = read_idx(found.read(labels_file), 1, found.label(labels_file))
        if images.shape != (count, SIDE, SIDE):
            shapes = f"announces {images.shape}, MNIST has {(count, SIDE, SIDE)}"
            raise DataError(f"{found.label(images_file)}: {shapes}. Get the file again.")
        if labels.shape != (count,) or labels.max() >= CLASSES:
            raise DataError(f"{found.label(labels_file)}: must hold {count} digits, one per image. Get the file again.")
        parts.append(Shard(scaled(images), labels.astype(np.int64)))
    return parts[0], parts[1]


def read_idx(data: bytes, dimensions: int, where: str) -> np.ndarray:
    """The uint8 array in an idx file with this number of `dimensions`.

    Raises
    ------
    DataError : naming `where`: a wrong magic number, or a file that is cut short or too long.
    """
    magic = bytes((0, 0, 8, dimensions))
    if data[:4] != magic:
        begins = f"an idx file of bytes begins {magic.hex(' ')}, this one {data[:4].hex(' ') or 'nothing'}"
        raise DataError(f"{where}: wrong magic number: {begins}. Get the file again.")
    start = 4 + 4 * dimensions
    if len(data) < start:
        raise DataError(f"{where}: cut short within its header of {start} bytes. Get the file again.")
    shape = tuple(int(size) for size in np.frombuffer(data[4:start], ">u4"))
    announced, there = int(np.prod(shape, dtype=object)), len(data) - start
    if there != announced:
        what = "cut short" if there < announced else "too long"
        raise DataError(f"{where}: {what}: {there} values where its header announces {announced}. Get the file again.")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def scaled(images: np.ndarray) -> np.ndarray:
    """Images (n, height, width) uint8 as (n, 1, height, width) float32, standardised by `MEAN` and `DEVIATION`."""
    grey: np.ndarray = images[:, None] / np.float32(255)
    return (grey - np.float32(MEAN)) / np.float32(DEVIATION)


# --- the twin ---------------------------------------------------------------------------------------------------------


def twin() -> tuple[Shard, Shard]:
    """Made-up digits: an image is one of its class's three blurred patterns, shifted by up to two pixels, in noise."""
    rng = stream(0, "twin/mnist")
    coarse = rng.random((CLASSES, 3, 7, 7)) < 0.25
    strokes = np.kron(coarse, np.ones((3, 3)))  # 21 x 21
    strokes = (strokes + np.roll(strokes, 1, axis=2) + np.roll(strokes, 1, axis=3)) / 3
    parts = []
    for count in (TRAIN, TEST):
        labels = rng.integers(0, CLASSES, count)
        which, shift = rng.integers(0, 3, count), rng.integers(1, 6, (count, 2))
        noise = rng.integers(0, 96, (count, SIDE, SIDE), dtype=np.uint8)
        images = np.where(noise > 80, noise, 0).astype(np.uint8)
        for row, column in np.ndindex(5, 5):
            here = np.flatnonzero((shift == (row + 1, column + 1)).all(axis=1))
            drawn = (strokes[labels[here], which[here]] * 200).astype(np.uint8)
            window = images[here, row + 1 : row + 22, column + 1 : column + 22]
            images[here, row + 1 : row + 22, column + 1 : column + 22] = np.maximum(window, drawn)
        parts.append(Shard(scaled(images), labels))
    return parts[0], parts[1]
