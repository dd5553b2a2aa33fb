"""`privacy=gaussian_embedding`: clip and noise on every representation that a client sends, counted by row.

An algorithm that declares `gaussian_embedding` has to

- send `me.privacy.protect(rows, ids, me.secret_torch_rng("noise"))` instead of `rows`, for every representation that a
  client sends;
- put a party's *own* representation through `me.privacy.clip` where it is used beside received ones (GLASU's stale
  updates): then training and evaluation see the same model. What the party subtracts from an aggregate is what it
  *sent*, noise included;
- call `me.privacy.clip` or `me.privacy.noised`, never `protect`, inside `me.evaluating()`. Evaluation exchanges are the
  observer's view of the model, not traffic of the federation: they are not counted, and the guarantee does not cover
  them (`not_covered`). Noise they carry only under `serving=noisy`, where its card says `noisy_serving`
  (privacy/serving.py);
- bound how often one row can be released (`max_releases`), so that noise can be calibrated to a target;
- call `me.privacy.plan(counts)` before the first release, where each row's number of releases depends on seeds alone.

A row that is asked for once more is sent again with the noise that it had: that tells nothing new, and costs nothing.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from vflbench.cards.privacy.gaussian import Config
from vflbench.privacy import accountant, keys
from vflbench.privacy.keys import SENSITIVITY
from vflbench.privacy.mechanisms import LOUD, Facts
from vflbench.seeding import SecretStream
from vflbench.types import ConfigError, FederationError, Problem

if TYPE_CHECKING:
    import torch

NOT_COVERED = ("labels", "index sets", "evaluation exchanges", "the final model's classifiers", "a node's raw features")

log = logging.getLogger(__name__)


def make(config: Config, facts: Facts) -> GaussianEmbedding:
    """The mechanism of one party.

    Raises
    ------
    ConfigError : a target is given, and the algorithm does not bound how often a row is released.
    """
    target, sensitivity = keys.target(config), SENSITIVITY[config.neighbouring]
    if target is not None and not facts.max_releases:
        allowed = "needs an algorithm that bounds how often a row is released; give privacy.noise_multiplier instead"
        raise ConfigError([Problem(f"privacy.{key}", value, allowed) for key, value in target.items()])
    calibrate = partial(keys.noise_multiplier, config, sensitivity)
    made = GaussianEmbedding(
        config.clip, calibrate(facts.max_releases or 0), keys.known_delta(config), config.neighbouring
    )
    made.planned, made.quantile = facts.max_releases, config.release_quantile
    if target is not None:
        made.target, made.limit, made.calibrate = target, facts.max_releases, calibrate
    return made


class GaussianEmbedding:
    """Clips each row to L2 norm `clip`, adds noise to each of its numbers, and counts releases by row.

    The noise is N(0, (noise_multiplier * clip)^2). There is one object per party. The unit of protection is **one
    representation row of one party**, as released in all rounds and layers together. `replace_one` compares it with any
    other row (they differ by at most 2 clip), `add_remove` with a row of zeros (at most clip; row ids are not hidden).

    A row of a graph network is a function of its node's neighbourhood. A node's features enter the rows of all nodes
    near it, at every party that holds some of them. So epsilon is *not* that of a node's raw features.

    The number of releases may depend on index sets (batches, sampled neighbours), which are sent in clear and not
    covered. It must not depend on representations.

    Attributes
    ----------
    limit : releases of one row that the noise was calibrated for; None: there is no target.
    planned : releases of the most released row in the whole run; None: not known.
    target : {"epsilon": 8.0} or {"mu": 1.0}; None: the noise was given.
    not_covered : what epsilon says nothing of; an algorithm may know better.
    """

    name = "gaussian_embedding"

    def __init__(
        self, clip: float, noise_multiplier: float, delta: float, neighbouring: str, limit: int | None = None
    ) -> None:
        self.norm, self.noise_multiplier, self.delta, self.neighbouring = clip, noise_multiplier, delta, neighbouring
        self.limit = self.planned = limit
        self.target: dict[str, float] | None = None
        self.not_covered: Sequence[str] = NOT_COVERED
        self.calibrate: Callable[[int], float] | None = None  # the noise for so many releases
        self.quantile = 1.0
        self.served = 1  # releases of a row for one prediction
        self.counts = np.zeros(0, dtype=np.int64)  # releases by row id; grows with the ids seen
        self.release: int | None = None
        self.kept: dict[str, Kept] = {}  # by place
        self.width = 0  # of the widest row that was released
        self.rows = 0  # that got noise
        self.clipped: Any = 0  # of them those that were too long; a tensor, so that no device waits

    @property
    def releases(self) -> int:
        """How often the most released row was released."""
        return int(self.counts.max(initial=0))

    @property
    def noise_to_signal(self) -> float | None:
        """The noise of a release over the longest row, both as L2 norms; None before the first release."""
        return self.noise_multiplier * math.sqrt(self.width) if self.width else None

    def plan(self, counts: np.ndarray) -> None:
        """Calibrate the noise to the releases that will happen; `counts` (rows,) is how often each is asked for.

        With `release_quantile` below 1 a row beyond the limit repeats what it has sent.
        """
        released = counts[counts > 0]
        if self.calibrate is None or not len(released):
            self.planned = int(counts.max(initial=0))
            return
        self.limit = int(np.quantile(released, self.quantile, method="higher"))
        self.planned, self.noise_multiplier = self.limit, self.calibrate(self.limit)

    def clip(self, rows: torch.Tensor, norm: float | None = None) -> torch.Tensor:
        """The rows (n, d), each scaled down to L2 norm `norm` (None: that of the keys) if it is longer.

        It is differentiable, and leaves shorter rows bit for bit as they were.
        """
        # Divided by max(1, norm / clip), not multiplied by min(1, clip / norm): that has a NaN gradient at a row of
        # zeros.
        clipped: torch.Tensor = rows / (rows.norm(dim=1, keepdim=True) / (norm or self.norm)).clamp(min=1)
        return clipped

    def protect(
        self,
        rows: torch.Tensor,
        ids: torch.Tensor | np.ndarray,
        generator: torch.Generator | SecretStream,
        release: int | None = None,
        place: str = "",
        norm: float | None = None,
    ) -> torch.Tensor:
        """A clipped and noisy copy of `rows` (n, d), to be sent; it counts one release of each id.

        Parameters
        ----------
        ids : (n,); an id that occurs twice is counted twice.
        release : number of the release that the rows are part of. A row that was sent in this release is sent as it
            was, and not counted again.
        place : what kind of row it is (a layer), where a row beyond the limit repeats the last one of its kind.
        norm : to which these rows are clipped, with noise for as much; None: that of the keys.

        Raises
        ------
        ValueError : the ids do not fit the rows.
        FederationError : a row would be released more often than the noise was calibrated for.
        """
        index = as_index(ids)
        if rows.ndim != 2 or index.shape != (len(rows),) or index.min(initial=0) < 0:
            raise ValueError(f"rows {tuple(rows.shape)} need one id each, not negative; got ids of shape {index.shape}")
        if release is not None and release != self.release:
            self.release, self.kept = release, {}
        keeps = release is not None or self.quantile < 1
        kept = self.kept.setdefault(place, Kept()) if keeps else None
        again = np.zeros(len(index), bool)
        if kept is not None:
            again = kept.has(index) if release is not None else self._used_up(index)
        self._count(index[~again])
        self.rows, self.width = self.rows + int((~again).sum()), max(self.width, rows.shape[1])
        self.clipped += ((rows.detach().norm(dim=1) > (norm or self.norm)) & as_mask(~again, rows)).sum()
        sent = self.noised(rows, generator, norm)
        if kept is not None:
            if again.any():
                sent[as_mask(again, rows)] = kept.rows_at(index[again], sent)
            kept.keep(index, sent)
        return sent

    def noised(
        self, rows: torch.Tensor, generator: torch.Generator | SecretStream, norm: float | None = None
    ) -> torch.Tensor:
        """As `protect`, without counting: of held-out rows, or by an adversary that tries it on rows of its own."""
        import torch

        with torch.no_grad():
            noise = gaussian_like(rows, generator) * (self.noise_multiplier * (norm or self.norm))
            return self.clip(rows, norm) + noise

    def forget(self) -> None:
        """Drop the rows that are kept to be sent again: their release is over."""
        self.kept = {}

    def _used_up(self, index: np.ndarray) -> np.ndarray:
        """Whether each id (n,) has reached the limit."""
        used = np.zeros(len(index), np.int64)
        known = index < len(self.counts)
        used[known] = self.counts[index[known]]
        return used >= (self.limit or np.inf)

    def _count(self, index: np.ndarray) -> None:
        """Count a release of each id; the cost is n log n, however many rows there are.

        Raises
        ------
        FederationError : that would be more than the noise was calibrated for.
        """
        unique, times = np.unique(index.astype(np.int64), return_counts=True)
        known = unique[unique < len(self.counts)]
        times[: len(known)] += self.counts[known]
        if self.limit is not None and times.max(initial=0) > self.limit:
            raise FederationError(
                f"row {int(unique[times.argmax()])} would be released {int(times.max())} times, but the noise was "
                f"calibrated for {self.limit}: the algorithm's bound on releases is wrong"
            )
        if len(unique) and unique[-1] >= len(self.counts):
            more = np.zeros(int(unique[-1]) + 1 - len(self.counts), dtype=np.int64)
            self.counts = np.concatenate([self.counts, more])
        self.counts[unique] = times

    def spent(self) -> dict[str, Any]:
        """What the most released row has spent so far.

        `epsilon` is infinite without noise, and above 500, where Opacus' search ends.
        """
        mu, once = (
            accountant.composed_mu(SENSITIVITY[self.neighbouring], self.noise_multiplier, releases)
            for releases in (self.releases, self.served)
        )
        return keys.reported(
            self.target,
            mechanism=self.name,
            epsilon=accountant.epsilon(mu, self.delta),
            one_prediction={"epsilon": accountant.epsilon(once, self.delta), "mu": once},
            delta=self.delta,
            mu=mu,
            unit="one released representation row of one party",
            neighbouring=self.neighbouring,
            covers="transcript",
            not_covered=list(self.not_covered),
            accountant="exact",
            releases={"planned": self.planned, "done": self.releases},
            noise_multiplier=self.noise_multiplier,
            clip=self.norm,
            clipped_share=float(self.clipped) / self.rows if self.rows else None,
        )

    def state_dict(self) -> dict[str, Any]:
        """The state that a checkpoint keeps."""
        return {
            "counts": self.counts.copy(),
            "noise": self.noise_multiplier,
            "limit": self.limit,
            "planned": self.planned,
            "release": self.release,
            "kept": {place: (kept.rows, kept.there) for place, kept in self.kept.items() if kept.rows is not None},
            "clipped": (int(self.clipped), self.rows),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take the state back from a checkpoint."""
        self.counts = np.array(state["counts"], dtype=np.int64)
        if "noise" in state:
            self.noise_multiplier, self.limit, self.planned = state["noise"], state["limit"], state["planned"]
            self.release, (self.clipped, self.rows) = state["release"], state["clipped"]
            self.kept = {place: Kept(rows, there) for place, (rows, there) in state["kept"].items()}


