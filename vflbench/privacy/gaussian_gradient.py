"""`privacy=gaussian_gradient`: clip and Gaussian noise on every gradient row that goes to a passive party, in mu-GDP.

A gradient row is d loss / d z of one row's own loss and one passive party's embedding z of it. The loss of a batch is
the mean over its rows, so a row is sent divided by their number, and so is its noise:

    sent = (clip(g, C) + N(0, (sigma C)^2 I)) / rows of the batch

Two clipped rows are at most 2 C apart. One row is sent to each passive party once an epoch; a retry sends the same
noisy row again.

It is **not label DP**. The label of a row also trains the top network, and so moves the gradients of all other rows,
and every prediction. Use `label_rr` for that.

An algorithm that declares `gaussian_gradient` has a server that sends `me.privacy.protect(rows, ids, noise, norm=...)`
instead of the gradient rows of a batch; `norm` is C over the rows of the batch. Each row and receiver has an id of its
own. `max_releases` bounds how often one is sent.
"""

from __future__ import annotations

from typing import Any

from vflbench.cards.privacy.gaussian_gradient import Config
from vflbench.privacy import keys
from vflbench.privacy.gaussian import GaussianEmbedding
from vflbench.privacy.mechanisms import Facts
from vflbench.types import ConfigError, Problem


def make(config: Config, facts: Facts) -> None:
    """No mechanism: a client sends no gradients."""


def make_server(config: Config, facts: Facts) -> GaussianGradient:
    """The mechanism of the party that sends gradient rows.

    Raises
    ------
    ConfigError : the algorithm does not say how often a row is sent.
    """
    if not facts.max_releases:
        allowed = "needs an algorithm that says how often a gradient row is sent (max_releases)"
        raise ConfigError([Problem("privacy", config.name, allowed)])
    return GaussianGradient(config, facts.max_releases)


class GaussianGradient(GaussianEmbedding):
    """As `GaussianEmbedding`, for the gradient rows of a batch; one object per party.

    Parameters
    ----------
    releases : how often a row is sent to one passive party in the whole run: the number of epochs.
    """

    name = "gaussian_gradient"

    def __init__(self, config: Config, releases: int) -> None:
        sensitivity = keys.SENSITIVITY["replace_one"]
        noise = keys.noise_multiplier(config, sensitivity, releases)
        super().__init__(config.clip, noise, keys.known_delta(config), "replace_one", releases)
        self.target = keys.target(config)

    def spent(self) -> dict[str, Any]:
        """What the row that was sent most often has spent so far."""
        not_covered = [
            "labels: this is no label DP. A row's label also trains the top network, and moves other rows' gradients",
            "what passive parties learn together: each gets a gradient row of its own for every training row",
            "embeddings, which tell features",
            "evaluation exchanges",
            "which rows are in a batch, and how often a batch is tried again",
        ]
        if self.noise_multiplier == 0:
            not_covered.insert(0, "the gradients: they are clipped and get no noise")
        return super().spent() | {
            "unit": "one gradient row that one passive party gets, in all epochs together",
            "not_covered": not_covered,
        }
