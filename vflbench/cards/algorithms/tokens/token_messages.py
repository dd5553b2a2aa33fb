"""What methods with tokens, and their rivals, show to whom: entries of `EXPOSES` that they share."""

from vflbench.types import Given, Implied, Sent

NOISED = ("gaussian_embedding",)
SUM = ("summed", "aggregation", "sum")  # algorithm.aggregation=concat puts representations side by side
OPTIMUM = Given("all", "all", "sums", "of a convex problem the exact f*, from all data: it scores runs and stops them")
# with a server
UPLINK = Sent(
    "representation", "client", "server", "embeddings", "client", keys=("val", "test"), noised=NOISED, served=True
)
DOWNLINK = (
    Sent("token", "server", "client", "embeddings", "client", form=SUM, noised=NOISED),
    Sent("token", "server", "client", "parameters", "server", note="theta_0, of a network"),
)
STEPS = Implied(
    "server",
    "client",
    "features",
    ("representation",),
    "argued",
    "h changes by -eta X X' g in a round, and g follows from the token and labels: as gram_recovery",
    noised=NOISED,
)
# from client to client
HOP = Sent("token", "client", "client", "embeddings", "client", form=SUM, noised=NOISED)
VISITS = Implied(
    "client",
    "client",
    "embeddings",
    ("token",),
    "argued",
    "two tokens of known visits differ by what the clients between them changed",
    exact=True,
    noised=NOISED,
)
