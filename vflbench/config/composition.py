"""Configurations, as Hydra composes them from option files and from what was typed."""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
from omegaconf.resolvers import oc

from vflbench import registry
from vflbench.config import hydra as hydras
from vflbench.config import text_values
from vflbench.config.grammar import Override, line
from vflbench.config.hydra import Session
from vflbench.config.launching import OWN_LAUNCHER
from vflbench.config.typed import HYDRAS, OPEN, kinds_of
from vflbench.federation import delays
from vflbench.types import ConfigError, VflbenchError, closest

UNCOMPOSED = "the configuration cannot be composed: "


@contextlib.contextmanager
def session(overrides: Iterable[str] = (), user_dir: str | Path | None = None) -> Iterator[Session]:
    """A Hydra that knows our options, those in `user_dir`, and those of plugins that `overrides` may choose.

    Raises
    ------
    VflbenchError : `user_dir` does not exist, or has a config.yaml.
    """
    folder = None if user_dir is None else Path(user_dir).expanduser().absolute()
    if folder is not None and not folder.is_dir():
        raise VflbenchError(f"--config-dir {user_dir}: there is no such folder")
    if folder is not None and (folder / "config.yaml").exists():
        raise VflbenchError(
            f"--config-dir {user_dir}: its config.yaml would take the place of ours; give options in group folders"
        )
    _store_plugins(list(overrides))
    with hydras.session(registry.config_dir(), folder, register_resolvers) as hydra:
        yield hydra


