"""Reading CIFAR-10 (Krizhevsky 2009) in its two original formats; cifar10.py divides the images.

- binary: records of 3,073 bytes, a label and 3 x 32 x 32 pixels (channel, row, column)
- python: pickles of a dict with `data` (n, 3072) uint8 and `labels`, read through the restricted unpickler
"""

import io
import itertools
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vflbench.data import prepared, published_files, sources, twins
from vflbench.data.published_files import Pickled, Records, Rows
from vflbench.data.readers import untrusted
from vflbench.data.sources import FileSet, Found, Part, RawFile
from vflbench.seeding import stream
from vflbench.types import DataError, DataSource

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SHAPE = (3, 32, 32)
_RECORD = 1 + 3 * 32 * 32
_BATCH = 10_000  # images
_TWIN = (2_000, 500)  # training and test images

_ADDRESS = "https://www.cs.toronto.edu/~kriz"
_TRAIN = tuple(f"data_batch_{i}" for i in range(1, 6))


@dataclass(frozen=True)
class Images:
    """Whole images and their labels."""

    train: np.ndarray  # (n, 3, 32, 32) uint8
    train_labels: np.ndarray  # (n,) int64
    test: np.ndarray
    test_labels: np.ndarray
    source: DataSource


@dataclass(frozen=True)
class _Group:
    """One form of the batches: files, or members of an archive."""

    files: tuple[RawFile, ...]
    folder: str  # the batches' folder in the archive; empty: they are files
    binary: bool
    train: tuple[str, ...] = _TRAIN
    variant: str = "full"


_SAMPLE = "cifar10-sample1000/cifar-10-batches-py"
_JPEG = "cifar10-jpeg10k/cifar-10-batches-py"
_SHA256 = {
    f"{_JPEG}/data_batch_1": "a9552e41eb5112c271a241ae7b84f0c6b547c227237262ea28bf1c1fef60acf8",
    f"{_JPEG}/test_batch": "fe6bb33f612b535dfdf5cbfdb0daae90268166f230d280950085f41656581ea2",
    f"{_SAMPLE}/data_batch_1": "5e6cf4e374a8deaa3f1a324db0d9e1fa1b4539a29625a8be2de14c770ae93582",
    f"{_SAMPLE}/test_batch": "5a3da171df7daaf2568945465a62561a147417f700f83aa3a9fc6cb3419f305f",
}


# of the published files: SHA-256, and of the pickles the MD5 that torchvision compares with, too
_DIGESTS = {
    "cifar-10-binary.tar.gz": "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    "cifar-10-python.tar.gz": "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}
# of the variants that are no full set; the images of sample1000 are the originals, bit by bit
_LACKS = {
    "jpeg10k": "10,000 of 50,000 training and 2,000 of 10,000 test images, lossy: decoded from JPEG",
    "sample1000": "800 and 200 of 50,000 training images, no test image",
}


def _batches(folder: str, train: tuple[str, ...], suffix: str = "") -> tuple[RawFile, ...]:
    paths = {name: f"{folder}/{name}" for name in (f"{batch}{suffix}" for batch in (*train, "test_batch"))}
    pinned = {name: _SHA256.get(path) for name, path in paths.items()}
    return tuple(
        RawFile(path, sha256=pinned[name], digest=None if pinned[name] else _DIGESTS[name])
        for name, path in paths.items()
    )


def _archive(name: str) -> tuple[RawFile, ...]:
    return (RawFile(f"cifar10/{name}", f"{_ADDRESS}/{name}", digest=_DIGESTS[name]),)


# The fullest first; the first one is downloaded.
_GROUPS = (
    _Group(_archive("cifar-10-binary.tar.gz"), "cifar-10-batches-bin", True),
    _Group(_archive("cifar-10-python.tar.gz"), "cifar-10-batches-py", False),
    _Group(_batches("cifar10/cifar-10-batches-bin", _TRAIN, ".bin"), "", True),
    _Group(_batches("cifar10/cifar-10-batches-py", _TRAIN), "", False),
    _Group(_batches(_JPEG, _TRAIN[:1]), "", False, _TRAIN[:1], "jpeg10k"),
    _Group(_batches(_SAMPLE, _TRAIN[:1]), "", False, _TRAIN[:1], "sample1000"),
)


def _size(batch: Any) -> published_files.Size:
    """Images of a pickled batch, and their pixels."""
    rows, pixels = _fields(batch)["data"].shape
    return rows, pixels


