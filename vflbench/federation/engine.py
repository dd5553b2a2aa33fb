"""`Engine`: what a run knows of the engine that drives its parties, in virtual or in real time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from vflbench.federation.ledger import Ledger, take_trace
from vflbench.federation.phases import Served

if TYPE_CHECKING:
    import numpy as np
    import torch

    from vflbench.federation.party import State
    from vflbench.federation.snapshot import Cut


class Observed(Protocol):
    """What an observer may ask of a party."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def kept(self) -> str | None:
        """The name under which it keeps its secret."""

    @property
    def state(self) -> State:
        """Its state.

        Raises
        ------
        FederationError
            The party is in another process.
        """

    @property
    def trace(self) -> array[float]:
        """Rows of what it has done, as `ledger.trace_row` packs them."""

    @property
    def served(self) -> Served:
        """What it sent and read in its last evaluation."""

    def spent(self) -> dict[str, Any] | None:
        """What its privacy mechanism has spent; None without one."""

    def parameters(self) -> dict[str, torch.Tensor]:
        """Copies of its modules' tensors, on the CPU, by name."""

    def nonfinite(self) -> str | None:
        """The first of its parameters that holds a NaN or an infinity."""


@dataclass(eq=False, repr=False, kw_only=True)
class Engine(ABC):
    """Drives the parties of a run."""

    # called with (round, engine) when all have finished it; True stops the run there
    on_round: Callable[[int, Any], bool] | None = None
    checkpoint_every: int | None = None  # a cut every so many rounds
    on_cut: Callable[[Cut], None] | None = None  # called with each complete cut, after `on_round`
    resume_from: Cut | None = None  # a cut to continue from

    def __post_init__(self) -> None:
        self.parties: Mapping[str, Observed]  # by name
        self.order: Sequence[Observed]
        self.ledger: Ledger  # rows since the last cut
        self.codec: Any = None  # what compresses payloads in this process
        self.cores: int | None = None  # of the machines that it runs on, where it measures time
        cut = self.resume_from
        self.finished_round = cut.round if cut else 0  # the last that all parties have finished
        self.bytes_sent: int = cut.totals["bytes_sent"] if cut else 0  # charged, in those rounds
        # s; the latest of the parties' clocks at its end
        self.boundary_clock: float = cut.totals["boundary_clock"] if cut else 0.0

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the summary says of the engine."""
        return {}

    @abstractmethod
    def run(self) -> None:
        """Run to the end.

        Raises
        ------
        FederationError
            A rule of the federation is broken. Errors of the programs are raised as they are.
        """

    def totals(self) -> dict[str, Any]:
        """The totals that a cut at the last finished round records."""
        return {"bytes_sent": self.bytes_sent, "boundary_clock": self.boundary_clock, "tags": dict(self.ledger.tags)}

    def take_trace(self, last_round: int | None = None) -> dict[str, np.ndarray]:
        """`ledger.take_trace` of each party."""
        return {party.name: take_trace(party.trace, last_round) for party in self.order}
