"""`privacy=embedding_and_label`: gdp_embedding at every client, and label_rr at the server that has the labels.

Each protects another unit: a passive party's embedding row, and the label of a training row. So there are two epsilons,
one beside the other. They are never added up.
"""

from __future__ import annotations

from vflbench.cards.privacy.embedding_and_label import Config
from vflbench.privacy import gdp, keys, label_rr
from vflbench.privacy.mechanisms import Facts

check_labels = label_rr.check_labels


def make(config: Config, facts: Facts) -> Embeddings:
    """The mechanism of a client; raises as gdp.made."""
    return gdp.made(Embeddings, config, facts)


def make_server(config: Config, facts: Facts) -> Labels:
    """The mechanism of the party that has the labels."""
    both = keys.EPSILON if config.epsilon is None else config.epsilon
    epsilon = both if config.label_epsilon is None else config.label_epsilon
    return Labels(config.name, epsilon, facts.classes, config.debias)


class Embeddings(gdp.GdpEmbedding):
    """As `GdpEmbedding`; what gradients tell of labels is the other half's."""

    name = "embedding_and_label"
    uncovered = ()


class Labels(label_rr.RandomisedLabels):
    """As `RandomisedLabels`; embeddings are the other half's."""

    uncovered = "features of the party with the labels, which the gradients that it sends depend on"
