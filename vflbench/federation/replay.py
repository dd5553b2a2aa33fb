"""Re-time a finished run from its trace: what each party did, in its program's order, under another network, without training.

Exact for programs whose control flow does not depend on time: equal links serve equal messages in equal order, in the same
floating-point expressions as the engine's (tests/contracts/test_reprice.py). A loop of its own and no engine driving players: a
message costs it a tenth.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from vflbench.federation import links as L
from vflbench.federation.ledger import COLUMN, COMPUTE, MARK, RECV, SEND, TRACE_COLUMN, sort_ledger
from vflbench.types import NetworkConfig, VflbenchError


@dataclass(frozen=True)
class Retimed:
    """A run's times under a network."""

    ends: dict[int, float]  # round -> seconds: the latest party's clock at that round's boundary
    ledger: np.ndarray  # (messages, 10) by (src, dst, seq), `sent` and `delivered` as they would be; NaN: the trace does not have it
    # Whether nothing that parties do after the trace's end can change these times. Without it, they hold only for a trace that ends
    # with the last round: in a run that stopped before, the next round's messages may pass a shared bandwidth first.
    closed: bool


def retime(
    ledger: np.ndarray,
    traces: Mapping[str, np.ndarray],
    roles: Mapping[str, str],
    network: NetworkConfig,
    computing: bool = True,
) -> Retimed:
    """When each round ends under `network`, and when each message is sent and delivered.

    Parameters
    ----------
    ledger : (messages, 10) rows of the run; `sent` and `delivered` are not read.
    traces : party -> (events, 4 or 5) rows in program order; times are not read.
    roles : party -> role, in the parties' order.
    computing : False takes every computation as 0 seconds.

    Raises
    ------
    VflbenchError : trace and ledger are not of one run.
    """
    return _Replay(_sorted(ledger), traces, roles, network, computing).run()


def _sorted(ledger: np.ndarray) -> np.ndarray:
    """By (src, dst, seq), as a finished run's ledger is already."""
    src, dst, seq = (np.diff(ledger[:, COLUMN[key]]) for key in ("src", "dst", "seq"))
    done = (src > 0) | ((src == 0) & ((dst > 0) | ((dst == 0) & (seq > 0))))
    return ledger if done.all() else sort_ledger(ledger)


