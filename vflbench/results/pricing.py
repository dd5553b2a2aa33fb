"""Communication time and cost of a finished run under any latency and bandwidth.

They are sums that a page can price by itself; plots/report_page/compare.js has the same formula. The rule is
network.timing=round (federation/links.py `Medium`) with equal links and no time for computing. An exchange at a server
costs `latencies` x L + its bytes / B. A message between two clients costs L + its bytes / B, after those before it on
its link.

Every clock is then the longest of some chains of messages: max over chains of (latencies x L + bytes / B). Few chains
can ever be the longest. Where all goes through a server there is one, the sums over its exchanges. `chains` finds them
once, from trace and ledger, in whole numbers; `seconds` prices them. This is exact for every run whose control flow
does not depend on time.
"""

import re
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from vflbench.results.folder import PER
from vflbench.results.reader import OWN, Arrays, Run, natural
from vflbench.types import VflbenchError

CLIENT_SERVER, CLIENT_CLIENT = "client_server", "client_client"
MOST_MESSAGES = 1_000_000  # a longer trace is not re-priced: it takes some 5 microseconds a message

Chains = tuple[tuple[int, int], ...]  # (latencies, bytes) of each: most latencies first, and so fewest bytes first
START: Chains = ((0, 0),)


def seconds(chains: Chains, latency_ms: float, bandwidth_gbps: float | None) -> float:
    """The length of the longest of `chains`, in s; a bandwidth of None is unbounded."""
    rate = 0.0 if bandwidth_gbps is None else 8.0 / (bandwidth_gbps * 1e9)  # s per byte
    return max(latencies * latency_ms / 1e3 + nbytes * rate for latencies, nbytes in chains)


def cost(client_server: int, client_client: int, ratio: float) -> float:
    """Weighted cost of the bytes of both link kinds."""
    return client_server * ratio + client_client


@dataclass
class Priced:
    """What can be re-priced of a run, with one entry for each of its evaluations."""

    chains: list[Chains] | None = None
    bytes_by_link: list[tuple[int, int]] | None = None  # client-server, client-client
    #: before and after the run's own program: phase -> its chains, and bytes client-server and client-client; those of
    #: `predict` are of the last evaluation
    phases: dict[str, tuple[Chains, tuple[int, int]]] = field(default_factory=dict)
    why: str | None = None  # why there are no chains
    damaged: bool = False  # trace or ledger is, so there are none


def price(run: Run, ledger: Arrays, time_dependent: bool | None) -> Priced:
    """Chains and bytes at the evaluations of `run`, whose ledger this is.

    `time_dependent`: whether its algorithm depends on time, so that it would have done something else on another
    network; None where it is not known.

    Raises
    ------
    VflbenchError : the curve cannot be read.
    """
    rounds = run.curve["round"].astype(int).tolist()
    if run.summary["accounting"] != "strict":
        return Priced(why=f"its times and bytes are by accounting={run.summary['accounting']}")
    every, ledger = ledger, ledger.of_phases(OWN)
    found = Priced(bytes_by_link=_bytes(ledger, rounds))
    if time_dependent:
        found.why = "what it does depends on time: on another network it would have been another run"
    elif time_dependent is None:
        found.why = f"whether {run.summary['algorithm']} depends on time is not known here"
    elif len(ledger) > MOST_MESSAGES:
        found.why = f"it has {len(ledger):,} messages; up to {MOST_MESSAGES:,} are re-priced here"
    else:
        try:
            latencies = run.manifest["config"]["network"].get("latencies", 2)
            if latencies not in (1, 2):
                raise VflbenchError(f"network.latencies={latencies!r} of {run.folder} must be 1 or 2")
            trace = run.arrays("trace")
            ends = chains(ledger, trace.of_phases(["train"]), latencies)
            for phase in ("align", "setup", "predict"):
                rows, events = every.of_phases([phase]), trace.of_phases(["train" if phase == "setup" else phase])
                ((remote, near),) = _bytes(rows, [max(rounds, default=0)])
                found.phases[phase] = whole(rows, events, latencies) if len(rows) else START, (remote, near)
            if missing := [round for round in rounds if round not in ends]:
                found.why = f"its trace ends before round {missing[0]}"
            else:
                found.chains = [ends[round] for round in rounds]
        except VflbenchError as damaged:
            found.why, found.damaged = str(damaged), True
    return found


