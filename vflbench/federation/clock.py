"""The compute clock: how long a computation takes in virtual time."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from vflbench.federation import counted_work
from vflbench.types import ClockMode, ComputeConfig


@dataclass
class ComputeClock:
    """How long a computation takes.

    `mode` is `none` (no time), `modelled` (the delay model of the group `compute`) or `measured` (the seconds it took
    here, on `device`).
    """

    mode: str
    config: ComputeConfig
    device: str = "cpu"

    def moment(self) -> float:
        """Seconds of this machine's clock, to be subtracted; a GPU that is measured has done all that it was given."""
        if self.mode == "measured" and self.device.startswith("cuda"):
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    @property
    def counts(self) -> bool:
        """Whether computations are charged by their work."""
        return self.mode == "modelled" and self.config.counts_work

    @property
    def message_seconds(self) -> float:
        """Seconds that a message keeps its sender busy."""
        return self.config.message_seconds if self.mode == "modelled" else 0.0

    def timed(self, function: Callable[..., Any], args: tuple[Any, ...], cost: float) -> tuple[Any, float]:
        """What a computation returns, and its virtual seconds; `cost` as in `seconds`.

        What does not use PyTorch has no counted work: its cost is charged.
        """
        if self.counts:
            result, done = counted_work.counted(function, *args)
            return result, done.seconds(self.config) if done.operations else self.seconds(cost, 0.0)
        start = self.moment()
        result = function(*args)
        return result, self.seconds(cost, self.moment() - start)

    def seconds(self, cost: float, measured: float) -> float:
        """The virtual seconds of a computation whose work is not counted.

        Parameters
        ----------
        cost : in the units of compute.seconds_per_unit.
        measured : the seconds that it took here.
        """
        if self.mode == "none":
            return 0.0
        if self.mode == "measured":
            return measured
        return self.config.base_seconds + cost * self.config.seconds_per_unit


def resolve(mode: ClockMode, timed: bool) -> ClockMode:
    """`mode`; for `auto`, `modelled` where computing takes time (`timed`), else `none`."""
    if mode != "auto":
        return mode
    return "modelled" if timed else "none"
