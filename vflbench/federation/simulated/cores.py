"""Cores that several parties share: who asks first gets one, and keeps it until the computation is done."""

from __future__ import annotations

import heapq
import types
from collections import deque
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vflbench.federation.simulated.virtual_clock import CORE_EVENT, VirtualClock
from vflbench.federation.snapshot import Cut

if TYPE_CHECKING:
    from vflbench.federation.runtime.member import Member

Asked = tuple[float, int, float, int]  # when, place of the party, seconds, round


@dataclass
class Machine:
    """The cores of one machine."""

    free: list[float]  # when each core is free, a heap
    asked: list[tuple[Asked, tuple[float, ...]]] = field(default_factory=list)  # with `free` before it, for cuts
    again: deque[Asked] = field(default_factory=deque)  # of a resumed run: what was asked for before the cut, and after

    def take(self, asked: Asked) -> float:
        """When the computation starts."""
        while self.again and self.again[0][:2] < asked[:2]:
            self._start(self.again.popleft())
        return self._start(asked)

    def _start(self, asked: Asked) -> float:
        when, _, seconds, _ = asked
        self.asked.append((asked, tuple(self.free)))
        start = max(when, self.free[0])
        heapq.heapreplace(self.free, start + seconds)
        return start


class Cores:
    """The machines of the parties. Implements `runtime.protocols.Queue`.

    Parameters
    ----------
    machines : party -> the name of its machine, and how many cores that has.
    """

    def __init__(self, clock: VirtualClock, machines: Mapping[str, tuple[str, int]], keep: bool) -> None:
        self.clock, self.keep = clock, keep
        self.machines = {name: Machine([0.0] * count) for name, count in machines.values()}
        self.machine_of = {party: self.machines[name] for party, (name, _) in machines.items()}

    @types.coroutine
    def compute(self, party: Member, result: Any, seconds: float) -> Generator[None, None, Any]:
        """Wait for a core, and for `seconds` on it; returns `result`."""
        if seconds > 0:
            self.clock.push(party.now, CORE_EVENT, party.index, 0, party.index, (party, party.token))
            party.waiting_for = "a core"
            yield  # now all that could ask for a core before has done so
            machine = self.machine_of[party.name]
            start = machine.take((party.now, party.index, seconds, party.round))
            if not self.keep:
                machine.asked.clear()
            self.clock.reach(party, start)
            party.advance(seconds)
        return result

    # --- cuts ---------------------------------------------------------------------------------------------------------

    def complete(self, cut: Cut, earliest: float) -> None:
        """Add the cores as they were at `earliest`, the first boundary, and what the cut's rounds have asked since."""
        for name, machine in self.machines.items():
            since = [place for place, (asked, _) in enumerate(machine.asked) if asked[0] >= earliest]
            free = list(machine.asked[since[0]][1] if since else machine.free)
            del machine.asked[: since[0] if since else len(machine.asked)]
            cut.cores[name] = (free, [asked for asked, _ in machine.asked if asked[3] <= cut.round])

    def restore(self, cut: Cut) -> None:
        """Set the cores as they were at the cut."""
        for name, (free, asked) in cut.cores.items():
            self.machines[name].free = list(free)
            self.machines[name].again = deque((when, place, seconds, of) for when, place, seconds, of in asked)
