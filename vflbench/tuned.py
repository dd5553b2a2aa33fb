"""Which tuned values count: those found with the noise of the run's mechanism, else those found without noise."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from vflbench import registry

PLACE, PRIVATE = "tuned/", "tuned/private/"  # of the files


def counting(files: list[Any]) -> list[Any]:
    """The files of a configuration (Hydra's results, each with a config_path), without values that others replace."""
    noisy = [one for one in files if str(one.config_path).startswith(PRIVATE)]
    return [one for one in files if not noisy or one in noisy or not str(one.config_path).startswith(PLACE)]


def of_this_model(cfg: DictConfig, files: list[Any], read: Callable[[Any], Any]) -> DictConfig:
    """Take keys of another network, which tuned values may have, out of `cfg`, and return it."""
    name, models = OmegaConf.select(cfg, "model.name"), registry.model_entries()
    for one in files:
        values = OmegaConf.select(read(one), "model") if str(one.config_path).startswith(PLACE) else None
        if isinstance(values, DictConfig) and name in models:
            for key in {*map(str, values)} - _keys(name):
                if any(key in _keys(other) for other in models):  # else it is an error, which is told
                    with open_dict(cfg):
                        cfg.model.pop(key, None)
    return cfg


def _keys(model: str) -> set[str]:
    return {field.name for field in dataclasses.fields(registry.option_config("model", model))}
