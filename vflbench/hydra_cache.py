"""Hydra's configuration files, each parsed once in a process.

Hydra parses some 25 files for every configuration that it composes, and copies them with `copy.deepcopy`: half of its time. Copies made
with pickle take a tenth.
"""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import ConfigRepository
from hydra._internal.hydra import Hydra
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigResult, ConfigSource
from omegaconf import DictConfig

_parsed: dict[tuple[str, str, str], bytes] = {}  # (source, path, text) -> what Hydra makes of it


class Session(Hydra):
    """A Hydra that reads through `Repository`."""

    def __init__(self, task_name: str, config_loader: ConfigLoader) -> None:
        super().__init__(task_name, config_loader)
        assert isinstance(config_loader, ConfigLoaderImpl)
        config_loader.repository = Repository(config_loader.config_search_path)
        self.composed: dict[tuple[str, ...], DictConfig] = {}  # by overrides; for whoever composes the same again


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
