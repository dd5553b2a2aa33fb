"""What crosses is counted: every way to say something beside the values is refused by name or charged, and nothing else
arrives."""

from __future__ import annotations

import enum
from collections import OrderedDict, namedtuple
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.federation.toys import Toy, difference, once, rows_of, run_programs, run_toy
from tests.options import codec_config
from vflbench.federation.codec import Encoded
from vflbench.federation.party import PartySpec
from vflbench.federation.payload import copy_payload
from vflbench.federation.simulated import SimulatedEngine
from vflbench.types import FederationError, Sent

TEN = np.arange(10.0)


class Number(float):
    secret = "8 kB of text"


class Text(str):
    secret = "8 kB of text"


class Values(np.ndarray):
    secret = "8 kB of text"


class Learned(torch.nn.Parameter):
    secret = "8 kB of text"


class Colour(enum.IntEnum):
    RED = 1


def exchange(*payloads: Any, **options: Any) -> tuple[list[int], list[Any]]:
    """Bytes charged for each of a client's messages to a server, and what arrived."""
    arrived: list[Any] = []

    async def server(me: Any) -> None:
        for _ in payloads:
            arrived.append(await me.recv("client", "x"))

    async def client(me: Any) -> None:
        for payload in payloads:
            await me.send("server", payload, "x")

    engine = run_programs({"server": once(server), "client": once(client)}, **options)
    return [int(row["bytes"]) for row in rows_of(engine)], arrived


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "payload",
    [
        *(
            Number(1),
            Text("a"),
            Colour.RED,
            np.str_("a"),
            TEN.view(Values),
            np.ma.masked_array(TEN),
            Learned(torch.ones(2)),
        ),
        *(namedtuple("Two", "a b")(1, 2), OrderedDict(a=1), torch.Size([1, 2]), Encoded(TEN, 1, 1, "array <f8")),
        *([Number(1)], {"a": (Text("a"),)}, {Text("a"): 1}, {1: 1}, b"bytes", 1j, 2**63, object()),
    ],
    ids=lambda payload: type(payload).__name__,
)
def test_types_that_can_carry_more_are_refused_by_name(payload: Any) -> None:
    for codec in (None, codec_config("fp16")):
        with pytest.raises(FederationError, match="client sends 'x' to server: a payload"):
            exchange(payload, codec=codec)


@pytest.mark.parametrize(
    "array",
    [
        *(np.array([None]), np.zeros(2, [("secret", "f8")]), np.zeros(2, np.dtype("f8", metadata={"a": "secret"}))),
        torch.eye(2).to_sparse(),
    ],
    ids=["objects", "records", "metadata", "sparse"],
)
def test_arrays_that_carry_more_than_their_entries_are_refused(array: Any) -> None:
    with pytest.raises(FederationError, match=r"client sends 'x' to server: a payload (must|cannot)"):
        exchange(array)


def test_a_program_makes_no_sizes() -> None:
    import vflbench.federation.party
    import vflbench.federation.payload

    assert not hasattr(vflbench.federation.party, "Sized") and not hasattr(vflbench.federation.payload, "Sized")
    with pytest.raises(FederationError, match="cannot hold Encoded"):
        exchange(Encoded(TEN, 1, 1, "array <f8"), codec=codec_config("fp16"))


# --- what is charged --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "nbytes"),
    [
        *((None, 1), ([None] * 1000, 1000), ("", 1), (("", "", ""), 3), ("\u00fc", 2), (True, 1)),
        *(((), 8), ([[], []], 16), (((((), ()),),), 32), ([[1]], 16), ((1, (2, 3)), 32)),
        *((np.zeros(0), 8), (np.zeros((0, 12345)), 16), (torch.zeros(0, 7, 5), 24), ((torch.zeros(0), TEN), 88)),
        *(({"a" * 8000: None}, 8001), ({"x": {"\u00fc": 1}}, 1 + 2 + 8 + 8), ({}, 8), ({"": 1}, 9)),
    ],
    ids=str,
)
def test_what_says_something_costs_something(payload: Any, nbytes: int) -> None:
    for options in ({}, {"codec": codec_config("topk")}):  # nothing of these is compressed but TEN
        if "codec" not in options or not isinstance(payload, tuple) or not any(part is TEN for part in payload):
            assert exchange(payload, **options)[0] == [nbytes]


