"""The server solves for the rows of a table behind a linear model's predictions of them.

An attack on TablePuppet (arXiv 2403.15839). A prediction of row x is h_t = W_t^T x + b_t. With h_t and (W_t, b_t) of
enough rounds one can solve for x: each round gives as many linear equations as the model has outputs. Noise on theta
(DP-SGD) does not help, since theta is still *known*; it even makes the equations better conditioned. Noise on the
predictions does help.

Threat model: an honest but curious server. It has what it received and sent, the public configuration, and theta of
every prediction:

- `parameters=received`: from the protocol. For a table in horizontal parts the server averages parameters (rfl_admm) or
  adds up gradients (rfl_sgd, whose models start at 0), so it knows theta exactly. A table with one holder is not
  attacked.
- `parameters=released`: every iterate is public. DP-SGD's (epsilon, delta) holds for the publication of all iterates of
  a model, and the attack takes them as published. No other protocol shows them to the server.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from vflbench.attacks.score import constant, mean, result
from vflbench.attacks.transcript import RELEASED, Message, Watch
from vflbench.cards.algorithms.joins import rfl_admm
from vflbench.cards.algorithms.joins.join_methods import Keys
from vflbench.data.tasks import AlignedTask, RelationalTask
from vflbench.federation.party import SERVER
from vflbench.models import columns, partial
from vflbench.seeding import stream
from vflbench.types import RunConfig

# the server's own messages that the attack needs: the rows that it asked for, and the parameters that it computed
SENT = frozenset(("mapping", "batches", "rows", "step", "consensus"))


def watch(task: RelationalTask | AlignedTask, config: RunConfig[Keys], clients: list[str]) -> Watch:
    """The server's view."""
    return Watch(SERVER, None, SENT, released=config.attack.parameters == "released")


@dataclass
class _Target:
    """What the server knows about one client."""

    bias: bool
    chosen: np.ndarray | None = None  # (k,) rows that are solved for
    joining: np.ndarray | None = None  # rows of the client's part that join; the protocol counts among them
    batches: list[np.ndarray] = field(default_factory=list)  # rows of each batch of an epoch
    asked: np.ndarray | None = None  # rows of the batch that was drawn last
    theta: np.ndarray | None = None
    # theta, places in `chosen`, their predictions
    events: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = field(default_factory=list)


