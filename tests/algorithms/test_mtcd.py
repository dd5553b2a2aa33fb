"""MTCD and its baselines: hand-worked steps, the token's invariant, the special cases that the paper claims, bytes,
costs and times."""

from __future__ import annotations

import copy
import itertools
import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from tests.algorithms.small_columns import Result, classes, config, ridge, run, sparse
from tests.every import few_fast
from tests.options import card_of, privacy_config, topology_config
from vflbench.algorithms.tokens import block_descent, centralized_gd, dcpa, graph_checks, mtcd, stcd, step_sizes, svfl
from vflbench.algorithms.tokens.walks import Walk, Walks, check, grounds
from vflbench.cards.algorithms.tokens import token_methods
from vflbench.cards.models import resnet_bn as resnet_bn_card
from vflbench.cards.models.split_network import Config as ModelConfig
from vflbench.config import convert
from vflbench.data.tasks import AlignedTask, Objective
from vflbench.federation import topology
from vflbench.federation.clock import ComputeClock
from vflbench.federation.party import RUNNING, SERVER, PartySpec
from vflbench.federation.simulated import SimulatedEngine
from vflbench.models.glm import Glm, Loss, largest_eigenvalue
from vflbench.models.split_network import SplitClient
from vflbench.models.vertical import Aggregation
from vflbench.types import ComputeConfig, ConfigError, NetworkConfig

# (round, token, s) -> per local update theta_k and A afterwards
Record = dict[tuple[int, int, int], list[tuple[Any, Any]]]


# --- hand-worked steps ------------------------------------------------------------------------------------------------


def test_features_in_a_read_only_map_are_taken_without_a_word(recwarn: pytest.WarningsRecorder) -> None:
    task = classes(parties=2)
    blocks = tuple(block.astype(np.float32) for block in task.features)
    for block in blocks:
        block.setflags(write=False)
    cfg = config(mtcd, task)
    run(mtcd, replace(task, features=blocks), replace(cfg, model=replace(cfg.model, dtype="float32")))
    assert not [one for one in recwarn if "writable" in str(one.message)]


def test_two_visits_by_hand() -> None:
    """Ridge, alpha = 1, eta = 1/2, x_1 = (1, 0), x_2 = (1, 1), y = (2, 1), u = (0, 0).

    Client 1: gradient 1 (0 - 2) + 0 = -2, theta_1 = 1, u = (1, 0); then 1 (1 - 2) + 1 = 0: it stays. Client 2: gradient
    (1 - 2) + (0 - 1) + 0 = -2, theta_2 = 1, u = (2, 1); then (2 - 2) + (1 - 1) + 1 = 1, theta_2 = 1/2, u = (3/2, 1/2).
    """
    y, objective = np.array([2.0, 1.0]), Objective("ridge", 1.0)
    first, second = Glm(np.array([[1.0], [0.0]]), y, objective), Glm(np.array([[1.0], [1.0]]), y, objective)
    theta, u = first.visit(np.zeros(1), np.zeros(2), None, 2, 0.5)
    assert theta.tolist() == [1.0] and u.tolist() == [1.0, 0.0]
    theta, u = second.visit(np.zeros(1), u, None, 2, 0.5)
    assert theta.tolist() == [0.5] and u.tolist() == [1.5, 0.5]
    # on sample 0 alone the data's gradient counts N / B = 2 times: 2 (0 - 2) = -4, theta = 2, u = 2
    theta, u = first.visit(np.zeros(1), np.zeros(1), np.array([0]), 1, 0.5)
    assert theta.tolist() == [2.0] and u.tolist() == [2.0]
    assert first.smoothness == pytest.approx(2) and second.smoothness == pytest.approx(3)


def test_a_proximal_step_by_hand() -> None:
    """Logistic, one sample x = 1 of class 1, beta = 0.1, eta = 1, u = 0: gradient -1/2, theta = soft(0.5, 0.1) =
    0.4."""
    block = Glm(np.array([[1.0]]), np.array([1]), Objective("sparse_logistic", 0.1))
    theta, u = block.visit(np.zeros(1), np.zeros(1), None, 1, 1.0)
    assert theta.tolist() == pytest.approx([0.4]) and u.tolist() == pytest.approx([0.4])
    assert block.smoothness == pytest.approx(1 / 4)
    assert block.visit(np.zeros(1), np.zeros(1), None, 1, 0.1)[0].tolist() == pytest.approx([0.04])  # soft(0.05, 0.01)
    assert (
        Glm(np.array([[0.1]]), np.array([1]), Objective("sparse_logistic", 0.1)).visit(
            np.zeros(1), np.zeros(1), None, 3, 1.0
        )[0]
        == 0
    )


def test_partial_gradients_are_those_of_the_whole_objective() -> None:
    for task in (ridge(), sparse()):
        x = np.concatenate(task.features, axis=1)
        assert task.objective is not None
        loss = Loss(task.objective, task.labels)
        u = np.random.default_rng(0).normal(size=len(x))
        numeric = [(loss.value(u + 1e-6 * e) - loss.value(u - 1e-6 * e)) / 2e-6 for e in np.eye(len(u))]
        np.testing.assert_allclose(loss.gradient(u), numeric, atol=1e-7)
        batches = np.arange(len(u)).reshape(-1, 5)  # every sample once: the mean over batches is the whole gradient
        mean = sum(x[rows].T @ loss.gradient(u[rows], rows) for rows in batches) / len(batches)
        np.testing.assert_allclose(mean, x.T @ loss.gradient(u), atol=1e-12)
        assert (task.optimum or 0) <= loss.value(np.zeros(len(x)))


