"""Checks that a method with tokens, or a rival of it, can solve the task on the graph of its clients."""

import logging

from vflbench.cards.algorithms.tokens.token_methods import OWN_PENALTY, Keys, NetworkKeys
from vflbench.data.tasks import AlignedTask
from vflbench.federation import topology
from vflbench.federation.party import party_names
from vflbench.federation.topology import Topology
from vflbench.types import (
    DEVICES,
    ConfigError,
    Problem,
    RunConfig,
    convex_problem,
    refuse,
)

log = logging.getLogger(__name__)

NO_OBJECTIVE = "{} needs a convex objective (ridge, sparse logistic); mtcd and svfl also train networks"


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


ONLY_RIDGE = "minimises a quadratic: use ridge regression with alpha above 0, or mtcd, stcd, svfl, dcpa"


def check_ridge(config: RunConfig[Keys]) -> list[Problem]:
    """A problem where the data set, before it is loaded, is no ridge regression."""
    problem = convex_problem(config.dataset)
    if problem in (None, "ridge"):
        return []
    return [Problem("dataset.problem", problem, f"{config.algorithm.name} {ONLY_RIDGE}")]


def apart(config: RunConfig[Keys], graph: Topology) -> list[Problem]:
    """A problem where not all clients have a path to each other."""
    if len(graph.components) == 1:
        return []
    first, second = (names[0] for names in graph.components[:2])
    allowed = f"no path joins {first} and {second}: {config.algorithm.name} needs a connected graph"
    return [Problem("topology", config.topology.name, allowed)]


def ridge_graph(task: AlignedTask, config: RunConfig[Keys]) -> tuple[list[str], Topology]:
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


def devices(task: AlignedTask, config: RunConfig[Keys]) -> tuple[str, ...]:
    """The devices that these methods compute on: convex objectives are NumPy's (models/glm.py)."""
    return DEVICES if task.objective is None else ("cpu",)


def check_parties(task: AlignedTask, config: RunConfig[Keys]) -> None:
    """Check that algorithm.parties is the task's number: topology and walks were checked for it.

    Raises
    ------
    ConfigError : it is not.
    """
    if task.parties != config.algorithm.parties:
        allowed = f"{task.name} has {task.parties} parties: use that"
        raise ConfigError([Problem("algorithm.parties", config.algorithm.parties, allowed)])


def check_objective(config: RunConfig[Keys]) -> list[Problem]:
    """A problem where the data set, before it is loaded, says that it has no convex objective; see `check_convex`."""
    if convex_problem(config.dataset):
        return []
    return [Problem("dataset", config.dataset.name, NO_OBJECTIVE.format(config.algorithm.name))]


def check_convex(task: AlignedTask, config: RunConfig[Keys]) -> None:
    """Check a task of a method that needs a convex objective.

    Raises
    ------
    ConfigError : the task has none, or another number of parties.
    """
    check_parties(task, config)
    if task.objective is None:
        raise ConfigError([Problem("dataset", task.name, NO_OBJECTIVE.format(config.algorithm.name))])


def check_task(task: AlignedTask, config: RunConfig[NetworkKeys]) -> None:
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
