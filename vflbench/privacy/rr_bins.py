"""`privacy=rr_bins`: randomised response on the bin number of every cell that is sent.

Tian et al., "FederBoost", arXiv 2011.02796, after Warner 1965. A cell of a column with b bins keeps its bin with
probability e^eps / (e^eps + b - 1); otherwise it shows another one, each as likely. That is eps-DP for the cell, and d
times eps for a row of d columns (basic composition), as a column of one bin tells nothing.

An algorithm that declares `rr_bins` calls `me.privacy.respond(codes, last, me.secret_rng("noise"))` once, and sends
what it gives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from vflbench.privacy.mechanisms import Facts
from vflbench.seeding import SecretStream
from vflbench.types import FederationError, OptionInfo, PrivacyConfig, Range

OPTIONS = (OptionInfo("rr_bins", "randomised response on bin numbers, at an epsilon for each cell"),)


@dataclass
class Config(PrivacyConfig):
    """Keys of rr_bins."""

    name: str = "rr_bins"
    epsilon: Annotated[float, Range(above=0, at_most=100)] = 4.0  # of a cell; a row's is the sum over its columns


def make(config: Config, facts: Facts) -> RandomisedBins:
    """The mechanism of one party."""
    return RandomisedBins(config.epsilon)


class RandomisedBins:
    """Randomised response on bin numbers; one object per party, for one release."""

    name = "rr_bins"

    def __init__(self, epsilon: float) -> None:
        self.epsilon = epsilon
        self.columns = 0  # released, of more than one bin

    def respond(self, codes: np.ndarray, last: np.ndarray, rng: np.random.Generator | SecretStream) -> np.ndarray:
        """What is sent instead of the bin numbers (n, d) uint8; to be called once.

        Parameters
        ----------
        last : the largest bin number of each column, (d,).

        Raises
        ------
        FederationError : it is the second call.
        """
        if self.columns:
            raise FederationError("bins are released once: a second response would double a row's epsilon")
        self.columns = int((last > 0).sum())
        shown = codes.copy()
        for j, most in enumerate(last.astype(np.int64)):
            keeps = rng.random(len(codes)) < 1 / (1 + most * np.exp(-self.epsilon))
            # another bin: 1 to `most` steps on, round the circle of bins
            step = 1 + np.minimum((rng.random(len(codes)) * most).astype(np.int64), most - 1)
            shown[:, j] = np.where(keeps | (most == 0), codes[:, j], (codes[:, j] + step) % (most + 1))
        return shown

    def spent(self) -> dict[str, Any]:
        """What a row has spent: epsilon of each of its columns."""
        return {
            "mechanism": self.name,
            "epsilon": self.columns * self.epsilon,
            "delta": 0.0,
            "unit": "one row of one passive party",
            "neighbouring": "replace_one",
            "covers": "transcript",
            "not_covered": "bins' edges, which are quantiles taken without noise, and the number of bins; labels; "
            "evaluation exchanges",
            "cell_epsilon": self.epsilon,
            "columns": self.columns,
        }

    def state_dict(self) -> dict[str, Any]:
        """The state that a checkpoint keeps."""
        return {"columns": self.columns}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take the state back from a checkpoint."""
        self.columns = state["columns"]
