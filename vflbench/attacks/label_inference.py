"""A passive party guesses the training rows' labels from the gradients that it received.

PubSub-VFL (arXiv 2510.12494) protects embeddings, not gradients, so labels can leak. After Li et al., arXiv 2102.08504
(norms and directions of gradients in two-party split learning). Classification only. The attack uses neither the
party's own features nor its model.

Threat model: an honest but curious passive party, the first. It has d loss / d z of every row and epoch that its hub
received, and the rows of each batch. It knows the share of each class among the training rows, which counts as public.
It has no label.

For a row with softmax output p, d loss / d z = J^T (p - e_y). With two classes this is (p_1 - y) times the gradient of
the score. So the label decides to which side of a hyperplane it points. All gradients are scaled to length 1.

- Two classes: in each batch, the projections on the leading right singular vector. Vectors of an epoch are turned to
  agree with their sum so far, and epochs with each other by the rows that both have. Projections are then added up, and
  the side is the sign. The first epoch alone (attack.epochs=1) mostly is enough.
- More: a row's gradients of all epochs are put side by side, 0 where there was none. k-means finds as many clusters
  as there are classes.

Clusters are matched with classes by size: the largest is the most frequent class, and so on. Sizes cannot tell classes
apart that are about equally frequent, so names may be swapped: a success rate below a half, or an AUROC near 0, is then
the same leak. `floor` guesses the most frequent class for all rows.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from vflbench.attacks import score
from vflbench.attacks.transcript import Batches, Message, Watch, by_round, last_published, some
from vflbench.cards.algorithms.split.split_methods import Keys
from vflbench.data.tasks import AlignedTask
from vflbench.seeding import batches, derive
from vflbench.types import Problem, RunConfig

TAG = "gradient"


def watch(task: AlignedTask, config: RunConfig[Keys], hubs: list[str]) -> Watch:
    """The view of the first passive party, which comes after the active one."""
    return Watch(hubs[1], frozenset((TAG,)))


def check_task(task: AlignedTask, config: RunConfig[Keys]) -> list[Problem]:
    """Return a problem where there are no classes to guess."""
    if task.classes:
        return []
    allowed = "guesses classes, and this data set is a regression: use embedding_inversion"
    return [Problem("attack", config.attack.name, allowed)]


def attack(view: Iterable[Message], task: AlignedTask, config: RunConfig[Keys], hubs: list[str]) -> dict[str, Any]:
    """Attack the training rows, and return the summary's `attack`.

    Parameters
    ----------
    hubs : in the order of the task's parties, the active one first.
    """
    samples, size, classes, most = task.public.samples, config.algorithm.batch_size, task.classes, config.attack.epochs
    rows = some(samples, config.attack.rows, config.seed, "attack")
    read = (message for message in view if most is None or message.round <= most)
    balance = np.bincount(task.labels, minlength=classes) / samples
    find = sides if classes == 2 else directions
    values = find(read, lambda epoch: batches(config.seed, epoch, samples, size), rows)
    seen = np.abs(values).max(axis=1, initial=0) > 0
    facts = {"name": "label_inference", "adversary": hubs[1], "classes": classes}
    near = clusters(values[seen], classes, derive(config.seed, "attack")) if classes > 2 else values[seen]
    guesses, scores = named(near, balance)
    truth = task.labels[rows[seen]]
    right, likely = (score.mean((guess == truth).astype(float)) for guess in (guesses, balance.argmax()))
    common = score.result(right, likely, len(truth), config.seed, ("balance",))
    return {**facts, "success_rate": common["success"], "auroc": auroc(scores, truth), **common}


def sides(view: Iterable[Message], rows_of: Batches, rows: np.ndarray) -> np.ndarray:
    """How far the gradients of some training rows point to either side, for two classes.

    Parameters
    ----------
    rows : ascending.

    Returns
    -------
    Array (len(rows), 2), the second column less the first; 0 for a row without a gradient.
    """
    total = np.zeros(len(rows))
    for epoch, messages in by_round(view):
        ids, own = rows_of(epoch), np.zeros(len(rows))
        for received in last_published(messages, TAG).values():  # one: the active party
            so_far: np.ndarray | float = 0.0
            for batch in sorted(received):
                unit = directed(received[batch])
                axis = np.linalg.eigh(unit.T @ unit)[1][:, -1]
                axis = axis if np.sum(axis * so_far) >= 0 else -axis
                so_far = so_far + axis
                _, place, hit = np.intersect1d(rows, ids[batch], assume_unique=True, return_indices=True)
                own[place] = (unit @ axis)[hit]
        total += own if total @ own >= 0 else -own
    return np.stack([-total, total], axis=1)


def directed(gradient: np.ndarray) -> np.ndarray:
    """Gradients (n, d), each of length 1, or 0 where it was 0 or not finite: a run may diverge."""
    known = np.nan_to_num(gradient.astype(np.float64), nan=0, posinf=0, neginf=0)
    # Scaled by the largest entry first: squares of tiny gradients would vanish.
    largest = np.abs(known).max(axis=1, keepdims=True, initial=0)
    known = np.divide(known, largest, out=np.zeros_like(known), where=largest > 0)
    unit: np.ndarray = known / np.linalg.norm(known, axis=1, keepdims=True).clip(min=1)
    return unit


def directions(view: Iterable[Message], rows_of: Batches, rows: np.ndarray) -> np.ndarray:
    """The gradients of some training rows, each of length 1 or 0, epoch by epoch.

    Parameters
    ----------
    rows : ascending.

    Returns
    -------
    Array (len(rows), epochs * d_e).
    """
    epochs = []
    for epoch, messages in by_round(view):
        ids = rows_of(epoch)
        for received in last_published(messages, TAG).values():  # one: the active party
            own = np.zeros((len(rows), next(iter(received.values())).shape[1]))
            for batch, gradient in received.items():
                _, place, hit = np.intersect1d(rows, ids[batch], assume_unique=True, return_indices=True)
                own[place] = directed(gradient[hit])
            epochs.append(own)
    return np.concatenate(epochs, axis=1) if epochs else np.zeros((len(rows), 0))


def clusters(gradients: np.ndarray, classes: int, seed: int) -> np.ndarray:
    """How near each of `gradients` (n, d) is to the centre of each cluster, (n, classes)."""
    from sklearn.cluster import KMeans

    near = np.full((len(gradients), classes), -np.inf)
    if count := min(classes, len(gradients)):
        centres = KMeans(count, n_init=10, random_state=seed % 2**32).fit(gradients).cluster_centers_
        near[:, :count] = -np.linalg.norm(gradients[:, None] - centres, axis=2)
    return near


def named(near: np.ndarray, balance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Guess classes by matching clusters with classes by size.

    Parameters
    ----------
    near : (n, classes), higher where a row is nearer to a cluster.
    balance : the public share of each class.

    Returns
    -------
    Classes (n,), and scores (n, classes), where higher is likelier.
    """
    sizes = np.bincount(near.argmax(axis=1), minlength=len(balance))
    scores = np.empty_like(near)
    # On ties the lower number comes first, so that the rule decides without labels.
    scores[:, np.argsort(-balance, kind="stable")] = near[:, np.argsort(-sizes, kind="stable")]
    return scores.argmax(axis=1), scores


def auroc(scores: np.ndarray, truth: np.ndarray) -> float | None:
    """The mean over classes of the area under the curve of one class against the others; None for a single class."""
    from sklearn.metrics import roc_auc_score

    classes = np.unique(truth)
    if len(classes) < 2:
        return None
    finite = np.maximum(scores, np.finfo(np.float64).min)
    return float(np.mean([roc_auc_score(truth == c, finite[:, c]) for c in classes]))
