"""Networks for whole rows: `mlp3`, `cnn3` and `logistic`."""

from typing import Literal

from vflbench.defaults import from_conf
from vflbench.types import Problem

MODEL_NAMES = ("mlp3", "cnn3", "logistic")


@from_conf()
class Config:
    """Keys of mlp3, cnn3 and logistic."""

    name: str
    widths: list[int]
    channels: list[int]
    kernel: int
    dtype: Literal["float32", "float64"]


def check(config: Config) -> list[Problem]:
    """What is wrong with the model's configuration."""
    lists = {"model.widths": config.widths, "model.channels": config.channels}
    problems = [
        Problem(key, given, "must be a list of numbers from 1")
        for key, given in lists.items()
        if not given or min(given) < 1
    ]
    if config.kernel < 1 or config.kernel % 2 == 0:
        problems.append(Problem("model.kernel", config.kernel, "must be an odd number from 1"))
    return problems
