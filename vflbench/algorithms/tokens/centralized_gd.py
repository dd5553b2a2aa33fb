"""Centralized baseline of MTCD: one party with all blocks takes gradient steps on all of them at once.

It sends no messages. Convex objectives get (proximal) gradient descent, or mini-batch SGD. Networks get joint SGD on
all local networks and the fusion network; with the same batches this is SVFL with Q = 1.

Departures: none of weight. A round is `local_steps` steps on the round's batch. Step size null: 1 / L (batches of B:
times B / N).

With privacy=dp_sgd it is what a trusted curator could release: the gradient of a row, over all blocks together, is
clipped, and every step's batch is drawn at random and gets noise (privacy/examples.py). Penalties are neither clipped
nor noised: they depend on rows through theta alone. A convex problem needs algorithm.lr, as 1 / L is computed from the
data.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.nn.utils import parameters_to_vector

from vflbench.algorithms.tokens import block_descent, task_checks
from vflbench.algorithms.tokens.block_descent import batch
from vflbench.algorithms.tokens.step_sizes import client_lr, lr_of
from vflbench.cards.algorithms.tokens.centralized_gd import Config, check_step
from vflbench.data.tasks import AlignedPublic, AlignedTask, JoinedPart
from vflbench.federation.party import Party, PartySpec, party_names
from vflbench.models import split_network
from vflbench.models.glm import Glm
from vflbench.models.split_network import SplitClient, SplitServer, descend
from vflbench.models.vertical import criterion
from vflbench.privacy import examples
from vflbench.privacy.examples import ExamplePrivacy
from vflbench.types import RunConfig, refuse

CHUNK = 64  # rows whose gradients are in memory at once
devices = task_checks.devices


def planned(config: RunConfig[Config]) -> int:
    """Steps of the whole run."""
    assert config.rounds is not None  # decided by the runner
    return int(config.rounds * config.algorithm.local_steps)


def parties(task: AlignedTask, config: RunConfig[Config]) -> dict[str, PartySpec]:
    """One party with everything."""
    task_checks.check_task(task, config)
    refuse(check_step(config, task.objective is not None))
    if config.privacy.name != "none":
        samples = task.public.samples
        examples.plan(
            config.privacy, [samples], config.algorithm.batch_size or samples, lambda: [planned(config)], pooled=True
        )
    model = split_network.resolve(config.model, task)
    return {party_names("client", 1)[0]: PartySpec(partial(client, model=model), task.joined())}


async def client(me: Party, data: JoinedPart, public: AlignedPublic, config: RunConfig[Config], model: Any) -> None:
    """Train on all data, and send nothing."""
    cfg = config.algorithm
    convex = public.objective is not None
    me.state.model = whole = _Columns(data, public) if convex else _Networks(data, public, config, model, me.device)
    lr = client_lr(cfg, whole.block if isinstance(whole, _Columns) else whole, public.samples)
    if (secret := me.privacy) is not None:
        size, noise = cfg.batch_size or public.samples, me.secret_torch_rng("noise")
        secret.prepare(public.samples, size, planned(config), noise)

    async for t in me.rounds():
        steps, now = cfg.local_steps, lr_of(config, lr, t, public.samples)
        if secret is None:
            rows = batch(config.seed, t, public.samples, cfg.batch_size)
            n = public.samples if rows is None else len(rows)
            loss = await me.compute(whole.update, rows, steps, now, cost=steps * n)
        else:
            drawn = [secret.sample(me.secret_rng("batches")) for _ in range(steps)]
            loss = await me.compute(whole.private_update, drawn, secret, now, cost=sum(map(len, drawn)))
        me.report(iterations=t * steps, epoch=block_descent.epoch(t, public.samples, cfg.batch_size))
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

    def private_update(self, batches: Sequence[np.ndarray], secret: ExamplePrivacy, lr: float) -> None:
        """Take a step on each batch; a row's gradient is that of its own loss, whatever the objective divides by."""
        block, loss = self.block, self.block.loss
        samples = len(block.x)
        scale = 1 if loss.ridge else samples  # of a row's loss, over its part of the objective
        for rows in batches:
            x = block.x[rows]
            slopes = loss.slopes(x @ block.theta, rows)
            norms = torch.from_numpy(scale * np.abs(slopes) * np.linalg.norm(x, axis=1))
            gradient = x.T @ (slopes * secret.factors(norms).numpy())
            noise = secret.mean_noise(torch.from_numpy(gradient)).numpy()
            gradient = gradient * (samples / secret.expected) + noise * (samples / scale)
            block.move(block.theta + loss.step(block.theta, gradient, lr))

    def score(self) -> dict[str, Any]:
        return self.block.score()


