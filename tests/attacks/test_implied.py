"""Each entry of EXPOSES that an attack proves is found on a run without privacy, and answers are known by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import vflbench
from tests.algorithms import small_columns, small_graphs, small_joins, small_shards
from tests.every import few_fast
from vflbench import registry
from vflbench.algorithms.gossip import allreduce_sgd
from vflbench.algorithms.graph import glasu
from vflbench.algorithms.joins import gd_join, rfl_admm, rfl_admm_v, rfl_sgd_v, vfl_admm, vfl_sgd
from vflbench.algorithms.tokens import svfl
from vflbench.attacks import edge_inference, gram_recovery, label_histogram, residual_labels, score
from vflbench.attacks.transcript import Message, Watch, flatten
from vflbench.cards.attacks import edge_inference as edge_inference_card
from vflbench.cards.attacks import gram_recovery as gram_recovery_card
from vflbench.cards.attacks import label_histogram as label_histogram_card
from vflbench.cards.attacks import residual_labels as residual_labels_card
from vflbench.data.tasks import AlignedTask, RelationalTask
from vflbench.plots import demands
from vflbench.results import selection
from vflbench.types import SHOWN, ConfigError, Implied, RunConfig

BANK = ["dataset=bank", "dataset.source=synthetic", "dataset.samples=1500", "dataset.validation=0.3", "model=mlp10"]
SPLIT = [*BANK, "model.width=16", "model.depth=3", "algorithm.batch_size=64", "rounds=3"]
TABLES = ["dataset=star_schema", "dataset.rows=300", "dataset.dimension_rows=60", "dataset.width=3"]
RIDGE = ["dataset=ridge", "dataset.samples=60", "dataset.features=24", "algorithm.parties=4", "rounds=1"]
GRAPH = ["dataset=digits_graph", "model.hidden=24", "rounds=150", "eval_every=150"]
LINEAR = ["model.dtype=float64", "algorithm.lr=0.1", "rounds=12"]
# attack -> what it runs on, and the keys that it is given
SETTINGS: dict[str, list[str]] = {
    "label_inference": [*SPLIT, "attack.epochs=1"],
    "embedding_inversion": SPLIT,
    "residual_labels": [*TABLES, "dataset.task=classes", "rounds=2"],
    "prediction_recovery": [*TABLES, *LINEAR],
    "gram_recovery": [*RIDGE, "attack.aux_rows=12"],
    "edge_inference": GRAPH,
    "label_histogram": ["dataset=digits", "dataset.sharding=dirichlet", "model.widths=[16]", "rounds=1"],
}
FAST = {"vfl-label_inference", "rfl_admm_v-residual_labels"}  # of the quick attacks
VOCABULARY = {"balance", "shadow", "aux_labels", "aux_rows", "architecture", "parameters_released"}


def reached(found: dict[str, Any]) -> bool:
    """Whether an attack reaches the figure that its entries stand for."""
    name, low = found["name"], found["interval"][0]
    if name == "residual_labels":
        return found["success"] == 1.0 and low > 0 and all(one["success"] == 1.0 for one in found["clients"].values())
    if name == "label_histogram":
        return all(one["distance"] <= 0.5 * one["uniform"] for one in found["clients"].values())
    least = {"label_inference": 0.99, "prediction_recovery": 0.95, "gram_recovery": 0.999999}
    least |= {"edge_inference": 0.9 if found.get("source") == "ids" else 0.6, "embedding_inversion": found["floor"]}
    return bool(found["success"] > least[name] and low > 0)


def implied() -> list[Any]:
    """(algorithm, attack, keys) of every entry that an attack proves."""
    cases: dict[str, Any] = {}
    for name in registry.algorithms():
        for entry in registry.exposed(name):
            if isinstance(entry, Implied) and entry.proof != "argued":
                source = ["attack.source=embeddings"] if entry.tags == ("embedding",) and entry.kind == "edges" else []
                case = f"{name}-{entry.proof}" + "-embeddings" * bool(source)
                marks = [] if case in FAST else [pytest.mark.slow]
                cases[case] = pytest.param(name, entry.proof, source, id=case, marks=marks)
    return list(cases.values())


@pytest.mark.parametrize(("algorithm", "attack", "keys"), implied())
def test_the_attack_of_an_implied_entry_succeeds(algorithm: str, attack: str, keys: list[str], tmp_path: Path) -> None:
    assert attack in registry.algorithms()[algorithm].attacks
    words = [*SETTINGS[attack], *keys, "engine.threads=1", "plot=none", "floor=none", f"hydra.run.dir={tmp_path}"]
    run = vflbench.run([f"algorithm={algorithm}", f"attack={attack}", *words])
    found = run.summary["attack"]
    assert reached(found), found
    for entry in registry.exposed(algorithm):  # what is found exactly is told, and meets no requirement that hides it
        if isinstance(entry, Implied) and entry.proof == attack and entry.exact:
            (setting,) = selection.settings([run])
            seen, what = demands.seen(setting), SHOWN[entry.kind]
            assert what in (seen.clear or ()) and f"{what} (inferred)" in str(seen.to_whom)
            assert any(what in str(demands.unmet(seen, demand)) for demand in demands.relevant([seen]))
    assert found["advantage"] == pytest.approx(found["success"] - found["floor"]) and found["rows"] > 0
    assert found["seconds"] > 0 and set(found["knows"]) <= VOCABULARY


def test_an_entry_without_an_attack_says_its_argument() -> None:
    known = {"argued", *registry.option_entries("attack")}
    for name in registry.algorithms():
        for entry in registry.exposed(name):
            assert not isinstance(entry, Implied) or (entry.note and entry.proof in known), name


# --- on small made data, in memory ------------------------------------------------------------------------------------


def views(small: Any, module: ModuleType, task: Any, cfg: RunConfig, watch: Watch) -> list[Message]:
    """What the parties of `watch` see of a run, as its transcript has it."""
    found: list[Message] = []

    def on_read(src: str, dst: str, tag: str, round: int, payload: Any) -> None:
        parties = {watch.party, *watch.also}
        if (dst in parties and (watch.received is None or tag in watch.received)) or (
            src in parties and tag in watch.sent
        ):
            found.append(Message(round, src, dst, tag, tuple(flatten(payload))))

    small.run(module, task, cfg, on_read=on_read)
    return found


def joined(module: ModuleType, task: RelationalTask | AlignedTask, **keys: Any) -> dict[str, Any]:
    """The attack on labels, of a method over joins."""
    cfg = replace(small_joins.config(module, **keys), attack=residual_labels_card.Config())
    hubs = [name for name in module.parties(task, cfg) if name != "server"]
    assert residual_labels.check_task(task, cfg) == []
    return residual_labels.attack(
        views(small_joins, module, task, cfg, residual_labels.watch(task, cfg, hubs)), task, cfg, hubs
    )


def whole(task: Any) -> Any:
    """With labels from 1 to 5."""
    if isinstance(task, AlignedTask):
        return replace(task, labels=np.clip(np.round(task.labels), 1, 5))
    parts = [
        part if part.labels is None else replace(part, labels=np.clip(np.round(part.labels), 1, 5))
        for part in task.clients
    ]
    return replace(task, clients=tuple(parts))


@pytest.mark.parametrize("rho", few_fast([1.0, 0.5]))
@pytest.mark.parametrize("classes", few_fast([0, 2, 4]))
@pytest.mark.parametrize("module", [rfl_admm_v, gd_join, vfl_admm, rfl_admm], ids=lambda m: m.__name__.split(".")[-1])
def test_sums_of_labels_are_exact(module: ModuleType, classes: int, rho: float) -> None:
    make = small_joins.aligned if module is vfl_admm else small_joins.tables
    task = make(classes=classes) if module is not rfl_admm else small_joins.tables(2, classes=classes)
    found = joined(module, task if classes else whole(task), rho=rho, parts=2)
    assert found["success"] == 1.0 > found["floor"] and len(found["clients"]) == (6 if module is rfl_admm else 3)
    for client in found["clients"].values():
        assert client["success"] == 1.0 and client["correlation"][0] > 0.95


@pytest.mark.parametrize("module", [rfl_sgd_v, vfl_sgd], ids=["rfl_sgd_v", "vfl_sgd"])
def test_of_batches_the_first_one_tells_single_labels(module: ModuleType) -> None:
    """One-to-one tables: every row joins once, so each client learns the first batch's labels."""
    task = (small_joins.tables if module is rfl_sgd_v else small_joins.aligned)(one_to_one=True)
    found = joined(module, whole(task), batch_size=16, rounds=1)
    assert found["success"] == 1.0 and {client["rows"] for client in found["clients"].values()} == {16}


