"""The table of who learns what, for configurations, and as `vflbench privacy` prints it."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from typing import Any

import pytest

from tests.every import for_each
from vflbench import exposure, registry
from vflbench.cli import privacy
from vflbench.types import FORMS, KINDS, TIMES, ConfigError, Given, VflbenchError

KEYS = {
    *("observer", "subject", "kind", "form", "how", "phase", "tags", "times", "exact", "covered_by", "proof", "note"),
}
GAUSSIAN = {"name": "gaussian_embedding", "epsilon": 8.0}
SHARDED = [(name, info) for name, info in registry.algorithms().items() if info.layouts == ("sharded",)]


def entries(algorithm: str, mechanism: dict[str, Any] | None = None, **keys: Any) -> list[dict[str, Any]]:
    """The table of an algorithm with its defaults, but for some keys."""
    every = vars(registry.option_config("algorithm", algorithm)()) | keys
    found: list[dict[str, Any]] = exposure.table(algorithm, every, mechanism or {})["entries"]
    return found


def of(found: list[dict[str, Any]], tag: str, how: str = "sent", phase: str = "train") -> list[dict[str, Any]]:
    return [one for one in found if tag in one["tags"] and one["how"] == how and one["phase"] == phase]


def forms(found: list[dict[str, Any]], tag: str, kind: str) -> set[tuple[str, str | None]]:
    """(form, covered_by) of all that the run's messages of a tag carry or imply, of a kind."""
    return {
        (one["form"], one["covered_by"])
        for how in ("sent", "implied")
        for one in of(found, tag, how)
        if one["kind"] == kind
    }


@for_each("algorithm", registry.algorithms())
def test_entries_have_the_form_that_programs_read(algorithm: str) -> None:
    for entry in entries(algorithm):
        assert set(entry) == KEYS and entry["kind"] in KINDS and entry["form"] in FORMS
        assert entry["how"] in ("sent", "implied", "setup") and entry["phase"] in ("setup", "train", "evaluation")
        assert isinstance(entry["times"], int) or entry["times"] in TIMES
        assert bool(entry["tags"]) == (entry["how"] != "setup") and (entry["proof"] is not None) == (
            entry["how"] == "implied"
        )
        assert not entry["exact"] or entry["form"] in ("clear", "summed")
        assert entry["phase"] != "evaluation" or entry["covered_by"] is None


@pytest.mark.parametrize(
    ("algorithm", "key", "tag", "kind"),
    [
        ("glasu", "parties", "aggregate", "embeddings"),
        ("glasu_exact", "parties", "backward", "gradients"),
        ("svfl", "parties", "token", "embeddings"),
        ("mtcd", "parties", "token", "embeddings"),
        ("rfl_admm", "parts", "consensus", "parameters"),
        ("allreduce_sgd", "workers", "mean", "gradients"),
    ],
)
def test_a_sum_over_two_parties_is_clear(algorithm: str, key: str, tag: str, kind: str) -> None:
    assert ("summed", None) in forms(entries(algorithm, **{key: 3}), tag, kind)
    two = [one for one in of(entries(algorithm, **{key: 2}), tag) if one["kind"] == kind]
    assert {one["form"] for one in two} == {"clear"} and any(exposure.TWO in one["note"] for one in two)


def test_parts_side_by_side_are_no_sum() -> None:
    assert forms(entries("glasu", parties=3, aggregate="cat"), "aggregate", "embeddings") == {("clear", None)}
    assert forms(entries("svfl", parties=3, aggregation="concat"), "token", "embeddings") == {("clear", None)}