class _Networks(torch.nn.Module):
    """All local networks and the fusion network, with the initial parameters of MTCD's parties."""

    def __init__(
        self, data: JoinedPart, public: AlignedPublic, config: RunConfig[Config], model: Any, device: str
    ) -> None:
        super().__init__()
        self.centre = SplitServer(data.labels, public, config, model, device)
        self.clients = [SplitClient(k, part, public, config, model, device) for k, part in enumerate(data.parts)]
        self.blocks = torch.nn.ModuleList(self.clients)

    def forward(self, *xs: torch.Tensor) -> torch.Tensor:
        """The scores of rows, given each client's columns."""
        blocks = zip(self.clients, xs, strict=True)
        scores: torch.Tensor = self.centre.fusion(
            self.centre.aggregation.aggregate([block.local(x) for block, x in blocks])
        )
        return scores

    def update(self, rows: np.ndarray | None, steps: int, lr: float) -> float:
        """Take joint gradient steps, and return the loss before them."""
        centre, own = self.centre, list(self.parameters())
        at = slice(None) if rows is None else torch.from_numpy(rows).to(centre.y.device)
        first = 0.0
        for step in range(steps):
            loss = criterion(self(*(block.x[at] for block in self.clients)), centre.y[at], centre.classes)
            first = loss.item() if step == 0 else first
            descend(own, loss, lr, centre.decay)
        return first

    def private_update(self, batches: Sequence[np.ndarray], secret: ExamplePrivacy, lr: float) -> float:
        """Take a step on each batch, and return the loss before them, of the first batch."""
        centre, own, first = self.centre, list(self.parameters()), 0.0
        for number, rows in enumerate(batches):
            at = torch.from_numpy(rows).to(centre.y.device)
            xs, y = tuple(block.x[at] for block in self.clients), centre.y[at]
            factors = secret.factors(self._norms(xs, y))
            losses = criterion(self(*xs), y, centre.classes, "none")
            if number == 0 and len(rows):
                first = losses.mean().item()
            gradients = torch.autograd.grad((losses * factors).sum() / secret.expected, own)
            noise = secret.mean_noise(parameters_to_vector(gradients)).split([p.numel() for p in own])
            with torch.no_grad():
                for parameter, gradient, drawn in zip(own, gradients, noise, strict=True):
                    parameter.mul_(1 - lr * centre.decay).sub_(gradient + drawn.view_as(gradient), alpha=lr)
        return first

    def _norms(self, xs: tuple[torch.Tensor, ...], y: torch.Tensor) -> torch.Tensor:
        """The L2 norm of each row's gradient over all parameters, (n,)."""

        def square(parameters: dict[str, torch.Tensor], row: tuple[torch.Tensor, ...], own: torch.Tensor) -> Any:
            def loss(values: dict[str, torch.Tensor]) -> torch.Tensor:
                scores = torch.func.functional_call(self, values, tuple(x[None] for x in row))
                return criterion(scores, own[None], self.centre.classes)

            return sum(gradient.square().sum() for gradient in torch.func.grad(loss)(parameters).values())

        if not len(y):
            return torch.zeros(0, device=y.device)
        values = {name: parameter.detach() for name, parameter in self.named_parameters()}
        squares: torch.Tensor = torch.func.vmap(square, (None, 0, 0), chunk_size=CHUNK)(values, xs, y)
        return squares.sqrt()

    def score(self) -> dict[str, Any]:
        return {"predictions": self.centre.predict([block.held_out_representations() for block in self.clients])}
