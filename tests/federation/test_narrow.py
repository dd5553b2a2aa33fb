"""What a program can reach from `me` and its data: nothing of the engine, of another party, or of guarded data but by
reading a field.

Left out, as the docs say: taking functions apart (`__closure__`, `__globals__`, `__code__`), frames and `gc`.
"""

import contextlib
import dataclasses
import types

import numpy as np
import pytest
import torch

from tests.federation.toys import behind
from tests.options import codec_config
from vflbench.federation.ledger import Ledger
from vflbench.federation.links import Link
from vflbench.federation.party import Guarded, PartySpec
from vflbench.federation.runtime.core import Runtime
from vflbench.federation.runtime.me import Me
from vflbench.federation.runtime.member import Member
from vflbench.federation.simulated import SimulatedEngine
from vflbench.federation.simulated.transport import VirtualTransport
from vflbench.federation.simulated.virtual_clock import VirtualClock
from vflbench.types import FederationError

STEPS = 6
APART = {"__closure__", "__globals__", "__builtins__", "__code__", "gi_frame", "cr_frame", "gi_code", "cr_code"}


@dataclasses.dataclass
class Own:
    features: np.ndarray
    secret: float


BEHIND = (Runtime, Member, SimulatedEngine, VirtualTransport, VirtualClock, Ledger, Link, Own)


# new ones at each look, with nothing of their own
BOUND = (types.MethodType, types.MethodWrapperType, types.BuiltinMethodType)


def steps(thing):
    """What lies one step from `thing`: attributes, and what a container holds."""
    if isinstance(thing, BOUND):
        return [(".__self__", thing.__self__), (".__func__", getattr(thing, "__func__", None))]
    held = (
        thing.items()
        if isinstance(thing, dict)
        else enumerate(thing)
        if isinstance(thing, list | tuple | set | frozenset)
        else ()
    )
    found = [(f"[{key!r}]", part) for key, part in held]
    for name in set(dir(thing)) - APART:
        with contextlib.suppress(Exception):
            found.append((f".{name}", getattr(thing, name)))
    return found


def reach(start, own=None, depth=STEPS):
    """The ways to what is forbidden, from `start` in at most `depth` steps."""
    seen, edge, found = {id(start)}, [("", start)], []
    held = [start]  # ids stay theirs
    for _ in range(depth):
        following = []
        for way, thing in edge:
            for name, other in steps(thing):
                if id(other) in seen or isinstance(
                    other, types.ModuleType | np.ndarray | torch.Tensor | str | bytes | int | float
                ):
                    continue
                seen.add(id(other))
                held.append(other)
                if isinstance(other, BEHIND) or (
                    isinstance(other, Me | Guarded) and other is not own and other is not start
                ):
                    found.append(f"{way}{name}: {type(other).__name__}")
                elif not isinstance(other, type):
                    following.append((f"{way}{name}", other))
        edge = following
    return found


def federation(body, **options):
    """Two parties with data, of which the first runs `body(me, data, the other's data)` in its first round."""
    other = []

    async def thief(me, data, public, config):
        me.state.seen = {"a": [torch.ones(1)]}
        async for t in me.rounds():
            if t == 1:
                await me.recv("owner")
                body(me, data, other[0])
            await me.send("owner", 1.0)

    async def owner(me, data, public, config):
        other.append(data)
        async for t in me.rounds():
            if t == 1:
                await me.send("thief", data.features)
            await me.recv("thief")

    specs = {name: PartySpec(program, Own(np.ones(3), 7.0)) for name, program in (("owner", owner), ("thief", thief))}
    engine = SimulatedEngine(specs, rounds=2, **options)
    engine.run()
    return engine


