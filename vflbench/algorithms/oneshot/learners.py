"""What the label owner learns with once all columns are at home: boosted trees, a linear model, or a network.

Each learner has `iterations`, the most that it makes; `step(t)`, which makes iteration t (from 1) and returns the
training loss; and `scores()`, the scores of held-out rows after it. A learner that is made anew from the same examples
goes on at any t.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vflbench.cards.algorithms.oneshot.send_once import Config
from vflbench.cards.models.model_facts import IMAGES
from vflbench.data.tasks import AlignedPublic
from vflbench.models import DTYPES, trees, vertical
from vflbench.models.bins import table
from vflbench.models.metrics import METRICS
from vflbench.models.split_learning import Active, Passive
from vflbench.models.vertical import DEEP
from vflbench.seeding import batches
from vflbench.types import RunConfig

log = logging.getLogger(__name__)

AT_ONCE = 65536  # held-out rows that a network scores at once
STEPS = 1000  # of a logistic regression, at most
MOST_WEIGHTS = 4000  # of a logistic regression with a Hessian; its square is in memory


@dataclass(frozen=True)
class Examples:
    """All that a learner sees: blocks of columns, one per party, the label owner's first."""

    blocks: Sequence[np.ndarray]  # (n, ...) each
    labels: np.ndarray  # (n,)
    held_out: Mapping[str, Sequence[np.ndarray]]  # split -> blocks (n_s, ...)
    val_labels: np.ndarray  # (n_val,); empty without a validation split

    @cached_property
    def tables(self) -> dict[str, np.ndarray]:
        """Split, also train -> all columns, (n, d) float64: scikit-learn would copy another type in every call."""
        parts = {"train": self.blocks, **self.held_out}
        return {
            split: np.concatenate([table(block) for block in blocks], axis=1, dtype=np.float64)
            for split, blocks in parts.items()
        }

    @property
    def alone(self) -> Examples:
        """The label owner's own columns only."""
        return replace(self, blocks=self.blocks[:1], held_out={split: own[:1] for split, own in self.held_out.items()})


def mean_loss(scores: np.ndarray, labels: np.ndarray, classes: int) -> float:
    """Mean cross-entropy, or for a regression half the mean squared error."""
    return float(vertical.criterion(torch.tensor(scores), torch.tensor(labels), classes))


class Boosted:
    """Boosted trees; an iteration adds a tree for each output.

    All are grown in the first step: the early stopping of `trees.fit` is that of the program.
    """

    def __init__(
        self,
        tables: Mapping[str, np.ndarray],
        labels: np.ndarray,
        val_labels: np.ndarray,
        classes: int,
        config: RunConfig[Config],
        metric: str,
    ) -> None:
        assert config.rounds is not None  # decided by the runner
        self.iterations = config.rounds
        self.tables, self.labels, self.val_labels, self.classes, self.at = tables, labels, val_labels, classes, 0
        self.config, self.metric = config, metric

    def step(self, t: int) -> float:
        """Go to iteration `t`."""
        if not self.at:
            cfg, x = self.config.algorithm, self.tables["train"]
            grown = trees.fit(
                x,
                self.labels,
                self.tables.get("val", x[:0]),
                self.val_labels,
                classes=self.classes,
                metric=self.metric,
                seed=self.config.seed,
                learning_rate=cfg.learning_rate,
                leaves=cfg.leaves,
                iterations=self.iterations,
                patience=cfg.patience,
            )
            self.staged = zip(*(grown.staged(x) for x in self.tables.values()), strict=True)
        while self.at < t:
            self.current = dict(zip(self.tables, next(self.staged), strict=True))
            self.at += 1
        return mean_loss(self.current["train"], self.labels, self.classes)

    def scores(self) -> dict[str, np.ndarray]:
        """Split -> scores (n_s, outputs)."""
        return {split: scores for split, scores in self.current.items() if split != "train"}


class Linear:
    """Least squares, or logistic regression, with an L2 penalty; an exact solution, so that one iteration is all."""

    iterations = 1

    def __init__(
        self,
        tables: Mapping[str, np.ndarray],
        labels: np.ndarray,
        val_labels: np.ndarray,
        classes: int,
        config: RunConfig[Config],
        metric: str,
    ) -> None:
        self.tables, self.labels, self.classes, self.penalty = tables, labels, classes, config.algorithm.penalty

    def step(self, t: int) -> float:
        """Solve it."""
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression, Ridge

        x, y = np.ascontiguousarray(self.tables["train"]), self.labels
        weight = self.penalty * len(y)  # the penalty is of the mean loss
        if self.classes:
            strength = 1 / weight if weight else np.inf
            few = x.shape[1] * (1 if self.classes == 2 else self.classes) <= MOST_WEIGHTS
            solver = "newton-cholesky" if few else "lbfgs"
            self.model: Any = LogisticRegression(C=strength, solver=solver, tol=1e-10, max_iter=STEPS)
        else:
            self.model = Ridge(alpha=weight, solver="svd")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ConvergenceWarning)
            self.model.fit(x, y)
        for one in caught:
            if not issubclass(one.category, ConvergenceWarning):
                warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
        if any(issubclass(one.category, ConvergenceWarning) for one in caught):
            log.warning(
                "learner=linear: the logistic regression on %d columns stopped before its minimum, after %d of at "
                "most %d steps: a larger algorithm.penalty (now %g) makes it easier",
                x.shape[1],
                self.model.n_iter_.max(),
                STEPS,
                self.penalty,
            )
        return mean_loss(self._of(x), y, self.classes)

    def scores(self) -> dict[str, np.ndarray]:
        """Split -> scores (n_s, outputs)."""
        return {split: self._of(np.ascontiguousarray(x)) for split, x in self.tables.items() if split != "train"}

    def _of(self, x: np.ndarray) -> np.ndarray:
        if not self.classes:
            predicted: np.ndarray = self.model.predict(x)[:, None]
            return predicted
        raw = self.model.decision_function(x)
        own = np.stack([np.zeros(len(raw)), raw], axis=1) if raw.ndim == 1 else raw
        scores = np.repeat(own.min(axis=1, keepdims=True) - 1, self.classes, axis=1)  # a class without rows comes last
        scores[:, self.model.classes_] = own
        return scores


