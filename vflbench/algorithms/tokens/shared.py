"""What the methods with tokens share beside messages: blocks, batches, step sizes, averages, checks of the task.

A token is a shared estimate of the model. `Glm` and `SplitClient` have one interface: theta, represent, visit. So have
`GlmServer` and `SplitServer`: token, update.
"""

import functools
import logging
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from vflbench.cards.algorithms.tokens.shared import OWN_PENALTY, NetworkKeys
from vflbench.data.tasks import AlignedPart, AlignedPublic, AlignedTask, JoinedPart
from vflbench.federation import topology
from vflbench.federation.party import SERVER, Party, PartySpec, Program, party_names
from vflbench.federation.topology import Topology
from vflbench.models import glm
from vflbench.models.glm import Glm
from vflbench.models.split_network import SplitClient, SplitServer
from vflbench.privacy import serving
from vflbench.seeding import stream
from vflbench.types import (
    DEVICES,
    ConfigError,
    PrivacyConfig,
    Problem,
    RunConfig,
    convex_problem,
    refuse,
)

NETWORK_LR = 0.01  # learning rate of networks, where lr is null

log = logging.getLogger(__name__)
NO_OBJECTIVE = "{} needs a convex objective (ridge, sparse logistic); mtcd and svfl also train networks"


class GlmServer(torch.nn.Module):
    """The server where there is no fusion model: it sums up."""

    def start(self, samples: int, parties: int) -> list[np.ndarray]:
        """The representations at theta = 0, which no client needs to send."""
        return [np.zeros(samples)] * parties

    def token(self, representations: Sequence[np.ndarray]) -> np.ndarray:
        """The sum u = sum_k X_k theta_k."""
        return sum(representations[1:], start=representations[0].copy())

    def update(self, token: np.ndarray, rows: np.ndarray | None, steps: int, lr: float) -> None:
        """Do nothing: there is no theta_0."""


def parties(
    task: AlignedTask, server: Program, client: Program, planned: Sequence[np.ndarray | None], **known: Any
) -> dict[str, PartySpec]:
    """The server, which has the labels for networks, and one client per block of features, with all labels.

    Parameters
    ----------
    planned : each client's, as `published.planned` gives it.
    known : arguments that all programs get.
    """
    labels = JoinedPart((), task.labels) if task.objective is None else None
    specs = {SERVER: PartySpec(partial(server, **known), labels, role="server")}
    for k, name in enumerate(party_names("client", task.parties)):
        specs[name] = PartySpec(partial(client, planned=planned[k], **known), task.part(k, share_labels=True))
    return specs


def make_client(me: Party, data: AlignedPart, public: AlignedPublic, config: RunConfig, model: Any = None) -> Any:
    """A client's block; `model` is what `split_network.resolve` returns."""
    if public.objective is not None:
        assert data.labels is not None
        return Glm(data.features, data.labels, public.objective)
    return SplitClient(me.clients.index(me.name), data, public, config, model, me.device)


def make_server(data: JoinedPart | None, public: AlignedPublic, config: RunConfig, model: Any, device: str) -> Any:
    """The server's part; `data` has the labels where there is a fusion model."""
    return GlmServer() if data is None else SplitServer(data.labels, public, config, model, device)


# --- batches ----------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=8)
def batch(seed: int, round: int, samples: int, size: int | None) -> np.ndarray | None:
    """The samples of `round`, (B,) int64; None: all of them.

    They are drawn without replacement, from a seed that all parties share.
    """
    if size is None or size >= samples:
        return None
    return np.sort(stream(seed, f"batches/{round}").choice(samples, size, replace=False))


def epoch(round: int, samples: int, size: int | None) -> float:
    """How often each sample was seen after `round`, on average."""
    return round * min(size or samples, samples) / samples


# --- step sizes -------------------------------------------------------------------------------------------------------


def client_lr(cfg: Any, block: Any, samples: int) -> float:
    """A client's step size: algorithm.lr, or where that is null 1 / L_k, and 0.01 for networks.

    For batches of B samples 1 / L_k is multiplied by B / N: larger steps are not stable.
    """
    if cfg.lr is not None:
        return float(cfg.lr)
    if not isinstance(block, Glm):
        return NETWORK_LR
    size = cfg.batch_size if isinstance(cfg, NetworkKeys) and cfg.batch_size else samples
    return min(size, samples) / samples / max(block.smoothness, 1e-300)


