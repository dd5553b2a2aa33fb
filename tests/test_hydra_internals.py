"""Hydra's internals are used in one file, which was read with the releases that it names."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import hydra
import pytest
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import OmegaConf

from vflbench import config, hydra_internals

ROOT = Path(hydra_internals.__file__).parent
DOCUMENTED = {
    "hydra.core.config_store",
    "hydra.core.hydra_config",
    "hydra.core.object_type",
    "hydra.plugins.config_source",
}
LOOK_AT = """another Hydra than those that hydra_internals.py was read with. Look whether these are as they were, then
add it to VERIFIED:
ConfigRepository (_find_object_source, get_group_options, load_config, initialize_sources),
ConfigSource._normalize_file_name;
ConfigLoaderImpl (load_configuration, _load_configuration_impl, whose last part Loader repeats, get_group_options,
validate_sweep_overrides_legal, _apply_overrides_to_config, _compose_config_from_defaults_list, _load_single_config),
get_overrides_dirname; what _create_interpolation_map of defaults_list is needed for; ResultDefault and its repr;
version._get_version;
Hydra (run, multirun, compose_config, what answers --cfg,
--info, --hydra-help), its _run_job;
get_args_parser; GlobalHydra and HydraConfig as singletons; Override (sweep_iterator,
_convert_value, and what our class of that name calls);
BasicSweeper.split_arguments;
Plugins._instantiate; what a launcher does with run_job, setup_globals, Singleton and load_sweep_config (hydra's
basic_launcher.py)."""


def test_hydra_is_one_that_was_looked_at() -> None:
    assert hydra.__version__ in hydra_internals.VERIFIED, LOOK_AT


@pytest.mark.parametrize("kind", [hydra_internals.Loader, hydra_internals.Repository, hydra_internals.Session])
def test_what_replaces_a_function_of_hydras_can_be_called_as_that(kind: type) -> None:
    """Other parts of Hydra call it, by position or by name: completion did, with a name that ours did not have."""
    base, starred = kind.__mro__[1], (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    shared = vars(kind).keys() & {*dir(base)} - {*dir(object)}
    for name in [name for name in shared if inspect.isfunction(getattr(base, name))]:
        ours, theirs = (inspect.signature(getattr(one, name)).parameters for one in (kind, base))
        passed_on = {one.kind for one in ours.values()} >= {*starred}
        assert passed_on or [*ours] == [*theirs], name
        assert all(ours[own].default == theirs[own].default for own in ours.keys() & theirs.keys()), name


def test_a_quoted_text_is_read_as_it_is() -> None:
    texts = [
        "${oc.env:HOME}",
        r"\${x}",
        r"a\b${y",
        "it's ${z}",
        "x\\\\${q}",
        "[a, b]",
        "a=b",
        "}$",
        " ü\n",
        "null",
        "1",
    ]
    with config.session() as hydra:
        words = ["algorithm=vfl", "dataset=tabular_files", config.quoted("dataset.files", texts)]
        words.append(config.quoted("dataset.label", texts[2]))
        read = config.plain(config.compose(hydra, words))["dataset"]
    assert (read["files"], read["label"]) == (texts, texts[2])


@pytest.mark.parametrize("mode", [pytest.param(RunMode.RUN, marks=pytest.mark.slow), RunMode.MULTIRUN])
@pytest.mark.parametrize(
    "typed",
    [
        ["algorithm=vfl_sgd", "dataset=star_schema", "rounds=2", "hydra.run.dir=a b", "plot=none"],
        ["experiment=glasu/table2", "seed=3", "rounds=${seed}", "hydra.verbose=true"],
        ["+x=1", "x=2", "~x", "++y=[1,2]", "hydra.sweep.subdir=${seed}"],
        ["algorithm.lr=3", "algorithm={lr: 4}", "algorithm.lr=5"],
        ["algorithm=glasu,vfl_sgd", "seed=1,2"],
        ["hydra.job.name=other", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"],
        ["algorithm=nosuch"],
        ["algorithm.nosuch=1"],
        ["rounds=[1,"],
    ],
)
def test_what_is_remembered_is_what_hydra_composes(typed: list[str], mode: RunMode) -> None:
    def found(loader: ConfigLoaderImpl, line: list[str]) -> str:
        try:
            return OmegaConf.to_yaml(loader.load_configuration("config", line, mode))
        except HydraException as error:
            return f"{error}, from {error.__cause__}"

    with config.session(typed) as session:
        plain = ConfigLoaderImpl(session.config_loader.config_search_path)
        hydras = [found(plain, line) for line in (typed, [*typed, "seed=4"])]
        for place in (0, 1, 0):  # composed, from what is remembered, and remembered whole
            assert found(session.config_loader, (typed, [*typed, "seed=4"])[place]) == hydras[place]


def test_no_other_file_knows_hydras_internals() -> None:
    for path in ROOT.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        named = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        named |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        hydras = {name for name in named if name.partition(".")[0] == "hydra"} - DOCUMENTED
        assert path == ROOT / "hydra_internals.py" or not hydras, f"{path} imports {hydras}"
