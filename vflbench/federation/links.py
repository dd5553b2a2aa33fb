"""How long a message takes: links with latency and bandwidth, a shared server bandwidth, and the timing rule `round`.

All times are virtual seconds. What happens on a link depends on its sender's program order only. Only a shared
bandwidth *into* a server depends on global time, so the engine serves that one in the order of arrival (`Ingress`).
"""

import bisect
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from vflbench.types import ConfigError, LinkConfig, NetworkConfig, Problem, hook, module_of

CLIENT_SERVER, CLIENT_CLIENT, LOCAL = "client_server", "client_client", "local"
LINK_KINDS = (CLIENT_SERVER, CLIENT_CLIENT, LOCAL)


def seconds_per_byte(bandwidth_gbps: float | None) -> float:
    """Seconds that a byte takes: 1 Gbit/s = 10^9 bit/s; None is unbounded."""
    return 0.0 if bandwidth_gbps is None else 8.0 / (bandwidth_gbps * 1e9)


class Link:
    """One direction between two parties: serves messages one after the other (FIFO), then the latency passes."""

    __slots__ = (
        "boxes",
        "busy",
        "charged",
        "dst",
        "forms",
        "kind",
        "kind_code",
        "latency",
        "rate",
        "receiver",
        "seq",
        "src",
        "start",
        "tag_bytes",
    )

    def __init__(self, src: int, dst: int, kind: str, config: LinkConfig, tag_bytes: int = 0) -> None:
        self.src = src
        self.dst = dst
        self.kind = kind
        self.kind_code = LINK_KINDS.index(kind)
        self.charged = kind != LOCAL
        self.latency = config.latency_ms / 1e3  # s
        self.rate = seconds_per_byte(config.bandwidth_gbps)  # s per byte
        self.busy = 0.0  # when the last byte handed over so far has left
        self.seq = 0  # number of the next message
        self.tag_bytes = tag_bytes  # what tells the tags on this way from each other
        self.start = 0.0  # shared bandwidth: when the first byte of the latest message left
        # tag -> form -> (the ledger's code, bytes that the form costs), the first message's form first
        self.forms: dict[str, dict[Any, tuple[int, int] | None]] = defaultdict(dict)
        self.receiver: Any = None  # the party at its end and ...
        self.boxes: dict[str, Any] = {}  # ... its mailboxes for what comes from here, by tag; set by the engine


@dataclass
class Medium:
    """Timing rule `round` at a server: everything passes one medium in the server's program order.

    An exchange is a gather and the scatter that answers it. It costs `latencies` x L + all its bytes / B: the gather
    takes latencies - 1 of them, the scatter one. The next exchange starts when the last message of the scatter has
    arrived. A scatter that follows a scatter belongs to the same exchange.
    """

    free: float = 0.0
    scattered: float = 0.0  # when the last scattered message arrives
    gathering: bool = False

    def scatter(self, now: float, nbytes: int, link: Link) -> float:
        """Delivery time of a message that the server sends at `now`."""
        self.gathering = False
        self.free = max(self.free, now) + nbytes * link.rate
        self.scattered = self.free + link.latency
        return self.scattered

    def gather(self, sent: float, nbytes: int, link: Link, latencies: int) -> float:
        """Delivery time of a message that was sent to the server at `sent`."""
        if not self.gathering:
            self.gathering = True
            self.free = max(self.free, self.scattered)
        self.free = max(self.free, sent) + nbytes * link.rate
        return self.free + (latencies - 1) * link.latency


@dataclass
class Ingress:
    """A server's shared inbound bandwidth: first come, first served, by the time at which the first byte arrives.

    After a resume, messages served before the cut are known only as `history`. One that is sent again, and arrived
    between two of them, must find the line as busy as it was then. Messages that arrive together are served by (source,
    seq).
    """

    rate: float  # s per byte
    keep: bool = False  # log what was served, for checkpoints
    busy: float = 0.0
    # sorted (arrival, src, seq, end of service)
    history: list[tuple[float, int, int, float]] = field(default_factory=list)
    # the same and the round, of what was served since the start
    log: list[tuple[float, int, int, float, int]] = field(default_factory=list)

    def serve(self, arrival: float, src: int, seq: int, nbytes: int, round: int) -> float:
        """Serve a message whose first byte is here at `arrival`; returns when its last byte is through."""
        before = bisect.bisect_left(self.history, (arrival, src, seq)) if self.history else 0
        busy = max(self.busy, self.history[before - 1][3]) if before else self.busy
        self.busy = max(arrival, busy) + nbytes * self.rate
        if self.keep:
            self.log.append((arrival, src, seq, self.busy, round))
        return self.busy

    def served(self, last_round: int) -> list[tuple[float, int, int, float]]:
        """(arrival, src, seq, end) of the messages served of rounds up to `last_round`."""
        return self.history + [entry[:4] for entry in self.log if entry[4] <= last_round]

    def forget(self, before: float) -> None:
        """Drop what ended before `before`: nothing that arrives later can meet it."""
        self.log = [entry for entry in self.log if entry[3] > before]
        self.history = [entry for entry in self.history if entry[3] > before]


class Shared:
    """What all messages between a server and its clients pass: one medium (timing=round), or a bandwidth each way.

    Parties are given by their places.
    """

    def __init__(self, network: NetworkConfig, keep: bool = False) -> None:
        self.network, self.rate = network, seconds_per_byte(network.server_bandwidth_gbps)
        self.media: dict[int, Medium] = defaultdict(Medium)
        self.egress: dict[int, float] = defaultdict(float)  # until when the bandwidth out of a server is busy
        self.ingress: dict[int, Ingress] = defaultdict(lambda: Ingress(self.rate, keep))

    def send(self, link: Link, now: float, nbytes: int, serves: bool) -> float | None:
        """Delivery time of a message from (`serves`) or to a server; None where the server decides it later."""
        if self.network.timing == "round":
            return self.media[link.src].scatter(now, nbytes, link) if serves else None
        out = now
        if serves:
            out = max(now, self.egress[link.src])
            self.egress[link.src] = out + nbytes * self.rate
        link.start = max(out, link.busy)
        link.busy = link.start + nbytes * link.rate
        return max(link.busy, self.egress[link.src]) + link.latency if serves else None


def link_kind(a: Any, b: Any) -> str:
    """The kind of the link between two parties: `local` inside one organisation, else by whether one is a server."""
    if a.organisation == b.organisation:
        return LOCAL
    return CLIENT_SERVER if "server" in (a.role, b.role) else CLIENT_CLIENT


def link_config(network: NetworkConfig, kind: str, pair: str) -> LinkConfig:
    """The configuration of the link `pair` ("src->dst").

    The profile's own entry for the pair comes first, then what the option's module says, then the link's kind. Local
    links are free.

    Raises
    ------
    ConfigError
        The option's module gives a value out of range.
    """
    if kind == LOCAL:
        return LinkConfig(0.0, None)
    if pair in network.links:
        return network.links[pair]
    if own := hook(module_of(network), "link"):
        found: LinkConfig = own(network, kind, pair)
        if not (0 <= found.latency_ms <= 1e9 and (found.bandwidth_gbps is None or 1e-9 <= found.bandwidth_gbps <= 1e9)):
            allowed = "latency_ms from 0 to 1e9, bandwidth_gbps from 1e-9 to 1e9"
            raise ConfigError([Problem("network", network.name, f"gives {pair} {found}; allowed are {allowed}")])
        return found
    return network.client_server if kind == CLIENT_SERVER else network.client_client