WAYS = {
    "me.engine": lambda me, data, other: me.engine,
    "me.runtime": lambda me, data, other: me.runtime,
    "me.parties": lambda me, data, other: me.parties["owner"],
    "me.party": lambda me, data, other: me.party,
    "me.links": lambda me, data, other: me.links,
    "me.boxes": lambda me, data, other: me.boxes,
    "me._seed": lambda me, data, other: me._seed,
    "me.__dict__": lambda me, data, other: me.__dict__,
    "vars(me)": lambda me, data, other: vars(me),
    "me.send.__self__": lambda me, data, other: me.send.__self__,
    "me.send.__func__": lambda me, data, other: me.send.__func__,
    "me.send.__wrapped__": lambda me, data, other: me.send.__wrapped__,
    "me.send.func": lambda me, data, other: me.send.func,
    "me.send_many.__self__": lambda me, data, other: me.send_many.__self__,
    "me.recv.__self__": lambda me, data, other: me.recv.__self__,
    "me.recv_all.__self__": lambda me, data, other: me.recv_all.__self__,
    "me.recv_any.__self__": lambda me, data, other: me.recv_any.__self__,
    "me.compute.__self__": lambda me, data, other: me.compute.__self__,
    "me.report.__self__": lambda me, data, other: me.report.__self__,
    "me.rng.__self__": lambda me, data, other: me.rng.__self__,
    "me._clock.__self__": lambda me, data, other: me._clock.__self__,
    "me.rounds().party": lambda me, data, other: me.rounds().party,
    "me.rounds()._next.__self__": lambda me, data, other: me.rounds()._next.__self__,
    "me.evaluating().party": lambda me, data, other: me.evaluating().party,
    "me.evaluating()._turn.__self__": lambda me, data, other: me.evaluating()._turn.__self__,
    "a new attribute of me": lambda me, data, other: setattr(me, "shared", []),
    "data._data": lambda me, data, other: data._data,
    "data.__dict__": lambda me, data, other: data.__dict__,
    "vars(data)": lambda me, data, other: vars(data),
    "object.__getattribute__": lambda me, data, other: object.__getattribute__(data, "_data"),
    "data._read.__self__": lambda me, data, other: data._read.__self__,
    "data.features = ...": lambda me, data, other: setattr(data, "features", None),
    "other.features": lambda me, data, other: other.features,
    "other._data": lambda me, data, other: other._data,
    "other._read": lambda me, data, other: other._read("features"),
    "getattr of other's class": lambda me, data, other: type(other).__getattr__(other, "features"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_way_around_is_closed(way):
    tried = []

    def body(me, data, other):
        with pytest.raises((AttributeError, TypeError, FederationError)):
            WAYS[way](me, data, other)
        tried.append(way)

    federation(body)
    assert tried


@pytest.mark.parametrize(
    "options", [{}, {"codec": codec_config("fp16")}, {"secure": True}], ids=["plain", "codec", "secrets"]
)
def test_no_attributes_lead_behind_me(options):
    found = {}

    def body(me, data, other):
        waiting = me.recv("owner")
        starts = {
            "me": me,
            "data": data,
            "rounds": me.rounds(),
            "evaluating": me.evaluating(),
            "recv": waiting,
            "sent": me.send("owner", 0.0),
        }
        found.update({name: reach(start, me) for name, start in starts.items()})
        found["member"] = reach(behind(me), me)

    federation(body, **options)
    behind_member = found.pop("member")
    assert any(way.endswith(": Runtime") for way in behind_member)  # it does look
    assert not any(found.values()), found


def test_me_has_what_party_says_and_no_more():
    """Beside the clock, which is a property over a function of its own."""
    from vflbench.federation.party import Party

    said = {name for name in (*Party.__annotations__, *vars(Party)) if not name.startswith("_")}
    assert {name for name in dir(Me) if not name.startswith("_")} == said


def test_a_resumed_program_has_no_more_before_its_rounds():
    cuts, found = [], []

    async def program(me, data, public, config):
        if not me.fresh:
            found.append(reach(me))
        async for _ in me.rounds():
            await me.send("b" if me.name == "a" else "a", 1.0)
            await me.recv("b" if me.name == "a" else "a")

    specs = {name: PartySpec(program) for name in ("a", "b")}
    SimulatedEngine(specs, rounds=3, checkpoint_every=1, on_cut=cuts.append).run()
    SimulatedEngine(specs, rounds=3, resume_from=cuts[0]).run()
    assert found == [[], []]
