"""The server recovers a client's rows from the products by which SVFL finds its step size.

Before the first round the server sends vectors v_1 ... v_8, and client k answers each with X_k X_k' v (tag
`smoothness`). With V = [v_1 ... v_8] and Y = X_k X_k' V, a matrix of rank at most 8 is known exactly (the Nystrom
formula; Williams and Seeger, NIPS 2000):

    X_k X_k' = Y (V' Y)^+ Y' = F F',     F = Y (V' Y)^(-1/2)

F is X_k but for a rotation: F Q = X_k. A few known rows fix Q by least squares. A client with more columns than
vectors gives its Gram matrix on their span alone: what is recovered is a part of its rows.

Threat model: an honest but curious server. It has what it sent and received before the first round, and `aux_rows`
rows of each client that it knows from elsewhere. `success` is R^2 over all other rows and columns; `floor` predicts the
mean of the known rows.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from vflbench.attacks import score
from vflbench.attacks.transcript import Message, Watch, some
from vflbench.cards.algorithms.tokens.svfl import Config as SvflConfig
from vflbench.data.tasks import AlignedTask
from vflbench.federation.party import SERVER
from vflbench.types import Problem, RunConfig

TAG = "smoothness"
TINY = 1e-10  # eigenvalues of V' Y below this share of the largest are rounding


def watch(task: AlignedTask, config: RunConfig[SvflConfig], hubs: list[str]) -> Watch:
    """The server's view."""
    return Watch(SERVER, frozenset((TAG,)), frozenset((TAG,)))


def check_task(task: AlignedTask, config: RunConfig[SvflConfig]) -> list[Problem]:
    """Return a problem where no step size is searched for, or where there are too few rows."""
    cfg, problems = config.attack, list[Problem]()
    if task.objective is None or config.algorithm.lr is not None:
        allowed = "reads the search for a step size: a convex problem (dataset.problem) with algorithm.lr=null"
        problems.append(Problem("attack", cfg.name, allowed))
    if cfg.aux_rows >= len(task.labels):
        problems.append(Problem("attack.aux_rows", cfg.aux_rows, f"must be below the {len(task.labels)} rows"))
    return problems


def attack(
    view: Iterable[Message], task: AlignedTask, config: RunConfig[SvflConfig], hubs: list[str]
) -> dict[str, Any]:
    """Attack every client, and return the summary's `attack`."""
    samples, count = len(task.labels), config.attack.aux_rows
    known = some(samples, count, config.seed, "attack")
    others = np.setdiff1d(np.arange(samples), known)
    errors, misses, spread = (np.zeros(len(others)) for _ in range(3))
    clients = {}
    for name, factor in factors(view).items():
        truth = np.asarray(task.features[hubs.index(name)], dtype=np.float64)
        turn = np.linalg.lstsq(factor[known], truth[known], rcond=None)[0]
        own = {
            "error": ((factor[others] @ turn - truth[others]) ** 2).sum(axis=1),
            "miss": ((truth[known].mean(axis=0) - truth[others]) ** 2).sum(axis=1),
            "spread": ((truth[others] - truth[others].mean(axis=0)) ** 2).sum(axis=1),
        }
        errors, misses, spread = errors + own["error"], misses + own["miss"], spread + own["spread"]
        r2 = 1 - own["error"].sum() / own["spread"].sum() if own["spread"].sum() else None
        clients[name] = {"columns": truth.shape[1], "rank": factor.shape[1], "r2": r2}

    def r_squared(missed: np.ndarray) -> score.Statistic:
        return lambda weights: float(1 - weights @ missed / (weights @ spread))

    victims = len(others) if spread.sum() > 0 else 0
    common = score.result(r_squared(errors), r_squared(misses), victims, config.seed, ("aux_rows",))
    return {"name": "gram_recovery", "adversary": SERVER, **common, "clients": clients}


def factors(view: Iterable[Message]) -> dict[str, np.ndarray]:
    """By client F, (N, rank), with F F' its Gram matrix on the span of the server's vectors."""
    asked: dict[str, list[np.ndarray]] = {}
    answered: dict[str, list[np.ndarray]] = {}
    for message in view:
        if message.tag == TAG and message.arrays[0].ndim == 1:  # the last one is a number, the bound
            by = asked if message.src == SERVER else answered
            name = message.dst if message.src == SERVER else message.src
            by.setdefault(name, []).append(message.arrays[0].astype(np.float64))
    found = {}
    for name, answers in answered.items():
        v, y = (np.stack(rows, axis=1) for rows in (asked[name][: len(answers)], answers))
        square = v.T @ y
        values, vectors = np.linalg.eigh((square + square.T) / 2)
        kept = values > TINY * max(values.max(), 0)
        if kept.any():
            found[name] = y @ (vectors[:, kept] / np.sqrt(values[kept]))
    return found
