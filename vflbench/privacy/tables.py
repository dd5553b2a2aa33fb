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

With `split` or `prediction_noise` every prediction that leaves is clipped and gets noise. Then the server's results (z,
lambda, Y) are post-processing, and `covers` is `transcript`: epsilon is that of gradients and predictions together.
Where the server draws the batches (SGD), it knows which rows took part, and sampling does not hide a row from it: that
epsilon counts every batch of a row in full. `split` shares out one epsilon, in mu^2, as Gaussian releases add up:

    rows are in every batch, or the server draws them   mu-GDP, exact; the server says how often a row will be drawn
    the client draws its own batches (ADMM)             RDP: predictions get their share of the mu of RDP, gradients
                                                        the rest, with credit for the sampling
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from vflbench.cards.privacy.keys import Gradients, Labels
from vflbench.privacy import accountant
from vflbench.privacy.gaussian import GaussianEmbedding
from vflbench.privacy.gradients import NoisyGradients, Numbers
from vflbench.privacy.keys import EPSILON, known_delta, reported
from vflbench.privacy.mechanisms import Facts
from vflbench.types import FederationError, PrivacyConfig, Problem, RunConfig, refuse

if TYPE_CHECKING:
    import torch

    from vflbench.federation.party import Party

# --- labels -----------------------------------------------------------------------------------------------------------


class NoisyLabels:
    """One-hot labels plus Laplace noise of standard deviation lambda on each coordinate, then argmax.

    Another label moves the one-hot vector by 2 in L1, and the Laplace scale is lambda / sqrt(2). So epsilon is
    2 sqrt(2) / lambda.
    """

    def __init__(self, deviation: float, rating_classes: int, target: float | None = None) -> None:
        self.deviation, self.rating_classes = deviation, rating_classes
        self.target = target  # epsilon that the deviation was calibrated to; None: it was given
        self.count = 0  # labels handed over

    @property
    def epsilon(self) -> float:
        """The epsilon of one label; 0 before any was handed over."""
        if not self.count:
            return 0.0
        return label_noise(self.deviation) if self.target is None else self.target

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


