"""One worker's replica of its organisation's model, and the exchanges that more than one method has.

The algorithm decides which messages are sent, and when.
"""

import contextlib
import logging
import math
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from vflbench.algorithms.split import split_privacy
from vflbench.algorithms.split.organisations import ACTIVE, passive_parties
from vflbench.cards.algorithms.split.split_methods import Keys
from vflbench.cards.models.model_facts import IMAGES
from vflbench.data.tasks import AlignedPart, AlignedPublic
from vflbench.federation import counted_work
from vflbench.federation.counted_work import Work
from vflbench.federation.delays import Delays
from vflbench.models import DTYPES, columns, vertical
from vflbench.models.split_learning import Active, Embedded, Passive
from vflbench.models.vertical import DEEP
from vflbench.privacy import serving
from vflbench.types import RunConfig

log = logging.getLogger(__name__)
SCORED = 65536  # held-out rows that are scored at once: a table may be larger than memory


# What a worker does -> the parts of the delay model that it is (federation/delays.py).
STEPS = {
    "embed": ("passive_forward",),
    "backward": ("passive_backward",),
    "learn": ("active_forward", "active_backward", "top_forward", "top_backward"),
}


class Embedding(NamedTuple):
    """What a passive party sends for a batch: on the wire a plain tuple, with 24 bytes beside z."""

    batch: int
    attempt: int
    time: float  # the sender's clock
    z: Tensor


class Gradient(NamedTuple):
    """The active party's answer to an embedding."""

    batch: int
    attempt: int
    time: float
    dz: Tensor  # d loss / d z


