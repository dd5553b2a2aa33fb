"""The `privacy` group: a mechanism for one party, and what all parties together have spent. Every mechanism is a module
of this room.

The party that owns the data applies its mechanism, before `send`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vflbench.types import VflbenchError, module_of

# of every mechanism; the rest is what the algorithms that take it call
NEEDED = ("spent", "state_dict", "load_state_dict")


@dataclass(frozen=True)
class Facts:
    """What a mechanism is told of the run, beside its keys."""

    layout: str = "relational"  # of the task: what a row is
    # how often one row of a party is released in the whole run at most; None: without such a bound
    max_releases: int | None = None
    batch_size: int | None = None  # rows of a publication; None without batches
    samples: int | None = None  # rows of the training set, likewise


def make(config: Any, facts: Facts) -> Any:
    """The mechanism of one party: every party needs its own. None of privacy=none.

    Raises ConfigError: the keys, each of which was checked before, are wrong for this run; VflbenchError: it lacks what
    every one has.
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
    """What the summary says of parties' `spent()`, by name: that of the one that spent most, and each party's epsilon;
    None of none."""
    if not spent:
        return None
    most = dict(max(spent.values(), key=lambda s: float(s["epsilon"])))
    if "label_epsilon" in most:  # whoever has the labels
        most["label_epsilon"] = max(s["label_epsilon"] for s in spent.values())
    return most | {"epsilon_by_party": {name: s["epsilon"] for name, s in spent.items()}}