def lr_of(config: RunConfig, lr: float, round: int, samples: int) -> float:
    """The step size of `round`: it starts at `lr`, and falls as algorithm.halve_every and algorithm.anneal say."""
    cfg: NetworkKeys = config.algorithm
    if cfg.anneal:
        assert config.rounds is not None  # decided by the runner
        return lr * (0.01 + 0.99 * (1 + math.cos(math.pi * (round - 1) / config.rounds)) / 2)
    if cfg.halve_every is None:
        return lr
    return lr * 0.5 ** int(epoch(round - 1, samples, cfg.batch_size) / cfg.halve_every + 1e-9)


class Lanczos:
    """The largest eigenvalue of sum_k X_k X_k^T, found by a coordinator that knows no X_k and asks for products.

    It multiplies `vector` by the sum and hands the product to `take`, step by step. Full reorthogonalisation.
    """

    def __init__(self, samples: int, rng: np.random.Generator) -> None:
        start = rng.standard_normal(samples)
        self.basis = [start / np.linalg.norm(start)]
        self.diagonal: list[float] = []
        self.beside: list[float] = []

    @property
    def vector(self) -> np.ndarray:
        """The vector to multiply next, (N,)."""
        return self.basis[-1]

    def take(self, product: np.ndarray) -> None:
        """Take the product of `vector`, (N,)."""
        self.diagonal.append(float(self.vector @ product))
        for _ in range(2):
            for v in self.basis:
                product = product - (v @ product) * v
        size = float(np.linalg.norm(product))
        self.beside.append(size)
        self.basis.append(product / size if size > 0 else product)

    def bound(self) -> float:
        """The largest Ritz value plus its residual.

        An eigenvalue lies between the two. It is mostly the largest one, and within a few % of the result.
        """
        beside = self.beside[: len(self.diagonal) - 1]
        values, vectors = np.linalg.eigh(np.diag(self.diagonal) + np.diag(beside, 1) + np.diag(beside, -1))
        return float(values[-1] + self.beside[-1] * abs(vectors[-1, -1]))


def warn_of_steps(task: AlignedTask, cfg: Any) -> None:
    """Log a warning where cluster weights meet a step beyond 1 / (L M), M = Q (S + 1): the order of theorem 1's bound.

    It warns for convex objectives only: the L of a network is not known.
    """
    if cfg.weights != "cluster" or task.objective is None:
        return
    updates = cfg.local_steps * (cfg.hops + 1)
    loss = glm.Loss(task.objective, task.labels)
    blocks = [np.asarray(block, dtype=np.float64) for block in task.features]
    whole = loss.curvature * glm.largest_eigenvalue(np.concatenate(blocks, axis=1)) + loss.decay
    samples = len(task.labels)
    share = min(cfg.batch_size or samples, samples) / samples  # as in client_lr
    lr = cfg.lr
    if lr is None:
        lr = share / max(loss.curvature * max(map(glm.largest_eigenvalue, blocks)) + loss.decay, 1e-300)
    if lr > 1 / (whole * updates):
        log.warning(
            "algorithm.lr=%.3g%s is beyond 1 / (L M) = %.3g, the order of the largest step that is known to converge "
            "with algorithm.weights=cluster and M = %d updates a token between syncs: it may DIVERGE. Lower lr, hops "
            "or local_steps, or use algorithm.weights=average.",
            lr,
            "" if cfg.lr is not None else " (1 / L_k, its default)",
            1 / (whole * updates),
            updates,
        )


def warn_of_pieces(graph: Topology) -> None:
    """Log a warning where a method without a server runs on a graph that is not connected."""
    if len(graph.components) > 1:
        log.warning(
            "The clients fall into %d pieces that no edge joins (%s is in another one than %s): without a server, and "
            "without messages between them, this method cannot reach the minimum. Use another topology.",
            len(graph.components),
            graph.components[1][0],
            graph.components[0][0],
        )


# --- averages ---------------------------------------------------------------------------------------------------------


def synchronised(theta: Any, copies: Mapping[int, Any], tokens: int, weights: str) -> Any:
    """The value of theta_k after a sync, given its value at the last one and the copies that tokens left behind.

    Parameters
    ----------
    weights : `cluster`: take the copy of the one token that may come here. `average`: the mean over all tokens, where
        those that did not come count with `theta`. `visitors`: the mean over those that came.
    """
    first, *others = (copies[token] for token in sorted(copies))
    total = sum(others, start=first)
    if weights == "average":
        return (total + (tokens - len(copies)) * theta) / tokens
    return total if len(copies) == 1 else total / len(copies)


