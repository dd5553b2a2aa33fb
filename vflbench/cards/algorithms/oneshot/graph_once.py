"""Features and edges of a graph, sent once."""

from typing import Annotated, Literal

from vflbench.cards.algorithms import codecs
from vflbench.cards.algorithms.graph import graph_methods, layer_messages
from vflbench.cards.algorithms.graph.graph_methods import Keys
from vflbench.defaults import from_conf
from vflbench.types import AlgorithmInfo, Count, Given, Implied, Interval, Range, Sent

ALGORITHM = AlgorithmInfo(
    name="graph_once",
    summary="each client sends features and edges, or propagated features, once; a server trains on them",
    paper="Wu et al. 2019, arXiv 1902.07153 (SGC), for form=propagated",
    label="Graph once",
    place=1,
    layouts=("graph",),
    divided_by="parties",
    reports=("predictions",),
    assumes=("aligned_rows",),
    models=("gcnii", "gcn", "gat", "residual_gcn", "pyg"),
    privacy=("none", "gaussian_embedding", "edge_rr"),
    one_shot=True,
)
RAW, Z = ("form", "raw"), ("form", "propagated")
EXPOSES = (
    Sent("features", "client", "server", "raw", "client", when=RAW, times="round 1", noised=layer_messages.ROWS),
    Sent("features", "client", "server", "edges", "client", when=RAW, times="round 1", noised=("edge_rr",)),
    Sent("features", "client", "server", "projection", "client", when=Z, times="round 1", noised=layer_messages.ROWS),
    Implied(
        "server", "client", "edges", ("features",), "argued", "propagated rows of neighbours are alike",
        times="round 1", when=Z, noised=layer_messages.EDGES_OR_ROWS,
    ),
    Sent("labels", "client", "server", "labels", "client", times="round 1"),
    Given("client", "all", "ids", "the node ids of every split"),
)  # fmt: skip
PROPAGATED = {"algorithm.form": "propagated"}
SEARCH = {
    "algorithm.form": ("raw", "propagated"),
    "algorithm.hops": Interval(1, 4, int=True, least=1, where=PROPAGATED),
    "algorithm.components": Interval(2, 32, log=True, int=True, where=PROPAGATED),
    **graph_methods.STEPS,
    **graph_methods.DROPOUT,
    **codecs.ROUNDING,
}
check = graph_methods.check


@from_conf()
class Config(Keys):
    """Keys of graph_once."""

    form: Literal["raw", "propagated"]
    hops: Annotated[int, Range(at_least=0)]
    components: Count
    head: Literal["mlp", "linear"]
