"""privacy.serving: what is sent of held-out rows, that training is the same either way, and that both are scored."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import vflbench
from tests.algorithms import small_columns, test_pubsub, test_send_once
from tests.every import few_fast
from tests.options import make_mechanism, privacy_config
from vflbench import exposure, registry
from vflbench.algorithms.oneshot import send_once
from vflbench.algorithms.split import avfl, avfl_ps, pubsub_vfl, vfl, vfl_ps
from vflbench.algorithms.tokens import mtcd, svfl
from vflbench.federation.ledger import COLUMN
from vflbench.federation.party import party_names
from vflbench.models.bins import Bins, unpack
from vflbench.privacy import mechanisms
from vflbench.results.run_schema import validate_summary
from vflbench.results.texts import result_line
from vflbench.runner.evaluate import Observer
from vflbench.seeding import stream, torch_stream
from vflbench.types import ConfigError, VflbenchError

WAYS = ("clean", "noisy")
METHODS = [
    pytest.param(one, marks=[] if one in (vfl, pubsub_vfl) else [pytest.mark.slow], id=one.__name__.split(".")[-1])
    for one in (vfl, pubsub_vfl, avfl, vfl_ps, avfl_ps)
]
OPTIONS: dict[str, Any] = {
    "model": test_pubsub.SMALL, "workers": 2, "passive_workers": 2, "outstanding": 2,
    "compute": test_pubsub.constant(1, 1, 1), "batch_size": 16,
}  # fmt: skip


def trained(module: ModuleType, way: str | None, rounds: int = 3, name: str = "gdp_embedding") -> Any:
    """A run of split learning; None: without privacy."""
    task = small_columns.classes(samples=60, features=8, parties=3)
    privacy = privacy_config() if way is None else privacy_config(name, mu=4.0, serving=way)
    return test_pubsub.run(module, task, rounds, **OPTIONS, privacy=privacy)


def the_same_but_for_scores(clean: Any, noisy: Any) -> None:
    """Ledgers and losses are equal; each run's scores are those that the other one has beside its own."""
    np.testing.assert_array_equal(clean.ledger, noisy.ledger)  # bytes and times
    for key in ("train_loss", "bytes", "epsilon"):
        assert [row[key] for row in clean.observer.rows] == [row[key] for row in noisy.observer.rows]
    for one, other in ((clean, noisy), (noisy, clean)):
        assert {row["round"]: row["test_accuracy"] for row in one.observer.rows} == other.observer.otherwise
    assert clean.observer.otherwise != noisy.observer.otherwise


@pytest.mark.parametrize("module", METHODS)
def test_split_learning_trains_the_same_whichever_way_rows_are_served(module: ModuleType) -> None:
    clean, noisy = (trained(module, way) for way in WAYS)
    test_pubsub.close(clean.thetas, noisy.thetas, atol=0)
    the_same_but_for_scores(clean, noisy)
    # the way beside the chosen one is in no phase: predictions cost what they cost without privacy
    free = trained(module, None)
    assert free.observer.otherwise == {}
    for run in (clean, noisy):
        assert [party.served for party in run.engine.order] == [party.served for party in free.engine.order]
        spent = mechanisms.by_organisation(run.engine.order)["passive_1"]
        assert spent["releases"] == {"planned": 3, "done": 3} and spent["mu"] == pytest.approx(4)
        assert spent["one_prediction"]["mu"] == pytest.approx(4 / math.sqrt(3))


@pytest.mark.parametrize("module", few_fast([svfl, mtcd]))
def test_tokens_train_the_same_whichever_way_rows_are_served(module: ModuleType) -> None:
    task, runs, counted = small_columns.classes(), {}, []
    for way in WAYS:
        privacy = privacy_config("gaussian_embedding", noise_multiplier=0.5, serving=way)
        cfg = replace(small_columns.config(module, task, rounds=3), privacy=privacy)
        made = {name: make_mechanism(privacy, 100) for name in party_names("client", task.parties)}
        runs[way] = small_columns.run(module, task, cfg, privacy=made)
        counted.append([one.counts.tolist() for one in made.values()])
    assert runs["clean"].theta.tobytes() == runs["noisy"].theta.tobytes()
    assert runs["clean"].fusion.tobytes() == runs["noisy"].fusion.tobytes()
    the_same_but_for_scores(runs["clean"], runs["noisy"])
    assert counted[0] == counted[1] and {len(one) for one in counted[0]} == {len(task.labels)}