def _bytes(ledger: Arrays, rounds: list[int]) -> list[tuple[int, int]]:
    """Bytes client-server and client-client of all rounds up to each of `rounds`."""
    order = np.argsort(ledger.numbers["round"], kind="stable")
    ends = np.searchsorted(ledger.numbers["round"][order], rounds, side="right")
    columns = []
    for kind in (CLIENT_SERVER, CLIENT_CLIENT):
        nbytes = np.where(ledger.texts["link"].by({kind: 0}) == 0, ledger.numbers["bytes"], 0)
        columns.append(np.concatenate([[0], np.cumsum(nbytes[order])])[ends].tolist())
    return list(zip(*columns, strict=True))


@dataclass(frozen=True)
class Charged:
    """The phases that a report charges beside training."""

    without: frozenset[str] = frozenset()  # of align, setup, predict
    predictions: int | None = None  # None: as many as each run says

    def more(self, run: Run, axis: str) -> float:
        """What the phases add to `axis` of the run's curve, which has setup and training.

        A curve that is charged by a rule which knows what comes before has the alignment, too.
        """
        phases = run.summary.get("phases")
        if not phases or axis not in PHASED:
            return 0.0
        align, setup, predict = (float((phases[name] or {}).get(PHASED[axis]) or 0) for name in LIFE)
        has_align = "before" in run.summary
        found = -setup if "setup" in self.without else 0.0
        found += -align * has_align if "align" in self.without else align * (not has_align)
        number = run.summary.get("predictions", 0) if self.predictions is None else self.predictions
        return found + (0.0 if "predict" in self.without else predict * number / PER)

    def spent(self, run: Run, axis: str, place: int | None) -> float | None:
        """What a run took on `axis`, to a place of its curve or in all, with the phases; None where it has none."""
        value = float(run.curve[axis].to_numpy(dtype=float)[-1 if place is None else place])
        return None if value != value else value + self.more(run, axis)


LIFE = ("align", "setup", "predict")  # the phases that a reader may leave out
PHASED = {"bytes": "bytes", "cost": "cost", "communication_seconds": "seconds", "virtual_seconds": "seconds"}


# --- chains -----------------------------------------------------------------------------------------------------------


def after(chains: Chains, latencies: int, nbytes: int) -> Chains:
    """The `chains`, each longer by so many latencies and bytes."""
    if len(chains) == 1:  # nearly always
        ((before, sent),) = chains
        return ((before + latencies, sent + nbytes),)
    return tuple([(before + latencies, sent + nbytes) for before, sent in chains])


def latest(a: Chains, b: Chains) -> Chains:
    """The chains of `a` and `b` that are the longest for some latency and bandwidth: the upper hull of both."""
    if a == b:
        return a
    if len(a) == len(b) == 1:
        (la, na), (lb, nb) = a[0], b[0]
        if la >= lb and na >= nb:
            return a
        if lb >= la and nb >= na:
            return b
    elif a[-1][0] >= b[0][0] and a[0][1] >= b[-1][1]:
        # mostly one is far behind: the most latencies and bytes of its chains are below the least of the other's
        return a
    elif b[-1][0] >= a[0][0] and b[0][1] >= a[-1][1]:
        return b
    kept: list[tuple[int, int]] = []
    for x, y in sorted({*a, *b}, reverse=True):
        if kept and y <= kept[-1][1]:
            continue  # it has neither more latencies nor more bytes
        while len(kept) > 1:
            (x0, y0), (x1, y1) = kept[-2:]
            if (x1 - x0) * (y - y0) > (y1 - y0) * (x - x0):
                break
            kept.pop()  # below the line between its neighbours
        kept.append((x, y))
    return tuple(kept)


def queued(a: Chains, b: Chains, nbytes: int) -> Chains:
    """When `nbytes` bytes have left that wait for both `a` and `b`."""
    if len(a) == len(b) == 1:  # `latest` and `after` in one call: this is called for every message
        ((la, na),), ((lb, nb),) = a, b
        if la >= lb and na >= nb:
            return ((la, na + nbytes),)
        if lb >= la and nb >= na:
            return ((lb, nb + nbytes),)
    return after(latest(a, b), 0, nbytes)


