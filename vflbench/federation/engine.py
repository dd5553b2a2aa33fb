"""`Engine`: what a run knows of what drives its parties, whether in virtual or in real time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    import torch

    from vflbench.federation.ledger import Ledger
    from vflbench.federation.party import State


class Observed(Protocol):
    """What an observer may ask of a party."""

    @property
    def name(self) -> str: ...
    @property
    def privacy(self) -> Any:
        """Its mechanism, or at least what that has `spent()`; None without one."""

    @property
    def kept(self) -> str | None:
        """The name under which it keeps its secret."""

    @property
    def state(self) -> State:
        """Errors: FederationError where it is in another process."""

    def parameters(self) -> dict[str, torch.Tensor]: ...
    def nonfinite(self) -> str | None:
        """The first of its parameters that holds a NaN or an infinity."""


class Engine(Protocol):
    """Drives the parties of a run.

    Attributes
    ----------
    parties, order : by name, and in their order. ledger : rows since the last cut. codec : what compresses payloads in this process.
    finished_round : the last round that all parties have finished. bytes_sent : charged, in those.
    boundary_clock : the latest of the parties' clocks, s, at the end of a finished round.
    cores : of the machines that it runs on, where it measures time; else None. facts : what the summary says of it.
    """

    @property
    def parties(self) -> Mapping[str, Observed]: ...
    @property
    def order(self) -> Sequence[Observed]: ...
    @property
    def finished_round(self) -> int: ...
    @property
    def codec(self) -> Any: ...
    @property
    def cores(self) -> int | None: ...
    @property
    def facts(self) -> Mapping[str, Any]: ...

    ledger: Ledger
    bytes_sent: int
    boundary_clock: float

    def run(self) -> None:
        """Run to the end. Errors: FederationError, and what a program raises."""

    def take_trace(self, last_round: int | None = None) -> dict[str, np.ndarray]:
        """Remove and return each party's trace rows, (n, 5) float64; with `last_round`, those up to its boundary."""