class Kept:
    """Noisy rows as they were sent, by id; an id that was not sent has a row of zeros."""

    def __init__(self, rows: torch.Tensor | None = None, there: np.ndarray | None = None) -> None:
        self.rows = rows  # (ids, d)
        self.there = np.zeros(0, bool) if there is None else np.array(there, dtype=bool)  # (ids,)

    def has(self, index: np.ndarray) -> np.ndarray:
        """Whether the row of each id (n,) is there."""
        known = index < len(self.there)
        known[known] = self.there[index[known]]
        return known

    def keep(self, index: np.ndarray, sent: torch.Tensor) -> None:
        """Keep `sent` (n, d) as the rows of `index` (n,)."""
        import torch

        rows = self._grown(int(index.max(initial=-1)) + 1, sent)
        rows[torch.from_numpy(index).to(rows.device)] = sent
        self.there[index] = True

    def rows_at(self, index: np.ndarray, like: torch.Tensor) -> torch.Tensor:
        """The rows of `index` (n,), of the width and type of `like`."""
        import torch

        rows = self._grown(int(index.max(initial=-1)) + 1, like)
        return rows[torch.from_numpy(index).to(rows.device)]

    def _grown(self, size: int, like: torch.Tensor) -> torch.Tensor:
        """The rows, at least `size`; they are made like `like` (n, d)."""
        import torch

        rows = like.new_zeros((0, like.shape[1])) if self.rows is None else self.rows.to(like.device)
        if size > len(rows):
            rows = torch.cat([rows, like.new_zeros((size - len(rows), like.shape[1]))])
            self.there = np.concatenate([self.there, np.zeros(size - len(self.there), bool)])
        self.rows = rows
        return rows