# What an event of the trace does to a clock.
MARK, SCATTER, TO_SERVER, TO_CLIENT, GATHER, TAKE = range(6)


@dataclass
class _Party:
    """A party at its place in the trace; `free`, `scattered` and `gathering` belong to a server's medium."""

    events: list[tuple[int, int, int]]  # what, which message (MARK: which round), its receiver
    place: int = 0
    now: Chains = START
    free: Chains = START
    scattered: Chains = START
    gathering: bool = False
    busy: dict[int, Chains] = field(default_factory=dict)  # by receiver: links between clients


def chains(ledger: Arrays, trace: Arrays, latencies: int) -> dict[int, Chains]:
    """When each round that all parties have finished ends, as chains of messages.

    Parameters
    ----------
    ledger, trace : of a run, under any network and timing.
    latencies : of an exchange, 1 or 2 (network.latencies).
    """
    return _run(ledger, trace, latencies)[0]


def whole(ledger: Arrays, trace: Arrays, latencies: int) -> Chains:
    """When the last message of an exchange is read, as `chains`."""
    return _run(ledger, trace, latencies)[1]


def _run(ledger: Arrays, trace: Arrays, latencies: int) -> tuple[dict[int, Chains], Chains]:
    """(when each round ends, when the last party has nothing more to do)."""
    parties, nbytes = _parties(ledger, trace)
    arrived: list[Chains | None] = [None] * len(nbytes)  # to a server: when it was sent
    waiting: dict[int, int] = {}  # message -> the party that waits for it
    ends: dict[int, list[Chains]] = defaultdict(list)
    ready = list(range(len(parties)))
    while ready:
        me = ready.pop()
        party = parties[me]
        events, place, now = party.events, party.place, party.now
        while place < len(events):
            what, at, peer = events[place]
            if what >= GATHER:
                delivered = arrived[at]
                if delivered is None:
                    waiting[at] = me
                    break
                if what == GATHER:
                    if not party.gathering:
                        party.gathering, party.free = True, latest(party.free, party.scattered)
                    party.free = queued(party.free, delivered, nbytes[at])
                    delivered = after(party.free, latencies - 1, 0)
                now = latest(now, delivered)
            elif what == MARK:
                ends[at].append(now)
            else:
                if what == SCATTER:
                    party.gathering = False
                    party.free = queued(party.free, now, nbytes[at])
                    arrived[at] = party.scattered = after(party.free, 1, 0)
                elif what == TO_CLIENT:
                    busy = party.busy[peer] = queued(party.busy.get(peer, START), now, nbytes[at])
                    arrived[at] = after(busy, 1, 0)
                else:  # to a server, which adds its own time; or inside an organisation
                    arrived[at] = now
                if at in waiting:
                    ready.append(waiting.pop(at))
            place += 1
        party.place, party.now = place, now
    end = START
    for party in parties:
        end = latest(end, party.now)
    return _round_ends(ends, len(parties)), end


def _round_ends(ends: dict[int, list[Chains]], parties: int) -> dict[int, Chains]:
    """Of each round that all `parties` have finished, when the last party ends it or a round before it."""
    found: dict[int, Chains] = {}
    end = START
    for round in sorted(ends):
        if len(ends[round]) == parties:
            for now in ends[round]:
                end = latest(end, now)
            found[round] = end
    return found


