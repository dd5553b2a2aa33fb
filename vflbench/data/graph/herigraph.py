"""HeriGraph (Bai, Nourian, Luo, Pereira Roders 2022): Flickr posts of three cities, with three graphs and image blocks.

The files are as in its repository, where `<City>` is Suzhou, Amsterdam or Venice:

- `dataset_np/<City>/A_TEM.npz`, `A_SOC.npz`, `A_SPA.npz`: scipy sparse similarities;
  or `dataset/<City>/Edge_List.csv`: one row per pair of posts;
- `dataset/<City>/Attribute_Labels.csv`: per post 9 soft labels and whether it counts as labelled;
  or `ATT_LAB` in `dataset_np/<City>/labels.npz`;
- `dataset/<City>/Visual_Features.csv`: per post 512 hidden, 3 face, 365 scene and 102 scene-attribute features; or the
  same as `.npy`.

All .csv are tab separated with an unnamed index column. As in GLASU's code, client c of 3 has graph c (temporal,
social, spatial) and image block c (without faces). The label is the strongest of the 9 attributes. Posts that do not
count as labelled are in no split.
"""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vflbench.cards.data.divide import Division
from vflbench.cards.data.graph.herigraph import Config
from vflbench.data import prepared, sources, twins
from vflbench.data.divide import partition
from vflbench.data.divide.partition import RawGraph
from vflbench.data.published_files import Lines, Rows
from vflbench.data.readers import csv_files
from vflbench.data.readers.untrusted import load_npy, load_npz, load_sparse
from vflbench.data.sources import FileSet, Found, Part, RawFile
from vflbench.data.tasks import GraphTask
from vflbench.defaults import filled
from vflbench.seeding import stream
from vflbench.types import DataError, Problem, refuse

CLASSES = 9
GRAPHS = ("TEM", "SOC", "SPA")  # temporal, social, spatial: clients 0, 1, 2
_SIMILARITIES = ("Temporal_Similarity", "Social_Similarity", "Spatial_Similarity")  # the same in Edge_List.csv
BLOCKS = (range(0, 512), range(515, 880), range(880, 982))  # hidden, scene, attribute; the columns between are faces
_VISUAL_COLUMNS = 984  # post id, indoor or outdoor, 982 features

_ADDRESS = "https://github.com/zzbn12345/Heri_Graphs/raw/e970190ba533b7e7f4171961f77108bcb159c953"
_CITIES = {"suzhou": "Suzhou", "amsterdam": "Amsterdam", "venice": "Venice"}
# Those of Venice's .npz are computed from the files at _ADDRESS; those of edge lists are in the repository's Git LFS
# pointers. No checksums of the other files are known, so their format is checked.
_SHA256 = {
    "dataset_np/Venice/A_TEM.npz": "681b20d69aa0ac06b9adda479003f6ae03d1aaa03fc87defd9f33dc2c823b6bc",
    "dataset_np/Venice/A_SOC.npz": "9ff583c9c9295f5925e3187f2369f735bb19da84385c37987cc885680ee2ef2f",
    "dataset_np/Venice/A_SPA.npz": "59a492f2c002c14c118cdba2232cef0d54612bb8353ff37f089c3143150f04d6",
    "dataset_np/Venice/labels.npz": "2a25bcc1f1f3d04cb59da183fa6f4da212818795f2c57ca0752065d0c5fc65e2",
    "dataset/Suzhou/Edge_List.csv": "1c5df35b441193229079589715161b5df084f2a88431c444305f532079f8dcde",
    "dataset/Amsterdam/Edge_List.csv": "01ad6f31b4775de00fc360f43990eb480939c3a1a13d91c8f5737914297c904f",
    "dataset/Venice/Edge_List.csv": "3aed6312f8db718cf9fef219aef3482542abc05e39c8ef23f78d7ad1839ca7a4",
}


