"""ModelNet10 and ModelNet40 (Wu et al., CVPR 2015) seen from twelve sides: a party has one view of every object.

Views are shaded ones of the original meshes, or depths of 32^3 voxel grids (ModelNet10 only); see `views`. Meshes are
`ModelNet10/<class>/<train|test>/*.off`, unpacked (also gzipped) or in the published zip archive. The cache folder keeps
the pictures of meshes, one file per object, named after the mesh's content. So an interrupted rendering continues where
it stopped. Pictures of voxels are kept in one file.

Features are uint8, 0 to 255, a quarter of the size of float32; models/image.py divides them by 255. With fewer than
twelve parties each has the same number of neighbouring views, as channels.
"""

import functools
import hashlib
import importlib.util
import logging
import os
import sys
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from vflbench.cards.data.shapes.modelnet import Config
from vflbench.data import prepared, sources, twins
from vflbench.data.divide import partition
from vflbench.data.published_files import Arrays, Named, Rows
from vflbench.data.readers import untrusted
from vflbench.data.shapes import solids, views
from vflbench.data.shapes.off import parse_off
from vflbench.data.sources import FileSet, Found, Part, RawFile
from vflbench.data.tasks import AlignedTask
from vflbench.types import DataError, DataSource, Metric, Problem, refuse

_NO_CACHE = "the rendered views cannot be written to the cache folder ({}): make room there, or set XDG_CACHE_HOME."
_RENDERING = 1  # to be raised when the pictures change, so that older ones are not used
log = logging.getLogger(__name__)


_CLASSES_40 = """
    airplane bathtub bed bench bookshelf bottle bowl car chair cone cup curtain desk door dresser flower_pot glass_box
    guitar keyboard lamp laptop mantel monitor night_stand person piano plant radio range_hood sink sofa stairs stool
    table tent toilet tv_stand vase wardrobe xbox
"""
CLASSES = {
    "modelnet10": ("bathtub", "bed", "chair", "desk", "dresser", "monitor", "night_stand", "sofa", "table", "toilet"),
    "modelnet40": tuple(_CLASSES_40.split()),
}
OBJECTS = {"modelnet10": 4_899, "modelnet40": 12_311}
_TWIN = {"modelnet10": (40, 10), "modelnet40": (20, 5)}  # training and test objects of a class
_TITLE = {"modelnet10": "ModelNet10", "modelnet40": "ModelNet40"}

_ZIPS = {
    "modelnet10": RawFile(
        "modelnet10/ModelNet10.zip",
        "https://3dvision.princeton.edu/projects/2014/3DShapeNets/ModelNet10.zip",
        digest="9d8679435fc07d1d26f13009878db164a7aa8ea5e7ea3c8880e42794b7307d51",
    ),
    "modelnet40": RawFile(
        "modelnet40/ModelNet40.zip",
        "https://modelnet.cs.princeton.edu/ModelNet40.zip",
        digest="42dc3e656932e387f554e25a4eb2cc0e1a1bd3ab54606e2a9eae444c60e536ac",
    ),
}
_VOXELS = RawFile(
    "modelnet10_voxels/modelnet10.npz", None, "619d09a17c6e48b22bcedd1392ed18f36aaaf79d5aeb062e2b09372a7a9a457d"
)


def _file_set(name: str, variant: str) -> FileSet:
    """The files of a variant; an archive may also be at the top of the data_root."""
    groups = ((_ZIPS[name],),) * (variant != "voxels") + ((_VOXELS,),) * (variant != "meshes" and name == "modelnet10")
    part = Part("meshes or voxels" if len(groups) == 2 else "objects", groups)
    size = Named(f"{_TITLE[name]}/*/*/*.off")
    rows = (
        Rows("meshes", (OBJECTS[name],), 0, (_ZIPS[name].path,), size),
        Rows("voxel grids", (OBJECTS[name],), 0, (_VOXELS.path,), Arrays(("y_train", "y_test"))),
    )
    return FileSet(name, name, (part,), (".",), rows)


def _status_set(name: str) -> FileSet:
    """The files for `vflbench data`, where the first mesh stands for the unpacked folder."""
    files = _file_set(name, "auto")
    archive, *rest = files.parts[0].groups
    first = RawFile(f"{name}/{_TITLE[name]}/{CLASSES[name][0]}/train/{CLASSES[name][0]}_0001.off")
    unpacked = Rows("meshes", (OBJECTS[name],), 0, (first.path,), Named("*/*/*.off*", up=2))
    part = Part(files.parts[0].what, (archive, (first,), *rest))
    return replace(files, parts=(part,), rows=(*files.rows, unpacked))


