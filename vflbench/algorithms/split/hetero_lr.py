"""Hetero-LR: linear and logistic regression on divided columns, one number per row each way.

Hardy et al., arXiv 1711.10677; Yang et al., "Federated Machine Learning", ACM TIST 10(2), 2019, arXiv 1902.04885. There
Paillier hides scores and residuals (protection=paillier). With protection=none they are in clear.

    host k      u_k = X_k w_k of the batch's rows                                       -> guest, tag `score`
    guest       u = X_0 w_0 + bias + sum_k u_k;  r = d loss / d u, mean over the batch  -> every host, tag `residual`
    all         w <- w - lr (X^T r + alpha w)

gradient=taylor is the papers' loss, to second order at u = 0: r = u / 4 - y / 2 with y in {-1, +1}. It is linear in u,
so it can be computed under encryption, and poor where |u| is above 2.

With protection=paillier an arbiter has the private key, and scores and residuals are ciphertexts. Nobody but the
arbiter can decrypt, and it sees gradients under masks alone:

    all         X^T r + mask, under encryption, a fresh mask in every batch      -> arbiter, tag `masked`
    arbiter     what it decrypts                                                 -> the sender, tag `unmasked`

    bytes an epoch, K hosts, n rows in n / B batches      in clear      paillier, of c bytes a ciphertext
    score, residual                                       4 K n each    c K n each
    masked; unmasked (d columns of all parties)           0             (n / B) (d + 1) c; 8 in place of c

Departures
1. Adam is the default, as in all of split learning; optimizer=sgd is the update above.
2. More than two classes: softmax regression. Then u has a column for each class.
3. The guest has the only intercept, and alpha shrinks it, too. It standardises the targets of a regression.
4. All draw the rows of a batch from the run's seed.
5. With noise on scores a host's gradient is that of its clipped scores.
6. Under encryption no loss is computed: the training loss in the curve is the observer's. Held-out scores are in clear,
   as the guest has to predict. The public key is not sent.
7. Masks are added modulo 2^64 to the 64 bits of a number, so that they come off exactly. As nothing is performed, they
   come from the run's seed.

With linear scores and plain SGD this is `vfl` with model=linear, but for two classes: there a row has two numbers.
"""

import math
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from vflbench.algorithms.split import organisations, split_privacy
from vflbench.algorithms.split.organisations import ACTIVE
from vflbench.algorithms.split.sealing import Sealing
from vflbench.cards.algorithms.split.hetero_lr import Config, sealed
from vflbench.data.tasks import AlignedPart, AlignedPublic, AlignedTask
from vflbench.federation.delays import Delays
from vflbench.federation.party import Party, PartySpec
from vflbench.models import DTYPES, columns, partial
from vflbench.privacy import serving
from vflbench.seeding import batches, stream
from vflbench.types import Problem, RunConfig, refuse

ARBITER = "arbiter"
most, max_releases = organisations.most, split_privacy.max_releases


def taylor(config: RunConfig[Config], classes: int) -> bool:
    """Whether the loss is the Taylor one: where it is asked for, and of two classes under encryption."""
    asked, encrypted = config.algorithm.gradient, config.protection.name != "none"
    return asked == "taylor" or (asked is None and encrypted and classes == 2)


def parties(task: AlignedTask, config: RunConfig[Config]) -> dict[str, PartySpec]:
    """The guest `active`, and the hosts `passive_1` ...; under encryption the arbiter.

    Raises
    ------
    ConfigError : as `shared.check_task`; a Taylor loss is asked for of other data than two classes; or, under
        encryption, of two classes another one, or of more classes any.
    """
    gradient, problems = config.algorithm.gradient, []
    has = f"{task.classes} classes" if task.classes else "numbers as targets"
    if gradient == "taylor" and task.classes != 2:
        allowed = f"is of the logistic loss of two classes, and {task.name} has {has}: exact"
        problems.append(Problem("algorithm.gradient", "taylor", allowed))
    if config.protection.name == "none":
        refuse(problems)
        return organisations.parties(task, config, (guest, host))
    if task.classes == 2 and gradient == "exact":
        allowed = f"is not linear in the scores, as {sealed(config)} needs: taylor"
        problems.append(Problem("algorithm.gradient", "exact", allowed))
    if task.classes > 2:
        allowed = f"adds up ciphertexts, and the softmax of {has} is no sum: none"
        problems.append(Problem("protection", config.protection.name, allowed))
    refuse(problems)
    third = PartySpec(arbiter, None, "server", cores=Delays(config.compute).cores(0, 1))
    specs = organisations.parties(task, config, (guest, host))
    return {ACTIVE: specs.pop(ACTIVE), ARBITER: third} | specs


