"""Every algorithm with every mechanism at epsilon 8: it trains a round, spends what was asked and sends what the table
of who learns what says, or says why not.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import vflbench
from tests.every import for_each
from vflbench import registry
from vflbench.types import ConfigError

RUNS = "runs"
EPSILON = 8.0
TABLES = [
    *("dataset=star_schema", "dataset.rows=200", "dataset.dimension_rows=20", "dataset.width=3"),
    "dataset.task=classes",
]
JOINS = [*TABLES, "rounds=1", "algorithm.batch_size=64"]
COLUMNS = ["dataset=breast_cancer", "dataset.problem=sparse_logistic", "algorithm.parties=3", "algorithm.lr=0.1"]
SHARDS = ["dataset=digits", "model.widths=[4]", "rounds=1"]
WORKERS = [*SHARDS, "algorithm.workers=3"]
ONCE = ["dataset=digits", "dataset.problem=learning", "rounds=1", "algorithm.learner=linear"]
SPLIT = [*TABLES, "epochs=1", "model.depth=2", "model.width=8", "algorithm.batch_size=32"]
GRAPH = ["dataset=digits_graph", "model.hidden=12", "rounds=1"]
ROWS = ["dataset=ridge", "dataset.samples=40", "dataset.features=24", "algorithm.parties=4", "rounds=1"]
# Algorithm -> the smallest run.
SMALL: dict[str, list[str]] = {
    **dict.fromkeys(
        ("rfl_sgd_v", "rfl_sgd", "rfl_admm_v", "rfl_admm", "vfl_admm", "vfl_sgd", "centralized_join"), JOINS
    ),
    "gd_join": [*TABLES, "rounds=1"],
    "gram_once": TABLES,
    "centralized_gd": [*COLUMNS, "rounds=1"],
    **dict.fromkeys(("allreduce_sgd", "easgd", "d_psgd", "leasgd", "leasgd_async", "fedavg", "local_sgd"), WORKERS),
    **dict.fromkeys(("choco_sgd", "powergossip", "fedbuff"), WORKERS),
    "centralized_sgd": SHARDS,
    "send_once": ONCE,
    "vfl": SPLIT,
    "hetero_lr": [*TABLES, "epochs=1", "algorithm.batch_size=32"],
    "secureboost": [*TABLES, "rounds=1"],
    "avfl": SPLIT,
    "vfl_ps": [*SPLIT, "algorithm.workers=2"],
    "avfl_ps": [*SPLIT, "algorithm.workers=2"],
    "pubsub_vfl": [*SPLIT, "algorithm.workers=2", "algorithm.passive_workers=2"],
    **dict.fromkeys(("glasu", "glasu_exact", "simulated_centralized", "graph_once"), GRAPH),
    **dict.fromkeys(("centralized_gnn", "standalone_gnn", "ensemble"), GRAPH),
    "svfl": [*ROWS, "algorithm.lr=0.01"],
    **dict.fromkeys(("stcd", "dcpa", "tree_cg", "extra"), ROWS),
    "mtcd": [*ROWS[:-1], "rounds=2"],  # of a convex problem the first round has no uplink
}


def row(said: str, *runs: str) -> dict[str, str]:
    """Each mechanism of the registry: `runs` run, and `said` is said to all others."""
    return {name: RUNS if name in runs else said for name in registry.option_entries("privacy") if name != "none"}


SPLIT_LEARNING = ("gdp_embedding", "label_rr", "gaussian_gradient", "embedding_and_label")
SILENT = {
    **row("can have: none (it sends nothing)"),
    "dp_sgd": "can have: none (a node's features are in the gradients of all nodes within L hops",
}
# Algorithm -> mechanism -> RUNS, or a phrase of the refusal.
TABLE: dict[str, dict[str, str]] = {
    **dict.fromkeys(
        ("gd_join", "rfl_sgd_v", "rfl_sgd", "rfl_admm_v", "rfl_admm", "vfl_admm", "vfl_sgd"),
        row("can have: none, label_dp, dp_sgd, tablepuppet", "label_dp", "dp_sgd", "tablepuppet"),
    ),
    **dict.fromkeys(
        ("centralized_join", "centralized_gd", "centralized_sgd", "local_sgd"),
        row("can have: none, dp_sgd", "dp_sgd"),
    ),
    **dict.fromkeys(
        ("allreduce_sgd", "easgd", "d_psgd", "choco_sgd", "powergossip", "leasgd", "leasgd_async", "fedavg", "fedbuff"),
        row("can have: none, dp_sgd", "dp_sgd"),
    ),
    "send_once": row(
        "can have: none, gaussian_embedding, gdp_embedding, rr_bins", "gaussian_embedding", "gdp_embedding", "rr_bins"
    ),
    "gram_once": row("can have: none (tables send whole rows and exact sums, which no mechanism clips or noises)"),
    **dict.fromkeys(
        ("vfl", "avfl", "vfl_ps", "avfl_ps", "pubsub_vfl", "hetero_lr"),
        row(f"can have: none, {', '.join(SPLIT_LEARNING)}", *SPLIT_LEARNING),
    ),
    **dict.fromkeys(
        ("glasu", "glasu_exact", "graph_once"),
        row("can have: none, gaussian_embedding, edge_rr", "gaussian_embedding", "edge_rr"),
    ),
    "simulated_centralized": {
        **row("can have: none, gaussian_embedding", "gaussian_embedding"),
        "edge_rr": "can have: none, gaussian_embedding (edges are given to all clients)",
    },
    "centralized_gnn": SILENT,
    "standalone_gnn": SILENT,
    "ensemble": row("can have: none (training sends nothing, and no mechanism covers votes of the evaluation)"),
    "secureboost": row("can have: none (protection=paillier hides the gradients"),
    "extra": row("can have: none (its differences of gradients"),
    "tree_cg": row("can have: none (noise in a product breaks the conjugacy"),
    **dict.fromkeys(("svfl", "mtcd", "stcd", "dcpa"), row("can have: none, gaussian_embedding", "gaussian_embedding")),
}
FAST = {  # two that run and two that are refused
    *(("centralized_gd", "dp_sgd"), ("vfl", "embedding_and_label"), ("vfl", "dp_sgd"), ("ensemble", "dp_sgd")),
}


def thinned() -> Iterator[tuple[str, str]]:
    """Of algorithms with the same row, each with one mechanism and each mechanism with one: what noises is shared.

    Of mechanisms that they refuse with the same words, the first one's first.
    """
    for of in {id(of): of for of in TABLE.values()}.values():
        alike = [name for name, own in TABLE.items() if own is of]
        runs = [mechanism for mechanism, said in of.items() if said == RUNS]
        for number in range(max(len(alike), len(runs)) if runs else 0):
            yield alike[number % len(alike)], runs[number % len(runs)]
        first = {said: mechanism for mechanism, said in reversed(of.items()) if said != RUNS}
        yield from ((alike[0], mechanism) for mechanism in first.values())


@pytest.mark.parametrize(
    ("algorithm", "mechanism"),
    [
        pytest.param(*pair, id="-".join(pair), marks=[] if pair in FAST else [pytest.mark.slow])
        for pair in dict.fromkeys(thinned())
    ],
)
def test_it_runs_or_is_refused_by_name(algorithm: str, mechanism: str, tmp_path: Path) -> None:
    said = TABLE[algorithm][mechanism]
    words = [f"algorithm={algorithm}", *SMALL[algorithm], f"privacy={mechanism}", f"privacy.epsilon={EPSILON:g}"]
    more = ["plot=none", "floor=none", "engine.threads=1", f"hydra.run.dir={tmp_path / 'run'}"]
    if said != RUNS:
        with pytest.raises(ConfigError) as refused:
            vflbench.run([*words, *more])
        assert mechanism in str(refused.value) and said in str(refused.value)
        assert not (tmp_path / "run").exists()
        return
    ended = vflbench.run([*words, *more])
    found = ended.summary["privacy"]
    assert ended.status == "completed" and found["mechanism"] == mechanism
    assert found["target"] == {"epsilon": EPSILON} and 0.99 * EPSILON <= found["epsilon"] <= EPSILON * (1 + 1e-12)
    assert found["releases"]["planned"] == found["releases"]["done"] > 0
    # R1.2, under the mechanism; a notice is sent only where a batch is given up
    entries, rows = ended.summary["exposure"]["entries"], ended.messages[ended.messages["link"] != "local"]
    told = {tag for one in entries if one["how"] == "sent" and one["phase"] != "evaluation" for tag in one["tags"]}
    assert told - {"notice"} <= set(rows[rows["phase"].isin(["setup", "train"])]["tag"]) <= told
    assert found["covers"] == "model" or mechanism in {one["covered_by"] for one in entries}


@for_each("algorithm", TABLE)
def test_the_table_says_what_the_algorithm_declares(algorithm: str) -> None:
    runs = [mechanism for mechanism, said in TABLE[algorithm].items() if said == RUNS]
    assert sorted(runs) == sorted({*registry.algorithms()[algorithm].privacy} - {"none"})
    assert TABLE[algorithm].keys() == {*registry.option_entries("privacy")} - {"none"}


def test_every_algorithm_is_in_the_table_and_few_refuse_all() -> None:
    assert TABLE.keys() == registry.algorithms().keys()
    assert set(thinned()) >= FAST
    silent = {"centralized_gnn", "standalone_gnn"}  # of the papers' methods and baselines
    rivals = {"gram_once", "ensemble", "tree_cg", "extra", "secureboost"}
    assert {name for name, of in TABLE.items() if RUNS not in of.values()} == silent | rivals
