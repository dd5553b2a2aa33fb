"""`privacy=label_rr`: randomised response on the training labels, before anything else is done with them.

Warner 1965; Ghazi et al., "Deep Learning with Label Differential Privacy", arXiv 2102.06062. Of k classes a label stays
with probability e^eps / (e^eps + k - 1); otherwise it becomes another one, each as likely. That is eps-DP for the label
of one training row, with delta 0. Gradients, residuals and models are computed from these labels: they cost nothing
more.

Randomised labels of a rare class shift its share. With `debias` the loss is that of the label that is shown (forward
correction: Patrini et al., arXiv 1609.03683):

    p'_c = flip + (keep - flip) p_c,    loss = -log p'_y

so that the scores p stay those of true labels.

An algorithm that declares `label_rr` calls `me.privacy.respond(labels, me.secret_rng("labels"))` once, at the server
that has the labels. It trains on what that gives, by the loss `me.privacy.loss`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from vflbench.cards.privacy.label_rr import Config
from vflbench.privacy import keys
from vflbench.privacy.mechanisms import Facts
from vflbench.privacy.rr_bins import randomised
from vflbench.seeding import SecretStream
from vflbench.types import FederationError, Problem

if TYPE_CHECKING:
    import torch


def check_labels(config: Any, labels: np.ndarray, classes: int) -> list[Problem]:
    """Return a problem where the labels are numbers."""
    if classes:
        return []
    allowed = "randomises classes, and these labels are numbers: choose a data set's classes, or gaussian_gradient"
    return [Problem("privacy", config.name, allowed)]


def make(config: Config, facts: Facts) -> None:
    """No mechanism: a client has no labels."""


def make_server(config: Config, facts: Facts) -> RandomisedLabels:
    """The mechanism of the party that has the labels."""
    assert config.epsilon is not None  # settled
    return RandomisedLabels(config.name, config.epsilon, facts.classes, config.debias)


class RandomisedLabels:
    """Randomised response on labels; one object per party, for one release.

    Parameters
    ----------
    epsilon : of a label.
    classes : k.
    debias : whether `loss` corrects for labels that were changed.
    """

    uncovered = "features, and embeddings, which tell features"

    def __init__(self, name: str, epsilon: float, classes: int, debias: bool) -> None:
        self.name, self.epsilon, self.classes, self.debias = name, epsilon, classes, debias
        self.count = 0  # labels randomised

    @property
    def keep(self) -> float:
        """The probability with which a label stays."""
        return 1 / (1 + (self.classes - 1) * math.exp(-self.epsilon))

    @property
    def flip(self) -> float:
        """The probability with which a label becomes a given other one."""
        return math.exp(-self.epsilon) * self.keep

    def respond(self, labels: np.ndarray, rng: np.random.Generator | SecretStream) -> np.ndarray:
        """What is trained on instead of `labels` (n,), of the same type; to be called once.

        Raises
        ------
        FederationError : it is the second call.
        """
        if self.count:
            raise FederationError("labels are randomised once: a second response would double their epsilon")
        self.count = len(labels)
        return randomised(labels, self.classes - 1, self.epsilon, rng).astype(labels.dtype)

    def loss(self, scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The mean loss of randomised `labels` (n,), given `scores` (n, k) before the softmax."""
        import torch
        import torch.nn.functional as F

        if not self.debias or math.isinf(self.epsilon):
            return F.cross_entropy(scores, labels)
        chosen = -F.cross_entropy(scores, labels, reduction="none") + math.log(-math.expm1(-self.epsilon) * self.keep)
        return -torch.logaddexp(chosen, torch.full_like(chosen, math.log(self.keep) - self.epsilon)).mean()

    def spent(self) -> dict[str, Any]:
        """What a label has spent."""
        epsilon, unit = self.epsilon if self.count else 0.0, "the label of one training row"
        return keys.reported(
            {"epsilon": self.epsilon},
            mechanism=self.name,
            epsilon=epsilon,
            delta=0.0,
            unit=unit,
            neighbouring="replace_one",
            covers="transcript",
            not_covered=[
                self.uncovered,
                "labels of validation and test rows: their owner keeps them, scores by them, and may stop by them",
                "the number of rows and classes",
            ],
            accountant="pure",
            releases={"planned": 1, "done": int(self.count > 0)},
            label_epsilon=epsilon,
            label_unit=unit,
            label_keep=self.keep,
            label_debias=self.debias,
        )

    def state_dict(self) -> dict[str, Any]:
        """The state that a checkpoint keeps."""
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take the state back from a checkpoint."""
        self.count = state["count"]