@pytest.mark.parametrize(
    ("first", "other", "charged"),
    [
        (np.zeros((2, 6)), np.zeros((3, 4)), 96 + 16),
        (torch.zeros(1), torch.zeros(1, 1, 1, 1), 4 + 32),
        (torch.zeros(2, 3), torch.zeros(3, 2).T, 24 + 16 + 24),  # the order in memory, too
        (np.zeros(2), np.zeros(4, np.float32), 16 + 8),
        ((1, 1, 1), (1, 1.0, True), 17 + 32),
        ((1, 1), (1, 1, 1), 24 + 32),
        ([1, 2], (1, 2), 16 + 24),
        ({"a": 1}, {"b": 1}, 8 + 1 + 24),
        (TEN, 1.0, 8),  # a number by itself has nothing beside its value
    ],
    ids=str,
)
def test_another_form_than_the_first_is_charged(first: Any, other: Any, charged: int) -> None:
    nbytes, _ = exchange(first, other, other, first)
    assert nbytes[1:] == [charged, charged, nbytes[0]]


def test_no_message_is_free_and_a_small_one_pays_for_its_tag() -> None:
    """A model could cross for nothing: each of its bytes as one of 256 tags, with an empty array."""
    sent = np.random.default_rng(0).integers(0, 256, 1000)

    def charged(tags: int, payload: Any, dst: str = "server") -> list[int]:
        async def server(me: Any) -> None:
            for tag in sent % tags:
                await me.recv("client", f"t{tag}")

        async def client(me: Any) -> None:
            for tag in sent % tags:
                await me.send(dst, payload, f"t{tag}")

        exposes = [Sent(f"t{tag}", "client", "server", "parameters", "client") for tag in range(tags)]
        exposes.append(Sent("t0", "server", "client", "parameters", "client"))  # another way: it does not count
        engine = run_programs({"server": once(server), "client": once(client)}, exposes=exposes)
        return [int(row["bytes"]) for row in rows_of(engine)]

    assert sum(charged(256, np.zeros(0))) >= len(sent) and min(charged(256, np.zeros(0))) == 1
    assert charged(1, 1.0) == [8] * 1000 and charged(2, 1.0) == [9] * 1000 and charged(257, 1.0) == [10] * 1000
    assert set(charged(256, TEN)) == {80}  # not below 16 bytes
    assert charged(1, np.zeros(0))[1:] == [1] * 999  # how many there are says something


def test_the_first_dimension_is_paid_for_by_its_rows() -> None:
    assert exchange(np.zeros((5, 3)), np.zeros((2, 3)), np.zeros((9, 3)))[0] == [120, 48, 216]
    # no entry pays for the first
    assert exchange(np.zeros((1, 0)), np.zeros((9, 0)), torch.zeros(2**40, 0))[0] == [16, 16, 16]
    assert exchange(np.zeros((0, 3)), np.zeros((0, 3)), np.zeros((0, 4)), np.zeros((2, 3)))[0] == [16, 1, 16, 48]


def test_keys_are_free_where_they_are_declared_and_arrive_in_one_order() -> None:
    exposes = (
        Sent("x", "client", "server", "sizes", "client", keys=("rows", "val")),
        Sent("x", "client", "server", "ids", "client"),
    )
    nbytes, arrived = exchange({"val": 1, "rows": 2}, {"rows": 2, "val": 1}, {"rows": 1, "other": 2}, exposes=exposes)
    assert nbytes == [16, 16, 16 + 5 + 8 * 5] and [list(got) for got in arrived[:2]] == [["rows", "val"]] * 2