FILE_SETS = tuple(_status_set(name) for name in CLASSES)


def check(config: Config, layout: str, parties: int) -> list[Problem]:
    """What is wrong with the configuration, before anything is read."""
    problems = []
    if config.variant == "voxels" and config.name != "modelnet10":
        allowed = "there are voxel grids of modelnet10 only: auto or meshes"
        problems.append(Problem("dataset.variant", config.variant, allowed))
    if views.VIEWS % parties:
        allowed = f"must divide the {views.VIEWS} views: 1, 2, 3, 4, 6, 12"
        problems.append(Problem("algorithm.parties", parties, allowed))
    return problems


def load(config: Config, layout: str, parties: int, seed: int, root: Path | None) -> AlignedTask:
    """The objects, with the official test objects: each party has 12 / `parties` views of all.

    Returns
    -------
    The task, whose features are (n, 12 / parties, size, size) uint8.
    """
    refuse(check(config, layout, parties))
    pictures, labels, train, source = _read(config, root)
    training = np.flatnonzero(train)
    classes = CLASSES[config.name]
    split = partition.fraction_split(labels[training], len(classes), 1 - config.validation, 0.0, seed)
    rows = {"train": training[split["train"]], "val": training[split["val"]], "test": np.flatnonzero(~train)}
    rows = {name: chosen for name, chosen in rows.items() if len(chosen)}
    blocks = np.split(pictures.swapaxes(0, 1), parties, axis=1)
    taken = {name: tuple(np.ascontiguousarray(block[chosen]) for block in blocks) for name, chosen in rows.items()}
    known = {name: labels[rows[name]] for name in taken}
    own, answers = taken.pop("train"), known.pop("train")
    return AlignedTask(config.name, source, Metric("accuracy", "max"), len(classes), 0, own, answers, taken, known)


def _read(config: Config, root: Path | None) -> tuple[np.ndarray, np.ndarray, np.ndarray, DataSource]:
    """Pictures (12, n, size, size), labels (n,), which ones are training objects, and their source."""
    name, folder = config.name, root if root is not None else sources.cache_folder()
    unpacked = [] if config.source == "synthetic" or config.variant == "voxels" else _unpacked(name, folder)
    lacking = _lacking(name, unpacked)
    wanted = _file_set(name, config.variant)
    packed = any((folder / place).is_file() for (file,) in wanted.parts[0].groups for place in (file.path, file.name))
    # The fullest source: all meshes unpacked, else the archive or all voxels, else the meshes that are there.
    if unpacked and not lacking and (len(unpacked) >= OBJECTS[name] or not packed):
        content = "\n".join(f"{mesh.label} {mesh.key}" for mesh in unpacked)
        record = ((f"{_TITLE[name]}, {len(unpacked)} files", hashlib.sha256(content.encode()).hexdigest()),)
        there, every = f"{len(unpacked):,}", f"{OBJECTS[name]:,}"
        lacks = "" if there == every else f"{there} {'of' if len(unpacked) < OBJECTS[name] else 'instead of'} {every}"
        pictures, labels, train, note = _from_meshes(config, unpacked)
        variant = "meshes_sample" if lacks else "meshes"
        return pictures, labels, train, sources.source_of(name, variant, note, record, lacks and f"{lacks} meshes")
    if unpacked and config.variant == "meshes" and not packed:
        where = f"{unpacked[0].label.rsplit('/', 3)[0]}: an incomplete {_TITLE[name]}"
        empty = ", ".join(lacking[:4]) + (" and others" if len(lacking) > 4 else "")
        counts = f"{len(unpacked)} of {OBJECTS[name]:,} objects, none in {empty}"
        raise DataError(f"{where}: {counts}. Get all of it, or use dataset.variant=auto.")
    found = sources.locate(wanted, root, config.source, config.verify)
    if found is None:
        return _twin(config)
    if _ZIPS[name] in found:
        meshes, label = _zipped(name, found), found.label(_ZIPS[name])
        if lacking := _lacking(name, meshes):
            raise DataError(f"{label}: has no meshes in {', '.join(lacking[:4])}. Get the file again.")
        pictures, labels, train, note = _from_meshes(config, meshes)
        own = found.source("meshes", note, [_ZIPS[name]])
        return pictures, labels, train, replace(own, variant="meshes_sample") if len(meshes) < OBJECTS[name] else own
    return _from_voxels(config, found)


# --- meshes -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Mesh:
    """One mesh file."""

    label: str  # its name in errors
    kind: str
    split: str
    path: Path  # of the file, or of the archive
    member: str | None  # its name in the archive
    key: str  # hash of its content, or of the archive's and the name

    def read(self) -> bytes:
        """The file's content."""
        if self.member is None:
            return sources.content(self.path, self.label)
        try:
            return _archive(self.path).read(self.member)
        except (OSError, zipfile.BadZipFile, zlib.error) as error:
            raise DataError(f"{self.label}: cannot be read ({error}). Get the archive again.") from None