def test_a_mlp_is_attacked_with_admm_only() -> None:
    task = small_joins.tables(classes=3)
    assert joined(rfl_admm_v, task, model={"name": "mlp", "hidden": 4})["success"] == 1.0


def test_labels_with_fractions_are_refused() -> None:
    cfg = replace(small_joins.config(gd_join), attack=residual_labels_card.Config())
    (problem,) = residual_labels.check_task(small_joins.tables(), cfg)
    assert "fractions" in problem.allowed


def test_the_mean_label_is_pinned_by_whole_sums() -> None:
    """Labels 1, 2, 5 of single rows and a row that joins 3,000 times; halves that G = 2 leaves open, G = 3 closes."""
    counts, mean = np.array([1.0, 1.0, 1.0, 3000.0]), 3.217171
    sums = np.array([1.0, 2.0, 5.0, 9651.0])
    found = residual_labels.mean_label(sums - counts * mean, counts, 3.4)
    assert found == pytest.approx(mean, abs=1e-9)
    counts, sums = np.array([2.0, 2.0, 3.0]), np.array([3.0, 8.0, 14.0])
    assert residual_labels.mean_label(sums - counts * mean, counts, 3.4) == pytest.approx(mean, abs=1e-9)


def test_a_gram_matrix_gives_rows_and_too_many_columns_only_a_part() -> None:
    def attacked(task: AlignedTask) -> dict[str, Any]:
        cfg = replace(small_columns.config(svfl, task, rounds=1), attack=gram_recovery_card.Config(aux_rows=20))
        hubs = [f"client_{k}" for k in range(task.parties)]
        assert gram_recovery.check_task(task, cfg) == []
        seen = views(small_columns, svfl, task, cfg, gram_recovery.watch(task, cfg, hubs))
        return gram_recovery.attack(seen, task, cfg, hubs)

    exact = attacked(small_columns.ridge(60, 20, 4))
    assert exact["success"] == pytest.approx(1, abs=1e-9) and exact["interval"][0] > 1 > exact["floor"]
    assert {one["rank"] for one in exact["clients"].values()} == {5}
    part = attacked(small_columns.ridge(60, 24, 2))
    assert {one["rank"] for one in part["clients"].values()} == {8} and 0.2 < part["success"] < 0.95