def test_a_visit_to_a_split_network_follows_joint_autograd() -> None:
    task = classes()
    for aggregation in ("sum", "concat"):
        cfg = config(svfl, task, aggregation=aggregation)
        model = cfg.model
        blocks = [SplitClient(k, task.part(k, True), task.public, cfg, model, "cpu") for k in range(task.parties)]
        server = block_descent.make_server(task.joined(), task.public, cfg, model, "cpu")
        token = server.token([block.represent().detach() for block in blocks])
        scores = server.fusion(server.aggregation.aggregate([block.local(block.x) for block in blocks]))
        loss = torch.nn.functional.cross_entropy(scores, server.y)
        for block in blocks:
            joint = torch.cat(
                [g.ravel() for g in torch.autograd.grad(loss, list(block.local.parameters()), retain_graph=True)]
            )
            moved, _ = block.visit(block.theta, token, None, 1, 0.1)
            torch.testing.assert_close((block.theta - moved) / 0.1, joint, rtol=1e-9, atol=1e-12)
            assert not torch.equal(moved, block.theta)  # the network itself has not moved: other tokens start from it
            h, passed = block.represent(), block.visit(block.theta, token, None, 2, 0.1)
            for onward in (False, True):  # two tokens start from one graph, the first one at its last hop
                again, (mine, _) = block.visit(block.theta, token, None, 2, 0.1, h, onward)
                assert torch.equal(again, passed[0]) and torch.equal(mine, passed[1][0] if onward else token[0])


def test_weight_decay_is_that_of_torch_s_sgd() -> None:
    task = classes()
    cfg = config(mtcd, task, weight_decay=0.3)
    block = SplitClient(0, task.part(0, True), task.public, cfg, cfg.model, "cpu")
    server = block_descent.make_server(task.joined(), task.public, cfg, cfg.model, "cpu")
    token = server.token([block.represent().detach()] * task.parties)
    twin, other = copy.deepcopy((block, server))
    scores = other.fusion(token[0] + twin.local(twin.x) - block.local(block.x).detach())  # + 0, with a gradient
    torch.nn.functional.cross_entropy(scores, other.y).backward()
    torch.optim.SGD([*twin.local.parameters(), *other.fusion.parameters()], lr=0.1, weight_decay=0.3).step()
    block.move(block.visit(block.theta, token, None, 1, 0.1)[0])
    server.update(token, None, 1, 0.1)
    for mine, torchs in ((block.local, twin.local), (server.fusion, other.fusion)):
        for one, expected in zip(mine.parameters(), torchs.parameters(), strict=True):
            torch.testing.assert_close(one.detach(), expected.detach(), rtol=1e-12, atol=1e-14)


def test_step_sizes_that_fall_by_hand() -> None:
    task = classes()
    halved = config(svfl, task, batch_size=10, halve_every=2.0, rounds=6)
    assert [step_sizes.lr_of(halved, 0.8, t, 20) for t in (1, 4, 5, 9)] == [
        0.8,
        0.8,
        0.4,
        0.2,
    ]  # a round is half an epoch
    falls = config(svfl, task, anneal=True, rounds=4)
    steps = [step_sizes.lr_of(falls, 1.0, t, 20) for t in (1, 2, 3, 4)]
    half = 0.99 * math.sqrt(0.5) / 2
    assert steps == pytest.approx([1, 0.505 + half, 0.505, 0.505 - half])  # from 1 to 0.01, at round 5
    both = config(mtcd, task, anneal=True, halve_every=2.0)
    assert [str(problem) for problem in graph_checks.mtcd(both)] == [
        "algorithm.halve_every=2.0: algorithm.anneal=true says how it falls: null."
    ]
    with_privacy = replace(
        config(svfl, task), model=resnet_bn_card.Config(), privacy=privacy_config("gaussian_embedding")
    )
    assert "mixes rows" in str(graph_checks.svfl(with_privacy)[0])


def test_statistics_of_batches_are_of_rounds_alone() -> None:
    """What is measured before the first round, how many rows' graphs fit, leaves no trace: a resumed run repeats it."""
    views = np.random.default_rng(0).integers(0, 256, (8, 1, 16, 16), dtype=np.uint8)
    task = replace(classes(parties=2), features=(views, views), labels=np.arange(8) % 2)
    cfg = replace(config(svfl, task), model=resnet_bn_card.Config(width=8))
    block = SplitClient(0, task.part(0, True), task.public, cfg, cfg.model, "cpu")
    block.represent()
    counted = [value.item() for name, value in block.state_dict().items() if name.endswith("num_batches_tracked")]
    assert set(counted) == {1}


@pytest.mark.parametrize("module", few_fast([svfl, mtcd, centralized_gd]))
def test_the_unit_of_a_regressions_targets_does_not_matter(module: ModuleType) -> None:
    """Else one step size would suit targets of 1, and diverge on those of 100."""
    task, graph = classes(classes=0), "path" if module is mtcd else "star"
    far = {split: 100 * labels + 1000 for split, labels in task.held_out_labels.items()}
    other = replace(task, labels=100 * task.labels + 1000, held_out_labels=far)
    rmse = [
        run(module, one, config(module, one, rounds=5, graph=graph)).observer.rows[-1]["val_rmse"]
        for one in (task, other)
    ]
    assert rmse[1] == pytest.approx(100 * rmse[0], rel=1e-9)


