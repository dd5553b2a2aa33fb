"""The compute clock: how long a computation takes in virtual time."""

from dataclasses import dataclass

from vflbench.types import ClockMode, ComputeConfig


@dataclass
class ComputeClock:
    """`none`: no time; `modelled`: the delay model of the group `compute`; `measured`: the seconds it took here."""

    mode: str
    config: ComputeConfig

    def seconds(self, cost: float, measured: float) -> float:
        if self.mode == "none":
            return 0.0
        if self.mode == "measured":
            return measured
        return self.config.base_seconds + cost * self.config.seconds_per_unit


def resolve(mode: ClockMode, time_dependent: bool) -> ClockMode:
    """`auto` is `none` for synchronous methods and `modelled` for time-dependent ones."""
    if mode != "auto":
        return mode
    return "modelled" if time_dependent else "none"