def test_a_given_step_size_sends_nothing_to_read() -> None:
    task = small_columns.ridge()
    cfg = replace(small_columns.config(svfl, task, lr=0.1), attack=gram_recovery_card.Config())
    assert "algorithm.lr=null" in gram_recovery.check_task(task, cfg)[0].allowed


@pytest.mark.parametrize(
    ("source", "least"), few_fast([("ids", 0.9), pytest.param("embeddings", 0.6, marks=pytest.mark.slow)], 0)
)
def test_edges_are_found(source: Any, least: float) -> None:
    task = small_graphs.task(3, 60, seed=3)
    cfg = small_graphs.config(glasu, rounds=80, parties=3, layers=4, aggregations=2, fanout=2, batch_size=3, lr=0.01)
    cfg = replace(cfg, attack=edge_inference_card.Config(source=source))
    hubs = [f"client_{m}" for m in range(3)]
    assert edge_inference.check_task(task, cfg) == []
    seen = views(small_graphs, glasu, task, cfg, edge_inference.watch(task, cfg, hubs))
    found = edge_inference.attack(seen, task, cfg, hubs)
    assert found["success"] > least and found["interval"][0] > 0 and found["floor"] == 0.5


def test_scores_of_pairs_by_hand() -> None:
    """Node 0 is in rounds 1 and 2, with 1 in the level twice and 2 once; node 3 in round 3, with 2: then P(2) = 2/3."""

    def messages(round: int, batch: list[int], level: list[int]) -> list[Message]:
        sent = Message(round, "server", "client_0", "batch", (np.array(batch),))
        return [sent, Message(round, "client_0", "server", "nodes", (np.array(level),))]

    view = [*messages(1, [0], [0, 1]), *messages(2, [0], [0, 1, 2]), *messages(3, [3], [2, 3])]
    heads, scores = edge_inference.by_ids(view, 4)["client_0"]
    assert heads.tolist() == [0, 3]
    np.testing.assert_allclose(scores[0], [1 - 2 / 3, 1 - 2 / 3, 1 / 2 - 2 / 3, 0 - 1 / 3])
    np.testing.assert_allclose(scores[1, 2], 1 - 2 / 3)


