"""LEASGD: leader-follower elastic averaging SGD, where lagging and leading workers meet in pairs and pull each other.

Cheng, Yu, Hu, Yan, Li, Li, Chen, arXiv 1811.11124. Of the longer version ("Towards decentralized deep learning with
differential privacy", 2019) we had only the abstract. Every worker has rows of its own and a whole model; there is no
server.

    paper                    here
    m, eta, tau, k           workers, lr, local_steps, recategorise_every
    t                        i, the iteration (t counts rounds here)
    rho, alpha = eta rho     rho, alpha
    p, beta = p alpha        workers - 1, (workers - 1) alpha, of a star
    leaders, followers       roles, one letter L or F per worker
    w^i_t, g^i_t             old, within sgd.step
    equation 3               sgd.w.add_(other - old, alpha)

Departures from the paper, and what it leaves open (values of eta, tau, k and alpha: the defaults are ours)
1. The follower pool is the largest with more leaders than followers: F = floor((m - 1) / 2), m >= 3. Initial models are
   equal.
2. Workers are ranked by a running mean of mini-batch losses: 0.9 of the mean so far and 0.1 of the latest. (The paper
   says "loss value", but not which.) At t = 0 the loss is that of a batch drawn only for ranking. ranking=validation
   ranks by a part of the worker's own rows (validation_fraction) that it does not train on. ranking=noisy: see 5.
3. The elected worker announces all roles to all workers (m bytes a message, not one bit). Each worker then draws the
   matching of every exchange from the common stream `topology`, without further messages.
4. mode=star is the system that Proposition 1 analyses: the worker with the highest loss follows, and all others lead.
   Each leader meets the follower.
5. With privacy=dp_sgd a worker sends the noisy mean loss of a random batch of its own (ranking=noisy). A loss of an
   example counts as ranking_clip at most. Losses have a budget of their own (ranking_epsilon), and models get what is
   left of epsilon. With another ranking models carry noise, but losses do not: these, and so the roles, are outside of
   epsilon, and `covers` says `model`.
6. L2 (weight_decay) is part of g, but with privacy=dp_sgd it is neither clipped nor noised. (The paper puts it into the
   loss, whose gradient is then clipped.) It depends on the rows only through w, so epsilon is the same. The losses of 2
   are without it.
7. The paper clips a worker's whole gradient (equation 4). Here privacy=dp_sgd clips every example's gradient, draws
   Poisson batches and accounts by RDP; clip_unit=batch is equation 4 (privacy/examples.py).
8. The asynchronous version is in leasgd_async.py.
9. ranking=random is ours, to tell what ranks are worth: as many pairs, drawn anew for each exchange, and no losses.
"""

import functools
from dataclasses import replace
from typing import Any

import numpy as np

from vflbench import seeding
from vflbench.algorithms.gossip import worker_sgd
from vflbench.algorithms.gossip.worker_sgd import LocalSgd, ranked
from vflbench.cards.algorithms.gossip.leasgd import Config, elastic
from vflbench.cards.privacy.keys import least_epsilon
from vflbench.data.tasks import Shard, ShardedPublic, ShardedTask
from vflbench.federation.party import Party, PartySpec, party_names
from vflbench.privacy import examples, keys
from vflbench.privacy.examples import NoisyScalars
from vflbench.types import ConfigError, Problem, RunConfig


def decide(task: ShardedTask, config: RunConfig[Config]) -> tuple[RunConfig[Config], dict[str, Any]]:
    """The configuration with its ranking, and with the budget of the losses.

    Raises
    ------
    ConfigError : the losses' budget leaves nothing of epsilon to models.
    """
    cfg = config.algorithm
    private = config.privacy.name == "dp_sgd"
    how = cfg.ranking or ("noisy" if private else "running")
    budget, whole = cfg.ranking_epsilon, vars(config.privacy).get("epsilon")
    if how == "noisy" and budget is not None and whole is not None and budget >= whole:
        allowed = f"is a part of privacy.epsilon={whole:g}, and models need some of it: use less"
        raise ConfigError([Problem("algorithm.ranking_epsilon", budget, allowed)])
    if how == "noisy" and budget is None:
        budget = losses_share(config.privacy)
    return replace(config, algorithm=replace(cfg, ranking=how, ranking_epsilon=budget)), {}