class Columns:
    """A party's columns with their weights; a row's score is one number, or one for each of more than two classes."""

    def __init__(self, me: Party, data: AlignedPart, public: AlignedPublic, config: RunConfig[Config]) -> None:
        self.me, self.device, self.dtype = me, me.device, DTYPES[config.model.dtype]
        self.sealing = Sealing(config)
        self.outputs = public.classes if public.classes > 2 else 1
        self.features, self.held, self.host = self.rows(data.features), data.held_out, data.labels is None
        width, rng = self.features.shape[1], stream(config.seed, f"init/{me.name}")
        self.model = partial.Partial(config.model, width, self.outputs, data.labels is not None, rng, me.device)
        cfg = config.algorithm
        kind = torch.optim.SGD if cfg.optimizer == "sgd" else torch.optim.Adam
        # foreach would count other operations on a GPU for the same arithmetic
        self.optimiser: torch.optim.Optimizer = kind([self.model.theta], cfg.lr, weight_decay=cfg.alpha, foreach=False)

    def rows(self, values: np.ndarray) -> Tensor:
        """Rows as a tensor (n, d)."""
        return columns(torch.from_numpy(np.require(values, requirements="W")).to(self.device), self.dtype)

    def taken(self, rows: np.ndarray) -> Tensor:
        """The columns of a batch, (B, d)."""
        return self.features.index_select(0, torch.from_numpy(rows).to(self.device))

    def score(self, x: Tensor) -> Tensor:
        """X w of a batch, (B, outputs)."""
        scores: Tensor = self.model(x)
        return scores

    def gradient(self, x: Tensor, residual: Tensor) -> Tensor:
        """The gradient of the weights, of d loss / d u of a batch (B, outputs)."""
        out, inside = self.model.inside(x)
        if self.host and self.me.privacy is not None:  # it has sent clipped scores
            leaf = out.detach().requires_grad_()
            residual = torch.autograd.grad(self.me.privacy.clip(leaf), leaf, residual)[0]
        return self.model.gradient(x, residual, out, inside)

    def descend(self, gradient: Tensor) -> None:
        """Step on the gradient of the weights."""
        self.model.theta.grad = gradient
        self.optimiser.step()

    async def step(self, x: Tensor, residual: Tensor) -> None:
        """Step on d loss / d u of a batch, (B, outputs); under encryption by way of the arbiter."""
        me, sealing = self.me, self.sealing
        if sealing.scheme is None:
            await me.compute(lambda: self.descend(self.gradient(x, residual)), cost=len(x))
            return
        products = x.numel()
        seconds = sealing.priced(multiplied=products, added=products + len(x) * self.model.bias)
        gradient = await me.compute(self.gradient, x, residual, seconds=seconds)
        await me.compute(self.descend, await self.decrypted(gradient), cost=len(x))

    async def decrypted(self, gradient: Tensor) -> Tensor:
        """The gradient, which the arbiter has decrypted under a mask; a mask takes an addition for each number."""
        own = gradient.double().cpu().numpy().view(np.uint64)
        mask = np.frombuffer(self.me.rng("mask").bytes(own.nbytes), np.uint64)
        seconds = self.sealing.priced(added=len(own))
        masked = await self.me.compute(self.sealing.seal, (own + mask)[:, None], seconds=seconds)
        await self.me.send(ARBITER, masked, tag="masked")
        plain = await self.me.recv(ARBITER, tag="unmasked") - mask
        return torch.from_numpy(plain.view(np.float64)).to(gradient)

    def sent(self, values: Tensor) -> Any:
        """What is sent of numbers of the rows of a batch, (B, outputs): under encryption ciphertexts."""
        return values if self.sealing.scheme is None else self.sealing.seal(values.cpu().numpy())

    def received(self, sent: Any) -> Tensor:
        """The numbers that were sent; under encryption what the simulator computes with."""
        if self.sealing.scheme is None:
            return cast(Tensor, sent)
        kind = np.float64 if self.dtype == torch.float64 else np.float32
        return torch.from_numpy(self.sealing.unseal(sent, len(sent), 1, kind)).to(self.device)

    def held_out(self) -> dict[str, Tensor]:
        """X w of the held-out rows by split."""
        return {split: self.model(self.rows(x)) for split, x in self.held.items()}


