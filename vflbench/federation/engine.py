"""`Engine`: what a run knows of what drives its parties, whether in virtual or in real time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from vflbench.federation.ledger import Ledger, take_traces

if TYPE_CHECKING:
    import numpy as np
    import torch

    from vflbench.federation.party import State
    from vflbench.federation.snapshot import Cut


class Observed(Protocol):
    """What an observer may ask of a party."""

    @property
    def name(self) -> str: ...
    @property
    def kept(self) -> str | None:
        """The name under which it keeps its secret."""

    @property
    def state(self) -> State:
        """Errors: FederationError where it is in another process."""

    @property
    def trace(self) -> array: ...
    def spent(self) -> dict[str, Any] | None:
        """What its privacy mechanism has spent; None without one."""

    def parameters(self) -> dict[str, torch.Tensor]: ...
    def nonfinite(self) -> str | None:
        """The first of its parameters that holds a NaN or an infinity."""


@dataclass(eq=False, repr=False, kw_only=True)
class Engine(ABC):
    """Drives the parties of a run.

    Attributes
    ----------
    parties, order : by name, and in their order. ledger : rows since the last cut. codec : what compresses payloads in this process.
    finished_round : the last round that all parties have finished. bytes_sent : charged, in those.
    boundary_clock : the latest of the parties' clocks, s, at the end of a finished round.
    cores : of the machines that it runs on, where it measures time; else None.
    """

    on_round: Callable[[int, Any], bool] | None = None  # called with (round, engine) when all have finished it; True stops the run there
    checkpoint_every: int | None = None  # a cut every so many rounds
    on_cut: Callable[[Cut], None] | None = None  # called with each complete cut, after `on_round`
    resume_from: Cut | None = None  # a cut to continue from

    def __post_init__(self) -> None:
        self.parties: Mapping[str, Observed]
        self.order: Sequence[Observed]
        self.ledger: Ledger
        self.codec: Any = None
        self.cores: int | None = None
        cut = self.resume_from
        self.finished_round, self.bytes_sent, self.boundary_clock = 0, 0, 0.0
        if cut is not None:
            self.finished_round, self.bytes_sent, self.boundary_clock = cut.round, cut.totals["bytes_sent"], cut.totals["boundary_clock"]

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the summary says of it."""
        return {}

    @abstractmethod
    def run(self) -> None:
        """Run to the end. Errors: FederationError, and what a program raises."""

    def totals(self) -> dict[str, Any]:
        """What a cut at the last finished round has of them all."""
        return {"bytes_sent": self.bytes_sent, "boundary_clock": self.boundary_clock, "tags": dict(self.ledger.tags)}

    def take_trace(self, last_round: int | None = None) -> dict[str, np.ndarray]:
        """Remove and return each party's trace rows, (n, 5) float64; with `last_round`, those up to its boundary."""
        return take_traces({party.name: party.trace for party in self.order}, last_round)
