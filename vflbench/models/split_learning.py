"""Split learning: a bottom network per party, a top network at the party with the labels.

Liu et al., "PubSub-VFL", arXiv 2510.12494: z = bottom(x), scores = top(z_active, z_passive ...). The paper gives ten layers for the bottom
("small") or a ResNet ("large") and two layers for the top, no widths; widths, He et al.'s initialisation and layer normalisation in the
residual blocks are ours. Batch normalisation would couple the rows of a batch, whose embeddings then were not functions of a row.

A party's parameters are one flat vector theta: what workers and parameter servers exchange, and what a late gradient is computed at.

`Side` is what a worker does with its own rows. Which messages it sends when is the algorithm's.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vflbench.models.partial import DTYPES
from vflbench.seeding import stream, torch_stream
from vflbench.types import ConfigError, Problem, RunConfig

MODEL_NAMES = ("mlp10", "residual_mlp")
SCORED = 65536  # held-out rows at once: a table that is larger than memory is scored in parts


@dataclass
class Config:
    name: str = "mlp10"
    depth: int = 10  # linear layers of a bottom network; residual_mlp: the first, the last, and two in each block
    width: int = 64  # hidden units of a bottom network
    embedding: int = 32  # d_e: width of what a bottom network gives
    top_width: int = 32  # hidden units of the top network
    dtype: Literal["float32", "float64"] = "float32"  # float32 | float64, of parameters and messages


@dataclass
class Keys:
    """Keys that all split learning methods share."""

    name: str = ""
    parties: int = 2  # organisations: the active one, which has the labels, and passive ones
    batch_size: int = 256  # B: rows of a batch
    lr: float = 0.001  # learning rate
    optimizer: Literal["adam", "sgd"] = "adam"  # adam | sgd; a worker's moments are its own
    default_rounds: int = 10  # epochs, where epochs and rounds are null


class Public(Protocol):
    """What split learning must know of the data: `data.tasks.AlignedPublic`."""

    @property
    def samples(self) -> int: ...
    @property
    def objective(self) -> Any: ...
    @property
    def parties(self) -> int: ...
    @property
    def classes(self) -> int: ...
    @property
    def outputs(self) -> int: ...


def check(config: Config) -> list[Problem]:
    """What is wrong with the model's configuration, before any data is loaded."""
    problems = [
        Problem(f"model.{key}", getattr(config, key), "must be at least 1")
        for key in ("width", "embedding", "top_width")
        if getattr(config, key) < 1
    ]
    if config.depth < 2:
        problems.append(Problem("model.depth", config.depth, "must be at least 2"))
    elif config.name == "residual_mlp" and config.depth % 2:
        problems.append(Problem("model.depth", config.depth, "must be even: a block has two layers"))
    return problems


def check_keys(config: RunConfig) -> list[Problem]:
    """What is wrong with the keys that all methods share, and with the model's, before any data is loaded."""
    cfg, problems = config.algorithm, check(config.model)
    if cfg.parties < 2:
        problems.append(Problem("algorithm.parties", cfg.parties, "must be at least 2: the one with the labels, and one more"))
    for key in ("batch_size", "default_rounds"):
        if getattr(cfg, key) < 1:
            problems.append(Problem(f"algorithm.{key}", getattr(cfg, key), "must be at least 1"))
    return problems


def check_task(config: RunConfig, public: Public) -> None:
    """Raise ConfigError for a batch that is larger than the training rows, and for a convex problem, which has no rows held out."""
    problems = []
    if config.algorithm.batch_size > public.samples:
        allowed = f"there are {public.samples} training rows: at most that many in a batch"
        problems.append(Problem("algorithm.batch_size", config.algorithm.batch_size, allowed))
    if public.objective is not None:
        allowed = "split networks are scored on rows held out: dataset.problem=learning"
        problems.append(Problem("dataset.problem", public.objective.kind, allowed))
    if problems:
        raise ConfigError(problems)