def register_resolvers() -> None:
    """Teach OmegaConf the `${name:...}` of our options."""
    # Presets compare at equal updates: rounds: ${idiv:480,${algorithm.local_steps}}. At least 1.
    OmegaConf.register_new_resolver("idiv", lambda a, b: max(a // b, 1), replace=True)
    # A value per option: lr: ${by:${model.name},{gcn:0.003,gcnii:0.03}}.
    # An option that is not listed takes the first value: what the algorithm cannot run with is refused later, by name.
    OmegaConf.register_new_resolver(
        "by", lambda option, values: values.get(option, next(iter(values.values()))), replace=True
    )
    # A measured constant: delays: ${profile:${compute.file},delays}. A run's manifest then has the constants, not only
    # a path.
    OmegaConf.register_new_resolver("profile", delays.measured, replace=True)


def _store_plugins(overrides: list[str]) -> None:
    """Give a plugin's option a configuration from its dataclass's defaults; a YAML of the same name wins over it."""
    anything = any("*" in text or text.lstrip("+").startswith("experiment=") for text in overrides)
    for open_group in OPEN:
        group, entries = HYDRAS.get(open_group, open_group), registry.entries(open_group)
        typed = [
            word for text in overrides if text.startswith(f"{group}=") for word in text.partition("=")[2].split(",")
        ]
        # an unknown option counts as its closest match
        meant = {closest(word, entries) for word in typed if word not in entries}
        for name, entry in entries.items():
            if not entry.plugin or not (anything or name in meant or any(name in text for text in overrides)):
                continue
            node: dict[str, Any] = {
                **dataclasses.asdict(registry.option_config(open_group, name)(name=name)),
                "name": name,
            }
            wanted = [
                (g, getattr(entry.info, f))
                for g, f in (("model", "models"), ("topology", "topologies"))
                if group == "algorithm"
            ]
            defaults = [{f"override /{g}@_global_.{g}": allowed[0]} for g, allowed in wanted if allowed]
            if open_group == "launcher":
                node["_target_"] = OWN_LAUNCHER
            ConfigStore.instance().store(
                group=group, name=name, node={"defaults": ["_self_", *defaults], **node}, provider="vflbench"
            )


def compose(hydra: Session, overrides: Sequence[str], sweep: bool = False) -> DictConfig:
    """The composed configuration, `hydra` included.

    Raises
    ------
    ConfigError : it has what a configuration must not have (safety.py).
    VflbenchError : Hydra refuses, in its words.
    """
    try:
        cfg = hydra.composed(overrides, sweep)
    except ConfigError:
        raise
    except Exception as error:  # beside Hydra's own errors: its assertions and conversions fail on what was typed
        texts = [str(error), str(error.__cause__ or "")]
        reasons = texts if isinstance(error, yaml.YAMLError) else [*map(_reason, texts)]
        raise VflbenchError(UNCOMPOSED + " ".join(filter(None, reasons))) from error
    settle(cfg, overrides)
    return cfg


def _reason(text: str) -> str:
    """The first line of an error's text; where that only announces the next one, both."""
    lines = [line.strip() for line in text.strip().splitlines()] or [""]
    return " ".join(lines[: 2 if lines[0].endswith(":") else 1])


def settle(cfg: DictConfig, words: Iterable[str]) -> None:
    """Read texts for keys of other types in a configuration composed with `words`, in place (text_values.py)."""
    text_values.settle(cfg, words, kinds_of)


def name_of(hydra: Session, group: str, option: str) -> str | None:
    """The registry's name behind a typed option: a file of the user's may be called anything.

    None where the option has no name, or does not compose: `plan` says what is wrong with it.
    """
    with contextlib.suppress(VflbenchError):
        chosen = compose(hydra, [f"{group}={option}"])[group]
        name = chosen.get("name") if OmegaConf.is_dict(chosen) else None
        return name if isinstance(name, str) else None
    return None


def own_options(group: str, user_dir: str | Path | None) -> list[str]:
    """The options of a group that the user's folder has, those in folders below it as `folder/option`."""
    if user_dir is None:
        return []
    place = Path(user_dir).expanduser() / group
    return sorted(path.relative_to(place).with_suffix("").as_posix() for path in place.rglob("*.yaml"))


def configurations(hydra: Session, jobs: Iterable[Sequence[str]]) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """Each of a sweep's jobs with its configuration as plain data.

    Composing takes a sixth of a second. So jobs that differ only in values, not in options, share one composed
    configuration, with each other and with `plan`. Their values are set as Hydra itself sets them.
    """
    groups = hydra.groups()
    for job in jobs:
        typed = [hydra.parse(text) for text in job]
        own = [o for o in typed if _sets_value(o, groups)]
        cfg = compose(hydra, [line(o) for o in typed if o not in own], sweep=True)
        with open_dict(cfg):
            for override in own:
                OmegaConf.update(cfg, override.key_or_group, override.value())
        settle(cfg, job)
        yield list(job), plain(cfg)


def _sets_value(override: Override, groups: frozenset[str]) -> bool:
    """Whether the override is key=value, for a key that is there and is no group."""
    return not (
        override.key_or_group in groups
        or override.package is not None
        or override.is_hydra_override()
        or override.is_delete()
        or override.is_add()
    )


def plain(cfg: DictConfig) -> dict[str, Any]:
    """A composed configuration as dicts and lists, interpolations resolved, without `hydra`."""
    try:
        return {
            str(key): OmegaConf.to_container(cfg[key], resolve=True) if OmegaConf.is_config(cfg[key]) else cfg[key]
            for key in cfg
            if key != "hydra"
        }
    except OmegaConfBaseException as error:
        raise VflbenchError(f"the configuration cannot be resolved: {error}") from error


def from_environment(cfg: DictConfig) -> dict[str, str]:
    """Texts in the configuration that come from the environment, the longest first: text -> `${oc.env:NAME}`.

    Texts below 4 characters are left out: they are no secrets, and are parts of other words.
    """
    found: dict[str, str] = {}

    def resolve(name: str, *default: Any) -> Any:
        value = oc.env(name, *default)
        if name in os.environ and len(os.environ[name]) >= 4:
            found[os.environ[name]] = "${oc.env:" + name + "}"
        return value

    with _environment(resolve):
        plain(cfg)
    return {text: found[text] for text in sorted(found, key=len, reverse=True)}


def without_secrets(cfg: DictConfig) -> dict[str, Any]:
    """As `plain`, for files: texts that come from the environment stay `${oc.env:NAME}`."""

    def named(value: Any, place: Any, key: Any) -> Any:
        """`value`, which is what `place` has at `key`."""
        if isinstance(value, dict | list):
            inside = value.items() if isinstance(value, dict) else enumerate(value)
            found = {inner: named(item, place[key], inner) for inner, item in inside}
            return found if isinstance(value, dict) else list(found.values())
        # a number is no secret, and a value computed from one has no name
        return place[key] if isinstance(value, str) else value

    values = plain(cfg)
    with _environment(lambda name, *default: "${oc.env:" + name + "}"):
        return {key: named(value, cfg, key) for key, value in values.items()}


@contextlib.contextmanager
def _environment(resolve: Callable[..., Any]) -> Iterator[None]:
    """Let `resolve` say what `${oc.env:NAME}` is, for as long as this lasts."""
    OmegaConf.register_new_resolver("oc.env", resolve, replace=True)
    try:
        yield
    finally:
        OmegaConf.register_new_resolver("oc.env", oc.env, replace=True)