# --- the token is in accordance with the iterate ----------------------------------------------------------------------


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[tuple[Any, Any]]]]:
    """Every visit, in the order in which they ran: the client, and theta_k and A after each of its local updates."""
    visits: list[tuple[str, list[tuple[Any, Any]]]] = []
    for kind in (Glm, SplitClient):
        visit = kind.visit

        def one_by_one(
            self: Any, theta: Any, token: Any, rows: Any, steps: int, lr: float, *_: Any, visit: Any = visit
        ) -> tuple[Any, Any]:
            seen: list[tuple[Any, Any]] = []
            for _ in range(steps):
                theta, token = visit(self, theta, token, rows, 1, lr)
                seen.append((theta, token[0] if isinstance(token, tuple) else token))
            visits.append((str(RUNNING.name), seen))
            return theta, token

        monkeypatch.setattr(kind, "visit", one_by_one)
    return visits


def by_visit(record: list[tuple[str, list[tuple[Any, Any]]]], walks: Walks, rounds: int) -> Record:
    """The recorded visits by (round, token, s): a client serves its visits in the walk's order."""
    due: dict[str, Iterator[tuple[int, int, int]]] = {}
    for k, name in enumerate(walks.clients):
        due[name] = iter(
            [(t, gamma, s) for t in range(1, rounds + 1) for s, gamma in walks.in_round(t).visits.get(k, ())]
        )
    return {next(due[name]): seen for name, seen in record}


def walks_of(task: AlignedTask, cfg: Any) -> Walks:
    spec = mtcd.parties(task, cfg)[SERVER]
    return spec.program.keywords["walks"]  # type: ignore[attr-defined, no-any-return]


def represent(task: AlignedTask, cfg: Any) -> list[Any]:
    """Per client the function theta -> h_k on given samples."""
    if task.objective is not None:
        return [lambda theta, rows, x=x: (x if rows is None else x[rows]) @ np.asarray(theta) for x in task.features]
    blocks = [SplitClient(k, task.part(k, True), task.public, cfg, cfg.model, "cpu") for k in range(task.parties)]

    def of(theta: Any, rows: Any, block: SplitClient) -> Any:
        block.move(theta)
        return block.represent(rows).detach().numpy()

    return [partial(of, block=block) for block in blocks]


@pytest.mark.parametrize("weights", few_fast(["average", "cluster", "visitors"]))
@pytest.mark.parametrize("how", ["ridge", "sparse", "batch", "network sum", "network concat"])
def test_the_token_is_in_accordance_after_every_update_hop_and_sync(how: str, weights: str, record: Any) -> None:
    task = {"ridge": ridge, "batch": ridge, "sparse": sparse}.get(how, classes)()
    options: dict[str, Any] = {"tokens": 2, "hops": 3, "local_steps": 2, "weights": weights, "rounds": 4}
    options |= {"batch_size": 11} if how in ("batch", "network concat") else {}
    options |= {"aggregation": how.split()[-1], "lr": 0.05} if how.startswith("network") else {}
    cfg = config(mtcd, task, **options)
    result = run(mtcd, task, cfg)
    walks, rounds = walks_of(task, cfg), options["rounds"]
    visits = by_visit(record, walks, rounds)
    assert len(visits) == rounds * 2 * 4
    h = represent(task, cfg)
    if task.objective is None:
        start = [
            SplitClient(k, task.part(k, True), task.public, cfg, cfg.model, "cpu").theta.numpy()
            for k in range(task.parties)
        ]
        aggregation = Aggregation(cfg.algorithm.aggregation, task.parties)
    else:
        start, aggregation = [np.zeros(x.shape[1]) for x in task.features], None

    def token(theta: Sequence[np.ndarray], rows: Any) -> np.ndarray:
        parts = [of(torch.as_tensor(value), rows) for of, value in zip(h, theta, strict=True)]
        if aggregation is None:
            return np.asarray(sum(parts))
        return aggregation.aggregate([torch.as_tensor(part) for part in parts]).numpy()

    theta, copied = start, 0
    for t in range(1, rounds + 1):
        rows = block_descent.batch(cfg.seed, t, task.public.samples, cfg.algorithm.batch_size)
        estimates = [list(theta) for _ in range(2)]
        visited: list[set[int]] = [set(), set()]
        for gamma, path in enumerate(walks.in_round(t).steps):
            for s, k in enumerate(path):
                for moved, a in visits[t, gamma, s]:
                    estimates[gamma][k] = np.asarray(moved)
                    np.testing.assert_allclose(np.asarray(a), token(estimates[gamma], rows), rtol=0, atol=1e-9)
                visited[gamma].add(k)
        copied += sum(map(len, visited))
        after = []
        for k in range(task.parties):  # the sync, by the paper's formula
            came = [gamma for gamma in range(2) if k in visited[gamma]]
            chosen = {"average": [0, 1], "visitors": came or [0], "cluster": came or [0]}[weights]
            assert weights != "cluster" or len(came) <= 1
            after.append(np.mean([estimates[gamma][k] for gamma in chosen], axis=0))
        theta = after
    np.testing.assert_allclose(result.theta, np.concatenate(theta), rtol=0, atol=1e-9)
    assert np.abs(result.theta - np.concatenate(start)).max() > 1e-3 and copied > 0


# --- special cases ----------------------------------------------------------------------------------------------------


class Given:
    """Walks that a test writes down, the same in every round."""

    def __init__(self, path: Sequence[int], clients: Sequence[str]) -> None:
        self.walk, self.clients = Walk(np.array([path])), clients

    def in_round(self, round: int, start: Any = None) -> Walk:
        return self.walk


