"""The `privacy` group: a mechanism for one party, and what all parties together have spent.

Every mechanism is a module of this package. The party that owns the data applies its mechanism, before `send`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from vflbench.cards.privacy.keys import Clipped
from vflbench.privacy import keys
from vflbench.types import ConfigError, Problem, VflbenchError, hook, module_of, refuse, rules_of

# no epsilon says anything of these
TIMES = "when messages are sent, and when the run ends, where a score ends it (target)"
# methods of every mechanism; the algorithms that take one may call others
NEEDED = ("spent", "state_dict", "load_state_dict")
LOUD = 10.0  # noise over the longest row, above which a user is warned of it
INSIDE = ("clipped_share", "counts", "organisation")  # what parties say of themselves, and no result has


@dataclass(frozen=True)
class Facts:
    """What a mechanism knows about the run, beside its keys."""

    layout: str = "relational"  # of the task: what a row is
    # the most releases of one row of a party in the whole run; None: there is no such bound
    max_releases: int | None = None
    batch_size: int | None = None  # rows of a publication; None without batches
    samples: int | None = None  # rows of the training set, likewise
    classes: int = 0  # of the labels; 0: they are numbers
    alone: bool = False  # parties send nothing, and have their rows whole, with labels


def make(config: Any, facts: Facts, server: bool = False) -> Any:
    """The mechanism of one party. Every party needs its own.

    Parameters
    ----------
    server : whether the party is one.

    Returns
    -------
    None for privacy=none, and for a party of whose data the mechanism protects nothing.

    Raises
    ------
    ConfigError : the keys are wrong for this run, though each was checked before.
    VflbenchError : the mechanism lacks a method that every one needs.
    """
    if config.name == "none":
        return None
    module, config = module_of(config), keys.settled(config)
    if isinstance(config, Clipped) and config.delta is None:
        raise ConfigError([Problem("privacy.delta", "null", "needs a number, as the number of rows is not known here")])
    if check := rules_of(config):  # once more, with a delta
        refuse(check(config))
    build = hook(module, "make_server") if server else module.make
    made = None if build is None else build(config, facts)
    if made is None:
        return None
    if lacking := [name for name in NEEDED if not callable(getattr(made, name, None))]:
        raise VflbenchError(
            f"{module.__file__}: what make returns has no {', '.join(lacking)}: it must have {', '.join(NEEDED)}"
        )
    return made


def together(spent: Mapping[str, Mapping[str, Any]]) -> dict[str, Any] | None:
    """The summary of all parties' `spent()`, given by name; None where there are none.

    It has the report of the party that spent most, and each party's epsilon. It leaves out what is not private: see
    `clipped`. If labels and rows are protected together, `not_covered` has what both list.
    """
    if not spent:
        return None
    # Labels are another unit than rows. Where both are protected, each has its epsilon, and rows come first.
    rows = [one for one in spent.values() if "label_unit" not in one or one["unit"] != one["label_unit"]]
    most = dict(max(rows or spent.values(), key=lambda s: float(s["epsilon"])))
    uncovered = list(most.get("not_covered", ()))
    if labels := [one for one in spent.values() if "label_epsilon" in one]:  # that of the party with the labels
        owner = max(labels, key=lambda s: float(s["label_epsilon"]))
        most |= {key: value for key, value in owner.items() if key.startswith("label_")}
        uncovered += owner.get("not_covered", ())
    most["not_covered"] = list(dict.fromkeys([*uncovered, TIMES]))
    for key in INSIDE:
        most.pop(key, None)
    return most | {"epsilon_by_party": {name: s["epsilon"] for name, s in spent.items()}}


def by_organisation(parties: Iterable[Any]) -> dict[str, dict[str, Any]]:
    """What each organisation has spent, by name: the releases of a row by its workers add up.

    Parameters
    ----------
    parties : with `spent()`, in their order.
    """
    members: dict[str, list[dict[str, Any]]] = {}
    for party in parties:
        if (one := party.spent()) is not None:
            members.setdefault(one["organisation"], []).append(one)
    return {name: keys.added(several) for name, several in members.items()}


def zero_in_words(together: Mapping[str, Any]) -> str:
    """Why the epsilon of releases that were made is 0; an empty text where it is not."""
    if together["epsilon"] or not together["delta"] or not together["releases"]["done"]:
        return ""
    return (
        f"epsilon is 0, the least that there is: delta={together['delta']:g} by itself allows all that these releases "
        "can tell (the accountant's formula may even give less than 0)"
    )


def clipped(spent: Mapping[str, Mapping[str, Any]]) -> str:
    """Which party clipped what share of its rows, in words; empty if no party counts it.

    The shares are computed without noise. So they are shown where the run is, and no result has them.
    """
    shares = {name: one.get("clipped_share") for name, one in spent.items()}
    return ", ".join(f"{name} {share:.1%}" for name, share in shares.items() if share is not None)


def noise_in_words(made: Iterable[Any]) -> list[str]:
    """How loud the noise of the parties' mechanisms is, in lines; none if nothing was released."""
    made, lines = list(made), []
    if edges := [share for one in made if (share := getattr(one, "false_edges", None)) is not None]:
        lines.append(f"edges: up to {max(edges):.3g} false ones are shown for each true one (not private)")
    ratios = [ratio for one in made if (ratio := getattr(one, "noise_to_signal", None)) is not None]
    if not ratios:
        return lines
    lines += [f"noise to signal: each release of a row gets noise {max(ratios):.3g} times as long as the longest row"]
    if max(ratios) > LOUD:
        lines.append(
            f"warning: above {LOUD:g} little can be learnt. Fewer releases or a larger epsilon need less noise"
        )
    return lines
