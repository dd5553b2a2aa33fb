"""What split learning shows to whom: entries of `EXPOSES` that its methods share."""

from vflbench.types import Given, Implied, Sent

SEEDED = Given("all", "all", "ids", "the rows of every batch are drawn from the run's seed, which all share")
KNOWN = Given("all", "active", "sizes", "how many rows and classes; attacks take the shares of classes as known")
HELD_OUT = ("val", "test")
# mechanisms that noise embeddings, gradients, labels
EMBEDDINGS = ("gdp_embedding", "embedding_and_label")
GRADIENTS = ("gaussian_gradient",)
LABELS = ("label_rr", "embedding_and_label")
# hub to hub: every organisation is one party, or its hub sends for its workers
EXPOSES = (
    Sent(
        "embedding", "passive", "active", "embeddings", "passive",
        keys=HELD_OUT, noised=EMBEDDINGS, served=True,
    ),
    Sent("gradient", "active", "passive", "gradients", "active", noised=GRADIENTS),
    Sent("embedding", "passive", "active", "timing", "passive", note="when it was made"),
    Sent("gradient", "active", "passive", "timing", "active", note="when it was made"),
    Implied(
        "passive", "active", "labels", ("gradient",), "label_inference",
        "of two classes: the side to which a row's gradient points", exact=True, noised=LABELS,
    ),
    Implied(
        "active", "passive", "features", ("embedding",), "embedding_inversion",
        "needs the party's answers to rows of its own", noised=EMBEDDINGS,
    ),
    SEEDED,
    KNOWN,
)  # fmt: skip
# workers work in pairs
PAIRED = (
    Sent("embedding", "passive_worker", "active_worker", "embeddings", "passive", noised=EMBEDDINGS),
    Sent("gradient", "active_worker", "passive_worker", "gradients", "active", noised=GRADIENTS),
    Sent(
        "embedding", "passive", "active", "embeddings", "passive",
        keys=HELD_OUT, times="per evaluation", noised=EMBEDDINGS, served=True,
    ),
    Implied(
        "passive", "active", "labels", ("gradient",), "argued",
        "of two classes: its workers' gradients together are those of vfl, on which label_inference is exact",
        exact=True, noised=LABELS,
    ),
    Implied(
        "active", "passive", "features", ("embedding",), "argued",
        "its workers' embeddings together are those of vfl, which embedding_inversion reads", noised=EMBEDDINGS,
    ),
    SEEDED,
    KNOWN,
)  # fmt: skip
# inside an organisation: a worker's parameters, and their mean; labels that were randomised once for all workers
REPLICAS = (
    Sent("labels", "active", "active_worker", "labels", "active", when=("privacy", *LABELS), times="once"),
    Sent("replica", "active_worker", "active", "parameters", "active"),
    Sent("model", "active", "active_worker", "parameters", "active"),
    Sent("replica", "passive_worker", "passive", "parameters", "passive"),
    Sent("model", "passive", "passive_worker", "parameters", "passive"),
)
