"""`vflbench explain`: what a key is for, and which layer its value comes from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hydra.types import RunMode

from tests.every import few_fast
from vflbench import cli, config
from vflbench.config import layers

LINKS = ("client_server", "client_client")


@pytest.fixture
def explain(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """`vflbench explain`; what it prints."""

    def told(*words: str, code: int = 0) -> str:
        assert cli.command(["explain", *words]) == code
        out, err = capsys.readouterr()
        return err if code else out

    return told


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A user's folder: tuned values, a preset made from another, and an option made from ours."""
    for file, text in {
        "tuned/vfl.yaml": "bank:\n  found: by me\n  algorithm.lr: 0.5\n  rounds: 7\n",
        "experiment/one.yaml": "# @package _global_\ndefaults: [{override /dataset: bank}]\nseed: 4\n"
        "algorithm: {batch_size: 32}\nhydra: {sweeper: {params: {algorithm.local_steps: '1,2'}}}\n",
        "experiment/two.yaml": "# @package _global_\ndefaults: [one, _self_]\nseed: 5\n",
        "network/slow.yaml": "defaults: [us_uk]\nclient_server: {latency_ms: 900}\n",
    }.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)
    return tmp_path


GIVEN = ["algorithm=vfl", "experiment=two", "network=slow", "algorithm.batch_size=16"]


def test_the_last_layer_that_has_a_key_counts(mine: Path) -> None:
    with config.session(GIVEN, mine) as hydra:
        cfg = config.compose(hydra, GIVEN)
        found = layers.origins(cfg.hydra)
    expected = {
        "algorithm.lr": ("tuned", mine / "tuned/vfl.yaml", "0.5"),
        "rounds": ("tuned", mine / "tuned/vfl.yaml", "7"),
        "seed": ("preset", mine / "experiment/two.yaml", "5"),
        "dataset": ("preset", mine / "experiment/one.yaml", "bank"),
        "algorithm": ("typed", None, "vfl"),
        "algorithm.batch_size": ("typed", None, "16"),
        "algorithm.optimizer": ("default", config.config_dir() / "algorithm/vfl.yaml", "adam"),
        "model": ("default", config.config_dir() / "algorithm/vfl.yaml", "mlp10"),
        "network.client_server.latency_ms": ("default", mine / "network/slow.yaml", "900"),
        "device": ("default", config.config_dir() / "config.yaml", "auto"),
    }
    assert {key: (found[key].name, found[key].file, str(found[key].values[key])) for key in expected} == expected
    for key, (_, _, value) in expected.items():  # and that is what was composed
        if "." in key or key in ("rounds", "seed", "device"):
            assert str(config.plain(cfg)[key.split(".")[0]] if "." not in key else _at(cfg, key)) == value


