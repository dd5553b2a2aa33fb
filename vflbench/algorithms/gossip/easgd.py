"""EASGD: workers and the centre variable of a parameter server pull each other.

Zhang, Choromanska, LeCun, arXiv 1412.6651, the synchronous method (section 2):

    x_i <- x_i - eta g_i - alpha (x_i - c),   c <- c + alpha sum_i (x_i - c)

every tau iterations, with old values on both sides. beta = m alpha; the paper suggests 0.9 for it.

Departures from the paper: the score is the mean over the workers' models, as for the other methods here, and not the
centre's; there is no momentum.
"""

from dataclasses import dataclass

from vflbench.algorithms.gossip import exposes, shared
from vflbench.algorithms.gossip.shared import LocalSgd, WorkerKeys
from vflbench.data.tasks import Shard, ShardedPublic, ShardedTask
from vflbench.federation.party import SERVER, Party, PartySpec
from vflbench.models import classifiers
from vflbench.types import AlgorithmInfo, Problem, RunConfig, Sent

ALGORITHM = AlgorithmInfo(
    name="easgd",
    summary="SGD on rows of each worker's own, pulled towards the centre variable of a parameter server",
    paper="Zhang, Choromanska, LeCun 2015, arXiv 1412.6651",
    label="EASGD",
    place=2,
    **shared.FAMILY,
    divided_by="workers",
    # any codec: a pull towards a rounded model is one with noise
    remembered=("model", "centre"),
    assumes=("seed",),
)
EXPOSES = (
    Sent("centre", "server", "worker", "parameters", "worker", noised=exposes.NOISED, note="a mean over time of all"),
    Sent("model", "worker", "server", "parameters", "worker", noised=exposes.NOISED),
    *exposes.of_models("server", "model"),
)


@dataclass
class Config(WorkerKeys):
    """Keys of EASGD."""

    name: str = "easgd"
    local_steps: int = 1  # tau: iterations per exchange with the server
    beta: float = 0.9  # m alpha, below 2 m / (m + 1)


def check(config: RunConfig) -> list[Problem]:
    """Rules across keys, before any data is loaded."""
    beta, m = config.algorithm.beta, config.algorithm.workers
    # Without gradients, an exchange scales the distance of the workers' mean from the centre by 1 - beta - beta / m.
    limit = 2 * m / (m + 1)
    allowed = f"must be at least 0 and below 2 m / (m + 1) = {limit:.4g} for {m} workers, where the centre diverges"
    return [] if 0 <= beta < limit else [Problem("algorithm.beta", beta, allowed)]


def parties(task: ShardedTask, config: RunConfig) -> dict[str, PartySpec]:
    """The server, and one worker per shard."""
    return {SERVER: PartySpec(server, role="server")} | shared.workers(worker, task, config)


async def server(me: Party, data: None, public: ShardedPublic, config: RunConfig) -> None:
    """Hold the centre variable, which starts where the workers start."""
    cfg: Config = config.algorithm
    alpha, steps = cfg.beta / len(me.clients), shared.steps_per_round(cfg, public)
    me.state.centre = classifiers.flat(shared.initial_model(public, config)).to(me.device)

    async for t in me.rounds():
        for i in range((t - 1) * steps, t * steps):
            if i % cfg.local_steps:
                continue
            centre = me.state.centre
            await me.send_many(me.clients, centre, tag="centre")
            me.state.centre = centre.clone()
            for x in await me.recv_all(me.clients, tag="model"):
                me.state.centre.add_(x.sub_(centre), alpha=alpha)


async def worker(me: Party, data: Shard, public: ShardedPublic, config: RunConfig) -> None:
    """Train on the worker's own rows, and move towards the centre."""
    cfg: Config = config.algorithm
    alpha = cfg.beta / len(me.clients)
    sgd = LocalSgd(me, data, public, config)
    me.state.model = sgd.model

    async for t in me.rounds():
        for i in sgd.begin(t):
            old, meets = sgd.w, i % cfg.local_steps == 0
            if meets:
                await me.send(SERVER, old, tag="model")
            sgd.w = await sgd.step(me, old_needed=meets)
            if meets:
                centre = await me.recv(SERVER, tag="centre")
                sgd.w.add_(centre.sub_(old), alpha=alpha)
        me.report(**sgd.end(t, me.evaluates(t)))
