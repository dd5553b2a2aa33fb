"""Options of open groups with their keys, as a configuration would have them, and what their modules make of those."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

from vflbench import registry
from vflbench.cards.privacy.keys import Budget
from vflbench.config import compose, convert, session
from vflbench.defaults import filled
from vflbench.privacy import mechanisms
from vflbench.types import Problem, rules_of

# Ten times as fast, where PyYAML has it: hundreds of files are read when tests are collected.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml(path: Path) -> Any:
    return yaml.load(path.read_text(encoding="utf-8"), LOADER)


def option(group: str, name: str, **keys: Any) -> Any:
    """The configuration of option `name` of `group`."""
    return filled(registry.option_config(group, name), name=name, **keys)


def codec_config(name: str = "none", **keys: Any) -> Any:
    return option("codec", name, **keys)


def privacy_config(name: str = "none", **keys: Any) -> Any:
    """At delta 1e-5, where it is not given: a run has one once its data are known."""
    config = option("privacy", name, **keys)
    return replace(config, delta=1e-5) if isinstance(config, Budget) and "delta" not in keys else config


def topology_config(name: str = "star", **keys: Any) -> Any:
    return option("topology", name, **keys)


def make_mechanism(
    config: Any,
    max_releases: int | None = None,
    layout: str = "relational",
    batch_size: int | None = None,
    samples: int | None = None,
) -> Any:
    """One party's mechanism."""
    return mechanisms.make(config, mechanisms.Facts(layout, max_releases, batch_size, samples))


def check_keys(config: Any) -> list[Problem]:
    """What is wrong with an option's keys: each by itself, else together."""
    found = convert(type(config), asdict(config))[1]
    rules = rules_of(config)
    return found or (rules(config) if rules else [])


def card_of(module: ModuleType) -> ModuleType:
    """The card of a module of ours."""
    return importlib.import_module(module.__name__.replace("vflbench.", "vflbench.cards.", 1))


def swept(sweeps: Iterable[Sequence[str]], group: str) -> set[str]:
    """The options of a group in the jobs of sweeps: of one composed configuration each, as jobs are many."""
    found: list[str] = []
    with session() as hydra:
        for words in sweeps:
            cfg = compose(hydra, words, sweep=True)
            typed = [word.partition("=")[2] for word in words if word.startswith(f"{group}=")]
            preset = (cfg.hydra.sweeper.params or {}).get(group) or cfg.hydra.runtime.choices[group]
            found += ",".join(typed or [str(preset)]).split(",")
    return {option.strip() for option in found}
