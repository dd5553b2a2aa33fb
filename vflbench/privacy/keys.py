"""What the keys of mechanisms mean for a run, and what a mechanism reports.

One budget, `epsilon` and `delta`, calibrates every mechanism to what this run releases. Another key may say instead how
much noise there is: `mu`, `noise_multiplier`, `label_noise` or `cell_epsilon`. What was not given is computed and
reported.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vflbench.cards.privacy.keys import Budget, Clipped, Released, given
from vflbench.privacy import accountant

# L2 sensitivity of one clipped row, in units of the clipping norm.
SENSITIVITY = {"replace_one": 2.0, "add_remove": 1.0}
EPSILON = 8.0  # where no key says how much noise there is


def default_delta(units: int) -> float:
    """The largest power of ten that is below 1 / (1.1 `units`)."""
    return 10.0 ** -math.ceil(math.log10(1.1 * units))


def settled(config: Any, units: int | None = None) -> Any:
    """The configuration with an epsilon where no key says how much noise there is, and with a delta.

    Parameters
    ----------
    units : those that the largest party protects; None: not known, and delta stays as it is.
    """
    if not isinstance(config, Budget):
        return config
    changes: dict[str, Any] = {}
    if not given(config):
        changes["epsilon"] = EPSILON
    if config.delta is None and units:
        changes["delta"] = default_delta(units)
    return replace(config, **changes)


def large_delta(config: Any, units: int) -> str:
    """A sentence where delta would allow to publish a unit: it is 1 / `units` or above. Else an empty text.

    Parameters
    ----------
    units : those that the largest party protects.
    """
    keys = vars(config)
    counts = isinstance(config, Clipped) or keys.get("row_epsilon") is not None  # the others' epsilons need no delta
    if not counts or not keys["delta"] or keys["delta"] * units < 1:
        return ""
    return (
        f"privacy.delta={keys['delta']:g} is not below 1/n = {1 / units:.3g} of a party with {units} rows: publishing "
        "one of them would satisfy it"
    )


def target(config: Any) -> dict[str, float] | None:
    """What is to be spent, `epsilon` or `mu`, of settled keys; None where they say how much noise there is."""
    for key in ("epsilon", "mu"):
        if (value := vars(config).get(key)) is not None:
            return {key: value}
    return None


def known_delta(config: Budget) -> float:
    """The delta of settled keys."""
    assert config.delta is not None, "settled() gives one, and mechanisms.make refuses keys without it"
    return config.delta


def noise_multiplier(config: Clipped, sensitivity: float, releases: int) -> float:
    """The standard deviation over clip with which `releases` releases of a row spend what settled keys ask for.

    Parameters
    ----------
    sensitivity : of one release, over clip.
    """
    if config.noise_multiplier is not None:
        return config.noise_multiplier
    if isinstance(config, Released) and (mu := config.mu) is not None:
        return sensitivity * math.sqrt(releases) / mu
    assert config.epsilon is not None  # settled
    if math.isinf(config.epsilon):
        return 0.0
    return accountant.calibrate(config.epsilon, known_delta(config), sensitivity, releases)


def reported(
    target: dict[str, float] | None,
    *,
    mechanism: str,
    epsilon: float,
    delta: float,
    mu: float | None = None,
    unit: str,
    neighbouring: str,
    covers: str,
    not_covered: list[str],
    accountant: str,
    releases: dict[str, int | None],
    noise_multiplier: float | None = None,
    clip: float | None = None,
    clipped_share: float | None = None,
    **more: Any,
) -> dict[str, Any]:
    """What a mechanism has spent, in the form that all of them report.

    Parameters
    ----------
    target : as `target` gives it.
    not_covered : what epsilon does not cover, a phrase each.
    accountant : rdp | prv | gdp; exact: mu-GDP of a known number of Gaussian releases; pure: delta is 0.
    releases : of a unit, `planned` (None: not known) and `done`.
    clipped_share : of rows that were longer than `clip`; it is not private, and no result has it.
    more : what only this mechanism reports.
    """
    spent: dict[str, Any] = {"epsilon": epsilon, "mu": mu}
    share = None
    if target is not None:
        ((key, asked),) = target.items()
        share = None if math.isinf(asked) else spent[key] / asked
    return {
        "mechanism": mechanism,
        "epsilon": epsilon,
        "delta": delta,
        "mu": mu,
        "target": target,
        "spent_of_target": share,
        "unit": unit,
        "neighbouring": neighbouring,
        "covers": covers,
        "not_covered": not_covered,
        "accountant": accountant,
        "releases": releases,
        "noise_multiplier": noise_multiplier,
        "clip": clip,
        "clipped_share": clipped_share,
        **more,
    }


def added(several: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What the parties of one organisation have spent together.

    Its workers may each release the same row, in different rounds: those releases add up.

    Parameters
    ----------
    several : what each party reports (`reported`), with `counts`: its releases of each row, or None.
    """
    most = max(several, key=lambda one: float(one["epsilon"]))
    counted = [one for one in several if one["counts"] is not None and one["counts"].any()]
    if len(counted) < 2:
        return most
    counts = np.zeros(max(len(one["counts"]) for one in counted), np.int64)
    clipped = 0.0
    for one in counted:
        counts[: len(one["counts"])] += one["counts"]
        clipped += one["clipped_share"] * one["counts"].sum()
    done = int(counts.max())
    mu = accountant.composed_mu(SENSITIVITY[most["neighbouring"]], most["noise_multiplier"], done)
    values = {key: value for key, value in most.items() if key not in ("target", "spent_of_target")} | {
        "epsilon": accountant.epsilon(mu, most["delta"]),
        "mu": mu,
        "releases": {**most["releases"], "done": done},
        "clipped_share": clipped / counts.sum(),
        "counts": counts,
    }
    return reported(most["target"], **values)
