"""Hydra's configuration files, each parsed once in a process, and what it composes of them, once in a session.

Hydra parses some 25 files for every configuration that it composes, and composes the one of a run again and again. Copies are made with
pickle, which takes a tenth of `copy.deepcopy`.
"""

from __future__ import annotations

import copy
import functools
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import ConfigRepository
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.types import RunMode
from omegaconf import DictConfig

_parsed: dict[tuple[str, str, str], bytes] = {}  # (source, path, text) -> what Hydra makes of it


class Repository(ConfigRepository):
    """As Hydra's own; what is found, listed and loaded is remembered: for a session, in which no file comes or goes."""

    def __deepcopy__(self, memo: Any) -> Repository:
        return copy.copy(self)  # Hydra makes one for every configuration, to which it may give other sources

    def initialize_sources(self, config_search_path: ConfigSearchPath) -> None:
        super().initialize_sources(config_search_path)
        self._found: dict[Any, Any] = {}

    def load_config(self, config_path: str) -> ConfigResult | None:
        source = self._find_object_source(config_path=config_path, object_type=ObjectType.CONFIG)
        if source is None or source.scheme() != "file":
            stored = self._once(("load", config_path), lambda: pickle.dumps(super(Repository, self).load_config(config_path=config_path)))
            return pickle.loads(stored)
        text = Path(source.path, ConfigSource._normalize_file_name(config_path)).read_text(encoding="utf-8")
        key = (repr(source), config_path, text)
        if key not in _parsed:
            _parsed[key] = pickle.dumps(super().load_config(config_path=config_path))
        return pickle.loads(_parsed[key])

    def get_group_options(self, group_name: str, results_filter: ObjectType | None = ObjectType.CONFIG) -> list[str]:
        base = super().get_group_options
        return list(self._once(("options", group_name, results_filter), lambda: base(group_name, results_filter)))

    def _find_object_source(self, config_path: str, object_type: ObjectType | None) -> ConfigSource | None:
        base = super()._find_object_source
        return self._once(("source", config_path, object_type), lambda: base(config_path, object_type))

    def _once(self, key: Any, make: Any) -> Any:
        if key not in self._found:
            self._found[key] = make()
        return self._found[key]


class Loader(ConfigLoaderImpl):
    """Hydra's own, over `Repository`; `prepare` is called where it arrives in a process of a launcher's."""

    def __init__(self, config_search_path: ConfigSearchPath, prepare: Callable[[], None]) -> None:
        super().__init__(config_search_path)
        self.prepare = prepare
        self.repository = Repository(config_search_path)
        self._composed = functools.lru_cache(maxsize=256)(self._compose)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key != "_composed"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._composed = functools.lru_cache(maxsize=256)(self._compose)
        self.prepare()

    def load_configuration(
        self,
        config_name: str | None,
        overrides: list[str],
        run_mode: RunMode,
        from_shell: bool = True,
        validate_sweep_overrides: bool = True,
    ) -> DictConfig:
        how = (config_name, tuple(overrides), run_mode, from_shell, validate_sweep_overrides)
        composed: DictConfig = pickle.loads(self._composed(how, os.getcwd()))  # the folder is in it
        return composed

    def _compose(self, how: tuple[Any, ...], folder: str) -> bytes:
        name, overrides, *rest = how
        return pickle.dumps(super().load_configuration(name, list(overrides), *rest))