@functools.lru_cache(maxsize=1)
def _archive(path: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(path)


def _lacking(name: str, meshes: list[_Mesh]) -> list[str]:
    """The <class>/<split> without any object."""
    there = {(mesh.kind, mesh.split) for mesh in meshes}
    return [f"{kind}/{split}" for kind in CLASSES[name] for split in ("train", "test") if (kind, split) not in there]


def _unpacked(name: str, root: Path) -> list[_Mesh]:
    """All mesh files, in the order of their names, below the fullest of the data set's possible folders."""
    title = _TITLE[name]
    sets = [
        [
            (path, kind, split)
            for kind in CLASSES[name]
            for split in ("train", "test")
            for path in sorted((root / place / kind / split).glob("*.off*"))
            if path.name.removesuffix(".gz").endswith(".off")
        ]
        for place in (title, f"{name}/{title}", name, f"{name}_off_samples/{title}")
    ]
    fullest = max(sets, key=len)
    checksums = (hashlib.sha256(path.read_bytes()).hexdigest() for path, _, _ in fullest)
    return [
        _Mesh(path.relative_to(root).as_posix(), kind, split, path, None, checksum)
        for (path, kind, split), checksum in zip(fullest, checksums, strict=True)
    ]


def _zipped(name: str, found: Found) -> list[_Mesh]:
    path, label = found.paths[_ZIPS[name].path], found.label(_ZIPS[name])
    checksum = dict(found.files)[label]
    try:
        members = sorted(_archive(path).namelist())
    except (OSError, zipfile.BadZipFile) as error:
        raise DataError(f"{label}: not a zip archive, or cut short ({error}). Get the file again.") from None
    meshes = []
    for member in members:
        title, kind, split, file = (*member.split("/"), "", "", "", "")[:4]
        if title == _TITLE[name] and kind in CLASSES[name] and split in ("train", "test") and file.endswith(".off"):
            key = hashlib.sha256(f"{checksum} {member}".encode()).hexdigest()
            meshes.append(_Mesh(f"{label}: {member}", kind, split, path, member, key))
    return meshes


def _from_meshes(config: Config, meshes: list[_Mesh]) -> tuple[np.ndarray, np.ndarray, np.ndarray, str]:
    """Pictures, labels, which ones are training objects, and a note."""
    folder = sources.cache_folder() / "views" / f"meshes-{_RENDERING}-{config.size}"
    todo = [mesh for mesh in meshes if not (folder / f"{mesh.key}.npz").is_file()]
    if todo:
        import joblib

        missing = [package for package in ("trimesh", "embreex") if importlib.util.find_spec(package) is None]
        if missing:
            advice = "pip install 'vflbench[shapes]', or use dataset.variant=voxels"
            raise DataError(f"rendering meshes needs {' and '.join(missing)}: {advice}.")
        log.info("%s: rendering %d of %d meshes into the cache", config.name, len(todo), len(meshes))
        try:
            folder.mkdir(parents=True, exist_ok=True)
            pool = joblib.Parallel(config.processes, return_as="generator_unordered")
            rendered = pool(joblib.delayed(_render)(mesh, config.size, folder) for mesh in todo)
            for _ in _shown(rendered, len(todo), f"{config.name}: rendering"):
                pass
        except OSError as error:
            raise DataError(_NO_CACHE.format(error)) from None
    pictures = np.empty((views.VIEWS, len(meshes), config.size, config.size), np.uint8)
    for row, mesh in enumerate(meshes):
        pictures[:, row] = _cached(folder / f"{mesh.key}.npz", "pictures")["pictures"]
    labels = np.array([CLASSES[config.name].index(mesh.kind) for mesh in meshes])
    train = np.array([mesh.split == "train" for mesh in meshes])
    return pictures, labels, train, f"12 shaded views of {len(meshes):,} meshes, {config.size} pixels"


def _render(mesh: _Mesh, size: int, folder: Path) -> None:
    pictures = views.mesh_views(*parse_off(mesh.read(), mesh.label), size, mesh.label)
    _save(folder / f"{mesh.key}.npz", pictures=pictures)


def _cached(path: Path, *names: str) -> dict[str, np.ndarray]:
    return untrusted.load_npz(path.read_bytes(), f"the cache file {path}", names)


def _save(path: Path, **arrays: np.ndarray) -> None:
    """Write the whole file, or none."""
    with sources.atomic(path) as place, place.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def _shown(items: Iterable[None], total: int, label: str) -> Iterable[None]:
    """`items` with a progress bar, on a terminal only."""
    from rich.console import Console
    from rich.progress import track

    hidden = bool(os.environ.get("CI")) or not sys.stderr.isatty()
    return track(items, label, total, console=Console(stderr=True), transient=True, disable=hidden)


# --- voxels -----------------------------------------------------------------------------------------------------------


def _from_voxels(config: Config, found: Found) -> tuple[np.ndarray, np.ndarray, np.ndarray, DataSource]:
    where = found.label(_VOXELS)
    checksum = dict(found.files)[where]
    path = sources.cache_folder() / "views" / f"voxels-{_RENDERING}-{config.size}" / f"{checksum}.npz"
    data = found.read(_VOXELS)
    train, test = (untrusted.load_npz(data, where, (f"y_{split}",))[f"y_{split}"] for split in ("train", "test"))
    labels = np.concatenate([train, test])
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or not ((labels >= 0) & (labels < 10)).all():
        reason = "labels y_train and y_test must be numbers from 0 to 9, one an object"
        raise DataError(f"{where}: {reason}. Get the file again.")
    if not path.is_file():
        _save_voxel_views(path, _grids(data, where, {"train": len(train), "test": len(test)}), config)
    pictures, empty = _cached(path, "pictures", "empty").values()
    note = f"12 depth views of {int((~empty).sum()):,} voxel grids, {config.size} pixels"
    if empty.any():
        log.warning("%s: %d of %d voxel grids are empty: they are left out", config.name, empty.sum(), len(empty))
        note += f"; {int(empty.sum())} empty ones are left out"
    kept = np.flatnonzero(~empty)
    is_train = np.arange(len(labels)) < len(train)
    return pictures[:, kept], labels[kept].astype(np.int64), is_train[kept], found.source("voxels", note, [_VOXELS])


def _grids(data: bytes, where: str, counts: dict[str, int]) -> np.ndarray:
    """Training grids, then test grids, (n, 32, 32, 32) bool, indexed [x, y, z], z up."""
    grids = []
    for split, count in counts.items():
        grid = untrusted.load_npz(data, where, (f"X_{split}",))[f"X_{split}"]
        right_type = grid.shape == (count, 32, 32, 32) and grid.dtype.kind in "iub"
        if not right_type or grid.min(initial=0) < 0 or grid.max(initial=0) > 1:
            expected = f"{count} grids of 32 x 32 x 32 zeros and ones are expected, as there are labels"
            found = f"this is {grid.shape} {grid.dtype}"
            raise DataError(f"{where}, array X_{split}: {expected}; {found}. Get the file again.")
        grids.append(grid.astype(bool))
    return np.concatenate(grids)


def _save_voxel_views(path: Path, grids: np.ndarray, config: Config) -> None:
    log.info("%s: rendering %d voxel grids into the cache", config.name, len(grids))
    pictures = _voxel_views(grids, config)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _save(path, pictures=pictures, empty=np.asarray(~grids.any(axis=(1, 2, 3))))
    except OSError as error:
        raise DataError(_NO_CACHE.format(error)) from None


def _voxel_views(grids: np.ndarray, config: Config) -> np.ndarray:
    full = views.side_by_side(grids)
    pictures = np.empty((views.VIEWS, len(grids), config.size, config.size), np.uint8)

    def render() -> Iterator[None]:
        for view in range(views.VIEWS):
            pictures[view] = views.voxel_view(full, config.size, view)
            yield

    for _ in _shown(render(), views.VIEWS, f"{config.name}: rendering views"):
        pass
    return pictures


# --- twin -------------------------------------------------------------------------------------------------------------


def _twin(config: Config) -> tuple[np.ndarray, np.ndarray, np.ndarray, DataSource]:
    classes, (train, test) = len(CLASSES[config.name]), _TWIN[config.name]

    def made() -> dict[str, np.ndarray]:
        counts = {"train": train, "test": test}
        drawn = [solids.made_up(config.name, classes, count, split) for split, count in counts.items()]
        grids, labels = map(np.concatenate, zip(*drawn, strict=True))
        return {"pictures": _voxel_views(grids, config), "labels": labels}

    name = f"{config.name}-twin-{prepared.key(config.size)}"
    held = prepared.arrays(sources.cache_folder() / "views" / name, made)
    labels = held["labels"]
    solid = f"{len(labels):,} made-up solids of {classes} kinds"
    note = f"synthetic twin: {solid} instead of {OBJECTS[config.name]:,} objects"
    return held["pictures"], labels, np.arange(len(labels)) < train * classes, twins.twin_source(note=note)
