"""`privacy=dp_sgd`: clipped gradients with Gaussian noise, over joins (tables.py) or on workers' rows (examples.py)."""

from dataclasses import dataclass
from typing import Literal

from vflbench.privacy import keys, tables
from vflbench.privacy.examples import ExamplePrivacy
from vflbench.privacy.mechanisms import Facts
from vflbench.types import ConfigError, OptionInfo, Problem, refuse

OPTIONS = (OptionInfo("dp_sgd", "every gradient clipped, Gaussian noise on the sum over a random batch"),)


@dataclass
class Config(keys.Gradients):
    """Keys of dp_sgd."""

    name: str = "dp_sgd"
    accountant: Literal["rdp", "prv", "gdp"] = "rdp"  # on sharded rows
    # on sharded rows: what is clipped: every example's gradient | the whole batch's
    clip_unit: Literal["example", "batch"] = "example"


def check(config: Config) -> list[Problem]:
    """What is wrong with the keys."""
    return keys.check_target(config, rdp=config.accountant == "rdp")


def make(config: Config, facts: Facts) -> tables.TablePrivacy | ExamplePrivacy:
    """The mechanism of one party.

    Raises
    ------
    ConfigError : a key is of no use on the task's layout.
    """
    if facts.layout == "sharded":
        if config.prediction_noise is not None:
            allowed = "workers with rows of their own send no predictions"
            raise ConfigError([Problem("privacy.prediction_noise", config.prediction_noise, allowed)])
        return ExamplePrivacy(config)
    chosen = (("accountant", config.accountant, "rdp"), ("clip_unit", config.clip_unit, "example"))
    allowed = f"only workers with rows of their own can choose; on {facts.layout} data it is "
    refuse([Problem(f"privacy.{key}", value, allowed + only) for key, value, only in chosen if value != only])
    return tables.TablePrivacy(config, facts)