@pytest.mark.parametrize("chosen", WAYS)
def test_rows_that_are_served_once_get_the_clip_and_the_noise_by_hand(chosen: str) -> None:
    task = small_columns.classes(110, 6, 2, 2)
    private = privacy_config("gaussian_embedding", noise_multiplier=0.5, clip=2.0, serving=chosen)
    mechanism = make_mechanism(private, 1, "aligned")
    cfg = replace(test_send_once.config(task, form="raw"), privacy=private)
    result = test_send_once.run(task, cfg, privacy={"passive_1": mechanism})
    assert set(mechanism.counts) == {1} and len(mechanism.counts) == len(task.labels)  # held-out rows are not counted
    generator = torch_stream(cfg.seed, "evaluation/serving/passive_1")
    by_hand: dict[str, dict[str, torch.Tensor]] = {way: {} for way in WAYS}
    for split in ("val", "test"):
        rows = torch.from_numpy(task.held_out_features[split][1])
        clipped = rows / (rows.norm(dim=1, keepdim=True) / 2).clamp(min=1)
        noise = torch.randn(rows.shape, generator=generator, dtype=rows.dtype)
        by_hand["clean"][split], by_hand["noisy"][split] = clipped, clipped + 0.5 * 2.0 * noise
    sent = result.state.held_out[0]
    for split, rows in by_hand[chosen].items():
        np.testing.assert_array_equal(np.stack(sent[split], axis=1), rows.numpy())
    (other,) = (way for way in WAYS if way != chosen)
    np.testing.assert_array_equal(np.stack(sent[send_once.OTHERWISE], axis=1), by_hand[other]["test"].numpy())


def test_bins_that_are_served_with_noise_are_randomised_once_more() -> None:
    task = small_columns.classes(110, 6, 2, 2)
    sent = {}
    for way in WAYS:
        private = privacy_config("rr_bins", epsilon=3.0, serving=way)
        mechanism = make_mechanism(private, 1, "aligned")
        cfg = replace(test_send_once.config(task, bins=4), privacy=private)
        result = test_send_once.run(task, cfg, privacy={"passive_1": mechanism})
        sent[way] = result.state.received[0], result.state.held_out[0]
        assert mechanism.spent()["one_prediction"] == {"epsilon": 3.0, "mu": None}
    for clean, noisy in zip(*(sent[way][0] for way in WAYS), strict=True):
        np.testing.assert_array_equal(clean, noisy)  # what is trained on
    form, rng = Bins.fit(task.features[1], 4), stream(0, "evaluation/serving/passive_1")
    for split in ("val", "test"):
        codes = form.codes(task.held_out_features[split][1])
        shown = {way: unpack(sent[way][1][split][1], form.last, len(codes)) for way in WAYS}
        np.testing.assert_array_equal(shown["clean"], codes)
        np.testing.assert_array_equal(shown["noisy"], mechanism.noised(codes, form.last, rng))
        assert (shown["noisy"] != codes).mean() > 0.2  # a cell keeps its bin with probability 0.475
        np.testing.assert_array_equal(sent["clean"][1][send_once.OTHERWISE][1], sent["noisy"][1]["test"][1])


