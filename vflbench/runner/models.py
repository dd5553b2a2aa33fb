"""Scores the whole models that workers report, each and their average, outside the federation."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vflbench.cards.models.classifiers import Config
from vflbench.data.tasks import ShardedTask
from vflbench.models import DTYPES, classifiers

PROBE = 3000  # training rows on which the training loss is measured
CHUNK = 2000  # rows predicted at once


class WholeModels:
    """Metric and training loss of models given as vectors of parameters."""

    def __init__(self, task: ShardedTask, config: Config, metric: Callable[[np.ndarray, np.ndarray], float]) -> None:
        self.task, self.metric = task, metric
        self.network = classifiers.network(config, task.public)
        self.dtype = DTYPES[config.dtype]
        # {round, val, test} of every scored round: the metric of all models' average
        self.averaged: list[dict[str, Any]] = []
        self.rows: dict[str, Tensor] = {}  # split -> features, on the models' device
        self.targets: Tensor | None = None  # of the probe

    def _features(self, device: torch.device) -> dict[str, Tensor]:
        if not self.rows:
            probe = self.task.probe(PROBE)
            parts = {"train": probe, **self.task.held_out}
            self.rows = {split: torch.from_numpy(part.features).to(device, self.dtype) for split, part in parts.items()}
            targets = torch.from_numpy(probe.labels).to(device)
            if not self.task.classes:
                targets = (targets.to(self.dtype) - self.task.shift) / self.task.scale
            self.targets = targets
        return self.rows

    def _predict(self, parameters: Tensor, split: str) -> Tensor:
        rows = self._features(parameters.device)[split]
        return torch.cat([self.network.predict(parameters, chunk) for chunk in rows.split(CHUNK)])

    def _metrics(self, parameters: Tensor) -> dict[str, float]:
        """The metric of each held-out split; none where a prediction is not finite."""
        scores = {
            split: self._predict(parameters, split).cpu().numpy() * self.task.scale + self.task.shift
            for split in ("val", "test")
            if split in self.task.held_out
        }
        if not all(np.isfinite(z).all() for z in scores.values()):
            return {}
        return {split: self.metric(z, self.task.held_out[split].labels) for split, z in scores.items()}

    def _loss(self, parameters: Tensor) -> Tensor:
        """The training loss on the probe."""
        predictions = self._predict(parameters, "train")
        assert self.targets is not None  # `_predict` has set them
        return self.network.losses(predictions, self.targets).mean()

    def score(self, round: int, models: list[Tensor]) -> dict[str, float]:
        """The curve's values: val_ and test_ metric and train_loss, each the mean over `models`, (D,) each."""
        scored = [self._metrics(parameters) for parameters in models]
        values = {
            f"{split}_{self.task.metric.name}": sum(one[split] for one in scored) / len(scored)
            for split in self.task.held_out
            if all(split in one for one in scored)
        }
        losses = [self._loss(parameters) for parameters in models]
        self.averaged.append({"round": round, **self._metrics(sum(models[1:], models[0]) / len(models))})
        return values | {"train_loss": float(sum(losses)) / len(losses)}

    def summary(self) -> dict[str, Any]:
        """The averaged model's test metric: at the last evaluation, and at the one that its validation metric chose."""
        final = self.averaged[-1].get("test") if self.averaged else None
        scored = [row for row in self.averaged if "val" in row and "test" in row and math.isfinite(row["val"])]
        goal = max if self.task.metric.goal == "max" else min
        best: Mapping[str, Any] | None = goal(scored, key=lambda row: row["val"]) if scored else None
        return {
            "final": final,
            "selected": best["test"] if best else None,
            "selected_round": best["round"] if best else None,
        }
