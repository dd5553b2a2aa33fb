"""The active party inverts a passive party's embeddings: from what it received back to the features.

After Song and Raghunathan 2020 (embedding inversion). The measure of success is ours: the PubSub-VFL paper names none.

Threat model: an honest but curious active party. It has
- the embeddings that its hub received;
- the rows of each batch, which are public;
- a shadow set of the same distribution: validation rows, which no party trains on;
- black-box access: after every epoch the passive party's model (the parameter server's mean) embeds the shadow rows,
  with the run's own clipping and noise.

It trains a small MLP (scikit-learn) from a model's answers back to the shadow inputs, all standardised. It applies the
MLP to the embeddings of the victims: `attack.rows` of the training rows. Where the best constant guesses a feature
better, on a fifth of the shadow set that the MLP has not seen, it guesses the constant. The answers must come from
nearly the model that published, and workers' replicas drift apart until they are averaged. So it looks at the epochs in
which every row was published, with the answers before and after each. It takes the pair whose means and covariances
are nearest (Frechet distance of Gaussians); this needs no victim's features.

An entry (row, feature) counts as recovered within `attack.tolerance` standard deviations of the feature. For a feature
with two values, the nearer value must be the right one. `floor` is the best constant guess for every feature, fitted on
the shadow set. `r2` is the MLP's, before any rounding: one minus squared error over variance, where all features that
vary count the same; the mean has 0.
"""

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from vflbench.attacks import score
from vflbench.attacks.transcript import ANSWER, Batches, Message, Watch, by_round, last_published, some
from vflbench.cards.algorithms.split.split_methods import Keys
from vflbench.data.tasks import AlignedTask
from vflbench.seeding import batches, derive
from vflbench.types import Problem, RunConfig

TAG = "embedding"
HIDDEN = (128, 128)
MOST_SHADOWS = 10_000


def watch(task: AlignedTask, config: RunConfig[Keys], hubs: list[str]) -> Watch:
    """The view of the active party, which is the first hub."""
    chosen = shadow_rows(task, config)
    questions = {name: task.held_out_features["val"][number][chosen] for number, name in enumerate(hubs) if number}
    return Watch(hubs[0], frozenset((TAG,)), questions=questions)


def shadow_rows(task: AlignedTask, config: RunConfig[Keys]) -> np.ndarray:
    """The validation rows of the shadow set: all, or `MOST_SHADOWS` of them."""
    return some(len(task.held_out_labels["val"]), MOST_SHADOWS, config.seed, "attack/shadow")


def check_task(task: AlignedTask, config: RunConfig[Keys]) -> list[Problem]:
    """What the task lacks: features that are columns, and a shadow set."""
    if any(block.ndim != 2 for block in task.features):
        return [Problem("attack", config.attack.name, f"inverts columns of a table; {task.name} has images")]
    if len(task.held_out_labels.get("val", ())) >= 20:
        return []
    allowed = "its shadow set is the validation rows: at least 20 are needed (dataset.validation=0.1)"
    return [Problem("attack", config.attack.name, allowed)]


def attack(view: Iterable[Message], task: AlignedTask, config: RunConfig[Keys], hubs: list[str]) -> dict[str, Any]:
    """Attack every passive party, and return the summary's `attack`.

    A party is left out of `clients` if it published no whole epoch, or if its embeddings are not numbers because the
    run diverged.

    Parameters
    ----------
    hubs : in the order of the task's parties, the active one first.
    """
    samples, size, chosen = task.public.samples, config.algorithm.batch_size, shadow_rows(task, config)
    seen = best_epoch(view, lambda epoch: batches(config.seed, epoch, samples, size), samples)
    clients: dict[str, dict[str, Any]] = {}
    of_rows: list[tuple[int, int, int]] = []  # of each attacked row: entries that were hit, by the constant, all
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
        learnt = hits(inverse(answers[held]), shadow[held], columns, tolerance).mean(axis=0)
        better = learnt > hits(constant[None], shadow[held], columns, tolerance).mean(axis=0)
        guesses, truth = inverse(embeddings[rows]), features[rows].astype(np.float64)
        hit = hits(np.where(better, guesses, constant), truth, columns, tolerance)
        lucky = hits(constant[None], truth, columns, tolerance)
        of_rows += [(one.sum(), other.sum(), len(one)) for one, other in zip(hit, lucky, strict=True)]
        clients[name] = {
            "epoch": epoch,
            "rows": len(rows),
            "features": shadow.shape[1],
            "learnt": int(better.sum()),
            "success_rate": float(hit.mean()),
            "floor": float(lucky.mean()),
            "r2": r_squared(guesses, truth, columns),
        }
    weights = [client["rows"] * client["features"] for client in clients.values()]
    total = {
        key: float(np.average([client[key] for client in clients.values()], weights=weights)) if clients else None
        for key in ("success_rate", "floor", "r2")
    }
    hit_rows, lucky_rows, width = np.array(of_rows, float).reshape(-1, 3).T

    def share(own: np.ndarray) -> score.Statistic:
        return lambda weights: float(weights @ own / (weights @ width))

    common = score.result(share(hit_rows), share(lucky_rows), len(width), config.seed, ("shadow",))
    found = {"name": "embedding_inversion", "tolerance": config.attack.tolerance, **common, **total}
    return found | {"clients": clients}


