"""Equal computations of a cohort run as one vmap call, and give what the loop gives."""

import numpy as np
import pytest
import torch

from tests.federation.toys import gbps, modelled, once, rows_of, run_programs
from vflbench.federation.party import batchable, party_names
from vflbench.federation.simulated import batches
from vflbench.federation.simulated.batches import run_batch, stack
from vflbench.types import LinkConfig, NetworkConfig


def loss(parameters, x, y, ridge):
    hidden = torch.tanh(x @ parameters["w"])
    return (hidden @ parameters["v"] - y).square().mean() + ridge * parameters["w"].square().sum()


@batchable
def step(parameters, x, y, ridge):
    gradient = torch.func.grad(loss)(parameters, x, y, ridge)
    return {name: value - 0.1 * gradient[name] for name, value in parameters.items()}, loss(parameters, x, y, ridge)


@batchable
def product(a, b):
    return a @ b


@batchable
def scaled(a, factor):
    return a * factor


@pytest.fixture
def groups(monkeypatch):
    """The sizes of the groups that ran."""
    sizes = []
    run_batch = batches.run_batch

    def counting(function, calls):
        sizes.append(len(calls))
        return run_batch(function, calls)

    monkeypatch.setattr(batches, "run_batch", counting)
    return sizes


def train(batch, workers=15, rounds=4):
    """Workers with their own data train and average over a heterogeneous star."""

    async def server(me, data, public, config):
        async for _ in me.rounds():
            parts = await me.recv_all(me.clients)
            mean = {k: torch.stack([part[k] for part in parts]).mean(0) for k in parts[0]}
            await me.send_many(me.clients, mean)

    async def worker(me, data, public, config):
        rng = me.rng("data")
        x, y = (torch.from_numpy(rng.normal(size=s).astype(np.float32)) for s in ((20, 6), (20,)))
        me.state.parameters = {"w": torch.full((6, 4), 0.1), "v": torch.linspace(-1, 1, 4)}
        async for _ in me.rounds():
            for _ in range(2):
                me.state.parameters, value = await me.compute(
                    step, me.state.parameters, x, y, 1e-3, cost=100.0 * me.index
                )
            me.report(train_loss=float(value))
            await me.send("server", me.state.parameters)
            me.state.parameters = await me.recv("server")

    names = party_names("worker", workers)
    links = {f"{name}->server": LinkConfig(10.0 * i, gbps(1e4 * (i + 1))) for i, name in enumerate(names)}
    reports = []
    engine = run_programs(
        {"server": server} | dict.fromkeys(names, worker),
        network=NetworkConfig("test", LinkConfig(5.0, 0.001), LinkConfig(), links=links),
        clock=modelled(),
        rounds=rounds,
        batch_compute=batch,
        on_report=lambda name, round, values: reports.append((name, round, values["train_loss"])),
    )
    return engine, sorted(reports)


def test_a_cohort_equals_the_loop(groups):
    batched, reports = train(True)
    assert groups == [15] * 8  # though their links and their computing times differ
    loop, loop_reports = train(False)
    assert len(groups) == 8
    assert [p.now for p in batched.order] == [p.now for p in loop.order]
    assert rows_of(batched) == rows_of(loop)
    for name, party in batched.parties.items():
        for key, value in getattr(party.state, "parameters", {}).items():
            torch.testing.assert_close(value, loop.parties[name].state.parameters[key], rtol=1e-6, atol=1e-7)
    assert [r[:2] for r in reports] == [r[:2] for r in loop_reports]
    assert [r[2] for r in reports] == pytest.approx([r[2] for r in loop_reports], rel=1e-6)


def compute_in_all(*calls):
    """One round in which party i awaits compute(*calls[i]); returns the results by party."""
    results = {}

    def program(call):
        async def body(me):
            results[me.name] = await me.compute(*call)

        return once(body)

    names = party_names("worker", len(calls))
    run_programs({name: program(call) for name, call in zip(names, calls, strict=True)})
    return [results[name] for name in names]


def test_results_go_to_their_party(groups):
    matrices = [torch.full((2, 2), float(i)) for i in range(12)]
    results = compute_in_all(*[(product, m, torch.eye(2)) for m in matrices])
    assert groups == [12]
    assert all(torch.equal(result, m) for result, m in zip(results, matrices, strict=True))


def test_what_is_not_equal_is_not_grouped(groups):
    fresh = [batchable(lambda a: a + 1) for _ in range(2)]
    a, double = torch.ones(2, 2), torch.ones(2, 2, dtype=torch.float64)
    results = compute_in_all(
        *((f, a) for f in fresh),
        (product, a, a),
        (product, torch.ones(3, 2), a),
        (product, double, double),
        (scaled, a, 2),
        (scaled, a, 2.0),
        (scaled, a, True),
        (scaled, a, 3),
        (scaled, a, np.float64(5.0)),
    )
    assert groups == [1] * 10
    assert results[-1].sum() == 20.0


def test_constants_alone_arrays_and_graphs_run_one_by_one(groups):
    @batchable
    def double(x):
        return x * 2

    parameters = [torch.ones(2, requires_grad=True) for _ in range(2)]
    results = compute_in_all(
        (double, 3), (double, 3), (double, np.ones(2)), (double, np.ones(2)), *((double, p) for p in parameters)
    )
    assert groups[0] == 2 and groups[1:] == [1] * 4
    assert results[:2] == [6, 6]
    for result in results[4:]:  # no party's graph holds another's
        result.sum().backward()
    assert [p.grad.tolist() for p in parameters] == [[2.0, 2.0]] * 2


def test_a_result_changed_in_place_is_the_partys_own():
    a = torch.ones(2, 2)
    first, second = compute_in_all((product, a, a), (product, a, a))
    first.zero_()
    assert second.tolist() == [[2.0, 2.0], [2.0, 2.0]]


def test_a_functions_own_version_for_a_cohort_is_called_instead_of_vmap():
    @batchable
    def double(a, by):
        return a * by

    double.together = lambda a, by: (a * by, a.sum(dim=1))
    found = run_batch(double, [(torch.full((2,), float(i)), 2.0) for i in (1, 2)])
    assert [[part.tolist() for part in result] for result in found] == [[[2, 2], 2], [[4, 4], 4]]


def test_neighbours_in_memory_are_stacked_without_a_copy_but_not_if_they_carry_gradients():
    whole = torch.arange(6.0).view(3, 2)
    assert stack(list(whole)).data_ptr() == whole.data_ptr() and torch.equal(stack(list(whole)), whole)
    apart = stack([whole[2], whole[0]])
    assert apart.data_ptr() != whole.data_ptr() and torch.equal(apart, whole[[2, 0]])
    learnt = whole.clone().requires_grad_(True)
    stack(list(learnt)).sum().backward()
    assert torch.equal(learnt.grad, torch.ones(3, 2))
