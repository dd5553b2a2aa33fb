"""The floor and the ceiling of a comparison: what anyone could do without a federation.

- *Ship it*: the data themselves are sent once, of training rows. Nobody needs a protocol for that.
- *Alone*: the labels' owner learns from its own columns.
- *Others*: all columns but those, if one party had them and the labels.
- *Centralised*: one party has all columns, or the join of all tables.
- *Brings*: all columns against all but one party's.

With dataset.own_rows=train, labelled rows that only the labels' owner has are training rows wherever its columns are.

The observer computes them from the task. No party learns anything, and nothing is charged. The last four are by one
learner (models/trees.py), whose iteration validation rows choose. They are computed once for a task and a seed, and
kept in the cache folder.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vflbench.data import prepared, shipping, sources
from vflbench.data.tasks import Table, Task
from vflbench.federation.links import seconds_per_byte
from vflbench.models import metrics, trees
from vflbench.seeding import derive, stream
from vflbench.types import NetworkConfig

log = logging.getLogger(__name__)

MOST_NUMBERS = 2 * 10**6  #: of training rows that a learner is given; above it a sample of the rows
MOST_HELD = 10**7  #: of validation or test rows
MOST_PARTIES = 4  #: for which `brings` is computed: it takes a learner for each
HASHED = 10**7  #: numbers of an array that name what is kept


# --- ship it ----------------------------------------------------------------------------------------------------------


def ship_it(task: Task) -> dict[str, Any]:
    """What sending the data takes: bytes, form, `stored` bytes in the loader's types, and `largest`, of one sender."""
    sent = task.shipped()
    every = shipping.together(list(sent.values()))
    largest = max((size.bytes for size in sent.values()), default=0)
    return {"bytes": every.bytes, "seconds": None, "form": every.form, "stored": every.stored, "largest": largest}


def on_network(shipped: Mapping[str, Any], network: NetworkConfig) -> dict[str, Any]:
    """`shipped` with its seconds.

    The senders start together. Each has a link of its own, the slowest that the network has between client and server;
    all of them share the server's bandwidth.
    """
    links = [network.client_server, *network.links.values()]
    slowest = max(seconds_per_byte(link.bandwidth_gbps) for link in links)
    shared = shipped["bytes"] * seconds_per_byte(network.server_bandwidth_gbps)
    latency = max(link.latency_ms for link in links) / 1e3 if shipped["bytes"] else 0.0
    return {**shipped, "seconds": latency + max(shipped["largest"] * slowest, shared)}


def times(nbytes: int, shipped: Mapping[str, Any]) -> float | None:
    """How many times the bytes of `shipped` a run sent; None where there is nothing to ship."""
    return nbytes / shipped["bytes"] if shipped["bytes"] else None


# --- alone, others, centralised, brings -------------------------------------------------------------------------------


def levels(task: Task, seed: int, how: str, kept_only: bool = False) -> dict[str, Any]:
    """`alone`, `others`, `centralised` and `brings` of a task, for the summary; no `others` of a single party.

    Parameters
    ----------
    how : `auto`; `full` gives the learner all rows, however many there are.
    kept_only : nothing is learnt: what is not in the cache folder is left out.
    """
    if why := _impossible(task):
        return _without(task, why)
    folder = sources.cache_folder() / "bounds" / prepared.key(_digest(task), seed, how, _learner())
    path = folder / "bounds.json"
    if kept_only and not path.is_file():
        return _without(task, "parties are processes of their own: the same run with engine=simulated computes it")

    def write(part: Path) -> None:
        log.info("learning alone and centralised, once for these data and this seed (floor=none leaves it out)")
        (part / path.name).write_text(json.dumps(_learnt(task, seed, how)), encoding="utf-8")

    try:
        prepared.keep(folder, write)
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        log.warning("%s: cannot be kept (%s); each job learns again", folder, error)
        found = _learnt(task, seed, how)
    return found


def _impossible(task: Task) -> str:
    """Why nothing is learnt for the task; else an empty text."""
    if task.convex is not None:
        return "a convex problem: its exact minimum has suboptimality 0"
    if task.by_rows is not None:
        return "every worker has labels: algorithm=local_sgd is alone, algorithm=centralized_sgd centralised"
    if not task.divided_among:
        return "every client has labels: algorithm=standalone_gnn is alone, algorithm=centralized_gnn centralised"
    if any(block.ndim > 2 for held in task.training_features().values() for block in held):
        return "rows are pictures, and the learner takes tables"
    return "" if task.truth("test") is not None else "there are no test rows"


