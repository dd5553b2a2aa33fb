"""What every attack reports: its success, what needs no transcript, and how sure that is."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from vflbench.seeding import stream

DRAWS = 200  # of the bootstrap
Statistic = Callable[[np.ndarray], float]  # weights of the victims, (n,) -> a number


def result(
    success: Statistic, floor: Statistic, victims: int, seed: int, knows: Sequence[str] = (), draws: int = DRAWS
) -> dict[str, Any]:
    """Success, floor, advantage with its 95 % interval, rows attacked, and side knowledge.

    Parameters
    ----------
    success, floor : of victims that count by the weights that they are given.
    victims : rows, nodes or parties; drawn with replacement for the interval.
    knows : what the adversary knows beside the transcript: of balance, shadow, aux_labels, aux_rows, architecture,
        parameters_released.

    Returns
    -------
    dict : `advantage` is success less floor, `interval` the 2.5 and 97.5 % points of its bootstrap. None for no victim.
    """
    facts = {"rows": victims, "knows": list(knows)}
    if not victims:
        return {**dict.fromkeys(("success", "floor", "advantage", "interval")), **facts}
    every, rng = np.ones(victims), stream(seed, "attack/bootstrap")
    found = success(every), floor(every)
    drawn = (rng.multinomial(victims, every / victims).astype(float) for _ in range(draws))
    advantages = [success(weights) - floor(weights) for weights in drawn]
    low, high = np.nanpercentile(advantages, (2.5, 97.5))
    numbers = {"success": found[0], "floor": found[1], "advantage": found[0] - found[1]}
    return {**numbers, "interval": [float(low), float(high)], **facts}


def mean(values: np.ndarray) -> Statistic:
    """The weighted mean of one number for each victim, (n,)."""
    numbers = np.asarray(values, float)
    return lambda weights: float(weights @ numbers / weights.sum())


def constant(value: float) -> Statistic:
    """The same number, whoever the victims are."""
    return lambda weights: value


def area(scores: np.ndarray, truth: np.ndarray, victim: np.ndarray) -> Statistic:
    """The area under the curve of `scores`, where a higher one says true; an entry weighs as much as its victim.

    Parameters
    ----------
    scores, truth, victim : (m,) numbers, bools, and positions among the victims.
    """
    count = int(victim.max(initial=-1)) + 1
    high, heads = scores[truth], victim[truth]
    low, others = scores[~truth], victim[~truth]
    order = np.argsort(others, kind="stable")
    bounds = np.searchsorted(others[order], np.arange(1, count))
    # wins[i, j]: pairs of a true entry of i and a false one of j in the right order; ties count half
    wins = np.zeros((count, count))
    for j, own in enumerate(np.split(low[order], bounds) if count else ()):
        own.sort()
        below = np.searchsorted(own, high, "left") + np.searchsorted(own, high, "right")
        wins[:, j] = np.bincount(heads, below / 2, count)
    true, false = (np.bincount(ends, minlength=count) for ends in (heads, others))

    def statistic(weights: np.ndarray) -> float:
        pairs = (weights @ true) * (weights @ false)
        return float(weights @ wins @ weights / pairs) if pairs else float("nan")

    return statistic
