"""Options of a user's folder in a question: their files may be called anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from vflbench import registry
from vflbench.choosing import baselines, candidates, question, spaces
from vflbench.choosing.record import Record
from vflbench.cli import tune
from vflbench.types import ConfigError, VflbenchError

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLES = str(REPOSITORY / "examples")


def asked(words: str, folder: Path | str) -> question.Question:
    return question.parse(["target=0.8", "trials=1", *words.split()], "choose", str(folder))


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(REPOSITORY)  # paths in the examples are relative to it
    files = {
        "algorithm/mine.yaml": "defaults: [vfl]\nname: vfl\nlr: 0.02\n",
        "algorithm/lost.yaml": "name: vfll\n",
        "dataset/of/ours.yaml": "name: digits\n",
        "codec/few.yaml": "name: topk\nfraction: 0.1\n",
        "search/mine.yaml": "codec: [none, few, int8]\nmodel: [vertical, split_mlp]\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    "path", sorted((REPOSITORY / "examples" / "dataset").glob("*.yaml")), ids=lambda path: path.stem
)
def test_every_data_set_of_the_examples_is_known_by_its_own_name(path: Path, own: Path) -> None:
    one = asked(f"dataset={path.stem} algorithm=vfl_sgd", EXAMPLES)
    assert one.dataset == path.stem and one.data is not None and one.data.name in ("tabular_files", "sql")
    methods, _ = candidates.enter(one)
    assert [method.name for method in methods] == ["vfl_sgd"]
    record = Record(one.asked(), methods=methods)
    assert not list(baselines.tasks(record, one, Path("x")))  # tables: trees are the reference


def test_an_algorithm_of_the_users_enters_by_its_option(own: Path) -> None:
    methods, excluded = candidates.enter(asked("dataset=of/ours algorithm=mine,vfl", own))
    assert [(one.algorithm, one.registered) for one in methods] == [("mine", "vfl"), ("vfl", "vfl")] and not excluded
    assert methods[0].words[0] == "algorithm=mine" and "dataset=of/ours" in methods[0].words
    assert methods[0].space == {"codec": ["none", "few", "int8"], "model": ["vertical", "split_mlp"]}
    assert "algorithm.lr" in methods[1].space
    assert "algorithm.lr" in spaces.read("other", str(own), "vfl")  # without a space of its own: that of its method


def test_tuned_values_go_where_the_options_are_looked_for(own: Path) -> None:
    words = ["algorithm=mine", "dataset=of/ours", "trials=1"]
    place = tune.ask(words, str(own / "to"), str(own))[1]
    assert (place.file, place.entry) == (own / "to/tuned/mine.yaml", "of/ours")
    assert place.trials == own / "to/tuned/mine.csv"
    assert tune.ask(words, None, str(own))[1].trials == registry.config_dir().parent / "docs/results/tuning/mine.csv"


def test_values_that_exist_already_are_kept(own: Path) -> None:
    """Those of an older vflbench, in a file of their own, too; those of other noise are others."""
    words, to = ["algorithm=vfl", "dataset=of/ours", "trials=1"], own / "to"
    older = to / "tuned" / "private" / "gdp_embedding" / "vfl" / "of" / "ours.yaml"
    older.parent.mkdir(parents=True)
    older.write_text("# @package _global_\nalgorithm:\n  lr: 0.5\n")
    (to / "tuned" / "vfl.yaml").write_text("of/ours/label_rr:\n  algorithm.lr: 0.5\n")
    tune.ask(words, str(to), str(own))
    for mechanism in ("gdp_embedding", "label_rr"):
        noisy = [*words, f"privacy={mechanism}"]
        with pytest.raises(VflbenchError, match=f"of/ours/{mechanism} already exists: replace it with overwrite=true"):
            tune.ask(noisy, str(to), str(own))
        tune.ask([*noisy, "overwrite=true"], str(to), str(own))


def test_what_is_wrong_with_an_own_option_is_told(own: Path) -> None:
    with pytest.raises(ConfigError, match=r"algorithm=mien: unknown algorithm.* Did you mean 'mine'"):
        asked("algorithm=mien", own)
    with pytest.raises(ConfigError, match=r"algorithm.name=vfll: names no algorithm"):
        candidates.enter(asked("dataset=of/ours algorithm=lost", own))
    with pytest.raises(VflbenchError, match=r"dataset=our: unknown dataset.* Did you mean"):
        candidates.enter(asked("dataset=our algorithm=vfl", own))