def test_shares_of_classes_are_read_and_a_short_piece_is_not() -> None:
    task = small_shards.task(5, rows=90, width=6, classes=3)
    cfg = replace(small_shards.config(allreduce_sgd, rounds=1, batch_size=30), attack=label_histogram_card.Config())
    hubs = [f"worker_{m}" for m in range(5)]
    seen = views(small_shards, allreduce_sgd, task, cfg, label_histogram.watch(task, cfg, hubs))
    found = label_histogram.attack(seen, task, cfg, hubs)
    assert set(found["clients"]) == set(hubs[:-1]) and found["adversary"] == hubs[-1]
    assert found["success"] > 0.85  # 90 rows in 3 batches, and a model that learns meanwhile
    gradient = Message(1, "worker_0", "worker_4", "gradient", (np.array([9.0, 0.25 - 1, 0.25, 0.25, 0.25]),))
    assert label_histogram.shares([gradient], 4, 3)["worker_0"].tolist() == [1, 0, 0, 0]
    assert label_histogram.shares([gradient], 6, 3) == {}


# --- scores -----------------------------------------------------------------------------------------------------------


def test_area_is_that_of_a_library_and_weighs_victims() -> None:
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(0)
    victim, scores = np.repeat(np.arange(6), 30), np.round(rng.normal(size=180), 1)  # with ties
    truth = rng.random(180) < 0.3
    area = score.area(scores, truth, victim)
    assert area(np.ones(6)) == pytest.approx(roc_auc_score(truth, scores))
    weights = np.array([2.0, 0, 1, 1, 3, 0])
    assert area(weights) == pytest.approx(roc_auc_score(truth, scores, sample_weight=weights[victim]))


def test_an_interval_covers_the_advantage_and_no_victim_gives_none() -> None:
    hits = (np.random.default_rng(1).random(400) < 0.7).astype(float)
    found = score.result(score.mean(hits), score.constant(0.5), 400, seed=0)
    low, high = found["interval"]
    assert low < found["advantage"] < high and high - low == pytest.approx(4 * np.sqrt(0.21 / 400), rel=0.2)
    assert score.result(score.mean(hits), score.constant(0.5), 0, 0)["interval"] is None


def test_a_linear_model_alone_is_attacked_with_sgd(tmp_path: Path) -> None:
    words = [*TABLES, "dataset.task=classes", "model=mlp", "attack=residual_labels", f"hydra.run.dir={tmp_path / 'a'}"]
    with pytest.raises(ConfigError, match="solves linear models only"):
        vflbench.run(["algorithm=rfl_sgd_v", *words])