@pytest.mark.parametrize("learner", ["linear", "model"])
def test_what_is_sent_once_is_scored_both_ways(learner: str) -> None:
    task, runs = small_columns.classes(110, 6, 2, 2), []
    for way in WAYS:
        private = privacy_config("gdp_embedding", mu=20.0, clip=5.0, serving=way)
        keys = {"learner": learner, "form": "raw", "fallback": False, "batch_size": 16, "rounds": 1}
        cfg = replace(test_send_once.config(task, **keys), privacy=private)
        runs.append(test_send_once.run(task, cfg, privacy={"passive_1": make_mechanism(private, 1, "aligned")}))
        assert all(set(one) == {"val", "test"} for one in runs[-1].predictions)
    np.testing.assert_array_equal(*(run.ledger[:, COLUMN["bytes"]] for run in runs))
    clean, noisy = (run.state.best["joint"]["scores"] for run in runs)  # after one iteration: of one model
    np.testing.assert_array_equal(clean["test"], noisy[send_once.OTHERWISE])
    np.testing.assert_array_equal(noisy["test"], clean[send_once.OTHERWISE])
    assert (clean["test"] != noisy["test"]).any() and (clean["val"] != noisy["val"]).any()


WORDS = ["dataset=digits", "dataset.problem=learning", "plot=none", "floor=none", "engine.threads=1"]


@pytest.mark.parametrize("way", WAYS)
def test_a_summary_has_both_scores_and_what_a_prediction_spends(way: str, tmp_path: Path) -> None:
    small = ["model.depth=2", "model.width=8", "algorithm.batch_size=256"]
    more = ["privacy=gdp_embedding", "privacy.mu=9", f"privacy.serving={way}", f"hydra.run.dir={tmp_path}/run"]
    run = vflbench.run(["algorithm=vfl", *WORDS, *small, *more, "epochs=3", "algorithm.lr=0.01"])
    metric, served = run.summary["metric"], run.summary["privacy"]["serving"]
    assert served["chosen"] == way and served["round"] == metric["selected_round"]
    assert served[way] == metric["selected"]
    assert served["clean"] > served["noisy"]
    assert served["noisy_mu"] == pytest.approx(9 / math.sqrt(3))
    assert served["noisy_epsilon"] < run.summary["privacy"]["epsilon"]
    (other,) = (served[one] for one in WAYS if one != way)
    said = result_line(run.summary)
    assert f"{metric['selected']:.4g}" in said and f"{other:.4g}" in said and "guarantee" in said
    shown = [one for one in run.summary["exposure"]["entries"] if one["phase"] == "evaluation"]
    assert [one["covered_by"] for one in shown] == [None if way == "clean" else "gdp_embedding"]
    for broken in ({}, {**served, "clean": None}, {**served, "chosen": 1}, 3):
        changed = {**run.summary, "privacy": {**run.summary["privacy"], "serving": broken}}
        assert any("privacy.serving" in problem for problem in validate_summary(changed))


def test_scores_beside_the_chosen_ones_outlive_a_checkpoint() -> None:
    """And a checkpoint of before there were any is taken, too."""
    noisy = trained(vfl, "noisy").observer
    again = Observer(noisy.task, noisy.config)
    state = noisy.state_dict()
    again.load_state_dict(state)
    assert again.otherwise == noisy.otherwise and len(again.otherwise) == 3
    del state["otherwise"]
    older = Observer(noisy.task, noisy.config)
    older.load_state_dict(state)
    assert older.otherwise == {} and older.rows == noisy.rows


@pytest.mark.slow
def test_scores_of_a_linear_model_cross_over(tmp_path: Path) -> None:
    """hetero_lr: each run's scores are those that the other one has beside its own, as is the rest of the run."""
    words = ["algorithm=hetero_lr", *WORDS, "privacy=gdp_embedding", "privacy.mu=9", "epochs=1"]
    runs = [vflbench.run([*words, f"privacy.serving={way}", f"hydra.run.dir={tmp_path}/{way}"]) for way in WAYS]
    clean, noisy = (run.summary["privacy"]["serving"] for run in runs)
    assert clean == noisy | {"chosen": "clean"} and clean["clean"] != clean["noisy"]
    assert runs[0].curve["train_loss"].tolist() == runs[1].curve["train_loss"].tolist()
    assert runs[0].messages.equals(runs[1].messages)


