"""A table's owner reads labels from the first residual of a method over joins.

At the start theta, z and lambda are 0, so the first residual of a table's row depends on labels alone. It is the sum,
over the G joined rows that it is behind, of

    squared loss, SGD      -(y - m)                           m: the labels' mean, which the server subtracts
    squared loss, ADMM     -2 rho / (1 + rho) (y - m)
    cross-entropy          row y of a matrix P, (k, k), which anybody can compute: the server's own update of a row

With classes, the row's counts of classes n solve [n P, n 1] = [residual, G]: G was sent with the mapping. With
numbers, residual and G give the sum of labels but for G m. Labels are whole numbers, so m is the value near their known
mean that makes all sums whole. Where G = 1 that is the label itself. Ours; no other description of this attack is known
to us.

It holds for linear models (theta = 0), and with ADMM for every model: there the server starts from predictions 0. Of
SGD's batches the first one counts, with its rows that join once: G within a batch is not told.

Threat model: each table's owner by itself, honest but curious, with the mapping and residuals that it received and the
public configuration. It knows how frequent each label is, about. `success` is the share of rows whose
sum of labels, or counts of classes, is exact; `floor` is G times the most frequent label. The owners of the label table
know its labels: they are in `clients` alone. `correlation` there is that of later residuals with the sums.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from vflbench.attacks import score
from vflbench.attacks.transcript import Message, Watch
from vflbench.cards.algorithms.joins.join_methods import AdmmKeys, Keys
from vflbench.data.tasks import AlignedTask, RelationalTask
from vflbench.models import DTYPES, losses
from vflbench.types import Problem, RunConfig

SLACK = 0.01  # sums that are so much less whole, on average, are as whole
TAGS = frozenset(("mapping", "batches", "rows", "residual"))


@dataclass
class _Owner:
    """What one table's owner has received."""

    rows: np.ndarray | None = None  # own rows that join; None: all of them, once
    counts: np.ndarray | None = None  # G of each
    first: np.ndarray | None = None  # those of the first residual, counted among rows that join; None: all
    whole: bool = True  # whether the first residual is about the whole join
    residuals: list[np.ndarray] = field(default_factory=list)


def watch(task: RelationalTask | AlignedTask, config: RunConfig[Keys], hubs: list[str]) -> Watch:
    """The views of all clients: each attacks with its own."""
    return Watch(hubs[0], TAGS, also=tuple(hubs[1:]))


def check_task(task: RelationalTask | AlignedTask, config: RunConfig[Keys]) -> list[Problem]:
    """Return a problem where labels are no whole numbers: their sums have nothing to be told by."""
    labels = task.training_labels()
    if task.classes or np.array_equal(labels, np.round(labels)):
        return []
    return [Problem("attack", config.attack.name, "reads whole labels, and these have fractions")]


def attack(
    view: Iterable[Message], task: RelationalTask | AlignedTask, config: RunConfig[Keys], hubs: list[str]
) -> dict[str, Any]:
    """Attack with every client's view, and return the summary's `attack`."""
    owners = received(view)
    labels = task.training_labels()
    values, frequencies = np.unique(labels, return_counts=True)
    likely, clients, hits, floors = values[frequencies.argmax()], {}, [np.zeros(0)], [np.zeros(0)]
    for number, name in enumerate(hubs):
        if name not in owners or not owners[name].residuals:
            continue
        owner, every = owners[name], task.label_sums(number)
        rows, counts, found = solve(owner, task.classes, float(labels.mean()), config)
        truth = every[rows]
        guess = counts[:, None] * (np.eye(max(task.classes, 1))[int(likely)] if task.classes else np.array([likely]))
        exact, lucky = (np.all(one == truth, axis=1).astype(float) for one in (found, guess))
        knows = number in task.label_owners
        singles = exact[counts == 1]
        clients[name] = {
            "rows": len(rows),
            "success": float(exact.mean()) if len(exact) else None,
            "floor": float(lucky.mean()) if len(lucky) else None,
            "singles": {"rows": len(singles), "success": float(singles.mean()) if len(singles) else None},
            "correlation": _correlations(owner, every, config) if owner.whole else [],
            "knows_labels": knows,
        }
        if not knows:
            hits.append(exact)
            floors.append(lucky)
    exact, lucky = np.concatenate(hits), np.concatenate(floors)
    common = score.result(score.mean(exact), score.mean(lucky), len(exact), config.seed, ("balance",))
    return {"name": "residual_labels", **common, "clients": clients}


