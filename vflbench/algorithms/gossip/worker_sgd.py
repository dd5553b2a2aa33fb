"""A worker's own SGD on its own rows, in the pieces that decentralized methods put their exchanges between.

    sgd = LocalSgd(me, data, public, config)
    me.state.model = sgd.model
    async for t in me.rounds():
        for i in sgd.begin(t):                                  # iterations, counted from 0 over the run
            w = sgd.w                                           # w_i
            sgd.w = await sgd.step(me)                          # w_i - eta g_i
            ...                                                 # what the method adds to it
        me.report(**sgd.end(t, me.evaluates(t)))

A round is an epoch, or 1 / rounds_per_epoch of one: every worker takes as many steps as the mean worker has batches.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vflbench import seeding
from vflbench.cards.algorithms.gossip import fedavg
from vflbench.cards.algorithms.gossip.gossip_methods import Keys
from vflbench.cards.algorithms.gossip.gossip_methods import WorkerKeys as WorkerKeys  # where plug-ins look for it
from vflbench.data.tasks import Shard, ShardedPublic, ShardedTask
from vflbench.federation.party import PartySpec, Program, batchable, party_names
from vflbench.models import DTYPES, classifiers
from vflbench.models.classifiers import Network
from vflbench.privacy import examples
from vflbench.privacy.accountant import History
from vflbench.types import ConfigError, Problem, RunConfig

Sgd = Keys | fedavg.Config  # the keys of methods that train by `LocalSgd`
AHEAD = 256  # rows that are gathered at once: several batches where they are small
Moved = tuple[Tensor, Tensor, Tensor]  # w, the running mean of losses, their sum
RUNNING = 0.9  # weight of the past in the running mean of mini-batch losses
# a random batch is filled up to a multiple of 1/8 of its expected size: so workers' batches have few different sizes
PADDING = 8


def workers(program: Program, task: ShardedTask, config: RunConfig[Sgd], **checked: Any) -> dict[str, PartySpec]:
    """One worker per shard, `worker_0` ...

    Parameters
    ----------
    checked : further arguments of `check_data`.

    Raises
    ------
    ConfigError : as `check_data`.
    """
    check_data(config, task.public, **checked)
    names = party_names("worker", len(task.shards))
    return {name: PartySpec(program, shard, role="worker") for name, shard in zip(names, task.shards, strict=True)}


def check_data(
    config: RunConfig[Sgd],
    public: ShardedPublic,
    trained: Sequence[int] | None = None,
    steps: Callable[[], Sequence[int]] | None = None,
    beside: Callable[[int], History] = lambda _: (),
) -> None:
    """Check that the workers can train on the data.

    Parameters
    ----------
    trained : rows that each worker trains on; None: all of its own.
    steps : gives those of each worker in the whole run; None: `planned_steps`.
    beside : rows of a worker -> its private releases beside gradients.

    Raises
    ------
    ConfigError : the model cannot take the data's rows, an epoch has fewer steps than rounds, or no noise is enough.
    """
    classifiers.check_fits(config.model, public)
    cfg, most = config.algorithm, steps_per_epoch(config.algorithm, public)
    if cfg.rounds_per_epoch > most:
        count = f"{len(public.rows)} worker{'s' * (len(public.rows) > 1)}"
        size = f"{public.samples} rows, {count}, batches of {cfg.batch_size}"
        allowed = f"must be at most {most}, the steps of an epoch ({size}): a round takes at least one"
        raise ConfigError([Problem("algorithm.rounds_per_epoch", cfg.rounds_per_epoch, allowed)])
    rows = public.rows if trained is None else trained
    steps = steps or (lambda: [planned_steps(config, public)] * len(rows))
    examples.plan(config.privacy, rows, cfg.batch_size, steps, beside)


def steps_per_epoch(cfg: Sgd, public: ShardedPublic) -> int:
    """Iterations of an epoch: rows of the mean worker over the batch size; at least 1."""
    steps: int = max(1, public.samples // (len(public.rows) * cfg.batch_size))
    return steps


def steps_per_round(cfg: Sgd, public: ShardedPublic) -> int:
    """Iterations of a round: those of an epoch, divided by its rounds and rounded down."""
    steps: int = steps_per_epoch(cfg, public) // cfg.rounds_per_epoch
    return steps


def planned_steps(config: RunConfig[Sgd], public: ShardedPublic) -> int:
    """The steps of a worker in the whole run, where all take as many."""
    assert config.rounds is not None  # decided by the runner
    return config.rounds * steps_per_round(config.algorithm, public)


def initial_model(public: ShardedPublic, config: RunConfig[Sgd]) -> torch.nn.Module:
    """The model that all parties start from; it is drawn from a stream that they share.

    A regression's model has the buffers `shift` and `scale`: its predictions are scale times its output, plus shift.
    """
    model = classifiers.build(config.model, public.shape, public.outputs, seeding.torch_stream(config.seed, "init"))
    if not public.classes:
        dtype = DTYPES[config.model.dtype]
        model.register_buffer("shift", torch.tensor(public.shift, dtype=dtype))
        model.register_buffer("scale", torch.tensor(public.scale, dtype=dtype))
    return model


class LocalSgd:
    """One worker's model, batches and steps.

    Parameters
    ----------
    me : the worker, with its device, random streams and privacy mechanism (privacy/examples.py, or None).
    data : its rows.
    kept : how many of the rows, the last ones, it does not train on.
    planned : steps that the worker takes in the whole run, for which private noise is calibrated; None:
        `planned_steps`.
    """

    def __init__(
        self,
        me: Any,
        data: Shard,
        public: ShardedPublic,
        config: RunConfig[Sgd],
        kept: int = 0,
        planned: int | None = None,
    ) -> None:
        cfg, device = config.algorithm, me.device
        self.cfg, self.secret, self.device = cfg, me.privacy, device
        self.batches: np.random.Generator = me.rng("batches")  # without privacy; with it batches are drawn from `drawn`
        self.drawn = me.secret_rng("batches")
        dtype = DTYPES[config.model.dtype]
        self.network: Network = classifiers.network(config.model, public)
        self.model = initial_model(public, config).to(device)
        x = torch.tensor(data.features, device=device, dtype=dtype)
        y = torch.tensor(data.labels, device=device)
        y = y if public.classes else (y.to(dtype) - public.shift) / public.scale
        self.rows = len(y) - kept
        self.x, self.y, self.kept = x[: self.rows], y[: self.rows], (x[self.rows :], y[self.rows :])
        self.batch = min(cfg.batch_size, self.rows)
        self.steps = steps_per_round(cfg, public)
        self.w = torch.empty(0, dtype=dtype, device=device)
        self.running = torch.full((), torch.nan, dtype=dtype, device=device)  # running mean of mini-batch losses
        self.total = torch.zeros((), dtype=dtype, device=device)  # sum of mini-batch losses in this round
        self.seen = 0  # batches in this round that had rows: a random one may have none
        if self.secret is not None:
            planned = planned_steps(config, public) if planned is None else planned
            self.secret.prepare(self.rows, cfg.batch_size, planned, me.secret_torch_rng("noise"))

    # --- a round ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Set w to the model's parameters, and start the round's sums again."""
        self.w, self.seen, self.total = classifiers.flat(self.model), 0, torch.zeros_like(self.total)

    def begin(self, round: int) -> Iterator[int]:
        """Call `start`, and yield the iterations of `round` (1, 2, ...), each with a batch.

        To start from another w, set it in the first iteration.
        """
        self.start()
        if self.secret is None:
            order, ahead = torch.from_numpy(self.order(self.steps)).to(self.device), max(1, AHEAD // self.batch)
        for number in range(self.steps):
            if self.secret is None:
                place = number % ahead
                if place == 0:
                    rows = order[number : number + ahead].flatten()
                    x = self.x.index_select(0, rows).view(-1, self.batch, *self.x.shape[1:])  # faster than [rows]
                    y = self.y.index_select(0, rows).view(-1, self.batch)
                self.chosen = x[place], y[place]
            yield (round - 1) * self.steps + number

    def draw(self) -> None:
        """Draw a batch for the next step, in methods without common iterations."""
        if self.secret is None:
            self.take(self.batches.choice(self.rows, self.batch, replace=False, shuffle=False))

    def take(self, batch: np.ndarray) -> None:
        """Take the rows of these numbers, (batch,), as the batch of the next step; with privacy it draws its own."""
        if self.secret is None:
            rows = torch.from_numpy(batch).to(self.device)
            self.chosen = self.x[rows], self.y[rows]

    def order(self, steps: int) -> np.ndarray:
        """(steps, batch): row numbers of so many batches, drawn without replacement as far as the rows reach.

        With privacy (steps, 0): every step draws its batch itself.
        """
        if self.secret is not None:
            return np.empty((steps, 0), np.int64)
        count = steps * self.batch
        passes = [self.batches.permutation(self.rows) for _ in range(-(-count // self.rows))]
        return np.concatenate(passes)[:count].reshape(steps, self.batch)

    def end(self, round: int, evaluates: bool) -> dict[str, Any]:
        """Copy w into the model, and return what the worker reports."""
        torch.nn.utils.vector_to_parameters(self.w, self.model.parameters())
        values: dict[str, Any] = {"iterations": round * self.steps, "epoch": round / self.cfg.rounds_per_epoch}
        if self.seen:
            values["train_loss"] = float(self.total / self.seen)
        return values | ({"parameters": self.w} if evaluates else {})

    # --- an iteration -------------------------------------------------------------------------------------------------

    async def step(self, me: Any, old_needed: bool = True, own: float = 1.0) -> Tensor:
        """Compute own * w - eta g on the next batch.

        The gradient g is that of the mean loss, with privacy clipped and noised, plus weight_decay w for L2. L2 is
        neither clipped nor noised: it depends on rows only through w.

        Returns
        -------
        A new tensor; without `old_needed` it may be w itself, changed in place.
        """
        return await self._compute(me, self.cfg.lr, own, in_place=not old_needed)

    async def gradient(self, me: Any) -> Tensor:
        """Compute the gradient g of the next batch."""
        if self.secret is not None:
            return await self._compute(me, -1.0, 0.0)
        x, y = self.chosen
        seen = self.running, self.total, float(self.cfg.weight_decay)
        result = await me.compute(_gradient(self.network), self.w, x, y, *seen, cost=len(y))
        gradient: Tensor
        gradient, self.w, self.running, self.total = result
        self.seen += 1
        return gradient

    async def _compute(self, me: Any, lr: float, own: float, in_place: bool = False) -> Tensor:
        cfg, secret = self.cfg, self.secret
        if secret is None:
            x, y = self.chosen
            seen = True
            function = _step_in_place(self.network) if in_place and self.network.dense else _step(self.network)
            rules = lr, own, float(cfg.weight_decay)
            result = await me.compute(function, self.w, x, y, self.running, self.total, *rules, cost=len(y))
        else:
            chosen = secret.sample(self.drawn)
            seen = len(chosen) > 0
            x, y, counts = self.random_batch(chosen)
            noise = secret.noise(self.w)
            function = _private_step(self.network, secret.clip, float(secret.expected), secret.unit)
            rules = lr, own, float(cfg.weight_decay)
            result = await me.compute(
                function, self.w, x, y, counts, noise, self.running, self.total, *rules, cost=len(y)
            )
        new: Tensor
        new, self.running, self.total = result
        self.seen += seen
        return new

    def random_batch(self, chosen: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
        """The rows `chosen`, filled up with row 0: x, y, and counts, which are 1 for chosen rows and 0 for filling."""
        unit = max(1, self.batch // PADDING)
        size = max(1, -(-len(chosen) // unit)) * unit
        rows, counts = np.zeros(size, np.int64), np.zeros(size, np.float32)
        rows[: len(chosen)], counts[: len(chosen)] = chosen, 1
        at = torch.from_numpy(rows).to(self.device)
        return self.x[at], self.y[at], torch.from_numpy(counts).to(self.x)

    async def loss(self, me: Any, x: Tensor, y: Tensor) -> Tensor:
        """The mean loss of w on the rows x, ()."""
        return (await self.row_losses(me, x, y)).mean()

    async def row_losses(self, me: Any, x: Tensor, y: Tensor) -> Tensor:
        """The loss of w on every row of x, (n,)."""
        losses: Tensor = await me.compute(_row_losses(self.network), self.w, x, y, cost=len(y))
        return losses

    # --- what a checkpoint must know beside the model -----------------------------------------------------------------

    def state_dict(self) -> dict[str, Tensor]:
        """The state that a checkpoint keeps."""
        return {"running": self.running}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take the state back from a checkpoint."""
        self.running = state["running"].to(self.running)


async def train_alone(me: Any, data: Shard, public: ShardedPublic, config: RunConfig[Sgd]) -> None:
    """Train on the worker's own rows, and send nothing: a party's program."""
    sgd = LocalSgd(me, data, public, config)
    me.state.model = sgd.model

    async for t in me.rounds():
        for _ in sgd.begin(t):
            sgd.w = await sgd.step(me, old_needed=False)
        me.report(**sgd.end(t, me.evaluates(t)))


def ranked(losses: Sequence[float], followers: int) -> str:
    """Each worker's role: F for the `followers` workers of highest loss (of equal ones the first), L for the others."""
    highest = set(np.argsort(-np.array(losses), kind="stable")[:followers].tolist())
    return "".join("F" if j in highest else "L" for j in range(len(losses)))


# Functions of a network that `me.compute` may run for a cohort. There is one object per network, because only equal
# functions are batched.


@functools.lru_cache(maxsize=32)
def _step(network: Network) -> Any:
    @batchable
    def step(
        w: Tensor, x: Tensor, y: Tensor, running: Tensor, total: Tensor, lr: float, own: float, decay: float
    ) -> Moved:
        """Own w - lr (gradient + decay w), and the losses seen."""
        loss, change = network.gradient(w, x, y, -lr)
        return change.add_(w, alpha=own - lr * decay), *_seen(running, total, loss)

    def together(
        w: Tensor, x: Tensor, y: Tensor, running: Tensor, total: Tensor, lr: float, own: float, decay: float
    ) -> Moved:
        losses, change = network.gradients(w, x, y, -lr)
        return change.add_(w, alpha=own - lr * decay), *_seen(running, total, losses)

    function: Any = step
    if network.dense:
        function.together = together
    return function


@functools.lru_cache(maxsize=32)
def _gradient(network: Network) -> Any:
    @batchable
    def gradient(
        w: Tensor, x: Tensor, y: Tensor, running: Tensor, total: Tensor, decay: float
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The gradient, with decay w; w, which lies beside the others' from then on; the losses seen."""
        loss, change = network.gradient(w, x, y)
        return change.add_(w, alpha=decay), w, *_seen(running, total, loss)

    def together(
        w: Tensor, x: Tensor, y: Tensor, running: Tensor, total: Tensor, decay: float
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        losses, change = network.gradients(w, x, y)
        return change.add_(w, alpha=decay), w, *_seen(running, total, losses)

    function: Any = gradient
    if network.dense:
        function.together = together
    return function


@functools.lru_cache(maxsize=32)
def _step_in_place(network: Network) -> Any:
    @batchable
    def step_in_place(
        w: Tensor, x: Tensor, y: Tensor, running: Tensor, total: Tensor, lr: float, own: float, decay: float
    ) -> Moved:
        """As `step`, into w."""
        loss = network.descend(w[None], x[None], y[None], own - lr * decay, lr)
        return w, *_seen(running, total, loss[0])

    def together(
        w: Tensor, x: Tensor, y: Tensor, running: Tensor, total: Tensor, lr: float, own: float, decay: float
    ) -> Moved:
        loss = network.descend(w, x, y, own - lr * decay, lr)
        return w, *_seen(running, total, loss)

    function: Any = step_in_place
    function.together = together
    return function


@functools.lru_cache(maxsize=1024)  # workers with few rows expect smaller batches
def _private_step(network: Network, clip: float, expected: float, unit: str) -> Any:
    @batchable
    def private_step(
        w: Tensor,
        x: Tensor,
        y: Tensor,
        counts: Tensor,
        noise: Tensor,
        running: Tensor,
        total: Tensor,
        lr: float,
        own: float,
        decay: float,
    ) -> Moved:
        """As `step`, with noise added and every row's gradient clipped (unit=batch: the batch's)."""
        losses, clipped = network.clipped_gradient(w, x, y, counts, clip if unit == "example" else torch.inf)
        if unit == "example":
            gradient = (clipped + noise) / expected
        else:
            mean = clipped / expected
            gradient = mean * classifiers.clipping_factors(mean.norm(), clip) + noise
        rows = counts.sum()
        mean, total_with = _seen(running, total, (losses * counts).sum() / rows)
        # In place: a new vector for all workers costs as much as the arithmetic. An empty batch has no loss.
        new = gradient.mul_(-lr).add_(w, alpha=own - lr * decay)
        return new, torch.where(rows > 0, mean, running), torch.where(rows > 0, total_with, total)

    return private_step


@functools.lru_cache(maxsize=32)
def _row_losses(network: Network) -> Any:
    @batchable
    def row_losses(w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return network.losses(network.predict(w, x), y)

    return row_losses


def _seen(running: Tensor, total: Tensor, loss: Tensor) -> tuple[Tensor, Tensor]:
    """The running mean and the sum of losses, with one more loss."""
    return torch.where(running.isnan(), loss, RUNNING * running + (1 - RUNNING) * loss), total + loss