def _file(path: str, public: bool = True) -> RawFile:
    return RawFile(f"herigraph/{path}", f"{_ADDRESS}/{path}" if public else None, _SHA256.get(path))


@dataclass(frozen=True)
class _Files:
    matrices: tuple[RawFile, ...]
    edge_list: RawFile
    labels_csv: RawFile
    labels_npz: RawFile
    visual_csv: RawFile
    visual_npy: RawFile


def _files(name: str) -> _Files:
    city = _CITIES[name]
    public = city == "Venice"  # the only city that the repository also has as numpy files
    return _Files(
        tuple(_file(f"dataset_np/{city}/A_{graph}.npz", public) for graph in GRAPHS),
        _file(f"dataset/{city}/Edge_List.csv"),
        _file(f"dataset/{city}/Attribute_Labels.csv"),
        _file(f"dataset_np/{city}/labels.npz", public),
        _file(f"dataset/{city}/Visual_Features.csv"),
        # written by its notebooks; the repository does not have it
        _file(f"dataset/{city}/Visual_Features.npy", public=False),
    )


def _file_set(name: str) -> FileSet:
    files = _files(name)
    edge_list = (files.edge_list,)
    parts = (
        Part("graphs", (files.matrices, edge_list) if name == "venice" else (edge_list, files.matrices)),
        Part("labels", ((files.labels_csv,), (files.labels_npz,))),
        Part("image blocks", ((files.visual_csv,), (files.visual_npy,)), twin=True),
    )
    posts = (_TWINS[name].nodes,)
    rows = (
        Rows("posts", posts, 20, (files.labels_csv.path,), Lines("\t")),
        Rows("posts' images", posts, 0, (files.visual_csv.path,), Lines("\t", columns=False)),
    )
    return FileSet(name, "herigraph", parts, ("HeriGraph/raw",), rows)


@dataclass(frozen=True)
class _Twin:
    """Real label counts and numbers of edges; of Suzhou and Amsterdam only the graphs' union is known."""

    nodes: int
    class_counts: tuple[int, ...]  # labelled posts
    edges: tuple[int, int, int]  # undirected


_TWINS = {
    "suzhou": _Twin(3137, (68, 399, 287, 46, 58, 12, 247, 11, 23), (348_000, 339_000, 309_000)),
    "amsterdam": _Twin(3727, (111, 775, 53, 61, 149, 66, 568, 31, 11), (485_000, 472_000, 431_000)),
    "venice": _Twin(2951, (196, 392, 28, 65, 177, 274, 188, 8, 28), (249_120, 242_576, 221_414)),
}
FILE_SETS = tuple(_file_set(name) for name in _CITIES)

# Fraction of edges within an attribute, as in Venice's three graphs; chance alone would give 0.18.
_HOMOPHILY = (0.20, 0.20, 0.225)
_SIGNAL = 3.0  # of made-up image blocks: the attribute shows in each, in part


def check(config: Config, layout: str, parties: int) -> list[Problem]:
    """What is wrong with the configuration, before anything is read."""
    problems = partition.check_fractions(config.train, config.test)
    if parties != 3:
        allowed = f"must be 3: {config.name} has three graphs and three image blocks"
        problems.append(Problem("algorithm.parties", parties, allowed))
    return problems


