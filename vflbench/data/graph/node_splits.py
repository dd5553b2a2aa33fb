"""Which nodes are for training, validation and testing: a file of the user's, or masks and indices beside the graph."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from vflbench.data.graph.node_ids import Nodes
from vflbench.data.graph.node_tables import Files, Table, of_array
from vflbench.types import DataError

SPLITS = ("train", "val", "test")
_CALLED = {"train": ("train",), "val": ("val", "valid", "validation", "dev"), "test": ("test",)}
_ENDS = ("mask", "idx", "index", "indices", "ids", "nodes")
_LIKE = re.compile(
    r"(?:.*[\W_])?(?:train(?:ing)?|val(?:id(?:ation)?)?|dev|test|splits?|folds?|masks?)(?:[\W_\d].*)?"
    rf"|(?:train|val|valid|dev|test)s?(?:{'|'.join(_ENDS)})",
    re.IGNORECASE,
)
ADVICE = "dataset.masks=false draws the splits"
log = logging.getLogger(__name__)


class Given(NamedTuple):
    """The masks or indices that come with a graph."""

    file: str
    arrays: Mapping[str, np.ndarray]  # by the names in the file
    names: Mapping[str, str]  # split -> name


def own(
    files: Files, split: str | None, masks: bool, nodes: Nodes, labels: np.ndarray, seed: int
) -> dict[str, np.ndarray] | None:
    """Node ids by split, as the user's data say; None if they do not.

    Parameters
    ----------
    split : ``dataset.split``.
    masks : whether to take masks or indices that come with the graph; else they are named as unused.

    Raises
    ------
    DataError : a split is empty, a node has no label, or is in two splits.
    """
    given = _given(files)
    used = {} if split or not masks or given is None else given.names
    why = f"dataset.split={split} says the splits" if split else "" if masks else "dataset.masks=false"
    why = why or (f"{', '.join(used.values())} are the splits" if used else "dataset.split names a file of splits")
    for file, held in {**({files.pyg: files.tensors} if files.pyg else {}), **files.archives}.items():
        if others := sorted(name for name in held if _LIKE.fullmatch(name) and name not in used.values()):
            log.warning("%s: %s not used: %s", file, ", ".join(others), why)
    if split:
        return _of_file(files, split, nodes, labels)
    return _of_given(given, labels, seed) if given and masks else None


def _names(held: Iterable[str]) -> dict[str, str]:
    """Split -> the name of its mask or indices."""
    lowered = {name.lower(): name for name in held}
    for end in _ENDS:
        found = {}
        for split, words in _CALLED.items():
            forms = [form for word in words for form in (f"{word}_{end}", f"{end}_{word}", f"{word}{end}")]
            name = next((lowered[form] for form in forms if form in lowered), None)
            if name is not None:
                found[split] = name
        if found:
            return found
    return {}


def _given(files: Files) -> Given | None:
    if names := _names(files.tensors):
        assert files.pyg is not None
        return Given(files.pyg, files.tensors, names)
    for file, held in files.archives.items():
        if names := _names(sorted(held)):
            return Given(file, {name: files.array(file, name) for name in names.values()}, names)
    return None


def _of_given(given: Given, labels: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """The splits that masks, (nodes,) bool, or indices say; of several columns, (nodes, k), number seed mod k."""
    chosen, kind = [], next(iter(given.names.values()))
    for split in SPLITS:
        name = given.names.get(split)
        if name is None and split != "val":
            what, lacking = ("masks", f"{split}_mask") if "mask" in kind else (kind, f"indices for {split}")
            raise DataError(f"{given.file}: has {what}, but no {lacking}; {ADVICE}.")
        chosen.append(np.empty(0, np.int64) if name is None else _nodes(given, name, labels, seed))
    table = of_array(f"{given.file}, {'masks' if 'mask' in kind else 'indices'}", np.concatenate(chosen)[:, None])
    found = _checked(table, table.whole("node", 0, len(labels))[:, 0], _which(chosen), labels)
    log.info("%s: %s are the splits", given.file, ", ".join(given.names.values()))
    return found


def _nodes(given: Given, name: str, labels: np.ndarray, seed: int) -> np.ndarray:
    """The nodes of one mask or list of indices."""
    held, where = given.arrays[name], f"{given.file}, {name}"
    column = held if held.ndim == 1 else held[:, seed % held.shape[1]] if held.ndim == 2 and held.size else None
    if "mask" in name.lower() or held.dtype == bool:
        if held.dtype != bool or held.shape[:1] != labels.shape or column is None:
            needed = f"({len(labels)},) of type bool is needed"
            raise DataError(f"{where}: shape {held.shape} and type {held.dtype}; {needed}.")
        return np.flatnonzero(column)
    if column is None or held.dtype.kind not in "iuf":
        raise DataError(f"{where}: shape {held.shape} and type {held.dtype}; a list of node numbers is needed.")
    return column


def _of_file(files: Files, file: str, nodes: Nodes, labels: np.ndarray) -> dict[str, np.ndarray]:
    """The splits that a file says: two columns node,split, or an archive of lists of nodes."""
    if file.endswith(".npz"):
        lists = [files.array(file, name).ravel() for name in SPLITS]
        table = of_array(file, np.concatenate(lists)[:, None])
        return _checked(table, table.whole("node", 0, len(labels))[:, 0], _which(lists), labels)
    table = files.table(file, "split")
    if len(table.names) != 2:
        raise DataError(f"{file}: {len(table.names)} columns; a split file has node,split.")
    which = table.columns[1].values.astype(str)
    return _checked(table, nodes.rows_of(table.only([0]))[:, 0], which, labels)


def _which(lists: Iterable[np.ndarray]) -> np.ndarray:
    return np.repeat(SPLITS, [len(nodes) for nodes in lists])


def _checked(table: Table, chosen: np.ndarray, which: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    """Node ids by split, of the nodes that the rows of a table name, and what each is for."""
    which = np.array([{"valid": "val", "validation": "val"}.get(name, name) for name in which.tolist()], dtype=str)
    unknown = np.flatnonzero(~np.isin(which, SPLITS))
    if len(unknown):
        row = unknown[0]
        raise DataError(f"{table.at(row)}: split '{which[row]}'; it is one of {', '.join(SPLITS)}.")
    again = np.setdiff1d(np.arange(len(chosen)), np.unique(chosen, return_index=True)[1])
    if len(again):
        raise DataError(f"{table.at(again[0])}: node {chosen[again[0]]} is in the splits twice.")
    unlabelled = np.flatnonzero(labels[chosen] < 0)
    if len(unlabelled):
        raise DataError(f"{table.at(unlabelled[0])}: node {chosen[unlabelled[0]]} has no label.")
    splits = {name: np.sort(chosen[which == name]) for name in SPLITS}
    empty = [name for name in ("train", "test") if not len(splits[name])]
    if empty:
        raise DataError(f"{table.file}: no node in split {' and '.join(empty)}.")
    return splits
