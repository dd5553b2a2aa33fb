"""Tokens with privacy=gaussian_embedding: noise that replaces, what is counted, and nothing changed without noise."""

from __future__ import annotations

import logging
import subprocess
import sys
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import vflbench
from tests.algorithms.small_columns import Result, classes, config, ridge, run, sparse
from tests.every import few_fast
from tests.options import make_mechanism, privacy_config
from vflbench.algorithms.tokens import block_descent, dcpa, mtcd, published, stcd, svfl
from vflbench.algorithms.tokens.walks import Walks
from vflbench.data.tasks import AlignedTask
from vflbench.federation import topology
from vflbench.federation.ledger import COLUMN
from vflbench.federation.party import SERVER, party_names
from vflbench.models.vertical import Aggregation
from vflbench.types import ConfigError, RunConfig

CASES: list[tuple[ModuleType, AlignedTask, dict[str, Any]]] = [
    (mtcd, ridge(), {}),
    (mtcd, sparse(), {"uplink": "all", "weights": "visitors", "graph": "complete"}),
    (mtcd, ridge(), {"batch_size": 7, "lr": 0.05}),
    (mtcd, ridge(), {"walk": "sweep", "weights": "cluster", "tokens": 2}),
    (mtcd, classes(), {"local_steps": 2}),
    (mtcd, classes(), {"aggregation": "concat", "batch_size": 9, "graph": "complete", "local_steps": 2}),
    (stcd, ridge(), {"hops": 17}),
    (stcd, sparse(), {"hops": 17, "graph": "complete"}),
    (svfl, ridge(), {"lr": 0.05}),
    (svfl, sparse(), {"lr": 0.05, "batch_size": 9, "local_steps": 3}),
    (svfl, classes(), {"batch_size": 9}),
    (svfl, classes(), {"aggregation": "concat", "local_steps": 3}),
    (dcpa, ridge(), {}),
    (dcpa, sparse(), {"iterations": 3}),
]
NAMES = [f"{m.__name__.rpartition('.')[2]}-{'-'.join(map(str, options.values())) or 'own'}" for m, _, options in CASES]
FAST = (0, 4, 6, 9, 12)  # one of each algorithm, and of networks and convex problems
FEW = [
    pytest.param(*case, id=name, marks=[] if i in FAST else [pytest.mark.slow])
    for i, (case, name) in enumerate(zip(CASES, NAMES, strict=True))
]
KEYS: dict[str, Any] = {"delta": 1e-5}


def private(module: ModuleType, task: AlignedTask, cfg: RunConfig, **keys: Any) -> Result:
    """A run with a mechanism for each client."""
    settings = privacy_config("gaussian_embedding", **KEYS | keys)
    cfg = replace(cfg, privacy=settings)
    bound = module.max_releases(cfg, cfg.rounds)
    made = {name: make_mechanism(settings, bound) for name in party_names("client", task.parties)}
    return run(module, task, cfg, privacy=made)


def guards(result: Result) -> dict[str, Any]:
    return {party.name: party.privacy for party in result.engine.order if party.name != SERVER}


@pytest.mark.parametrize(("module", "task", "options"), few_fast(FEW, 2))
def test_a_wide_clip_without_noise_is_no_privacy_to_the_last_bit(
    module: ModuleType, task: AlignedTask, options: dict[str, Any]
) -> None:
    cfg = config(module, task, rounds=5, **options)
    plain, wide = run(module, task, cfg), private(module, task, cfg, noise_multiplier=0.0, clip=1e9)
    assert wide.theta.tobytes() == plain.theta.tobytes()
    if task.objective is None:
        assert wide.fusion.tobytes() == plain.fusion.tobytes()
    metric = "train_suboptimality" if task.objective else "test_accuracy"
    assert [row[metric] for row in wide.observer.rows] == [row[metric] for row in plain.observer.rows]
    assert np.array_equal(wide.ledger, plain.ledger)  # bytes and times as well
    noisy = private(module, task, cfg, noise_multiplier=0.1, clip=1e9)
    assert noisy.theta.tobytes() != plain.theta.tobytes()


