"""A party's links to others, and what the form of a message costs on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vflbench.federation import links as L
from vflbench.federation.party import role_of
from vflbench.federation.payload import Form, form_bytes, tag_bytes
from vflbench.types import FederationError, closest

if TYPE_CHECKING:
    from vflbench.federation.runtime.member import Member

KNOWN_FORMS = 64  # of a tag, whose costs a link remembers


class PartyLinks(dict[str, L.Link]):
    """A party's links by receiver; looking one up opens it."""

    def __init__(self, party: Member) -> None:
        self.party = party

    def __missing__(self, dst: str) -> L.Link:
        """A new link to `dst`.

        Raises
        ------
        FederationError : there is no such party, or no edge to it.
        """
        party, runtime = self.party, self.party.runtime
        if dst not in runtime.parties:
            raise FederationError(
                f"{party.name} sends to {dst!r}: no such party. Closest: {closest(dst, runtime.parties)!r}"
            )
        other = runtime.parties[dst]
        kind = L.link_kind(party, other)
        if dst == party.name or (kind != L.LOCAL and not runtime.connected(party.name, dst)):
            raise FederationError(
                f"{party.name} sends to {dst}: the topology has no edge between them. Its neighbours: "
                f"{', '.join(party.neighbours) or 'none'}"
            )
        config = L.link_config(runtime.network, kind, f"{party.name}->{dst}")
        way = role_of(party.name), role_of(dst)
        tags = sum(declared[1:] == way for declared in runtime.ways)
        link = L.Link(party.index, other.index, kind, config, tag_bytes(tags))
        link.boxes = other.boxes.setdefault(party.name, {})
        link.receiver = other
        self[dst] = link
        return link

    def look_up(self, link: L.Link, dst: str, tag: str, form: Form, nbytes: int) -> tuple[int, int]:
        """The ledger's code of a tag, and the bytes that a form costs which this link does not know yet."""
        name, runtime = self.party.name, self.party.runtime
        runtime.check_declared(name, dst, tag)
        code, free = runtime.ledger.tag(tag), runtime.ways.get((tag, role_of(name), role_of(dst)), ())
        forms = link.forms[tag]
        if not forms and not nbytes:  # an array without entries pays for its shape, once
            forms[form] = None
            return code, form_bytes(form, (), free)
        cost = code, form_bytes(form, next(iter(forms), form), free)
        if form in forms or len(forms) < KNOWN_FORMS:
            forms[form] = cost
        return cost
