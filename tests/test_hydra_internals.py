"""Hydra's internals are used in one file, which was read with the releases that it names."""

from __future__ import annotations

import ast
from pathlib import Path

import hydra

from vflbench import hydra_internals

ROOT = Path(hydra_internals.__file__).parent
DOCUMENTED = {"hydra.core.config_store", "hydra.core.hydra_config"}
LOOK_AT = """another Hydra than those that hydra_internals.py was read with. Look whether these are as they were, then
add it to VERIFIED:
ConfigRepository (_find_object_source, get_group_options, load_config, initialize_sources),
ConfigSource._normalize_file_name;
ConfigLoaderImpl.load_configuration; Hydra (run, multirun, compose_config, what answers --cfg,
--info, --hydra-help), its _run_job;
get_args_parser; GlobalHydra and HydraConfig as singletons; Override (sweep_iterator,
_convert_value, and what our class of that name calls);
BasicSweeper.split_arguments;
Plugins._instantiate; what a launcher does with run_job, setup_globals, Singleton and load_sweep_config (hydra's
basic_launcher.py)."""


def test_hydra_is_one_that_was_looked_at() -> None:
    assert hydra.__version__ in hydra_internals.VERIFIED, LOOK_AT


def test_no_other_file_knows_hydras_internals() -> None:
    for path in ROOT.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        named = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        named |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        hydras = {name for name in named if name.partition(".")[0] == "hydra"} - DOCUMENTED
        assert path == ROOT / "hydra_internals.py" or not hydras, f"{path} imports {hydras}"
