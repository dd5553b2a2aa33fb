"""The active party inverts a passive party's embeddings: from what it received back to the features.

After Song and Raghunathan 2020 (embedding inversion). What counts as success is ours: the PubSub-VFL paper does not
say.

Threat model: an honest but curious active party. It has the embeddings that its hub received; which rows are in a
batch, which is public; a shadow set of the same distribution (validation rows, which nobody trains on); and black-box
access: whenever an epoch is over, the passive party's model (the parameter server's mean) embeds the shadow rows, with
the run's own clipping and noise.

It trains a small MLP (scikit-learn) from a model's answers to the shadow inputs, all standardised, and applies it to
the embeddings of the victims: training rows, `attack.rows` of them. A feature that the best constant guesses better, on
a fifth of the shadow set that the MLP has not seen, is guessed so. The answers must come from nearly the model that
published, and workers' replicas drift apart until they are averaged. So of the epochs in which every row was published,
and of the answers before and after each, it takes the pair whose means and covariances are nearest (Frechet distance of
Gaussians): it needs no victim's features to see that.

An entry (row, feature) counts as recovered within `attack.tolerance` standard deviations of the feature; of a feature
with two values, if the nearer value is the right one. `floor` is the best constant guess for every feature, fitted on
the shadow set. `r2` is the MLP's: one minus squared error over variance, all features that vary counted alike, before
any rounding; the mean has 0.
"""

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from vflbench.attacks.transcript import ANSWER, Batches, Message, Watch, by_round, last_published, some
from vflbench.data.tasks import AlignedTask
from vflbench.seeding import batches, derive
from vflbench.types import Count, OptionInfo, Positive, Problem, RunConfig

OPTIONS = (OptionInfo("embedding_inversion", "the active party inverts the embeddings that it received"),)
TAG = "embedding"
HIDDEN = (128, 128)
MOST_SHADOWS = 10_000


@dataclass
class Config:
    name: str = "embedding_inversion"
    rows: Count = 1000  # attacked training rows, drawn at random
    tolerance: Positive = 0.5  # a number counts as recovered within so many standard deviations


def watch(task: AlignedTask, config: RunConfig, hubs: list[str]) -> Watch:
    """The active party's view; it stands first."""
    chosen = shadow_rows(task, config)
    questions = {name: task.held_out_features["val"][number][chosen] for number, name in enumerate(hubs) if number}
    return Watch(hubs[0], frozenset((TAG,)), questions=questions)


def shadow_rows(task: AlignedTask, config: RunConfig) -> np.ndarray:
    """Which validation rows are the shadow set: all, or `MOST_SHADOWS` of them."""
    return some(len(task.held_out_labels["val"]), MOST_SHADOWS, config.seed, "attack/shadow")


def check_task(task: AlignedTask, config: RunConfig) -> list[Problem]:
    """Whether there is a shadow set, and features that are columns."""
    if any(block.ndim != 2 for block in task.features):
        return [Problem("attack", config.attack.name, f"inverts columns of a table; {task.name} has images")]
    if len(task.held_out_labels.get("val", ())) >= 20:
        return []
    return [
        Problem(
            "attack",
            config.attack.name,
            "its shadow set is the validation rows: at least 20 are needed (dataset.validation=0.1)",
        )
    ]


def attack(view: Iterable[Message], task: AlignedTask, config: RunConfig, hubs: list[str]) -> dict[str, Any]:
    """Attack every passive party; the summary's `attack`. `hubs` in the order of the task's parties, the active one
    first.

    A party without a whole epoch, or whose embeddings are not numbers, since the run diverged, is left out of
    `clients`.
    """
    samples, size, chosen = task.public.samples, config.algorithm.batch_size, shadow_rows(task, config)
    seen = best_epoch(view, lambda epoch: batches(config.seed, epoch, samples, size), samples)
    found: dict[str, dict[str, Any]] = {}
    for number, name in enumerate(hubs):
        if name not in seen:
            continue
        epoch, embeddings, answers = seen[name]
        rows = some(samples, config.attack.rows, config.seed, f"attack/{name}")
        features, shadow = task.features[number], task.held_out_features["val"][number][chosen]  # columns: check_task
        tolerance, columns = config.attack.tolerance, [Column(values) for values in features.T]
        held = np.arange(len(shadow)) % 5 == 0
        inverse = train(answers[~held], shadow[~held], derive(config.seed, f"attack/{name}"))
        constant = np.array(
            [column.best_constant(values, tolerance) for column, values in zip(columns, shadow.T, strict=True)]
        )
        learnt, flatly = (
            hits(guesses, shadow[held], columns, tolerance) for guesses in (inverse(answers[held]), constant[None])
        )
        better = learnt.mean(axis=0) > flatly.mean(axis=0)
        guesses, truth = inverse(embeddings[rows]), features[rows].astype(np.float64)
        score = {
            "success_rate": float(hits(np.where(better, guesses, constant), truth, columns, tolerance).mean()),
            "floor": float(hits(constant[None], truth, columns, tolerance).mean()),
            "r2": r_squared(guesses, truth, columns),
        }
        found[name] = {
            "epoch": epoch,
            "rows": len(rows),
            "features": shadow.shape[1],
            "learnt": int(better.sum()),
            **score,
        }
    weights = [client["rows"] * client["features"] for client in found.values()]
    total = {
        key: float(np.average([client[key] for client in found.values()], weights=weights)) if found else None
        for key in ("success_rate", "floor", "r2")
    }
    return {"name": "embedding_inversion", "tolerance": config.attack.tolerance, **total, "clients": found}


