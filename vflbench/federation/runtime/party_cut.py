"""A party's part of a cut: recorded at a boundary, and set again in a resumed run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vflbench.federation.snapshot import Cut, freeze, optimised, thaw
from vflbench.types import FederationError

if TYPE_CHECKING:
    from vflbench.federation.runtime.member import Member

# what a resumed program may not call before rounds()
BEFORE_ROUNDS = ("send", "send_many", "recv", "recv_all", "recv_any")


def capture(party: Member, cut: Cut) -> None:
    """Record a party in `cut`, at its boundary: state, clock, streams, links, and what waits unread for it."""
    runtime, name = party.runtime, party.name
    party.orphans = [orphan for orphan in party.orphans if orphan[2] > cut.round]
    cut.parties[name] = {
        "state": {key: freeze(value, f"{name}'s state.{key}", party.device) for key, value in party.state},
        "privacy": freeze(party.privacy) if hasattr(party.privacy, "state_dict") else None,
        "now": runtime.time.now(party),
        **party.streams.save(),
        "links": {
            dst: (link.busy, link.seq, {tag: next(iter(forms)) for tag, forms in link.forms.items()})
            for dst, link in party.links.items()
        },
        "orphans": party.orphans + [(*key, *value) for key, value in party.drop.items()],
        "tape": party.served,
        **runtime.transport.save(party),
        **({"codec": freeze(party.encoder.memory)} if party.encoder is not None else {}),
    }
    for boxes in party.boxes.values():
        for tag, box in boxes.items():
            for message in box:
                if message[3] <= cut.round:
                    cut.inflight.append(runtime.describe(name, tag, message))


def rewind(party: Member, saved: dict[str, Any], round: int) -> None:
    """Set clock, links and what is to be dropped as `capture` recorded them, before the program starts."""
    party.round = round
    party.runtime.time.rewind(party, saved["now"])
    party.runtime.transport.rewind(party, saved)
    party.tape.round, party.tape.events = saved.get("tape", (0, []))
    party.drop = {(src, seq): (of, delivered) for src, seq, of, delivered in saved["orphans"]}
    for dst, (busy, seq, *forms) in saved["links"].items():
        link = party.links[dst]
        link.busy, link.seq = busy, seq
        for tag, form in (forms[0] if forms else {}).items():  # none in a cut of a version that did not charge them
            link.forms[tag] = {form: None}
    for method in BEFORE_ROUNDS:
        party.kept_back[method] = getattr(party.me, method)
        setattr(party.me, method, _refusing(party, method))


def _refusing(party: Member, name: str) -> Callable[..., Any]:
    """A stand-in for a method of `me` that may not be called before `rounds()` in a resumed run."""

    def method(*args: Any, **kwargs: Any) -> Any:
        if party.in_evaluation:
            return party.kept_back[name](*args, **kwargs)
        raise FederationError(
            f"{party.name} calls {name} before rounds() in a resumed run: the first start did that. Put it under "
            "`if me.fresh`"
        )

    return method


def restore(party: Member, saved: dict[str, Any]) -> None:
    """Become what `capture` recorded. Mailboxes were filled before any party started."""
    for method, function in party.kept_back.items():
        setattr(party.me, method, function)
    party.runtime.time.rewind(party, saved["now"])  # what was computed before rounds() is in it already
    del party.trace[:]
    kept = optimised(party.state)
    for name, value in saved["state"].items():
        where = f"{party.name}'s state.{name}"
        setattr(party.state, name, thaw(value, getattr(party.state, name, None), where, kept, party.device))
    if saved["privacy"] is not None:
        thaw(saved["privacy"], party.privacy, f"{party.name}'s privacy")
    if party.encoder is not None:
        party.encoder.memory = thaw(saved["codec"])
    party.streams.restore(saved)
