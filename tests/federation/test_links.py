"""Shared server bandwidth, the timing rule `round`, links of their own, local links."""

import numpy as np
import pytest

from tests.federation.toys import gbps, modelled, network, once, rows_of, run_programs
from vflbench.federation.links import Ingress
from vflbench.federation.party import PartySpec
from vflbench.federation.simulated import SimulatedEngine
from vflbench.types import FederationError, LinkConfig

MEGABYTE = np.zeros(125_000)
X = np.zeros(125)  # 1,000 bytes: 0.01 s at 1e5 bytes a second
NIC = network(server_bandwidth_gbps=gbps(1e7))


def test_a_servers_inbound_bandwidth_serves_by_arrival_not_by_execution():
    async def client(me):
        await me.compute(lambda: None, cost=100.0 if me.name == "client_0" else 0.0)
        await me.send("server", MEGABYTE)

    async def server(me):
        await me.recv_all(me.clients)

    engine = run_programs(
        {"server": once(server), "client_0": once(client), "client_1": once(client)}, network=NIC, clock=modelled()
    )
    assert {r["src"]: r["delivered"] for r in rows_of(engine)} == pytest.approx({"client_1": 0.1, "client_0": 0.2})


def test_a_servers_inbound_bandwidth_is_shared_by_those_who_come_together():
    async def client(me):
        await me.send("server", MEGABYTE)
        await me.send("server", MEGABYTE)

    async def server(me):
        await me.recv_all(me.clients)

    engine = run_programs({"server": once(server), "client_0": once(client), "client_1": once(client)}, network=NIC)
    # All arrive at 0: by party, then by number.
    assert [r["delivered"] for r in rows_of(engine)] == pytest.approx([0.1, 0.2, 0.3, 0.4])


def test_a_slow_link_holds_the_servers_line_only_for_its_bytes():
    links = {"client_0->server": LinkConfig(0.0, gbps(1e6))}  # 1 s for its megabyte; the line is busy for 0.1 s

    async def client(me):
        await me.send("server", MEGABYTE)

    async def server(me):
        await me.recv_all(me.clients)

    net = network(0.5, server_bandwidth_gbps=gbps(1e7), links=links)
    engine = run_programs({"server": once(server), "client_0": once(client), "client_1": once(client)}, network=net)
    assert [r["delivered"] for r in rows_of(engine)] == pytest.approx([1.0, 0.6])


def test_a_servers_outbound_bandwidth_is_first_come_first_served():
    async def server(me):
        await me.send_many(me.clients, MEGABYTE)  # 0.0 to 0.1 and 0.1 to 0.2
        await me.compute(lambda: None, cost=500.0)
        await me.send("client_0", MEGABYTE)

    async def client(me):
        await me.recv("server")

    net = network(0.5, server_bandwidth_gbps=gbps(1e7))
    engine = run_programs(
        {"server": once(server), "client_0": once(client), "client_1": once(client)}, network=net, clock=modelled()
    )
    assert [(r["dst"], r["delivered"]) for r in rows_of(engine)] == [
        ("client_0", pytest.approx(0.6)),
        ("client_0", pytest.approx(1.1)),
        ("client_1", pytest.approx(0.7)),
    ]


def test_ingress_serves_again_what_it_served_before_a_cut():
    """Three messages arrive together and one later; the second and the last are sent again after a resume."""
    messages = [(1.0, 1, 0), (1.0, 2, 5), (1.0, 3, 0), (1.2, 2, 6)]
    rounds = [1, 2, 1, 2]
    first = Ingress(0.1, keep=True)
    ends = [first.serve(*message, 5, round) for message, round in zip(messages, rounds, strict=True)]
    assert ends == pytest.approx([1.5, 2.0, 2.5, 3.0])
    again = Ingress(0.1, keep=True, history=sorted(first.served(1)))
    assert [again.serve(*messages[i], 5, 2) for i in (1, 3)] == [ends[1], ends[3]]
    assert sorted(again.served(2)) == sorted(first.served(2))
    again.forget(2.0)
    assert [entry[3] for entry in sorted(again.served(2))] == pytest.approx([2.5, 3.0])


