"""The parties of methods over joins: a client's table with its model, the server's labels, and checks of the tables."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vflbench import seeding
from vflbench.cards.algorithms.joins.join_methods import CONVEX, Keys, PartKeys, PartyKeys
from vflbench.data.tasks import (
    AlignedPart,
    AlignedPublic,
    AlignedTask,
    RelationalPart,
    RelationalPublic,
    RelationalTask,
)
from vflbench.federation.party import SERVER, Party, PartySpec, Program, party_names
from vflbench.models import DTYPES, columns, partial
from vflbench.types import ConfigError, Problem, RunConfig

Public = RelationalPublic | AlignedPublic


def tensor(values: np.ndarray, dtype: torch.dtype, device: str) -> Tensor:
    """`values` as a tensor (n, d).

    Where neither type nor device changes, it shares their memory, so that a memory map is not read.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # nobody writes to features
        return columns(torch.from_numpy(np.asarray(values)).to(device), dtype)


class LocalTable:
    """One client's rows and its replica of its table's model.

    Parameters
    ----------
    number : number of the table. Every client of a table starts from the same parameters, and so does the aligned party
        that has its columns.
    """

    def __init__(
        self, me: Party, data: RelationalPart | AlignedPart, number: int, public: Public, config: RunConfig[Keys]
    ) -> None:
        dtype, device = DTYPES[config.model.dtype], me.device
        self.features = tensor(data.features, dtype, device)
        self.held_out = {split: tensor(rows, dtype, device) for split, rows in data.held_out.items()}
        self.device = device
        rng = seeding.stream(config.seed, f"init/{number}")
        self.model = partial.Partial(
            config.model, self.features.shape[1], public.outputs, number == public.owner, rng, device
        )

    def joining(self, rows: np.ndarray, counts: np.ndarray) -> tuple[Tensor, Tensor]:
        """Features of the rows that join, (n, d), and their G, (n,)."""
        x = self.features
        if len(rows) < len(x):
            x = x[torch.from_numpy(rows).to(self.device)]
        return x, torch.from_numpy(counts).to(device=self.device, dtype=x.dtype)

    def predictions(self) -> dict[str, Tensor]:
        """Partial predictions for scoring: of the held-out rows by split; `rows`, all rows, for a table without."""
        held_out = {split: self.model(x) for split, x in self.held_out.items()}
        return held_out or {"rows": self.model(self.features)}


class Labels:
    """Labels of the joined rows at the server, centred if the configuration says so.

    Attributes
    ----------
    y : (N,) targets or classes.
    offset : (1, 1) what centring subtracted, to be added to the sum of predictions.
    """

    def __init__(self, me: Party, labels: np.ndarray, public: Public, config: RunConfig[Keys]) -> None:
        mean = float(labels.mean()) if config.algorithm.center_labels and not public.classes else 0.0
        self.offset = np.full((1, 1), mean)
        values = torch.tensor(labels if public.classes else labels - mean)
        self.y = values.to(device=me.device, dtype=torch.int64 if public.classes else DTYPES[config.model.dtype])


def parties(server: Program, client: Program, parts: Sequence[Any]) -> dict[str, PartySpec]:
    """The server, and one client per part of the data, `client_0` ..."""
    names = party_names("client", len(parts))
    return {SERVER: PartySpec(server, role="server")} | {
        name: PartySpec(client, part) for name, part in zip(names, parts, strict=True)
    }


def check_learning(task: AlignedTask, config: RunConfig[PartyKeys]) -> None:
    """Check that a method on aligned rows can learn the task.

    Raises
    ------
    ConfigError : the number of parties is not the task's; or the problem is convex, and has no held-out rows.
    """
    if config.algorithm.parties not in (None, task.parties):
        allowed = f"{task.name} has {task.parties} parties: use that"
        raise ConfigError([Problem("algorithm.parties", config.algorithm.parties, allowed)])
    if task.objective is not None:
        raise ConfigError([Problem("dataset.problem", task.objective.kind, CONVEX)])


def check_holders(task: RelationalTask, config: RunConfig[Keys]) -> None:
    """Check that a method for tables with one holder gets no table in horizontal parts.

    Raises
    ------
    ConfigError : a table comes in several parts, and the method has no key for them.
    """
    several = [table for table, clients in zip(task.tables, task.public.parts, strict=True) if len(clients) > 1]
    if several and not isinstance(config.algorithm, PartKeys):
        name = config.algorithm.name
        other = "rfl_sgd" if name == "gd_join" else name.removesuffix("_v")
        allowed = f"takes tables with one holder each, and {', '.join(several)} comes in parts: use {other}"
        raise ConfigError([Problem("algorithm", name, allowed)])