class Side:
    """One worker's replica: its party's rows, a model and an optimiser, and how long each step takes.

    All replicas of one organisation start with the same parameters (`vertical.generator`).

    Parameters
    ----------
    me : an organisation's own party, or one of its workers.
    data : its own rows; the active party's have labels.
    workers : number of workers that share the organisation's cores on the modelled clock.
    """

    def __init__(
        self, me: Any, data: AlignedPart, public: AlignedPublic, config: RunConfig[Keys], workers: int = 1
    ) -> None:
        self.organisation, _, place = me.name.partition("_worker_")
        self.place = int(place or 0)  # among the organisation's workers
        number = 0 if self.organisation == ACTIVE else int(self.organisation.rpartition("_")[2])
        generator = vertical.generator(config.model, config.seed, number, self.organisation)
        self.me, self.data, self.config = me, data, config
        self.passive = public.parties - 1
        self.width = vertical.embedding(config.model, public.outputs)
        self.sharing = workers * public.parties
        self.kept_rows: float | None = None  # whose graphs it may keep until their gradients come
        self.delays = Delays(config.compute)
        self.delay = partial(self.delays.seconds, party=number, workers=workers)  # (part, rows) -> seconds
        self.share = self.delays.cores(number, workers)  # of cores
        self.counts = config.compute.counts_work and config.engine.compute_clock in ("auto", "modelled")
        self.works: dict[str, tuple[Work, Work]] = {}  # step -> its work for 2 and for 3 rows
        self.dtype, self.latency = DTYPES[config.model.dtype], config.compute.batch_latency
        self.model: Any
        self.images = config.model.name in IMAGES  # others take the pixels of an image as columns
        shape = data.features.shape[1:] if self.images else (math.prod(data.features.shape[1:]),)
        if data.labels is None:
            self.model = Passive(config.model, shape, generator, public.outputs).to(me.device)
        else:
            above = (
                None if config.model.name in DEEP else vertical.generator(config.model, config.seed, "fusion", "fusion")
            )
            self.model = Active(config.model, shape, public, data.labels, generator, above).to(me.device)
        cfg = config.algorithm
        self.theta: nn.Parameter = self.model.theta  # all parameters, as one vector
        optimiser = torch.optim.SGD if cfg.optimizer == "sgd" else torch.optim.Adam
        self.optimiser: torch.optim.Optimizer = optimiser([self.theta], cfg.lr)

    def rows(self, features: np.ndarray, rows: np.ndarray | slice = slice(None)) -> Tensor:
        """Rows of the party's features, in the form that the model takes; a slice may share their memory."""
        taken = torch.from_numpy(np.require(features[rows], requirements="W")).to(self.me.device)
        return taken if self.images else columns(taken, self.dtype)

    async def embed(self, rows: np.ndarray, waiting: int = 0) -> Embedded:
        """Passive: the embeddings of the party's rows.

        Their graph is kept for `backward`, where memory allows.

        Parameters
        ----------
        waiting : how many embeddings wait for their gradients already.
        """
        made: Embedded = await self.me.compute(
            self._embed, rows, waiting, seconds=self.seconds("embed", len(rows)), latency=self.latency
        )
        return made

    async def backward(self, made: Embedded, rows: np.ndarray, dz: Tensor, steps: bool = True) -> None:
        """Passive: step on d loss / d z.

        Parameters
        ----------
        made : what `embed` returned for these rows.
        dz : d loss / d z, (B, d_e).
        steps : whether the parameters change.
        """
        await self.me.compute(self._backward, made, rows, dz, steps, seconds=self.seconds("backward", len(rows)))

    async def learn(self, rows: np.ndarray, zs: Sequence[Tensor], steps: bool = True) -> tuple[float, list[Tensor]]:
        """Active: step on a batch.

        Returns
        -------
        The loss of the batch, and d loss / d z for each passive party.
        """
        result: tuple[float, list[Tensor]] = await self.me.compute(
            self._learn, rows, zs, steps, seconds=self.seconds("learn", len(rows)), latency=self.latency
        )
        return result

    def seconds(self, step: str, rows: int) -> float:
        """Seconds that `step`, of STEPS, takes for a batch of `rows` rows on the modelled clock."""
        if not self.counts:
            return sum(self.delay(part, rows) for part in STEPS[step])
        if not self.works:
            few, more = (self._works(np.zeros(count, np.int64)) for count in (2, 3))
            self.works = {name: (few[name], more[name]) for name in more}
        two, three = self.works[step]
        return three.at_rows(two, rows).seconds(self.config.compute) / self.share

    def _works(self, rows: np.ndarray) -> dict[str, Work]:
        """The work of each step for these rows; nothing changes."""

        def taken() -> Tensor:
            return self.rows(self.data.features, rows)

        update = counted_work.step(self.optimiser, self.theta)
        if self.data.labels is None:
            made, embed = counted_work.counted(lambda: self.model.embed(taken()))
            dz = torch.zeros_like(made.z)
            _, back = counted_work.counted(lambda: self.model.gradient(made, taken, dz, self.me.privacy))
            return {"embed": embed, "backward": back + update}
        labels = torch.from_numpy(self.data.labels[rows]).to(self.me.device)
        zs = [self.theta.new_zeros((len(rows), self.width)) for _ in range(self.passive)]
        _, learn = counted_work.counted(
            lambda: self.model.gradients(taken(), labels, zs, split_privacy.loss_of(self.me))
        )
        return {"learn": learn + update}

    def serving(self, workers: int) -> float:
        """Seconds of one synchronisation of a parameter server with `workers` workers, on the modelled clock."""
        if not self.counts:
            return self.config.compute.server_seconds * workers
        return counted_work.counted(average, [self.theta] * workers)[1].seconds(self.config.compute)

    def _embed(self, rows: np.ndarray, waiting: int) -> Embedded:
        x = self.rows(self.data.features, rows)
        if self.kept_rows is None:
            self.kept_rows = self.model.kept_rows(x, self.sharing)
        made: Embedded = self.model.embed(x, keeps=(waiting + 1) * len(rows) <= self.kept_rows)
        return made

    def _backward(self, made: Embedded, rows: np.ndarray, dz: Tensor, steps: bool) -> None:
        if steps:
            again = partial(self.rows, self.data.features, rows)
            self._step(self.model.gradient(made, again, dz, self.me.privacy))

    def _learn(self, rows: np.ndarray, zs: Sequence[Tensor], steps: bool) -> tuple[float, list[Tensor]]:
        assert self.data.labels is not None
        y = torch.from_numpy(split_privacy.trained_on(self.me, self.data.labels)[rows]).to(self.me.device)
        x = self.rows(self.data.features, rows)
        loss, gradient, dzs = self.model.gradients(x, y, zs, split_privacy.loss_of(self.me))
        if steps:
            self._step(gradient)
        return loss, dzs

    def _step(self, gradient: Tensor) -> None:
        self.theta.grad = gradient
        self.optimiser.step()

    def held_out(self, noisy: bool) -> dict[str, Tensor]:
        """Passive: the embeddings of the held-out rows by split, clipped as in training; `noisy`: with its noise."""
        with torch.no_grad():
            embeddings = {
                split: torch.cat([self.model(self.rows(x, part)) for part in _parts(x)])
                for split, x in self.data.held_out.items()
            }
        return serving.served(self.me, embeddings, noisy)

    def scores(self, zs: Sequence[Mapping[str, Tensor]]) -> dict[str, np.ndarray]:
        """Active: the scores of the held-out rows by split, given the passive parties' embeddings of them."""
        with torch.no_grad():
            return {
                split: torch.cat([self.model(self.rows(x, part), [z[split][part] for z in zs]) for part in _parts(x)])
                .cpu()
                .numpy()
                for split, x in self.data.held_out.items()
            }


