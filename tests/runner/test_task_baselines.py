"""Floor and ceiling: ship it, alone, centralised, and what each party brings."""

import dataclasses
import json

import numpy as np
import pytest

import vflbench
from vflbench.cards.data.graph import digits_graph as digits_graph_card
from vflbench.cards.data.relational import star_schema as star_schema_card
from vflbench.cards.data.tabular import breast_cancer as breast_cancer_card
from vflbench.cards.data.tabular import digits as digits_card
from vflbench.cards.data.tabular import ridge as ridge_card
from vflbench.data.relational import star_schema
from vflbench.data.tabular import breast_cancer, digits, ridge
from vflbench.data.tasks import AlignedTask, OwnRows
from vflbench.models import metrics, trees
from vflbench.runner import task_baselines
from vflbench.runner.task_baselines import levels  # as it is: conftest.py puts another one there
from vflbench.types import DataSource, LinkConfig, Metric, NetworkConfig


def aligned(rows=300, parties=3, seed=0):
    """A regression in which party 1 has half of the signal, and party 2 none."""
    rng = np.random.default_rng(seed)
    blocks = [rng.normal(size=(rows, 2)).astype(np.float32) for _ in range(parties)]
    labels = blocks[0][:, 0] + 2 * blocks[1][:, 1] + 0.1 * rng.normal(size=rows)
    third = rows // 3
    held = {
        split: tuple(block[rows - place * third :][:third] for block in blocks)
        for split, place in (("val", 2), ("test", 1))
    }
    truths = {split: labels[rows - place * third :][:third] for split, place in (("val", 2), ("test", 1))}
    train = tuple(block[:third] for block in blocks)
    return AlignedTask("made", DataSource("real"), Metric("rmse", "min"), 0, 0, train, labels[:third], held, truths)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "vflbench" / "bounds"


# --- ship it ----------------------------------------------------------------------------------------------------------


def test_all_but_the_labels_owner_send_their_training_rows():
    task = aligned()
    assert task_baselines.ship_it(task) == {
        "bytes": 2 * 100 * 2 * 4, "seconds": None, "form": "float32", "stored": 1600, "largest": 800,
    }  # fmt: skip
    found = task_baselines.ship_it(ridge.load(ridge_card.Config(samples=30, features=20), "aligned", 4, 0, None))
    assert found["bytes"] == 30 * 15 * 8  # float64, as convex problems have them


def test_all_tables_but_the_label_table_are_sent_with_their_keys():
    task = star_schema.load(star_schema_card.Config(rows=200), "relational", 1, 0, None)
    sent = task.shipped()
    others = [part for part in task.clients if part.table != task.label_table]
    assert len(sent) == len(others) > 0
    for size, part in zip(sent.values(), others, strict=True):
        assert size.stored >= part.features.nbytes and len(part.keys) == 1


def test_all_workers_but_the_largest_send_rows_and_labels():
    task = digits.load(digits_card.Config(sharding="dirichlet", dirichlet_alpha=0.3), "sharded", 3, 0, None)
    rows = task.public.rows
    assert len(task.shipped()) == 2
    kept = sum(rows) - max(rows)
    assert task_baselines.ship_it(task)["stored"] == kept * (64 * 4 + 8)


def test_clients_of_a_graph_send_features_and_each_edge_once():
    from vflbench.data.graph import digits_graph

    task = digits_graph.load(digits_graph_card.Config(), "graph", 3, 0, None)
    sent, nodes = task.shipped(), len(task.labels)
    assert len(sent) == 3
    for size, edges in zip(sent.values(), task.edges, strict=True):
        own = size.stored - edges.shape[1] // 2 * 2 * 2
        assert own % nodes == 0 and "uint16 numbers" in size.form


@pytest.mark.parametrize(
    ("server", "seconds"), [(None, 0.05 + 800e6 * 8 / 1e9), (0.5, 0.05 + 1600e6 * 8 / 0.5e9), (10, 0.05 + 6.4)]
)
def test_senders_start_together_and_share_the_servers_bandwidth(server, seconds):
    network = NetworkConfig(
        "x", client_server=LinkConfig(50.0, 1.0), client_client=LinkConfig(9.0, 9.0), server_bandwidth_gbps=server
    )
    shipped = task_baselines.ship_it(aligned()) | {"bytes": 1_600_000_000, "largest": 800_000_000}
    assert task_baselines.on_network(shipped, network)["seconds"] == pytest.approx(seconds)