@pytest.mark.slow
def test_a_resumed_run_has_the_scores_of_one_that_never_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["algorithm=vfl", *WORDS, "model.depth=2", "model.width=8", "privacy=gdp_embedding", "privacy.mu=9"]
    words += ["privacy.serving=noisy", "epochs=4", "checkpoint_every=1"]
    whole = vflbench.run([*words, f"hydra.run.dir={tmp_path}/whole"])
    on_round = Observer.on_round

    def breaks(self: Observer, round: int, engine: Any) -> bool:
        if round == 3:
            raise VflbenchError("the power went")
        return on_round(self, round, engine)

    cut = [*words, f"hydra.run.dir={tmp_path}/cut"]
    with monkeypatch.context() as patch, pytest.raises(VflbenchError, match="the power went"):
        patch.setattr(Observer, "on_round", breaks)
        vflbench.run(cut)
    resumed = vflbench.run([*cut, "resume=true"])
    assert resumed.summary["privacy"] == whole.summary["privacy"]
    assert resumed.curve.equals(whole.curve)


@pytest.mark.parametrize(
    ("words", "said"),
    few_fast(
        [
            (
                ["algorithm=vfl", "dataset=bank", "privacy=label_rr"],
                r"privacy\.serving=noisy: privacy=label_rr has no such key; embedding_and_label, gaussian_embedding, "
                "gdp_embedding, rr_bins have it",
            ),
            (
                ["algorithm=vfl", "dataset=bank", "privacy=gaussian_gradient"],
                "privacy=gaussian_gradient has no such key",
            ),
            (["algorithm=fedavg", "dataset=digits", "privacy=dp_sgd"], "privacy=dp_sgd has no such key"),
            (["algorithm=rfl_sgd", "dataset=movielens", "privacy=label_dp"], "privacy=label_dp has no such key"),
            (["algorithm=glasu", "dataset=cora", "privacy=edge_rr"], "privacy=edge_rr has no such key"),
            (["algorithm=vfl", "dataset=bank"], "privacy=none has no such key"),
            (
                ["algorithm=graph_once", "dataset=cora", "privacy=gaussian_embedding"],
                r"privacy\.serving=noisy: graph_once does not add noise to held-out rows: use clean\. "
                "Those that do: .*vfl",
            ),
            (
                ["algorithm=mtcd", "dataset=ridge", "privacy=gaussian_embedding"],
                r"privacy\.serving=noisy: dataset\.problem=ridge holds out no rows to be served: clean",
            ),
        ],
        2,
    ),
)
def test_it_is_refused_where_nothing_noises_rows_that_are_served(words: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        vflbench.run([*words, "privacy.serving=noisy", "dry_run=true"])


def test_who_learns_what_says_what_covers_rows_that_are_served() -> None:
    def served(algorithm: str, **privacy: Any) -> list[tuple[str, str | None, bool, str]]:
        keys = {**vars(registry.option_config("algorithm", algorithm)()), "protection": "none"}
        entries = exposure.table(algorithm, keys, privacy)["entries"]
        shown = [one for one in entries if one["phase"] == "evaluation" and one["tags"] != ["partial"]]
        return [(one["form"], one["covered_by"], one["exact"], one["note"]) for one in shown]

    for name in (one for one, info in registry.algorithms().items() if info.noisy_serving):
        mechanism = next(one for one in registry.algorithms()[name].privacy if one.endswith("_embedding"))
        keys = {"name": mechanism, "epsilon": 8.0}
        graph = "graph" in registry.algorithms()[name].layouts
        for form, covered, exact, note in served(name, **keys, serving="noisy"):
            assert (form, covered, exact) == ("noised", mechanism, False)
            assert ("adds to that of training" if graph else "apart from that of training") in note
        for form, covered, exact, note in served(name, **keys, serving="clean"):
            assert form in ("clear", "summed") and (covered, exact) == (None, True)
            assert "no guarantee for a row that is served" in note
        for form, covered, _, note in served(name, **keys | {"epsilon": math.inf}, serving="noisy"):
            assert form in ("clear", "summed") and covered is None and "guarantee" not in note
        assert len(served(name, **keys)) == (2 if graph else 1)
    assert all("guarantee" not in note for *_, note in served("vfl", name="label_rr", epsilon=1.0))
