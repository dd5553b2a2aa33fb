"""`vflbench explain`: what a key is for, and which layer its value comes from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from vflbench import cli, config
from vflbench.config import layers


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