def transcript(result: Result, cfg: RunConfig) -> dict[str, np.ndarray]:
    """By client how often each of its rows was sent, (N,): from the ledger of what crossed between parties."""
    names, tags = [party.name for party in result.engine.order], list(result.engine.tags)
    samples = len(result.task.labels)
    counts = {name: np.zeros(samples, np.int64) for name in names if name != SERVER}
    fans = set()
    for row in result.ledger:
        source, tag = names[int(row[COLUMN["src"]])], tags[int(row[COLUMN["tag"]])]
        t = int(row[COLUMN["round"]])
        if source == SERVER or tag not in ("representation", "token", "dual"):
            continue
        if tag == "dual":  # one vector goes to all neighbours
            once = source, t, row[COLUMN["sent"]], len([f for f in fans if f[:2] == (source, t)])
            fans.add(once)
            continue
        rows = block_descent.batch(cfg.seed, t, samples, getattr(cfg.algorithm, "batch_size", None))
        counts[source][slice(None) if rows is None else rows] += 1
    for source in counts:
        sent = sum(one[0] == source for one in fans)
        counts[source] += sent // max(len(result.engine.parties[source].neighbours), 1)
    return counts


@pytest.mark.parametrize(("module", "task", "options"), few_fast(FEW, 2))
def test_the_rows_of_the_transcript_are_those_that_are_counted_and_planned(
    module: ModuleType, task: AlignedTask, options: dict[str, Any]
) -> None:
    """A forgotten release would be a row that was sent and not counted; one too many, noise for nothing."""
    cfg = config(module, task, rounds=4, **options)
    result = private(module, task, cfg, epsilon=8.0, clip=1e3)
    plain = run(module, task, cfg)
    sent = transcript(plain, cfg)  # too much noise may end the other run early
    quiet = private(module, task, cfg, noise_multiplier=0.0, clip=1e9)
    for name, guard in guards(quiet).items():
        counted = np.zeros(len(task.labels), np.int64)
        counted[: len(guard.counts)] = guard.counts
        assert np.array_equal(counted, sent[name]), name
        planned = guards(result)[name].planned
        assert planned == sent[name].max() or sent[name].max() == 0
        assert planned <= module.max_releases(cfg, 4)


@pytest.mark.parametrize(("module", "task", "options"), [CASES[0], CASES[6], CASES[9], CASES[12]])
def test_what_was_asked_is_spent(module: ModuleType, task: AlignedTask, options: dict[str, Any]) -> None:
    """By every client, each with noise for its own number of releases."""
    cfg = replace(config(module, task, rounds=3, **options), target=None)
    result = private(module, task, cfg, epsilon=8.0, clip=1e-6)  # so small that nothing diverges
    for guard in guards(result).values():
        assert guard.spent()["epsilon"] == pytest.approx(8, rel=1e-6) or guard.releases == 0
    noises = {guard.noise_multiplier for guard in guards(result).values()}
    assert (len(noises) > 1) == (module in (mtcd, stcd))


@pytest.mark.slow
def test_two_hundred_rounds_at_epsilon_eight_need_seventeen_times_the_clip(caplog: pytest.LogCaptureFixture) -> None:
    task = ridge(samples=12, features=6, parties=3)
    with caplog.at_level(logging.WARNING):
        result = private(svfl, task, config(svfl, task, rounds=200, lr=1e-9), epsilon=8.0)
    assert [guard.noise_multiplier for guard in guards(result).values()] == pytest.approx([16.98] * 3, rel=1e-3)
    (said,) = [text for text in (record.getMessage() for record in caplog.records) if "published" in text]
    assert said.startswith(
        "A row is published up to 200 times, so each of its numbers (1) gets noise of 17 times privacy.clip at most. "
        "That noise is 17 times as long as the longest row."
    )