def label_noise(epsilon: float) -> float:
    """The deviation lambda with which a label has `epsilon`; and the other way round, as it is its own inverse."""
    return 2 * math.sqrt(2) / epsilon


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
        self.labels: NoisyLabels | None = None
        if isinstance(config, Labels):
            asked = EPSILON if config.epsilon is None else config.epsilon
            given = config.label_noise
            deviation, target = (label_noise(asked), asked) if given is None else (given, None)
            self.labels = NoisyLabels(deviation, config.rating_classes, target)
        self.steps: NoisyGradients | None = None
        self.predictions: GaussianEmbedding | None = None
        self.split: list[float] | None = None
        self.drawn_by_server = self.every_row = False
        if isinstance(config, Gradients):
            self.delta = known_delta(config)
            self.steps = NoisyGradients(config.clip, config.noise_multiplier, config.epsilon, self.delta)
            self.split = config.split
            clip, noise = config.prediction_clip, config.prediction_noise
            if noise is not None:
                self.predictions = GaussianEmbedding(clip, noise, self.delta, "add_remove")
            elif self.split is not None:  # nothing may be released before `prepare` has found the noise
                self.predictions = GaussianEmbedding(clip, 0.0, self.delta, "add_remove", limit=0)

    def prepare(
        self,
        me: Party,
        sample_rate: float,
        steps: int,
        drawn_by_server: bool,
        every_row: bool = False,
        releases: int = 0,
    ) -> NoisyGradients | None:
        """Prepare the noisy gradients (see `NoisyGradients.prepare`) and return them; None where gradients get none.

        Parameters
        ----------
        every_row : each batch is all rows by the protocol, so that releases are plain Gaussian.
        releases : predictions of the most predicted row in the whole run; `split` needs it.
        """
        self.drawn_by_server, self.every_row = drawn_by_server, every_row
        if self.steps is None:
            return None
        found: float | None = None
        beside: accountant.History = ()
        if self.steps.planned is None and self.steps.noise_multiplier is None:
            found, beside = self._shares(releases if drawn_by_server else steps, releases)
        self.steps.prepare(sample_rate, steps, me.secret_rng("batches"), me.secret_torch_rng("noise"), found, beside)
        return self.steps

    @property
    def exact(self) -> bool:
        """Whether all releases of a row are Gaussian, and their number is known: mu-GDP instead of RDP."""
        return self.every_row or (self.split is not None and self.drawn_by_server)

    def _shares(self, times: int, releases: int) -> tuple[float | None, accountant.History]:
        """Give predictions the noise of their share of epsilon.

        Parameters
        ----------
        times : gradients of a row in the whole run, if it is in all batches that it can be in.
        releases : predictions of a row.

        Returns
        -------
        The noise multiplier of gradients, None where sampling has yet to be counted; and the predictions that their
        noise is calibrated beside.
        """
        assert self.steps is not None and self.steps.target is not None  # as there is no noise multiplier
        target, (gradients, predictions) = self.steps.target, self.split or (1.0, 0.0)
        if not self.exact and not predictions:
            return None, ()
        if self.exact:
            mu = accountant.mu_of(target, self.delta) * (1 - 1e-9)  # rounding must not exceed the target
        elif math.isinf(target):
            mu = math.inf
        else:  # the mu that RDP can prove
            mu = 1 / accountant.calibrate_steps(target, self.delta, 1.0, 1)
        if self.predictions is not None:
            noise = math.sqrt(releases / predictions) / mu
            self.predictions.noise_multiplier = noise
            self.predictions.limit = self.predictions.planned = releases
        if self.exact:
            return math.sqrt(times / gradients) / mu, ()
        return None, ((noise, 1.0, releases),) if noise else ()

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
            return reported(
                None if self.labels.target is None else {"epsilon": self.labels.target},
                mechanism=self.name,
                epsilon=self.labels.epsilon,
                delta=0.0,
                unit=label_unit,
                neighbouring="replace_one",
                covers="transcript",
                not_covered=[
                    "features, and predictions, which tell features",
                    "labels of validation and test rows, by which the run is scored, and may stop",
                    "join keys and row counts",
                ],
                accountant="pure",
                releases={"planned": 1, "done": int(self.labels.count > 0)},
                **label,
            )
        epsilon, mu, more = self._composed(self.steps)
        return reported(
            None if self.steps.target is None else {"epsilon": self.steps.target},
            mechanism=self.name,
            epsilon=epsilon,
            delta=self.delta,
            mu=mu,
            unit=f"the features of one row of {self.row}",
            neighbouring="add_remove",
            covers="model" if self.predictions is None else "transcript",
            not_covered=self._not_covered(),
            accountant="exact" if self.exact else "rdp",
            releases={"planned": self.steps.planned, "done": self.steps.taken},
            noise_multiplier=self.steps.noise_multiplier,
            clip=self.steps.clip,
            clipped_share=self.steps.clipped_share,
            sample_rate=self.steps.sample_rate,
            steps=self.steps.taken,
            sampling="none" if self.every_row else "poisson",
            **label,
            **more,
        )

    def _composed(self, steps: NoisyGradients) -> tuple[float, float | None, dict[str, Any]]:
        """The epsilon of gradients and predictions so far, its mu where there is one, and each one's part."""
        model, sent = accountant.spent_epsilon([steps.history], self.delta), 0
        noise, rate, taken = steps.history
        gradients = steps.history
        if self.predictions is not None:
            sent = self.predictions.releases
            # The server knows which rows are in the batches that it draws. A row was in at most as many batches as it
            # was asked for.
            gradients = (noise, 1.0, min(taken, sent)) if self.drawn_by_server else (noise, rate, taken)
        mu = accountant.composed_mu(1.0, noise, gradients[2]) if self.exact else None
        if self.every_row:
            assert mu is not None
            model = accountant.epsilon(mu, self.delta)
        if self.predictions is None:
            return model, mu, {}
        other = accountant.composed_mu(1.0, self.predictions.noise_multiplier, sent)
        if mu is None:
            both = accountant.spent_epsilon([gradients, (self.predictions.noise_multiplier, 1.0, sent)], self.delta)
        else:
            mu = math.hypot(mu, other)
            both = accountant.epsilon(mu, self.delta)
        return (
            both,
            mu,
            {
                "model_epsilon": model,
                "prediction_releases": sent,
                "prediction_epsilon": accountant.epsilon(other, self.delta),
                "prediction_clip": self.predictions.norm,
                "prediction_noise": self.predictions.noise_multiplier,
            },
        )

    def _not_covered(self) -> list[str]:
        parts = [
            "join keys, row counts, evaluation exchanges",
            "means, spreads and category lists of the preprocessing, which are taken without noise",
        ]
        if self.labels is None:
            parts.append("labels")
        if self.predictions is None:
            parts.append("predictions sent over the wire, and what other parties' models learn from them")
            if self.drawn_by_server:
                known = "the server, which draws the batches, and the clients that it names their rows to"
                parts.append(f"the model against {known}: sampling hides nothing from them")
        return parts

    def state_dict(self) -> dict[str, Any]:
        """The state that a checkpoint keeps."""
        count = self.labels.count if self.labels else 0
        state: dict[str, Any] = {"drawn_by_server": self.drawn_by_server, "every_row": self.every_row, "labels": count}
        parts = {"steps": self.steps, "predictions": self.predictions}
        return state | {name: part.state_dict() for name, part in parts.items() if part is not None}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take the state back from a checkpoint."""
        self.drawn_by_server, self.every_row = state["drawn_by_server"], state.get("every_row", False)
        if self.labels is not None:
            self.labels.count = state["labels"]
        for name, part in (("steps", self.steps), ("predictions", self.predictions)):
            if part is not None:
                part.load_state_dict(state[name])


# --- what programs call -----------------------------------------------------------------------------------------------


def shares_budget(config: PrivacyConfig) -> bool:
    """Whether one epsilon is for gradients and predictions together, so that a row's releases must be known."""
    return isinstance(config, Gradients) and config.split is not None


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
    me: Party,
    config: RunConfig,
    sample_rate: float,
    steps: int,
    drawn_by_server: bool,
    every_row: bool = False,
    releases: int | None = None,
) -> NoisyGradients | None:
    """The party's noisy gradients, prepared for `steps` a round; None without DP-SGD.

    Call it in the first round: a resumed run has its state back by then.

    Parameters
    ----------
    every_row : as `TablePrivacy.prepare`.
    releases : predictions of the most predicted row in the whole run; None: one a round.
    """
    assert config.rounds is not None  # decided by the runner
    if me.privacy is None:
        return None
    noisy: NoisyGradients | None = me.privacy.prepare(
        me,
        sample_rate,
        config.rounds * steps,
        drawn_by_server,
        every_row,
        config.rounds if releases is None else releases,
    )
    return noisy


def part_of_a_batch(counts: np.ndarray, rate: float) -> float:
    """The largest probability with which a row is part of a batch.

    Parameters
    ----------
    counts : each row's number of joined rows.
    rate : the probability with which a joined row is in a batch.
    """
    return float(-np.expm1(counts.max(initial=0) * np.log1p(-rate))) if rate < 1 else float(len(counts) > 0)