def losses_share(privacy: Any) -> float:
    """What losses may spend by default: an eighth of epsilon, or 1 where the noise is given.

    RDP proves little of a small epsilon. There it is twice the least that can be proven, at most half of epsilon.
    """
    asked = (keys.target(privacy) or {"epsilon": keys.EPSILON})["epsilon"]
    least = least_epsilon(keys.known_delta(privacy))
    return max(asked / 8, min(2 * least, asked / 2))


def parties(task: ShardedTask, config: RunConfig[Config]) -> dict[str, PartySpec]:
    """One worker per shard.

    Raises
    ------
    ConfigError : as `shared.check_data`; or a worker keeps all its rows for ranking; or no noise on losses is enough.
    """
    cfg, public = config.algorithm, task.public
    trained = [rows - kept_rows(cfg, rows) for rows in public.rows]
    if min(trained) < 1:
        which = party_names("worker", len(trained))[int(np.argmin(trained))]
        why = f"{which} has one row, and would keep it for ranking and train on none"
        raise ConfigError([Problem("algorithm.ranking", cfg.ranking, f"{why}: fewer workers, or another ranking")])
    if cfg.ranking != "noisy":
        return worker_sgd.workers(worker, task, config, trained=trained)
    losses = {rows: (noisy_losses(config, public, rows).planned_history,) for rows in sorted(set(trained))}
    return worker_sgd.workers(worker, task, config, trained=trained, beside=losses.__getitem__)


async def worker(me: Party, data: Shard, public: ShardedPublic, config: RunConfig[Config]) -> None:
    """Train on the worker's own rows, and at each exchange meet a partner (a star's follower: all leaders)."""
    cfg = config.algorithm
    tau, alpha, own = cfg.local_steps, elastic(cfg), me.clients.index(me.name)
    every = tau * (1 if cfg.ranking == "random" else cfg.recategorise_every)
    kept = kept_rows(cfg, len(data.labels))
    if me.privacy is not None:
        cover_losses(me, public, config, len(data.labels) - kept)
    sgd = LocalSgd(me, data, public, config, kept)
    me.state.model, me.state.sgd, me.state.roles = sgd.model, sgd, ""

    async for t in me.rounds():
        for i in sgd.begin(t):
            if i % every == 0:
                me.state.roles = await roles_of(me, i, sgd, cfg, config.seed)
            partners = meetings(me.state.roles, cfg.mode, config.seed, i)[own] if i % tau == 0 else ()
            names, old = [me.clients[j] for j in partners], sgd.w
            await me.send_many(names, old, tag="model")
            sgd.w = await sgd.step(me, old_needed=bool(names))
            for other in await me.recv_all(names, tag="model"):  # equation 3: both sides use old values
                sgd.w.add_(other.sub_(old), alpha=alpha)
        me.report(**sgd.end(t, me.evaluates(t)))


# --- who leads --------------------------------------------------------------------------------------------------------


async def roles_of(me: Party, i: int, sgd: LocalSgd, cfg: Config, seed: int) -> str:
    """All workers' roles from now on: by their losses, or drawn from the common stream without a message."""
    if cfg.ranking != "random":
        return await recategorise(me, i, await ranking_loss(me, cfg, sgd), cfg, seed)
    drawn = seeding.stream(seed, f"topology/roles/{i}").permutation(len(me.clients))
    return ranked(drawn.tolist(), followers_of(cfg, len(me.clients)))


def followers_of(cfg: Config, workers: int) -> int:
    """How many of the workers follow."""
    return 1 if cfg.mode == "star" else (workers - 1) // 2


