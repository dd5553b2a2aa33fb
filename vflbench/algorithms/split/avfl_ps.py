"""AVFL-PS: asynchronous split learning with parameter servers and workers in pairs.

A baseline of PubSub-VFL (Liu et al., arXiv 2510.12494, section 5.1; the architecture of Falcon): every pair of workers is an AVFL of its
own, on batches that are dealt to the pairs beforehand; nobody takes over another's work.

Departures
1. Both parameter servers average their workers at the end of every epoch, as PubSub-VFL's do; the paper does not say when.
2. A pair has a link of its own, and at most `outstanding` gradients are due to its passive worker.
3. The training loss that is reported is the mean of the pairs' means, whatever their numbers of batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from vflbench.algorithms.split import shared
from vflbench.algorithms.split.shared import ACTIVE, Keys, Side, average, latest_first, passive_parties, run_ahead, score
from vflbench.data.tasks import AlignedPart, AlignedPublic, AlignedTask
from vflbench.federation.delays import Delays
from vflbench.federation.party import Party, PartySpec, party_names
from vflbench.seeding import batches
from vflbench.types import AlgorithmInfo, Problem, RunConfig, Sent

ALGORITHM = AlgorithmInfo(
    name="avfl_ps",
    summary="asynchronous split learning with a parameter server and paired workers",
    paper="the architecture of Falcon; a baseline of PubSub-VFL",
    label="AVFL-PS",
    family="split",
    place=4,
    layouts=("aligned",),
    divided_by="parties",
    reports=("predictions",),
    models=("mlp10", "residual_mlp", "linear", "mlp", "split_mlp", "mvcnn", "resnet", "vertical"),
    epochs=True,
    modelled=True,
    time_dependent=True,
    search=(("algorithm.lr", ("0.0003", "0.001", "0.003")),),
    # any codec: rounded embeddings and gradients are stale ones with noise; replicas stay inside an organisation
)
EXPOSES = (
    Sent("embedding", "passive_worker", "active_worker", "embeddings", "passive"),
    Sent("gradient", "active_worker", "passive_worker", "gradients", "active"),
    *shared.EXPOSES[:1],  # scoring
    *shared.REPLICAS,
)


@dataclass
class Config(Keys):
    name: str = "avfl_ps"
    workers: int = 8  # nu: pairs of workers
    outstanding: int = 5  # batches of a passive worker that wait for their gradient, at most


def check(config: RunConfig) -> list[Problem]:
    """Rules across keys, before any data is loaded."""
    asynchronous = shared.check_asynchronous(config)
    return shared.check_keys(config) + shared.check_workers(config) + asynchronous


def parties(task: AlignedTask, config: RunConfig) -> dict[str, PartySpec]:
    """A parameter server and workers per organisation.

    Raises
    ------
    ConfigError : a batch that is larger than the data, or more pairs than batches.
    """
    shared.check_task(config, task)
    shared.check_batches(config, task.public.samples, workers=config.algorithm.workers)
    delays, specs = Delays(config.compute), {}
    count = config.algorithm.workers
    for number, organisation in enumerate([ACTIVE, *party_names("passive", task.parties)[1:]]):
        role, data, delay = "server" if number == 0 else "client", task.part(number), partial(delays.seconds, party=number, workers=count)
        workers = party_names(f"{organisation}_worker", count)
        specs[organisation] = PartySpec(partial(parameter_server, workers=workers), data, role, organisation, cores=1.0)
        for i, name in enumerate(workers):
            program = partial(active_worker if number == 0 else passive_worker, place=i, delay=delay)
            specs[name] = PartySpec(program, data, role, organisation, cores=delays.cores(number, count))
    return specs


async def parameter_server(me: Party, data: AlignedPart, public: AlignedPublic, config: RunConfig, workers: list[str]) -> None:
    """Averages its workers' replicas at the end of an epoch."""
    side = Side(me, data, public, config, me.name, lambda part, rows: 0.0)
    me.state.model = side.model
    seconds = config.compute.server_seconds * len(workers)

    async for t in me.rounds():
        side.theta.copy_(await me.compute(average, await me.recv_all(workers, tag="replica"), seconds=seconds))
        await me.send_many(workers, side.theta, tag="model")
        await score(me, side, t)


async def passive_worker(me: Party, data: AlignedPart, public: AlignedPublic, config: RunConfig, place: int, delay: partial[float]) -> None:
    """Embeds its batches."""
    cfg, organisation = config.algorithm, me.name.rpartition("_worker_")[0]
    partner = party_names(f"{ACTIVE}_worker", cfg.workers)[place]
    side = Side(me, data, public, config, organisation, delay)
    me.state.model, me.state.optimiser = side.model, side.optimiser

    async for t in me.rounds():
        rows = batches(config.seed, t, public.samples, cfg.batch_size)
        await run_ahead(me, side, partner, rows, range(place, len(rows), cfg.workers), cfg.outstanding)
        await me.send(organisation, side.theta, tag="replica")
        side.theta.copy_(await me.recv(organisation, tag="model"))


async def active_worker(me: Party, data: AlignedPart, public: AlignedPublic, config: RunConfig, place: int, delay: partial[float]) -> None:
    """Steps on what came last from its partners, one per passive party."""
    cfg = config.algorithm
    partners = [party_names(f"{name}_worker", cfg.workers)[place] for name in passive_parties(me)]
    side = Side(me, data, public, config, ACTIVE, delay)
    me.state.model, me.state.optimiser = side.model, side.optimiser

    async for t in me.rounds():
        rows = batches(config.seed, t, public.samples, cfg.batch_size)
        losses = await latest_first(me, side, partners, rows, len(range(place, len(rows), cfg.workers)))
        me.report(train_loss=sum(losses) / len(losses), epoch=t, iterations=t * len(rows))
        await me.send(ACTIVE, side.theta, tag="replica")
        side.theta.copy_(await me.recv(ACTIVE, tag="model"))