@pytest.mark.slow
def test_the_noise_in_a_token_is_replaced_and_not_added() -> None:
    """After 10,000 hops over K clients, token - sum_k h_k has the variance K s^2 of K parts."""
    task = ridge(samples=3000, features=10, parties=5)
    cfg = config(stcd, task, rounds=100, graph="complete", hops=100, local_steps=1, lr=0.1, seed=1)
    result = private(stcd, task, cfg, noise_multiplier=2.0, clip=0.5)  # s = 1
    states = [party.state for party in result.engine.order]
    (token,) = [state.token for state in states if state.token is not None]
    assert all(state.noise is not None for state in states)  # it came from another client
    clean = sum(state.model.represent() for state in states)
    assert sum(guard.releases for guard in guards(result).values()) > 7000  # 4 of 5 hops go to another client
    clipped = sum(np.clip(state.model.represent(), -0.5, 0.5) for state in states)
    assert np.var(token - clipped) == pytest.approx(5, rel=0.05)
    assert np.var(token - clean) == pytest.approx(5, rel=0.05)
    assert token - sum(state.model.represent() + noise_of(state) for state in states) == pytest.approx(0, abs=1e-9)


def noise_of(state: Any) -> Any:
    return 0 if state.noise is None else state.noise


def test_every_token_is_the_sum_of_what_clients_published_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a token comes back, and where several roam: noise of another token would stay in the sum."""
    task = ridge()
    cfg = config(mtcd, task, rounds=3, graph="complete", hops=9, tokens=2, local_steps=1)
    shown: dict[str, list[np.ndarray]] = {name: [] for name in party_names("client", task.parties)}
    tokens: dict[str, list[np.ndarray]] = {name: [] for name in shown}
    publish, renewed = published.publish, published.renewed

    def publishing(me: Any, h: np.ndarray, rows: np.ndarray | None) -> tuple[Any, Any]:
        made = publish(me, h, rows)
        shown[me.name].append(made[0])
        return made

    async def renewing(me: Any, *known: Any) -> tuple[Any, Any]:
        made = await renewed(me, *known)
        tokens[me.name].append(made[0])
        return made

    monkeypatch.setattr(published, "publish", publishing)
    monkeypatch.setattr(mtcd, "publish", publishing)
    monkeypatch.setattr(mtcd, "renewed", renewing)
    private(mtcd, task, cfg, noise_multiplier=3.0, clip=0.2)

    names = list(shown)
    graph = topology.build(cfg.topology, [SERVER], names, cfg.seed)
    keys = cfg.algorithm
    walks = Walks(graph, cfg.seed, keys.tokens, keys.hops)
    published_by, sent_by = ({name: iter(one) for name, one in each.items()} for each in (shown, tokens))
    at_server, hops, back = [np.zeros(len(task.labels))] * len(names), 0, 0
    for t in (1, 2, 3):
        for k in sorted(mtcd.senders(keys, task.public, walks, t)):
            at_server[k] = next(published_by[names[k]])
        parts, path = [[*at_server] for _ in range(keys.tokens)], walks.in_round(t).path
        for s in range(keys.hops):
            for gamma, own in enumerate(parts):
                if (k := path[gamma, s]) != path[gamma, s + 1]:
                    back += k in path[gamma, :s]
                    own[k] = next(published_by[names[k]])
                    np.testing.assert_allclose(next(sent_by[names[k]]), sum(own), atol=1e-9)
                    hops += 1
    assert hops > 30 and back > 10
    assert all(next(one, None) is None for one in (*published_by.values(), *sent_by.values()))


@pytest.mark.parametrize("seed", range(3))
def test_the_only_token_is_the_sum_of_what_clients_published_last(seed: int) -> None:
    task = ridge()
    result = private(stcd, task, config(stcd, task, rounds=3, hops=17, seed=seed), noise_multiplier=2.0, clip=0.5)
    states = [party.state for party in result.engine.order]
    (token,) = [state.token for state in states if state.token is not None]
    assert token == pytest.approx(sum(state.model.represent() + noise_of(state) for state in states), abs=1e-9)
    assert sum(state.noise is not None for state in states) >= 3


def test_the_own_part_is_clean_in_own_steps() -> None:
    """One client alone has no noise in its steps, whatever it publishes; with a clip of 1e-3 its row is no other."""
    task = ridge(parties=1)
    cfg = config(svfl, task, rounds=4, lr=0.05)
    plain, noisy = run(svfl, task, cfg), private(svfl, task, cfg, noise_multiplier=5.0, clip=1e-3)
    assert noisy.theta == pytest.approx(plain.theta, abs=1e-12)


@pytest.mark.parametrize("module", [mtcd, svfl])
def test_evaluations_carry_the_clip_and_no_noise_and_are_not_counted(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored: list[list[torch.Tensor]] = []
    predict = block_descent.SplitServer.predict

    def watched(self: Any, representations: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        scored.append([h for one in representations for h in one.values()])
        return predict(self, representations)

    monkeypatch.setattr(block_descent.SplitServer, "predict", watched)
    task = classes()
    result = private(module, task, config(module, task, rounds=2), noise_multiplier=3.0, clip=0.25)
    norms, noisy = (torch.cat([h.norm(dim=1) for one in scored[way::2] for h in one]) for way in (0, 1))
    assert float(noisy.median()) > 0.25  # what privacy.serving does not say is scored beside it
    assert float(norms.max()) <= 0.25 * (1 + 1e-9) and float((norms > 0.2499).double().mean()) > 0.3
    assert "evaluation exchanges" in guards(result)["client_0"].spent()["not_covered"]
    whole = [block.held_out_representations() for block in blocks(result)]
    assert max(float(h.norm(dim=1).max()) for one in whole for h in one.values()) > 0.25


def blocks(result: Result) -> list[Any]:
    return [party.state.model for party in result.engine.order if party.name != SERVER]


def test_parts_of_an_aggregate_are_changed_in_their_place() -> None:
    a, change = torch.arange(12.0).reshape(2, 6), torch.full((2, 2), 0.5)
    assert torch.equal(Aggregation("sum", 3).added(a[:, :2], change, 1), a[:, :2] + 0.5)
    added = Aggregation("concat", 3).added(a, change, 1)
    assert torch.equal(added[:, 2:4], a[:, 2:4] + 0.5) and torch.equal(added[:, [0, 1, 4, 5]], a[:, [0, 1, 4, 5]])


def test_a_representation_at_other_parameters_leaves_the_own_ones() -> None:
    task = classes()
    block = blocks(run(svfl, task, config(svfl, task)))[0]
    theta, h = block.theta, block.represent().detach()
    other = block.represent(None, theta + 1)
    assert not torch.equal(other, h) and torch.equal(block.theta, theta) and torch.equal(block.represent(), h)
    assert torch.equal(block.represent(None, theta), h)


@pytest.mark.slow
def test_a_dry_run_says_how_much_noise_there_will_be() -> None:
    """In a process of its own: there the accountant is imported while torch's compiler is kept out."""
    data = ["dataset=ridge", "dataset.samples=40", "dataset.features=24", "algorithm.parties=4"]
    words = ["algorithm=dcpa", *data, "privacy=gaussian_embedding", "privacy.delta=1e-5", "dry_run=true"]
    done = subprocess.run([sys.executable, "-m", "vflbench", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "A row is published up to 3000 times" in done.stderr and "noise of 65.8 times privacy.clip" in done.stderr


def test_a_step_from_products_is_refused_before_and_after_data_are_read() -> None:
    words = ["algorithm=svfl", "dataset=ridge", "dataset.samples=40", "dataset.features=24", "algorithm.parties=4"]
    told = (
        "algorithm.lr=null: needs a number with privacy: without one clients send 8 products X_k X_k^T v, which no "
        "clip of a row bounds."
    )
    noise = ["privacy=gaussian_embedding", "privacy.noise_multiplier=1"]
    with pytest.raises(ConfigError) as refused:
        vflbench.run([*words, *noise])
    assert str(refused.value) == told
    task = ridge()
    with pytest.raises(ConfigError, match=r"algorithm\.lr=null: needs a number with privacy"):
        private(svfl, task, config(svfl, task), noise_multiplier=1.0)
    private(svfl, classes(), config(svfl, classes()), noise_multiplier=1.0)  # networks ask for no products
