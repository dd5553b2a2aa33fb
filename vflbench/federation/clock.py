"""The compute clock: how long a computation takes in virtual time."""

import time
from dataclasses import dataclass

import torch

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

    def seconds(self, cost: float, measured: float) -> float:
        """The virtual seconds of a computation.

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


def resolve(mode: ClockMode, time_dependent: bool) -> ClockMode:
    """`mode`; for `auto`, `modelled` for time-dependent methods and `none` for the others."""
    if mode != "auto":
        return mode
    return "modelled" if time_dependent else "none"
