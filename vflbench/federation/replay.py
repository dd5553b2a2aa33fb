"""Re-time a finished run under another network from its trace, without training.

The trace says what each party did, in the order of its program. Exact for programs whose control flow does not depend
on time: equal links serve equal messages in equal order, in the same floating-point expressions as the engine's
(tests/contracts/test_reprice.py). A message costs this loop a tenth of what it would cost an engine.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from vflbench.federation import links as L
from vflbench.federation.ledger import COLUMN, COMPUTE, MARK, RECV, SEND, TRACE_COLUMN, sort_ledger
from vflbench.types import NetworkConfig, VflbenchError


@dataclass(frozen=True)
class Retimed:
    """A run's times under a network."""

    ends: dict[int, float]  # round -> seconds: the latest party's clock at that round's boundary
    sent: np.ndarray  # (messages,) by (src, dst, seq), as the program's `rows`; NaN: the trace does not have it
    delivered: np.ndarray
    # Whether nothing that parties do after the trace's end can change these times. If False, they hold only where the
    # trace ends with the last round: after an earlier end, the next round's messages may pass a shared bandwidth first.
    closed: bool


class Program:
    """What every party of a run did, in its order: made once, then timed under any number of networks.

    Parameters
    ----------
    ledger : (messages, 10) rows, of which `sent` and `delivered` are not read.
    traces : party -> (events, 4 or 5) rows in program order, whose times are not read.
    roles : party -> role, in the parties' order.

    Raises
    ------
    VflbenchError
        Trace and ledger are not of one run. This may show only when the program is timed.
    """

    def __init__(self, ledger: np.ndarray, traces: Mapping[str, np.ndarray], roles: Mapping[str, str]) -> None:
        self.rows = rows = _sorted(ledger)
        self.names, self.servers = list(roles), {index for index, role in enumerate(roles.values()) if role == "server"}
        src, dst, kind = (rows[:, COLUMN[key]].astype(np.int64) for key in ("src", "dst", "kind"))
        pair = src * len(roles) + dst
        first = np.flatnonzero(np.diff(pair, prepend=-1))  # where a pair's messages begin
        # source, reader and kind of every link
        self.ends = [(int(src[at]), int(dst[at]), L.LINK_KINDS[kind[at]]) for at in first]
        self.link_of = np.repeat(np.arange(len(first)), np.diff(first, append=len(rows)))  # a message's link
        # messages whose delivery may depend on more than their own link
        self.shared = kind == L.LINK_KINDS.index(L.CLIENT_SERVER)
        kinds = {name: traces[name][:, TRACE_COLUMN["kind"]] for name in self.names}
        values = {name: traces[name][:, TRACE_COLUMN["value"]] for name in self.names}
        self.seconds: list[float] = []  # of every computation
        for name in self.names:
            self.seconds += values[name][kinds[name] == COMPUTE].tolist()
        self.marks = len(rows) + len(self.seconds)
        self.steps = self._steps(traces, pair[first], np.append(first, len(rows)))

    def _steps(self, traces: Mapping[str, np.ndarray], pairs: np.ndarray, bounds: np.ndarray) -> list[np.ndarray]:
        """Per party what it did, as whole numbers.

        - -1 - at: the message in row `at` is read;
        - at: it is sent;
        - from the number of messages on: `seconds` are computed;
        - marks + a round: the round ends.

        Rows of a pair's messages follow each other, numbered from 0.
        """
        count, computed, found = len(self.names), len(self.rows), []
        pairs, bounds = np.append(pairs, -1), np.append(bounds, 0)
        for party, name in enumerate(self.names):
            kind, peer, seq, value = (traces[name][:, TRACE_COLUMN[key]] for key in ("kind", "peer", "seq", "value"))
            other, reads, computes = peer.astype(np.int64), kind == RECV, kind == COMPUTE
            pair = np.where(reads, other * count + party, party * count + other)
            place = np.searchsorted(pairs[:-1], pair)
            at = bounds[place] + seq.astype(np.int64)
            unknown = ((pairs[place] != pair) | (at >= bounds[place + 1])) & (reads | (kind == SEND))
            if unknown.any():
                event = int(unknown.argmax())
                source, reader = (int(other[event]), party) if reads[event] else (party, int(other[event]))
                lacking = f"{int(seq[event])} from {self.names[source]} to {self.names[reader]}"
                raise VflbenchError(f"the trace has message {lacking}, the ledger has none")
            steps = np.where(reads, -1 - at, np.where(kind == MARK, self.marks + value, at).astype(np.int64))
            steps[computes] = np.arange(computed, computed + np.count_nonzero(computes))
            computed += int(np.count_nonzero(computes))
            found.append(steps)
        return found

    def retime(self, network: NetworkConfig) -> Retimed:
        """When each round ends under `network`, and when each message is sent and delivered."""
        return _Replay(self, network, self.steps).retimed()

    def without_computing(self, network: NetworkConfig, absent: np.ndarray | None = None) -> dict[int, float]:
        """When each round would end if computing took no time, as `Retimed.ends`.

        absent : (messages,) bool, by row of `rows`: nobody sends these messages, or waits for them.
        """
        messages = len(self.rows)
        steps = [steps[(steps < messages) | (steps >= self.marks)] for steps in self.steps]
        if absent is not None:
            whose = [np.where(own < 0, -1 - own, own) for own in steps]  # the row of a message, sent or read
            gone = np.append(absent, False)  # at the end: what is no message
            steps = [own[~gone[np.minimum(row, messages)]] for own, row in zip(steps, whose, strict=True)]
        return _Replay(self, network, steps).run()