def _at(cfg: object, key: str) -> object:
    from omegaconf import OmegaConf

    return OmegaConf.select(cfg, key)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("preset", "lr", "file"),
    few_fast(
        [
            ("# @package _global_\ndefaults: [{/experiment@_global_: inner}, _self_]\n", 0.01, "inner"),
            (
                "# @package _global_\ndefaults: [{/experiment@_global_: [inner]}, _self_]\nalgorithm: {lr: 3}\n",
                3,
                "outer",
            ),
            ("# @package _global_\ndefaults: [_self_, inner@_here_]\nalgorithm: {lr: 3}\n", 0.01, "inner"),
            ("# @package _global_.algorithm\nlr: 3\nbatch_size: 64\n", 3, "outer"),
            ("# @package algorithm\ndefaults: [values@_here_]\n", 3, "values"),
        ],
        2,
    ),
)
def test_included_files_count_where_hydra_merges_them(preset: str, lr: float, file: str, tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment/inner.yaml").write_text("algorithm: {lr: 0.01, batch_size: 64}\n")
    (tmp_path / "experiment/values.yaml").write_text("lr: 3\nbatch_size: 64\n")
    (tmp_path / "experiment/outer.yaml").write_text(preset)
    words = ["algorithm=vfl", "dataset=bank", "experiment=outer"]
    with config.session(words, tmp_path) as hydra:
        cfg = config.compose(hydra, words)
        found = layers.origins(cfg.hydra)["algorithm.lr"]
        order = hydra.loader.compute_defaults_list("config", words, RunMode.RUN).defaults
        mine = [str(one.file.relative_to(tmp_path)) for one in layers.layers(cfg.hydra) if one.file and not one.ours]
        assert (cfg.algorithm.lr, cfg.algorithm.batch_size) == (lr, 64)
        assert (found.name, found.values["algorithm.lr"], found.file) == (
            "preset",
            lr,
            tmp_path / f"experiment/{file}.yaml",
        )
        assert layers.untyped(cfg.hydra) == {"algorithm.parties"}
        files = [f"{one.config_path}.yaml" for one in order]
        assert mine == [one for one in files if one.startswith("experiment/")]


@pytest.mark.parametrize("form", ["{algorithm: {lr: 0.5}}", "{algorithm.lr: 0.5}"])
def test_a_tuned_value_may_be_nested(form: str, tmp_path: Path) -> None:
    (tmp_path / "tuned").mkdir()
    (tmp_path / "tuned/vfl.yaml").write_text(f"bank: {form}\n")
    words = ["algorithm=vfl", "dataset=bank"]
    with config.session(words, tmp_path) as hydra:
        assert layers.origins(config.compose(hydra, words).hydra)["algorithm.lr"].name == "tuned"


def test_a_job_has_the_values_of_its_preset_however_these_are_written(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment/one.yaml").write_text(
        "# @package _global_\nhydra: {sweeper: {params: {seed: '1, 2', rounds: 'range(1,3)', epochs: 3}}}\n"
    )
    words = ["algorithm=vfl", "dataset=bank", "experiment=one", "seed=2", "rounds=2", "epochs=4"]
    with config.session(words, tmp_path) as hydra:
        found = layers.origins(config.compose(hydra, words).hydra)
    assert {key: found[key].name for key in ("seed", "rounds", "epochs")} == {
        "seed": "preset", "rounds": "preset", "epochs": "typed"
    }  # fmt: skip


def test_a_job_of_a_preset_that_sweeps_all_links_has_its_values_from_the_preset(
    explain: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment/links.yaml").write_text(
        "# @package _global_\ndefaults: [{override /algorithm: vfl}, {override /dataset: bank}]\nhydra:\n"
        "  mode: MULTIRUN\n  sweeper: {params: {network.latency_ms: '50,100', network.bandwidth_mbps: 200}}\n"
    )
    keys = [f"network.{links}.{leaf}" for leaf in ("latency_ms", "bandwidth_gbps") for links in LINKS]
    with config.session(["experiment=links"], tmp_path) as hydra:
        for job in config.plan(hydra, ["experiment=links"]).jobs or []:
            found = layers.origins(config.compose(hydra, job).hydra)
            assert [found[key].name for key in keys] == ["preset"] * 4, job
    text = explain("network.latency_ms", "--config-dir", str(tmp_path), "experiment=links")
    assert [line for line in text.splitlines() if " = " in line] == [
        "network.client_server.latency_ms = 50,100, preset, a sweep",
        "network.client_client.latency_ms = 50,100, preset, differs between jobs",
    ]


@pytest.mark.slow
def test_a_value_that_differs_between_the_jobs_of_a_sweep_is_explained_with_all_of_them(
    explain: Callable[..., str],
) -> None:
    first = [
        explain("rounds", f"experiment=comparison/{name}").splitlines()[1] for name in ("delays", "exchanges_server")
    ]
    assert first == [
        "rounds = 20,null, preset, differs between jobs",
        "rounds = 8,80,275, preset, differs between jobs",
    ]
    group = explain("algorithm", "experiment=comparison/exchanges_server").splitlines()
    assert ["algorithm.lr", "0.3,0.2", "preset"] in [line.split()[:3] for line in group]


def test_a_typed_mapping_is_its_keys() -> None:
    words = ["network.client_server={latency_ms: 5}"]
    with config.session(words) as hydra:
        found = layers.origins(config.compose(hydra, words).hydra)["network.client_server.latency_ms"]
    assert (found.name, found.values["network.client_server.latency_ms"]) == ("typed", 5)


@pytest.mark.slow
def test_only_what_nobody_wrote_or_typed_may_adapt_to_the_data(mine: Path) -> None:
    def found(*words: str) -> frozenset[str]:
        given = ["algorithm=vfl", "dataset=bank", *words]
        with config.session(given, mine) as hydra:
            return layers.untyped(config.compose(hydra, given).hydra)

    assert found() == {"algorithm.parties", "algorithm.batch_size"}
    assert found("algorithm.parties=2") == {"algorithm.batch_size"}  # the default's value, but typed
    assert found("experiment=two") == {"algorithm.parties"}


def test_a_key_is_explained(explain: Callable[..., str], mine: Path) -> None:
    text = explain("algorithm.lr", "--config-dir", str(mine), "algorithm=vfl", "dataset=bank")
    assert text.splitlines()[:3] == ["algorithm.lr = 0.5, tuned", "learning rate", "a number, greater than 0"]
    assert "conf/algorithm/vfl.yaml" in text and "bank: by me" in text
    assert "an integer, at least 2" in explain("algorithm.parties", "algorithm=vfl", "dataset=bank")
    assert explain("algorithm.local_steps", "experiment=glasu/table4").startswith(
        "algorithm.local_steps = 1,2,4,8,16, preset, a sweep"
    )


def test_a_group_is_explained_key_by_key(explain: Callable[..., str]) -> None:
    lines = explain("network", "network=lan", "network.latency_ms=3").splitlines()
    assert lines[0] == "network=lan, typed, from the command line"
    assert ["network.client_client.latency_ms", "3", "typed", "the", "command", "line"] in [*map(str.split, lines)]


def test_keys_that_are_no_values_of_a_configuration_are_explained(explain: Callable[..., str]) -> None:
    lines = explain("network.latency_ms", "network.latency_ms=3").splitlines()
    assert [line for line in lines if " = " in line] == [
        "network.client_server.latency_ms = 3, typed",
        "network.client_client.latency_ms = 3, typed",
    ]
    assert explain("experiment") == "experiment=null, default, from conf/config.yaml\n"


@pytest.mark.slow
def test_a_sweep_of_algorithms_is_explained_with_the_first(explain: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment/two.yaml").write_text(
        "# @package _global_\ndefaults: [{override /dataset: bank}]\n"
        "hydra: {mode: MULTIRUN, sweeper: {params: {algorithm: 'vfl,avfl'}}}\n"
    )
    words = ["--config-dir", str(tmp_path), "experiment=two", "seed=1,2", "algorithm.lr=0.5"]
    lines = explain("algorithm.optimizer", *words).splitlines()
    assert lines[0] == "the sweep has several options; explained with algorithm=vfl"
    assert lines[-1].endswith("conf/algorithm/vfl.yaml")
    assert "seed = 1,2, typed, a sweep" in explain("seed", *words).splitlines()


def test_a_key_that_a_run_still_needs_can_be_asked_about(
    explain: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert explain("dataset.files", "algorithm=vfl", "dataset=tabular_files").startswith("dataset.files = []")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["algorithm.lrr"], "explain=algorithm.lrr: this configuration has no such key. Did you mean 'algorithm.lr'?"),
        (["algorithm.lr", "algorithm=vlf"], "Did you mean 'vfl'?"),
        (["algorithm.lr", "algorithm.lrr=3"], "algorithm.lrr=3: unknown key"),
    ],
)
def test_what_is_wrong_is_told(explain: Callable[..., str], words: list[str], told: str) -> None:
    assert told in explain(*words, code=1)
