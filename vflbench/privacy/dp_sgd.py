"""`privacy=dp_sgd`: clipped gradients with Gaussian noise, over joins (tables.py) or on whole rows (examples.py)."""

from vflbench.cards.privacy.dp_sgd import Config
from vflbench.privacy import tables
from vflbench.privacy.examples import ExamplePrivacy
from vflbench.privacy.mechanisms import Facts
from vflbench.types import Problem, refuse


def make(config: Config, facts: Facts) -> tables.TablePrivacy | ExamplePrivacy:
    """The mechanism of one party.

    Raises
    ------
    ConfigError : a key is of no use on the task's layout.
    """
    workers = facts.layout == "sharded"
    whole, problems = workers or facts.alone, list[Problem]()
    for key in ("prediction_noise", "split") if whole else ():
        if (value := vars(config)[key]) is not None:
            problems.append(Problem(f"privacy.{key}", value, "parties with whole rows send no predictions"))
    for key, only, free in (("accountant", "rdp", whole), ("clip_unit", "example", workers)):
        if (value := vars(config)[key]) != only and not free:
            allowed = f"only workers with rows of their own can choose; on {facts.layout} data it is {only}"
            problems.append(Problem(f"privacy.{key}", value, allowed))
    refuse(problems)
    return ExamplePrivacy(config, facts) if whole else tables.TablePrivacy(config, facts)
