"""The simulated engine: all parties in one process, in virtual time. Nobody sleeps.

A trampoline runs the party programs. Every party has its own clock, and a message carries the time at which it is
delivered. What does not depend on time (send, recv, recv_all) runs in any order with equal results. What does depend on
it (recv_any, timeouts, a shared server bandwidth) is an event in one global heap. Events are popped only when nobody
can run: then all that follows has a later time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vflbench.defaults import filled
from vflbench.federation.engine import Engine
from vflbench.federation.party import RUNNING, PartySpec
from vflbench.federation.runtime.core import Runtime
from vflbench.federation.runtime.member import Member
from vflbench.federation.simulated.batches import Cohort
from vflbench.federation.simulated.cores import Cores
from vflbench.federation.simulated.transport import VirtualTransport
from vflbench.federation.simulated.virtual_clock import VirtualClock
from vflbench.federation.snapshot import Cut
from vflbench.types import FederationError, NetworkConfig


class SimulatedEngine(Engine):
    """Drives party programs in virtual time. Its arguments are those of `Runtime` and `Engine`."""

    parties: dict[str, Member]
    order: list[Member]

    def __init__(
        self,
        specs: Mapping[str, PartySpec],
        public: Any = None,
        config: Any = None,
        *,
        network: NetworkConfig | None = None,
        machines: Mapping[str, tuple[str, int]] | None = None,  # of parties that share cores: name and number of cores
        batch_compute: bool = True,  # run equal computations of a cohort as one vmap call
        on_round: Callable[[int, SimulatedEngine], bool] | None = None,
        checkpoint_every: int | None = None,
        on_cut: Callable[[Cut], None] | None = None,
        resume_from: Cut | None = None,
        **options: Any,
    ) -> None:
        network = network or filled(NetworkConfig, name="ideal")
        super().__init__(on_round=on_round, checkpoint_every=checkpoint_every, on_cut=on_cut, resume_from=resume_from)
        # round -> [parties that finished it, bytes, latest clock, earliest clock]
        self._open_rounds: dict[int, list[float]] = {}
        self.clock = VirtualClock()
        self.transport = VirtualTransport(network, self.clock, keep=checkpoint_every is not None)
        self.cohort = Cohort()
        self.runtime = Runtime(
            specs,
            public,
            config,
            self.clock,
            self.transport,
            self.cohort if batch_compute else None,
            self._passed,
            network=network,
            checkpoint_every=checkpoint_every,
            resume_from=resume_from,
            **options,
        )
        self.parties, self.order = self.runtime.parties, self.runtime.order
        self.ledger, self.tags, self.codec = self.runtime.ledger, self.runtime.tags, self.runtime.codec
        self.shared_cores = Cores(self.clock, machines, keep=checkpoint_every is not None) if machines else None
        self.runtime.cores = self.shared_cores
        if resume_from is not None:
            self.transport.restore(resume_from)
            if self.shared_cores is not None:
                self.shared_cores.restore(resume_from)

    # --- driving ------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run to the end; what a program raises is raised here.

        Raises
        ------
        FederationError
            There is a deadlock; the error names who waits for what.
        """
        try:
            self._loop()
        finally:
            self.runtime.close()

    def _loop(self) -> None:
        runtime, cohort = self.runtime, self.cohort
        ready, step = runtime.ready, runtime.step
        while not self._only_ahead():
            while ready:
                step(ready.popleft())
            if cohort.calls:
                ready.extend(cohort.run(runtime.clock))
            elif not self._release() and not self.clock.pop():
                break
        if runtime.network.timing == "round":
            self.transport.settle_unread()
        waiting = [p for p in self.order if not p.finished]
        if waiting and not runtime.stopping:
            lines = "; ".join(f"{p.name} (round {p.round}) waits for {p.waiting_for}" for p in waiting)
            raise FederationError(f"deadlock: nobody can run and nothing is in flight. {lines}")

    def _only_ahead(self) -> bool:
        """Whether training was stopped, and who still runs is in a later round: nobody answers there any more."""
        left = (p.round for p in self.order if not p.finished)
        return self.runtime.stopping and all(round > self.finished_round for round in left)

    def _release(self) -> bool:
        """Nobody can run: let the parked parties of the lowest round go on. False where the next event comes first.

        An event comes first that is earlier than all that the parked parties could do.
        """
        event, parked = self.clock.next(), self.runtime.parked
        if not parked or (event is not None and event < min(p.now for p in parked)):
            return False
        lowest = min(p.round for p in parked)
        self.runtime.release([p for p in parked if p.round == lowest])
        return True

    # --- round boundaries ---------------------------------------------------------------------------------------------

    def _passed(self, party: Member, now: float, sent: int) -> None:
        """A party has finished its round: close the round if it was the last."""
        round = party.round
        total = self._open_rounds.get(round)
        if total is None:
            total = self._open_rounds[round] = [0, 0, now, now]
        total[0] += 1
        total[1] += sent
        if now > total[2]:
            total[2] = now
        elif now < total[3]:
            total[3] = now
        if total[0] == len(self.order):
            self._close_round(round)

    def _close_round(self, round: int) -> None:
        """All parties have finished `round`: the observer scores it, its cut is complete, waiting parties may go on."""
        runtime = self.runtime
        _, nbytes, latest, earliest = self._open_rounds.pop(round)
        self.finished_round = runtime.finished_round = round
        self.bytes_sent += int(nbytes)
        self.boundary_clock = max(self.boundary_clock, latest)
        running, RUNNING.name = RUNNING.name, None  # the observer is no party
        if self.on_round is not None and self.on_round(round, self):
            runtime.stopping = True
        cut = runtime.cuts.pop(round, None)
        if cut is not None and self.on_cut is not None and not runtime.stopping:
            cut.totals = self.totals()
            self.transport.complete(cut, earliest)
            if self.shared_cores is not None:
                self.shared_cores.complete(cut, earliest)
            self.on_cut(cut)
        RUNNING.name = running
        runtime.unpark()