def _parts(x: np.ndarray) -> list[slice]:
    return [slice(first, first + SCORED) for first in range(0, max(len(x), 1), SCORED)]


# --- exchanges that more than one method has --------------------------------------------------------------------------


async def run_ahead(
    me: Any, side: Side, partner: str, rows: Sequence[np.ndarray], ids: Sequence[int], outstanding: int
) -> None:
    """Passive, asynchronous: embed and send the batches `ids` without waiting, and step as gradients come.

    At most `outstanding` gradients are due at a time.
    """
    queue = deque(ids)
    made: dict[int, Embedded] = {}  # by batch ID
    while queue or made:
        message = None
        if made:
            timeout = 0.0 if queue and len(made) < outstanding else None
            with contextlib.suppress(TimeoutError):
                _, message = await me.recv_any([partner], "gradient", timeout)
        if message is not None:
            gradient = Gradient(*message)
            await side.backward(made.pop(gradient.batch), rows[gradient.batch], gradient.dz)
        else:
            j = queue.popleft()
            now = me.clock
            made[j] = await side.embed(rows[j], len(made))
            z = split_privacy.embeddings(me, made[j].z, rows[j])
            await me.send(partner, tuple(Embedding(j, 0, now, z)), tag="embedding")


async def latest_first(
    me: Any, side: Side, partners: Sequence[str], rows: Sequence[np.ndarray], count: int
) -> list[float]:
    """Active, asynchronous: step `count` times on the batch whose embeddings came last, and return the losses."""
    arrived: dict[int, dict[str, Tensor]] = {}
    complete: list[int] = []
    losses = []
    for _ in range(count):
        while True:
            try:
                src, message = await me.recv_any(partners, "embedding", 0.0 if complete else None)
            except TimeoutError:
                break
            embedding = Embedding(*message)
            zs = arrived.setdefault(embedding.batch, {})
            zs[src] = embedding.z
            if len(zs) == len(partners):
                complete.append(embedding.batch)
        j = complete.pop()
        zs = arrived.pop(j)
        loss, dzs = await side.learn(rows[j], [zs[name] for name in partners])
        losses.append(loss)
        for name, dz in zip(partners, split_privacy.gradients(me, dzs, rows[j], len(side.data.features)), strict=True):
            await me.send(name, tuple(Gradient(j, 0, me.clock, dz)), tag="gradient")
    return losses


async def score(me: Any, side: Side, t: int) -> None:
    """At the end of epoch t, score the held-out rows: passive parties send embeddings, the active one reports."""
    for way in serving.ways(side.config.privacy) if me.evaluates(t) else ():
        async with me.evaluating(priced=way.chosen):
            if side.data.labels is None:
                await me.send(me.servers[0], side.held_out(way.noisy), tag="embedding")
            else:
                way.report(me, side.scores(await me.recv_all(passive_parties(me), tag="embedding")))


def average(replicas: Sequence[Tensor], weights: Sequence[float] | None = None) -> Tensor:
    """The parameter server's mean of its workers' parameters; `weights` are in the workers' order."""
    shares = torch.tensor(
        [1.0] * len(replicas) if weights is None else list(weights), dtype=replicas[0].dtype, device=replicas[0].device
    )
    mean: Tensor = (torch.stack(list(replicas)) * (shares / shares.sum())[:, None]).sum(dim=0)
    return mean