@dataclass(frozen=True)
class _Archived(published_files.Kept):
    """Images of the batches in an archive."""

    batch: str  # how their names begin
    binary: bool

    def __call__(self, path: Path) -> published_files.Size:
        """Rows and columns."""
        sizes = []
        with tarfile.open(path) as archive:
            for member in archive:
                if member.name.rpartition("/")[2].startswith(self.batch):
                    if self.binary:
                        sizes.append((member.size // _RECORD, _RECORD))
                    elif (file := archive.extractfile(member)) is not None:
                        sizes.append(_size(untrusted.load_pickle(file.read(), member.name)))
        return sum(rows for rows, _ in sizes), sizes[0][1] if sizes else 0


def _rows(group: _Group) -> Iterator[Rows]:
    """What a full group has."""
    for what, count, batch in (("training images", 50_000, "data_batch"), ("test images", 10_000, "test_batch")):
        files = tuple(file.path for file in group.files if group.folder or file.name.startswith(batch))
        width = _RECORD if group.binary else _RECORD - 1
        size: Callable[[Path], published_files.Size] = Records(_RECORD) if group.binary else Pickled(_size)
        yield Rows(what, (count,), width, files, _Archived(batch, group.binary) if group.folder else size)


def file_set(variant: str) -> FileSet:
    """The files of a variant, or of all with `auto`."""
    batches = Part("batches", tuple(group.files for group in _GROUPS), variants=tuple(g.variant for g in _GROUPS))
    rows = tuple(itertools.chain(*(_rows(group) for group in _GROUPS if group.variant == "full")))
    return FileSet("cifar10", "cifar10", (batches,), also=(".",), rows=rows, lacks=_LACKS).only(variant)


def read(variant: str, source: str, verify: bool, root: Path | None) -> Images:
    """Whole images of CIFAR-10, found below `root`, else downloaded, else its twin.

    Parameters
    ----------
    variant : ``auto`` (the fullest found), ``full``, ``jpeg10k``: 10,000 and 2,000 images, decoded from JPEG, or
        ``sample1000``: 800 and 200 of the training images.
    source, verify, root : as `sources.locate`.

    Raises
    ------
    DataError : naming the file, and the right size of one that is cut short.
    """
    found = sources.locate(file_set(variant), root, source, verify, has_twin=variant in ("auto", "full"))
    if found is None:
        return twin()
    group = next(
        group for group in _GROUPS if variant in ("auto", group.variant) and all(file in found for file in group.files)
    )
    content = _archived(found, group) if group.folder else _plain(found, group)
    full = group.variant == "full"
    parts = []
    for name in (*group.train, "test_batch"):
        data, where = content(name)
        parts.append((_binary if group.binary else _python)(data, where, _BATCH if full else None))
    images, labels = (np.concatenate(piece) for piece in zip(*parts[:-1], strict=True))
    return Images(images, labels, *parts[-1], found.source(group.variant, used=group.files))


def _plain(found: Found, group: _Group) -> Callable[[str], tuple[bytes, str]]:
    by_name = {file.name.removesuffix(".bin"): file for file in group.files}
    return lambda name: (found.read(by_name[name]), found.label(by_name[name]))


def _archived(found: Found, group: _Group) -> Callable[[str], tuple[bytes, str]]:
    """Members of the archive by name; nothing is unpacked to disk."""
    label = found.label(group.files[0])
    try:
        archive = tarfile.open(fileobj=io.BytesIO(found.read(group.files[0])))  # noqa: SIM115 (in memory, read later)
    except tarfile.TarError as error:
        raise DataError(f"{label}: not a tar archive, or cut short ({error}). Get the file again.") from None

    def content(name: str) -> tuple[bytes, str]:
        member = f"{group.folder}/{name}{'.bin' if group.binary else ''}"
        try:
            file = archive.extractfile(member)
        except (KeyError, tarfile.TarError, OSError):
            file = None
        if file is None:
            raise DataError(f"{label}: has no member {member}. Get the file again.")
        return file.read(), f"{label}, {member}"

    return content


# --- the formats ------------------------------------------------------------------------------------------------------


def _binary(data: bytes, where: str, count: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Images (n, 3, 32, 32) uint8 and labels (n,) of a batch of `count` images (None: any number)."""
    expected = _RECORD * (count if count is not None else max(1, round(len(data) / _RECORD)))
    if len(data) != expected:
        sizes = f"{len(data):,} bytes; {expected:,} are expected, {expected // _RECORD:,} images of {_RECORD:,} bytes"
        raise DataError(f"{where}: {sizes}. It is cut short or another file: get it again.")
    records = np.frombuffer(data, np.uint8).reshape(-1, _RECORD)
    return _checked(records[:, 1:], records[:, 0], where)


def _python(data: bytes, where: str, count: int | None) -> tuple[np.ndarray, np.ndarray]:
    """As `_binary`, of a pickled batch."""
    held = untrusted.load_pickle(data, where)
    fields = _fields(held)
    pixels, labels = fields.get("data"), fields.get("labels")
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or not isinstance(labels, list):
        expected = "a dict with `data`, an array of bytes, and the list `labels`"
        raise DataError(f"{where}: no batch of CIFAR-10: {expected} is expected.")
    shape = (len(labels) if count is None else count, _RECORD - 1)
    if pixels.shape != shape or len(labels) != shape[0]:
        found = f"data {pixels.shape} and {len(labels)} labels"
        raise DataError(f"{where}: {found}; {shape} are expected. Get the file again.")
    if not all(isinstance(label, int) for label in labels):
        raise DataError(f"{where}: labels must be whole numbers. Get the file again.")
    return _checked(pixels, np.array(labels), where)


def _fields(held: Any) -> dict[str, Any]:
    """The entries of a dict: strings of Python 2 become text; in a pickle by Python 3 they may be bytes."""
    items = held.items() if isinstance(held, dict) else ()
    return {key.decode("latin-1") if isinstance(key, bytes) else key: value for key, value in items}


def _checked(pixels: np.ndarray, labels: np.ndarray, where: str) -> tuple[np.ndarray, np.ndarray]:
    rows = np.flatnonzero((labels < 0) | (labels >= len(CLASSES)))
    if len(rows):
        label = f"label {labels[rows[0]]} of image {rows[0]}"
        raise DataError(f"{where}: {label}: labels are 0 to 9. Get the file again.")
    return pixels.reshape(-1, *SHAPE), labels.astype(np.int64)


# --- twin -------------------------------------------------------------------------------------------------------------


def twin() -> Images:
    """2,500 made-up images, which are kept for later jobs.

    A class is a pattern of waves in its own colours. Each image shifts it and adds other waves and noise.
    """
    held = prepared.arrays(sources.cache_folder() / "images" / f"cifar10-twin-{prepared.key()}", _drawn_twin)
    names = ("train", "train_labels", "test", "test_labels")
    train, train_labels, test, test_labels = (np.array(held[name]) for name in names)  # a task may change its own
    note = f"synthetic twin: {_TWIN[0]:,} and {_TWIN[1]:,} made-up images of 10 kinds instead of 50,000 and 10,000"
    return Images(train, train_labels, test, test_labels, twins.twin_source("full", note))


def _drawn_twin() -> dict[str, np.ndarray]:
    patterns = _waves(stream(0, "twin/cifar10/classes"), len(CLASSES))
    made: dict[str, np.ndarray] = {}
    for count, split in zip(_TWIN, ("train", "test"), strict=True):
        rng = stream(0, f"twin/cifar10/{split}")
        labels = rng.permutation(np.arange(count) % len(CLASSES))
        # so that no model reaches 100 %
        looks = np.where(rng.random(count) < 0.08, rng.integers(0, len(CLASSES), count), labels)
        images = np.empty((count, *SHAPE), np.uint8)
        others = _waves(rng, count)
        shifts = rng.integers(-3, 4, (count, 2))
        for i, (look, shift) in enumerate(zip(looks, shifts, strict=True)):
            mixed = np.roll(patterns[look], tuple(shift), axis=(1, 2)) + others[i] + rng.normal(0, 0.6, SHAPE)
            images[i] = np.clip(128 + 36 * mixed, 0, 255).astype(np.uint8)
        made |= {split: images, f"{split}_labels": labels.astype(np.int64)}
    return made


def _waves(rng: np.random.Generator, count: int) -> np.ndarray:
    """Sums of three plane waves of 1 to 5 periods, weighted by colour, (count, 3, 32, 32)."""
    row, column = np.meshgrid(np.arange(32) / 32, np.arange(32) / 32, indexing="ij")
    periods = rng.uniform(1, 5, (count, 3)) * np.exp(1j * rng.uniform(0, 2 * np.pi, (count, 3)))
    phase = rng.uniform(0, 2 * np.pi, (count, 3, 1, 1))
    angle = 2 * np.pi * (periods.real[..., None, None] * row + periods.imag[..., None, None] * column) + phase
    waves: np.ndarray = np.einsum("nkc,nkij->ncij", rng.normal(0, 0.6, (count, 3, 3)), np.sin(angle))
    return waves