def recover(
    view: Iterable[Message], config: RunConfig[Keys], bias: Mapping[str, bool]
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Solve for rows of every client whose parameters the server knows.

    Parameters
    ----------
    view : the server's messages, with those of `SENT`, in their order.
    bias : per client, whether its model has an intercept.

    Returns
    -------
    Per client the rows, (k,), and estimates of their features, (k, d).
    """
    targets = {name: _Target(has) for name, has in bias.items()}
    samples, position, round = 0, dict.fromkeys(targets, 0), 0
    for message in view:
        if message.round != round:
            round, position = message.round, dict.fromkeys(targets, 0)
        first = message.arrays[0]
        if message.tag == "labels":
            samples += len(first)
        client = targets.get(message.src) or targets.get(message.dst)
        if client is None:
            continue
        if message.tag == "mapping":
            client.joining = first
        elif message.tag == "batches":
            client.batches = np.split(first, np.cumsum(message.arrays[1])[:-1])
        elif message.tag == "rows":
            client.asked = first
        elif message.tag == RELEASED or (message.tag == "parameters" and config.attack.parameters == "received"):
            client.theta = first
        elif config.attack.parameters == "received":
            _follow(client, message, config)
        if message.tag == "prediction" and client.theta is not None:
            _observe(client, first, samples, position[message.src], config)
        if message.tag == "prediction":
            position[message.src] += len(first) if client.joining is None else 1  # rows of a joined table, else batches
    return {name: _solve(t) for name, t in targets.items() if t.events}


def _follow(client: _Target, message: Message, config: RunConfig[Keys]) -> None:
    """Keep theta up to date with what the server itself sent."""
    cfg = config.algorithm
    if message.tag == "step":
        theta = np.zeros_like(message.arrays[0]) if client.theta is None else client.theta
        client.theta = theta * (1 - cfg.lr * cfg.weight_decay) - cfg.lr * message.arrays[0]
    elif message.tag == "consensus" and isinstance(cfg, rfl_admm.Config) and cfg.predict == "consensus":
        client.theta = message.arrays[0]


def _observe(client: _Target, predictions: np.ndarray, samples: int, position: int, config: RunConfig[Keys]) -> None:
    """Keep the chosen rows' predictions of a message."""
    assert client.theta is not None
    if client.asked is not None:
        rows = client.asked
    elif client.batches:
        rows = client.batches[position]
    else:
        rows = np.arange(len(predictions)) + (position if client.joining is None else 0)
    if client.joining is not None:
        rows, everything = client.joining[rows], client.joining
    else:
        everything = np.arange(samples)
    if client.chosen is None:
        size = min(config.attack.rows, len(everything))
        client.chosen = np.sort(stream(config.seed, "attack").choice(everything, size, replace=False, shuffle=False))
    if not len(client.chosen):
        return
    place = np.minimum(np.searchsorted(client.chosen, rows), len(client.chosen) - 1)
    hit = client.chosen[place] == rows
    client.events.append((client.theta.copy(), place[hit], predictions[hit]))


def _solve(client: _Target) -> tuple[np.ndarray, np.ndarray]:
    """Solve by least squares of minimal norm; rows that the same parameters predicted are solved for together."""
    assert client.chosen is not None
    outputs = client.events[0][2].shape[1]
    shift = outputs if client.bias else 0
    weights, answers = [], []
    seen: list[list[int]] = [[] for _ in client.chosen]
    # which of an event's predictions is that of a chosen row; -1: none
    where = np.full((len(client.events), len(client.chosen)), -1)
    for e, (theta, places, predictions) in enumerate(client.events):
        matrix, intercept = np.split(theta.astype(np.float64), [len(theta) - shift])
        weights.append(matrix.reshape(-1, outputs).T)  # (d_c, d)
        answers.append(predictions.astype(np.float64) - (intercept if client.bias else 0.0))
        where[e, places] = np.arange(len(places))
        for place in places:
            seen[place].append(e)
    groups: dict[tuple[int, ...], list[int]] = {}
    for row, asked in enumerate(seen):
        groups.setdefault(tuple(asked), []).append(row)
    estimates = np.zeros((len(client.chosen), weights[0].shape[1]))
    # Directions in which theta varied no more than by rounding would only amplify the rounding.
    cutoff = float(np.sqrt(np.finfo(client.events[0][2].dtype).eps))
    for events, rows in groups.items():
        if events:
            right = np.concatenate([answers[e][where[e, rows]] for e in events], axis=1).T
            estimates[rows] = np.linalg.lstsq(np.concatenate([weights[e] for e in events]), right, rcond=cutoff)[0].T
    return client.chosen, estimates


def score(
    recovered: Mapping[str, tuple[np.ndarray, np.ndarray]],
    truth: Mapping[str, np.ndarray],
    tolerance: float,
    seed: int = 0,
    knows: Sequence[str] = (),
) -> dict[str, Any]:
    """Score the estimates, over all clients and for each: median relative error, share of rows within `tolerance`.

    Rows whose features are all 0 have no relative error and are left out. The floor is 0: columns are standardised,
    and without the transcript the best guess is 0, whose relative error is 1. Of pixels the mean is a better guess.

    Parameters
    ----------
    seed, knows : as of `result`.
    """
    errors: dict[str, np.ndarray] = {}
    for name, (rows, estimates) in recovered.items():
        true = columns(torch.from_numpy(np.asarray(truth[name])[rows]), torch.float64).numpy()
        size = np.linalg.norm(true, axis=1)
        errors[name] = (np.linalg.norm(estimates - true, axis=1) / np.where(size > 0, size, 1))[size > 0]
    everything = np.concatenate([*errors.values(), np.zeros(0)])
    clients = {name: _summary(own, tolerance) for name, own in errors.items()}
    common = result(mean((everything <= tolerance).astype(float)), constant(0.0), len(everything), seed, knows)
    return {**common, **_summary(everything, tolerance), "clients": clients}


def _summary(errors: np.ndarray, tolerance: float) -> dict[str, Any]:
    if not len(errors):
        return {"rows": 0, "relative_error": None, "recovered": None}
    return {
        "rows": len(errors),
        "relative_error": float(np.median(errors)),
        "recovered": float(np.mean(errors <= tolerance)),
    }


def attack(
    view: Iterable[Message], task: RelationalTask | AlignedTask, config: RunConfig[Keys], clients: list[str]
) -> dict[str, Any]:
    """Attack every client, and return the summary's `attack`; only the score uses the truth."""
    biases = partial.intercepts(config.model, task.public.blocks, task.public.owner)
    held = {name: task.block(number) for number, name in enumerate(clients)}
    bias = {name: biases[block] for name, (block, _) in held.items()}
    truth = {name: features for name, (_, features) in held.items()}
    keys = config.attack
    knows = ("parameters_released",) if keys.parameters == "released" else ()
    return {
        "name": "prediction_recovery",
        "parameters": keys.parameters,
        "tolerance": keys.tolerance,
        **score(recover(view, config, bias), truth, keys.tolerance, config.seed, knows),
    }