def stcd_along(path: Sequence[int], task: AlignedTask, rounds: int = 1, **options: Any) -> np.ndarray:
    """theta of STCD whose token goes along `path` (its last client is not worked at)."""
    cfg = config(stcd, task, rounds=rounds, hops=len(path) - 1, **options)
    names = list(stcd.parties(task, cfg))
    walks = Given(path, names)
    specs = {n: PartySpec(partial(stcd.client, walks=walks), task.part(k, True)) for k, n in enumerate(names)}  # type: ignore[arg-type]
    engine = SimulatedEngine(specs, task.public, cfg, rounds=rounds)
    engine.run()
    return np.concatenate([party.state.model.theta for party in engine.order])


@pytest.mark.parametrize("task", [ridge(), sparse()], ids=["ridge", "sparse"])
def test_one_sync_of_one_token_is_stcd(task: AlignedTask) -> None:
    options = {"tokens": 1, "local_steps": 3, "rounds": 1, "seed": 3}
    whole = run(mtcd, task, config(mtcd, task, hops=9, **options))
    single = run(stcd, task, config(stcd, task, hops=10, **options))  # the tenth hop is on its way
    assert np.array_equal(whole.theta, single.theta)
    shorter = run(stcd, task, config(stcd, task, hops=9, **options))
    assert not np.allclose(whole.theta, shorter.theta, atol=1e-6)
    in_rounds = run(stcd, task, config(stcd, task, hops=10, **options | {"rounds": 3}))
    assert (
        sum(count for (_, tag), (count, _) in in_rounds.sent().items() if tag == "token")
        == in_rounds.observer.extra["hops"]["sent"]
    )


def test_one_sync_of_several_tokens_is_as_many_stcds(record: Any) -> None:
    task = ridge()
    cfg = config(mtcd, task, tokens=3, hops=7, local_steps=2, rounds=1, seed=1)
    run(mtcd, task, cfg)
    walks = walks_of(task, cfg)
    visits = by_visit(list(record), walks, 1)
    for gamma, path in enumerate(walks.in_round(1).steps):
        estimate = [np.zeros(x.shape[1]) for x in task.features]
        for s, k in enumerate(path):
            estimate[k] = visits[1, gamma, s][-1][0]
        assert np.array_equal(np.concatenate(estimate), stcd_along([*path, path[-1]], task, local_steps=2))


def test_q_updates_a_visit_are_one_on_a_graph_that_stands_still_between() -> None:
    task, path = ridge(), [0, 1, 2, 2, 1, 0, 1]
    slow = [k for k in path[:-1] for _ in range(3)] + path[-1:]
    assert np.array_equal(stcd_along(path, task, local_steps=3), stcd_along(slow, task, local_steps=1))
    assert not np.allclose(stcd_along(path, task, local_steps=3), stcd_along(path, task, local_steps=1), atol=1e-6)


@pytest.mark.parametrize("task", [ridge(), sparse(), classes()], ids=["ridge", "sparse", "network"])
@pytest.mark.parametrize("batch_size", [None, 16])
def test_a_token_per_client_without_edges_is_svfl(task: AlignedTask, batch_size: int | None) -> None:
    options = {"local_steps": 3, "lr": 0.05, "rounds": 5, "batch_size": batch_size}
    tokens = {"tokens": task.parties, "hops": 0, "weights": "cluster", "uplink": "all", "graph": "star"}
    many = run(mtcd, task, config(mtcd, task, **options, **tokens))
    server = run(svfl, task, config(svfl, task, graph="star", **options))
    assert np.array_equal(many.theta, server.theta)
    assert many.sent() == server.sent() and many.sent()[2, "representation"][0] == task.parties
    if task.objective is None:
        assert np.array_equal(many.fusion, server.fusion)
    average = run(
        mtcd,
        task,
        config(mtcd, task, **options, **{**tokens, "weights": "average"}, start=sorted(server.engine.parties)[:-1]),
    )
    assert not np.allclose(average.theta, server.theta, atol=1e-6)  # averaging over all tokens shrinks every step


@pytest.mark.parametrize(
    "task", [ridge(), sparse(), classes(), classes(classes=0)], ids=["ridge", "sparse", "network", "regression"]
)
def test_svfl_with_one_step_is_gradient_descent(task: AlignedTask) -> None:
    options = {"lr": 0.05, "rounds": 5, "batch_size": 16}
    server = run(svfl, task, config(svfl, task, graph="star", **options))
    central = run(centralized_gd, task, config(centralized_gd, task, graph="star", **options))
    whole = central.engine.order[0].state.model
    if task.objective is not None:
        np.testing.assert_allclose(server.theta, whole.block.theta, rtol=0, atol=1e-12)
    else:
        np.testing.assert_allclose(server.theta, torch.cat([block.theta for block in whole.blocks]), rtol=0, atol=1e-12)
        last = server.observer.rows[-1], central.observer.rows[-1]
        assert last[0]["train_loss"] == pytest.approx(last[1]["train_loss"], abs=1e-12)
    twice = run(svfl, task, config(svfl, task, graph="star", local_steps=2, **options))
    assert not np.allclose(twice.theta, server.theta, atol=1e-6)
    assert not central.sent()


def test_fewer_tokens_than_clients_are_partial_participation_and_one_is_random_block_descent() -> None:
    task, eta = ridge(), 0.1
    x, y = task.features, task.labels
    for tokens in (1, 2, 3):
        cfg = config(
            mtcd, task, tokens=tokens, hops=0, local_steps=2, weights="cluster", graph="star", lr=eta, rounds=6
        )
        result, walks = run(mtcd, task, cfg), walks_of(task, cfg)
        theta = [np.zeros(block.shape[1]) for block in x]
        chosen = [walks.in_round(t).path[:, 0].tolist() for t in range(1, 7)]
        for clients in chosen:
            u = sum(block @ value for block, value in zip(x, theta, strict=True))
            new = list(theta)
            for k in clients:
                for _ in range(2):
                    new[k] = new[k] - eta * (x[k].T @ (u + x[k] @ (new[k] - theta[k]) - y) + new[k])
            theta = new
        np.testing.assert_allclose(result.theta, np.concatenate(theta), rtol=0, atol=1e-12)
        assert (
            all(len(set(clients)) == tokens for clients in chosen) and len({tuple(clients) for clients in chosen}) > 1
        )


