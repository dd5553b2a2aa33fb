"""Messages in virtual time.

Links with latency and bandwidth, a server's shared bandwidth, and the timing rule `round`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from vflbench.federation import links as L
from vflbench.federation.ledger import SEND, ledger_row, trace_row
from vflbench.federation.payload import SMALL, Form, with_tag
from vflbench.federation.runtime.mail import NOTHING, Message, as_ledger_row
from vflbench.federation.runtime.protocols import Copy, Send, Transport
from vflbench.federation.simulated.virtual_clock import INGRESS_EVENT, VirtualClock
from vflbench.federation.snapshot import Cut
from vflbench.types import NetworkConfig

if TYPE_CHECKING:
    from vflbench.federation.runtime.member import Member

ARRAY = np.ndarray


class VirtualTransport(Transport):
    """Computes when each message is delivered, and hands it over at once: the receiver's clock moves when it reads it.

    Only what passes a shared bandwidth *into* a server waits, in the clock's heap.
    """

    def __init__(self, network: NetworkConfig, clock: VirtualClock, keep: bool) -> None:
        self.network, self.clock, self.shared = network, clock, L.Shared(network, keep)
        self.causal, self.plain = (
            network.timing == "causal",
            network.timing == "causal" and network.server_bandwidth_gbps is None,
        )
        clock.on_ingress = self._served

    # --- sending ------------------------------------------------------------------------------------------------------

    def sender(self, party: Member, copied: Copy, lines: Mapping[int, Form]) -> Send:
        """As `Transport.sender`."""
        runtime, links, plain, write_trace = self.runtime, party.links, self.plain, party.write_trace
        write_ledger, cuts, causal, name = runtime.write_ledger, runtime.cuts, self.causal, party.name
        shared, serves = self.shared.send, party.role == "server"

        def send(dst: str, payload: Any, tag: str = "message") -> Any:
            form = lines.get(id(payload.dtype)) if type(payload) is ARRAY and payload.ndim == 1 else None
            if form is None:
                payload, nbytes, vectors, form = copied(payload, dst, tag)
            else:  # as `copy_payload`, without its calls, which cost most of a small message
                nbytes, vectors, payload = payload.nbytes, 1, payload.copy()
            link = links[dst]
            if party.in_evaluation:  # in no ledger
                runtime.check_declared(name, dst, tag)
                party.tape.send(link, dst, tag, payload, nbytes, vectors, form)
                link.receiver.tape.accept(name, tag, payload)
                return NOTHING
            now = party.now
            round = party.round
            seq = link.seq
            link.seq = seq + 1
            code, more = link.forms[tag].get(form) or links.look_up(link, dst, tag, form, nbytes)
            nbytes += more
            if nbytes < SMALL:
                nbytes = with_tag(nbytes, link.tag_bytes)
            if link.charged:
                party.sent_bytes += nbytes
            write_trace(trace_row(SEND, link.dst, seq, 0.0, now))
            delivered: float | None
            if plain or link.kind != L.CLIENT_SERVER:
                start = link.busy if link.busy > now else now
                link.busy = busy = start + nbytes * link.rate
                delivered = busy + link.latency
            else:
                delivered = shared(link, now, nbytes, serves)
            message: Message = (delivered, payload, seq, round, link, code, nbytes, vectors, now)
            receiver = link.receiver
            if delivered is not None:
                write_ledger(
                    ledger_row(round, link.src, link.dst, link.kind_code, code, nbytes, vectors, now, delivered, seq)
                )
            elif causal:
                self._await_ingress(receiver, tag, message, link.start + link.latency, link.busy)
                return NOTHING
            if receiver.drop or cuts:
                runtime.deliver(receiver, tag, message)
            else:
                receiver.accept(link.boxes, tag, message)
            return NOTHING

        def charged(dst: str, payload: Any, tag: str = "message") -> Any:
            if not party.in_evaluation:
                party.advance(busy, idle=True)
            return send(dst, payload, tag)

        busy = runtime.clock.message_seconds
        return charged if busy else send

    # --- timing=round -------------------------------------------------------------------------------------------------

    def settle(self, party: Member, message: Message) -> float:
        """Delivery time of a message that a server reads: it passes the medium in this server's program order."""
        delivered = self._gathered(party, message)
        self.runtime.ledger.defer(max(message[3], party.round), as_ledger_row(message, delivered))
        return delivered

    def _gathered(self, party: Member, message: Message) -> float:
        return self.shared.media[party.index].gather(message[8], message[6], message[4], self.network.latencies)

    def settle_unread(self) -> None:
        """At the end: messages that no server has read pass its medium all the same."""
        for party in self.runtime.order:
            for src in self.runtime.order:
                unread = [m for box in party.boxes.get(src.name, {}).values() for m in box if m[0] is None]
                for message in sorted(unread, key=lambda m: m[2]):
                    self.runtime.write_ledger(as_ledger_row(message, self._gathered(party, message)))

    # --- a shared bandwidth into a server -----------------------------------------------------------------------------

    def _await_ingress(self, receiver: Member, tag: str, message: Message, arrival: float, left: float) -> None:
        """Queue a message at the receiver's shared bandwidth, by the arrival of its first byte.

        The last byte has `left` its link.
        """
        self.clock.push(
            arrival, INGRESS_EVENT, message[4].src, message[2], receiver.index, (receiver, tag, message, left)
        )

    def _served(self, when: float, src: int, seq: int, event: Any) -> None:
        receiver, tag, message, left = event
        delivered = max(
            left + message[4].latency, self.shared.ingress[receiver.index].serve(when, src, seq, message[6], message[3])
        )
        self.runtime.write_ledger(as_ledger_row(message, delivered))
        self.runtime.deliver(receiver, tag, (delivered, *message[1:]))

    # --- cuts ---------------------------------------------------------------------------------------------------------

    def save(self, party: Member) -> dict[str, Any]:
        """As `Transport.save`."""
        medium = self.shared.media[party.index]
        return {"medium": (medium.free, medium.scattered, medium.gathering), "egress": self.shared.egress[party.index]}

    def rewind(self, party: Member, saved: Mapping[str, Any]) -> None:
        """As `Transport.rewind`."""
        self.shared.media[party.index] = L.Medium(*saved["medium"])
        self.shared.egress[party.index] = saved["egress"]

    def resend(self, receiver: Member, message: Message, entry: Mapping[str, Any]) -> None:
        """As `Transport.resend`."""
        self._await_ingress(receiver, entry["tag"], message, entry["arrival"], entry["left"])

    def complete(self, cut: Cut, earliest: float) -> None:
        """Add the shared bandwidths as they are now, when all parties are in the cut.

        None of the parties' clocks is before `earliest`.
        """
        if self.plain or not self.causal:
            return
        horizon = dict.fromkeys(self.runtime.servers, earliest)  # nothing still to be served arrives before it
        for when, kind, _, _, _, _, event in self.clock.heap:
            if kind == INGRESS_EVENT:
                receiver, tag, message, left = event
                horizon[receiver.name] = min(horizon[receiver.name], when)
                if message[3] <= cut.round:
                    cut.inflight.append(self.runtime.describe(receiver.name, tag, message, when, left))
        for name in self.runtime.servers:
            ingress = self.shared.ingress[self.runtime.parties[name].index]
            ingress.forget(horizon[name])
            cut.ingress[name] = ingress.served(cut.round)

    def restore(self, cut: Cut) -> None:
        """Set the shared bandwidths as they were at the cut."""
        for name, history in cut.ingress.items():
            self.shared.ingress[self.runtime.parties[name].index].history = sorted(
                (arrival, src, seq, end) for arrival, src, seq, end in history
            )
