"""`privacy=gaussian_embedding`: clip and noise on every representation that a client sends, counted by row.

An algorithm that declares `gaussian_embedding` has to

- send `me.privacy.protect(rows, ids, me.secret_torch_rng("noise"))` instead of `rows`, for every representation that a
  client sends;
- put a party's *own* representation through `me.privacy.clip` where it is used beside received ones (GLASU's stale
  updates): then training and evaluation see the same model. What the party subtracts from an aggregate is what it
  *sent*, noise included;
- call `me.privacy.clip` and never `protect` inside `me.evaluating()`. Evaluation exchanges are the observer's view of
  the model, not traffic of the federation. They carry no noise and are not counted, and the guarantee does not cover
  them (`not_covered`). So the accuracy on the curve is that of the privately trained model, evaluated without noise;
- bound how often one row can be released (`max_releases`), so that noise can be calibrated to a target epsilon.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from vflbench.privacy import accountant, keys
from vflbench.privacy.mechanisms import Facts
from vflbench.seeding import SecretStream
from vflbench.types import ConfigError, FederationError, OptionInfo, Problem

if TYPE_CHECKING:
    import torch

OPTIONS = (OptionInfo("gaussian_embedding", "clip and Gaussian noise on every representation that is sent"),)
check = keys.check_target
# L2 sensitivity of one clipped row, in units of the clipping norm.
SENSITIVITY = {"replace_one": 2.0, "add_remove": 1.0}


@dataclass
class Config(keys.Noisy):
    """Keys of gaussian_embedding."""

    name: str = "gaussian_embedding"
    neighbouring: Literal["replace_one", "add_remove"] = "replace_one"


def make(config: Config, facts: Facts) -> GaussianEmbedding:
    """The mechanism of one party.

    Raises
    ------
    ConfigError : a target epsilon is given, and the algorithm does not bound how often a row is released.
    """
    noise, limit = config.noise_multiplier, None
    if noise is None:
        assert config.epsilon is not None  # checked
        if not facts.max_releases:
            allowed = (
                "needs an algorithm that bounds how often a row is released; give privacy.noise_multiplier instead"
            )
            raise ConfigError([Problem("privacy.epsilon", config.epsilon, allowed)])
        limit = facts.max_releases
        noise = accountant.calibrate(config.epsilon, config.delta, SENSITIVITY[config.neighbouring], limit)
    return GaussianEmbedding(config.clip, noise, config.delta, config.neighbouring, limit)


class GaussianEmbedding:
    """Clips each row to L2 norm `clip`, adds noise to each of its numbers, and counts releases by row.

    The noise is N(0, (noise_multiplier * clip)^2). There is one object per party. The unit of protection is **one
    representation row of one party**, as released in all rounds and layers together. `replace_one` compares it with any
    other row (they differ by at most 2 clip), `add_remove` with a row of zeros (at most clip; row ids are not hidden).

    A row of a graph network is a function of its node's neighbourhood. A node's features enter the rows of all nodes
    near it, at every party that holds some of them. So epsilon is *not* that of a node's raw features.

    The number of releases may depend on index sets (batches, sampled neighbours), which are sent in clear and not
    covered. It must not depend on representations.
    """

    name = "gaussian_embedding"

    def __init__(
        self, clip: float, noise_multiplier: float, delta: float, neighbouring: str, limit: int | None = None
    ) -> None:
        self.norm, self.noise_multiplier, self.delta, self.neighbouring = clip, noise_multiplier, delta, neighbouring
        self.limit = limit  # releases of one row that the noise was calibrated for; null: no target epsilon
        self.counts = np.zeros(0, dtype=np.int64)  # releases by row id; grows with the ids seen

    @property
    def releases(self) -> int:
        """How often the most released row was released."""
        return int(self.counts.max(initial=0))

    def clip(self, rows: torch.Tensor) -> torch.Tensor:
        """The rows (n, d), each scaled down to L2 norm `clip` if it is longer.

        It is differentiable, and leaves shorter rows bit for bit as they were.
        """
        # Divided by max(1, norm / clip), not multiplied by min(1, clip / norm): that has a NaN gradient at a row of
        # zeros.
        clipped: torch.Tensor = rows / (rows.norm(dim=1, keepdim=True) / self.norm).clamp(min=1)
        return clipped

    def protect(
        self, rows: torch.Tensor, ids: torch.Tensor | np.ndarray, generator: torch.Generator | SecretStream
    ) -> torch.Tensor:
        """A clipped and noisy copy of `rows` (n, d), to be sent; it counts one release of each id.

        Parameters
        ----------
        ids : (n,); an id that occurs twice is counted twice.

        Raises
        ------
        ValueError : the ids do not fit the rows.
        FederationError : a row would be released more often than the noise was calibrated for.
        """
        index = as_index(ids)
        if rows.ndim != 2 or index.shape != (len(rows),) or index.min(initial=0) < 0:
            raise ValueError(f"rows {tuple(rows.shape)} need one id each, not negative; got ids of shape {index.shape}")
        unique, after = self._counted(index)
        if self.limit is not None and after.max(initial=0) > self.limit:
            raise FederationError(
                f"row {int(unique[after.argmax()])} would be released {int(after.max())} times, but the noise was "
                f"calibrated for {self.limit}: the algorithm's bound on releases is wrong"
            )
        if len(unique) and unique[-1] >= len(self.counts):
            self.counts = np.concatenate([self.counts, np.zeros(unique[-1] + 1 - len(self.counts), dtype=np.int64)])
        self.counts[unique] = after
        return self.noised(rows, generator)

    def noised(self, rows: torch.Tensor, generator: torch.Generator | SecretStream) -> torch.Tensor:
        """As `protect`, without counting: for an adversary that tries the mechanism on rows of its own."""
        import torch

        with torch.no_grad():
            return self.clip(rows) + gaussian_like(rows, generator) * (self.noise_multiplier * self.norm)

    def _counted(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The ids in `index` (n,), ascending, and how often each will have been released once `index` is.

        The cost is n log n, however many rows there are.
        """
        unique, times = np.unique(index, return_counts=True)
        known = unique[unique < len(self.counts)]
        times[: len(known)] += self.counts[known]
        return unique.astype(np.int64), times

    def spent(self) -> dict[str, Any]:
        """What the most released row has spent so far.

        `epsilon` is infinite without noise, and above 500, where Opacus' search ends.
        """
        mu = accountant.composed_mu(SENSITIVITY[self.neighbouring], self.noise_multiplier, self.releases)
        return {
            "mechanism": self.name,
            "mu": mu,
            "epsilon": accountant.epsilon(mu, self.delta),
            "delta": self.delta,
            "unit": "one released representation row of one party",
            "neighbouring": self.neighbouring,
            "covers": "transcript",
            "not_covered": "labels, index sets, evaluation exchanges, the final model's classifiers, a node's raw "
            "features",
            "clip": self.norm,
            "noise_multiplier": self.noise_multiplier,
            "releases": self.releases,
        }

    def state_dict(self) -> dict[str, Any]:
        """The state that a checkpoint keeps."""
        return {"counts": self.counts.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take the state back from a checkpoint."""
        self.counts = np.array(state["counts"], dtype=np.int64)


def as_index(ids: torch.Tensor | np.ndarray) -> np.ndarray:
    """Ids as an array."""
    return ids.cpu().numpy() if hasattr(ids, "cpu") else np.asarray(ids)


def gaussian_like(like: torch.Tensor, generator: torch.Generator | SecretStream) -> torch.Tensor:
    """Standard normal noise of the shape, type and device of `like`, drawn where `generator` lives."""
    import torch

    if isinstance(generator, SecretStream):
        return torch.from_numpy(generator.normal(size=tuple(like.shape))).to(like)
    drawn = torch.randn(like.shape, generator=generator, dtype=like.dtype, device=generator.device)
    return drawn.to(like.device)
