"""Privacy of the methods over tables: `label_dp` (noisy labels), `dp_sgd` (noisy gradients), `tablepuppet` (both).

Xu et al.: TablePuppet, arXiv 2403.15839, section 6 (privacy). What a program calls, whether there is privacy or not:

- `protect_labels` before it sends labels; `protect_predictions` before it sends predictions;
- `noisy_steps` once it knows its rows; what it returns takes the place of the plain gradient.

What is protected
-----------------
Labels: the label of one row against any other label. The other parties get only the noisy labels, so the epsilon covers
the transcript.

DP-SGD: with and without the gradients of one row of a party's table T_i (of the joined table, where rows are aligned).
Keys, which rows join, and how often, are known to all and are not hidden. The epsilon is that of the party's parameters
given what the server sent it. Predictions f(theta; row) sent over the wire are functions of the raw row that nothing
hides. A party that knows theta can solve a linear model for the row (attacks/prediction_recovery.py), and other
parties' parameters learn from the predictions. So `covers` is `model`.

With `prediction_noise` every prediction that leaves is clipped and gets noise. Then the server's results (z, lambda, Y)
are post-processing, and `covers` is `transcript`: epsilon is that of gradients and predictions together. Where the
server draws the batches (SGD), it knows which rows took part, and sampling does not hide a row from it: that epsilon
counts every batch of a row in full.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from vflbench.privacy import accountant
from vflbench.privacy.gaussian import GaussianEmbedding, gaussian_like
from vflbench.privacy.keys import Gradients, Labels
from vflbench.privacy.mechanisms import Facts
from vflbench.seeding import SecretStream
from vflbench.types import FederationError, PrivacyConfig, Problem, RunConfig, refuse

if TYPE_CHECKING:
    import torch

    from vflbench.federation.party import Party
    from vflbench.models.partial import Partial

Numbers = np.random.Generator | SecretStream


# --- labels -----------------------------------------------------------------------------------------------------------


class NoisyLabels:
    """One-hot labels plus Laplace noise of standard deviation lambda on each coordinate, then argmax.

    Another label moves the one-hot vector by 2 in L1, and the Laplace scale is lambda / sqrt(2). So epsilon is
    2 sqrt(2) / lambda.
    """

    def __init__(self, deviation: float, rating_classes: int) -> None:
        self.deviation, self.rating_classes = deviation, rating_classes
        self.count = 0  # labels handed over

    @property
    def epsilon(self) -> float:
        """The epsilon of one label; 0 before any was handed over."""
        return 2 * math.sqrt(2) / self.deviation if self.count else 0.0

    def protect(self, labels: np.ndarray, classes: int, rng: Numbers) -> np.ndarray:
        """A noisy copy of `labels` (n,), of the same type; to be called once.

        Parameters
        ----------
        labels : classes, or ratings where `classes` is 0.

        Raises
        ------
        ConfigError : the labels of a regression are not ratings.
        FederationError : it is the second call.
        """
        refuse(check_labels(self, labels, classes))
        if self.count:
            raise FederationError("labels are noised once: a second noisy copy would double their epsilon")
        self.count = len(labels)
        first, count = (0, classes) if classes else (6 - self.rating_classes, self.rating_classes)
        scores = rng.laplace(scale=self.deviation / math.sqrt(2), size=(len(labels), count))
        scores[np.arange(len(labels)), labels.astype(np.int64) - first] += 1
        noisy: np.ndarray = (scores.argmax(axis=1) + first).astype(labels.dtype)
        return noisy


def check_labels(config: Labels | NoisyLabels, labels: np.ndarray, classes: int) -> list[Problem]:
    """Return a problem where labels cannot get noise: they are neither classes nor, where `classes` is 0, ratings."""
    first = 6 - config.rating_classes
    if classes or not len(labels):
        return []
    unrated = labels[(labels != np.floor(labels)) | (labels < first) | (labels > 5)]
    if not len(unrated):
        return []
    taken = f"noises classes, or whole ratings from {first} to 5 (privacy.rating_classes={config.rating_classes})"
    other = "use privacy=dp_sgd, or classes where the data set has them"
    return [Problem("privacy", "label_dp, tablepuppet", f"{taken}, and a label is {unrated[0]:.6g}: {other}")]


# --- gradients --------------------------------------------------------------------------------------------------------


class NoisyGradients:
    """DP-SGD's step: rows' gradients, clipped to L2 norm `clip`, summed over a Poisson batch, plus noise.

    The noise is N(0, (sigma clip)^2 I).
    """

    def __init__(self, clip: float, noise_multiplier: float | None, epsilon: float | None, delta: float) -> None:
        self.clip, self.noise_multiplier, self.target, self.delta = clip, noise_multiplier, epsilon, delta
        self.sample_rate = 0.0
        self.planned: int | None = None  # steps that the noise is calibrated for
        self.taken = 0

    def prepare(self, sample_rate: float, steps: int, rng: Numbers, noise: torch.Generator | SecretStream) -> None:
        """Calibrate the noise; after a resume, only take the streams.

        Parameters
        ----------
        sample_rate : the largest probability with which a row is part of a batch.
        steps : batches of the whole run.
        rng : draws batches.
        noise : draws the noise.
        """
        self.rng, self.noise = rng, noise
        if self.planned is not None:
            return
        self.sample_rate, self.planned = sample_rate, steps
        if self.noise_multiplier is None:
            assert self.target is not None  # checked with the configuration
            found = 0.0  # no row of this party joins: there is nothing to hide
            if sample_rate * steps:
                found = accountant.calibrate_steps(self.target, self.delta, sample_rate, steps)
            self.noise_multiplier = found  # at last: where no noise is enough, `gradient` goes on to refuse

    def sample(self, rows: int, rate: float) -> np.ndarray:
        """A Poisson batch: each of `rows` rows with probability `rate`, ascending."""
        return poisson(rows, rate, self.rng)

    def gradient(
        self, model: Partial, x: torch.Tensor, cotangent: torch.Tensor, out: torch.Tensor, inside: torch.Tensor
    ) -> torch.Tensor:
        """The noisy sum of the rows' clipped gradients, of theta's shape; it counts as one step.

        Raises
        ------
        FederationError : all planned steps were taken.
        """
        if self.planned is None or self.noise_multiplier is None or self.taken >= self.planned:
            planned = self.planned or 0
            raise FederationError(f"the noise was calibrated for {planned} steps, and a further one is to be taken")
        self.taken += 1
        # a row of norm 0 gives infinity, and so 1
        factor = (self.clip / model.row_norms(x, cotangent, out, inside)).clamp_(max=1)
        total = model.gradient(x, cotangent * factor[:, None], out, inside)
        return total.add_(gaussian_like(total, self.noise), alpha=self.noise_multiplier * self.clip)

    @property
    def history(self) -> tuple[float, float, int]:
        """The noise multiplier, sample rate and steps taken, as the accountant composes them."""
        return self.noise_multiplier or 0.0, self.sample_rate, self.taken

    def state_dict(self) -> dict[str, Any]:
        """The state that a checkpoint keeps."""
        return {"noise": self.noise_multiplier, "rate": self.sample_rate, "planned": self.planned, "taken": self.taken}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take the state back from a checkpoint."""
        self.noise_multiplier, self.sample_rate = state["noise"], state["rate"]
        self.planned, self.taken = state["planned"], state["taken"]