# --- alone, centralised, brings ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_each_level_is_the_learner_on_those_columns_alone(cache):
    task = aligned()
    found = levels(task, 4, "auto")

    def reached(*parties):
        x, val, test = (
            np.concatenate([blocks[party] for party in parties], axis=1)
            for blocks in (task.features, task.held_out_features["val"], task.held_out_features["test"])
        )
        model = trees.fit(x, task.labels, val, task.truth("val"), classes=0, metric="rmse", seed=4)
        assert metrics.rmse(model.scores(val), task.truth("val")) == model.values[model.best - 1]
        return metrics.rmse(model.scores(test), task.truth("test"))

    whole = reached(0, 1, 2)
    assert {**found["alone"], "validation": None} == {
        "metric": "rmse", "value": reached(0), "validation": None, "learner": "boosted trees",
    }  # fmt: skip
    assert found["centralised"]["value"] == whole
    assert found["others"]["value"] == reached(1, 2)
    for party, rest in enumerate(((1, 2), (0, 2), (0, 1))):
        assert found["brings"][f"party {party}"] == {"without": reached(*rest), "gain": reached(*rest) - whole}
    assert found["brings"]["party 1"]["gain"] > 0.5 > abs(found["brings"]["party 2"]["gain"])


def test_test_rows_choose_nothing(cache):
    """With other test rows the same iteration is chosen: the value is that model's on them."""
    task = aligned()
    truths = {**task.held_out_labels, "test": task.held_out_labels["test"] + 100}
    moved = levels(dataclasses.replace(task, held_out_labels=truths), 4, "auto")
    model = trees.fit(
        task.features[0], task.labels, task.held_out_features["val"][0], task.truth("val"),
        classes=0, metric="rmse", seed=4,
    )  # fmt: skip
    expected = metrics.rmse(model.scores(task.held_out_features["test"][0]), truths["test"])
    assert moved["alone"]["value"] == expected


def test_a_level_is_computed_once_and_a_damaged_one_again(cache, monkeypatch, caplog):
    task = aligned()
    first = levels(task, 0, "auto")
    (kept,) = [path for path in cache.iterdir() if path.is_dir()]
    monkeypatch.setattr(task_baselines, "_reached", lambda *_: 1 / 0)
    assert levels(task, 0, "auto") == first
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache.parents[1]))
    (kept / "bounds.json").write_text('{"alone": "0.1"}')
    assert levels(task, 0, "auto") == first and "is damaged: it is made again" in caplog.text


@pytest.mark.parametrize(
    "change", [*(pytest.param(one, marks=pytest.mark.slow) for one in ("labels", "seed", "division")), "features"]
)
def test_other_data_another_seed_and_another_division_are_other_levels(cache, change):
    task, seed = aligned(), 0
    levels(task, seed, "auto")
    if change == "labels":
        task = dataclasses.replace(task, labels=task.labels + 1)
    elif change == "features":
        task.features[2][0, 0] += 1
    elif change == "division":
        task = dataclasses.replace(task, owner=1)
    else:
        seed = 1
    levels(task, seed, "auto")
    assert len([path for path in cache.iterdir() if path.is_dir()]) == 2


def test_many_numbers_are_sampled_and_the_learner_says_so(cache, monkeypatch):
    monkeypatch.setattr(task_baselines, "MOST_NUMBERS", 240)
    monkeypatch.setattr(task_baselines, "MOST_HELD", 360)
    seen = []

    def reached(splits, own, task, seed):
        seen.append({split: len(table.labels) for split, table in splits.items()})
        return 1.0, 1.0

    monkeypatch.setattr(task_baselines, "_reached", reached)
    assert levels(aligned(), 0, "auto")["alone"]["learner"] == "boosted trees on 40 of 100 training rows"
    assert seen[0] == {"train": 40, "val": 60, "test": 60}
    assert levels(aligned(), 0, "full")["alone"]["learner"] == "boosted trees"