class Guest(Columns):
    """The columns of the party with the labels, and the loss.

    A regression's targets are learnt with mean 0 and variance 1.
    """

    def __init__(self, me: Party, data: AlignedPart, public: AlignedPublic, config: RunConfig[Config]) -> None:
        super().__init__(me, data, public, config)
        assert data.labels is not None
        self.labels, self.classes = data.labels, public.classes
        self.taylor = taylor(config, public.classes)
        self.shift = 0.0 if self.classes else float(data.labels.mean())
        self.scale = 1.0 if self.classes else float(data.labels.std()) or 1.0

    def answers(self, rows: np.ndarray) -> Tensor:
        """The labels of a batch, (B,)."""
        return torch.from_numpy(split_privacy.trained_on(self.me, self.labels)[rows]).to(self.device)

    def residual(self, u: Tensor, y: Tensor) -> tuple[float, Tensor]:
        """The mean loss of a batch with scores u (B, outputs) and labels y (B,), and d loss / d u."""
        u = u.detach().requires_grad_()
        if self.taylor:
            sign = 2.0 * y[:, None].to(u.dtype) - 1
            loss = (math.log(2) - sign * u / 2 + u.square() / 8).mean()
        elif self.classes:
            loss = split_privacy.loss_of(self.me)(self.outcome(u), y)
        else:
            loss = (u[:, 0] - (y.to(u.dtype) - self.shift) / self.scale).square().mean() / 2
        return float(loss.detach()), torch.autograd.grad(loss, u)[0]

    def outcome(self, u: Tensor) -> Tensor:
        """What is scored, (n, classes) or (n, 1), for sums of scores u."""
        if self.classes == 2:
            return torch.cat([torch.zeros_like(u), u], dim=1)
        return u * self.scale + self.shift


async def host(me: Party, data: AlignedPart, public: AlignedPublic, config: RunConfig[Config]) -> None:
    """Send the score of each batch, and step on its residual."""
    side = Columns(me, data, public, config)
    me.state.model, me.state.optimiser, me.state.counts = side.model, side.optimiser, side.sealing.counts

    async for t in me.rounds():
        side.sealing.counts = me.state.counts  # a resumed run restores them
        for rows in batches(config.seed, t, public.samples, config.algorithm.batch_size):
            x = side.taken(rows)
            seconds = side.sealing.priced(encrypted=len(rows))
            u = await me.compute(side.score, x, cost=len(rows), seconds=seconds)
            await me.send(ACTIVE, side.sent(split_privacy.embeddings(me, u, rows)), tag="score")
            await side.step(x, side.received(await me.recv(ACTIVE, tag="residual")))
        me.report(facts=side.sealing.facts(me.name))
        for way in serving.ways(config.privacy) if me.evaluates(t) else ():
            async with me.evaluating(priced=way.chosen):
                await me.send(ACTIVE, serving.served(me, side.held_out(), way.noisy), tag="score")


async def guest(me: Party, data: AlignedPart, public: AlignedPublic, config: RunConfig[Config]) -> None:
    """Add up the scores of each batch, and answer with its residual."""
    side = Guest(me, data, public, config)
    me.state.model, me.state.optimiser, me.state.counts = side.model, side.optimiser, side.sealing.counts
    await split_privacy.settle_labels(me, data.labels)

    async for t in me.rounds():
        side.sealing.counts, losses = me.state.counts, []
        for rows in batches(config.seed, t, public.samples, config.algorithm.batch_size):
            x, y = side.taken(rows), side.answers(rows)
            u = await me.compute(side.score, x, cost=len(rows))
            for other in await me.recv_all(me.clients, tag="score"):
                u = u + side.received(other)
            # encrypted again: a host knows what its own ciphertexts are made of
            seconds = side.sealing.priced(added=len(rows) * len(me.clients), encrypted=len(rows))
            loss, residual = await me.compute(side.residual, u, y, cost=len(rows), seconds=seconds)
            losses.append(loss)
            noisy = split_privacy.gradients(me, [residual] * len(me.clients), rows, public.samples)
            for name, own in zip(me.clients, noisy, strict=True):
                await me.send(name, side.sent(own), tag="residual")
            await side.step(x, residual)
        facts = side.sealing.facts(me.name)
        me.report(train_loss=sum(losses) / len(losses), epoch=t, iterations=t * len(losses), facts=facts)
        for way in serving.ways(config.privacy) if me.evaluates(t) else ():
            async with me.evaluating(priced=way.chosen):
                shares = [side.held_out(), *await me.recv_all(me.clients, tag="score")]
                sums = {split: sum(share[split] for share in shares) for split in shares[0]}
                way.report(me, {split: side.outcome(u).cpu().numpy() for split, u in sums.items()})


async def arbiter(me: Party, data: None, public: AlignedPublic, config: RunConfig[Config]) -> None:
    """Decrypt gradients, which are under masks."""
    sealing, others = Sealing(config), (ACTIVE, *me.clients)
    me.state.counts = sealing.counts

    async for _ in me.rounds():
        sealing.counts = me.state.counts
        for _ in range(-(-public.samples // config.algorithm.batch_size)):
            for name, masked in zip(others, await me.recv_all(others, tag="masked"), strict=True):
                seconds = sealing.priced(decrypted=len(masked))
                plain = await me.compute(sealing.unseal, masked, len(masked), 1, np.uint64, seconds=seconds)
                await me.send(name, plain[:, 0], tag="unmasked")
        me.report(facts=sealing.facts(me.name))