def poisson(rows: int, rate: float, rng: Numbers) -> np.ndarray:
    """Each of `rows` rows with probability `rate`, independently; ascending int64.

    The cost is the length of the result; with a secret stream it is `rows`.
    """
    if isinstance(rng, SecretStream):
        return np.flatnonzero(rng.random(rows) < rate)
    return np.sort(rng.choice(rows, size=rng.binomial(rows, rate), replace=False, shuffle=False))


# --- one party's mechanism --------------------------------------------------------------------------------------------


class TablePrivacy:
    """All that one client does for privacy; one object per client.

    Attributes
    ----------
    labels, steps, predictions : its parts; None if left out.
    """

    def __init__(self, config: Labels | Gradients, facts: Facts) -> None:
        self.name, self.delta = config.name, 0.0
        self.row = "the joined table" if facts.layout == "aligned" else "a table T_i"
        self.labels = NoisyLabels(config.label_noise, config.rating_classes) if isinstance(config, Labels) else None
        self.steps: NoisyGradients | None = None
        self.predictions: GaussianEmbedding | None = None
        self.drawn_by_server = False
        if isinstance(config, Gradients):
            self.delta = config.delta
            self.steps = NoisyGradients(config.clip, config.noise_multiplier, config.epsilon, config.delta)
            if config.prediction_noise is not None:
                clip, noise = config.prediction_clip, config.prediction_noise
                self.predictions = GaussianEmbedding(clip, noise, config.delta, "add_remove")

    def prepare(self, me: Party, sample_rate: float, steps: int, drawn_by_server: bool) -> NoisyGradients | None:
        """Prepare the noisy gradients (see `NoisyGradients.prepare`) and return them; None where gradients get none."""
        self.drawn_by_server = drawn_by_server
        if self.steps is not None:
            self.steps.prepare(sample_rate, steps, me.secret_rng("batches"), me.secret_torch_rng("noise"))
        return self.steps

    def spent(self) -> dict[str, Any]:
        """What this party has spent so far.

        `epsilon` is that of its most exposed row's features, or of its labels where only they get noise.
        """
        table = "the joined table" if self.row == "the joined table" else "the label table"
        label_unit = f"the label of one row of {table}"
        label: dict[str, Any] = {}
        if self.labels is not None:
            label = {
                "label_epsilon": self.labels.epsilon,
                "label_unit": label_unit,
                "label_noise": self.labels.deviation,
            }
        if self.steps is None:
            assert self.labels is not None
            return {
                "mechanism": self.name,
                "epsilon": self.labels.epsilon,
                "delta": 0.0,
                "unit": label_unit,
                "neighbouring": "replace_one",
                "covers": "transcript",
                "not_covered": "features, join keys, row counts",
                **label,
            }
        spent = {
            "mechanism": self.name,
            "epsilon": accountant.spent_epsilon([self.steps.history], self.delta),
            "delta": self.delta,
            "unit": f"the features of one row of {self.row}",
            "neighbouring": "add_remove",
            "covers": "model",
            "not_covered": self._not_covered(),
            "accountant": "rdp",
            "clip": self.steps.clip,
            "noise_multiplier": self.steps.noise_multiplier,
            "sample_rate": self.steps.sample_rate,
            "steps": self.steps.taken,
            "sampling": "poisson",
            **label,
        }
        if self.predictions is not None:
            sent, noise, rate, steps = self.predictions.releases, *self.steps.history
            # The server knows which rows are in the batches that it draws. A row was in at most as many batches as it
            # was asked for.
            gradients = (noise, 1.0, min(steps, sent)) if self.drawn_by_server else (noise, rate, steps)
            both = accountant.spent_epsilon([gradients, (self.predictions.noise_multiplier, 1.0, sent)], self.delta)
            mu = accountant.composed_mu(1.0, self.predictions.noise_multiplier, sent)
            spent |= {
                "epsilon": both,
                "covers": "transcript",
                "model_epsilon": spent["epsilon"],
                "releases": sent,
                "prediction_epsilon": accountant.epsilon(mu, self.delta),
                "prediction_clip": self.predictions.norm,
                "prediction_noise": self.predictions.noise_multiplier,
            }
        return spent

    def _not_covered(self) -> str:
        parts = [
            "join keys, row counts, evaluation",
            "means, spreads and category lists of the preprocessing, which are taken without noise",
        ]
        if self.labels is None:
            parts.append("labels")
        if self.predictions is None:
            parts.append("predictions sent over the wire, and what other parties' models learn from them")
            if self.drawn_by_server:
                parts.append("the model against the server, which draws the batches: sampling hides nothing from it")
        return "; ".join(parts)

    def state_dict(self) -> dict[str, Any]:
        """The state that a checkpoint keeps."""
        count = self.labels.count if self.labels else 0
        state: dict[str, Any] = {"drawn_by_server": self.drawn_by_server, "labels": count}
        parts = {"steps": self.steps, "predictions": self.predictions}
        return state | {name: part.state_dict() for name, part in parts.items() if part is not None}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take the state back from a checkpoint."""
        self.drawn_by_server = state["drawn_by_server"]
        if self.labels is not None:
            self.labels.count = state["labels"]
        for name, part in (("steps", self.steps), ("predictions", self.predictions)):
            if part is not None:
                part.load_state_dict(state[name])


# --- what programs call -----------------------------------------------------------------------------------------------


def trains_privately(config: PrivacyConfig) -> bool:
    """Whether gradients get noise, so that batches are drawn at random."""
    return isinstance(config, Gradients)


def protect_labels(me: Party, labels: np.ndarray | None, classes: int) -> np.ndarray | None:
    """The labels as the party may hand them over; None where it has none."""
    noisy = me.privacy and me.privacy.labels
    return labels if labels is None or noisy is None else noisy.protect(labels, classes, me.secret_rng("noise"))


def protect_predictions(
    me: Party, predictions: torch.Tensor, rows: torch.Tensor | np.ndarray | None = None
) -> torch.Tensor:
    """The predictions as the party may send them, (n, d_c).

    Parameters
    ----------
    rows : the ids of the predicted rows; None: 0 to n - 1, the same rows every time.
    """
    noisy = me.privacy and me.privacy.predictions
    if noisy is None:
        return predictions
    ids = np.arange(len(predictions)) if rows is None else rows
    sent: torch.Tensor = noisy.protect(predictions, ids, me.secret_torch_rng("noise"))
    return sent


def noisy_steps(
    me: Party, config: RunConfig, sample_rate: float, steps: int, drawn_by_server: bool
) -> NoisyGradients | None:
    """The party's noisy gradients, prepared for `steps` a round; None without DP-SGD.

    Call it in the first round: a resumed run has its state back by then.
    """
    assert config.rounds is not None  # decided by the runner
    if me.privacy is None:
        return None
    noisy: NoisyGradients | None = me.privacy.prepare(me, sample_rate, config.rounds * steps, drawn_by_server)
    return noisy


def part_of_a_batch(counts: np.ndarray, rate: float) -> float:
    """The largest probability with which a row is part of a batch.

    Parameters
    ----------
    counts : each row's number of joined rows.
    rate : the probability with which a joined row is in a batch.
    """
    return float(-np.expm1(counts.max(initial=0) * np.log1p(-rate))) if rate < 1 else float(len(counts) > 0)