def test_one_client_is_plain_gradient_descent() -> None:
    task = ridge(parties=1)
    for batch_size in (None, 10):
        options = {"lr": 0.1, "rounds": 4, "batch_size": batch_size}
        token = run(mtcd, task, config(mtcd, task, tokens=1, hops=2, local_steps=3, **options))
        plain = run(centralized_gd, task, config(centralized_gd, task, graph="star", local_steps=9, **options))
        assert np.array_equal(token.theta, plain.engine.order[0].state.model.block.theta)


def test_hops_that_can_only_stay_are_more_local_steps() -> None:
    task = ridge()
    options = {"tokens": task.parties, "weights": "cluster", "graph": "star", "rounds": 3, "lr": 0.05}
    still = run(mtcd, task, config(mtcd, task, hops=3, local_steps=2, **options))
    more = run(mtcd, task, config(mtcd, task, hops=0, local_steps=8, **options))
    assert np.array_equal(still.theta, more.theta) and still.sent() == more.sent()
    assert still.observer.extra["hops"] == {"walk": 3 * 6 * 3, "sent": 0, "from_server": 18}


# --- bytes, costs, times ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("uplink", ["changed", "all"])
@pytest.mark.parametrize(("parties", "tokens", "hops"), [(6, 1, 4), (6, 3, 2), (5, 2, 0)])
def test_messages_of_convex_problems_are_those_of_the_papers_table(
    parties: int, tokens: int, hops: int, uplink: str
) -> None:
    task = ridge(parties=parties)
    n = 8 * len(task.labels)  # float64
    cfg = config(mtcd, task, tokens=tokens, hops=hops, uplink=uplink, rounds=4)
    result, walks = run(mtcd, task, cfg), walks_of(task, cfg)
    sent = result.sent()
    for t in range(1, 5):
        changed = 0 if t == 1 else len(set(walks.in_round(t - 1).path.ravel().tolist()))  # theta = 0 at the start
        up = parties if uplink == "all" else changed
        assert sent.get((t, "representation"), (0, 0)) == (up, up * n)
        path = walks.in_round(t).path
        down_and_hops = tokens + int((path[:, 1:] != path[:, :-1]).sum())
        assert sent[t, "token"] == (down_and_hops, down_and_hops * n)
    hopped = sum(walks.in_round(t).sent for t in range(1, 5))
    assert result.observer.extra["hops"] == {"walk": 4 * tokens * hops, "sent": hopped, "from_server": 4 * tokens}
    assert result.observer.rows[-1]["iterations"] == 4 * max(hops, 1)


@pytest.mark.parametrize("aggregation", ["sum", "concat"])
@pytest.mark.parametrize(("parties", "tokens", "hops", "batch_size", "width"), [(4, 2, 3, 10, 3), (3, 1, 2, None, 5)])
def test_messages_of_networks_are_those_of_the_papers_table(
    parties: int, tokens: int, hops: int, batch_size: int | None, width: int, aggregation: str
) -> None:
    task = classes(parties=parties)
    options = {
        "batch_size": batch_size,
        "aggregation": aggregation,
        "rounds": 3,
        "model": {"embedding": width},
        "lr": 0.1,
    }
    cfg = config(mtcd, task, tokens=tokens, hops=hops, **options)
    result, walks = run(mtcd, task, cfg), walks_of(task, cfg)
    n = batch_size or task.public.samples
    columns = width * (parties if aggregation == "concat" else 1)
    fusion = columns * 3 + 3
    for t in (1, 2, 3):
        up = parties if batch_size or t == 1 else len(walks.in_round(t - 1).visits)
        assert result.sent()[t, "representation"] == (up, up * n * width * 8)
        count = tokens + walks.in_round(t).sent
        assert result.sent()[t, "token"] == (count, count * 8 * (n * columns + fusion))
    server = run(svfl, task, config(svfl, task, **options))
    assert server.sent()[2, "representation"] == (parties, parties * n * width * 8)
    assert server.sent()[2, "token"] == (parties, parties * 8 * (n * columns + fusion))


def test_messages_of_the_baselines() -> None:
    task = ridge()
    n = 8 * len(task.labels)
    for graph, edges in (("path", 5), ("complete", 15)):
        sent = run(dcpa, task, config(dcpa, task, iterations=3, graph=graph)).sent()
        assert sent == {(t, "dual"): (2 * edges * 3, 2 * edges * 3 * n) for t in (1, 2)}
    chosen = run(svfl, task, config(svfl, task)).sent()
    steps = token_methods.LANCZOS_STEPS
    assert chosen.pop((0, "smoothness")) == (6 * (2 * steps + 1), 6 * (2 * steps * n + 8))
    assert chosen == run(svfl, task, config(svfl, task, lr=0.1)).sent()


