"""Checks of every task, whatever its data set: there must be something to learn, and rows to score on."""

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from vflbench.data.divide.splits import WORDS
from vflbench.data.tasks import Task
from vflbench.types import TRAINING_METRIC, DataError

CHUNK = 10_000  # rows that are compared at a time
log = logging.getLogger(__name__)


def check(task: Task, dataset: Any = None) -> None:
    """Refuse a task on which nothing can be learnt or scored.

    Warnings name classes without a training row, parts of one class, and parties whose features are constant.

    Parameters
    ----------
    dataset : configuration of the data set; errors name those of its keys that help.

    Raises
    ------
    DataError : there are no training rows, all their labels are equal, or no feature differs between them; a split is
        empty or has one class only.
    """
    name, labels = f"dataset {task.name}", task.training_labels()
    if not len(labels):
        raise DataError(f"{name}: no row is left for training")
    with np.errstate(over="ignore", invalid="ignore"):
        if labels.min() == labels.max():
            only = f"all {len(labels)} training labels are {labels[0]:g}: there is nothing to learn"
            raise DataError(f"{name}: {only}{_of_classes(task, dataset, 'train')}")
        if not task.classes and not np.isfinite(labels.std(dtype=np.float64)):
            raise DataError(f"{name}: the training labels are not finite, or so large that their spread is not")
    _check_features(task, name)
    if task.metric.name == TRAINING_METRIC:
        return
    trained = np.bincount(labels.astype(np.int64), minlength=task.classes) if task.classes else None
    for split in ("val", "test"):
        truth = task.truth(split)
        if truth is None or not len(truth):
            if split == "test":
                raise DataError(f"{name}: no row is left for the test split, so nothing could be scored")
            continue
        if task.classes and truth.min() == truth.max():
            only = f"all {len(truth)} rows of the {split} split are of class {truth[0]:g}"
            if task.metric.name == "auroc":
                raise DataError(f"{name}: {only}, of which there is no AUROC{_of_classes(task, dataset, split)}")
            log.warning("%s: %s.", name, only)
        if trained is not None and len(unknown := np.unique(truth[trained[truth.astype(np.int64)] == 0])):
            listed = ", ".join(map(str, unknown[:5].tolist())) + (", ..." if len(unknown) > 5 else "")
            log.warning("%s: no training row is of class %s, which the %s split has.", name, listed, split)


def _of_classes(task: Task, dataset: Any, split: str) -> str:
    """How many rows of two classes each part has, and what helps; empty where there is one class only, or more."""
    known = {"train": task.training_labels(), "val": task.truth("val"), "test": task.truth("test")}
    rows = {part: np.bincount(own.astype(np.int64), minlength=2) for part, own in known.items() if own is not None}
    total = np.sum([*rows.values()], axis=0) if task.classes == 2 else np.zeros(2)
    if not total.all():
        return ""
    counted = ", ".join(f"{zero} and {one} {WORDS[part]}" for part, (zero, one) in rows.items())
    ways, key = [], {"val": "validation", "test": "test"}.get(split, "")
    if total.min() < len(rows):
        ways.append(f"more rows of class {total.argmin()} (each of the {len(rows)} parts needs one)")
    elif hasattr(dataset, key):
        ways.append(f"a larger dataset.{key}")
    if split == "val" and hasattr(dataset, key):
        ways.append("dataset.validation=0, if you can do without validation")
    if getattr(dataset, "stratify", None) == "none":
        ways.append("dataset.stratify=auto")
    if (how := getattr(dataset, "split", "random")) != "random":
        ways.append("dataset.split=random")
    if how != "time":
        ways.append("another seed")
    return f". Rows of class 0 and class 1: {counted}. What may help: {', '.join(ways)}"


def _check_features(task: Task, name: str) -> None:
    """Check that some feature differs between rows; warn of holders without one."""
    # a table may have keys only
    held = {holder: features for holder, features in task.training_features().items() if features[0].size}
    constant = [holder for holder, features in held.items() if not varies(features)]
    if held and len(constant) == len(held):
        raise DataError(f"{name}: no feature differs between the training rows: there is nothing to learn from")
    for holder in constant:
        log.warning("%s: no feature of %s differs between the training rows: it contributes nothing.", name, holder)


def varies(blocks: Sequence[np.ndarray]) -> bool:
    """Whether some rows of the blocks, (n, ...) each, differ."""
    first = blocks[0][0]
    chunks: Iterable[np.ndarray] = (block[at : at + CHUNK] for block in blocks for at in range(0, len(block), CHUNK))
    return any(bool((chunk != first).any()) for chunk in chunks)
