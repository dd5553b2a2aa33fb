"""Which tuned values count: those found with the noise of the run's mechanism, else those found without noise."""

from __future__ import annotations

import dataclasses
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from vflbench import registry

PLACE, PRIVATE = "tuned/", "tuned/private/"  # of the files


def counting(defaults: list[Any]) -> list[Any]:
    """The files of a configuration (Hydra's results, each with a config_path), without values that others replace."""
    noisy = any(str(one.config_path).startswith(PRIVATE) for one in defaults)
    return [one for one in defaults if not noisy or not str(one.config_path).startswith(PLACE) or _private(one)]


def _private(one: Any) -> bool:
    return str(one.config_path).startswith(PRIVATE)


def without_other_models(cfg: DictConfig, values: Any) -> None:
    """Take tuned values of a network out of `cfg` where the chosen one has no such key, and another one has."""
    name, found = OmegaConf.select(cfg, "model.name"), OmegaConf.select(values, "model")
    models = registry.model_modules()
    if not isinstance(found, DictConfig) or name not in models:
        return
    keys = {
        model: {field.name for field in dataclasses.fields(registry.option_config("model", model, whole=False))}
        for model in models
    }
    for key in {*map(str, found)} & set().union(*keys.values()) - keys[name]:
        with open_dict(cfg):
            cfg.model.pop(key, None)