class _Replay:
    """Every party is a generator over its trace that waits (yields) where a message that it reads is not delivered yet."""

    def __init__(
        self, rows: np.ndarray, traces: Mapping[str, np.ndarray], roles: Mapping[str, str], network: NetworkConfig, computing: bool
    ) -> None:
        self.rows, self.network, self.computing = rows, network, computing
        self.names, self.servers = list(roles), {index for index, role in enumerate(roles.values()) if role == "server"}
        src, dst = (rows[:, COLUMN[end]].astype(np.int64) for end in ("src", "dst"))
        pair = src * len(roles) + dst
        self.first = np.flatnonzero(np.diff(pair, prepend=-1))  # where a pair's messages begin
        kinds = rows[:, COLUMN["kind"]].astype(np.int64)
        ends = [(int(src[at]), int(dst[at]), L.LINK_KINDS[kinds[at]]) for at in self.first]
        named = [f"{self.names[a]}->{self.names[b]}" for a, b, _ in ends]
        self.links = [L.Link(a, b, kind, L.link_config(network, kind, name)) for (a, b, kind), name in zip(ends, named, strict=True)]
        self.busy = [0.0] * len(ends)
        self.latency = [link.latency for link in self.links]
        # Lists, by message: an element of an array takes several times as long to reach.
        link = np.repeat(np.arange(len(ends)), np.diff(self.first, append=len(rows)))
        self.link: list[int] = link.tolist()
        self.service: list[float] = (rows[:, COLUMN["bytes"]] * np.array([one.rate for one in self.links], dtype=np.float64)[link]).tolist()
        self.sent: list[float | None] = [None] * len(rows)
        self.delivered: list[float | None] = [None] * len(rows)
        self.steps, self.others = self._steps(traces, pair[self.first])
        # Messages whose delivery is not their own link's alone to decide.
        plain = network.timing == "causal" and network.server_bandwidth_gbps is None
        self.joint: list[bool] | None = None if plain else (kinds == L.LINK_KINDS.index(L.CLIENT_SERVER)).tolist()
        self.media = {index: L.Medium() for index in range(len(roles))}  # timing=round
        self.shared = L.seconds_per_byte(network.server_bandwidth_gbps)
        self.egress = dict.fromkeys(self.servers, 0.0)
        self.ingress = {index: L.Ingress(self.shared) for index in range(len(roles))}
        self.heap: list[tuple[float, int, int, int, float]] = []  # (arrival, source, message, reader, when the last byte has left)
        self.last_arrival: float | None = None  # at a shared bandwidth
        self.waiting: dict[int, int] = {}  # message -> the party that waits for it
        self.ready = deque(range(len(roles)))  # first come, first served: whoever gathers finds several messages at once
        self.ends: dict[int, float] = {}
        self.clocks = [0.0] * len(roles)  # of parties that are through

    def _steps(self, traces: Mapping[str, np.ndarray], pairs: np.ndarray) -> tuple[list[list[int]], list[tuple[float, int]]]:
        """Per party what it did, as whole numbers: at, a message's row, is sent; -1 - at is read; others + the number of messages are
        indices into (seconds computed, round ended). Rows of a pair's messages follow each other, numbered from 0."""
        width, count = TRACE_COLUMN["value"] + 1, len(self.names)
        kept = [np.asarray(traces[name])[:, :width] for name in self.names]
        if not self.computing:
            kept = [rows[rows[:, TRACE_COLUMN["kind"]] != COMPUTE] for rows in kept]
        events, sizes = np.concatenate(kept), [len(rows) for rows in kept]
        party = np.repeat(np.arange(count), sizes)
        kind, value = events[:, TRACE_COLUMN["kind"]], events[:, TRACE_COLUMN["value"]]
        peer, seq = (events[:, TRACE_COLUMN[key]].astype(np.int64) for key in ("peer", "seq"))
        steps = np.empty(len(events), np.int64)
        bounds = np.append(self.first, len(self.rows))
        for which, pair in ((SEND, party * count + peer), (RECV, peer * count + party)):
            chosen = np.flatnonzero(kind == which)
            place = np.searchsorted(pairs, pair[chosen])
            known = np.append(pairs, -1)[place] == pair[chosen]
            at = bounds[place] + seq[chosen]
            known &= at < np.append(bounds, 0)[place + 1]
            if not known.all():
                wrong = int(chosen[np.flatnonzero(~known)[0]])
                one, other = self.names[int(party[wrong])], self.names[int(peer[wrong])]
                source, reader = (one, other) if which == SEND else (other, one)
                raise VflbenchError(f"the trace has message {seq[wrong]} from {source} to {reader}, the ledger has none")
            steps[chosen] = at if which == SEND else -1 - at
        rest = np.flatnonzero((kind == COMPUTE) | (kind == MARK))
        steps[rest] = len(self.rows) + np.arange(len(rest))
        ends = kind[rest] == MARK
        others = list(zip(np.where(ends, 0.0, value[rest]).tolist(), np.where(ends, value[rest], 0).astype(int).tolist(), strict=True))
        return [part.tolist() for part in np.split(steps, np.cumsum(sizes)[:-1])], others

    def run(self) -> Retimed:
        parties = [self._party(index, steps) for index, steps in enumerate(self.steps)]
        through, ready = 0, self.ready
        while ready or self._serve():
            while ready:
                through += next(parties[ready.popleft()], True)
        if through < len(parties):
            at, reader = next(iter(self.waiting.items()))
            source = self.names[self.links[self.link[at]].src]
            raise VflbenchError(f"trace and ledger are not of one run: {self.names[reader]} waits for a message from {source} for ever")
        overtaken = self.last_arrival >= min(self.clocks, default=np.inf) if self.last_arrival is not None else False
        closed = not self._settle() and not overtaken
        rows = self.rows.copy()
        for key, times in (("sent", self.sent), ("delivered", self.delivered)):
            rows[:, COLUMN[key]] = np.array(times, dtype=np.float64)
        return Retimed(self.ends, rows, closed)

    def _party(self, index: int, steps: list[int]) -> Iterator[bool]:
        """One party's events; yields False where it must wait."""
        now, ends, waiting, ready = 0.0, self.ends, self.waiting, self.ready
        sent, delivered, service, link_of = self.sent, self.delivered, self.service, self.link
        joint, others, busy, latency, messages = self.joint, self.others, self.busy, self.latency, len(self.rows)
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
            else:
                seconds, round = others[step - messages]
                now += seconds
                if round and now >= ends.get(round, 0.0):
                    ends[round] = now
        self.clocks[index] = now

    # --- what a party shares with others: timing=round, or a server's bandwidth ---------------------------------------------

    def _send(self, at: int, now: float) -> float | None:
        """Delivery time of a message between a client and a server; None where it is decided later."""
        link, nbytes, network = self.links[self.link[at]], int(self.rows[at, COLUMN["bytes"]]), self.network
        serves = link.src in self.servers
        if network.timing == "round":
            return self.media[link.src].scatter(now, nbytes, link) if serves else None
        out = now
        if serves:
            out = max(now, self.egress[link.src])
            self.egress[link.src] = out + nbytes * self.shared
        link.start = max(out, link.busy)
        link.busy = link.start + nbytes * link.rate
        if serves:
            return max(link.busy, self.egress[link.src]) + link.latency
        heapq.heappush(self.heap, (link.start + link.latency, link.src, at, link.dst, link.busy))
        return None

    def _gather(self, at: int) -> float:
        """timing=round: the server reads a message, in its program's order."""
        link = self.links[self.link[at]]
        sent = self.sent[at]
        assert sent is not None
        time = self.media[link.dst].gather(sent, int(self.rows[at, COLUMN["bytes"]]), link, self.network.latencies)
        self.delivered[at] = time
        return time

    def _serve(self) -> bool:
        """Nobody can go on: the message that arrives first at a shared bandwidth passes it. False if there is none."""
        if not self.heap:
            return False
        arrival, src, at, dst, left = heapq.heappop(self.heap)
        self.last_arrival = arrival
        served = self.ingress[dst].serve(arrival, src, at, int(self.rows[at, COLUMN["bytes"]]), 0)
        self.delivered[at] = max(left + self.links[self.link[at]].latency, served)
        if at in self.waiting:
            self.ready.append(self.waiting.pop(at))
        return True

    def _settle(self) -> bool:
        """timing=round, at the end: what no server has read passes its medium all the same. Whether there was any."""
        unread = [at for at, time in enumerate(self.delivered) if time is None and self.sent[at] is not None]
        for at in sorted(unread, key=lambda at: (self.links[self.link[at]].dst, at)):
            self._gather(at)
        return bool(unread)


def idle_seconds(traces: Mapping[str, np.ndarray], until: list[float]) -> list[float]:
    """For each time, the seconds before it in which no party computes: the communication time of a time-dependent run."""
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
