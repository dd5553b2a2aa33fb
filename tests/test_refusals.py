"""One mistake is one problem; texts and numbers are read for the key that they are typed for."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import vflbench
from tests.every import few_fast
from vflbench import cli, config
from vflbench.choosing import duration, question
from vflbench.cli import tune
from vflbench.config import text_values
from vflbench.config.refused import REFUSED, RefusedError, sound
from vflbench.results.identity import config_hash
from vflbench.types import ConfigError, Count, Positive, Problem

# --- nothing is derived from what was refused -------------------------------------------------------------------------


def told(*overrides: str) -> list[str]:
    """The keys of the problems of a command line."""
    with pytest.raises(ConfigError) as caught, config.session(overrides) as hydra:
        config.plan(hydra, config.for_all_links(hydra, overrides))
    return [problem.key for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("words", "keys"),
    few_fast(
        [
            ("algorithm=vfl,vfl_sgd dataset=bank", ["algorithm"]),  # the default, glasu, needs graphs
            ("algorithm=vfl,vfl_sgd privacy=gdp_embedding", ["algorithm"]),
            ("algorithm=vfl,vfl_sgd dataset=bank algorithm.batch_size=8 model.hidden=[3]", ["algorithm"]),
            ("algorithm=vfl,vfl_sgd dataset=bank sed=1", ["algorithm", "sed"]),  # a mistake of its own
            ("dataset=bank,energy algorithm=glasu", ["dataset"]),
            ("dataset=bnak algorithm=glasu", ["dataset"]),
            ("privacy=dp_sgdd privacy.mu=1 algorithm=vfl_sgd dataset=bank", ["privacy"]),
            ("objective=bytes_to_target target=abc algorithm=vfl dataset=bank", ["target"]),
            ("objective=bytes_to_target targett=0.8 algorithm=vfl dataset=bank", ["targett"]),
            ("algorithm=vfl dataset=bank epochs=x rounds=5", ["epochs"]),
            ("algorithm=vfl dataset=bank epochs=5 rounds=1,2", ["rounds"]),
            ("algorithm=vfl dataset=bank network=us_uk,lan network.timing=round", ["network"]),
            ("algorithm=vfl dataset=cora seed=abc", ["seed", "dataset"]),  # two mistakes
        ],
        3,
    ),
)
def test_a_refused_value_makes_up_no_second_problem(words: str, keys: list[str]) -> None:
    assert told(*words.split()) == keys


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        (["target=0.8", "budget=30x"], ["budget"]),
        (["target=0.8", "trials=x"], ["trials"]),
        (["traget=0.8", "trials=8"], ["traget", "target"]),  # an unknown word is none of the question's
        (["target", "budget=2m"], ["target"]),
        (["target=0.8", "budget=2m", "privacy.epsilon=1,2"], ["privacy.epsilon"]),
        (["target=0.8", "budget=2m", "launcher=ray,joblib", "engine.address=a,b"], ["engine.address", "launcher"]),
        (["target=abc", "budget="], ["target", "budget"]),
        (["dataset=cora"], ["target", "budget"]),
    ],
)
def test_a_question_is_told_each_mistake_once(words: list[str], keys: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        question.parse(words, "choose")
    assert [problem.key for problem in caught.value.problems] == keys


def test_tune_tells_its_own_problems_with_the_others() -> None:
    for words, keys in (
        (["budget=30x"], ["budget", "algorithm", "dataset"]),
        (["algorithm=vfll", "dataset=bank", "trials=1"], ["algorithm"]),
        (["algorithm", "dataset=bank,blog", "trials=1"], ["algorithm", "dataset"]),
    ):
        with pytest.raises(ConfigError) as caught:
            tune.ask(words, None, None)
        assert [problem.key for problem in caught.value.problems] == keys


def test_a_rule_ends_where_it_asks_for_a_refused_value() -> None:
    def rule(first: Any, second: Any) -> Any:
        yield Problem("first", first, "is told")
        if second > 1:
            yield Problem("second", second, "is not")

    assert [problem.key for problem in sound(rule, 1, REFUSED)] == ["first"]
    assert [problem.key for problem in sound(rule, REFUSED, 2)] == ["second"]  # what is refused is not refused again
    for ask in (bool, str, len, vars, hash, repr, lambda it: it.name, lambda it: it == 1, lambda it: it in ("a",)):
        with pytest.raises(RefusedError):
            ask(REFUSED)


# --- times ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("90s", 90), ("30m", 1800), ("30min", 1800), ("1h30m", 5400), ("1h 30m", 5400), ("45 s", 45)),
        *(("2hours", 7200), ("1d12h", 129600), ("1.5h", 5400), ("30 Min", 1800), ("1 day 2 hrs", 93600)),
        *(
            (bad, None)
            for bad in ("90", "0s", "1h1h", "30ms", "1h30", "-5m", "", "h", "1e3s", "1:30", "1,5h", "9" * 400)
        ),
        ("9" * 400 + "s", None),
    ],
)
def test_times_as_people_write_them(text: str, seconds: float | None) -> None:
    assert duration.read(text) == seconds


# --- texts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        *((int, "7", 7), (Count, "7", 7), (float, "1e-3", 1e-3), (Positive | None, "0.1", 0.1), (bool, "true", True)),
        *((int | None, "null", None), (list[int], "[1,2]", [1, 2]), (list[str], "[a,b]", ["a", "b"])),
        *((str, "7", "7"), (str | None, "null", "null"), (int | str, "7", "7"), (Any, "7", "7")),
        *((int, "abc", "abc"), (int, "", ""), (int, "${seed}", "${seed}")),
    ],
)
def test_a_text_is_read_for_its_key(kind: Any, text: str, value: Any) -> None:
    found = text_values.read(kind, text)
    assert found == value and type(found) is type(value)


def test_a_seed_of_the_environment_is_that_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"SEED": "7654", "RATE": "1e-2", "DRY": "true", "EPOCHS": "null", "DELAY": "50"}
    for name, text in names.items():
        monkeypatch.setenv(name, text)
    base = ["algorithm=vfl", "dataset=bank"]
    typed = [*base, "seed=7654", "algorithm.lr=0.01", "dry_run=true", "epochs=null", "network.latency_ms=50"]
    meant = [*base, "seed=${oc.env:SEED}", "algorithm.lr=${oc.env:RATE}", "dry_run=${oc.env:DRY}"]
    meant += ["epochs=${oc.env:EPOCHS}", "network.latency_ms=${oc.env:DELAY}"]
    plans = []
    for words in (typed, meant, [*typed, "seed='7654'"]):
        with config.session(words) as hydra:
            plans.append(config.plan(hydra, config.for_all_links(hydra, words)))
    one, *others = plans
    for other in others:
        assert other.config == one.config
        assert config_hash(config.plain(other.cfg)) == config_hash(config.plain(one.cfg))
        assert config.without_secrets(other.cfg)["seed"] == 7654 and not config.from_environment(other.cfg)
        assert other.cfg.dry_run is True


def test_a_variable_that_is_no_number_or_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAD", "abc")
    monkeypatch.delenv("NONE", raising=False)
    words = ["algorithm=vfl", "dataset=bank", "seed=${oc.env:BAD}", "epochs=${oc.env:NONE}"]
    with pytest.raises(ConfigError) as caught, config.session(words) as hydra:
        config.plan(hydra, words)
    assert [str(one) for one in caught.value.problems] == [
        "seed=${oc.env:BAD} (the text 'abc'): must be an integer.",
        "epochs=${oc.env:NONE}: the environment variable NONE is not set.",
    ]


@pytest.mark.slow
def test_a_sweep_over_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FIRST", "3")
    data = ["algorithm=vfl", "dataset=breast_cancer", "dataset.problem=learning", "epochs=1", "floor=none", "plot=none"]
    assert cli.command(["-m", *data, "seed=${oc.env:FIRST},4", "hydra.sweep.dir=s"]) == 0
    runs = vflbench.load("s")
    assert [run.summary["seed"] for run in runs] == [3, 4]  # type: ignore[union-attr]
    assert [run.manifest["config"]["seed"] for run in runs] == [3, 4]  # type: ignore[union-attr]


# --- names that look like numbers -------------------------------------------------------------------------------------

NUMBERLIKE = ("1e5", "007", "1_000", "1.50", "true")


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table whose columns have such names, in the current folder."""
    monkeypatch.chdir(tmp_path)
    rows = "".join(
        f"{i},{i % 7},{i % 5},{','.join(str((i + k) % 2) for k in range(len(NUMBERLIKE)))}\n" for i in range(60)
    )
    Path("t.csv").write_text(f"id,x,z,{','.join(NUMBERLIKE)}\n{rows}")
    return tmp_path


