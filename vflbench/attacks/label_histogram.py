"""A worker reads the shares of classes at the others from their gradients of all-reduce SGD.

The bias of the last layer adds to the scores s before the softmax. So a row's gradient of it is p - e_y, with p the
softmax of s. A worker sends its batch's mean: mean p - (shares of the classes). A network that has learnt nothing has
p near 1 / k for every row and class, so shares = 1 / k - gradient. Zhao et al., arXiv 2001.02610 (iDLG), read one label
in this way, and Wainakh et al., arXiv 2105.09369 (LLG), those of a batch.

Threat model: an honest but curious worker, the last one: reduce-scatter hands it the last piece of every gradient, in
which that bias is. It knows the model's architecture, and no label. Its first `steps` messages from each worker count,
before the model has learnt; their mean is over so many batches.

`success` is the overlap of the two histograms, 1 less their total variation distance; `floor` guesses that all classes
are equally frequent. Distances themselves are in `clients`.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from vflbench.attacks import score
from vflbench.attacks.transcript import Message, Watch
from vflbench.data.tasks import ShardedTask
from vflbench.types import Problem, RunConfig

TAG = "gradient"


def watch(task: ShardedTask, config: RunConfig, hubs: list[str]) -> Watch:
    """The view of the last worker."""
    return Watch(hubs[-1], frozenset((TAG,)))


def check_task(task: ShardedTask, config: RunConfig) -> list[Problem]:
    """Return a problem where there are no classes."""
    allowed = "reads shares of classes, and this data set is a regression"
    return [] if task.classes else [Problem("attack", config.attack.name, allowed)]


def attack(view: Iterable[Message], task: ShardedTask, config: RunConfig, hubs: list[str]) -> dict[str, Any]:
    """Attack every other worker, and return the summary's `attack`."""
    found = shares(view, task.classes, config.attack.steps)
    clients = {}
    for number, name in enumerate(hubs):
        if name in found:
            truth = np.bincount(task.shards[number].labels, minlength=task.classes) / len(task.shards[number].labels)
            guess = np.full(task.classes, 1 / task.classes)
            distances = {"distance": variation(found[name], truth), "uniform": variation(guess, truth)}
            clients[name] = distances | {"shares": found[name].tolist()}
    success, floor = (
        score.mean(np.array([1 - client[key] for client in clients.values()])) for key in ("distance", "uniform")
    )
    common = score.result(success, floor, len(clients), config.seed, ("architecture",))
    return {"name": "label_histogram", "adversary": hubs[-1], **common, "clients": clients}


def shares(view: Iterable[Message], classes: int, steps: int) -> dict[str, np.ndarray]:
    """By worker its shares of classes, (classes,), from its first `steps` gradients."""
    read: dict[str, list[np.ndarray]] = {}
    for message in view:
        own = read.setdefault(message.src, [])
        if message.tag == TAG and len(own) < steps and len(message.arrays[0]) >= classes:
            own.append(message.arrays[0][-classes:].astype(np.float64))
    found = {name: np.clip(1 / classes - np.mean(own, axis=0), 0, None) for name, own in read.items() if own}
    return {name: own / own.sum() for name, own in found.items() if own.sum() > 0 and np.isfinite(own).all()}


def variation(a: np.ndarray, b: np.ndarray) -> float:
    """The total variation distance of two histograms, from 0 to 1."""
    return float(np.abs(a - b).sum() / 2)
