"""`privacy=rr_bins`: randomised response on the bin number of every cell that is sent.

Tian et al., "FederBoost", arXiv 2011.02796, after Warner 1965. A cell of a column with b bins keeps its bin with
probability e^eps / (e^eps + b - 1); otherwise it shows another one, each as likely. That is eps-DP for the cell, and d
times eps for a row of d columns (basic composition). A column of one bin tells nothing. `privacy.epsilon` is the
row's, as the unit of all mechanisms on features is a row: its columns share it equally.

An algorithm that declares `rr_bins` calls `me.privacy.respond(codes, last, me.secret_rng("noise"))` once, and sends
what it gives. Held-out rows are served as they are, or under `serving=noisy` as `noised` gives them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vflbench.cards.privacy.rr_bins import Config
from vflbench.privacy import keys
from vflbench.privacy.mechanisms import Facts
from vflbench.seeding import SecretStream
from vflbench.types import FederationError


def make(config: Config, facts: Facts) -> RandomisedBins:
    """The mechanism of one party."""
    return RandomisedBins(config.epsilon, config.cell_epsilon)


def randomised(values: np.ndarray, most: int, epsilon: float, rng: np.random.Generator | SecretStream) -> np.ndarray:
    """Randomised response on `values` (n,), whole numbers from 0 to `most`: each is epsilon-DP."""
    keeps = rng.random(len(values)) < 1 / (1 + most * np.exp(-epsilon))
    # another value: 1 to `most` steps on, round the circle of values
    step = 1 + np.minimum((rng.random(len(values)) * most).astype(np.int64), most - 1)
    shown: np.ndarray = np.where(keeps | (most == 0), values, (values + step) % (most + 1))
    return shown


class RandomisedBins:
    """Randomised response on bin numbers; one object per party, for one release.

    Parameters
    ----------
    epsilon : of a row.
    cell_epsilon : of a cell, instead.
    """

    name = "rr_bins"

    def __init__(self, epsilon: float | None = None, cell_epsilon: float | None = None) -> None:
        self.epsilon, self.cell_epsilon = epsilon, cell_epsilon
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
        if self.epsilon is not None:
            self.cell_epsilon = self.epsilon / max(self.columns, 1)
        return self.noised(codes, last, rng)

    def noised(self, codes: np.ndarray, last: np.ndarray, rng: np.random.Generator | SecretStream) -> np.ndarray:
        """As `respond`, without counting, after it: of held-out rows."""
        assert self.cell_epsilon is not None  # one of the two is given, and `respond` has shared `epsilon` out
        shown = codes.copy()
        for j, most in enumerate(last.astype(np.int64)):
            shown[:, j] = randomised(codes[:, j], most, self.cell_epsilon, rng)
        return shown

    def spent(self) -> dict[str, Any]:
        """What a row has spent: the epsilon of a cell for each of its columns."""
        asked, cell = self.epsilon, self.cell_epsilon or 0.0
        epsilon = (self.columns * cell if asked is None else asked) if self.columns else 0.0
        return keys.reported(
            None if asked is None else {"epsilon": asked},
            mechanism=self.name,
            epsilon=epsilon,
            one_prediction={"epsilon": epsilon, "mu": None},
            delta=0.0,
            unit="one row of one passive party",
            neighbouring="replace_one",
            covers="transcript",
            not_covered=[
                "bins' edges, which are quantiles taken without noise, and the number of bins",
                "labels",
                "evaluation exchanges",
            ],
            accountant="pure",
            releases={"planned": 1, "done": int(self.columns > 0)},
            cell_epsilon=self.cell_epsilon,
            columns=self.columns,
        )

    def state_dict(self) -> dict[str, Any]:
        """The state that a checkpoint keeps."""
        return {"columns": self.columns, "cell_epsilon": self.cell_epsilon}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take the state back from a checkpoint."""
        self.columns, self.cell_epsilon = state["columns"], state.get("cell_epsilon", self.cell_epsilon)
