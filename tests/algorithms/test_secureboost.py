"""SecureBoost: against a slow grower, lossless over any division, unchanged by what saves bytes, and its bytes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.algorithms.small_columns import Result, classes, config, ridge
from tests.options import option
from vflbench.algorithms.oneshot import send_once
from vflbench.algorithms.split import secureboost
from vflbench.algorithms.split.boosting import LEAF, Labels, Trees, sampled
from vflbench.cards.algorithms.split import secureboost as secureboost_card
from vflbench.cards.federation.protections import paillier as paillier_card
from vflbench.data.tasks import AlignedTask
from vflbench.federation import topology
from vflbench.federation.ledger import COLUMN
from vflbench.federation.protections import paillier
from vflbench.federation.simulated import SimulatedEngine
from vflbench.models.bins import Bins
from vflbench.runner.evaluate import Observer
from vflbench.types import ConfigError

UNIT = 2**20


def trained(
    task: AlignedTask, protection: Any = None, rounds: int = 4, module: ModuleType = secureboost, **keys: Any
) -> Result:
    made = config(module, task, rounds, "star", **{"depth": 3, "bins": 8, "min_child_weight": 0.5} | keys)
    cfg = replace(made, protection=protection or option("protection", "none"))
    specs, observer = module.parties(task, cfg), Observer(task, cfg)
    graph = topology.build(cfg.topology, ["active"], [name for name in specs if name != "active"], cfg.seed)
    engine = SimulatedEngine(
        specs, task.public, cfg, rounds=rounds, seed=0, connected=graph.connected, neighbours=graph.neighbours,
        on_report=observer.on_report, on_round=observer.on_round,
    )  # fmt: skip
    engine.run()
    return Result(task, engine, observer)


def scores(result: Result) -> np.ndarray:
    """Of the training rows, (n, outputs)."""
    found: np.ndarray = result.engine.parties["active"].state.scores
    return found


def sent(result: Result) -> Counter[str]:
    """Bytes of the rounds by tag, without evaluations."""
    names, found = list(result.engine.tags), Counter[str]()
    for row in result.ledger:
        found[names[int(row[COLUMN["tag"]])]] += int(row[COLUMN["bytes"]])
    return found


# --- the trees --------------------------------------------------------------------------------------------------------


def grown(x: np.ndarray, g: np.ndarray, h: np.ndarray, levels: int) -> np.ndarray:
    """Values of a tree's leaves at the rows of x, by trying every split of every node; sums of whole numbers."""

    def score(rows: np.ndarray) -> float:
        return float((g[rows].sum() / UNIT) ** 2 / (h[rows].sum() / UNIT + 1))

    rows = np.arange(len(x))
    value = np.full(len(x), -0.3 * (g.sum() / UNIT) / (h.sum() / UNIT + 1))
    if not levels:
        return value
    most, chosen = 0.0, None
    for column, edges in enumerate(Bins.fit(WHOLE, 8).edges):
        for edge in edges:
            left = x[:, column] <= edge
            if min(h[left].sum(), h[~left].sum()) < UNIT / 2:
                continue
            gain = score(rows[left]) + score(rows[~left]) - score(rows)
            if gain > most:
                most, chosen = gain, left
    if chosen is None:
        return value
    for part in (chosen, ~chosen):
        value[part] = grown(x[part], g[part], h[part], levels - 1)
    return value


WHOLE = np.concatenate(classes(parties=4).features, axis=1)  # edges are those of all rows