def _parties(ledger: Arrays, trace: Arrays) -> tuple[list[_Party], list[int]]:
    """Every party with its events, and the bytes of every message; the events refer to messages by number."""
    owner = trace.texts["party"]
    places = np.sort(np.unique(owner.codes, return_index=True)[1])
    names = list(dict.fromkeys(owner.names[i] for i in owner.codes[places].tolist()))  # servers first
    index, count = {name: i for i, name in enumerate(names)}, len(names)
    src, dst = (ledger.texts[end].by(index) for end in ("src", "dst"))
    order = np.lexsort((ledger.numbers["seq"], dst, src))
    src, dst = src[order], dst[order]
    # where a pair's messages begin; they are numbered from 0
    first = np.searchsorted(src * count + dst, np.arange(count**2 + 1))
    link = ledger.texts["link"].by({CLIENT_SERVER: 0, CLIENT_CLIENT: 1})[order]  # -1: inside an organisation
    servers = _servers(src[link == 0], dst[link == 0])
    from_server = np.isin(src, list(servers))

    kind = trace.texts["kind"].by({"send": 0, "recv": 1, "mark": 2})
    me, peer = trace.texts["party"].by(index), trace.texts["peer"].by(index)
    seq, value = trace.numbers["seq"], trace.numbers["value"]
    pair = np.where(kind == 0, me * count + peer, peer * count + me)
    pair = np.where((kind < 2) & (kind >= 0), pair, 0)
    at = first[pair] + seq
    # messages of a round that not all have finished: their party stops there
    unknown = (kind >= 0) & (kind < 2) & (at >= first[pair + 1])
    known = np.where((kind >= 0) & (kind < 2) & ~unknown, at, -1)
    of_link, served = np.append(link, -1)[known], np.append(from_server, False)[known]
    what = np.select(
        [
            kind == 2,
            (kind == 0) & (of_link == 0) & served,
            (kind == 0) & (of_link == 1),
            kind == 0,
            (kind == 1) & (of_link == 0) & ~served,
        ],
        [MARK, SCATTER, TO_CLIENT, TO_SERVER, GATHER],
        TAKE,
    )
    at = np.where(kind == 2, value, at).astype(np.int64)
    parties = []
    for number in range(count):
        mine = np.flatnonzero((me == number) & (kind >= 0))
        stops = np.flatnonzero(unknown[mine])
        mine = mine[: stops[0]] if len(stops) else mine
        parties.append(_Party(list(zip(what[mine].tolist(), at[mine].tolist(), peer[mine].tolist(), strict=True))))
    return parties, ledger.numbers["bytes"][order].tolist()


def _servers(src: np.ndarray, dst: np.ndarray) -> set[int]:
    """The parties at the server's end of client-server messages.

    In a group of connected parties the first one is a server, its neighbours are clients, their neighbours servers.
    """
    neighbours: dict[int, set[int]] = defaultdict(set)
    for a, b in set(zip(src.tolist(), dst.tolist(), strict=True)):
        neighbours[a].add(b)
        neighbours[b].add(a)
    is_server: dict[int, bool] = {}
    for start in sorted(neighbours):
        if start in is_server:
            continue
        is_server[start] = True
        stack = [start]
        while stack:
            here = stack.pop()
            for other in neighbours[here] - is_server.keys():
                is_server[other] = not is_server[here]
                stack.append(other)
    return {party for party, server in is_server.items() if server}


# --- who sent how much to whom ----------------------------------------------------------------------------------------

MOST_PARTIES = 12  # more parties are shown by family: client_0, client_1, ... as client_*


@dataclass(frozen=True)
class Traffic:
    """Messages by tag, sender and receiver; `families`: parties with similar names are counted together."""

    parties: list[str]
    families: bool
    rows: list[tuple[str, str, str, str, int, int]]  # tag, src, dst, link, messages, bytes


def traffic(ledger: Arrays) -> Traffic:
    """Sums over a ledger, also of messages of kind `local`, which cost nothing."""
    tag, link, *both = (ledger.texts[key] for key in ("tag", "link", "src", "dst"))
    names = sorted({name for end in both for name in end.names}, key=_order)
    families = len(names) > MOST_PARTIES
    shown = {name: re.sub(r"\d+", "*", name) if families else name for name in names}
    ends = list(dict.fromkeys(shown.values()))
    index = {name: ends.index(text) for name, text in shown.items()}
    src, dst = (end.by(index) for end in both)
    key = ((tag.codes * len(ends) + src) * len(ends) + dst) * len(link.names) + link.codes
    groups, first, group = np.unique(key, return_index=True, return_inverse=True)
    sums = zip(np.bincount(group).tolist(), np.bincount(group, weights=ledger.numbers["bytes"]).tolist(), strict=False)
    rows = [
        (tag.names[tag.codes[i]], ends[src[i]], ends[dst[i]], link.names[link.codes[i]], count, round(total))
        for i, (count, total) in zip(first.tolist(), sums, strict=False)
    ]
    return Traffic(ends, families, rows if len(groups) else [])


def _order(name: str) -> tuple[bool, list[tuple[int, str]]]:
    return name != "server", natural(name)
