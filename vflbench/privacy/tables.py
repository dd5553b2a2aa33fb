"""Privacy of the methods over tables: `label_dp` (noisy labels), `dp_sgd` (noisy gradients), `tablepuppet` (both).

Xu et al.: TablePuppet, arXiv 2403.15839, section 6 (privacy). What a program does, each a line of its own, whether
there is privacy or not:

- `protect_labels` before it sends labels; `protect_predictions` before it sends predictions;
- `me.privacy.prepare(...)` once it knows its rows, then `me.privacy.steps` in place of the plain gradient, where
  `trains_privately`.

What is protected
-----------------
Labels: the label of one row against any other label; the noisy labels are all that anybody gets, so the epsilon covers
the transcript.

DP-SGD: with and without the gradients of one row of a party's table T_i (of the joined table, where rows are aligned).
Keys, which rows join, and how often, are known to all and are not hidden. The epsilon is that of the party's parameters
given what the server sent it. Predictions f(theta; row) sent over the wire are functions of the raw row that nothing
hides: whoever knows theta solves a linear model for the row (attacks/prediction_recovery.py), and other parties'
parameters take up what the predictions say. So `covers` is `model`.

With `prediction_noise` every prediction that leaves is clipped and noised, which makes what the server computes from
them (z, lambda, Y) post-processing, and `covers` is `transcript`: epsilon is then that of gradients and predictions
together. Where the server draws the batches (SGD) it knows who took part, and sampling does not hide a row from it:
that epsilon counts every batch of a row in full.
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
    """One-hot plus Laplace noise of standard deviation lambda on each coordinate, then argmax.

    Another label moves the one-hot vector by 2 in L1, and the Laplace scale is lambda / sqrt(2): epsilon = 2 sqrt(2) /
    lambda.
    """

    def __init__(self, deviation: float, rating_classes: int) -> None:
        self.deviation, self.rating_classes = deviation, rating_classes
        self.count = 0  # labels handed over

    @property
    def epsilon(self) -> float:
        """Of one label, once it was handed over."""
        return 2 * math.sqrt(2) / self.deviation if self.count else 0.0

    def protect(self, labels: np.ndarray, classes: int, rng: Numbers) -> np.ndarray:
        """Noisy copy of `labels` (n,), of the same type: classes, or ratings where `classes` is 0. To be called once.

        Errors: ConfigError for a regression whose labels are no ratings; FederationError for a second call.
        """
        refuse(check_labels(self, labels, classes))
        if self.count:
            raise FederationError("labels are noised once: a second noisy copy would double their epsilon")
        self.count = len(labels)
        first, count = (0, classes) if classes else (6 - self.rating_classes, self.rating_classes)
        scores = rng.laplace(scale=self.deviation / math.sqrt(2), size=(len(labels), count))
        scores[np.arange(len(labels)), labels.astype(np.int64) - first] += 1
        return (scores.argmax(axis=1) + first).astype(labels.dtype)


def check_labels(config: Labels | NoisyLabels, labels: np.ndarray, classes: int) -> list[Problem]:
    """Whether labels can be noised: they are classes, or `classes` is 0 and all are ratings."""
    first = 6 - config.rating_classes
    if classes or not len(labels):
        return []
    wrong = labels[(labels != np.floor(labels)) | (labels < first) | (labels > 5)]
    if not len(wrong):
        return []
    allowed = (
        f"noises classes, or whole ratings from {first} to 5 (privacy.rating_classes={config.rating_classes}), and a "
        "label is "
        f"{wrong[0]:.6g}: use privacy=dp_sgd, or classes where the data set has them"
    )
    return [Problem("privacy", "label_dp, tablepuppet", allowed)]


# --- gradients --------------------------------------------------------------------------------------------------------


class NoisyGradients:
    """DP-SGD's step: every row's gradient clipped to L2 norm `clip`, summed over a Poisson batch, plus N(0, (sigma
    clip)^2 I)."""

    def __init__(self, clip: float, noise_multiplier: float | None, epsilon: float | None, delta: float) -> None:
        self.clip, self.noise_multiplier, self.target, self.delta = clip, noise_multiplier, epsilon, delta
        self.sample_rate = 0.0
        self.planned: int | None = None  # steps that the noise is calibrated for
        self.taken = 0

    def prepare(self, sample_rate: float, steps: int, rng: Numbers, noise: torch.Generator | SecretStream) -> None:
        """Calibrate the noise; after a resume only take the streams: `rng` draws batches, `noise` the noise, on the
        model's device.

        `sample_rate`: the largest probability with which a row is part of a batch. `steps`: batches of the whole run.
        """
        self.rng, self.noise = rng, noise
        if self.planned is not None:
            return
        self.sample_rate, self.planned = sample_rate, steps
        if self.noise_multiplier is None:
            assert self.target is not None  # checked with the configuration
            # 0: no row of this party joins, nothing is to be hidden
            self.noise_multiplier = (
                accountant.calibrate_steps(self.target, self.delta, sample_rate, steps) if sample_rate * steps else 0.0
            )

    def sample(self, rows: int, rate: float) -> np.ndarray:
        """A Poisson batch: each of `rows` rows with probability `rate`, ascending. Drawn as its size and a subset of
        that size."""
        return poisson(rows, rate, self.rng)

    def gradient(
        self, model: Partial, x: torch.Tensor, cotangent: torch.Tensor, out: torch.Tensor, inside: torch.Tensor
    ) -> torch.Tensor:
        """The noisy sum of the rows' clipped gradients, like theta; one step. Errors: FederationError beyond the steps
        planned."""
        if self.planned is None or self.noise_multiplier is None or self.taken >= self.planned:
            raise FederationError(
                f"the noise was calibrated for {self.planned or 0} steps, and a further one is to be taken"
            )
        self.taken += 1
        # a row of norm 0: infinity, so 1
        factor = (self.clip / model.row_norms(x, cotangent, out, inside)).clamp_(max=1)
        total = model.gradient(x, cotangent * factor[:, None], out, inside)
        return total.add_(gaussian_like(total, self.noise), alpha=self.noise_multiplier * self.clip)

    @property
    def history(self) -> tuple[float, float, int]:
        """(noise multiplier, sample rate, steps taken), as the accountant composes it."""
        return self.noise_multiplier or 0.0, self.sample_rate, self.taken

    def state_dict(self) -> dict[str, Any]:
        return {"noise": self.noise_multiplier, "rate": self.sample_rate, "planned": self.planned, "taken": self.taken}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.noise_multiplier, self.sample_rate = state["noise"], state["rate"]
        self.planned, self.taken = state["planned"], state["taken"]


def poisson(rows: int, rate: float, rng: Numbers) -> np.ndarray:
    """Each of `rows` rows with probability `rate`, independently; ascending int64. Costs its own length, from a secret
    `rows`."""
    if isinstance(rng, SecretStream):
        return np.flatnonzero(rng.random(rows) < rate)
    return np.sort(rng.choice(rows, size=rng.binomial(rows, rate), replace=False, shuffle=False))


# --- one party's mechanism --------------------------------------------------------------------------------------------


class TablePrivacy:
    """All that one client does for privacy; one object per client. `labels`, `steps`, `predictions`: its parts, each
    None if left out."""

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
                self.predictions = GaussianEmbedding(
                    config.prediction_clip, config.prediction_noise, config.delta, "add_remove"
                )

    def prepare(self, me: Party, sample_rate: float, steps: int, drawn_by_server: bool) -> NoisyGradients | None:
        """Make the gradient noise ready (see `NoisyGradients.prepare`) and return it; None where gradients are not
        noised."""
        self.drawn_by_server = drawn_by_server
        if self.steps is not None:
            self.steps.prepare(sample_rate, steps, me.secret_rng("batches"), me.secret_torch_rng("noise"))
        return self.steps

    def spent(self) -> dict[str, Any]:
        """What this party has spent so far. `epsilon`: of its most exposed row's features, or of its labels where they
        alone are noised."""
        label_unit = (
            f"the label of one row of {'the joined table' if self.row == 'the joined table' else 'the label table'}"
        )
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
                **{"mechanism": self.name, "epsilon": self.labels.epsilon, "delta": 0.0, "unit": label_unit},
                **{
                    "neighbouring": "replace_one",
                    "covers": "transcript",
                    "not_covered": "features, join keys, row counts",
                    **label,
                },
            }
        model = accountant.spent_epsilon([self.steps.history], self.delta)
        spent = {
            **{
                "mechanism": self.name,
                "epsilon": model,
                "delta": self.delta,
                "unit": f"the features of one row of {self.row}",
            },
            **{
                "neighbouring": "add_remove",
                "covers": "model",
                "not_covered": self._not_covered(),
                "accountant": "rdp",
            },
            **{
                "clip": self.steps.clip,
                "noise_multiplier": self.steps.noise_multiplier,
                "sample_rate": self.steps.sample_rate,
            },
            **{"steps": self.steps.taken, "sampling": "poisson", **label},
        }
        if self.predictions is not None:
            sent, noise, rate, steps = self.predictions.releases, *self.steps.history
            # The server knows of the batches that it draws who is part of them: no more of them than a row was asked
            # for.
            gradients = (noise, 1.0, min(steps, sent)) if self.drawn_by_server else (noise, rate, steps)
            both = accountant.spent_epsilon([gradients, (self.predictions.noise_multiplier, 1.0, sent)], self.delta)
            mu = accountant.composed_mu(1.0, self.predictions.noise_multiplier, sent)
            spent |= {
                **{"epsilon": both, "covers": "transcript", "model_epsilon": model, "releases": sent},
                **{"prediction_epsilon": accountant.epsilon(mu, self.delta), "prediction_clip": self.predictions.norm},
                **{"prediction_noise": self.predictions.noise_multiplier},
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
        state: dict[str, Any] = {
            "drawn_by_server": self.drawn_by_server,
            "labels": self.labels.count if self.labels else 0,
        }
        parts = {"steps": self.steps, "predictions": self.predictions}
        return state | {name: part.state_dict() for name, part in parts.items() if part is not None}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.drawn_by_server = state["drawn_by_server"]
        if self.labels is not None:
            self.labels.count = state["labels"]
        for name, part in (("steps", self.steps), ("predictions", self.predictions)):
            if part is not None:
                part.load_state_dict(state[name])


# --- what programs call -----------------------------------------------------------------------------------------------


def trains_privately(config: PrivacyConfig) -> bool:
    """Whether gradients are noised, so that batches are drawn at random."""
    return isinstance(config, Gradients)


def protect_labels(me: Party, labels: np.ndarray | None, classes: int) -> np.ndarray | None:
    """What the party may hand over of its labels (None: it has none)."""
    noisy = me.privacy and me.privacy.labels
    return labels if labels is None or noisy is None else noisy.protect(labels, classes, me.secret_rng("noise"))


def protect_predictions(
    me: Party, predictions: torch.Tensor, rows: torch.Tensor | np.ndarray | None = None
) -> torch.Tensor:
    """What the party may send of `predictions` (n, d_c) of its rows `rows` (default: 0 to n - 1, the same ones every
    time)."""
    noisy = me.privacy and me.privacy.predictions
    if noisy is None:
        return predictions
    ids = np.arange(len(predictions)) if rows is None else rows
    sent: torch.Tensor = noisy.protect(predictions, ids, me.secret_torch_rng("noise"))
    return sent


def noisy_steps(
    me: Party, config: RunConfig, sample_rate: float, steps: int, drawn_by_server: bool
) -> NoisyGradients | None:
    """The party's noisy gradients, made ready for `steps` a round; None where there are none.

    To be called in the first round, where a resumed run has its state back.
    """
    assert config.rounds is not None  # decided by the runner
    found: NoisyGradients | None = me.privacy and me.privacy.prepare(
        me, sample_rate, config.rounds * steps, drawn_by_server
    )
    return found


def part_of_a_batch(counts: np.ndarray, rate: float) -> float:
    """The largest probability with which a row is part of a batch that holds each of its `counts` joined rows with
    probability `rate`."""
    return float(-np.expm1(counts.max(initial=0) * np.log1p(-rate))) if rate < 1 else float(len(counts) > 0)
