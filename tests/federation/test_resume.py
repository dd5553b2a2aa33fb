"""A run killed at any step and resumed from its last cut equals the run that never stopped, bit for bit."""

import random

import numpy as np
import pytest
import torch

from tests.every import few_fast
from tests.federation.toys import (
    TOYS,
    clean,
    difference,
    once,
    plain_bytes,
    random_toy,
    read_back,
    run_programs,
    run_toy,
)
from tests.pretended_gpu import PretendedGpu
from vflbench.federation.party import PartySpec
from vflbench.federation.simulated import SimulatedEngine
from vflbench.federation.snapshot import freeze, optimised, thaw
from vflbench.types import FederationError


@pytest.mark.parametrize(
    "name",
    few_fast([pytest.param(name, marks=[] if name in ("star", "async") else [pytest.mark.slow]) for name in TOYS]),
)
def test_twenty_random_kills(name):
    rng = random.Random(name)
    kills = [rng.randrange(2, clean(name).steps + 1) for _ in range(20)]
    assert [difference(clean(name), run_toy(TOYS[name], kills=(kill,))) for kill in kills] == [None] * 20


@pytest.mark.parametrize("name", TOYS)
@pytest.mark.parametrize("every", few_fast([1, 3]))
def test_chains_of_three_kills(name, every):
    rng = random.Random(name)
    for seed in range(3):
        kills = tuple(rng.randrange(clean(name).steps // 4, clean(name).steps // 2) for _ in range(3))
        assert difference(clean(name), run_toy(TOYS[name], kills=kills, checkpoint_every=every, shuffle=seed)) is None


# 283, 549, 1056 and 1263 found a bug.
@pytest.mark.parametrize("seed", few_fast([*range(20), 283, 549, 1056, 1263], 6))
def test_random_federations(seed):
    """Many things happen at the same instant here, and messages are consumed rounds early or late."""
    toy, rng = random_toy(seed), random.Random(seed)
    every = rng.choice([1, 1, 2, 3])
    whole = run_toy(toy, checkpoint_every=every)
    assert difference(whole, run_toy(toy, checkpoint_every=None)) is None
    for _ in range(3):
        kills = tuple(rng.randrange(2, max(3, whole.steps * 2 // 3)) for _ in range(2))
        assert difference(whole, run_toy(toy, kills=kills, checkpoint_every=every, shuffle=seed)) is None


# --- the tests bite: a cut that lacks one thing gives another run -----------------------------------------------------


def without(key, value):
    def harm(cut):
        for party in cut.parties.values():
            party[key] = value(party[key])

    return harm


def mailboxes(cut):
    cut.inflight = [m for m in cut.inflight if m["arrival"] is not None]


def unresolved(cut):
    cut.inflight = [m for m in cut.inflight if m["arrival"] is None]


def ingress(cut):
    cut.ingress = {name: [] for name in cut.ingress}


def optimizer(cut):
    for party in cut.parties.values():
        party["state"].pop("optimizer", None)


BITES = {
    "mailboxes": (mailboxes, ["ring", "async", "round_star"]),
    "unresolved": (unresolved, ["async"]),
    "ingress history": (ingress, ["async"]),
    "optimizer": (optimizer, ["star"]),
    "orphans": (without("orphans", lambda _: []), ["ring", "round_star"]),
    "link busy": (
        without("links", lambda links: {dst: (0.0, *rest) for dst, (_, *rest) in links.items()}),
        ["ring", "async"],
    ),
    "link seq": (
        without("links", lambda links: {dst: (busy, 0, *rest) for dst, (busy, _, *rest) in links.items()}),
        ["ring", "async"],
    ),
    "egress": (without("egress", lambda _: 0.0), ["async"]),
    "medium": (without("medium", lambda _: (0.0, 0.0, False)), ["round_star"]),
    "clock": (without("now", lambda _: 0.0), ["ring", "async", "round_star"]),
    "generators": (without("generators", lambda _: {}), ["star", "async"]),
    "torch generators": (without("torch_generators", lambda _: {}), ["star"]),
}


@pytest.mark.parametrize("name", few_fast(BITES, 4))
def test_a_cut_needs(name):
    harm, toys = BITES[name]
    for toy in toys:
        steps = clean(toy).steps
        assert any(harmed(toy, kill, harm) for kill in range(2, steps + 1, 1 + steps // 40)), toy


def harmed(toy, kill, harm):
    try:
        return difference(clean(toy), run_toy(TOYS[toy], kills=(kill,), harm=harm)) is not None
    except (FederationError, AttributeError):
        return True


# --- before rounds() --------------------------------------------------------------------------------------------------


def resumed(program, other=None):
    """Run to the cut after round 1, then resume from it with the same programs."""
    programs = {"server": other or once(nothing), "client": program}
    cuts = []
    run_programs(programs, rounds=3, checkpoint_every=1, on_cut=cuts.append)
    return run_programs(programs, rounds=3, resume_from=cuts[0])


async def nothing(me):
    pass


@pytest.mark.parametrize("call", ["send", "send_many", "recv", "recv_all", "recv_any"])
def test_messages_before_rounds_are_refused_in_a_resumed_run(call):
    async def client(me, data, public, config):
        if call.startswith("send"):
            await (me.send("server", 1.0) if call == "send" else me.send_many(["server"], 1.0))
        elif me.fresh:
            await me.send("server", 1.0)
        async for _ in me.rounds():
            pass

    async def server(me, data, public, config):
        if call == "recv":
            await me.recv("client")
        elif call == "recv_all":
            await me.recv_all(["client"])
        elif call == "recv_any":
            await me.recv_any(["client"])
        async for _ in me.rounds():
            pass

    with pytest.raises(FederationError, match=r"before rounds\(\) in a resumed run.*me\.fresh"):
        resumed(client, server)


def test_an_exchange_of_the_first_start_only():
    async def client(me, data, public, config):
        if me.fresh:
            await me.send("server", 1.0, "hello")
        async for _ in me.rounds():
            await me.send("server", 1.0)

    async def server(me, data, public, config):
        if me.fresh:
            await me.recv("client", "hello")
        async for _ in me.rounds():
            await me.recv("client")

    engine = resumed(client, server)
    assert len(engine.ledger.take()) == 2


def test_state_that_appears_after_rounds_is_named():
    async def client(me, data, public, config):
        async for t in me.rounds():
            if t == 1:
                me.state.model = torch.nn.Linear(1, 1)

    with pytest.raises(FederationError, match=r"client's state\.model must exist before rounds"):
        resumed(client)


def test_a_state_that_no_file_can_hold_is_named():
    async def client(me, data, public, config):
        me.state.tables = {"a": [object()]}
        async for _ in me.rounds():
            pass

    with pytest.raises(FederationError, match=r"client's state\.tables\.a\[0\] is a object"):
        resumed(client)


# --- what a cut holds -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        np.float64(0.1),
        np.float32(0.1),
        np.bool_(True),
        np.int8(3),
        np.array(2.0),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(6)[::-2],
        np.zeros((0, 3)),
        torch.arange(6.0).reshape(2, 3).T,
        (1, [2.5, "text", None], {"a": True, 3: (np.float32(1),)}),
        np.random.default_rng(0).bit_generator.state,
    ],
    ids=lambda v: type(v).__name__,
)
def test_values_survive_a_file_of_plain_data(value):
    back = thaw(read_back(plain_bytes(freeze(value))))
    assert type(back) is type(value)
    assert repr(back) == repr(value)
    if isinstance(value, np.ndarray):
        assert (back.dtype, back.shape, back.flags.f_contiguous) == (
            value.dtype,
            value.shape,
            value.copy(order="K").flags.f_contiguous,
        )
        assert back.flags.writeable
    if isinstance(value, torch.Tensor):
        assert back.stride() == value.stride()


def test_what_is_frozen_no_longer_changes():
    tensor, array, inner = torch.zeros(2), np.zeros(2), [torch.zeros(1)]
    frozen = freeze({"tensor": tensor, "array": array, "list": inner})
    tensor += 1
    array += 1
    inner[0] += 1
    back = thaw(frozen)
    assert back["tensor"].sum() == back["array"].sum() == back["list"][0].sum() == 0


def test_restoring_keeps_what_learns_and_leaves_data_alone():
    parameter, plain, data = torch.zeros(2, requires_grad=True), torch.zeros(2), torch.zeros(2)
    state = {"parameter": parameter, "plain": plain, "data": data, "same": data}
    frozen = freeze(state) | {"data": torch.ones(2), "parameter": torch.ones(2), "plain": torch.ones(2)}
    kept = optimised([("optimizer", torch.optim.SGD([plain], lr=0.1))])
    back = thaw(frozen, state, kept=kept)
    assert back["parameter"] is parameter
    assert back["plain"] is plain
    assert parameter.tolist() == plain.tolist() == back["data"].tolist() == [1.0, 1.0]
    assert data.tolist() == back["same"].tolist() == [0.0, 0.0]  # the party's own data, or another entry's tensor


@pytest.mark.parametrize("wrote", ["cpu", "cuda"])
@pytest.mark.parametrize("reads", ["cpu", "cuda"])
def test_tensors_come_back_on_the_partys_device(wrote, reads):
    """Those that its program made on the CPU by itself stay there; where something is in their place, on its device."""
    with PretendedGpu():
        state = {"own": [torch.ones(2, device=wrote)], "built": torch.ones(2, device=wrote)}
        state |= {"numbers": torch.ones(2)} if wrote == "cuda" else {}
        frozen = read_back(plain_bytes(freeze(state, home=wrote)))
        back = thaw(frozen, {"built": torch.zeros(2, device="cpu")}, home=reads)
        assert back["own"][0].device.type == reads and back["built"].device.type == "cpu"
        assert wrote == "cpu" or back["numbers"].device.type == "cpu"
        assert back["own"][0].tolist() == back["built"].tolist() == [1.0, 1.0]
        optimiser = None
        for device in (wrote, reads):
            model = torch.nn.Linear(2, 1).to(device)
            before, optimiser = optimiser, torch.optim.Adam(model.parameters(), fused=True)
            if before is not None:
                thaw(frozen, optimiser, home=reads)
            model(torch.ones(1, 2, device=device)).sum().backward()
            optimiser.step()
            frozen = read_back(plain_bytes(freeze(optimiser, home=device)))
        assert all(s["step"] == 2 and s["exp_avg"].device.type == reads for s in optimiser.state.values())


def test_an_array_that_cannot_be_saved_is_named():
    with pytest.raises(FederationError, match=r"state\.x: arrays of <U1"):
        freeze(np.array(["a"]), "state.x")


def test_no_cut_is_given_after_the_run_was_stopped():
    cuts = []
    engine = SimulatedEngine(
        {"a": PartySpec(once(nothing)), "b": PartySpec(once(nothing))},
        rounds=6,
        checkpoint_every=2,
        on_cut=lambda cut: cuts.append(cut.round),
        on_round=lambda round, engine: round == 4,
    )
    engine.run()
    assert cuts == [2]