def test_what_was_said_first_is_remembered_by_a_cut() -> None:
    async def client(me: Any, *_: Any) -> None:
        async for t in me.rounds():
            await me.send("server", np.zeros((1, 1 + t % 3)), "x")

    async def server(me: Any, *_: Any) -> None:
        async for _ in me.rounds():
            await me.recv("client", "x")

    toy = Toy(lambda: {"server": PartySpec(server, role="server"), "client": PartySpec(client)}, {}, rounds=8)
    whole = run_toy(toy)
    assert {row[5] for row in whole.ledger} == {16, 24 + 16, 8 + 16}
    for kill in range(2, whole.steps + 1, 3):
        assert difference(whole, run_toy(toy, kills=(kill,))) is None


def test_the_ray_engine_charges_the_same() -> None:
    from vflbench.federation.ray.party_thread import PartyEngine, remote_program

    payloads = [np.zeros((2, 6)), np.zeros((3, 4)), {"a" * 100: None}, np.zeros((0, 5)), [[], None], TEN, 1.0]

    class Office:
        courier, rows = None, []

        def now(self) -> float:
            return 0.0

        def post(self, dst: str, data: bytes, row: Any, topic: Any) -> None:
            self.rows.append(row)

        def tell(self, news: Any) -> None:
            pass

    async def client(me: Any) -> None:
        for payload in payloads:
            await me.send("server", payload, "x")
        for bad in (Number(1), Encoded(TEN, 1, 1, "array <f8")):
            with pytest.raises(FederationError, match="client sends 'x' to server: a payload cannot hold"):
                await me.send("server", bad, "x")

    specs = {"server": PartySpec(remote_program, role="server"), "client": PartySpec(once(client))}
    PartyEngine("client", specs, None, None, Office(), rounds=1).run()
    assert [row[5] for row in Office.rows] == exchange(*payloads)[0]


# --- what arrives -----------------------------------------------------------------------------------------------------


def test_nothing_but_values_and_form_arrives() -> None:
    marked = torch.ones(3, 1, requires_grad=True)
    marked.secret = "text"  # type: ignore[attr-defined]
    strided = torch.arange(5.0).as_strided((1, 5), (12345, 1))
    for sent in (
        marked,
        strided,
        torch.nn.Parameter(torch.ones(2)),
        torch.zeros(4)[1:3],
        torch.ones(1, 5, 3).as_strided((1, 3, 5), (777, 1, 3)),
    ):
        copy = copy_payload(sent)[0]
        assert (
            type(copy) is torch.Tensor
            and not copy.requires_grad
            and not hasattr(copy, "secret")
            and torch.equal(copy, sent)
        )
        assert (
            copy.storage_offset() == 0
            and copy.untyped_storage().nbytes() == copy.nbytes
            and max(copy.stride()) <= copy.numel()
        )
    array = np.asfortranarray(np.ones((2, 3)))
    assert copy_payload(array)[0].flags.c_contiguous and copy_payload(array)[3] == copy_payload(np.ones((2, 3)))[3]


def test_two_types_for_the_same_numbers_arrive_as_one() -> None:
    assert copy_payload(np.zeros(2, np.longlong))[0].dtype.char == np.dtype(np.int64).char


def test_a_payload_that_contains_itself_is_refused_by_name() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(FederationError, match="client sends 'x' to server: a payload that nests too deeply"):
        exchange(endless)


def test_what_a_program_writes_into_its_configuration_reaches_nobody() -> None:
    seen = []

    async def client(me: Any, _data: Any, _public: Any, config: Any) -> None:
        seen.append(config)
        async for _ in me.rounds():
            pass

    config = SimpleNamespace(secret=None)
    SimulatedEngine({"a": PartySpec(client), "b": PartySpec(client)}, config=config).run()
    assert len({id(own) for own in (*seen, config)}) == 3
