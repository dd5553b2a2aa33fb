"""Composes configurations with Hydra's loader, which composes each choice of options once.

Hydra takes a tenth of a second for a configuration, nearly all of it for the options. So these are composed by Hydra,
and plain `key=value` are set in a copy of what it made.
"""

import functools
import os
import pickle
import re
from collections.abc import Callable, Iterable
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import ConfigCompositionException
from hydra.plugins.config_source import ConfigSource
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from vflbench.config import safety, tuned
from vflbench.config.source import Source

PLAIN, NOISY = "tuned@_global_", "tuned/private@_global_"  # the groups of tuned values
EARLY = ("hydra.job", "hydra.searchpath")  # Hydra looks at these while it composes


class Loader(ConfigLoader):
    """A loader as launchers ask for it; `prepare` is called here, and in each process that a launcher sends it to."""

    def __init__(self, hydras: ConfigLoader, prepare: Callable[[], None]) -> None:
        self.__setstate__((hydras, prepare))

    def __getstate__(self) -> Any:
        return self.hydras, self.prepare

    def __setstate__(self, state: Any) -> None:
        self.hydras: ConfigLoader
        self.prepare: Callable[[], None]
        self.hydras, self.prepare = state
        self.known: dict[tuple[str | None, tuple[str, ...], RunMode], bytes] = {}  # options -> what was composed
        self._listed = functools.cache(self._list)  # no file comes or goes during a session
        self._parser = OverridesParser.create()
        self.prepare()

    def load_configuration(
        self,
        config_name: str | None,
        overrides: list[str],
        run_mode: RunMode,
        from_shell: bool = True,
        validate_sweep_overrides: bool = True,
    ) -> DictConfig:
        """The configuration, `hydra` included.

        Raises
        ------
        HydraException : it cannot be composed.
        ConfigError : it has what a configuration must not have (safety.py).
        """
        parsed = self._parser.parse_overrides(overrides)
        swept = [one for one in parsed if one.is_sweep_override()]
        options = [one for one in parsed if self._listed(one.key_or_group, None)]
        values = [one for one in parsed if one not in options and one not in swept]
        illegal = validate_sweep_overrides and run_mode is RunMode.RUN and bool(swept)
        if illegal or not all(map(_is_plain, values)) or any(isinstance(one.value(), dict) for one in options):
            options, values = parsed, []
        mode = RunMode.MULTIRUN if swept and not illegal else RunMode.RUN
        cfg: DictConfig = pickle.loads(self._options(config_name, tuple(str(one.input_line) for one in options), mode))
        _set(cfg, values)
        _note(cfg, parsed)
        safety.check(cfg)
        return cfg

    def _options(self, name: str | None, options: tuple[str, ...], mode: RunMode) -> bytes:
        key = (name, options, mode)
        if key not in self.known:
            self.known[key] = self._compose_options(*key)
        return self.known[key]

    def _compose_options(self, name: str | None, options: tuple[str, ...], mode: RunMode) -> bytes:
        """What Hydra composes. Values tuned with the noise of a mechanism count instead of those without."""
        cfg = self.hydras.load_configuration(name, list(options), mode)
        found = [entry for _, entry in tuned_values(cfg.hydra, self.get_sources())]
        if len(found) > 1:
            others = [one for one in options if not one.startswith(f"{PLAIN}=")]
            return self._options(name, (*others, f"{PLAIN}=none"), mode)
        for entry in found:
            tuned.of_this_model(cfg, entry)
        return pickle.dumps(cfg)

    def load_sweep_config(self, master_config: DictConfig, sweep_overrides: list[str]) -> DictConfig:
        """The configuration of a sweep's job; what `master_config` has resolved, as the time, is the same in it."""
        typed: Any = OmegaConf.to_container(master_config.hydra.overrides.hydra)
        overrides = [*typed, *sweep_overrides]
        cfg = self.load_configuration(master_config.hydra.job.config_name, overrides, RunMode.RUN)
        OmegaConf.copy_cache(from_config=master_config, to_config=cfg)
        return cfg

    def get_search_path(self) -> ConfigSearchPath:
        """The folders of options, as Hydra has them."""
        return self.hydras.get_search_path()

    def get_sources(self) -> list[ConfigSource]:
        """What reads those folders, the first first."""
        return self.hydras.get_sources()

    def list_groups(self, parent_name: str) -> list[str]:
        """The groups in a group."""
        return self.hydras.list_groups(parent_name)

    def get_group_options(
        self,
        group_name: str,
        results_filter: ObjectType | None = ObjectType.CONFIG,
        config_name: str | None = None,
        overrides: list[str] | None = None,
    ) -> list[str]:
        """The options of a group; Hydra's own function copies its sources first."""
        return [*self._listed(group_name, results_filter)]

    def _list(self, group: str, kind: ObjectType | None) -> list[str]:
        found = [one.list(group, kind) for one in self.get_sources() if one.is_group(group)]
        return sorted({name for names in found for name in names})

    def compute_defaults_list(self, config_name: str | None, overrides: list[str], run_mode: RunMode) -> Any:
        """The files that make up a configuration, in their order."""
        return self.hydras.compute_defaults_list(config_name, overrides, run_mode)


def tuned_values(hydra: DictConfig, sources: Iterable[ConfigSource]) -> list[tuple[Source, tuned.Entry]]:
    """The tuned values in a configuration, by its node `hydra`, each with the folder that has them."""
    found = []
    for group in (PLAIN, NOISY):
        path = f"{group.partition('@')[0]}/{hydra.runtime.choices.get(group)}"
        every = ((one, one.found(path)) for one in sources if isinstance(one, Source))
        found += [(source, entry) for source, entry in every if entry is not None][:1]
    return found


def _is_plain(override: Override) -> bool:
    """Whether it is key=value for a key that no option depends on."""
    marked = override.is_add() or override.is_force_add() or override.is_delete() or override.package is not None
    return not marked and not override.key_or_group.startswith(EARLY)


def _set(cfg: DictConfig, values: Iterable[Override]) -> None:
    """Set values as Hydra does. Raises ConfigCompositionException, in Hydra's words."""
    for override in values:
        try:
            OmegaConf.update(cfg, override.key_or_group, override.value())
        except (ConfigAttributeError, ConfigKeyError) as error:
            raise ConfigCompositionException(f"Could not override '{override.key_or_group}'.") from error
        except OmegaConfBaseException as error:
            raise ConfigCompositionException(f"Error merging override {override.input_line}") from error


def _note(cfg: DictConfig, parsed: Iterable[Override]) -> None:
    """Write what was typed, and where, into the configuration as Hydra does."""
    hydras, own = (
        [str(one.input_line) for one in parsed if one.is_hydra_override() is which] for which in (True, False)
    )
    cfg.hydra.overrides.hydra, cfg.hydra.overrides.task = hydras, own
    cfg.hydra.runtime.cwd = os.getcwd()
    named = cfg.hydra.job.config.override_dirname
    kept = sorted(one for one in own if one.lstrip("+~").partition("=")[0] not in named.exclude_keys)
    cfg.hydra.job.override_dirname = re.sub("=", lambda _: str(named.kv_sep), named.item_sep.join(kept))