# --- timing = round ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("latencies", [1, 2])
@pytest.mark.parametrize(("gather", "scatter"), [(True, True), (True, False), (False, True)])
def test_an_exchange_costs_its_latencies_and_all_its_bytes(latencies, gather, scatter):
    """Three clients, 1,000 bytes each way at 1e5 bytes a second, L = 0.5 s, three exchanges in each of two rounds."""

    async def server(me):
        for _ in range(3):
            if gather:
                await me.recv_all(me.clients)
            if scatter:
                await me.send_many(me.clients, X)

    async def client(me):
        for _ in range(3):
            if gather:
                await me.send("server", X)
            if scatter:
                await me.recv("server")

    net = network(0.5, 1e5, timing="round", latencies=latencies)
    clients = {f"client_{i}": once(client) for i in range(3)}
    engine = run_programs({"server": once(server)} | clients, network=net, rounds=2)
    end = max(party.now for party in engine.order)
    if gather and scatter:
        expected = 6 * (latencies * 0.5 + 6 * 0.01)
    elif gather:  # nothing answers: one gather after the other, in one medium
        expected = (latencies - 1) * 0.5 + 18 * 0.01
    else:  # scatters that nothing separates are one exchange
        expected = 0.5 + 18 * 0.01
    assert end == pytest.approx(expected)
    assert len(rows_of(engine)) == 18 * (gather + scatter)


def test_a_scatter_alone_joins_the_exchange_before_it_and_computing_delays_it():
    async def server(me):
        await me.send("client", X)  # a start: 0.5 + 0.01
        await me.recv("client")  # the exchange: 2 x 0.5 + 2 x 0.01, and 1 s of computing
        await me.compute(lambda: None, cost=1000.0)
        await me.send("client", X)
        await me.send("client", X, "more")  # joins it: 0.01

    async def client(me):
        await me.recv("server")
        await me.send("server", X)
        await me.recv("server")
        await me.recv("server", "more")

    net = network(0.5, 1e5, timing="round")
    engine = run_programs({"server": once(server), "client": once(client)}, network=net, clock=modelled())
    assert engine.parties["client"].now == pytest.approx(0.51 + 1.02 + 1.0 + 0.01)


def test_timing_round_has_rows_also_for_what_no_server_read():
    async def client(me):
        await me.send("server", X, "unread")
        await me.send("server", X)

    async def server(me):
        await me.recv("client")

    net = network(0.5, 1e5, timing="round")
    engine = run_programs({"server": once(server), "client": once(client)}, network=net, rounds=2)
    rows = rows_of(engine)
    assert sum(r["bytes"] for r in rows) == engine.bytes_sent == 4000
    assert [r["delivered"] for r in rows] == pytest.approx([0.53, 0.51, 0.54, 0.52])


@pytest.mark.parametrize("call", ["recv_any", "timeout", "clock"])
def test_timing_round_refuses_what_depends_on_time(call):
    async def server(me):
        if call == "recv_any":
            await me.recv_any(me.clients)
        elif call == "timeout":
            await me.recv("client", timeout=1.0)
        else:
            _ = me.clock

    async def client(me):
        await me.send("server", X)

    with pytest.raises(FederationError, match=r"network\.timing=round"):
        run_programs({"server": once(server), "client": once(client)}, network=network(timing="round"))


# --- kinds of links ---------------------------------------------------------------------------------------------------


def test_links_of_their_own_and_kinds():
    async def server(me):
        await me.recv_all(me.clients)

    async def client(me):
        await me.send("server", X)
        if me.index == 1:
            await me.send("client_1", X)
        else:
            await me.recv("client_0")

    net = network(0.1, links={"client_1->server": LinkConfig(300.0, gbps(1e3))})
    net.client_client = LinkConfig(20.0, gbps(1e4))
    engine = run_programs({"server": once(server), "client_0": once(client), "client_1": once(client)}, network=net)
    assert [(r["src"], r["dst"], r["kind"], r["delivered"]) for r in rows_of(engine)] == [
        ("client_0", "server", 0, pytest.approx(0.1)),
        ("client_0", "client_1", 1, pytest.approx(0.12)),
        ("client_1", "server", 0, pytest.approx(1.3)),
    ]


@pytest.mark.parametrize(
    "options", [{}, {"timing": "round"}, {"server_bandwidth_gbps": 1e-6}], ids=["causal", "round", "shared"]
)
def test_local_links_are_free_and_uncharged(options):
    async def a(me):
        await me.send("b", MEGABYTE)

    async def b(me):
        await me.recv("a")

    specs = {
        "a": PartySpec(once(a), role="server", organisation="bank"),
        "b": PartySpec(once(b), role="worker", organisation="bank"),
    }
    engine = SimulatedEngine(specs, network=network(1.0, 1.0, **options))
    engine.run()
    (row,) = rows_of(engine)
    assert (row["kind"], row["bytes"], row["delivered"]) == (2, 1e6, 0.0)
    assert engine.bytes_sent == 0
    assert engine.parties["b"].now == 0.0