def test_more_than_a_few_parties_bring_nothing_that_is_computed(cache):
    assert list(levels(aligned(parties=4), 0, "auto")["brings"]) == [f"party {p}" for p in range(4)]
    five = levels(aligned(parties=5), 0, "auto")
    assert five["brings"] == {} and five["others"]["value"] is not None


@pytest.mark.slow
def test_a_join_is_the_ceiling_of_its_label_table(cache):
    task = star_schema.load(star_schema_card.Config(rows=300), "relational", 1, 0, None)
    train = task.table("train")
    assert len(train.labels) == len(train.blocks[0]) == len(train.blocks[1])
    test = task.table("test")
    np.testing.assert_array_equal(test.labels, task.truth("test"))
    found = levels(task, 0, "auto")
    assert found["alone"]["value"] is not None and list(found["brings"]) == [f"table {t}" for t in task.tables]


@pytest.mark.parametrize(
    ("task", "why"),
    [
        (lambda: ridge.load(ridge_card.Config(samples=30, features=20), "aligned", 4, 0, None), "a convex problem"),
        (
            lambda: digits.load(digits_card.Config(), "sharded", 3, 0, None),
            "every worker has labels: algorithm=local_sgd",
        ),
    ],
)
def test_where_there_is_no_level_it_says_why(cache, task, why):
    found = levels(task(), 0, "auto")
    assert found["alone"]["value"] is None and found["alone"]["why"].startswith(why)


# --- in a run's summary -----------------------------------------------------------------------------------------------

SMALL = ["algorithm=vfl", "dataset=breast_cancer", "dataset.problem=learning", "rounds=1"]
SMALL += ["engine.threads=1", "plot=none"]


def test_a_run_has_them_and_floor_none_leaves_the_levels_out(cache, tmp_path, monkeypatch):
    monkeypatch.setattr(task_baselines, "levels", levels)
    run = vflbench.run([*SMALL, f"hydra.run.dir={tmp_path / 'a'}"])
    s, task = run.summary, breast_cancer.load(breast_cancer_card.Config(problem="learning"), "aligned", 2, 0, None)
    shipped = task_baselines.ship_it(task)
    assert {**s["ship_it"], "seconds": None} == shipped and s["ship_it"]["seconds"] == pytest.approx(
        0.136 + shipped["bytes"] * 8 / 0.42e9
    )
    assert s["times_ship_it"] == s["bytes"]["total"] / shipped["bytes"]
    kept = levels(task, 0, "auto")
    assert {key: s[key] for key in kept} == json.loads(json.dumps(kept))
    other = vflbench.run([*SMALL, "floor=none", f"hydra.run.dir={tmp_path / 'b'}"]).summary
    assert other["ship_it"] == s["ship_it"] and "alone" not in other


def test_a_run_is_kept_where_its_floor_fails(cache, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(task_baselines, "ship_it", lambda task: 1 / 0)
    summary = vflbench.run([*SMALL, f"hydra.run.dir={tmp_path / 'a'}"]).summary
    assert summary["status"] == "completed" and "ship_it" not in summary and "ZeroDivisionError" in caplog.text


# --- rows that only the label owner has -------------------------------------------------------------------------------


@pytest.mark.slow
def test_alone_learns_from_rows_that_only_the_label_owner_has(cache):
    task = aligned()
    rng = np.random.default_rng(5)
    features = rng.normal(size=(400, 2)).astype(np.float32)
    own = OwnRows(features, features[:, 0] + 0.1 * rng.normal(size=400), np.arange(400))
    more = dataclasses.replace(task, own=own)
    found = levels(more, 0, "auto")
    x, labels = np.concatenate([task.features[0], features]), np.concatenate([task.labels, own.labels])
    held, test = task.held_out_features["val"][0], task.held_out_features["test"][0]
    by_hand = trees.fit(x, labels, held, task.truth("val"), classes=0, metric="rmse", seed=0)
    assert found["alone"]["value"] == metrics.METRICS["rmse"](by_hand.scores(test), task.truth("test"))
    assert found["alone"]["value"] < levels(task, 0, "auto")["alone"]["value"]
    # without the owner's columns the rows tell nothing
    assert found["brings"]["party 0"]["without"] == levels(task, 0, "auto")["brings"]["party 0"]["without"]
