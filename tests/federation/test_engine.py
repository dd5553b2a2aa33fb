"""The simulated engine: messages and their times by hand, errors, evaluation, clocks, schedules, stopping, size."""

import contextlib
import gc

import numpy as np
import pytest
import torch

from tests.federation.toys import (
    TOYS,
    behind,
    clean,
    difference,
    modelled,
    network,
    once,
    random_toy,
    rows_of,
    run_programs,
    run_toy,
)
from vflbench.federation.ledger import LEDGER_FIELDS
from vflbench.federation.party import PartySpec, party_names
from vflbench.federation.payload import copy_payload
from vflbench.federation.simulated import SimulatedEngine
from vflbench.types import FederationError

# Every link: 0.1 s latency, 1,000 bytes a second; 25 float32 = 100 bytes = 0.1 s on the wire.
NET = network(0.1, 1e3)
X = np.zeros(25, dtype=np.float32)


async def silent(me):
    pass


def two(client, server, **options):
    """Run one round of a client and a server, each given as `async def body(me)`."""
    options = {"network": NET} | options
    return run_programs({"server": once(server), "client": once(client)}, **options)


# --- times by hand ----------------------------------------------------------------------------------------------------


def test_a_message_takes_its_bytes_and_the_latency_and_links_are_fifo():
    async def client(me):
        await me.send("server", X)  # leaves 0.0 to 0.1, arrives 0.2
        await me.send("server", X)  # leaves 0.1 to 0.2, arrives 0.3
        await me.send("server", None, "empty")  # behind them, a byte: arrives 0.301

    async def server(me):
        await me.recv("client")
        assert behind(me).now == pytest.approx(0.2)
        await me.recv("client", "empty")
        assert behind(me).now == pytest.approx(0.301)
        await me.recv("client")
        assert behind(me).now == pytest.approx(0.301)

    engine = two(client, server)
    rows = rows_of(engine)
    assert [r["bytes"] for r in rows] == [100, 100, 1]
    assert [r["vectors"] for r in rows] == [1, 1, 0]
    assert [r["sent"] for r in rows] == [0, 0, 0]
    assert [r["delivered"] for r in rows] == pytest.approx([0.2, 0.3, 0.301])
    assert [r["tag"] for r in rows] == ["message", "message", "empty"]
    assert engine.bytes_sent == 201
    assert engine.parties["client"].now == 0.0  # sending never waits


def test_recv_does_not_move_a_clock_that_is_ahead_and_recv_all_keeps_the_asked_order():
    async def client(me):
        await me.send("server", float(me.index))

    async def server(me):
        await me.compute(lambda: None, cost=500.0)  # until 0.5
        assert await me.recv_all(["client_1", "client_0"]) == [2.0, 1.0]
        assert behind(me).now == 0.5

    run_programs(
        {"server": once(server), "client_0": once(client), "client_1": once(client)}, network=NET, clock=modelled()
    )


def test_a_timeout_is_in_virtual_time_and_a_tie_counts_as_delivered():
    async def client(me):
        await me.send("server", X)  # arrives 0.2
        await me.compute(lambda: None, cost=800.0)
        await me.send("server", X, "late")  # arrives 0.8 + 0.1 + 0.1

    async def server(me):
        with pytest.raises(TimeoutError):
            await me.recv("client", timeout=0.15)
        assert me.clock == 0.15
        await me.recv("client", timeout=0.2 - 0.15)  # deadline 0.2, delivered 0.2
        assert me.clock == 0.2
        with pytest.raises(TimeoutError):
            await me.recv("client", "late", timeout=0.0)
        with pytest.raises(TimeoutError):
            await me.recv_any(["client"], "late", timeout=0.3)
        assert me.clock == 0.5
        with pytest.raises(TimeoutError):
            await me.recv("client", "never", timeout=0.25)
        assert await me.recv_any(["client"], "late", timeout=10.0) is not None
        assert me.clock == pytest.approx(1.0)

    two(client, server, clock=modelled())


@pytest.mark.parametrize("fast", ["client_0", "client_3"])
def test_recv_any_takes_the_first_delivered_whoever_ran_first(fast):
    async def client(me):
        await me.compute(lambda: None, cost=10.0 if me.name == fast else 100.0)
        await me.send("server", X)

    async def server(me):
        seen = [(await me.recv_any(me.clients))[0] for _ in me.clients]
        # the others arrive together: by party order
        assert seen == [fast, *(name for name in me.clients if name != fast)]
        assert me.clock == pytest.approx(0.3)

    clients = dict.fromkeys(party_names("client", 4), once(client))
    run_programs({"server": once(server)} | clients, network=NET, clock=modelled())