@pytest.mark.parametrize("kinds", [0, 2, 3])
def test_it_grows_what_trying_every_split_grows(kinds: int) -> None:
    task = classes(classes=kinds)
    x, y, outputs = np.concatenate(task.features, axis=1), task.labels, kinds if kinds > 2 else 1
    np.testing.assert_array_equal(x, WHOLE)
    current = np.zeros((len(y), outputs))
    for _ in range(4):
        for output in range(outputs):
            if kinds == 0:
                g, h = current[:, 0] - (y - y.mean()) / y.std(), np.ones(len(y))
            else:
                logits = np.concatenate([0 * current, current], axis=1) if kinds == 2 else current
                p = (np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True))[:, output + (kinds == 2)]
                g, h = p - (y == output + (kinds == 2)), p * (1 - p)
            whole = (np.rint(of * UNIT).astype(np.int64) for of in (g, h))
            current[:, output] += grown(x, *whole, 3)
    np.testing.assert_allclose(scores(trained(task)), current, rtol=0, atol=1e-9)


def test_a_derivative_that_is_too_large_is_cut() -> None:
    labels = Labels(np.array([-1.0, 1.0]), 0)  # standardised already
    found = labels.gradient(np.array([[1e6], [1.5]]), 0)
    assert found.tolist() == [[2**31 - 1, UNIT], [UNIT // 2, UNIT]]


@pytest.mark.parametrize("kinds", [0, 2, 3])
def test_any_division_grows_the_trees_of_one_party_with_all_columns(kinds: int) -> None:
    alone, *others = (trained(classes(classes=kinds, parties=parties)) for parties in (1, 2, 4))
    assert not len(alone.ledger)
    for other in others:
        assert np.array_equal(scores(other), scores(alone))
        for name in ("train_loss", "test_rmse" if kinds == 0 else "test_accuracy"):
            assert [row[name] for row in other.observer.rows] == [row[name] for row in alone.observer.rows]


@pytest.mark.parametrize("parties", [2, 4])
def test_where_nothing_limits_growth_it_is_boosting_on_bins_that_were_sent_once(parties: int) -> None:
    """Leaf by leaf or level by level, all nodes are split that have 40 rows. To rounding: scikit-learn's gradients are
    float32, and ours multiples of 2^-20."""
    task = classes(samples=200, parties=parties, classes=0)
    own = {split: np.clip(np.rint(x[0]), -2, 2) for split, x in task.held_out_features.items()}  # it has all values
    task = replace(
        task, features=(np.clip(np.rint(task.features[0]), -2, 2), *task.features[1:]),
        held_out_features={split: (own[split], *x[1:]) for split, x in task.held_out_features.items()},
    )  # fmt: skip
    keys: dict[str, Any] = {"bins": 16, "learning_rate": 0.3}
    ours = trained(task, rounds=6, depth=12, l2=0.0, min_child_weight=20.0, **keys)
    theirs = trained(task, None, 6, send_once, fallback=False, **keys)
    leaves = (Trees(**ours.engine.parties["active"].state.trees).value != 0).sum(axis=1)
    assert leaves.min() >= 4 and leaves.max() <= 31
    losses, val, test = (
        [[row[name] for row in one.observer.rows] for one in (ours, theirs)]
        for name in ("train_loss", "val_rmse", "test_rmse")
    )
    assert np.multiply(losses[0], task.labels.var()) == pytest.approx(losses[1], rel=1e-6)
    best = [int(np.argmin(val[0][:t])) for t in range(1, 7)]  # as the one who has all bins at home predicts
    assert [val[0][i] for i in best] == pytest.approx(val[1], rel=1e-6)
    assert [test[0][i] for i in best] == pytest.approx(test[1], rel=1e-6)


SAVING = [
    {},
    {"subtraction": False},
    {"compression": False},
    {"packing": False},
    {"packing": False, "subtraction": False, "compression": False},
]


@pytest.mark.parametrize("keys", SAVING, ids=str)
def test_nothing_that_saves_bytes_changes_a_tree(keys: dict[str, Any]) -> None:
    task = classes(classes=2)
    clear = trained(task)
    for protection in (None, paillier_card.Config(key_bits=1024)):
        assert np.array_equal(scores(trained(task, protection, **keys)), scores(clear))


def test_the_first_tree_may_be_the_active_partys_own() -> None:
    task = classes(classes=2)
    own = trained(task, rounds=1, first_tree="active")
    assert set(sent(own)) == {"bins"}
    alone = replace(
        task, features=task.features[:1], held_out_features={s: x[:1] for s, x in task.held_out_features.items()}
    )
    assert np.array_equal(scores(own), scores(trained(alone, rounds=1)))
    both = trained(task, rounds=2, first_tree="active")
    assert not np.array_equal(scores(both), scores(trained(task, rounds=2)))


def test_rows_sampled_by_gradient() -> None:
    g = np.array([5, -9, 1, 2, 0, 7, -3, 4, 8, -6])
    gradient = np.stack([g, np.full(10, 10)], axis=1)
    drawn = np.zeros(10)
    for seed in range(200):
        kept, weighted = sampled(gradient, 0.3, 0.2, np.random.default_rng(seed))
        assert kept[[1, 5, 8]].all() and kept.sum() == 5  # the three largest, and two others
        others = kept & ~np.isin(np.arange(10), [1, 5, 8])
        drawn += others
        assert np.array_equal(weighted[[1, 5, 8]], gradient[[1, 5, 8]])
        assert np.array_equal(weighted[others], np.rint(gradient[others] * ((1 - 0.3) / 0.2)))
        assert not weighted[~kept].any()
    assert abs(drawn[~np.isin(np.arange(10), [1, 5, 8])] / 200 - 2 / 7).max() < 0.1
    huge, most = np.array([[2**31 - 1, 1], [2**30, 1]]), 2**31 - 1
    assert sampled(huge, 0.5, 0.1, np.random.default_rng(0))[1].tolist() == [[most, 1], [0, 0]]
    assert sampled(huge, 0.0, 1.0, np.random.default_rng(0))[1].tolist() == huge.tolist()


def test_goss_of_all_rows_is_no_goss_and_of_some_any_division_grows_the_same() -> None:
    for kinds in (0, 2, 3):
        task = classes(classes=kinds)
        every = trained(task, goss=True, top_rate=1.0, other_rate=0.0)
        assert np.array_equal(scores(every), scores(trained(task)))
        some = [trained(classes(classes=kinds, parties=parties), goss=True) for parties in (1, 2, 4)]
        some.append(trained(task, paillier_card.Config(key_bits=1024), goss=True))
        assert all(np.array_equal(scores(one), scores(some[0])) for one in some)
        assert not np.array_equal(scores(some[0]), scores(every))


def test_shares_that_goss_cannot_take_are_refused() -> None:
    task = classes(classes=2)
    for top, other, wrong in ((0.2, 0.9, True), (0.2, 0.0, True), (1.0, 0.0, False), (0.2, 0.8, False)):
        made = config(secureboost, task, graph="star", goss=True, top_rate=top, other_rate=other)
        assert [problem.key for problem in secureboost_card.check(made)] == ["algorithm.other_rate"] * wrong
    with pytest.raises(ConfigError, match=r"algorithm\.other_rate=0\.001: of 40 training rows that is none: more"):
        secureboost.parties(task, config(secureboost, task, graph="star", goss=True, other_rate=0.001))


# --- bytes ------------------------------------------------------------------------------------------------------------


def expected(result: Result, cfg: Any, each: int, slots: int | None, size: int) -> Counter[str]:
    """Bytes by tag of the trees that were grown.

    Parameters
    ----------
    each : messages' numbers for a row or bin: 2, or 1 where both are in one ciphertext.
    slots : of a ciphertext, which is `size` bytes long; None: in clear.
    """
    parts = [result.task.part(k) for k in range(result.task.parties)]
    columns = [secureboost.Columns(part, cfg.bins) for part in parts]
    splits = [result.engine.parties[name].state.splits for name in ("active", "passive_1")]
    left = [own.below(own.places, places) for own, places in zip(columns, splits, strict=True)]
    trees, n, d = Trees(**result.engine.parties["active"].state.trees), len(left[0][0]), columns[1].total
    found = Counter({"bins": 8})
    for owner, split in zip(trees.owner, trees.split, strict=True):
        kept = round(cfg.top_rate * n) + round(cfg.other_rate * n) if cfg.goss else n
        found["gradient"] += 8 * kept if slots is None else each * size * kept
        found["rows"] += -(-n // 8) if cfg.goss else 0
        position, live = np.zeros(n, np.int64), np.array([0])
        for level in range(cfg.depth):
            asked = 1 if len(live) == 1 else len(live) // 2 if cfg.subtraction else len(live)
            found["histogram"] += 16 * asked * d if slots is None else size * -(-each * asked * d // slots)
            inner = live[owner[live] != LEAF]
            inside = np.flatnonzero(np.isin(position, inner))
            won = inner[owner[inner] == 1]
            found["split"] += 16 * len(won) or 1  # no message is free
            found["side"] += sum(-(-(position == node).sum() // 8) for node in won)
            if level + 1 < cfg.depth:
                found["nodes"] += -(-len(live) // 8) + -(-len(inside) // 8)
            if not len(inner):
                break
            at = position[inside]
            goes = np.where(owner[at] == 0, *(own[np.minimum(split[at], len(own) - 1), inside] for own in left))
            position[inside] = 2 * at + np.where(goes, 1, 2)
            live = (2 * inner[:, None] + [1, 2]).ravel()
    return found


@pytest.mark.parametrize("keys", [*SAVING, {"goss": True}], ids=str)
@pytest.mark.parametrize("protection", [None, paillier_card.Config(key_bits=1024)], ids=["clear", "paillier"])
def test_bytes_are_the_formula(keys: dict[str, Any], protection: Any) -> None:
    result = trained(classes(classes=2, parties=2), protection, **keys)
    cfg = secureboost_card.Config(parties=2, depth=3, bins=8, **keys)
    eta = (1024 - 1) // (2 * (53 + 6))  # of 40 rows
    slots = None if protection is None else eta if cfg.packing and cfg.compression else 1
    assert sent(result) == expected(result, cfg, 1 if cfg.packing else 2, slots, 256)


# --- encryption -------------------------------------------------------------------------------------------------------


def test_ciphertexts_have_their_length_and_hold_what_was_sealed() -> None:
    rng = np.random.default_rng(0)
    for bits, count, width in ((1024, 20, 2), (2048, 31, 1), (3072, 1, 2)):
        keys = paillier_card.Config(key_bits=bits)  # type: ignore[arg-type]
        slots = paillier.slots(keys, 24_713, width)
        values = rng.integers(-(2**50), 2**50, (count, width))
        sealed = paillier.seal(keys, values, slots)
        assert sealed.shape == (-(-count // slots), 2 * bits // 8)
        assert np.array_equal(paillier.unseal(sealed, count, width, np.int64, slots), values)


def test_so_many_sums_fit_into_a_plaintext() -> None:
    assert [paillier.slots(paillier_card.Config(key_bits=b), 24_713, 2) for b in (1024, 2048)] == [7, 15]  # type: ignore[arg-type]
    assert paillier.slots(paillier_card.Config(key_bits=1024), 2**40, 16) == 1


def test_the_price_is_that_of_a_published_measurement() -> None:
    """FedTree, a9a, 16 threads: 5.1 s a tree more with encryption; 32,561 rows have two numbers each."""
    keys = paillier_card.Config(short_exponent=True, threads=16)
    assert 2 <= paillier.seconds(keys, encrypted=2 * 32_561) <= 15
    assert paillier.seconds(paillier_card.Config(), 1, 1, 1, 1) == pytest.approx(13.97e-3 + 2.78e-3 + 6e-6 + 384e-6)
    problem = paillier_card.check(paillier_card.Config(key_bits=1024, short_exponent=True))
    assert [one.key for one in problem] == ["protection.short_exponent"]


def test_a_convex_problem_is_refused() -> None:
    task = ridge()
    with pytest.raises(ConfigError, match=r"dataset\.problem=ridge"):
        secureboost.parties(task, config(secureboost, task, graph="star"))