def test_cost_and_time_of_a_sync_are_those_of_the_papers_model() -> None:
    """Section 6: K = 12 clients on C path clusters, S = K / C - 1, a sweep visits each once. A server's link carries
    one message after the other: K tau_h + C tau_Z + S tau_cc + M tau_u against K tau_h + K tau_Z + M tau_u, M = Q (S +
    1); K c_h + C c_Z + C S c_cc.
    """
    task = ridge(parties=12)
    nbytes, gbps, between, unit = 8 * len(task.labels), 1e-3, 0.05, 1e-3
    tau = 8 * nbytes / (gbps * 1e9)  # s: one vector through the server
    network = NetworkConfig("model", server_bandwidth_gbps=gbps)
    network.client_client.latency_ms = 1e3 * between
    # an update of all samples: `unit`
    clock = ComputeClock("modelled", ComputeConfig(seconds_per_unit=unit / len(task.labels)))
    for clusters in (1, 2, 3, 4):
        hops = 12 // clusters - 1
        graph = topology_config("clusters", clusters=clusters, inside="path")
        options = {
            "tokens": clusters,
            "hops": hops,
            "local_steps": 5,
            "weights": "cluster",
            "walk": "sweep",
            "uplink": "all",
            "lr": 1e-3,
        }
        cfg = config(mtcd, task, graph=graph, network=network, rounds=1, **options)
        assert sorted(walks_of(task, cfg).in_round(1).path.ravel().tolist()) == list(range(12))
        result = run(mtcd, task, cfg, clock=clock)
        updates = 5 * (hops + 1)
        represent = unit  # computing one's representation costs as much as one update
        assert result.engine.boundary_clock == pytest.approx(
            represent + 12 * tau + clusters * tau + hops * between + updates * unit
        )
        assert (
            result.sent()[1, "representation"][0] == 12 and result.sent()[1, "token"][0] == clusters + clusters * hops
        )
        same_work = config(svfl, task, network=network, rounds=1, local_steps=updates, lr=1e-3)
        server = run(svfl, task, same_work, clock=clock)
        assert server.engine.boundary_clock == pytest.approx(represent + 12 * tau + 12 * tau + updates * unit)
        # MTCD is faster iff tau_cc < C tau_Z
        assert (result.engine.boundary_clock < server.engine.boundary_clock) == (between * hops < (12 - clusters) * tau)


# --- convergence ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", ["average", "cluster", "visitors"])
def test_mtcd_reaches_the_optimum_with_the_step_of_the_theory(weights: str) -> None:
    task = ridge()
    whole = largest_eigenvalue(np.concatenate(task.features, axis=1)) + 1
    updates = 2 * 4
    cfg = config(
        mtcd, task, tokens=2, hops=3, local_steps=2, weights=weights, lr=1 / (whole * updates), rounds=800, target=1e-6
    )
    result = run(mtcd, task, cfg)
    assert result.observer.status == "target_reached" and result.gaps[-1] <= 1e-6 < result.gaps[0]


@pytest.mark.parametrize(
    ("task", "gap"), [(ridge(), 1e-10), pytest.param(sparse(), 1e-7, marks=pytest.mark.slow)], ids=["ridge", "sparse"]
)
def test_every_method_reaches_the_optimum_at_its_own_step(task: AlignedTask, gap: float) -> None:
    for module, options in (
        (mtcd, {"tokens": 2, "hops": 3, "local_steps": 5, "rounds": 250}),
        (stcd, {"hops": 30, "local_steps": 5, "rounds": 60}),
        (svfl, {"rounds": 400}),
        (svfl, {"rounds": 400, "local_steps": 5}),
        (centralized_gd, {"rounds": 600}),
    ):
        graph = "star" if module is centralized_gd else "path"
        result = run(module, task, config(module, task, target=gap, graph=graph, **options))
        assert result.observer.status == "target_reached", (module.__name__, options, result.gaps[-1])


@pytest.mark.slow
def test_dcpa_reaches_the_optimum() -> None:
    for graph in ("path", "complete", "ring"):
        result = run(dcpa, ridge(), config(dcpa, ridge(), dual_lr=0.1, rounds=150, graph=graph, target=1e-8))
        assert result.observer.status == "target_reached", result.gaps[-1]
    result = run(dcpa, sparse(), config(dcpa, sparse(), dual_lr=1.0, rounds=150, target=1e-5))
    assert result.observer.status == "target_reached", result.gaps[-1]


def test_one_token_descends_with_every_sync() -> None:
    gaps = run(mtcd, ridge(), config(mtcd, ridge(), tokens=1, hops=3, local_steps=2, rounds=40)).gaps
    assert all(after <= before + 1e-14 for before, after in itertools.pairwise(gaps)) and gaps[-1] < gaps[0] / 100


def test_a_graph_in_pieces_stalls_one_token_and_not_several() -> None:
    task, graph = ridge(), topology_config("clusters", clusters=2)
    walker = run(stcd, task, config(stcd, task, graph=graph, hops=40, rounds=20, start=["client_4"]))
    parts = [party.state.model.theta for party in walker.engine.order]
    assert not any(part.any() for part in parts[:3]) and all(part.any() for part in parts[3:])
    assert walker.gaps[-1] == pytest.approx(walker.gaps[-5]) and walker.gaps[-1] > 1e-2
    for options in ({"start": ["client_1", "client_4"]}, {"weights": "cluster"}):
        several = run(
            mtcd, task, config(mtcd, task, graph=graph, tokens=2, hops=4, rounds=150, local_steps=3, lr=0.1, **options)
        )
        assert several.gaps[-1] < 1e-6


@pytest.mark.slow
def test_the_floor_of_mini_batches_falls_with_their_size() -> None:
    """Gradient noise leaves a gap of about sigma^2 / B; with all samples there is none."""
    task = ridge(samples=64)
    floors = []
    for batch_size in (4, 16, 64):
        cfg = config(mtcd, task, tokens=2, hops=2, local_steps=1, batch_size=batch_size, lr=0.02, rounds=900)
        floors.append(float(np.mean(run(mtcd, task, cfg).gaps[-300:])))
    assert floors[0] > 2 * floors[1] and floors[1] > 10 * floors[2]


