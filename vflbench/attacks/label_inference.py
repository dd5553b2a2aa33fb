"""A passive party guesses the training rows' labels from the gradients that it received, without its own features or
model.

PubSub-VFL (arXiv 2510.12494) protects embeddings, not gradients, so labels can leak. After Li et al., arXiv 2102.08504
(norms and directions of gradients in two-party split learning). Classification only.

Threat model: an honest but curious passive party, the first. It has d loss / d z of every row and epoch that its hub
received, which rows are in a batch, and the share of each class among the training rows, which counts as public. No
label.

Of a row with softmax output p, d loss / d z = J^T (p - e_y): with two classes it is (p_1 - y) times the gradient of the
score, so the label decides to which side of a hyperplane it points. A row's gradients of all epochs, each scaled to
length 1 (0 where there was none), stand side by side in one vector, so no epoch's direction has to be matched with
another's.

- Two classes: the side is the sign of the projection on the leading singular direction.
- More: k-means of these vectors into as many clusters as there are classes.

Which cluster is which class: by size, the largest is the most frequent class, and so on. Where two classes are about
equally frequent the sizes cannot tell them apart, and names may be swapped: a success rate below a half, an AUROC near
0, is then the same leak. `floor`: all rows guessed to be of the most frequent class.
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
    name: str = "label_inference"
    rows: Count = 1000  # attacked training rows, drawn at random


def watch(task: AlignedTask, config: RunConfig, hubs: list[str]) -> Watch:
    """The first passive party's view; the active party stands before it."""
    return Watch(hubs[1], frozenset((TAG,)))


def check_task(task: AlignedTask, config: RunConfig) -> list[Problem]:
    """Whether there are classes to guess."""
    if task.classes:
        return []
    return [
        Problem(
            "attack", config.attack.name, "guesses classes, and this data set is a regression: use embedding_inversion"
        )
    ]


def attack(view: Iterable[Message], task: AlignedTask, config: RunConfig, hubs: list[str]) -> dict[str, Any]:
    """The summary's `attack`. `hubs` in the order of the task's parties, the active one first."""
    samples, size = task.public.samples, config.algorithm.batch_size
    rows = some(samples, config.attack.rows, config.seed, "attack")
    gradients = directions(view, lambda epoch: batches(config.seed, epoch, samples, size), rows)
    seen = np.abs(gradients).max(axis=1, initial=0) > 0
    found: dict[str, Any] = {
        "name": "label_inference",
        "adversary": hubs[1],
        "rows": int(seen.sum()),
        "classes": task.classes,
    }
    if not seen.any():
        return found | {"success_rate": None, "auroc": None, "floor": None}
    balance = np.bincount(task.labels, minlength=task.classes) / samples
    guesses, scores = guess(gradients[seen], balance, derive(config.seed, "attack"))
    truth = task.labels[rows[seen]]
    return found | {
        "success_rate": float(np.mean(guesses == truth)),
        "auroc": auroc(scores, truth),
        "floor": float(np.mean(truth == balance.argmax())),
    }


def directions(view: Iterable[Message], rows_of: Batches, rows: np.ndarray) -> np.ndarray:
    """(len(rows), epochs * d_e): the gradients of the training rows `rows`, ascending, each of length 1 or 0, epoch by
    epoch."""
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
    """(classes (n,), scores (n, classes), higher is likelier) of `gradients` (n, d), by clusters named after their
    size.

    balance : the public share of each class.
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
    # Ties: the lower number first, so that the rule decides without labels.
    scores[:, np.argsort(-balance, kind="stable")] = near[:, np.argsort(-sizes, kind="stable")]
    return scores.argmax(axis=1), scores


def auroc(scores: np.ndarray, truth: np.ndarray) -> float | None:
    """Mean over classes of the area under the curve of one class against the others; None where only one class is
    there."""
    from sklearn.metrics import roc_auc_score

    there = np.unique(truth)
    if len(there) < 2:
        return None
    return float(
        np.mean([roc_auc_score(truth == c, np.maximum(scores[:, c], np.finfo(np.float64).min)) for c in there])
    )