def best_epoch(
    view: Iterable[Message], rows_of: Batches, samples: int
) -> dict[str, tuple[int, np.ndarray, np.ndarray]]:
    """Find the epoch to attack, for every passive party that published a whole epoch of numbers.

    Returns
    -------
    Per party the epoch, the embeddings of its training rows (samples, d_e), and answers (shadow rows, d_e).
    """
    nearest: dict[str, float] = {}
    best: dict[str, tuple[int, np.ndarray, np.ndarray]] = {}
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
                if name not in best or distance < nearest[name]:
                    nearest[name], best[name] = distance, (epoch, embeddings, answer)
    return best


def frechet(a: np.ndarray, b: np.ndarray) -> float:
    """The squared Frechet distance of two normal distributions, over the variance of the first.

    They have the means and covariances of `a` (n, d) and `b` (m, d).
    """
    means, covariances = [], []
    for values in (a, b):
        own = values.astype(np.float64)
        means.append(own.mean(axis=0))
        covariances.append(np.atleast_2d(np.cov(own, rowvar=False)))
    size, axes = np.linalg.eigh(covariances[0])
    root = (axes * np.sqrt(size.clip(min=0))) @ axes.T
    middle = np.sqrt(np.linalg.eigvalsh(root @ covariances[1] @ root).clip(min=0)).sum()
    spread = sum(np.trace(covariance) for covariance in covariances) - 2 * middle
    variance = max(np.trace(covariances[0]), np.finfo(np.float64).tiny)
    return float((np.sum((means[0] - means[1]) ** 2) + spread) / variance)


def train(embeddings: np.ndarray, inputs: np.ndarray, seed: int) -> Callable[[np.ndarray], np.ndarray]:
    """Learn the inverse, a function of embeddings, from `embeddings` (n, d_e) of `inputs` (n, d).

    A part of the shadow set decides when to stop: from pure noise the MLP learns only the mean.
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
    """A feature of the training rows, (n,): its two values, if it has no more, and its standard deviation."""

    def __init__(self, values: np.ndarray) -> None:
        own = values.astype(np.float64)
        self.spread = float(own.std())
        ends = np.unique([own.min(), own.max()])
        self.values = ends if np.isin(own, ends).all() else None

    def hits(self, guesses: np.ndarray, truth: np.ndarray, tolerance: float) -> np.ndarray:
        """Whether each of `guesses`, (k,) or (1,), recovers `truth`, (k,)."""
        if self.values is None:
            return np.asarray(np.abs(guesses - truth) <= tolerance * self.spread)
        return np.asarray(self.values[np.abs(guesses[:, None] - self.values).argmin(axis=1)] == truth)

    def best_constant(self, values: np.ndarray, tolerance: float) -> float:
        """The guess that recovers the most of `values`, (m,)."""
        return best_constant(values.astype(np.float64), 0.0 if self.values is not None else tolerance * self.spread)


def hits(guesses: np.ndarray, truth: np.ndarray, columns: list[Column], tolerance: float) -> np.ndarray:
    """Whether each entry of `truth` (k, d) is recovered by `guesses`, (k, d), or (1, d) for all rows."""
    return np.stack([column.hits(guesses[:, c], truth[:, c], tolerance) for c, column in enumerate(columns)], axis=1)


def r_squared(guesses: np.ndarray, truth: np.ndarray, columns: list[Column]) -> float:
    """The ratio 1 - squared error / variance of `guesses` (k, d).

    Errors are in standard deviations of each column that varies; the ratio is 0 where none does.
    """
    varying = [c for c, column in enumerate(columns) if column.spread > 0]
    scale = np.array([columns[c].spread for c in varying])
    residual, total = (guesses - truth)[:, varying] / scale, (truth - truth.mean(axis=0))[:, varying] / scale
    return 1 - float((residual**2).sum()) / float((total**2).sum()) if (total**2).sum() > 0 else 0.0


def best_constant(values: np.ndarray, reach: float) -> float:
    """The number with the most of `values` (n,) within `reach` of it.

    It is the middle of an interval that begins at one of them.
    """
    ordered = np.sort(values)
    counts = np.searchsorted(ordered, ordered + 2 * reach, side="right") - np.arange(len(ordered))
    first = int(counts.argmax())
    return float((ordered[first] + ordered[first + counts[first] - 1]) / 2)