def check_workers(config: RunConfig) -> list[Problem]:
    """What is wrong with a number of workers."""
    count = config.algorithm.workers
    return [] if count >= 1 else [Problem("algorithm.workers", count, "must be at least 1")]


def check_asynchronous(config: RunConfig) -> list[Problem]:
    """What is wrong with the keys of methods whose passive workers run ahead."""
    cfg, problems = config.algorithm, []
    if cfg.outstanding < 1:
        problems.append(Problem("algorithm.outstanding", cfg.outstanding, "must be at least 1"))
    if config.network.timing != "causal":
        problems.append(Problem("network.timing", config.network.timing, f"{cfg.name} depends on when each message comes: causal"))
    return problems


def check_batches(config: RunConfig, samples: int, **workers: int) -> None:
    """Raise ConfigError where one of `workers`, key -> number, is larger than the number of batches."""
    count = math.ceil(samples / config.algorithm.batch_size)
    allowed = f"an epoch has {count} batches: at most that many workers"
    if problems := [Problem(f"algorithm.{key}", number, allowed) for key, number in workers.items() if number > count]:
        raise ConfigError(problems)


def batches(seed: int, epoch: int, samples: int, size: int) -> list[np.ndarray]:
    """The rows of each batch of an epoch, by its ID 0 .. ceil(samples / size) - 1; the last may be shorter.

    All parties draw the same from the public seed: a shared permutation of the aligned rows.
    """
    order = stream(seed, f"batches/{epoch}").permutation(samples)
    return [order[first : first + size] for first in range(0, samples, size)]


# --- networks -------------------------------------------------------------------------------------------------------------------


class Bottom:
    """A party's bottom network, (B, features) -> (B, embedding), as a function of its flat parameters (size,)."""

    def __init__(self, config: Config, features: int) -> None:
        self.config = config
        widths = [features, *[config.width] * (config.depth - 1), config.embedding]
        self.shapes = [shape for i, o in itertools.pairwise(widths) for shape in ((o, i), (o,))]
        self.sizes = [math.prod(shape) for shape in self.shapes]
        self.size = sum(self.sizes)

    def initial(self, generator: torch.Generator) -> Tensor:
        return _he(self.shapes, DTYPES[self.config.dtype], generator)

    def __call__(self, theta: Tensor, x: Tensor) -> Tensor:
        parts = [part.view(shape) for part, shape in zip(theta.split(self.sizes), self.shapes, strict=True)]
        layers = list(zip(parts[::2], parts[1::2], strict=True))
        x = F.linear(x, *layers[0])
        if self.config.name == "mlp10":
            for layer in layers[1:]:
                x = F.linear(F.relu(x), *layer)
            return x
        for first, second in zip(layers[1:-1:2], layers[2:-1:2], strict=True):
            x = x + F.linear(F.relu(F.linear(F.relu(F.layer_norm(x, x.shape[1:])), *first)), *second)
        return F.linear(F.relu(F.layer_norm(x, x.shape[1:])), *layers[-1])


class Top:
    """The top network: two layers on the parties' embeddings side by side, (B, parties * embedding) -> (B, outputs)."""

    def __init__(self, config: Config, parties: int, outputs: int) -> None:
        self.config = config
        joint = parties * config.embedding
        self.shapes = [(config.top_width, joint), (config.top_width,), (outputs, config.top_width), (outputs,)]
        self.sizes = [math.prod(shape) for shape in self.shapes]
        self.size = sum(self.sizes)

    def initial(self, generator: torch.Generator) -> Tensor:
        return _he(self.shapes, DTYPES[self.config.dtype], generator)

    def __call__(self, theta: Tensor, z: Tensor) -> Tensor:
        first, shift, second, bias = (part.view(shape) for part, shape in zip(theta.split(self.sizes), self.shapes, strict=True))
        return F.linear(F.relu(F.linear(F.relu(z), first, shift)), second, bias)


