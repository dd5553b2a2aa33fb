"""The `privacy` group: a mechanism for one party, and what all parties together have spent.

Every mechanism is a module of this package. The party that owns the data applies its mechanism, before `send`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vflbench.types import VflbenchError, module_of

# methods of every mechanism; the algorithms that take one may call others
NEEDED = ("spent", "state_dict", "load_state_dict")


@dataclass(frozen=True)
class Facts:
    """What a mechanism knows about the run, beside its keys."""

    layout: str = "relational"  # of the task: what a row is
    # the most releases of one row of a party in the whole run; None: there is no such bound
    max_releases: int | None = None
    batch_size: int | None = None  # rows of a publication; None without batches
    samples: int | None = None  # rows of the training set, likewise
    retries: bool = True  # whether the algorithm may publish again what came too late


def make(config: Any, facts: Facts) -> Any:
    """The mechanism of one party; None for privacy=none. Every party needs its own.

    Raises
    ------
    ConfigError : the keys are wrong for this run, though each was checked before.
    VflbenchError : the mechanism lacks a method that every one needs.
    """
    if config.name == "none":
        return None
    module = module_of(config)
    made = module.make(config, facts)
    if lacking := [name for name in NEEDED if not callable(getattr(made, name, None))]:
        raise VflbenchError(
            f"{module.__file__}: what make gives has no {', '.join(lacking)}: it must have {', '.join(NEEDED)}"
        )
    return made


def together(spent: Mapping[str, Mapping[str, Any]]) -> dict[str, Any] | None:
    """The summary of all parties' `spent()`, given by name; None where there are none.

    It has what the party that spent most says, and each party's epsilon.
    """
    if not spent:
        return None
    most = dict(max(spent.values(), key=lambda s: float(s["epsilon"])))
    if "label_epsilon" in most:  # that of the party with the labels
        most["label_epsilon"] = max(s["label_epsilon"] for s in spent.values())
    return most | {"epsilon_by_party": {name: s["epsilon"] for name, s in spent.items()}}