def test_an_event_of_a_finished_wait_does_not_overtake_a_parked_party():
    """`fast` (parked at 0.06 s) sends before 10 s, though a stale event of 0.05 s lies on top of the heap."""

    async def server(me, data, public, config):
        async for t in me.rounds():
            if t == 1:
                await me.recv_any(["a", "b"])
                await me.recv("b")
                src, _ = await me.recv_any(["a", "slow"], "race")
                assert src == "a"

    async def a(me, data, public, config):
        async for t in me.rounds():
            if t == 1:
                await me.compute(lambda: None, cost=50.0)
                await me.send("server", 1.0)
            else:
                await me.send("server", 1.0, "race")

    async def b(me, data, public, config):
        async for t in me.rounds():
            if t == 1:
                await me.compute(lambda: None, cost=50.0)
                await me.send("server", 1.0)

    async def slow(me, data, public, config):
        async for t in me.rounds():
            if t == 1:
                await me.compute(lambda: None, cost=1e4)
                await me.send("server", 1.0, "race")

    run_programs({"server": server, "a": a, "b": b, "slow": slow}, clock=modelled(), rounds=2)


# --- payloads ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "nbytes", "vectors"),
    [
        (torch.zeros(3, 4, dtype=torch.float16), 24, 1),
        (torch.zeros(5).expand(7, 5), 140, 1),
        (torch.zeros(4, dtype=torch.bool), 4, 1),
        (np.zeros((2, 3), dtype=np.int64), 48, 1),
        (np.zeros(6)[::2], 24, 1),
        (np.array(1.5), 8, 1),
        (3, 8, 0),
        (2.5, 8, 0),
        (np.float32(2.5), 8, 0),
        (True, 1, 0),
        (np.True_, 1, 0),
        (None, 1, 0),
        ("\u00fc", 2, 0),
        (
            (np.zeros(2), [torch.zeros(3), None], {"a": 1, "b": np.zeros(1, dtype=np.uint8)}),
            16 + (8 + 12 + 1) + (8 + 8 + 1),
            3,
        ),
    ],
)
def test_sizes_come_from_dtype_and_shape(payload, nbytes, vectors):
    assert copy_payload(payload)[1:3] == (nbytes, vectors)


@pytest.mark.parametrize(
    "payload",
    [object(), {1, 2}, np.array([None]), torch.eye(2).to_sparse(), b"bytes", 2**63, {1: 2.0}, [lambda: None], 1j],
    ids=lambda p: type(p).__name__,
)
def test_what_has_no_honest_size_cannot_cross(payload):
    with pytest.raises(FederationError, match="payload"):
        copy_payload(payload)


@pytest.mark.parametrize(
    "make", [lambda: torch.ones(3, requires_grad=True), lambda: np.ones(3)], ids=["torch", "numpy"]
)
def test_what_arrives_is_a_detached_copy_for_each_receiver(make):
    mine = make()

    async def server(me):
        await me.send_many(me.clients, {"x": [mine]})
        with torch.no_grad():
            mine[:] = 7.0  # after sending: nobody may see it

    async def client(me):
        x = (await me.recv("server"))["x"][0]
        assert not getattr(x, "requires_grad", False)
        assert x.tolist() == [1.0, 1.0, 1.0]
        x[:] = 9.0  # the other client must not see it

    run_programs({"server": once(server), "client_0": once(client), "client_1": once(client)})
    assert mine.tolist() == [7.0, 7.0, 7.0]


# --- errors -----------------------------------------------------------------------------------------------------------


def test_a_deadlock_names_who_waits_for_what():
    async def server(me):
        await me.recv("client", "gradient")

    async def client(me):
        await me.recv_any(["server"], "model")

    with pytest.raises(FederationError) as caught:
        two(client, server)
    text = str(caught.value)
    assert "deadlock" in text
    assert "server (round 1) waits for a message 'gradient' from client" in text
    assert "client (round 1) waits for a message 'model' from any of server" in text