def _he(shapes: Sequence[tuple[int, ...]], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Weights normal with variance 2 / inputs, biases 0, as one vector."""
    parts = []
    for shape in shapes:
        if len(shape) == 2:
            parts.append(torch.randn(shape, generator=generator, dtype=torch.float64).mul_(math.sqrt(2 / shape[1])).flatten())
        else:
            parts.append(torch.zeros(shape, dtype=torch.float64))
    return torch.cat(parts).to(dtype)


# --- parties ----------------------------------------------------------------------------------------------------------------------


class Passive(nn.Module):
    """The model of a party without labels: its bottom network.

    Parameters
    ----------
    generator : on the CPU; draws the initial parameters.
    """

    def __init__(self, config: Config, features: int, generator: torch.Generator) -> None:
        super().__init__()
        self.bottom = Bottom(config, features)
        self.theta = nn.Parameter(self.bottom.initial(generator), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """Embeddings (B, d_e) of rows (B, d_p)."""
        return self.bottom(self.theta, x)

    def gradient(self, theta: Tensor, x: Tensor, dz: Tensor, privacy: Any = None) -> Tensor:
        """d loss / d theta (size,) at the parameters `theta` that the embedding was made with, given d loss / d z; `privacy` clipped it."""
        theta = theta.detach().requires_grad_()
        z = self.bottom(theta, x)
        return torch.autograd.grad(z if privacy is None else privacy.clip(z), theta, dz)[0]


class Active(nn.Module):
    """The model of the party with the labels: its bottom network and the top network, theta one after the other.

    Targets of a regression are learnt with mean 0 and variance 1: `scale` and `shift` of the training labels, which are its own.
    """

    scale: Tensor
    shift: Tensor

    def __init__(self, config: Config, features: int, public: Public, labels: np.ndarray, generator: torch.Generator) -> None:
        super().__init__()
        self.bottom = Bottom(config, features)
        self.top = Top(config, public.parties, public.outputs)
        self.classes = public.classes
        self.theta = nn.Parameter(torch.cat([self.bottom.initial(generator), self.top.initial(generator)]), requires_grad=False)
        dtype = self.theta.dtype
        shift, scale = (0.0, 1.0) if self.classes else (float(labels.mean()), float(labels.std()) or 1.0)
        self.register_buffer("shift", torch.tensor(shift, dtype=dtype))
        self.register_buffer("scale", torch.tensor(scale, dtype=dtype))

    def outputs(self, theta: Tensor, x: Tensor, zs: Sequence[Tensor]) -> Tensor:
        bottom, top = theta.split([self.bottom.size, self.top.size])
        scores: Tensor = self.top(top, torch.cat([self.bottom(bottom, x), *zs], dim=1))
        return scores

    def forward(self, x: Tensor, zs: Sequence[Tensor]) -> Tensor:
        """Scores (B, outputs) of own rows (B, d_a) and the passive parties' embeddings, (B, d_e) each; of a regression, targets."""
        return self.outputs(self.theta, x, zs) * self.scale + self.shift

    def gradients(self, x: Tensor, y: Tensor, zs: Sequence[Tensor]) -> tuple[float, Tensor, list[Tensor]]:
        """The mean loss of a batch, d loss / d theta, and d loss / d z of each passive party."""
        theta = self.theta.detach().requires_grad_()
        zs = [z.detach().requires_grad_() for z in zs]
        out = self.outputs(theta, x, zs)
        loss = F.cross_entropy(out, y) if self.classes else F.mse_loss(out[:, 0], (y - self.shift) / self.scale)
        gradient, *dz = torch.autograd.grad(loss, [theta, *zs])
        return float(loss.detach()), gradient, dz


class Rows(Protocol):
    """`data.tasks.AlignedPart`."""

    @property
    def features(self) -> np.ndarray: ...
    @property
    def labels(self) -> np.ndarray | None: ...
    @property
    def held_out(self) -> Mapping[str, np.ndarray]: ...


class Side:
    """One worker's replica: its party's rows, model and optimiser, and how long it takes for what it does with them.

    All replicas of one organisation start alike, drawn from the stream init/<organisation>.

    Parameters
    ----------
    data : own rows; those of the active party have labels.
    delay : (part, rows) -> seconds on the modelled clock: `federation.delays.Delays.seconds` of this party and its number of workers.
    """

    def __init__(
        self, me: Any, data: Rows, public: Public, config: RunConfig, organisation: str, delay: Callable[[str, int], float]
    ) -> None:
        generator = torch_stream(config.seed, f"init/{organisation}", "cpu")
        self.me, self.data, self.delay = me, data, delay
        self.dtype, self.latency = DTYPES[config.model.dtype], config.compute.batch_latency
        self.model: Any
        features = math.prod(data.features.shape[1:])  # the pixels of an image
        if data.labels is None:
            self.model = Passive(config.model, features, generator).to(me.device)
        else:
            self.model = Active(config.model, features, public, data.labels, generator).to(me.device)
        cfg = config.algorithm
        theta = [self.model.theta]
        self.optimiser = torch.optim.SGD(theta, cfg.lr) if cfg.optimizer == "sgd" else torch.optim.Adam(theta, cfg.lr)

    @property
    def theta(self) -> nn.Parameter:
        theta: nn.Parameter = self.model.theta
        return theta

    def rows(self, of: np.ndarray, rows: np.ndarray | slice = slice(None)) -> Tensor:
        """Rows of own features, as the model takes them."""
        taken = torch.from_numpy(np.array(of[rows])).to(self.me.device)
        return taken.flatten(1).to(self.dtype) / 255 if taken.dtype == torch.uint8 else taken.flatten(1).to(self.dtype)

    async def embed(self, rows: np.ndarray) -> Tensor:
        """Passive: z of own rows, (B, d_e)."""
        z: Tensor = await self.me.compute(self._embed, rows, seconds=self.delay("passive_forward", len(rows)), latency=self.latency)
        return z

    async def backward(self, theta: Tensor, rows: np.ndarray, dz: Tensor, steps: bool = True) -> None:
        """Passive: a step along d loss / d z of an embedding that was made with the parameters `theta`."""
        await self.me.compute(self._backward, theta, rows, dz, steps, seconds=self.delay("passive_backward", len(rows)))

    async def learn(self, rows: np.ndarray, zs: Sequence[Tensor], steps: bool = True) -> tuple[float, list[Tensor]]:
        """Active: a step; the loss of the batch, and d loss / d z for each passive party."""
        seconds = sum(self.delay(f"{part}_{way}", len(rows)) for part in ("active", "top") for way in ("forward", "backward"))
        result: tuple[float, list[Tensor]] = await self.me.compute(self._learn, rows, zs, steps, seconds=seconds, latency=self.latency)
        return result

    def _embed(self, rows: np.ndarray) -> Tensor:
        with torch.no_grad():
            z: Tensor = self.model(self.rows(self.data.features, rows))
        return z

    def _backward(self, theta: Tensor, rows: np.ndarray, dz: Tensor, steps: bool) -> None:
        gradient = self.model.gradient(theta, self.rows(self.data.features, rows), dz, self.me.privacy)
        if steps:
            self._step(gradient)

    def _learn(self, rows: np.ndarray, zs: Sequence[Tensor], steps: bool) -> tuple[float, list[Tensor]]:
        assert self.data.labels is not None
        y = torch.from_numpy(self.data.labels[rows]).to(self.me.device)
        loss, gradient, dzs = self.model.gradients(self.rows(self.data.features, rows), y, zs)
        if steps:
            self._step(gradient)
        return loss, dzs

    def _step(self, gradient: Tensor) -> None:
        self.theta.grad = gradient
        self.optimiser.step()

    def held_out(self) -> dict[str, Tensor]:
        """Passive: embeddings of the held-out rows, clipped as in training."""
        with torch.no_grad():
            found = {split: torch.cat([self.model(self.rows(x, part)) for part in _parts(x)]) for split, x in self.data.held_out.items()}
        privacy = self.me.privacy
        return found if privacy is None else {split: privacy.clip(z) for split, z in found.items()}

    def scores(self, zs: Sequence[Mapping[str, Tensor]]) -> dict[str, np.ndarray]:
        """Active: scores of the held-out rows, given the passive parties' embeddings of them."""
        with torch.no_grad():
            return {
                split: torch.cat([self.model(self.rows(x, part), [z[split][part] for z in zs]) for part in _parts(x)]).cpu().numpy()
                for split, x in self.data.held_out.items()
            }


def _parts(x: np.ndarray) -> list[slice]:
    return [slice(first, first + SCORED) for first in range(0, max(len(x), 1), SCORED)]


# --- exchanges that more than one method has ------------------------------------------------------------------------------------------


async def run_ahead(me: Any, side: Side, partner: str, rows: Sequence[np.ndarray], ids: Sequence[int], outstanding: int) -> None:
    """Passive, asynchronous: embed and send batches `ids` without waiting, with at most `outstanding` gradients due; step as they come."""
    left = deque(ids)
    made: dict[int, Tensor] = {}  # batch ID -> the parameters that its embedding was made with
    while left or made:
        message = None
        if made:
            with contextlib.suppress(TimeoutError):
                _, message = await me.recv_any([partner], "gradient", 0.0 if left and len(made) < outstanding else None)
        if message is not None:
            await side.backward(made.pop(message[0]), rows[message[0]], message[3])
        else:
            j = left.popleft()
            made[j] = side.theta.detach().clone()
            await me.send(partner, (j, 0, me.clock, await side.embed(rows[j])), tag="embedding")


async def latest_first(me: Any, side: Side, partners: Sequence[str], rows: Sequence[np.ndarray], count: int) -> list[float]:
    """Active, asynchronous: step on the batch whose embeddings came last, `count` times; the losses."""
    arrived: dict[int, dict[str, Tensor]] = {}
    complete: list[int] = []
    losses = []
    for _ in range(count):
        while True:
            try:
                src, (j, _, _, z) = await me.recv_any(partners, "embedding", 0.0 if complete else None)
            except TimeoutError:
                break
            arrived.setdefault(j, {})[src] = z
            if len(arrived[j]) == len(partners):
                complete.append(j)
        j = complete.pop()
        zs = arrived.pop(j)
        loss, dzs = await side.learn(rows[j], [zs[name] for name in partners])
        losses.append(loss)
        for name, dz in zip(partners, dzs, strict=True):
            await me.send(name, (j, 0, me.clock, dz), tag="gradient")
    return losses


async def score(me: Any, side: Side, t: int) -> None:
    """At the end of epoch t, an organisation's last word: passive parties' held-out embeddings meet the active party's model."""
    if me.evaluates(t):
        async with me.evaluating():
            if side.data.labels is None:
                await me.send(me.servers[0], side.held_out(), tag="embedding")
            else:
                passive = [name for name in me.clients if "_worker_" not in name]
                me.report(predictions=side.scores(await me.recv_all(passive, tag="embedding")))


def average(replicas: Sequence[Tensor], weights: Sequence[float] | None = None) -> Tensor:
    """The parameter server's mean of its workers' parameters, weighted by `weights`; in the workers' order."""
    shares = torch.tensor([1.0] * len(replicas) if weights is None else list(weights), dtype=replicas[0].dtype, device=replicas[0].device)
    mean: Tensor = (torch.stack(list(replicas)) * (shares / shares.sum())[:, None]).sum(dim=0)
    return mean
