"""The hook `check` of methods with tokens, and of rivals, whose rules need the graph of the clients.

Their cards name these functions: a card imports no NumPy. Nothing here imports torch, so a configuration is checked
without it.
"""

from vflbench.algorithms.tokens import walks
from vflbench.algorithms.tokens.task_checks import apart, check_objective, check_ridge
from vflbench.cards.algorithms.tokens import dcpa as dcpa_card
from vflbench.cards.algorithms.tokens import mtcd as mtcd_card
from vflbench.cards.algorithms.tokens import stcd as stcd_card
from vflbench.cards.algorithms.tokens import svfl as svfl_card
from vflbench.cards.algorithms.tokens.token_methods import LANCZOS_STEPS, Keys, check_keys, check_networks
from vflbench.federation.party import SERVER
from vflbench.federation.topology import Topology, build_early, unreached
from vflbench.types import Problem, RunConfig, convex_problem


def mtcd(config: RunConfig[mtcd_card.Config]) -> list[Problem]:
    """What is wrong across keys, before any data is loaded."""
    graph, problems = build_early(config, [SERVER])
    return check_networks(config) + problems + check_tokens(graph, config.algorithm)


def check_tokens(graph: Topology | None, cfg: mtcd_card.Config) -> list[Problem]:
    """What is wrong with MTCD's tokens on `graph`, and with its edges to the server."""
    problems = walks.check(graph, cfg.tokens, cfg.hops, cfg.walk, cfg.weights == "cluster", cfg.start)
    return problems if graph is None else problems + unreached(graph)


def svfl(config: RunConfig[svfl_card.Config]) -> list[Problem]:
    """As `mtcd`, for SVFL."""
    graph, problems = build_early(config, [SERVER])
    problems += check_step(config, convex_problem(config.dataset) is not None)
    return check_networks(config) + problems + (unreached(graph) if graph is not None else [])


def check_step(config: RunConfig[svfl_card.Config], convex: bool) -> list[Problem]:
    """A problem where privacy meets the messages that find SVFL's step size."""
    if not convex or config.privacy.name == "none" or config.algorithm.lr is not None:
        return []
    allowed = (
        f"needs a number with privacy: without one clients send {LANCZOS_STEPS} products X_k X_k^T v, which no clip of "
        "a row bounds"
    )
    return [Problem("algorithm.lr", "null", allowed)]


def stcd(config: RunConfig[stcd_card.Config]) -> list[Problem]:
    """As `mtcd`, for STCD."""
    cfg = config.algorithm
    graph, problems = build_early(config, [])
    problems += check_objective(config)
    return check_keys(config) + problems + walks.check(graph, 1, cfg.hops, start=cfg.start)


def dcpa(config: RunConfig[dcpa_card.Config]) -> list[Problem]:
    """As `mtcd`, for DCPA."""
    _, problems = build_early(config, [])
    return check_keys(config) + problems + check_objective(config)


def ridge(config: RunConfig[Keys]) -> list[Problem]:
    """As `mtcd`, for methods of ridge regression on a connected graph."""
    graph, problems = build_early(config, [])
    problems += check_keys(config) + check_objective(config) + check_ridge(config)
    return problems + (apart(config, graph) if graph is not None else [])
