"""Hetero-LR: linear and logistic regression on divided columns, one number per row each way.

Hardy et al., arXiv 1711.10677; Yang et al., "Federated Machine Learning", ACM TIST 10(2), 2019, arXiv 1902.04885. There
Paillier hides scores and residuals, and an arbiter has the key. Here they are in clear.

    host k      u_k = X_k w_k of the batch's rows                                       -> guest, tag `score`
    guest       u = X_0 w_0 + bias + sum_k u_k;  r = d loss / d u, mean over the batch  -> every host, tag `residual`
    all         w <- w - lr (X^T r + alpha w)

gradient=taylor is the papers' loss, to second order at u = 0: r = u / 4 - y / 2 with y in {-1, +1}. It is linear in u,
so it could be computed under encryption, and poor where |u| is above 2.

Departures
1. Adam is the default, as in all of split learning; optimizer=sgd is the update above.
2. More than two classes: softmax regression. Then u has a column for each class.
3. The guest has the only intercept, and alpha shrinks it, too. It standardises the targets of a regression.
4. All draw the rows of a batch from the run's seed.
5. With noise on scores a host's gradient is that of its clipped scores.

With linear scores and plain SGD this is `vfl` with model=linear, but for two classes: there a row has two numbers.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch
from torch import Tensor

from vflbench.algorithms.split import exposes, private, shared
from vflbench.algorithms.split.shared import ACTIVE, Keys
from vflbench.data.tasks import AlignedPart, AlignedPublic, AlignedTask
from vflbench.federation.party import Party, PartySpec
from vflbench.models import DTYPES, partial
from vflbench.privacy import serving
from vflbench.seeding import batches, stream
from vflbench.types import AlgorithmInfo, ConfigError, Count, Implied, Problem, Range, RunConfig, Sent

ALGORITHM = AlgorithmInfo(
    name="hetero_lr",
    summary="linear and logistic regression by mini-batches: one number per row each way",
    paper="Hardy et al. 2017, arXiv 1711.10677; Yang et al. 2019, arXiv 1902.04885",
    label="Hetero-LR",
    place=5,
    **{**shared.FAMILY, "models": ("linear",)},
    # any codec: a rounded score or residual is one with noise
    assumes=("aligned_rows",),
)
EXPOSES = (
    Sent(
        "score", "passive", "active", "embeddings", "passive",
        keys=exposes.HELD_OUT, noised=exposes.EMBEDDINGS, served=True,
    ),
    Sent("residual", "active", "passive", "gradients", "active", noised=exposes.GRADIENTS),
    Implied(
        "passive", "active", "labels", ("residual",), "argued",
        "of two classes: the sign of a row's residual is its label", exact=True, noised=exposes.LABELS,
    ),
    Implied(
        "active", "passive", "features", ("score",), "argued",
        "a weighted sum of each row's columns; of one column all of it, but for a factor", noised=exposes.EMBEDDINGS,
    ),
    exposes.SEEDED,
    exposes.KNOWN,
)  # fmt: skip
most, max_releases = shared.most, private.max_releases


@dataclass
class Config(Keys):
    """Keys of Hetero-LR."""

    name: str = "hetero_lr"
    lr: float = 0.01  # learning rate
    alpha: Annotated[float, Range(at_least=0)] = 0.0  # weight of ||w||^2 / 2
    gradient: Literal["exact", "taylor"] = "exact"  # of the logistic loss
    default_rounds: Count = 15  # epochs, where epochs and rounds are null


def check(config: RunConfig) -> list[Problem]:
    """Rules across keys, before any data is loaded."""
    cfg: Config = config.algorithm
    problems = shared.check_learning(config)
    if config.model.relu_output:
        problems.append(Problem("model.relu_output", True, "scores are linear here: false"))
    if cfg.gradient == "taylor" and config.privacy.name in exposes.LABELS:
        allowed = f"knows no randomised labels, and privacy={config.privacy.name} corrects the loss: exact"
        problems.append(Problem("algorithm.gradient", cfg.gradient, allowed))
    return problems


def parties(task: AlignedTask, config: RunConfig) -> dict[str, PartySpec]:
    """The guest `active`, and the hosts `passive_1` ...

    Raises
    ------
    ConfigError : as `shared.check_task`; or a Taylor loss is asked for of other data than two classes.
    """
    if config.algorithm.gradient == "taylor" and task.classes != 2:
        has = f"{task.classes} classes" if task.classes else "numbers as targets"
        allowed = f"is of the logistic loss of two classes, and {task.name} has {has}: exact"
        raise ConfigError([Problem("algorithm.gradient", "taylor", allowed)])
    return shared.parties(task, config, (guest, host))


class Columns:
    """A party's columns with their weights; a row's score is one number, or one for each of more than two classes."""

    def __init__(self, me: Party, data: AlignedPart, public: AlignedPublic, config: RunConfig) -> None:
        self.me, self.device, self.dtype = me, me.device, DTYPES[config.model.dtype]
        self.outputs = public.classes if public.classes > 2 else 1
        self.features, self.held, self.host = self.rows(data.features), data.held_out, data.labels is None
        width, rng = self.features.shape[1], stream(config.seed, f"init/{me.name}")
        self.model = partial.Partial(config.model, width, self.outputs, data.labels is not None, rng, me.device)
        cfg = config.algorithm
        kind = torch.optim.SGD if cfg.optimizer == "sgd" else torch.optim.Adam
        # foreach would count other operations on a GPU for the same arithmetic
        self.optimiser: torch.optim.Optimizer = kind([self.model.theta], cfg.lr, weight_decay=cfg.alpha, foreach=False)

    def rows(self, values: np.ndarray) -> Tensor:
        """Rows of columns as a tensor; the pixels of images are between 0 and 1."""
        taken = torch.from_numpy(np.require(values, requirements="W")).to(self.device).flatten(1)
        return taken.to(self.dtype) / (255 if taken.dtype == torch.uint8 else 1)

    def taken(self, rows: np.ndarray) -> Tensor:
        """The columns of a batch, (B, d)."""
        return self.features.index_select(0, torch.from_numpy(rows).to(self.device))

    def score(self, x: Tensor) -> Tensor:
        """X w of a batch, (B, outputs)."""
        scores: Tensor = self.model(x)
        return scores

    def step(self, x: Tensor, residual: Tensor) -> None:
        """Step on d loss / d u of a batch, (B, outputs)."""
        out, inside = self.model.inside(x)
        if self.host and self.me.privacy is not None:  # it has sent clipped scores
            leaf = out.detach().requires_grad_()
            residual = torch.autograd.grad(self.me.privacy.clip(leaf), leaf, residual)[0]
        self.model.theta.grad = self.model.gradient(x, residual, out, inside)
        self.optimiser.step()

    def held_out(self) -> dict[str, Tensor]:
        """X w of the held-out rows by split."""
        return {split: self.model(self.rows(x)) for split, x in self.held.items()}


class Guest(Columns):
    """The columns of the party with the labels, and the loss.

    A regression's targets are learnt with mean 0 and variance 1.
    """

    def __init__(self, me: Party, data: AlignedPart, public: AlignedPublic, config: RunConfig) -> None:
        super().__init__(me, data, public, config)
        assert data.labels is not None
        self.labels, self.classes = data.labels, public.classes
        self.taylor = config.algorithm.gradient == "taylor"
        self.shift = 0.0 if self.classes else float(data.labels.mean())
        self.scale = 1.0 if self.classes else float(data.labels.std()) or 1.0

    def answers(self, rows: np.ndarray) -> Tensor:
        """The labels of a batch, (B,)."""
        return torch.from_numpy(private.trained_on(self.me, self.labels)[rows]).to(self.device)

    def residual(self, u: Tensor, y: Tensor) -> tuple[float, Tensor]:
        """The mean loss of a batch with scores u (B, outputs) and labels y (B,), and d loss / d u."""
        u = u.detach().requires_grad_()
        if self.taylor:
            sign = 2.0 * y[:, None].to(u.dtype) - 1
            loss = (math.log(2) - sign * u / 2 + u.square() / 8).mean()
        elif self.classes:
            loss = private.loss_of(self.me)(self.outcome(u), y)
        else:
            loss = (u[:, 0] - (y.to(u.dtype) - self.shift) / self.scale).square().mean() / 2
        return float(loss.detach()), torch.autograd.grad(loss, u)[0]

    def outcome(self, u: Tensor) -> Tensor:
        """What is scored, (n, classes) or (n, 1), for sums of scores u."""
        if self.classes == 2:
            return torch.cat([torch.zeros_like(u), u], dim=1)
        return u * self.scale + self.shift


async def host(me: Party, data: AlignedPart, public: AlignedPublic, config: RunConfig) -> None:
    """Send the score of each batch, and step on its residual."""
    side = Columns(me, data, public, config)
    me.state.model, me.state.optimiser = side.model, side.optimiser

    async for t in me.rounds():
        for rows in batches(config.seed, t, public.samples, config.algorithm.batch_size):
            x = side.taken(rows)
            u = await me.compute(side.score, x, cost=len(rows))
            await me.send(ACTIVE, private.embeddings(me, u, rows), tag="score")
            await me.compute(side.step, x, await me.recv(ACTIVE, tag="residual"), cost=len(rows))
        for way in serving.ways(config.privacy) if me.evaluates(t) else ():
            async with me.evaluating(priced=way.chosen):
                await me.send(ACTIVE, serving.served(me, side.held_out(), way.noisy), tag="score")


async def guest(me: Party, data: AlignedPart, public: AlignedPublic, config: RunConfig) -> None:
    """Add up the scores of each batch, and answer with its residual."""
    side = Guest(me, data, public, config)
    me.state.model, me.state.optimiser = side.model, side.optimiser
    await private.settle_labels(me, data.labels)

    async for t in me.rounds():
        losses = []
        for rows in batches(config.seed, t, public.samples, config.algorithm.batch_size):
            x, y = side.taken(rows), side.answers(rows)
            u = await me.compute(side.score, x, cost=len(rows))
            for other in await me.recv_all(me.clients, tag="score"):
                u = u + other
            loss, residual = await me.compute(side.residual, u, y, cost=len(rows))
            losses.append(loss)
            noisy = private.gradients(me, [residual] * len(me.clients), rows, public.samples)
            for name, own in zip(me.clients, noisy, strict=True):
                await me.send(name, own, tag="residual")
            await me.compute(side.step, x, residual, cost=len(rows))
        me.report(train_loss=sum(losses) / len(losses), epoch=t, iterations=t * len(losses))
        for way in serving.ways(config.privacy) if me.evaluates(t) else ():
            async with me.evaluating(priced=way.chosen):
                shares = [side.held_out(), *await me.recv_all(me.clients, tag="score")]
                sums = {split: sum(share[split] for share in shares) for split in shares[0]}
                way.report(me, {split: side.outcome(u).cpu().numpy() for split, u in sums.items()})
