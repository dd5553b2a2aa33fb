"""Every option file composes, lists the keys of its class, and says what each is for."""

from __future__ import annotations

import ast
import csv
import dataclasses
import inspect
import itertools
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import vflbench
from tests.every import few_fast
from tests.options import read_yaml
from vflbench import config, defaults, registry
from vflbench.config import tuned
from vflbench.config.source import SCHEME, Source
from vflbench.papers import definition
from vflbench.types import (
    BrokerConfig,
    Chosen,
    ComputeConfig,
    ConfigError,
    EngineConfig,
    RunConfig,
)

CONF = config.config_dir()
FIXED = {
    "engine": EngineConfig,
    "compute": ComputeConfig,
    "broker": BrokerConfig,
}
PARTIAL = {"engine", "privacy", "model", "attack", "codec", "broker", "logger"}  # an option lists the keys that it uses
OPTIONS = sorted(
    path
    for group in (*FIXED, *registry.GROUPS, "dataset", "algorithm", "model")
    for path in (CONF / group).glob("*.yaml")
)
SOURCE = Source("vflbench", f"{SCHEME}://{CONF}")
PRESETS = SOURCE.options("experiment")
GROUPS_OF_NONE = ("attack", "codec", "protection", "broker", "logger")
TUNED = sorted((CONF / "tuned").rglob("*.yaml"))
TRIALS = CONF.parent / "docs" / "results" / "tuning"


