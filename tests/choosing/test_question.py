"""The words of a question: what is wrong is told together, with the closest match."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from vflbench import cli, registry
from vflbench.choosing import candidates, question
from vflbench.types import ConfigError, VflbenchError


def test_a_question_is_read() -> None:
    asked = question.parse(
        ["dataset=cora", "target=0.8", "budget=1.5h", "trials=4", "network.latency_ms=50", "privacy.epsilon=4"],
        "choose",
    )
    assert (asked.dataset, asked.target, asked.budget, asked.trials, asked.epsilon) == ("cora", 0.8, 5400.0, 4, 4.0)
    assert asked.asked()["seeds"] == [1, 2, 3]  # not the seed that tunes


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["target=1", "trials=1", "dataset=cora,bank"], r"dataset=cora,bank: several values: choose asks one question"),
        (["targt=1", "trials=1"], r"targt=1: unknown.*Did you mean 'target'"),
        (["target=0.8"], "say how long it may take, or how many configurations of each method it tries"),
        (["trials=2"], "say what must be reached on validation rows"),
        (["target=a", "trials=0"], "(?s)target=a: must be a number.*trials=0: must be a whole number of at least 1"),
        (["target=1", "budget=10"], "budget=10: must be a time above 0 with units, .* Did you mean '10m'"),
        (["target=1", "trials=1", "cost=byte"], "cost=byte: must be one of bytes, seconds, weighted.*'bytes'"),
        (["target=1", "trials=1", "demand=colums"], "demand=colums: .*Did you mean 'columns'"),
        (["target=1", "trials=1", "algorithm=glasu,glas"], "algorithm=glas: unknown algorithm.*'glasu'"),
        (["target=1", "trials=1", "dataset=cora", "dataset=bank"], "dataset=bank: is given twice"),
        (["target=1", "trials=1", "privacy.epsilon=4,0"], "privacy.epsilon=4,0: several values"),
        (["target=1", "trials=1", "privacy.epsilon=four"], "privacy.epsilon=four: must be a number above 0"),
        (["target=1", "trials=1", "privacy.epsilon=-1"], "privacy.epsilon=-1: must be a number above 0"),
        (["target=1", "trials=1", "privacy.delta=1e-5"], "privacy.delta=1e-5: asks nothing by itself"),
        (["target=1", "trials=1", "privacy=none", "privacy.epsilon=4"], "privacy.epsilon=4: privacy=none has no noise"),
        (
            ["target=1", "trials=1", "launcher=rai"],
            "launcher=rai: where runs are trained, .*Did you mean 'ray'",
        ),
        (["target=1", "trials=1", "hydra/launcher=ray"], "hydra/launcher=ray: of sweeps; here: launcher=ray jobs=2"),
        (
            ["target=1", "trials=1", "launcher.num_cpus=2"],
            "launcher.num_cpus=2: processes of this machine reserve nothing: .* jobs=N",
        ),
        (
            ["target=1", "trials=1", "launcher=ray", "engine=ray"],
            "launcher=ray: with engine=ray the parties",
        ),
        (["target=1", "trials=1", "algorithm.lr=1"], "algorithm.lr=1: belongs to a method: choose searches for it"),
    ],
)
def test_what_is_wrong_is_told(words: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        question.parse(words, "choose")


RAY = ["target=1", "trials=1", "launcher=ray"]
LOCAL = ["target=1", "trials=1", "launcher=submitit_local"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([*RAY, "launcher.num_cpus=2"], "launcher.num_cpus=2: processes of this machine reserve nothing"),
        ([*RAY, "engine.address=auto", "launcher.num_cpu=2"], "launcher.num_cpu=2: unknown; .* 'launcher.num_cpus'"),
        ([*RAY, "engine.address=auto", "launcher.num_cpus=all"], "launcher.num_cpus=all: must be a number"),
        ([*RAY, "engine.address=atuo"], r"engine.address=atuo: .*HOST:PORT.* Did you mean 'auto'"),
        ([*LOCAL, "launcher.partition=cpu"], "launcher.partition=cpu: unknown; launcher=submitit_local is told: name"),
        ([*LOCAL, "launcher.timeout_min=1h"], "launcher.timeout_min=1h: must be a whole number"),
        (["target=1", "trials=1", "launcher=submitit_slurm"], "Slurm is not here: there is no command srun"),
    ],
)
def test_what_a_launcher_cannot_be_told(words: list[str], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: True)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigError, match=said):
        question.parse(words, "choose")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"is not installed: pip install 'vflbench\[(ray|slurm)\]'"):
        question.parse(words, "choose")


def test_the_address_of_a_cluster_is_no_word_of_the_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: True)
    asked = question.parse([*RAY, "engine.address=10.0.0.1:6379", "launcher.num_gpus=0.5"], "choose")
    assert (asked.address, asked.words, asked.resources) == ("10.0.0.1:6379", [], {"num_gpus": 0.5})


def entered(*words: str) -> tuple[set[str], dict[str, str]]:
    """Names of the methods that enter, and why the others do not."""
    methods, excluded = candidates.enter(question.parse([*words, "trials=1"], "choose"))
    return {method.name for method in methods}, {one.algorithm: one.reason for one in excluded}


def test_who_enters_is_who_fits_the_data() -> None:
    names, reasons = entered("dataset=digits_graph", "target=0.8")
    assert names == {"glasu", "glasu_exact", "graph_once", "ensemble", "simulated_centralized"}
    assert reasons["centralized_gnn"] == "one party has all data: it is a ceiling, not a federation"
    assert reasons["standalone_gnn"] == "it sends nothing: it is the floor that methods are compared with"
    assert reasons["vfl"] == "it needs aligned data, and digits_graph gives graph"


@pytest.mark.slow
def test_baselines_that_send_nothing_are_tuned_like_the_others() -> None:
    words = ["algorithm=centralized_gnn,standalone_gnn", "dataset=digits_graph", "trials=1"]
    assert {one.name for one in candidates.enter(question.parse(words, "tune"))[0]} == {
        "centralized_gnn",
        "standalone_gnn",
    }


@pytest.mark.slow
def test_epsilon_asks_every_mechanism_and_a_demand_excludes_by_name() -> None:
    names, reasons = entered("dataset=digits_graph", "target=0.8", "privacy.epsilon=4", "algorithm=glasu,ensemble")
    assert {"glasu · edge_rr", "glasu · gaussian_embedding"} <= names
    assert reasons["ensemble"].startswith("no mechanism gives it an epsilon: training sends nothing")
    names, reasons = entered("dataset=star_schema", "target=0.8", "demand=columns", "algorithm=gram_once,rfl_sgd_v")
    assert names == {"rfl_sgd_v"} and reasons["gram_once"] == "it shows raw"


ENCRYPTING = {"secureboost", "hetero_lr"}


@pytest.mark.slow
def test_encryption_leaves_those_that_can_encrypt() -> None:
    task = ["dataset=breast_cancer", "dataset.problem=learning", "target=0.9"]
    assert {name for name, info in registry.algorithms().items() if "paillier" in info.protections} == ENCRYPTING
    names, reasons = entered(*task, "protection=paillier", "algorithm=secureboost,hetero_lr,vfl")
    assert names == ENCRYPTING
    assert reasons["vfl"] == "protection=paillier: vfl can have: none"


@pytest.mark.slow
def test_where_no_method_enters_all_reasons_are_told() -> None:
    words = [
        "dataset=bank",
        "target=0.9",
        "protection=paillier",
        "privacy=gdp_embedding",
        "privacy.epsilon=4",
        "trials=1",
    ]
    asked = question.parse([*words, "algorithm=hetero_lr,vfl,vfl_ps"], "choose")
    with pytest.raises(VflbenchError) as caught:
        candidates.enter(asked)
    told = str(caught.value)
    assert (
        "\n  hetero_lr: privacy=gdp_embedding: cannot change what is encrypted: none with protection=paillier" in told
    )
    assert told.endswith("vfl, vfl_ps: protection=paillier: it can have: none")


@pytest.mark.slow
def test_a_topology_leaves_out_who_needs_other_links() -> None:
    names, reasons = entered("dataset=digits", "target=0.8", "topology=ring", "algorithm=mtcd,vfl")
    assert names == {"mtcd"} and reasons["vfl"] == "topology=ring: vfl can have: star"
    with pytest.raises(ConfigError, match=r"topology\.hub=1: unknown key; topology=ring has no keys"):
        entered("dataset=digits", "target=0.8", "topology=ring", "topology.hub=1")


@pytest.mark.slow
def test_links_are_between_as_many_parties_as_the_data_are_divided_between(tmp_path: Path) -> None:
    edges = tmp_path / "edges.txt"
    edges.write_text("".join(f"client_{k} server\nclient_{k} client_{(k + 1) % 4}\n" for k in range(4)))
    words = ["dataset=digits", "target=0.8", "algorithm=mtcd,svfl,vfl"]  # mtcd and svfl have 40 clients by default
    names, _ = entered(*words, "topology=edge_list", f"topology.edges={edges}", "algorithm.parties=4")
    assert names == {"mtcd", "svfl"}
    with pytest.raises(ConfigError, match=r"topology\.clusters=8: must be at most the number of clients, 4"):
        entered(*words, "topology=clusters", "topology.clusters=8", "algorithm.parties=4")


def test_epochs_leave_out_no_method_that_sends_once() -> None:
    names, _ = entered("dataset=star_schema", "target=0.6", "epochs=5", "algorithm=gram_once,vfl_sgd")
    assert names == {"gram_once", "vfl_sgd"}


@pytest.mark.slow
def test_the_data_are_divided_alike() -> None:
    methods, _ = candidates.enter(
        question.parse(
            ["dataset=breast_cancer", "dataset.problem=learning", "target=0.8", "trials=1", "algorithm=mtcd,vfl"],
            "choose",
        )
    )
    assert all("algorithm.parties=2" in method.words for method in methods)  # mtcd's default is 40
    words = ["dataset=movielens", "dataset.source=synthetic", "target=1.1", "trials=1", "algorithm=svfl,vfl"]
    methods, _ = candidates.enter(question.parse(words, "choose"))
    assert len(methods) == 2  # a party for each of three tables, as each method knows by itself
    assert not any(word.startswith("algorithm.parties=") for method in methods for word in method.words)


def test_a_wrong_value_is_told_before_any_folder_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["choose", "dataset=cora", "target=0.8", "trials=1", "network.latncy_ms=3"]
    assert cli.command(words) == 1
    assert "Did you mean 'network.latencies'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_folder_with_something_else_in_it_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("x")
    words = ["choose", "dataset=digits_graph", "target=0.8", "trials=1", "algorithm=glasu", f"out={tmp_path}"]
    assert cli.command(words) == 1
    assert "mine.txt: not what vflbench wrote there" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
