"""The observer: outside the federation, it scores what parties report, builds the curve and says when to stop."""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from vflbench.data.tasks import Task
from vflbench.federation.codec import Encoder
from vflbench.federation.engine import Engine
from vflbench.federation.payload import copy_payload
from vflbench.models.glm import Loss
from vflbench.models.metrics import METRICS
from vflbench.privacy import mechanisms
from vflbench.results.folder import splits
from vflbench.runner import inference
from vflbench.runner.models import WholeModels
from vflbench.seeding import stream
from vflbench.types import TRAINING_METRIC, RunConfig, Status

# When training has diverged:
BLOWN_UP = 1e4  # the training loss of a round is so many times its first value,
# or at an evaluation its mean is so many times the first one, after it has risen so many evaluations in a row;
GROWN, RISING = 10.0, 3
LOST = 100  # or a convex objective is so many times its value at the start
#: why a run is not worth going on, from the curve's rows so far, with the bytes sent; None where it is
Halt = Callable[[Sequence[Mapping[str, Any]]], str | None]
# an observer's attributes in a checkpoint
KEPT = ("rows", "losses", "first_loss", "extra", "shares", "otherwise")


class Suboptimality:
    """(f - f*) / f* of a convex objective on the training samples, from what every party reports of its own block.

    Raises
    ------
    ValueError
        The task has no optimum.
    """

    def __init__(self, task: Task) -> None:
        if task.convex is None:
            raise ValueError(f"{task.name} has no convex objective with a known optimum")
        objective, self.optimum = task.convex
        labels = task.training_labels().copy()  # a party has them, too
        self.loss = Loss(objective, labels)
        self.at_zero = self.loss.value(np.zeros(len(labels)))  # f at theta = 0, where all methods start

    def value(self, reported: list[dict[str, Any]]) -> float | None:
        """f, or None where nobody reported.

        It is the loss of the sum of all `partial` {"train": X_k theta_k (N,)}, plus all `penalty`.
        """
        blocks = [r for r in reported if "penalty" in r]
        if not blocks:
            return None
        u = sum(_as_array(r["partial"]["train"]) for r in blocks)
        with np.errstate(over="ignore", invalid="ignore"):
            penalty: float = sum(r["penalty"] for r in blocks)
            return self.loss.value(np.asarray(u)) + penalty

    def __call__(self, value: float) -> float:
        """The suboptimality of `value`."""
        return (value - self.optimum) / self.optimum


