"""GLASU."""

from typing import Literal

from vflbench.cards.algorithms import codecs
from vflbench.cards.algorithms.graph import graph_methods, layer_messages
from vflbench.cards.algorithms.graph.graph_methods import AggregationKeys
from vflbench.defaults import from_conf
from vflbench.types import AlgorithmInfo, Given, Interval, Problem, RunConfig

ALGORITHM = AlgorithmInfo(
    name="glasu",
    summary="graph networks over vertically split graphs: aggregate after K of L layers, then Q local updates with "
    "stale parts",
    paper="Zhang, Hong, Chen 2023, arXiv 2303.09531",
    label="GLASU",
    place=0,
    **graph_methods.FAMILY,
    privacy=("none", "gaussian_embedding", "edge_rr"),
    attacks=("none", "edge_inference"),
    noisy_serving=True,
    # any codec: rounded aggregates are stale ones with noise; sampled nodes differ every time, so nothing is remembered
    assumes=("aligned_rows", "labels"),
)
EXPOSES = (
    *layer_messages.MESSAGES,
    *layer_messages.EDGES,
    Given("client", "client", "edges", "all edges before any were lost", when=("sampling", "undropped")),
)
SEARCH = {
    **graph_methods.STEPS,
    "algorithm.local_steps": Interval(1, 16, log=True, int=True),
    **graph_methods.AGGREGATIONS,
    **graph_methods.NETWORK,
    **codecs.ROUNDING,
}


@from_conf()
class Config(AggregationKeys):
    """Keys of GLASU."""

    local_steps: int
    index_exchange: Literal["paper", "code"]
    sampling: Literal["own", "undropped"]


def check(config: RunConfig[Config]) -> list[Problem]:
    """What is wrong across keys."""
    problems = graph_methods.check(config)
    if config.algorithm.sampling == "undropped" and config.privacy.name == "edge_rr":
        allowed = "hides edges, and algorithm.sampling=undropped draws from all of them: use sampling=own"
        problems.append(Problem("privacy", "edge_rr", allowed))
    return problems