@pytest.mark.parametrize(("algorithm", "aggregate"), [("svfl", "concat"), ("mtcd", "concat"), ("svfl", "mean")])
def test_a_model_that_says_how_parts_meet_says_it_here(
    algorithm: str, aggregate: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [f"algorithm={algorithm}", "algorithm.parties=3", "model=vertical", f"model.aggregate={aggregate}"]
    assert privacy.command([*words, "--json"]) == 0
    sent = of(json.loads(capsys.readouterr().out)["entries"], "token")
    found = {one["form"] for one in sent if one["kind"] == "embeddings"}
    assert found == {"clear" if aggregate == "concat" else "summed"}


def test_hashed_keys_can_be_listed() -> None:
    (hashed,) = of(entries("rfl_admm_v"), "keys", phase="setup")
    assert hashed["form"] == "hashed" and hashed["note"].startswith("enumerable")


@for_each("algorithm", registry.algorithms())
def test_every_mechanism_covers_something_that_is_sent_or_follows_from_it(algorithm: str) -> None:
    exposes = [one for one in registry.exposed(algorithm) if not isinstance(one, Given)]
    named = {mechanism.partition(".")[0] for one in exposes for mechanism in one.noised}
    assert not exposes or set(registry.algorithms()[algorithm].privacy) - {"none"} <= named


@pytest.mark.parametrize("algorithm", ["vfl", "vfl_ps", "pubsub_vfl"])
def test_what_noise_leaves_of_labels_in_gradients(algorithm: str) -> None:
    """Randomised labels are covered. Noise on gradients hides them a little, and covers them not at all."""

    def labels(**keys: Any) -> tuple[str, bool, str | None]:
        (one,) = of(entries(algorithm, keys), "gradient", "implied")
        return one["form"], one["exact"], one["covered_by"]

    assert labels() == ("clear", True, None) == labels(name="gdp_embedding", epsilon=8.0)
    assert labels(name="label_rr", epsilon=1.0) == ("noised", False, "label_rr")
    assert labels(name="label_rr", epsilon=math.inf) == ("clear", True, None)
    assert labels(name="gaussian_gradient", epsilon=8.0) == ("clear", False, None)
    both = {"name": "embedding_and_label", "epsilon": math.inf}
    assert labels(**both, label_epsilon=1.0) == ("noised", False, "embedding_and_label")
    assert labels(**both, label_epsilon=None) == ("clear", True, None)
    for clipped in ({"mu": math.inf}, {"noise_multiplier": 0.0}):  # labels have their default, epsilon 8
        given = {"name": "embedding_and_label", "epsilon": None, "label_epsilon": None, **clipped}
        assert labels(**given) == ("noised", False, "embedding_and_label")
        assert labels(**given | {"label_epsilon": math.inf}) == ("clear", True, None)
    sent = of(entries(algorithm, {**both, "epsilon": 8.0}), "embedding")
    assert {one["form"] for one in sent if one["kind"] == "embeddings"} == {"noised"}


@pytest.mark.parametrize(("algorithm", "tag"), [("svfl", "representation"), ("stcd", "token"), ("dcpa", "dual")])
def test_noise_on_tokens_covers_what_follows_from_them(algorithm: str, tag: str) -> None:
    noised = entries(algorithm, GAUSSIAN)
    for kind in ("embeddings", "features"):
        assert forms(noised, tag, kind) <= {("noised", "gaussian_embedding")}
    assert of(noised, tag) and of(noised, tag, "implied")
    assert {one["covered_by"] for one in noised if one["how"] == "setup"} == {None}


def test_edges_are_covered_by_no_noise_on_rows() -> None:
    noised = entries("glasu", GAUSSIAN)
    assert forms(noised, "nodes", "edges") == {("clear", None)}
    assert forms(noised, "embedding", "edges") == {("noised", "gaussian_embedding")}


def test_edges_that_clients_have_from_the_start_are_said() -> None:
    """R1.4: under algorithm.sampling=undropped neighbours are sampled from all edges."""
    for sampling in ("own", "undropped"):
        given = [one for one in entries("glasu", sampling=sampling) if one["how"] == "setup" and one["kind"] == "edges"]
        assert [one["observer"] for one in given] == ["client"] * (sampling == "undropped")


def test_randomised_edges_cover_edges_and_rows_only_where_those_get_noise() -> None:
    for rows, covered in ((None, ("clear", None)), (math.inf, ("clear", None)), (8.0, ("noised", "edge_rr"))):
        keys = {"name": "edge_rr", "epsilon": 8.0, "row_epsilon": rows}
        found = entries("glasu_exact", keys)
        for tag in ("nodes", "embedding", "aggregate"):
            assert forms(found, tag, "edges") == {("noised", "edge_rr")}
        assert forms(found, "embedding", "embeddings") == forms(found, "gradient", "gradients") == {covered}
        for form, kind in (("raw", "raw"), ("propagated", "projection")):
            once = entries("graph_once", keys, form=form)
            assert forms(once, "features", kind) == {covered} and forms(once, "features", "edges") == {
                ("noised", "edge_rr")
            }
    unhidden = entries("glasu", {"name": "edge_rr", "epsilon": math.inf, "row_epsilon": 8.0})
    assert forms(unhidden, "nodes", "edges") == {("clear", None)}
    assert forms(unhidden, "embedding", "embeddings") == {("noised", "edge_rr")}


@pytest.mark.parametrize("keys", [{"epsilon": math.inf}, {"mu": math.inf}, {"noise_multiplier": 0.0}])
def test_a_mechanism_that_only_clips_covers_nothing(keys: dict[str, float]) -> None:
    assert {one["covered_by"] for one in entries("glasu", {"name": "gaussian_embedding", **keys})} == {None}


@pytest.mark.parametrize(
    ("keys", "labels", "models", "predictions"),
    [
        ({"epsilon": 8.0}, True, True, False),
        ({"epsilon": math.inf}, False, False, False),
        ({"epsilon": math.inf, "label_noise": 1.0, "prediction_noise": 1.0}, True, False, True),
        ({"noise_multiplier": 0.0}, True, False, False),
        ({"epsilon": 8.0, "split": [0.5, 0.5]}, True, True, True),
        ({"epsilon": math.inf, "split": [0.5, 0.5]}, False, False, False),
    ],
)
def test_each_part_of_a_mechanism_covers_its_own(
    keys: dict[str, float], labels: bool, models: bool, predictions: bool
) -> None:
    found = entries("rfl_admm", {"name": "tablepuppet", "label_noise": None, "prediction_noise": None, **keys})
    covered = {
        tag: forms(found, tag, kind) for tag, kind in (("parameters", "parameters"), ("prediction", "embeddings"))
    }
    covered["labels"] = {(one["form"], one["covered_by"]) for one in of(found, "labels", phase="setup")}
    for tag, noised in (("labels", labels), ("parameters", models), ("prediction", predictions)):
        assert covered[tag] == {("noised", "tablepuppet") if noised else ("clear", None)}, tag


@for_each("algorithm", [name for name, info in SHARDED if "pooled" not in info.assumes])
def test_what_workers_know_of_all_rows_before_any_message_is_said(algorithm: str) -> None:
    """R1.4: sizes of shards, and the means and scales by which the columns of a table were standardised."""
    given = {(one["subject"], one["kind"]) for one in entries(algorithm) if one["how"] == "setup"}
    assert {("worker", "sizes"), ("worker", "sums")} <= given


def test_losses_are_noised_where_they_are_ranked_so() -> None:
    private = {"name": "dp_sgd", "epsilon": 8.0}
    assert forms(entries("leasgd", private), "loss", "sums") == {("noised", "dp_sgd")}
    assert forms(entries("leasgd", private, ranking="running"), "loss", "sums") == {("clear", None)}
    assert forms(entries("leasgd"), "loss", "sums") == {("clear", None)}


# --- the command ------------------------------------------------------------------------------------------------------


def test_all_are_printed_without_data_and_without_torch() -> None:
    code = (
        "import sys; from vflbench.cli import privacy; privacy.command(sys.argv[1:]); "
        "sys.exit(bool({'torch', 'pandas', 'hydra'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code, "--json"], check=True, capture_output=True, text=True)
    tables = json.loads(run.stdout)
    assert [one["algorithm"] for one in tables] == list(registry.algorithms())
    assert all(set(one) == {"algorithm", "config_hash", "entries", "note"} for one in tables)
    found = {one["algorithm"]: one for one in tables}
    assert "trusted with the labels" in found["rfl_admm_v"]["note"] and not found["vfl"]["note"]
    assert found["local_sgd"]["entries"] == [one for one in found["local_sgd"]["entries"] if one["how"] == "setup"]


def test_a_configuration_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert privacy.command(["algorithm=glasu", "privacy=gaussian_embedding", "algorithm.parties=2", "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert table["algorithm"] == "glasu" and len(table["config_hash"]) > 5
    assert forms(table["entries"], "aggregate", "embeddings") == {("noised", "gaussian_embedding")}
    assert privacy.command(["algorithm=glasu,vfl"]) == 0
    text = capsys.readouterr().out
    assert text.index("glasu:") < text.index(privacy.EVALUATIONS) < text.index("vfl:")


def test_what_is_wrong_is_told() -> None:
    with pytest.raises(ConfigError, match="privacy=dp_sgd: vfl can have"):
        privacy.command(["algorithm=vfl", "privacy=dp_sgd"])
    with pytest.raises(VflbenchError, match="unknown algorithm"):
        privacy.command(["algorithm=glasuu"])
    with pytest.raises(VflbenchError, match="name the algorithm that privacy=dp_sgd is for"):
        privacy.command(["privacy=dp_sgd"])
    with pytest.raises(VflbenchError, match=r"'vlf' is no key=value\..* Did you mean 'algorithm=vfl'\?"):
        privacy.command(["vlf"])
    with pytest.raises(VflbenchError, match=r"'runs/a' is no key=value\. A run's own table is in its summary\.json\.$"):
        privacy.command(["runs/a"])


def test_only_what_was_given_is_wrong() -> None:
    """The data set of no word, and a sweep's flag, are none of this command's."""
    with pytest.raises(ConfigError) as caught:
        privacy.command(["algorithm=vfl", "privacy=gdp_embedding,label_rr", "foo=1"])
    assert [one.key for one in caught.value.problems] == ["privacy", "foo"]
    assert "only algorithm can be several" in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        privacy.command(["algorithm=vfl", "dataset=cora", "foo=1"])
    assert [one.key for one in caught.value.problems] == ["foo", "dataset"]