class Observer:
    """Collects reports by round; once all parties have finished a round it closes that round's row.

    `rows` are the curve's; of the columns that are sums over the ledger they have the bytes that were sent. The metric
    is the mean over the parties that report `predictions`. Where parties report parts of one prediction as `partial`,
    it is the metric of their sum, plus an `offset` that one of them reports. The training loss is the mean over the
    reports since the previous row.

    A task with a convex objective is scored by it on the training samples (`Suboptimality`): its training loss is the
    objective. Parties that report whole models, as `parameters`, are scored by `WholeModels`: the same mean of the
    metric, and the mean of their losses on fixed training rows. `models` scores them where that is not done here
    (runner/distributed.py).

    `extra` has what else the summary shows: the last `facts` that were reported, by name, and `metric_of`. That is
    `server` where one model was scored, wherever it is, and `mean worker` where the metric is the mean over several.
    """

    def __init__(self, task: Task, config: RunConfig, models: WholeModels | None = None) -> None:
        self.task = task
        self.truth = {split: copy.copy(task.truth(split)) for split in ("val", "test")}  # which no program reaches
        self.config = config
        self.convex = Suboptimality(task) if task.metric.name == TRAINING_METRIC else None
        self.extra: dict[str, Any] = {}
        self.rows: list[dict[str, Any]] = []
        self.status: Status = "completed"
        self.reason: str | None = None
        self.losses: list[float] = []  # of each round since the last row, the mean over the parties
        self.first_loss: float | None = None
        self.finite = True  # whether all predictions of the last row are
        self.shares: inference.Shares = (0, {})  # of the last evaluation
        self.otherwise: dict[int, float] = {}  # round -> test metric of rows served as privacy.serving does not say
        self._reports: dict[int, dict[str, list[dict[str, Any]]]] = {}
        self.halt: Halt | None = None  # asked after each evaluation that ends nothing itself
        self.models = models
        if models is None and task.by_rows is not None:
            self.models = WholeModels(task.by_rows, config.model, METRICS[task.metric.name])

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs: the curve so far."""
        averaged = {} if self.models is None else {"averaged": self.models.averaged}
        return copy.deepcopy({**{key: getattr(self, key) for key in KEPT}, **averaged})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state_dict`."""
        for key in KEPT:  # `shares` and `otherwise` are in no checkpoint of an older version
            setattr(self, key, copy.deepcopy(state.get(key, getattr(self, key))))
        if self.models is not None:
            self.models.averaged = copy.deepcopy(state["averaged"])

    def on_report(self, party: str, round: int, values: dict[str, Any]) -> None:
        """Keep what `party` reports of `round`."""
        self._reports.setdefault(round, {}).setdefault(party, []).append(values)

    def on_round(self, round: int, engine: Engine) -> bool:
        """Close `round`. True: the run ends here, for the reason in `status` and `reason`."""
        by_party = self._reports.pop(round, {})
        names = [name for name in engine.parties if name in by_party]  # in the parties' order, not of arrival
        reported = [r for name in names for r in by_party[name]]
        if any("partial" in r for r in reported):
            self.shares = round, {name: self._share(by_party[name]) for name in names if _partial(by_party[name])}
        for facts in (r["facts"] for r in reported if "facts" in r):
            for name, fact in facts.items():  # a mapping has parts of several parties
                both = isinstance(fact, Mapping) and isinstance(self.extra.get(name), Mapping)
                self.extra[name] = {**self.extra[name], **fact} if both else fact
        if self.convex is not None:
            return self._on_convex_round(round, engine, reported)
        losses = [float(r["train_loss"]) for r in reported if "train_loss" in r]
        if losses:
            self.losses.append(sum(losses) / len(losses))
            self.first_loss = self.losses[-1] if self.first_loss is None else self.first_loss
        grown = self._blown_up() if losses else None
        predictions = self._predictions(reported)
        row = None
        parameters = [r["parameters"] for r in reported if "parameters" in r]
        if predictions or parameters:
            self.extra["metric_of"] = "mean worker" if len(predictions or parameters) > 1 else "server"
            row = self._row(round, engine, predictions, reported)
            if self.models is not None and parameters:
                row |= self.models.score(round, parameters)
                self.finite = f"{splits(self.task.metric.name)[-1]}_{self.task.metric.name}" in row
            self.rows.append(row)
            self._serve_otherwise(round, reported)
            grown = grown or self._grown()
        if grown:
            why = f"the training loss has grown from {grown[0]:.4g} to {grown[1]:.4g} by round {round}"
            return self._stop("diverged", why)
        return self._stops(round, engine, row)

    def _blown_up(self) -> tuple[float, float] | None:
        """The first round's training loss and this round's, where that is far too much."""
        first, last = self.first_loss, self.losses[-1]
        return (first, last) if first and last > BLOWN_UP * first else None

    def _grown(self) -> tuple[float, float] | None:
        """The training loss of the first evaluation and of this one, where it has risen to too much.

        A single batch's loss may well be ten times another's. So means count, evaluation after evaluation.
        """
        means = [row["train_loss"] for row in (self.rows[0], *self.rows[-RISING - 1 :])]
        if len(self.rows) <= RISING or None in means:
            return None
        rises = all(before < after for before, after in pairwise(means[1:]))
        return (means[0], means[-1]) if rises and means[-1] > GROWN * means[0] > 0 else None

    def _serve_otherwise(self, round: int, reported: list[dict[str, Any]]) -> None:
        """Score the test rows that were served the other way: the mean over the parties that predicted them."""
        labels, name = self.truth["test"], self.task.metric.name
        found = [_as_array(report["otherwise"]["test"]) for report in reported if "otherwise" in report]
        if labels is not None and found and all(np.isfinite(scores).all() for scores in found):
            self.otherwise[round] = float(np.mean([METRICS[name](scores, labels) for scores in found]))

    def _share(self, reports: list[dict[str, Any]]) -> tuple[int, int]:
        """The bytes and vectors of a party's share, as a message through the codec."""
        payload = {split: _as_array(values) for r in _partial(reports) for split, values in r["partial"].items()}
        copied, codec = copy_payload(payload), self.config.codec
        if codec.name != "none":
            copied = Encoder(codec, stream(self.config.seed, "evaluation/codec")).encode_copy(copied)
        return copied[1], copied[2]

    def conclude(self) -> None:
        """Close the run. One without a finite score at its end has no result, and its status says why."""
        if self.status not in ("completed", "target_reached", "budget"):
            return
        metric = self.task.metric.name
        scored = f"{splits(metric)[-1]}_{metric}"
        value = self.rows[-1].get(scored) if self.rows else None
        if not self.rows:
            self._stop("failed", "no round was scored: no party reported predictions")
        elif value is None and self.finite:
            self._stop(
                "failed", f"the last round was not scored: no party reported predictions of the rows of {scored}"
            )
        elif value is None or not math.isfinite(value):
            self._stop("diverged", f"{scored} is not finite after round {self.rows[-1]['round']}")

    def _on_convex_round(self, round: int, engine: Engine, reported: list[dict[str, Any]]) -> bool:
        assert self.convex is not None
        value = self.convex.value(reported)
        if value is None:
            return self._stops(round, engine, None)
        self.losses = [value]
        self.extra["metric_of"] = "server"
        row = self._row(round, engine, [], reported)
        self.rows.append(row)
        if math.isfinite(value):
            row[f"train_{TRAINING_METRIC}"] = self.convex(value)
            if value > LOST * self.convex.at_zero:
                return self._stop(
                    "diverged",
                    f"the objective is {value:.4g} after round {round}, at theta = 0 it is {self.convex.at_zero:.4g}",
                )
        return self._stops(round, engine, row)

    def _predictions(self, reported: list[dict[str, Any]]) -> list[dict[str, np.ndarray]]:
        """The predictions to score, split -> scores: one per party that predicts by itself, or one of all together."""
        single = [
            {split: _as_array(scores) for split, scores in r["predictions"].items()}
            for r in reported
            if "predictions" in r
        ]
        partial = [
            {split: _as_array(scores) for split, scores in r["partial"].items()} for r in reported if "partial" in r
        ]
        if not partial:
            return single
        offset = sum(r["offset"] for r in reported if "offset" in r)
        splits = [split for split in ("val", "test") if self.truth[split] is not None]
        return [*single, {split: self.task.combine(split, partial) + offset for split in splits}]

    def _row(
        self, round: int, engine: Engine, predictions: list[dict[str, np.ndarray]], reported: list[dict[str, Any]]
    ) -> dict[str, Any]:
        name = self.task.metric.name
        row: dict[str, Any] = {
            "round": round,
            "epoch": max((r["epoch"] for r in reported if "epoch" in r), default=None),
            "iterations": max((r["iterations"] for r in reported if "iterations" in r), default=round),
            "virtual_seconds": engine.boundary_clock,
            "bytes": engine.bytes_sent,
            "train_loss": sum(self.losses) / len(self.losses) if self.losses else None,
        }
        self.losses = []
        if spent := mechanisms.together(mechanisms.by_organisation(engine.order)):
            row["epsilon"] = spent["epsilon"]
        for split in ("val", "test"):
            given, labels = [p[split] for p in predictions if split in p], self.truth[split]
            if not given or labels is None:
                continue
            self.finite = all(np.isfinite(scores).all() for scores in given)
            if self.finite:
                row[f"{split}_{name}"] = sum(METRICS[name](scores, labels) for scores in given) / len(given)
        return row

    def _stops(self, round: int, engine: Engine, row: dict[str, Any] | None) -> bool:
        config, metric = self.config, self.task.metric
        if not all(math.isfinite(loss) for loss in self.losses) or (
            row and not math.isfinite(row["train_loss"] or 0.0)
        ):
            return self._stop("diverged", f"the training loss is not finite in round {round}")
        if row is not None and (where := next(filter(None, (party.nonfinite() for party in engine.order)), None)):
            return self._stop("diverged", f"{where} is not finite after round {round}")
        if row is not None and config.target is not None:
            value = next(
                (
                    row[f"{split}_{metric.name}"]
                    for split in ("val", "test", "train")
                    if f"{split}_{metric.name}" in row
                ),
                None,
            )
            if value is not None and (value >= config.target if metric.goal == "max" else value <= config.target):
                return self._stop("target_reached", f"{metric.name} {value:.6g} in round {round}")
        if not self.rows:  # before the first evaluation a budget ends nothing: there would be no curve
            return False
        if config.max_bytes is not None and engine.bytes_sent >= config.max_bytes:
            return self._stop("budget", f"max_bytes: {engine.bytes_sent} bytes after round {round}")
        if config.max_virtual_seconds is not None and engine.boundary_clock >= config.max_virtual_seconds:
            return self._stop("budget", f"max_virtual_seconds: {engine.boundary_clock:.6g} s after round {round}")
        if row is not None and self.halt is not None and (why := self.halt(self.rows)):
            return self._stop("budget", why)
        return False

    def _stop(self, status: Status, reason: str) -> bool:
        self.status, self.reason = status, reason
        return True


def _partial(reports: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The reports that have a share of a prediction."""
    return [r for r in reports if "partial" in r]


def _as_array(scores: Any) -> np.ndarray:
    """The scores as a numpy array."""
    return scores.detach().cpu().numpy() if isinstance(scores, torch.Tensor) else np.asarray(scores)