def test_too_large_a_step_ends_as_diverged_early_and_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    task = ridge(parties=3)
    with caplog.at_level(logging.WARNING):
        wild = run(
            mtcd,
            task,
            config(mtcd, task, tokens=3, hops=0, local_steps=50, weights="cluster", graph="star", lr=1.0, rounds=500),
        )
    assert "may DIVERGE" in caplog.text and "1 / (L M)" in caplog.text
    assert wild.observer.status == "diverged" and wild.engine.finished_round < 50
    caplog.clear()
    whole = largest_eigenvalue(np.concatenate(task.features, axis=1)) + 1
    with caplog.at_level(logging.WARNING):
        mtcd.parties(
            task,
            config(mtcd, task, tokens=3, hops=0, local_steps=5, weights="cluster", graph="star", lr=1 / (5.01 * whole)),
        )
        mtcd.parties(task, config(mtcd, task, tokens=3, hops=0, local_steps=5, lr=10.0))  # averages: no such bound
        whole_batches = config(
            mtcd, task, tokens=3, hops=0, local_steps=5, weights="cluster", graph="star", batch_size=1
        )
        mtcd.parties(task, whole_batches)  # the default step for batches of 1 in 40 samples
    assert not caplog.text


@pytest.mark.parametrize("module", [stcd, dcpa])
def test_pieces_that_never_meet_are_warned_of(module: ModuleType, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        module.parties(ridge(), config(module, ridge(), graph="path"))
        assert not caplog.text
        module.parties(ridge(), config(module, ridge(), graph=topology_config("clusters", clusters=2)))
    assert "fall into 2 pieces" in caplog.text


def test_svfls_step_is_gradient_descents_best() -> None:
    """2 / (L + alpha), from an L that 8 products find to 1 %: nearly as few rounds as the best of a grid of steps."""
    task = ridge(200, 400, 10)
    whole = largest_eigenvalue(np.concatenate(task.features, axis=1)) + 1
    rounds = [
        len(run(svfl, task, config(svfl, task, lr=lr, rounds=400, target=1e-8, graph="star")).gaps)
        for lr in (None, *(factor / whole for factor in (0.5, 1.0, 1.3, 1.5, 1.7, 1.8, 1.9)))
    ]
    assert rounds[0] <= 1.25 * min(rounds[1:])


# --- pieces -----------------------------------------------------------------------------------------------------------


def test_the_conjugates_prox_is_where_its_derivative_vanishes() -> None:
    """y = prox_{c g*}(z) iff (z - y) / c = u is where g'(u) = y."""
    rng = np.random.default_rng(0)
    for task in (ridge(), sparse()):
        assert task.objective is not None
        loss = Loss(task.objective, task.labels)
        for c in (1e-4, 0.02, 1.0, 50.0):
            z = rng.normal(size=len(task.labels)) * rng.choice([1e-3, 1.0, 10.0], size=len(task.labels))
            y = loss.prox_conjugate(z, c)
            np.testing.assert_allclose(loss.gradient((z - y) / c), y, rtol=0, atol=1e-12 * (1 + np.abs(z).max() / c))


def test_lanczos_finds_the_largest_eigenvalue_from_products_alone() -> None:
    for seed in range(5):
        x = np.concatenate(ridge(200, 300, seed=seed).features, axis=1)
        gram = step_sizes.Lanczos(200, np.random.default_rng(seed))
        for _ in range(token_methods.LANCZOS_STEPS):
            gram.take(x @ (x.T @ gram.vector))
        assert 0.99 <= gram.bound() / largest_eigenvalue(x) <= 1.1
    assert largest_eigenvalue(np.diag([3.0, 1.0])) == pytest.approx(9)
    wide = np.random.default_rng(0).normal(size=(450, 500))
    assert largest_eigenvalue(wide) == pytest.approx(np.linalg.norm(wide, 2) ** 2, rel=1e-6)


def test_a_walk_stays_or_goes_to_a_neighbour_uniformly_and_repeats_itself() -> None:
    graph = topology.build(topology_config("path"), [SERVER], ["a", "b", "c"], 0)
    path = Walks(graph, 0, tokens=2, hops=30_000).in_round(1).path
    for client, near in ((0, [0, 1]), (1, [0, 1, 2]), (2, [1, 2])):
        following = path[:, 1:][path[:, :-1] == client]
        share = [float(np.mean(following == other)) for other in near]
        assert sum(share) == 1 and np.allclose(share, 1 / len(near), atol=0.02)
    starts = [Walks(graph, seed, tokens=1, hops=0).in_round(t).path[0, 0] for seed in range(20) for t in range(1, 51)]
    assert np.allclose(np.bincount(starts) / 1000, 1 / 3, atol=0.05)
    again, other = Walks(graph, 0, 2, 30), Walks(graph, 1, 2, 30)
    assert np.array_equal(again.in_round(1).path, Walks(graph, 0, 2, 30).in_round(1).path) and again.in_round(
        1
    ) is again.in_round(1)
    assert not np.array_equal(again.in_round(1).path, again.in_round(2).path) and not np.array_equal(
        again.in_round(1).path, other.in_round(1).path
    )
    assert again.in_round(3, [2, 0]).path[:, 0].tolist() == [2, 0]


def test_grounds_are_components_or_runs_and_tokens_stay_on_theirs() -> None:
    names = [f"client_{i}" for i in range(6)]
    pieces = topology.build(topology_config("clusters", clusters=3), [SERVER], names, 0)
    assert [members.tolist() for members in grounds(pieces, 3)] == [[0, 1], [2, 3], [4, 5]]
    path = topology.build(topology_config("path"), [SERVER], names, 0)
    assert [members.tolist() for members in grounds(path, 2)] == [[0, 1, 2], [3, 4, 5]]
    walked = Walks(path, 0, 2, 200, apart=True).in_round(1).path
    assert set(walked[0]) == {0, 1, 2} and set(walked[1]) == {3, 4, 5}
    assert Walks(path, 0, 2, 5, "sweep", apart=True).in_round(1).path.tolist() == [
        [0, 1, 2, 1, 0, 1],
        [3, 4, 5, 4, 3, 4],
    ]


# --- bad input --------------------------------------------------------------------------------------------------------


def test_what_is_wrong_is_told_together_and_by_name(tmp_path: Path) -> None:
    edges = tmp_path / "edges.txt"
    edges.write_text(
        "".join(f"server client_{i}\n" for i in range(6))
        + "client_0 client_1\nclient_2 client_3\nclient_4 client_5\nclient_0 client_2\n"
    )
    task = ridge()
    cfg = config(
        mtcd,
        task,
        graph=topology_config("edge_list", edges=str(edges)),
        tokens=3,
        weights="cluster",
        start=["client_0", "client_5", "client_4"],
    )
    told = [str(problem) for problem in graph_checks.mtcd(cfg)]
    assert told == [  # components are 0-1-2-3 and 4-5: not three; the runs are 0-1, 2-3, 4-5
        "algorithm.start=client_5: lies outside of its token's cluster 1 (client_2 to client_3)."
    ]
    two = replace(cfg, algorithm=replace(cfg.algorithm, tokens=2, start=["client_5", "nobody"]))
    assert [problem.key for problem in graph_checks.mtcd(two)] == ["algorithm.start", "algorithm.start"]
    wrong = config(mtcd, task, graph="path", tokens=2, walk="sweep", start=["client_9"])
    keys = ["algorithm.start", "algorithm.start", "algorithm.walk", "algorithm.start"]
    assert [problem.key for problem in graph_checks.mtcd(wrong)] == keys
    with pytest.raises(ConfigError, match=r"algorithm.start=client_9.*\n.*algorithm.start=client_9"):
        mtcd.parties(task, wrong)

    edges.write_text("client_0 client_1\nclient_1 client_17\n")
    lost = config(mtcd, task, graph=topology_config("edge_list", edges=str(edges)), walk="sweep", tokens=2)
    told = [str(problem) for problem in graph_checks.mtcd(lost)]
    assert len(told) == 2 and "client_17: no such party" in told[0] and "algorithm.walk=sweep" in told[1]
    edges.write_text("client_0 client_1\nserver client_0\n")
    assert "none to client_1, client_2" in str(graph_checks.mtcd(lost)[-1]) and "none to client_1" in str(
        graph_checks.svfl(config(svfl, task, graph=lost.topology))[-1]
    )
    for module, bad in (
        (mtcd, {"tokens": 0, "hops": -1, "halve_every": 0.0}),
        (stcd, {"hops": 0}),
        (dcpa, {"dual_lr": 0.0, "iterations": 0}),
    ):
        assert {problem.key for problem in convert(card_of(module).Config, bad)[1]} == bad.keys()


def test_a_disconnected_cluster_is_named() -> None:
    graph = topology.build(topology_config("clusters", clusters=3), [SERVER], [f"client_{i}" for i in range(6)], 0)
    told = [str(problem) for problem in check(graph, 2, 3, apart=True)]
    assert told == [
        "algorithm.tokens=2: cluster 0 (client_0 to client_2) is not connected: there is no way from client_0 to "
        "client_2 within it.",
        "algorithm.tokens=2: cluster 1 (client_3 to client_5) is not connected: there is no way from client_3 to "
        "client_4 within it.",
    ]
    assert check(graph, 2, 0, apart=True) == []  # tokens that never leave need no way
    assert [p.key for p in check(graph, 9, 1, apart=True)] == ["algorithm.tokens"]
    assert [p.key for p in check(graph, 1, 3, "sweep")] == ["algorithm.walk"]


def test_what_a_method_cannot_take_is_refused() -> None:
    for module in (stcd, dcpa):
        with pytest.raises(ConfigError, match="needs a convex objective"):
            module.parties(classes(), config(module, classes()))
    with pytest.raises(ConfigError, match="toy has 6 parties"):
        mtcd.parties(ridge(), config(mtcd, ridge(), parties=5))
    with pytest.raises(ConfigError, match="use sum"):
        svfl.parties(ridge(), config(svfl, ridge(), aggregation="concat"))
    with pytest.raises(ConfigError, match="toy is a convex problem"):
        svfl.parties(ridge(), replace(config(svfl, ridge()), model=ModelConfig("split_mlp")))


def test_the_observer_scores_the_objective(tmp_path: Path) -> None:
    task = ridge()
    result: Result = run(mtcd, task, config(mtcd, task, rounds=2))
    x = np.concatenate(task.features, axis=1)
    f = float(np.sum((x @ result.theta - task.labels) ** 2) / 2 + np.sum(result.theta**2) / 2)
    row = result.observer.rows[-1]
    assert row["train_loss"] == pytest.approx(f, rel=1e-12)
    assert row["train_suboptimality"] == pytest.approx((f - task.optimum) / task.optimum, rel=1e-9)  # type: ignore[operator]