def received(view: Iterable[Message]) -> dict[str, _Owner]:
    """By client what it received, as far as it is needed."""
    owners: dict[str, _Owner] = {}
    for message in view:
        owner, first = owners.setdefault(message.dst, _Owner()), message.arrays[0]
        if message.tag == "mapping":
            owner.rows, owner.counts = first, message.arrays[1]
        elif message.tag == "batches":
            lengths, sizes = message.arrays[1], message.arrays[2]
            owner.first, owner.whole = first[: lengths[0]], len(sizes) == 1
        elif message.tag == "rows" and not owner.residuals:
            owner.first, owner.whole = first, False
        elif message.tag == "residual":
            owner.residuals.append(first.reshape(len(first), -1))
    return owners


def solve(
    owner: _Owner, classes: int, about: float, config: RunConfig[Keys]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Solve the first residual of one client.

    Parameters
    ----------
    about : the mean label, as far as it is known; of numbers only.

    Returns
    -------
    Rows of the client's part (n,), their G (n,), and sums of labels (n, 1), or counts of classes (n, k).
    """
    residual = owner.residuals[0].astype(np.float64)
    chosen = np.arange(len(residual)) if owner.first is None else owner.first
    rows = chosen if owner.rows is None else owner.rows[chosen]
    counts = np.ones(len(rows)) if owner.counts is None else owner.counts[chosen].astype(np.float64)
    if not owner.whole:
        residual, rows, counts = residual[counts == 1], rows[counts == 1], counts[counts == 1]
    if not len(rows):
        return rows, counts, residual
    pull = pulls(classes, config)
    if classes:
        known = np.concatenate([residual, counts[:, None]], axis=1)
        found = known @ np.linalg.pinv(np.concatenate([pull, np.ones((classes, 1))], axis=1))
        return rows, counts, np.round(found)
    centred = residual[:, 0] / pull.item()  # sum of labels less G m
    return rows, counts, np.round(centred + counts * mean_label(centred, counts, about))[:, None]


def pulls(classes: int, config: RunConfig[Keys]) -> np.ndarray:
    """The first residual of one joined row: of each class, (k, k); of the label 1, (1, 1), without classes."""
    cfg, dtype, loss = config.algorithm, DTYPES[config.model.dtype], losses.make(classes)
    zero = torch.zeros(classes or 1, classes or 1, dtype=dtype)
    y = torch.arange(classes) if classes else torch.ones(1, dtype=dtype)
    if isinstance(cfg, AdmmKeys):  # ADMM: lambda + rho (h - z), with lambda = -rho z and h = 0
        pull = -2 * cfg.rho * loss.z_update(y, zero, zero, cfg.rho, zero)
    else:
        pull = loss.gradient(zero, y)
    return np.asarray(pull, dtype=np.float64)


def mean_label(centred: np.ndarray, counts: np.ndarray, about: float) -> float:
    """The mean m that makes all sums `centred` + `counts` m whole: of several the one nearest to `about`."""
    least = counts.min()
    # of least m, in turns: its whole part is open
    phase = np.angle(np.exp(-2j * np.pi * centred[counts == least]).mean()) / (2 * np.pi)
    found = []
    for whole in np.round(least * about - phase) + np.arange(-least, least + 1):
        m, reach = (phase + whole) / least, least
        while reach < 2 * counts.max():  # rows that join often pin m best, once it is known well enough for them
            near = counts <= reach
            missed = np.round(centred[near] + counts[near] * m) - centred[near]
            m, reach = float(counts[near] @ missed / (counts[near] @ counts[near])), 2 * reach
        sums = centred + counts * m
        found.append((float(np.abs(sums - np.round(sums)).mean()), abs(m - about), m))
    best = min(found)[0]
    return float(min((distance, m) for misfit, distance, m in found if misfit <= best + SLACK)[1])


def _correlations(owner: _Owner, truth: np.ndarray, config: RunConfig[Keys]) -> list[float | None]:
    """Of each of the first residuals that are about all rows, less its sign, with the sums less their means."""
    rows = np.arange(len(truth)) if owner.rows is None else owner.rows
    counts = np.ones(len(rows)) if owner.counts is None else owner.counts
    middle = truth[rows].sum() / max(counts.sum(), 1) / truth.shape[1]  # the mean label, or 1 / k of each class
    sums = truth[rows] - counts[:, None] * middle
    found: list[float | None] = []
    for residual in owner.residuals[: config.attack.rounds]:
        if residual.shape == sums.shape:
            pairs = zip(residual.T.astype(np.float64), sums.T, strict=True)
            each = [np.corrcoef(-a, b)[0, 1] for a, b in pairs if a.std() > 0 and b.std() > 0]
            found.append(float(np.mean(each)) if each else None)
    return found