def loaded(*words: str, config_dir: Path | None = None) -> Any:
    """The data that a command line names."""
    from vflbench import registry
    from vflbench.data import sources

    with config.session(words, config_dir) as hydra:
        run = config.plan(hydra, words).config
    assert run is not None
    return registry.load_dataset("tabular_files").load(run.dataset, "aligned", 2, 0, sources.data_root(None))


BASE = ["algorithm=vfl", "algorithm.batch_size=8", "dataset=tabular_files"]
BASE += ["dataset.files=[t.csv]", "dataset.id=id"]


@pytest.mark.parametrize("name", few_fast(NUMBERLIKE, 2))
@pytest.mark.usefixtures("table")
def test_a_column_is_found_by_what_was_typed(name: str) -> None:
    others = [other for other in NUMBERLIKE if other != name]
    listed = f"dataset.leave_out=[{','.join(others)}]"
    for typed in (name, f"'{name}'", f'"{name}"'):
        assert loaded(*BASE, f"dataset.label={typed}", listed).public.samples > 10


@pytest.mark.slow
def test_a_number_of_an_option_file_gets_advice_that_works(table: Path) -> None:
    (table / "mine/dataset").mkdir(parents=True)
    own = "defaults: [tabular_files, _self_]\nname: tabular_files\nfiles: [t.csv]\nid: id\nlabel: 1e5\n"
    (table / "mine/dataset/own.yaml").write_text(own)
    words = [*BASE[:2], "dataset=own"]
    with pytest.raises(ConfigError) as caught:
        loaded(*words, config_dir=table / "mine")
    (problem,) = caught.value.problems
    assert problem.key == "dataset.label" and 'Quote 1e5: label: "1e5" in an option file' in problem.allowed
    (advised,) = re.findall(r"or (dataset\.label=\S+)$", problem.allowed)
    assert loaded(*words, *shlex.split(advised), config_dir=table / "mine").public.samples > 10
    (table / "mine/dataset/own.yaml").write_text(own.replace("label: 1e5", 'label: "1e5"'))
    assert loaded(*words, config_dir=table / "mine").public.samples > 10
    with pytest.raises(
        ConfigError, match=r"""Quote 1\.50: leave_out: \["1\.50"\] .* dataset\.leave_out='\["1\.50"\]'"""
    ):
        loaded(*words, "dataset.leave_out=['1.5']", config_dir=table / "mine")


# --- from Python ------------------------------------------------------------------------------------------------------


def test_errors_are_names_of_the_package_that_load_nothing_heavy() -> None:
    code = """
import sys, vflbench
for name in ("VflbenchError", "ConfigError", "DataError"):
    assert name in vflbench.__all__ and issubclass(getattr(vflbench, name), vflbench.VflbenchError)
heavy = {"torch", "pandas", "numpy", "hydra", "omegaconf"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True)