class Networks(nn.Module):
    """The parts of the one vertical model, all at home, with the initial values that split learning gives them."""

    def __init__(
        self, shapes: Sequence[tuple[int, ...]], public: AlignedPublic, labels: np.ndarray, config: RunConfig[Config]
    ) -> None:
        super().__init__()
        model, seed, count = config.model, config.seed, len(shapes)
        flat = [shape if model.name in IMAGES else (int(np.prod(shape)),) for shape in shapes]
        names = ["active", *(f"passive_{number:0{len(str(public.parties - 1))}d}" for number in range(1, count))]
        drawn = [vertical.generator(model, seed, number, name) for number, name in enumerate(names)]
        above = None if model.name in DEEP else vertical.generator(model, seed, "fusion", "fusion")
        self.active = Active(model, flat[0], replace(public, parties=count), labels, drawn[0], above)
        self.passive = nn.ModuleList(
            Passive(model, shape, generator, public.outputs)
            for shape, generator in zip(flat[1:], drawn[1:], strict=True)
        )

    @property
    def thetas(self) -> list[nn.Parameter]:
        """The parameters of every part."""
        return [self.active.theta, *(part.theta for part in self.passive)]  # type: ignore[list-item]


class Network:
    """The network that split learning trains; an iteration is an epoch, with the same batches and steps."""

    def __init__(
        self,
        examples: Examples,
        config: RunConfig[Config],
        device: str,
        model: Networks,
        optimiser: torch.optim.Optimizer,
    ) -> None:
        assert config.rounds is not None  # decided by the runner
        self.iterations = config.rounds
        self.examples, self.config, self.device, self.model, self.optimiser = examples, config, device, model, optimiser
        self.labels = torch.tensor(examples.labels, device=device)

    def rows(self, blocks: Sequence[np.ndarray], rows: Any) -> list[Tensor]:
        """Rows of every block, as the model takes them."""
        dtype = DTYPES[self.config.model.dtype]
        whole = self.config.model.name in IMAGES
        taken = [block[rows] if whole else table(block[rows]) for block in blocks]
        made = [torch.from_numpy(np.require(x, requirements="W")).to(self.device) for x in taken]
        return made if whole else [x.to(dtype) for x in made]

    def step(self, t: int) -> float:
        """Train for an epoch, number `t`; returns the mean loss of its batches."""
        losses = []
        samples, size = len(self.examples.labels), self.config.algorithm.batch_size
        for rows in batches(self.config.seed, t, samples, size):
            own, *others = self.rows(self.examples.blocks, rows)
            made = [part.embed(x) for part, x in zip(self.model.passive, others, strict=True)]  # type: ignore[operator]
            y = self.labels[torch.from_numpy(rows).to(self.device)]
            loss, gradient, dzs = self.model.active.gradients(own, y, [one.z for one in made])
            self.model.active.theta.grad = gradient
            for part, one, x, dz in zip(self.model.passive, made, others, dzs, strict=True):
                part.theta.grad = part.gradient(one, lambda x=x: x, dz)  # type: ignore[operator]
            self.optimiser.step()
            losses.append(loss)
        return sum(losses) / len(losses)

    def scores(self) -> dict[str, np.ndarray]:
        """Split -> scores (n_s, outputs)."""
        return {split: self._of(blocks) for split, blocks in self.examples.held_out.items()}

    def _of(self, blocks: Sequence[np.ndarray]) -> np.ndarray:
        found = []
        with torch.no_grad():
            for first in range(0, max(len(blocks[0]), 1), AT_ONCE):
                own, *others = self.rows(blocks, slice(first, first + AT_ONCE))
                zs = [part(x) for part, x in zip(self.model.passive, others, strict=True)]
                found.append(self.model.active(own, zs).cpu().numpy())
        return np.concatenate(found)


# --- what validation chooses ------------------------------------------------------------------------------------------


def better(value: float, than: float, metric: str) -> bool:
    """Whether a validation metric of `value` is better."""
    return value < than if metric == "rmse" else value > than


def validated(scores: Mapping[str, np.ndarray], labels: np.ndarray, metric: str) -> float | None:
    """The metric on validation rows; None where there are none."""
    return METRICS[metric](scores["val"], labels) if len(labels) else None