def test_where_there_is_no_edge_nothing_is_sent():
    def client(dst):
        async def body(me):
            await me.send(dst, 1.0)

        return once(body)

    star = {"connected": lambda a, b: "server" in (a, b)}
    for dst, message in (("b", "no edge between them"), ("servr", "Closest: 'server'"), ("a", "no edge")):
        with pytest.raises(FederationError, match=message):
            run_programs({"server": once(silent), "a": client(dst), "b": once(silent)}, **star)
    with pytest.raises(FederationError, match="no such party"):
        two(silent, once_recv("clientt"))


def once_recv(src):
    async def body(me):
        await me.recv(src)

    return body


def test_a_program_that_ends_or_breaks_early_is_an_error():
    async def returns(me, data, public, config):
        return

    async def breaks(me, data, public, config):
        async for t in me.rounds():
            if t == 3:
                break

    for program in (returns, breaks):  # the last round, too, has a boundary
        with pytest.raises(FederationError, match="program ended"):
            run_programs({"server": once(silent), "client": program}, rounds=3)


def test_an_error_in_a_program_says_whose():
    async def client(me):
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine") as caught:
        two(client, silent)
    assert caught.value.__notes__ == ["in the program of client, round 1"]


def test_touching_another_partys_data_raises():
    class Part:
        features = 3.0

    stolen = {}

    async def owner(me, data, public, config):
        async for _ in me.rounds():
            stolen["data"] = data
            assert data.features == 3.0
            await me.send("thief", 1.0)

    async def thief(me, data, public, config):
        async for _ in me.rounds():
            await me.recv("owner")
            with pytest.raises(FederationError, match="thief touched `features` of owner's data"):
                _ = stolen["data"].features
            with pytest.raises(FederationError, match="read-only"):
                stolen["data"].features = 1.0

    seen = []
    engine = SimulatedEngine(
        {"owner": PartySpec(owner, Part()), "thief": PartySpec(thief)},
        on_round=lambda round, engine: seen.append(stolen["data"].features) or False,  # the observer may look
    )
    engine.run()
    assert seen == [3.0]


# --- evaluation -------------------------------------------------------------------------------------------------------


def test_evaluation_costs_nothing_and_leaves_the_training_streams_alone():
    def client(evaluate):
        async def body(me):
            if evaluate:
                async with me.evaluating():
                    me.state.test = me.rng("batches").random(), torch.rand(1, generator=me.torch_rng("batches")).item()
                    await me.compute(lambda: None, cost=1e6)
                    await me.send("server", X)
            me.state.train = me.rng("batches").random(), torch.rand(1, generator=me.torch_rng("batches")).item()
            await me.send("server", X)

        return body

    def server(evaluate):
        async def body(me):
            if evaluate:
                async with me.evaluating():
                    with pytest.raises(FederationError, match="recv_any"):
                        await me.recv_any(me.clients)
                    (await me.recv("client"))[:] = 1.0
                    assert behind(me).now == 0.0
            await me.recv("client")

        return body

    with_it, without = (two(client(e), server(e), clock=modelled()) for e in (True, False))
    assert rows_of(with_it) == rows_of(without)
    assert with_it.bytes_sent == without.bytes_sent == 100
    assert [p.now for p in with_it.order] == [p.now for p in without.order]
    a, b = with_it.parties["client"].state, without.parties["client"].state
    assert a.train == b.train
    assert a.test[0] != a.train[0]
    assert a.test[1] != a.train[1]


def test_reports_are_copies():
    reports = []

    async def body(me):
        scores = torch.ones(2, requires_grad=True)
        me.report(predictions={"val": scores})
        with torch.no_grad():
            scores.zero_()

    run_programs({"server": once(body)}, on_report=lambda *report: reports.append(report))
    assert reports[0][:2] == ("server", 1)
    assert reports[0][2]["predictions"]["val"].tolist() == [1.0, 1.0]
    assert not reports[0][2]["predictions"]["val"].requires_grad


# --- compute clock ----------------------------------------------------------------------------------------------------


def test_compute_clocks():
    from vflbench.federation.clock import ComputeClock
    from vflbench.types import ComputeConfig

    async def body(me):
        assert await me.compute(lambda a, b: a + b, 1, 2, cost=7.0) == 3

    config = ComputeConfig(base_seconds=0.5, seconds_per_unit=0.1)
    times = {
        mode: run_programs({"server": once(body)}, clock=ComputeClock(mode, config)).order[0].now for mode in MODES
    }
    assert times["none"] == 0.0
    assert times["modelled"] == pytest.approx(1.2)
    assert 0.0 < times["measured"] < 1.0