# --- scores -----------------------------------------------------------------------------------------------------------


async def score(me: Party, part: Any, t: int, privacy: PrivacyConfig) -> None:
    """At the end of round t, report what is scored: a convex block's own part, or a network's predictions.

    For networks, clients send held-out representations, and the server's fusion model predicts.
    """
    if not me.evaluates(t):
        return
    if isinstance(part, Glm):
        me.report(**part.score())
        return
    for way in serving.ways(privacy):
        async with me.evaluating(priced=way.chosen):
            if isinstance(part, SplitClient):
                held_out = serving.served(me, part.held_out_representations(), way.noisy)
                await me.send(SERVER, held_out, tag="representation")
            elif isinstance(part, SplitServer):
                way.report(me, part.predict(await me.recv_all(me.clients, tag="representation")))


# --- checks -----------------------------------------------------------------------------------------------------------


ONLY_RIDGE = "minimises a quadratic: use ridge regression with alpha above 0, or mtcd, stcd, svfl, dcpa"


def check_ridge(config: RunConfig) -> list[Problem]:
    """A problem where the data set, before it is loaded, is no ridge regression."""
    problem = convex_problem(config.dataset)
    if problem in (None, "ridge"):
        return []
    return [Problem("dataset.problem", problem, f"{config.algorithm.name} {ONLY_RIDGE}")]


def apart(config: RunConfig, graph: Topology) -> list[Problem]:
    """A problem where not all clients have a path to each other."""
    if len(graph.components) == 1:
        return []
    first, second = (names[0] for names in graph.components[:2])
    allowed = f"no path joins {first} and {second}: {config.algorithm.name} needs a connected graph"
    return [Problem("topology", config.topology.name, allowed)]


def ridge_graph(task: AlignedTask, config: RunConfig) -> tuple[list[str], Topology]:
    """The clients of a ridge regression without a server, and their graph.

    Raises
    ------
    ConfigError : the task is no ridge regression, or the graph is not connected.
    """
    check_convex(task, config)
    assert task.objective is not None
    if task.objective.kind != "ridge" or not task.objective.weight > 0:
        raise ConfigError([Problem("dataset", task.name, f"{config.algorithm.name} {ONLY_RIDGE}")])
    names = party_names("client", task.parties)
    graph = topology.build(config.topology, [], names, config.seed)
    refuse(apart(config, graph))
    return names, graph


def devices(task: AlignedTask, config: RunConfig) -> tuple[str, ...]:
    """The devices that these methods compute on: convex objectives are NumPy's (models/glm.py)."""
    return DEVICES if task.objective is None else ("cpu",)


def check_parties(task: AlignedTask, config: RunConfig) -> None:
    """Check that algorithm.parties is the task's number: topology and walks were checked for it.

    Raises
    ------
    ConfigError : it is not.
    """
    if task.parties != config.algorithm.parties:
        allowed = f"{task.name} has {task.parties} parties: use that"
        raise ConfigError([Problem("algorithm.parties", config.algorithm.parties, allowed)])


def check_objective(config: RunConfig) -> list[Problem]:
    """A problem where the data set, before it is loaded, says that it has no convex objective; see `check_convex`."""
    if convex_problem(config.dataset):
        return []
    return [Problem("dataset", config.dataset.name, NO_OBJECTIVE.format(config.algorithm.name))]


def check_convex(task: AlignedTask, config: RunConfig) -> None:
    """Check a task of a method that needs a convex objective.

    Raises
    ------
    ConfigError : the task has none, or another number of parties.
    """
    check_parties(task, config)
    if task.objective is None:
        raise ConfigError([Problem("dataset", task.name, NO_OBJECTIVE.format(config.algorithm.name))])


def check_task(task: AlignedTask, config: RunConfig) -> None:
    """Check a task of a method that also trains networks.

    Raises
    ------
    ConfigError : it has another number of parties, or a convex objective while algorithm.aggregation is not `sum`.
    """
    check_parties(task, config)
    if task.objective is not None and config.algorithm.aggregation != "sum":
        allowed = "a convex objective is a function of the sum of X_k theta_k: use sum"
        raise ConfigError([Problem("algorithm.aggregation", config.algorithm.aggregation, allowed)])
    if task.objective is not None and config.algorithm.weight_decay:
        raise ConfigError([Problem("algorithm.weight_decay", config.algorithm.weight_decay, OWN_PENALTY)])
