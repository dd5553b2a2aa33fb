"""`privacy=dp_sgd`: clipped gradients with Gaussian noise, over joins (tables.py) or of workers with rows of their own (examples.py)."""

from __future__ import annotations

from dataclasses import dataclass

from vflbench.privacy import keys, tables
from vflbench.privacy.accountant import ACCOUNTANTS
from vflbench.privacy.examples import SENSITIVITY, ExamplePrivacy
from vflbench.privacy.mechanisms import Facts
from vflbench.types import ConfigError, OptionInfo, Problem, closest

OPTIONS = (OptionInfo("dp_sgd", "every gradient clipped, Gaussian noise on the sum over a random batch"),)


@dataclass
class Config(keys.Gradients):
    name: str = "dp_sgd"
    accountant: str = "rdp"  # on sharded rows: rdp | prv | gdp
    clip_unit: str = "example"  # on sharded rows: what is clipped: every example's gradient | the whole batch's


def check(config: Config) -> list[Problem]:
    problems = keys.check_gradients(config, rdp=config.accountant == "rdp")
    for key, value, allowed in (("accountant", config.accountant, ACCOUNTANTS), ("clip_unit", config.clip_unit, tuple(SENSITIVITY))):
        if value not in allowed:
            problems.append(Problem(f"privacy.{key}", value, f"must be one of {', '.join(allowed)}", closest(value, allowed)))
    return problems + keys.check_clipped(config, "a gradient") + keys.check_target(config)


def make(config: Config, facts: Facts) -> tables.TablePrivacy | ExamplePrivacy:
    if facts.layout == "sharded":
        if config.prediction_noise is not None:
            allowed = "workers with rows of their own send no predictions"
            raise ConfigError([Problem("privacy.prediction_noise", config.prediction_noise, allowed)])
        return ExamplePrivacy(config)
    chosen = (("accountant", config.accountant, "rdp"), ("clip_unit", config.clip_unit, "example"))
    allowed = f"only workers with rows of their own can choose; on {facts.layout} data it is "
    if problems := [Problem(f"privacy.{key}", value, allowed + only) for key, value, only in chosen if value != only]:
        raise ConfigError(problems)
    return tables.TablePrivacy(config.name, facts.layout, gradients=config)
