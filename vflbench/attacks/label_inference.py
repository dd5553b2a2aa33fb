"""A passive party guesses the training rows' labels from the gradients that it received.

PubSub-VFL (arXiv 2510.12494) protects embeddings, not gradients, so labels can leak. After Li et al., arXiv 2102.08504
(norms and directions of gradients in two-party split learning). Classification only. The attack uses neither the
party's own features nor its model.

Threat model: an honest but curious passive party, the first. It has d loss / d z of every row and epoch that its hub
received, and the rows of each batch. It knows the share of each class among the training rows, which counts as public.
It has no label.

For a row with softmax output p, d loss / d z = J^T (p - e_y). With two classes this is (p_1 - y) times the gradient of
the score, so the label decides to which side of a hyperplane it points. A row's gradients of all epochs are put side by
side in one vector, each scaled to length 1 (0 where there was none). So no epoch's direction has to be matched with
another's.

- Two classes: the side is the sign of the projection on the leading singular direction.
- More: k-means of these vectors into as many clusters as there are classes.

Clusters are matched with classes by size: the largest is the most frequent class, and so on. Sizes cannot tell classes
apart that are about equally frequent, so names may be swapped: a success rate below a half, or an AUROC near 0, is then
the same leak. `floor` guesses the most frequent class for all rows.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from vflbench.attacks.transcript import Batches, Message, Watch, by_round, last_published, some
from vflbench.data.tasks import AlignedTask
from vflbench.seeding import batches, derive
from vflbench.types import Count, OptionInfo, Problem, RunConfig

OPTIONS = (OptionInfo("label_inference", "a passive party guesses labels from the gradients that it received"),)
TAG = "gradient"


@dataclass
class Config:
    """Keys of label_inference."""

    name: str = "label_inference"
    rows: Count = 1000  # attacked training rows, drawn at random


def watch(task: AlignedTask, config: RunConfig, hubs: list[str]) -> Watch:
    """The view of the first passive party, which comes after the active one."""
    return Watch(hubs[1], frozenset((TAG,)))


def check_task(task: AlignedTask, config: RunConfig) -> list[Problem]:
    """Return a problem where there are no classes to guess."""
    if task.classes:
        return []
    allowed = "guesses classes, and this data set is a regression: use embedding_inversion"
    return [Problem("attack", config.attack.name, allowed)]


def attack(view: Iterable[Message], task: AlignedTask, config: RunConfig, hubs: list[str]) -> dict[str, Any]:
    """Attack the training rows, and return the summary's `attack`.

    Parameters
    ----------
    hubs : in the order of the task's parties, the active one first.
    """
    samples, size = task.public.samples, config.algorithm.batch_size
    rows = some(samples, config.attack.rows, config.seed, "attack")
    gradients = directions(view, lambda epoch: batches(config.seed, epoch, samples, size), rows)
    seen = np.abs(gradients).max(axis=1, initial=0) > 0
    facts: dict[str, Any] = {
        "name": "label_inference",
        "adversary": hubs[1],
        "rows": int(seen.sum()),
        "classes": task.classes,
    }
    if not seen.any():
        return facts | {"success_rate": None, "auroc": None, "floor": None}
    balance = np.bincount(task.labels, minlength=task.classes) / samples
    guesses, scores = guess(gradients[seen], balance, derive(config.seed, "attack"))
    truth = task.labels[rows[seen]]
    return facts | {
        "success_rate": float(np.mean(guesses == truth)),
        "auroc": auroc(scores, truth),
        "floor": float(np.mean(truth == balance.argmax())),
    }


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
            directed = np.zeros((len(rows), next(iter(received.values())).shape[1]))
            for batch, gradient in received.items():
                _, place, hit = np.intersect1d(rows, ids[batch], assume_unique=True, return_indices=True)
                chosen = np.nan_to_num(gradient[hit].astype(np.float64), nan=0, posinf=0, neginf=0)  # a run may diverge
                # Scaled by the largest entry first: squares of tiny gradients would vanish.
                largest = np.abs(chosen).max(axis=1, keepdims=True, initial=0)
                chosen = np.divide(chosen, largest, out=np.zeros_like(chosen), where=largest > 0)
                directed[place] = chosen / np.linalg.norm(chosen, axis=1, keepdims=True).clip(min=1)
            epochs.append(directed)
    return np.concatenate(epochs, axis=1) if epochs else np.zeros((len(rows), 0))


def guess(gradients: np.ndarray, balance: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Guess classes from `gradients` (n, d), by clusters that are matched with classes by size.

    Parameters
    ----------
    balance : the public share of each class.

    Returns
    -------
    Classes (n,), and scores (n, classes), where higher is likelier.
    """
    classes = len(balance)
    if classes == 2:
        from sklearn.utils.extmath import randomized_svd

        _, _, axes = randomized_svd(gradients, 1, random_state=seed % 2**32)
        side = gradients @ axes[0]
        near = np.stack([-side, side], axis=1)
    else:
        from sklearn.cluster import KMeans

        count = min(classes, len(gradients))
        centres = KMeans(count, n_init=10, random_state=seed % 2**32).fit(gradients).cluster_centers_
        near = np.full((len(gradients), classes), -np.inf)
        near[:, :count] = -np.linalg.norm(gradients[:, None] - centres, axis=2)
    sizes = np.bincount(near.argmax(axis=1), minlength=classes)
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