def _listed(values: np.ndarray) -> Iterator[int]:
    """The values as Python numbers, a piece at a time: a list of all would take much memory."""
    return itertools.chain.from_iterable(values[at : at + 1024].tolist() for at in range(0, len(values), 1024))


def _sorted(ledger: np.ndarray) -> np.ndarray:
    """By (src, dst, seq), as a finished run's ledger is already."""
    src, dst, seq = (np.diff(ledger[:, COLUMN[key]]) for key in ("src", "dst", "seq"))
    done = (src > 0) | ((src == 0) & ((dst > 0) | ((dst == 0) & (seq > 0))))
    return ledger if done.all() else sort_ledger(ledger)


class _Replay:
    """Every party is a generator over its steps; it yields where a message that it reads is not delivered yet."""

    def __init__(self, program: Program, network: NetworkConfig, steps: list[np.ndarray]) -> None:
        self.program, self.network, self.steps = program, network, steps
        self.rows, self.names, self.servers = program.rows, program.names, program.servers
        named = [f"{self.names[a]}->{self.names[b]}" for a, b, _ in program.ends]
        configs = [L.link_config(network, kind, name) for (_, _, kind), name in zip(program.ends, named, strict=True)]
        self.links = [L.Link(a, b, kind, config) for (a, b, kind), config in zip(program.ends, configs, strict=True)]
        self.busy = [0.0] * len(self.links)
        self.latency = [link.latency for link in self.links]
        # Lists, by message: reading an element of an array takes several times as long.
        rates = np.array([one.rate for one in self.links], dtype=np.float64)
        self.link: list[int] = program.link_of.tolist()
        self.service: list[float] = (self.rows[:, COLUMN["bytes"]] * rates[program.link_of]).tolist()
        self.sent: list[float | None] = [None] * len(self.rows)
        self.delivered: list[float | None] = [None] * len(self.rows)
        plain = network.timing == "causal" and network.server_bandwidth_gbps is None
        self.joint: list[bool] | None = None if plain else program.shared.tolist()
        self.shared = L.Shared(network)
        # (arrival, source, message, reader, when the last byte has left)
        self.heap: list[tuple[float, int, int, int, float]] = []
        self.last_arrival: float | None = None  # at a shared bandwidth
        self.waiting: dict[int, int] = {}  # message -> the party that waits for it
        # first come, first served: who gathers finds several messages at once
        self.ready = deque(range(len(self.names)))
        self.ends: dict[int, float] = {}
        self.clocks = [0.0] * len(self.names)  # of the parties that have ended

    def run(self) -> dict[int, float]:
        """When each round ends."""
        parties = [self._party(index, _listed(steps)) for index, steps in enumerate(self.steps)]
        ended, ready = 0, self.ready
        while ready or self._serve():
            while ready:
                ended += next(parties[ready.popleft()], True)
        if ended < len(parties):
            at, reader = next(iter(self.waiting.items()))
            source = self.names[self.links[self.link[at]].src]
            raise VflbenchError(
                f"trace and ledger are not of one run: {self.names[reader]} waits for a message from {source} for ever"
            )
        return self.ends

    def retimed(self) -> Retimed:
        """The run's times."""
        self.run()
        overtaken = self.last_arrival >= min(self.clocks, default=np.inf) if self.last_arrival is not None else False
        closed = not self._settle() and not overtaken
        return Retimed(
            self.ends, np.array(self.sent, dtype=np.float64), np.array(self.delivered, dtype=np.float64), closed
        )

    def _party(self, index: int, steps: Iterable[int]) -> Iterator[bool]:
        """One party's events; yields False where it must wait."""
        now, ends, waiting, ready = 0.0, self.ends, self.waiting, self.ready
        sent, delivered, service, link_of = self.sent, self.delivered, self.service, self.link
        joint, busy, latency, seconds = self.joint, self.busy, self.latency, self.program.seconds
        messages, marks = len(self.rows), self.program.marks
        for step in steps:
            if step < 0:
                at = -1 - step
                time = delivered[at]
                while time is None:
                    if sent[at] is not None and self.network.timing == "round":
                        time = self._gather(at)
                    else:
                        waiting[at] = index
                        yield False
                        time = delivered[at]
                if time > now:
                    now = time
            elif step < messages:
                sent[step] = now
                if joint is None or not joint[step]:
                    link = link_of[step]
                    start = busy[link]
                    if now > start:
                        start = now
                    busy[link] = end = start + service[step]
                    delivered[step] = end + latency[link]
                else:
                    delivered[step] = self._send(step, now)
                if step in waiting:
                    ready.append(waiting.pop(step))
            elif step < marks:
                now += seconds[step - messages]
            elif now >= ends.get(step - marks, 0.0):
                ends[step - marks] = now
        self.clocks[index] = now

    # --- what a party shares with others: timing=round, or a server's bandwidth ---------------------------------------

    def _send(self, at: int, now: float) -> float | None:
        """Delivery time of a message between a client and a server; None where it is decided later."""
        link = self.links[self.link[at]]
        delivered = self.shared.send(link, now, int(self.rows[at, COLUMN["bytes"]]), link.src in self.servers)
        if delivered is None and self.network.timing == "causal":
            heapq.heappush(self.heap, (link.start + link.latency, link.src, at, link.dst, link.busy))
        return delivered

    def _gather(self, at: int) -> float:
        """With timing=round: the server reads a message, in its program's order."""
        link = self.links[self.link[at]]
        sent = self.sent[at]
        assert sent is not None
        time = self.shared.media[link.dst].gather(
            sent, int(self.rows[at, COLUMN["bytes"]]), link, self.network.latencies
        )
        self.delivered[at] = time
        return time

    def _serve(self) -> bool:
        """Nobody can go on: the message that arrives first at a shared bandwidth passes it. False if there is none."""
        if not self.heap:
            return False
        arrival, src, at, dst, left = heapq.heappop(self.heap)
        self.last_arrival = arrival
        served = self.shared.ingress[dst].serve(arrival, src, at, int(self.rows[at, COLUMN["bytes"]]), 0)
        self.delivered[at] = max(left + self.links[self.link[at]].latency, served)
        if at in self.waiting:
            self.ready.append(self.waiting.pop(at))
        return True

    def _settle(self) -> bool:
        """With timing=round, at the end: let what no server has read pass its medium. Whether there was any."""
        unread = [at for at, time in enumerate(self.delivered) if time is None and self.sent[at] is not None]
        for at in sorted(unread, key=lambda at: (self.links[self.link[at]].dst, at)):
            self._gather(at)
        return bool(unread)


def idle_seconds(traces: Mapping[str, np.ndarray], until: list[float]) -> list[float]:
    """For each time in `until`, the seconds before it in which no party computes."""
    rows = np.concatenate([trace[trace[:, 0] == COMPUTE] for trace in traces.values()])
    intervals = np.stack([rows[:, 4] - rows[:, 3], rows[:, 4]], axis=1)
    intervals = intervals[np.argsort(intervals[:, 0], kind="stable")]
    merged: list[list[float]] = []
    for start, end in intervals.tolist():
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return [time - sum(max(0.0, min(end, time) - start) for start, end in merged if start < time) for time in until]
