"""A trace that is replayed has the engine's own times, whatever the network the run was made under."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from tests.federation.toys import Toy, ahead_specs, gbps, modelled, network, ring_specs, star_specs
from vflbench.federation.ledger import COLUMN, sort_ledger
from vflbench.federation.party import Party, PartySpec
from vflbench.federation.replay import Program
from vflbench.federation.simulated import SimulatedEngine
from vflbench.types import LinkConfig, NetworkConfig, VflbenchError

SLOW = {"client_0->server": LinkConfig(300.0, gbps(3e3)), "worker_0->worker_1": LinkConfig(500.0, gbps(2e3))}
NETWORKS = [
    network(),
    network(0.05, 1e4),
    network(0.02, 1e5, links=SLOW),
    network(0.05, 1e4, server_bandwidth_gbps=gbps(5e3)),
    network(0.0, None, server_bandwidth_gbps=gbps(1e4), links=SLOW),
    network(0.05, 1e4, timing="round"),
    network(0.05, 1e4, timing="round", latencies=1, server_bandwidth_gbps=gbps(5e3), links=SLOW),
]
TOYS = {"star": star_specs, "ahead": ahead_specs, "ring": ring_specs}


def run(
    specs: str, profile: NetworkConfig, window: int, rounds: int = 6
) -> tuple[np.ndarray, dict[str, np.ndarray], dict[int, float]]:
    """Ledger, traces, and the engine's clock at each round's boundary."""
    clocks: dict[int, float] = {}
    toy = Toy(TOYS[specs], {}, rounds=rounds)

    def on_round(round: int, engine: SimulatedEngine) -> bool:
        clocks[round] = engine.boundary_clock
        return False

    engine = SimulatedEngine(
        toy.specs(),
        config=rounds,
        rounds=rounds,
        network=copy.deepcopy(profile),
        clock=modelled(),
        window=window,
        on_round=on_round,
    )
    engine.run()
    return sort_ledger(engine.ledger.take()), engine.take_trace(), clocks


def roles(specs: str) -> dict[str, str]:
    return {name: spec.role for name, spec in TOYS[specs]().items()}


@pytest.mark.parametrize("window", [1, 3])
@pytest.mark.parametrize("specs", TOYS)
def test_any_run_replays_to_any_other(specs: str, window: int) -> None:
    """Each network's ledger and clock from each other's trace."""
    runs = [run(specs, profile, window) for profile in NETWORKS]
    for ledger, traces, _ in runs:
        program = Program(np.random.default_rng(0).permutation(ledger), traces, roles(specs))
        for profile, (expected, _, clocks) in zip(NETWORKS, runs, strict=True):
            done = program.retime(profile)
            found = program.rows.copy()
            found[:, COLUMN["sent"]], found[:, COLUMN["delivered"]] = done.sent, done.delivered
            np.testing.assert_array_equal(found, expected)
            latest = np.maximum.accumulate([done.ends[round] for round in sorted(done.ends)])
            assert latest.tolist() == list(clocks.values())


def test_a_message_that_the_ledger_lacks_is_named() -> None:
    ledger, traces, _ = run("star", NETWORKS[1], 1)
    with pytest.raises(VflbenchError, match=r"the trace has message \d+ from client_2 to server, the ledger has none"):
        src, seq = list(roles("star")).index("client_2"), ledger[:, 9]
        last = (ledger[:, 1] == src) & (seq == seq[ledger[:, 1] == src].max())
        Program(ledger[~last], traces, roles("star"))


def test_a_trace_without_a_send_is_no_run() -> None:
    ledger, traces, _ = run("star", NETWORKS[1], 1)
    traces["client_1"] = traces["client_1"][:0]
    with pytest.raises(VflbenchError, match=r"of one run: .* waits for a message from .* for ever"):
        Program(ledger, traces, roles("star")).retime(NETWORKS[1])


def test_without_a_message_nobody_waits_for_it() -> None:
    """Two rounds by hand, at 1 s and 1 byte per second: a asks (8 bytes), b answers (80 bytes)."""

    async def asks(me: Party, *_: object) -> None:
        async for _ in me.rounds():
            await me.send("b", 0.5, tag="question")
            await me.recv("b", tag="answer")

    async def answers(me: Party, *_: object) -> None:
        async for _ in me.rounds():
            await me.recv("a", tag="question")
            await me.send("a", np.zeros(10), tag="answer")

    profile = network(1.0, 1.0)
    engine = SimulatedEngine({"a": PartySpec(asks), "b": PartySpec(answers)}, rounds=2, network=profile)
    engine.run()
    program = Program(engine.ledger.take(), engine.take_trace(), {"a": "client", "b": "client"})
    question = program.rows[:, COLUMN["tag"]] == list(engine.tags).index("question")
    assert question.tolist() == [True, True, False, False]  # by source
    assert program.without_computing(profile)[2] == 2 * (9 + 81)
    # b sends its two answers, one behind the other
    assert program.without_computing(profile, question) == {1: 81, 2: 161}
    assert program.without_computing(profile, ~question)[2] == 8 + 8 + 1
    assert program.without_computing(profile, question | True) == {1: 0, 2: 0}