def content(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = read_yaml(path)
    values.pop("defaults", None)
    return values


def plan(*overrides: str) -> config.Plan:
    with config.session(overrides) as hydra:
        return config.plan(hydra, overrides)


def test_an_option_lists_the_keys_of_its_class() -> None:
    """So every key has a value: a class has only types and ranges."""
    for path in OPTIONS:
        group, name, values = path.parent.name, path.stem, content(path)
        kind = FIXED.get(group) or registry.option_config(group, name)
        keys = {field.name for field in dataclasses.fields(kind)}
        assert next(iter(values)) == "name" and values["name"] == name, path
        assert set(values) <= keys if group in PARTIAL else set(values) == keys, path
        assert set(vars(kind())) == keys, path


def test_no_class_of_keys_repeats_what_conf_says() -> None:
    """Neither a default nor a comment: both are in conf/, where an edit takes effect."""
    for group in (*registry.GROUPS, "dataset", "algorithm", "model"):
        for path in sorted((CONF / group).glob("*.yaml")):
            for kind in registry.option_config(group, path.stem).__mro__:
                if not kind.__module__.startswith("vflbench.cards."):
                    continue
                (node,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
                assert isinstance(node, ast.ClassDef)
                given = [ast.unparse(line) for line in node.body if isinstance(line, ast.AnnAssign) and line.value]
                assert all("ClassVar" in line for line in given), (kind, given)


def test_an_edit_in_conf_takes_effect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (CONF / "algorithm" / "glasu.yaml").read_text(encoding="utf-8")
    (tmp_path / "algorithm").mkdir()
    (tmp_path / "algorithm" / "glasu.yaml").write_text(text.replace("lr: 0.01 ", "lr: 3e-05 "))
    monkeypatch.setattr(defaults, "config_dir", lambda: tmp_path)
    defaults._read.cache_clear()
    edited = registry.option_config("algorithm", "glasu")()
    defaults._read.cache_clear()
    assert edited.lr == 3e-5 and edited.layers == 4


def test_every_key_is_explained() -> None:
    for path in OPTIONS:
        lines = path.read_text(encoding="utf-8").splitlines()
        for above, line in zip(["", *lines], lines, strict=False):
            if re.match(r"(?!name:|defaults:)\w+:", line) and not above.startswith("#"):
                assert "#" in line, f"{path}: a comment says what a key is for: {line}"


def test_every_registered_name_has_its_yaml_and_the_other_way_round() -> None:
    for group, known in (("algorithm", registry.algorithm_entries()), ("dataset", registry.dataset_entries())):
        assert {path.stem for path in (CONF / group).glob("*.yaml")} == {
            name for name, entry in known.items() if not entry.plugin
        }
    assert {path.stem for path in (CONF / "model").glob("*.yaml")} == set(registry.model_entries())


def test_the_root_keys_are_those_of_the_run_and_explained() -> None:
    text = (CONF / "config.yaml").read_text(encoding="utf-8")
    values = {key: value for key, value in yaml.safe_load(text).items() if key not in ("defaults", "hydra")}
    chosen = {field.name for field in dataclasses.fields(Chosen)} | {*GROUPS_OF_NONE, "untyped"}  # groups, and no key
    assert set(values) == {field.name for field in dataclasses.fields(RunConfig)} - chosen
    assert all(re.search(rf"^{key}: .*#", text, re.MULTILINE) for key in values)


def runs() -> Iterator[tuple[str, ...]]:
    """Overrides that compose every option: one of each group in each. tests/choosing/test_spaces.py has algorithms."""
    groups = ("network", "engine", "compute", "topology", "privacy", "attack", "codec", "broker", "logger")
    options = [[f"{group}={path.stem}" for path in sorted((CONF / group).glob("*.yaml"))] for group in groups]
    datasets = sorted(registry.datasets().items())
    assert max(map(len, options)) <= len(datasets)
    for (name, data), *others in zip(datasets, *map(itertools.cycle, options), strict=False):
        algorithm = next(known for known, info in registry.algorithms().items() if registry.fit(info, data))
        yield (f"algorithm={algorithm}", f"dataset={name}", *others)


def models() -> Iterator[tuple[str, ...]]:
    """Every algorithm with a model, and every model with one of them: what an option says does not depend on others."""
    takers: dict[tuple[str, ...], list[str]] = {}
    for name, info in registry.algorithms().items():
        takers.setdefault(info.models, []).append(name)
    for known, names in takers.items():
        for number in range(max(len(known), len(names)) if known else 0):
            yield f"algorithm={names[number % len(names)]}", f"model={known[number % len(known)]}"


def composes(overrides: tuple[str, ...], hydra: Any) -> bool:
    values = config.plain(config.compose(hydra, overrides))
    return isinstance(config.to_config(values), RunConfig)


@pytest.fixture(scope="module")
def hydra() -> Iterator[Any]:
    """One for all: what is in `conf` does not change."""
    with config.session() as hydra:
        yield hydra


@pytest.mark.parametrize("overrides", few_fast([(one,) for one in runs()], 12), ids=lambda overrides: overrides[1])
def test_every_option_composes(overrides: tuple[str, ...], hydra: Any) -> None:
    assert composes(overrides, hydra)


@pytest.mark.slow
@pytest.mark.parametrize("overrides", sorted(set(models())), ids=" ".join)
def test_every_model_composes_with_its_algorithms(overrides: tuple[str, ...], hydra: Any) -> None:
    assert composes(overrides, hydra)


@pytest.mark.parametrize(
    "preset",
    few_fast(sorted(PRESETS, key=lambda name: name not in ("comparison/signal", "mtcd/fig9")), 2),
)
def test_every_preset_is_valid(preset: str, hydra: Any) -> None:
    assert config.plan(hydra, [f"experiment={preset}"]).jobs


def test_conf_can_be_browsed() -> None:
    """At most 300 files, and a preset of a figure is with the figure: alone are those that none can have."""
    assert sum(path.is_file() for path in CONF.rglob("*")) <= 300
    for path in (CONF / "experiment").rglob("*.yaml"):
        name = path.relative_to(CONF / "experiment").with_suffix("").as_posix()
        assert path.read_text(encoding="utf-8").startswith(f"# @package _global_\n# vflbench experiment={name}\n")
        assert not [one for one in definition.names() if name == one or name.startswith(f"{one}_")], name


@pytest.mark.parametrize(("more", "length"), [([], "an epoch"), (["algorithm.rounds_per_epoch=4"], "1/4 of an epoch")])
def test_epochs_and_rounds_together_are_refused_saying_what_a_round_is(more: list[str], length: str) -> None:
    with pytest.raises(ConfigError, match=f"a round of leasgd is {length}, and rounds=4 is given: use one"):
        plan("algorithm=leasgd", "dataset=digits", "epochs=2", "rounds=4", *more)


@pytest.mark.slow
@pytest.mark.parametrize("file", TUNED, ids=lambda file: file.stem)
def test_tuned_values_are_valid(file: Path, hydra: Any) -> None:
    for entry in tuned.read(file):
        dataset, _, privacy = entry.partition("/")
        words = [f"algorithm={file.stem}", f"dataset={dataset}", *([f"privacy={privacy}"] if privacy else [])]
        if file.stem in ("dcpa", "stcd"):  # these need a convex objective
            words.append(f"dataset.problem={'ridge' if dataset in ('energy', 'ridge') else 'sparse_logistic'}")
        try:
            config.plan(hydra, words)
        except ConfigError as error:
            raise AssertionError(f"{file}: {entry}") from error


def test_tuned_values_say_where_they_come_from() -> None:
    """In a line; every trial is in a row of the file of trials, and the best ones of an entry are marked."""
    for file in TUNED:
        text, entries = file.read_text(encoding="utf-8"), tuned.read(file)
        trials = TRIALS / f"{file.stem}.csv"
        rows = list(csv.DictReader(trials.open(encoding="utf-8"))) if trials.is_file() else []
        assert bool(rows) == (f"docs/results/tuning/{file.stem}.csv" in text.partition("\n")[0]), file
        assert all(entry.get(tuned.FOUND) and entry.keys() - {tuned.FOUND} for entry in entries.values()), file
        tried = {"/".join(filter(None, (row["dataset"], row["privacy"]))) for row in rows if row["best"] == "yes"}
        unsearched = ("as with ", "not searched for")
        assert tried == {name for name, one in entries.items() if not one[tuned.FOUND].startswith(unsearched)}, file


DRAWN = {
    runs["experiment"] for name in definition.names() for runs in read_yaml(CONF / "figure" / f"{name}.yaml")["runs"]
}
ALONE = {*PRESETS} - DRAWN


@pytest.mark.slow
@pytest.mark.parametrize("preset", [name for name in sorted(ALONE) if name.rpartition("_")[0] not in ALONE])
def test_every_preset_of_no_figure_runs_at_scale_smoke(
    preset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first job, on the twin; one with a target may get there. Figures' presets run in
    tests/papers/test_figures.py."""
    monkeypatch.setattr("vflbench.plots.curves.draw_run", lambda folder, summary: None)
    preset = f"experiment={preset}"
    jobs = plan(preset).jobs
    assert jobs
    small = [
        "hydra.mode=RUN",
        "scale=smoke",
        "dataset.source=synthetic",
        "engine.threads=1",
        "plot=none",
        f"hydra.run.dir={tmp_path / 'run'}",
    ]
    ended = vflbench.run([*jobs[0], *([] if preset in jobs[0] else [preset]), *small])
    planned = ended.manifest["config"]["epochs"] or 2  # a preset of one epoch is one here too
    if ended.summary["status"] != "target_reached" or ended.manifest["config"]["target"] is None:
        assert (ended.summary["status"], ended.summary["rounds"]) == ("completed", min(2, planned))