def load(config: Config, layout: str, parties: int, seed: int, root: Path | None) -> GraphTask:
    """Suzhou, Amsterdam or Venice with three clients, each with one graph and one image block.

    A city's graphs and labels may be there without its image blocks (`data_source=partial`). Then made-up blocks that
    carry the labels' signal replace them; ``source=real`` refuses that.
    """
    refuse(check(config, layout, parties))
    name = config.name
    file_set = next(files for files in FILE_SETS if files.option == name)
    found = sources.locate(file_set, root, config.source, config.verify)
    if found is None:
        source = twins.twin_source(note="synthetic twin: real label counts, made-up posts, graphs and image blocks")
    else:
        note = "real graphs and labels; the three image blocks are MADE UP (they carry the labels' signal)"
        source = found.source(note=note if found.made_up else "")

    def made() -> dict[str, np.ndarray]:
        features, edges, labels = _twin(name) if found is None else read(name, found)
        every = partition.undirected(np.concatenate(edges, axis=1), len(labels))
        whole = {"features": np.concatenate(features, axis=1), "edges": every, "labels": labels}
        return whole | dict(zip(GRAPHS, edges, strict=True))

    held = prepared.arrays(sources.cache_folder() / "graphs" / f"{name}-{prepared.key(source.files)}", made)
    graph = RawGraph(held["features"], held["edges"], held["labels"], CLASSES)
    edges, ends = tuple(held[own] for own in GRAPHS), np.cumsum([len(block) for block in BLOCKS])
    splits = partition.fraction_split(graph.labels, CLASSES, config.train, config.test, seed)
    how = filled(Division)
    blocks = tuple(np.split(np.arange(ends[-1]), ends[:-1]))
    return partition.divide(name, graph, splits, source, how, parties=parties, seed=seed, blocks=blocks, edges=edges)


# --- made-up parts ----------------------------------------------------------------------------------------------------


def _image_blocks(attributes: np.ndarray, name: str) -> tuple[np.ndarray, ...]:
    rng = stream(0, f"twin/{name}/images")
    return tuple(twins.dense_block(attributes, len(block), _SIGNAL, rng) for block in BLOCKS)


def _twin(name: str) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...], np.ndarray]:
    shape, rng = _TWINS[name], stream(0, f"twin/{name}")
    labelled = np.repeat(np.arange(CLASSES), shape.class_counts)
    others = rng.choice(labelled, shape.nodes - len(labelled))
    order = rng.permutation(shape.nodes)
    attributes = np.concatenate([labelled, others])[order]
    labels = np.concatenate([labelled, np.full(len(others), -1)])[order].astype(np.int64)
    edges = tuple(
        partition.undirected(twins.homophilous_pairs(attributes, count, homophily, rng), shape.nodes)
        for count, homophily in zip(shape.edges, _HOMOPHILY, strict=True)
    )
    return _image_blocks(attributes, name), edges, labels


# --- the format -------------------------------------------------------------------------------------------------------


def read(name: str, found: Found) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...], np.ndarray]:
    """Image blocks, edge sets and labels of the three clients.

    Raises
    ------
    DataError : naming the file and the line.
    """
    files = _files(name)
    ids, soft, labelled = _attributes(found, files)
    attributes = soft.argmax(axis=1).astype(np.int64)
    if all(file in found for file in files.matrices):
        edges = tuple(_matrix_edges(found, file, len(ids)) for file in files.matrices)
    else:
        edges = _listed_edges(found, files.edge_list, ids)
    features = _image_blocks(attributes, name) if found.made_up else _visual(found, files, ids)
    return features, edges, np.where(labelled, attributes, -1)


def _table(found: Found, file: RawFile, **options: Any) -> Any:
    """A tab-separated table with an unnamed index column, as a pandas DataFrame."""
    import pandas as pd

    label = found.label(file)
    try:
        return pd.read_csv(io.BytesIO(found.read(file)), sep="\t", index_col=0, **options)
    except ValueError as error:  # parser errors, missing columns, undecodable bytes
        reason = f"cannot be read as a tab-separated table ({str(error).strip()})"
        raise DataError(f"{label}: {reason}. Get the file again.") from None


