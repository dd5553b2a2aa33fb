"""What methods over joins show to whom: entries of `EXPOSES` that they share."""

from vflbench.types import Given, Implied, Sent

OF_LABELS = ("label_dp", "tablepuppet")  # mechanisms that noise labels, parameters, predictions
OF_MODELS = ("dp_sgd", "tablepuppet")
OF_BOTH = ("tablepuppet.prediction_noise", "tablepuppet.split")  # labels and predictions: what comes of them, too
OF_PREDICTIONS = ("dp_sgd.prediction_noise", "dp_sgd.split", *OF_BOTH)
LABELS = Sent("labels", "client", "server", "labels", "client", times="once", noised=OF_LABELS)
# the table mapping, before the first round
TABLES = (
    Sent("keys", "client", "server", "ids", "client", form=("hashed",), times="once"),
    Sent("kinds", "client", "server", "sizes", "client", times="once", note="the type of each key"),
    LABELS,
    Sent("mapping", "server", "client", "ids", "all", times="once", note="which own rows join"),
    Sent("mapping", "server", "client", "sizes", "all", times="once", note="how often each own row joins (G)"),
    Sent("joined", "server", "client", "sizes", "all", times="once", note="rows of the join (N)"),
)
# every round, over tables or over aligned rows
LEARNING = (
    Sent("prediction", "client", "server", "embeddings", "client", noised=OF_PREDICTIONS),
    Sent("residual", "server", "client", "gradients", "all", noised=OF_BOTH),
    Implied(
        "client", "label_owner", "labels", ("residual",), "residual_labels",
        "the first residual tells the sum of the labels behind each own row; later ones correlate with it",
        exact=True, times="once", noised=OF_LABELS,
    ),
    Implied(
        "server", "client", "features", ("prediction",), "prediction_recovery",
        "of a linear model whose parameters are known", noised=OF_PREDICTIONS,
    ),
    Implied(
        "client", "client", "embeddings", ("residual",), "argued",
        "from round 2: a residual less labels and own predictions is the sum of the others' predictions",
        noised=OF_PREDICTIONS,
    ),
)  # fmt: skip
EXPOSES = (
    *TABLES,
    *LEARNING,
    Given("client", "client", "sums", "means and scales of a table's columns, over all of its parts"),
)
# of batches that the server draws at random
DRAWN = (
    Sent("rows", "server", "client", "ids", "all", when=("privacy", *OF_MODELS)),
    Sent(
        "releases", "server", "client", "sizes", "all", when=("privacy.split", True), times="once",
        note="how often the most asked row will be asked for",
    ),
)  # fmt: skip
BATCHES = (
    Sent("batches", "server", "client", "ids", "all", when=("privacy", "none", "label_dp"), times="once"),
    *DRAWN,
)
