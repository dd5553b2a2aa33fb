"""What the methods over joins share beside messages: a client's table with its model, labels at the server, and checks."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from vflbench import seeding
from vflbench.models import partial
from vflbench.types import ConfigError, Problem, RunConfig

if TYPE_CHECKING:
    from vflbench.data.tasks import AlignedPart, AlignedPublic, AlignedTask, RelationalPart, RelationalPublic, RelationalTask


def tensor(values: np.ndarray, dtype: torch.dtype, device: str) -> Tensor:
    """`values` as a tensor; where neither type nor device changes it shares their memory, so that a memory map is not read."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # nobody writes to features
        return torch.from_numpy(np.asarray(values)).to(device=device, dtype=dtype)


class LocalTable:
    """One client's rows and its replica of its table's model.

    Parameters
    ----------
    number : the table's; every client of a table starts from the same parameters, and an aligned party from those of its table.
    is_label : it is the label table.
    """

    def __init__(
        self, data: RelationalPart | AlignedPart, number: int, outputs: int, is_label: bool, config: RunConfig, device: str
    ) -> None:
        dtype = partial.DTYPES[config.model.dtype]
        self.features = tensor(data.features, dtype, device)
        self.held_out = {split: tensor(rows, dtype, device) for split, rows in data.held_out.items()}
        self.device = device
        rng = seeding.stream(config.seed, f"init/{number}")
        self.model = partial.make(config.model, self.features.shape[1], outputs, is_label, rng, device)

    def joining(self, rows: np.ndarray, counts: np.ndarray) -> tuple[Tensor, Tensor]:
        """Features of the rows that join, (n, d), and their G, (n,)."""
        x = self.features
        if len(rows) < len(x):
            x = x[torch.from_numpy(rows).to(self.device)]
        return x, torch.from_numpy(counts).to(device=self.device, dtype=x.dtype)

    def predictions(self) -> dict[str, Tensor]:
        """What scoring needs: of a table that has held-out rows their partial predictions, of others those of all rows."""
        held_out = {split: self.model(x) for split, x in self.held_out.items()}
        return held_out or {"rows": self.model(self.features)}


class Labels:
    """Labels of the joined rows at the server, centred where that is asked for.

    Attributes
    ----------
    y : (N,) targets or classes. offset : (1, 1) what centring subtracted, to be added to the sum of predictions.
    """

    def __init__(self, labels: np.ndarray, classes: int, center: bool, dtype: torch.dtype, device: str) -> None:
        mean = float(labels.mean()) if center and not classes else 0.0
        self.offset = np.full((1, 1), mean)
        values = torch.from_numpy(labels if classes else labels - mean)
        self.y = values.to(device=device, dtype=torch.int64 if classes else dtype)


DIAGNOSED = 20_000  # training rows of the label table from which the bound on rho is estimated


def intercepts(public: RelationalPublic | AlignedPublic, config: RunConfig) -> list[bool]:
    """Of every table, whether its linear model has an intercept."""
    return [config.model.intercept == "tables" or (config.model.intercept == "label" and i == public.owner) for i in range(public.blocks)]


def may_diverge(public: RelationalPublic | AlignedPublic, config: RunConfig) -> bool:
    """Whether the bound on rho is known for this run (models/stability.py) and could lie above it: M tables overlap at most M times."""
    known = not public.classes and config.model.name == "linear" and not config.model.relu_output and not config.algorithm.proximal
    return known and config.algorithm.rho <= (3 * public.blocks - 4) / 2


def check(config: RunConfig) -> list[Problem]:
    """What is wrong with the keys that the methods over joins share."""
    cfg, problems = config.algorithm, partial.check(config.model)
    if hasattr(cfg, "rho") and not cfg.rho > 0:
        problems.append(Problem("algorithm.rho", cfg.rho, "must be greater than 0"))
    if cfg.weight_decay < 0:
        problems.append(Problem("algorithm.weight_decay", cfg.weight_decay, "must be at least 0"))
    for key in ("default_rounds", "local_epochs", "inner_rounds"):
        if hasattr(cfg, key) and getattr(cfg, key) < 1:
            problems.append(Problem(f"algorithm.{key}", getattr(cfg, key), "must be at least 1"))
    if getattr(cfg, "solver", "sgd") == "exact" and (config.model.name != "linear" or config.model.relu_output):
        allowed = "solves linear models only (model=linear, model.relu_output=false); use sgd"
        problems.append(Problem("algorithm.solver", cfg.solver, allowed))
    return problems


def check_learning(task: AlignedTask) -> None:
    """Raise ConfigError where the task is a convex problem: it has no held-out rows, and other methods."""
    if task.objective is not None:
        allowed = "convex problems are for mtcd, stcd, svfl, dcpa and centralized_gd; to learn and predict use dataset.problem=learning"
        raise ConfigError([Problem("dataset.problem", task.objective.kind, allowed)])


def check_one_holder(task: RelationalTask, config: RunConfig) -> None:
    """Raise ConfigError where a table comes in several horizontal parts, which `config.algorithm` does not take."""
    several = [table for table, clients in zip(task.tables, task.public.parts, strict=True) if len(clients) > 1]
    if several:
        name = config.algorithm.name
        other = "rfl_sgd" if name == "gd_join" else name.removesuffix("_v")
        allowed = f"takes tables with one holder each, and {', '.join(several)} comes in parts: use {other}"
        raise ConfigError([Problem("algorithm", name, allowed)])
