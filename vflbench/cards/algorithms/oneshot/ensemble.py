"""An ensemble of clients that train alone."""

from vflbench.cards.algorithms.graph import graph_methods
from vflbench.defaults import from_conf
from vflbench.types import AlgorithmInfo, Sent

ALGORITHM = AlgorithmInfo(
    name="ensemble",
    summary="each client trains alone, and a server adds up their predictions; training sends nothing",
    paper="folklore; as a baseline of GLASU",
    label="Ensemble",
    place=2,
    layouts=("graph",),
    divided_by="parties",
    reports=("predictions",),
    assumes=("aligned_rows", "labels"),
    models=("gcnii", "gcn", "gat", "residual_gcn", "pyg"),
    exact="it sends predictions of held-out nodes only, which no codec compresses",
    refuses=(("any", "training sends nothing, and no mechanism covers votes of the evaluation"),),
    one_shot=True,
)
EXPOSES = (
    Sent(
        "prediction",
        "client",
        "server",
        "predictions",
        "client",
        keys=("val", "test"),
        times="per evaluation",
        served=True,
    ),
)
SEARCH = graph_methods.ALONE
check = graph_methods.check


@from_conf()
class Config(graph_methods.Keys):
    """Keys of the ensemble."""
