"""The driver: starts the parties' processes, hears of round boundaries, and says when the next round begins.

It also notices who has died.
"""

from __future__ import annotations

import contextlib
import logging
import time
from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np
import torch

from vflbench.federation import wire
from vflbench.federation.engine import Engine
from vflbench.federation.ledger import COLUMN, Ledger
from vflbench.federation.phases import Served
from vflbench.federation.ray.calls import STARTING, clock_offset, deaths, no_answer
from vflbench.federation.ray.cluster import Cluster
from vflbench.federation.ray.process import Build, PartyProcess
from vflbench.federation.snapshot import Cut
from vflbench.types import FederationError

POLL = 0.5  # s without news after which the driver asks the parties how they are

log = logging.getLogger(__name__)


@dataclass
class RemoteParty:
    """What the driver knows of a party."""

    name: str
    trace: array[float] = field(default_factory=lambda: array("d"))
    # tag -> messages to it that a real broker replaced by newer ones
    dropped: dict[str, int] = field(default_factory=dict)
    round: int = 0
    finished: bool = False
    kept: str | None = None  # the name under which it keeps its secret
    served: Served = (0, ())
    _parameters: dict[str, torch.Tensor] = field(default_factory=dict)
    _nonfinite: str | None = None
    _spent: dict[str, Any] | None = None

    @property
    def state(self) -> Any:
        """No state: it never leaves the party.

        Raises
        ------
        FederationError
            Always.
        """
        raise FederationError(f"the state of {self.name} is in its own process")

    def parameters(self) -> dict[str, torch.Tensor]:
        """The parameters at the end of the run; empty before."""
        return self._parameters

    def spent(self) -> dict[str, Any] | None:
        """What the privacy mechanism had spent at the last scored boundary, and at the end of the run."""
        return self._spent

    def nonfinite(self) -> str | None:
        """What the party found at its last scored boundary."""
        return self._nonfinite


