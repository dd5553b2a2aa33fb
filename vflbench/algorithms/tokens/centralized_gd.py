"""Centralized baseline of MTCD: one party with all blocks takes gradient steps on all of them at once.

It sends no messages. Convex objectives get (proximal) gradient descent, or mini-batch SGD. Networks get joint SGD on
all local networks and the fusion network; with the same batches this is SVFL with Q = 1.

Departures: none of weight. A round is `local_steps` steps on the round's batch. Step size null: 1 / L (batches of B:
times B / N).
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from vflbench.algorithms.tokens import shared
from vflbench.algorithms.tokens.shared import NetworkKeys, batch, client_lr, halved
from vflbench.data.tasks import AlignedPublic, AlignedTask, JoinedPart
from vflbench.federation.party import Party, PartySpec, party_names
from vflbench.models import split_network
from vflbench.models.glm import Glm
from vflbench.models.split_network import SplitClient, SplitServer, descend
from vflbench.models.vertical import criterion
from vflbench.types import AlgorithmInfo, Count, RunConfig

ALGORITHM = AlgorithmInfo(
    name="centralized_gd",
    summary="reference of MTCD: one party with all columns takes gradient steps, no messages",
    paper="baseline",
    label="Centralized GD",
    place=4,
    layouts=("aligned",),
    divided_by="parties",
    reports=("predictions", "partial"),
    models=("auto", "split_mlp", "mvcnn", "resnet", "linear", "mlp", "mlp10", "residual_mlp", "vertical"),
    search=(("algorithm.lr", ("0.03", "0.1", "0.3")),),
    exact="it sends nothing",
    assumes=("pooled",),
    accounting=("strict",),
)
EXPOSES = ()
check = shared.check
devices = shared.devices


@dataclass
class Config(NetworkKeys):
    """Keys of centralized gradient descent."""

    name: str = "centralized_gd"
    parties: int = 40  # K: blocks into which the features are split; networks have one local network for each
    local_steps: int = 1  # steps per round
    lr: float | None = None  # step size; null: 1 / L (batches: times B / N); networks 0.01
    default_rounds: Count = 500  # where rounds is null


def parties(task: AlignedTask, config: RunConfig) -> dict[str, PartySpec]:
    """One party with everything."""
    shared.check_task(task, config)
    model = split_network.resolve(config.model, task)
    return {party_names("client", 1)[0]: PartySpec(partial(client, model=model), task.joined())}


async def client(me: Party, data: JoinedPart, public: AlignedPublic, config: RunConfig, model: Any) -> None:
    """Train on all data, and send nothing."""
    cfg: Config = config.algorithm
    convex = public.objective is not None
    me.state.model = whole = _Columns(data, public) if convex else _Networks(data, public, config, model, me.device)
    lr = client_lr(cfg, whole.block if isinstance(whole, _Columns) else whole, public.samples)

    async for t in me.rounds():
        rows = batch(config.seed, t, public.samples, cfg.batch_size)
        n = public.samples if rows is None else len(rows)
        steps = cfg.local_steps
        loss = await me.compute(whole.update, rows, steps, halved(cfg, lr, t, public.samples), cost=steps * n)
        me.report(iterations=t * steps, epoch=shared.epoch(t, public.samples, cfg.batch_size))
        if loss is not None:
            me.report(train_loss=loss)
        if me.evaluates(t):
            me.report(**whole.score())


class _Columns(torch.nn.Module):
    """All columns side by side, as a single block."""

    def __init__(self, data: JoinedPart, public: AlignedPublic) -> None:
        super().__init__()
        assert public.objective is not None
        self.block = Glm(np.concatenate([part.features for part in data.parts], axis=1), data.labels, public.objective)

    def update(self, rows: np.ndarray | None, steps: int, lr: float) -> None:
        u = self.block.represent(rows)
        theta, _ = self.block.visit(self.block.theta, u, rows, steps, lr, onward=False)
        self.block.move(theta)

    def score(self) -> dict[str, Any]:
        return self.block.score()


class _Networks(torch.nn.Module):
    """All local networks and the fusion network, with the initial parameters of MTCD's parties."""

    def __init__(self, data: JoinedPart, public: AlignedPublic, config: RunConfig, model: Any, device: str) -> None:
        super().__init__()
        self.centre = SplitServer(data.labels, public, config, model, device)
        self.clients = [SplitClient(k, part, public, config, model, device) for k, part in enumerate(data.parts)]
        self.blocks = torch.nn.ModuleList(self.clients)

    def update(self, rows: np.ndarray | None, steps: int, lr: float) -> float:
        """Take joint gradient steps, and return the loss before them."""
        centre, own = self.centre, list(self.parameters())
        at = slice(None) if rows is None else torch.from_numpy(rows).to(centre.y.device)
        first = 0.0
        for step in range(steps):
            a = centre.aggregation.of([block.local(block.x[at]) for block in self.clients])
            loss = criterion(centre.fusion(a), centre.y[at], centre.classes)
            first = loss.item() if step == 0 else first
            descend(own, loss, lr)
        return first

    def score(self) -> dict[str, Any]:
        return {"predictions": self.centre.predict([block.held_out_representations() for block in self.clients])}