def warn_of_noise(config: Config, releases: int, width: int) -> None:
    """Log a warning where the noise for so many releases of a row is far above all that a row can tell.

    Parameters
    ----------
    width : numbers of a row.
    """
    noise = make(keys.settled(config), Facts(max_releases=releases)).noise_multiplier
    if noise * math.sqrt(width) > LOUD:
        log.warning(
            "A row is published up to %d times, so each of its numbers (%d) gets noise of %.3g times privacy.clip "
            "at most. That noise is %.3g times as long as the longest row. Fewer rounds or a larger epsilon need less.",
            releases,
            width,
            noise,
            noise * math.sqrt(width),
        )


def as_index(ids: torch.Tensor | np.ndarray) -> np.ndarray:
    """Ids as an array."""
    return ids.cpu().numpy() if hasattr(ids, "cpu") else np.asarray(ids)


def as_mask(mask: np.ndarray, like: torch.Tensor) -> torch.Tensor:
    """A mask as a tensor on the device of `like`."""
    import torch

    return torch.from_numpy(mask).to(like.device)


def gaussian_like(like: torch.Tensor, generator: torch.Generator | SecretStream) -> torch.Tensor:
    """Standard normal noise of the shape, type and device of `like`, drawn where `generator` lives."""
    import torch

    if isinstance(generator, SecretStream):
        return torch.from_numpy(generator.normal(size=tuple(like.shape))).to(like)
    drawn = torch.randn(like.shape, generator=generator, dtype=like.dtype, device=generator.device)
    return drawn.to(like.device)