@dataclass(eq=False, repr=False)
class RayEngine(Engine):
    """Drives the parties' processes."""

    cluster: Cluster  # where the processes are started; they end with `run`
    names: Sequence[str]  # of the parties, in order
    build: Build | Mapping[str, Build]  # makes a party's engine in its process; where they differ, one for each name
    _: KW_ONLY
    timeout: float  # s after which a party that does not answer, or a message that does not arrive, fails the run
    rounds: int  # this and `on_report` as in `Runtime`
    expendable: Collection[str] = ()  # the parties without which the run goes on where their process dies
    published: Sequence[str] = ()  # tags that pass a broker
    on_report: Callable[[str, int, dict[str, Any]], None] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.lost: dict[str, int] = {}  # party whose process has died -> in which round
        self.parties: dict[str, RemoteParty] = {name: RemoteParty(name) for name in self.names}
        self.order: list[RemoteParty] = list(self.parties.values())
        self.ledger = Ledger()
        if self.resume_from is not None:
            self.ledger.tags.update(self.resume_from.totals["tags"])
        self.stopping = False
        self.pids: dict[str, int] = {}
        self.logged: set[tuple[str, str]] = set()  # (logger, text) of what parties have logged
        self.cores: int = 1  # of the machines that parties are on
        self.started_seconds = 0.0  # s that starting the processes took
        self.began = 0.0
        self._open: dict[int, dict[str, dict[str, Any]]] = {}  # round -> boundaries that parties have passed
        self._calls: dict[Any, str] = {}  # outstanding `proceed` -> party
        self._lives: dict[Any, str] = {}
        self._actors: dict[str, Any] = {}
        self._before: Any = None  # how the parties were at the last look, if all of them waited
        self._since = 0.0  # when they were first found to be so

    @property
    def facts(self) -> dict[str, Any]:
        """What the summary says of the engine."""
        found: dict[str, Any] = {"engine": "ray", "start_seconds": self.started_seconds, "cores": self.cores}
        found |= {"lost": self.lost} if self.lost else {}
        if self.published:  # the algorithm's own channels drop messages too
            found["dropped_by_broker"] = {
                tag: sum(party.dropped.get(tag, 0) for party in self.order) for tag in self.published
            }
        return found

    def run(self) -> None:
        """Run to the end.

        Raises
        ------
        FederationError
            A process has died or does not answer, a program has failed, a message does not arrive, or all parties wait
            for each other.
        """
        try:
            self._start()
            while not (self.stopping or all(party.finished for party in self.order)):
                self._listen()
            self._heard_last(
                self._gather({name: actor.ask.remote("last_words") for name, actor in self._living.items()})
            )
        except BaseException:
            self._last_words()
            raise
        finally:
            self.cluster.dismiss(list(self._actors.values()))

    def _start(self) -> None:
        import ray

        start, offset = time.perf_counter(), clock_offset()
        clock = wire.pack({"node": ray.get_runtime_context().get_node_id(), "offset": offset})
        self._actors = {name: self.cluster.hire(PartyProcess) for name in self.parties}
        self._lives = {actor.live.remote(): name for name, actor in self._actors.items()}
        calls: dict[str, Any] = {}
        machines: dict[str, int] = {}
        for name, actor in self._actors.items():
            peers = {other: handle for other, handle in self._actors.items() if other != name}
            build = self.build[name] if isinstance(self.build, Mapping) else self.build
            calls[name] = actor.prepare.remote(name, build, peers, wire.pack(self._part(name)), clock)
        for name, answer in self._gather(calls, max(self.timeout, STARTING)).items():
            if answer["problem"] is not None:
                raise FederationError(f"{name} could not start: {answer['problem']}")
            self.pids[name] = answer["pid"]
            machines[answer["node"]] = answer["cores"]
        self.cores = sum(machines.values())
        self.started_seconds = time.perf_counter() - start
        self.began = time.monotonic() + offset
        self._proceed(self.parties)

    def _part(self, name: str) -> dict[str, Any] | None:
        """A party's own part of the cut that the run goes on from."""
        cut = self.resume_from
        if cut is None:
            return None
        inflight = [message for message in cut.inflight if message["dst"] == name]
        return {"round": cut.round, "parties": {name: cut.parties[name]}, "inflight": inflight, "totals": cut.totals}

    def _proceed(self, names: Iterable[str], released: bool = False) -> None:
        order = {"finished": self.finished_round, "stopping": self.stopping, "released": released, "began": self.began}
        for name in names:
            if not self.parties[name].finished:
                self._calls[self._actors[name].proceed.remote(wire.pack(order))] = name

    # --- listening ----------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        """Wait for events and handle them; after a while without any, look how the parties are."""
        import ray

        ready, _ = ray.wait([*self._calls, *self._lives], num_returns=1, timeout=POLL)
        if not ready:
            return self._look()
        self._before = None
        for reference in ready:
            name = self._calls.pop(reference, None) or self._lives.get(reference)
            if name is None:  # it has died, as was seen just now
                continue
            for event in self._get(name, reference) or ():
                self._hear(name, event)

    def _get(self, name: str, reference: Any) -> Any:
        """The result of a call of `name`; None where its process has died and the run goes on.

        Raises
        ------
        FederationError
            The run does not go on, or the call has failed otherwise.
        """
        import ray

        try:
            return wire.unpack(ray.get(reference))
        except deaths() as error:
            where = f"in round {self.parties[name].round + 1}" if self._calls or self.began else "while it started"
            problem = FederationError(f"the process of {name} has died {where} (killed, or out of memory)")
            if name not in self.expendable or not self.began:
                raise problem from error
            if name not in self.lost:
                self._lose(name, str(problem))
            return None
        except ray.exceptions.RayError as error:
            reason = error.cause if isinstance(error, ray.exceptions.RayTaskError) else error
            raise FederationError(
                f"{name} could not do what it was asked: {type(reason).__name__}: {reason}"
            ) from error

    def _lose(self, name: str, what: str) -> None:
        """Go on without a party."""
        kept = (
            ": there are no more checkpoints, resume=true goes on with all from the last one"
            if self.checkpoint_every
            else ""
        )
        log.warning("%s. The run goes on without it%s", what, kept)
        self.lost[name] = self.parties[name].round + 1
        self.parties[name].finished = True
        for references in (self._calls, self._lives):
            for reference in [reference for reference, whose in references.items() if whose == name]:
                del references[reference]
        for actor in self._living.values():
            actor.lose.remote(name.encode())
        for round in sorted(self._open):
            self._close(round)

    @property
    def _living(self) -> dict[str, Any]:
        return {name: actor for name, actor in self._actors.items() if name not in self.lost}

    def _gather(self, calls: Mapping[str, Any], timeout: float | None = None) -> dict[str, Any]:
        """The results of one call per party that lives.

        Raises
        ------
        FederationError
            A party has died, or does not answer in time.
        """
        import ray

        waiting, found = {reference: name for name, reference in calls.items()}, {}
        timeout = self.timeout if timeout is None else timeout
        deadline = time.monotonic() + timeout
        while waiting:
            seconds = max(0.0, deadline - time.monotonic())
            ready, _ = ray.wait([*waiting, *self._lives], num_returns=1, timeout=seconds)
            if not ready:
                raise FederationError(no_answer(", ".join(sorted(waiting.values())), timeout, timeout != self.timeout))
            for reference in ready:
                name = waiting.pop(reference, None) or self._lives.get(reference)
                if name is not None:
                    found[name] = self._get(name, reference)
            waiting = {reference: name for reference, name in waiting.items() if name not in self.lost}
        return {name: found[name] for name in calls if name not in self.lost}

    def _hear(self, name: str, event: dict[str, Any]) -> None:
        party = self.parties[name]
        rows = event["ledger"].reshape(-1, len(COLUMN)).copy()
        codes = np.array([self.ledger.tag(tag) for tag in event["tags"]], dtype=np.float64)
        rows[:, COLUMN["tag"]] = codes[rows[:, COLUMN["tag"]].astype(int)] if len(rows) else 0.0
        self.ledger.rows.frombytes(rows.tobytes())
        party.trace.frombytes(event["trace"].tobytes())
        for logger, level, text in event["logs"]:
            if (logger, text) not in self.logged:  # each party may log the same of its data set
                self.logged.add((logger, text))
                logging.getLogger(logger).log(level, "%s: %s", name, text)
        for round, values in event["reports"]:
            if self.on_report is not None:
                self.on_report(name, round, values)
        party.dropped = event["dropped"]
        if event.get("spent") is not None:
            party._spent = event["spent"]
        if event["kind"] == "failed":
            error = FederationError(event["error"])
            error.add_note(event["traceback"])
            raise error
        if event["kind"] == "finished":
            party.finished = True
            return
        party.round, party._nonfinite = event["round"], event.get("nonfinite")
        self._open.setdefault(party.round, {})[name] = event
        self._close(party.round)

    def _close(self, round: int) -> None:
        """Where all parties that live have finished `round`: let the observer look at it, and the parties go on."""
        if not self._open.get(round, {}).keys() >= self._living.keys():
            return
        passed = self._open.pop(round).values()
        self.finished_round = round
        self.bytes_sent += sum(one["sent"] for one in passed)
        self.boundary_clock = max(self.boundary_clock, *(one["now"] for one in passed))
        if self.on_round is not None and self.on_round(round, self):
            self.stopping = True
        elif (
            self.checkpoint_every
            and self.on_cut is not None
            and round % self.checkpoint_every == 0
            and round < self.rounds
        ):
            cut = None if self.lost else self._cut(round)
            if cut is not None and not self.lost:  # nobody has died meanwhile
                self.on_cut(cut)
        self._proceed(self.parties)

    def _cut(self, round: int) -> Cut:
        """The cut, put together from the parties' parts.

        All messages of the round have arrived: parties tell of a boundary only after that.
        """
        cut = Cut(round, totals=self.totals())
        for name, part in self._gather(
            {name: actor.ask.remote("own_cut", round) for name, actor in self._living.items()}
        ).items():
            cut.parties[name] = part["party"]
            cut.inflight += part["inflight"]
        return cut

    def _look(self) -> None:
        """No event has come for a while: find out who waits for what.

        If the answer is the same twice, and all messages have arrived, nobody can run.
        """
        found = self._gather({name: actor.status.remote() for name, actor in self._living.items()})
        self._proceed([name for name, one in found.items() if one["news"] and name not in self._calls.values()])
        news = [name for name, one in found.items() if one["news"] and not self.parties[name].finished]
        stuck = all(one["waits"] for one in found.values()) and not news
        if not stuck or self._before != found:
            self._before, self._since = found if stuck else None, time.monotonic()
            return
        on_their_way = {
            (a, b): n - found[b]["received"].get(a, n)
            for a, one in found.items()
            for b, n in one["sent"].items()
            if b in found
        }
        if any(on_their_way.values()) and time.monotonic() - self._since < self.timeout:
            return
        if any(on_their_way.values()):
            which = ", ".join(f"{n} of {a} to {b}" for (a, b), n in on_their_way.items() if n)
            raise FederationError(
                f"messages have not arrived within {self.timeout:g} s (engine.timeout): {which}. {_waiting(found)}"
            )
        self._before = None
        parked = {name: one["round"] for name, one in found.items() if one["parked"]}
        if parked:  # they wait for slower parties, which wait for them
            self._proceed([name for name, round in parked.items() if round == min(parked.values())], released=True)
            return
        raise FederationError(f"deadlock: nobody can run and nothing is in flight. {_waiting(found)}")

    def _heard_last(self, words: Mapping[str, Mapping[str, Any]]) -> None:
        """Keep the parameters and what privacy has cost, by party."""
        for name, one in words.items():
            party = self.parties[name]
            party._parameters, party.kept, party.served = one["parameters"], one["kept"], one["tape"]
            party._spent = one["spent"] if one["spent"] is not None else party._spent

    def _last_words(self) -> None:
        """After a failure: ask those that still answer soon."""
        import ray

        calls = {actor.ask.remote("last_words"): name for name, actor in self._living.items() if name in self.pids}
        ready, _ = (
            ray.wait(list(calls), num_returns=max(len(calls), 1), timeout=min(self.timeout, 10.0))
            if calls
            else ([], [])
        )
        for reference in ready:
            with contextlib.suppress(ray.exceptions.RayError):
                self._heard_last({calls[reference]: wire.unpack(ray.get(reference))})


def _waiting(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Who waits for what, by the parties' states."""
    return "; ".join(
        f"{name} (round {one['round']}) waits for {one['for']}" for name, one in found.items() if not one["finished"]
    )