MODES = ("none", "modelled", "measured")


# --- schedules --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TOYS)
def test_the_schedule_changes_nothing(name):
    runs = [run_toy(TOYS[name], shuffle=seed, checkpoint_every=None) for seed in range(20)]
    assert [difference(clean(name), run) for run in runs] == [None] * 20
    assert len({tuple(run.schedule) for run in runs}) > 10  # they really were scheduled otherwise


@pytest.mark.parametrize("name", TOYS)
@pytest.mark.parametrize("window", [1, 2, 6])
def test_the_window_changes_nothing(name, window):
    assert difference(clean(name), run_toy(TOYS[name], window=window)) is None


@pytest.mark.parametrize("seed", range(20))
def test_the_schedule_changes_nothing_in_random_federations(seed):
    toy = random_toy(seed)
    assert difference(run_toy(toy), run_toy(toy, shuffle=seed, window=1 + seed % 3)) is None


# --- stopping and size ------------------------------------------------------------------------------------------------


def test_on_round_stops_before_anybody_begins_a_later_round():
    begun, rounds = [], []

    async def server(me, data, public, config):
        async for t in me.rounds():
            begun.append(t)
            await me.send_many(me.clients, X)
            await me.recv_all(me.clients)

    async def client(me, data, public, config):
        async for t in me.rounds():
            begun.append(t)
            await me.recv("server")
            await me.send("server", X)

    engine = run_programs(
        {"server": server} | dict.fromkeys(party_names("client", 3), client),
        rounds=10,
        on_round=lambda round, engine: rounds.append(round) or round == 4,
    )
    assert rounds == [1, 2, 3, 4]
    assert max(begun) == 4
    assert engine.finished_round == 4
    assert engine.bytes_sent == 4 * 600
    assert len(engine.ledger.take(4)) == 24


def test_training_that_stops_waits_for_nobody_who_has_gone_ahead():
    """A party in its second round asks one that has stopped, again and again, as passive parties of PubSub-VFL do."""

    async def slow(me, data, public, config):
        async for _ in me.rounds():
            await me.recv_any(("last", "ahead"), "message", timeout=5.0)

    async def last(me, data, public, config):
        async for _ in me.rounds():
            await me.send("slow", X)

    async def ahead(me, data, public, config):
        waits = 0
        async for t in me.rounds():
            while t == 2:
                with contextlib.suppress(TimeoutError):
                    await me.recv("slow", timeout=0.1)
                waits += 1
                assert waits < 1000, "nobody answers any more"

    programs = {"slow": slow, "last": last, "ahead": ahead}
    engine = run_programs(programs, rounds=3, eval_every=4, network=NET, on_round=lambda round, engine: True)
    assert engine.finished_round == 1


def test_a_thousand_parties():
    async def server(me):
        total = sum(await me.recv_all(me.clients))
        await me.send_many(me.clients, total)

    async def client(me):
        await me.send("server", X)
        await me.recv("server")

    clients = dict.fromkeys(party_names("client", 999), once(client))
    engine = run_programs({"server": once(server)} | clients, rounds=10, network=NET)
    assert len(engine.ledger.rows) == 2 * 999 * 10 * len(LEDGER_FIELDS)
    assert engine.ledger.rows.itemsize == 8  # columns of numbers, no object per message
    assert engine.finished_round == 10


def test_no_grad_around_an_await_is_that_partys_alone() -> None:
    seen: dict[str, list[bool]] = {"a": [], "b": []}

    async def program(me, *_):
        other = "b" if me.name == "a" else "a"
        async for _round in me.rounds():
            await me.send(other, 1)
            if me.name == "a":
                with torch.no_grad():
                    await me.recv(other)
                    seen["a"].append(torch.is_grad_enabled())
            else:
                await me.recv(other)
            seen[me.name].append(torch.is_grad_enabled())

    SimulatedEngine({"a": PartySpec(program), "b": PartySpec(program)}, rounds=2).run()
    assert seen == {"a": [False, True, False, True], "b": [True, True]}
    assert torch.is_grad_enabled()


def test_of_a_federation_that_never_runs_no_program_is_left_unawaited(recwarn):
    """As where a checkpoint is refused after the parties are there: the user would read Python's warning."""
    SimulatedEngine({"a": PartySpec(once(silent)), "b": PartySpec(once(silent))}, rounds=2)
    gc.collect()
    assert not recwarn.list