async def ranking_loss(me: Party, cfg: Config, sgd: LocalSgd) -> float:
    """The loss that this worker is ranked by."""
    if cfg.ranking == "validation":
        return float(await sgd.loss(me, *sgd.kept))
    if cfg.ranking == "noisy":
        secret = me.privacy
        rows = secret.sample(me.secret_rng("ranking"))
        x, y, _ = sgd.random_batch(rows)
        losses = (await sgd.row_losses(me, x, y))[: len(rows)]
        noisy: float = secret.scalars.release(losses.double().cpu().numpy(), secret.expected, me.secret_rng("ranking"))
        return noisy
    if not sgd.running.isnan():
        return float(sgd.running)
    rows = me.rng("ranking").choice(sgd.rows, sgd.batch, replace=False)
    return float(await sgd.loss(me, sgd.x[rows], sgd.y[rows]))


async def recategorise(me: Party, i: int, loss: float, cfg: Config, seed: int) -> str:
    """All workers' roles from now on.

    One worker, drawn from the common stream, collects the losses and announces the roles.
    """
    elected = me.clients[int(seeding.stream(seed, f"topology/elected/{i}").integers(len(me.clients)))]
    if me.name != elected:
        await me.send(elected, loss, tag="loss")
        announced: str = await me.recv(elected, tag="roles")
        return announced
    others = [name for name in me.clients if name != me.name]
    losses = dict(zip(others, await me.recv_all(others, tag="loss"), strict=True)) | {me.name: loss}
    roles = ranked([losses[name] for name in me.clients], followers_of(cfg, len(me.clients)))
    await me.send_many(others, roles, tag="roles")
    return roles


@functools.lru_cache(maxsize=64)  # all workers ask for the same
def meetings(roles: str, mode: str, seed: int, i: int) -> tuple[tuple[int, ...], ...]:
    """The workers that each worker meets in iteration i.

    Each follower meets a leader of its own, at random. In a star all leaders meet the follower.
    """
    followers, leaders = (np.flatnonzero([role == kind for role in roles]).tolist() for kind in "FL")
    met: list[tuple[int, ...]] = [()] * len(roles)
    if mode == "star":
        met = [tuple(followers)] * len(roles)
        met[followers[0]] = tuple(leaders)
        return tuple(met)
    chosen = seeding.stream(seed, f"topology/matching/{i}").permutation(leaders)[: len(followers)].tolist()
    for follower, leader in zip(followers, chosen, strict=True):
        met[follower], met[leader] = (leader,), (follower,)
    return tuple(met)


def kept_rows(cfg: Config, rows: int) -> int:
    """How many of a worker's rows are used only for ranking (ranking=validation)."""
    return max(1, int(cfg.validation_fraction * rows)) if cfg.ranking == "validation" else 0


def cover_losses(me: Party, public: ShardedPublic, config: RunConfig[Config], rows: int) -> None:
    """Give the losses a budget of their own, or record that no budget covers them.

    It comes before the noise on gradients is calibrated, which gets what is left.
    """
    if config.algorithm.ranking == "noisy":
        me.privacy.scalars = noisy_losses(config, public, rows)
    elif config.algorithm.ranking != "random":
        me.privacy.not_covered = ["the losses that workers send to be ranked by, and what follows from their ranks"]


def noisy_losses(config: RunConfig[Config], public: ShardedPublic, rows: int) -> NoisyScalars:
    """The noise on the losses that a worker with `rows` rows sends in the whole run.

    Raises
    ------
    ConfigError : no noise reaches the budget.
    """
    cfg, privacy = config.algorithm, config.privacy
    releases = -(-worker_sgd.planned_steps(config, public) // (cfg.local_steps * cfg.recategorise_every))
    rate = examples.sample_rate(rows, cfg.batch_size)
    delta = keys.known_delta(privacy)
    assert cfg.ranking_epsilon is not None  # `decide`
    return NoisyScalars(cfg.ranking_clip, cfg.ranking_epsilon, delta, rate, releases, privacy.accountant)