def _attributes(found: Found, files: _Files) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Post ids (strings), the nine soft labels, (posts, 9), and which posts count as labelled."""
    if files.labels_csv in found:
        label, first = found.label(files.labels_csv), 2  # line 1 is the header
        held = _table(found, files.labels_csv, dtype=str).to_numpy(dtype=object, na_value="")
    else:
        label, first = found.label(files.labels_npz), 0
        held = load_npz(found.read(files.labels_npz), label, ("ATT_LAB",), objects=("ATT_LAB",))["ATT_LAB"]
    if held.ndim != 2 or held.shape[1] != 19 or not len(held):
        raise DataError(f"{label}: {held.shape} where (posts, 19) columns belong. Get the file again.")
    flags = held[:, 18].astype(str)
    why = "in column `labelled` is not True or False (cut short?)"
    csv_files.refuse(label, first, flags, ~np.isin(flags, ("True", "False")), why)
    return held[:, 0].astype(str), _numbers(held[:, 1:10], label, first), flags == "True"


def _numbers(cells: np.ndarray, label: str, first: int) -> np.ndarray:
    """A table's cells as finite float32; `first` is the line of the first row."""
    import pandas as pd

    try:
        numbers = cells.astype(np.float64)
    except (ValueError, TypeError):  # some cell is no number: it becomes NaN
        numbers = pd.DataFrame(cells).apply(pd.to_numeric, errors="coerce").to_numpy(np.float64)
    others = np.argwhere(~np.isfinite(numbers))
    if len(others):
        row, column = others[0]
        where = f"{label}, line {row + first}"
        raise DataError(f"{where}: {cells[row, column]!r} where a number belongs (feature {column}).")
    return numbers.astype(np.float32)


def _matrix_edges(found: Found, file: RawFile, nodes: int) -> np.ndarray:
    matrix = load_sparse(found.read(file), found.label(file))
    if matrix.shape != (nodes, nodes):
        raise DataError(f"{found.label(file)}: a {matrix.shape} matrix, but the labels have {nodes} posts.")
    positive = matrix.data > 0
    return partition.undirected(np.stack([matrix.row[positive], matrix.col[positive]]), nodes)


def _listed_edges(found: Found, file: RawFile, ids: np.ndarray) -> tuple[np.ndarray, ...]:
    import pandas as pd

    label = found.label(file)
    table = _table(found, file, dtype={"0": str, "1": str})
    missing = [column for column in ("0", "1", *_SIMILARITIES) if column not in table]
    if missing:
        raise DataError(f"{label}: has no column {', '.join(missing)}.")
    ends = np.stack([pd.Index(ids).get_indexer(table[side].to_numpy(dtype=object)) for side in ("0", "1")])
    unknown = np.flatnonzero((ends < 0).any(axis=0))
    if len(unknown):
        row = unknown[0]
        edge = f"edge from post {table['0'].iloc[row]} to {table['1'].iloc[row]}"
        raise DataError(f"{label}, line {row + 2}: {edge}, but not both are among the {len(ids)} posts.")
    similar = _numbers(table[list(_SIMILARITIES)].fillna(0).to_numpy(dtype=object), label, 2)
    return tuple(partition.undirected(ends[:, similar[:, g] > 0], len(ids)) for g in range(len(GRAPHS)))


def _visual(found: Found, files: _Files, ids: np.ndarray) -> tuple[np.ndarray, ...]:
    if files.visual_csv in found:
        label, first = found.label(files.visual_csv), 2
        table = _table(found, files.visual_csv, dtype={"ID": str})
        held = table.to_numpy(dtype=object)
    else:
        label, first = found.label(files.visual_npy), 0
        held = load_npy(found.read(files.visual_npy), label, objects=True)
    if held.ndim != 2 or held.shape[1] != _VISUAL_COLUMNS:
        raise DataError(f"{label}: {held.shape} where (posts, {_VISUAL_COLUMNS}) columns belong. Get the file again.")
    place = {post: row for row, post in enumerate(held[:, 0].astype(str))}
    absent = next((post for post in ids if post not in place), None)
    if absent is not None:
        raise DataError(f"{label}: has no row for post {absent}, which has a label.")
    features = _numbers(held[:, 2:], label, first)[[place[post] for post in ids]]
    return tuple(np.ascontiguousarray(features[:, list(block)]) for block in BLOCKS)