def _without(task: Task, why: str) -> dict[str, Any]:
    none = {"metric": task.metric.name, "value": None, "learner": None, "why": why}
    return {"alone": none, "centralised": dict(none), "brings": {}}


def _learnt(task: Task, seed: int, how: str) -> dict[str, Any]:
    """The levels, from three splits of the task."""
    train = task.table("train")
    assert train is not None
    count, width = len(train.labels), sum(block.shape[1] for block in train.blocks)
    share = min(1.0, MOST_NUMBERS / (count * width)) if how == "auto" else 1.0
    splits = {"train": train}
    if share < 1:
        splits["train"] = _some(task, "train", share, seed)
    for split in ("val", "test"):
        truth = task.truth(split)
        if truth is not None:
            most = MOST_HELD / (len(truth) * width) if how == "auto" else 1.0
            splits[split] = _some(task, split, min(1.0, most), seed)
    if task.table("own") is not None:
        splits["own"] = _some(task, "own", share, seed)
    rows = len(splits["train"].labels)
    named = trees.LEARNER if rows == count else f"{trees.LEARNER} on {rows:,} of {count:,} training rows"
    values: dict[tuple[int, ...], tuple[float, float | None]] = {}

    def reached(parties: Iterable[int]) -> tuple[float, float | None]:
        own = tuple(parties)
        if own not in values:
            values[own] = _reached(splits, own, task, seed)
        return values[own]

    every = range(len(train.blocks))
    alone, whole = reached([train.owner]), reached(every)
    found = {"alone": alone, "centralised": whole}
    if len(train.blocks) > 1:
        found["others"] = reached(party for party in every if party != train.owner)
    brings = {}
    if 1 < len(train.blocks) <= MOST_PARTIES:
        sign = 1 if task.metric.goal == "max" else -1
        for party in every:
            without, _ = reached(other for other in every if other != party)
            brings[task.divided_among[party]] = {"without": without, "gain": sign * (whole[0] - without)}
    return {
        **{
            name: {"metric": task.metric.name, "value": value, "validation": validation, "learner": named}
            for name, (value, validation) in found.items()
        },
        "brings": brings,
    }


def _some(task: Task, split: str, share: float, seed: int) -> Table:
    """A random share of a split's rows."""
    rng = stream(seed, f"bounds/{split}") if share < 1 else None
    table = task.table(split, rng, share)
    assert table is not None
    return table


def _reached(
    splits: Mapping[str, Table], parties: tuple[int, ...], task: Task, seed: int
) -> tuple[float, float | None]:
    """The metric on test and on validation rows of a learner that has the columns of `parties`."""

    def columns(split: str) -> np.ndarray:
        return np.concatenate([splits[split].blocks[party] for party in parties], axis=1)

    x, labels = columns("train"), splits["train"].labels
    if "own" in splits and splits["own"].owner in parties:
        x, labels = np.concatenate([x, columns("own")]), np.concatenate([labels, splits["own"].labels])
    held = (columns("val"), splits["val"].labels) if "val" in splits else (x[:0], labels[:0])
    name = task.metric.name
    model = trees.fit(x, labels, *held, classes=task.classes, metric=name, seed=seed)
    validation = model.values[model.best - 1] if model.values else None
    return metrics.METRICS[name](model.scores(columns("test")), splits["test"].labels), validation


@functools.cache
def _learner() -> str:
    """A hash of the code that computes what is kept."""
    code = hashlib.sha256()
    for module in (__file__, trees.__file__, metrics.__file__):
        code.update(Path(module).read_bytes())
    return code.hexdigest()


def _digest(value: Any) -> str:
    """A hash of a task, with the stamps of its files; of large arrays it takes only some rows."""
    found = hashlib.blake2b(digest_size=16)

    def add(value: Any) -> None:
        if isinstance(value, np.ndarray):
            found.update(f"{value.dtype}{value.shape}".encode())
            step = -(-value.size // HASHED) or 1
            rows = value[::step]
            found.update(
                "\0".join(map(str, rows)).encode(errors="replace")
                if rows.dtype.kind in "OU"
                else np.ascontiguousarray(rows).view(np.uint8).data
            )
        elif isinstance(value, Mapping):
            for key, item in value.items():
                found.update(f"{key}:".encode())
                add(item)
        elif isinstance(value, list | tuple):
            found.update(f"{len(value)},".encode())
            for item in value:
                add(item)
        elif is_dataclass(value) and not isinstance(value, type):
            add({field.name: getattr(value, field.name) for field in fields(value)})
        else:
            found.update(repr(value).encode())

    add(value)
    return f"{found.hexdigest()}{derive(0, type(value).__name__):x}"