def best_epoch(
    view: Iterable[Message], rows_of: Batches, samples: int
) -> dict[str, tuple[int, np.ndarray, np.ndarray]]:
    """Per passive party the epoch to attack, the embeddings (samples, d_e) of its training rows, and answers (shadow
    rows, d_e).

    A party is left out that published no epoch whole, or no numbers.
    """
    nearest: dict[str, float] = {}
    found: dict[str, tuple[int, np.ndarray, np.ndarray]] = {}
    answers: dict[str, list[np.ndarray]] = {}  # the last two
    for epoch, messages in by_round(view):
        for message in messages:
            if message.tag == ANSWER:
                answers[message.src] = [*answers.get(message.src, [])[-1:], message.arrays[0]]
        ids = rows_of(epoch)
        for name, published in last_published(messages, TAG).items():
            if len(published) < len(ids):
                continue
            embeddings = np.zeros((samples, published[0].shape[1]), published[0].dtype)
            for batch, rows in enumerate(ids):
                embeddings[rows] = published[batch]
            for answer in answers.get(name, []):
                if not (np.isfinite(embeddings).all() and np.isfinite(answer).all()):
                    continue
                distance = frechet(embeddings, answer)
                if name not in found or distance < nearest[name]:
                    nearest[name], found[name] = distance, (epoch, embeddings, answer)
    return found


def frechet(a: np.ndarray, b: np.ndarray) -> float:
    """Squared Frechet distance of the normal distributions with the moments of `a` (n, d) and `b` (m, d), over the
    variance of `a`."""
    means, covariances = [], []
    for values in (a, b):
        own = values.astype(np.float64)
        means.append(own.mean(axis=0))
        covariances.append(np.atleast_2d(np.cov(own, rowvar=False)))
    size, axes = np.linalg.eigh(covariances[0])
    root = (axes * np.sqrt(size.clip(min=0))) @ axes.T
    middle = np.sqrt(np.linalg.eigvalsh(root @ covariances[1] @ root).clip(min=0)).sum()
    spread = sum(np.trace(covariance) for covariance in covariances) - 2 * middle
    return float(
        (np.sum((means[0] - means[1]) ** 2) + spread) / max(np.trace(covariances[0]), np.finfo(np.float64).tiny)
    )


def train(embeddings: np.ndarray, inputs: np.ndarray, seed: int) -> Callable[[np.ndarray], np.ndarray]:
    """The inverse learnt from `embeddings` (n, d_e) of `inputs` (n, d): a function of embeddings.

    Part of the shadow set decides when to stop, so that pure noise teaches no more than the mean.
    """
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    network = MLPRegressor(hidden_layer_sizes=HIDDEN, early_stopping=True, max_iter=500, random_state=seed % 2**32)
    scaled = TransformedTargetRegressor(network, transformer=StandardScaler(), check_inverse=False)
    inverse = make_pipeline(StandardScaler(), scaled)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        inverse.fit(embeddings.astype(np.float64), inputs.astype(np.float64).squeeze())
    return lambda embeddings: np.asarray(inverse.predict(embeddings.astype(np.float64))).reshape(len(embeddings), -1)


class Column:
    """A feature of the training rows, (n,): its two values if it has no more, and its deviation."""

    def __init__(self, values: np.ndarray) -> None:
        own = values.astype(np.float64)
        self.spread = float(own.std())
        ends = np.unique([own.min(), own.max()])
        self.values = ends if np.isin(own, ends).all() else None

    def hits(self, guesses: np.ndarray, truth: np.ndarray, tolerance: float) -> np.ndarray:
        """Which of `guesses` (k,) or (1,) recover `truth` (k,)."""
        if self.values is None:
            return np.asarray(np.abs(guesses - truth) <= tolerance * self.spread)
        return np.asarray(self.values[np.abs(guesses[:, None] - self.values).argmin(axis=1)] == truth)

    def best_constant(self, values: np.ndarray, tolerance: float) -> float:
        """The guess that recovers most of `values` (m,)."""
        return best_constant(values.astype(np.float64), 0.0 if self.values is not None else tolerance * self.spread)


def hits(guesses: np.ndarray, truth: np.ndarray, columns: list[Column], tolerance: float) -> np.ndarray:
    """Which entries of `truth` (k, d) the `guesses` (k, d), or (1, d) for all rows, recover."""
    return np.stack([column.hits(guesses[:, c], truth[:, c], tolerance) for c, column in enumerate(columns)], axis=1)


def r_squared(guesses: np.ndarray, truth: np.ndarray, columns: list[Column]) -> float:
    """1 - squared error / variance of `guesses` (k, d), in deviations of every column that varies; 0 where none
    does."""
    varying = [c for c, column in enumerate(columns) if column.spread > 0]
    scale = np.array([columns[c].spread for c in varying])
    residual, total = (guesses - truth)[:, varying] / scale, (truth - truth.mean(axis=0))[:, varying] / scale
    return 1 - float((residual**2).sum()) / float((total**2).sum()) if (total**2).sum() > 0 else 0.0


def best_constant(values: np.ndarray, reach: float) -> float:
    """The number with the most of `values` (n,) within `reach` of it: the middle of an interval that begins at one of
    them."""
    ordered = np.sort(values)
    counts = np.searchsorted(ordered, ordered + 2 * reach, side="right") - np.arange(len(ordered))
    first = int(counts.argmax())
    return float((ordered[first] + ordered[first + counts[first] - 1]) / 2)
