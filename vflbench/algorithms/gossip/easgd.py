"""EASGD: workers and the centre variable of a parameter server pull each other.

Zhang, Choromanska, LeCun, arXiv 1412.6651, the synchronous method (section 2):

    x_i <- x_i - eta g_i - alpha (x_i - c),   c <- c + alpha sum_i (x_i - c)

every tau iterations, with old values on both sides. beta = m alpha; the paper suggests 0.9 for it.

Departures from the paper: the score is the mean over the workers' models, as for the other methods here, and not the
centre's; there is no momentum.
"""

from vflbench.algorithms.gossip import worker_sgd
from vflbench.algorithms.gossip.worker_sgd import LocalSgd
from vflbench.cards.algorithms.gossip.easgd import Config
from vflbench.data.tasks import Shard, ShardedPublic, ShardedTask
from vflbench.federation.party import SERVER, Party, PartySpec
from vflbench.models import classifiers
from vflbench.types import RunConfig


def parties(task: ShardedTask, config: RunConfig[Config]) -> dict[str, PartySpec]:
    """The server, and one worker per shard."""
    return {SERVER: PartySpec(server, role="server")} | worker_sgd.workers(worker, task, config)


async def server(me: Party, data: None, public: ShardedPublic, config: RunConfig[Config]) -> None:
    """Hold the centre variable, which starts where the workers start."""
    cfg = config.algorithm
    alpha, steps = cfg.beta / len(me.clients), worker_sgd.steps_per_round(cfg, public)
    me.state.centre = classifiers.flat(worker_sgd.initial_model(public, config)).to(me.device)

    async for t in me.rounds():
        for i in range((t - 1) * steps, t * steps):
            if i % cfg.local_steps:
                continue
            centre = me.state.centre
            await me.send_many(me.clients, centre, tag="centre")
            me.state.centre = centre.clone()
            for x in await me.recv_all(me.clients, tag="model"):
                me.state.centre.add_(x.sub_(centre), alpha=alpha)


async def worker(me: Party, data: Shard, public: ShardedPublic, config: RunConfig[Config]) -> None:
    """Train on the worker's own rows, and move towards the centre."""
    cfg = config.algorithm
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
