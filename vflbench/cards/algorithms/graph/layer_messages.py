"""What methods that split a graph network show to whom: entries of `EXPOSES` that they share."""

from vflbench.types import Given, Implied, Sent

MEAN = ("summed", "aggregate", "avg")  # algorithm.aggregate=cat puts the parts side by side
ROWS = ("gaussian_embedding", "edge_rr.row_epsilon")
EDGES_OR_ROWS = ("gaussian_embedding", "edge_rr")  # all that a client says follows from the edges that it shows
MESSAGES = (
    Sent("batch", "server", "client", "ids", "all"),
    Sent("nodes", "client", "server", "ids", "client", note="a batch with the client's sampled neighbours"),
    Sent("union", "server", "client", "ids", "client", note="sampled nodes of all clients, united"),
    Sent("embedding", "client", "server", "embeddings", "client", noised=ROWS, served=True),
    Sent("aggregate", "server", "client", "embeddings", "client", form=MEAN, noised=ROWS, served=True),
    Given("client", "all", "ids", "the node ids of every split"),
)
# of methods with exact gradients
GRADIENTS = (
    Sent("gradient", "client", "server", "gradients", "client", noised=ROWS),
    Sent("backward", "server", "client", "gradients", "client", form=MEAN, noised=ROWS),
)
# where clients do not have all edges anyway
EDGES = (
    Implied(
        "server", "client", "edges", ("batch", "nodes"), "edge_inference",
        "neighbours are sampled together with a batch's node, again and again", noised=("edge_rr",),
    ),
    Implied(
        "server", "client", "edges", ("embedding",), "edge_inference",
        "attack.source=embeddings: rows of neighbours are alike", noised=EDGES_OR_ROWS,
    ),
    Implied(
        "client", "client", "edges", ("aggregate",), "argued",
        "rows of neighbours are alike in the mean, too: as edge_inference from embeddings", noised=EDGES_OR_ROWS,
    ),
)  # fmt: skip
