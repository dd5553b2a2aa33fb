"""What becomes of a payload that is sent or reported: a copy, and with a codec a compressed one.

A codec compresses what is sent from the first round on, to other organisations and outside evaluations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from vflbench.federation import links as L
from vflbench.federation.codec import Encoded, Encoder
from vflbench.federation.payload import COPIES, Copied, copy_payload
from vflbench.federation.runtime.mail import NOTHING
from vflbench.types import FederationError

if TYPE_CHECKING:
    from vflbench.federation.runtime.member import Member
    from vflbench.federation.runtime.protocols import Copy, Send


def copying(party: Member) -> Copy:
    """(payload, to whom, tag) -> what arrives of it, as `copy_payload`.

    Its errors name the sender, the receiver and the tag.
    """

    def copied(payload: Any, dst: str, tag: str) -> Copied:
        try:
            return (COPIES.get(type(payload)) or copy_payload)(payload)
        except FederationError as error:
            raise FederationError(f"{party.name} sends {tag!r} to {dst}: {error}") from None
        except RecursionError:
            raise FederationError(
                f"{party.name} sends {tag!r} to {dst}: a payload that nests too deeply, or contains itself"
            ) from None

    return copied


def sending(send: Send) -> Callable[..., Any]:
    """`me.send_many` of a party without a codec."""

    def send_many(dsts: Sequence[str], payload: Any, tag: str = "message") -> Any:
        for dst in dsts:
            send(dst, payload, tag)
        return NOTHING

    return send_many


class Encoding:
    """What a party with a codec does to its payloads."""

    def __init__(self, party: Member, encoder: Encoder) -> None:
        self.party, self.encoder, self.plain = party, encoder, copying(party)
        self.together = False  # within send_many: all receive what was encoded for the first
        self.encoded: Encoded | None = None

    def _encodes(self, dst: str) -> bool:
        party = self.party
        return party.round > 0 and not party.in_evaluation and party.links[dst].kind != L.LOCAL

    def copied(self, payload: Any, dst: str, tag: str) -> Copied:
        """What arrives of a payload, encoded where the codec applies."""
        if not self._encodes(dst):
            return self.plain(payload, dst, tag)
        if self.together and self.encoded is not None:
            return self.encoded._replace(value=copy_payload(self.encoded.value)[0])
        self.encoded = self.encoder.encode_copy(self.plain(payload, dst, tag), dst, tag)
        return self.encoded

    def sending(self, send: Send) -> Callable[..., Any]:
        """`me.send_many`: encoded once, so that all receive the same; for each receiver where the tag is remembered."""
        several = sending(send)

        def send_many(dsts: Sequence[str], payload: Any, tag: str = "message") -> Any:
            self.together, self.encoded = tag not in self.encoder.remembered, None
            try:
                return several(dsts, payload, tag)
            finally:
                self.together = False

        return send_many


def observed(value: Any) -> Any:
    """A detached copy of what a party reports: the observer reads it later, when the party has gone on."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, np.ndarray):
        return value.copy()
    return {k: observed(v) for k, v in value.items()} if isinstance(value, dict) else value
