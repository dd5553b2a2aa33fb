"""The delay model of split learning: how long a batch keeps a worker busy.

PubSub-VFL, section 4.2, Table 8, read per sample. One worker of a party with C cores and w workers uses
min(C / w, core_cap) cores. A batch of B samples takes it scale * B^(1 + exponent) / cores seconds. The fixed latency
per batch and the parameter server's cost come on top.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vflbench.types import ComputeConfig, Problem, closest

if TYPE_CHECKING:
    from vflbench.federation.party import PartySpec

PARTS = ("active_forward", "active_backward", "passive_forward", "passive_backward", "top_forward", "top_backward")
# a profile's keys, with the values that stand for no measurement
NOTHING: dict[str, Any] = {"delays": {}, "core_cap": 1.0, "batch_latency": 0.0, "server_seconds": 0.0}
MOST_SECONDS, MOST_CORES = 1e6, 1_000_000
BAD_FILE = (OSError, ValueError, KeyError, TypeError)


@dataclass
class Delays:
    """The delay model with the constants of `config`; without `delays`, two constants per computation.

    Parties are numbered as in an aligned task: 0 is the active one.
    """

    config: ComputeConfig

    def seconds(self, part: str, batch: int, party: int, workers: int) -> float:
        """Seconds that one of `workers` workers of `party` takes for a batch of `batch` samples.

        `part` is one of PARTS. The latency per batch is not included.

        Raises
        ------
        KeyError
            The model has constants for other parts only.
        """
        if not self.config.delays:
            return self.config.base_seconds + self.config.seconds_per_unit * batch
        delay = self.config.delays[part]
        return float(delay.scale * batch ** (1 + delay.exponent) / self.cores(party, workers))

    def cores(self, party: int, workers: int) -> float:
        """How many cores one of `workers` workers of `party` uses."""
        sharing = workers if self.config.sharing == "evenly" else 1
        return min(self._cores(party) / sharing, self.config.core_cap)

    def total_cores(self, parties: int) -> int:
        """All cores of `parties` parties, the active one included."""
        if self.config.sharing == "machine":
            return self._cores(0)
        return sum(self._cores(party) for party in range(parties))

    def machines(self, specs: Mapping[str, PartySpec]) -> dict[str, tuple[str, int]]:
        """Party -> the machine where it waits for a core, and how many that has; empty where nobody waits."""
        if self.config.sharing == "machine":
            return dict.fromkeys(specs, ("all", self._cores(0)))
        if self.config.sharing == "evenly":
            return {}
        names = list(dict.fromkeys(spec.organisation or name for name, spec in specs.items()))
        count = Counter(spec.organisation for spec in specs.values())
        return {
            name: (spec.organisation, self._cores(names.index(spec.organisation)))
            for name, spec in specs.items()
            if spec.organisation is not None and count[spec.organisation] > 1
        }

    def _cores(self, party: int) -> int:
        return self.config.cores[min(party, len(self.config.cores) - 1)]


def check(config: ComputeConfig) -> list[Problem]:
    """Problems with the keys of the group `compute` that no range of a single number tells."""
    problems = []
    if config.file is not None and config.name != "measured":
        problems.append(
            Problem("compute.file", config.file, f"compute={config.name} reads no file: compute=measured does")
        )
    elif config.file is not None:
        try:
            _profile(config.file)
        except BAD_FILE as error:
            reason = (
                "there is no such file"
                if isinstance(error, FileNotFoundError)
                else f"is no profile ({type(error).__name__}: {error})"
            )
            problems.append(Problem("compute.file", config.file, f"{reason}; make one with: vflbench data profile"))
    for name, delay in config.delays.items():
        key = f"compute.delays.{name}"
        if name not in PARTS:
            shown = f"{{scale: {delay.scale}, exponent: {delay.exponent}}}"
            problems.append(Problem(key, shown, f"no such part; there are: {', '.join(PARTS)}", closest(name, PARTS)))
        if not 0 < delay.scale <= MOST_SECONDS:
            problems.append(
                Problem(
                    f"{key}.scale", delay.scale, f"must be greater than 0 and at most {MOST_SECONDS:g} seconds a sample"
                )
            )
        if not -2 <= delay.exponent <= 1:
            allowed = "must be from -2 to 1; 0 is a time that grows with the batch, -1 one that does not depend on it"
            problems.append(Problem(f"{key}.exponent", delay.exponent, allowed))
    lacking = [name for name in PARTS if name not in config.delays]
    if config.delays and lacking and set(config.delays) <= set(PARTS):
        problems.append(
            Problem("compute.delays", ",".join(config.delays), f"lacks {', '.join(lacking)}; give all parts or none")
        )
    if not config.cores or min(config.cores) < 1 or max(config.cores) > MOST_CORES:
        allowed = f"must list at least one party's cores, each at least 1 and at most {MOST_CORES:,}"
        problems.append(Problem("compute.cores", config.cores, allowed))
    return problems


def measured(file: str, key: str) -> Any:
    """One constant of a profile, `key` being one of NOTHING's keys.

    Where the file cannot be read it is NOTHING's value: `check` reports that before a run.
    """
    try:
        return _profile(file)[key]
    except BAD_FILE:
        return NOTHING[key]


def _profile(file: str) -> dict[str, Any]:
    """The constants of a profile.

    Raises
    ------
    OSError, ValueError, KeyError, TypeError
        The file cannot be read, lacks a constant, or has one that is not a number.
    """
    values = json.loads(Path(file).expanduser().read_text(encoding="utf-8"))
    delays = {name: {key: float(values["delays"][name][key]) for key in ("scale", "exponent")} for name in PARTS}
    return {key: delays if key == "delays" else float(values[key]) for key in NOTHING}
