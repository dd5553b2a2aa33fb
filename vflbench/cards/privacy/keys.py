"""Keys that mechanisms share, what is wrong with them, and what they say of a run."""

import math
from typing import Annotated, Literal

from vflbench.defaults import from_conf
from vflbench.types import Interval, Positive, PrivacyConfig, Problem, Range

Serving = Literal["clean", "noisy"]  # of rows that are predicted: vflbench/privacy/serving.py
SEARCH_END = 500.0  # Opacus looks for epsilon in [0, 500]
ORDERS = (*(1 + i / 10 for i in range(1, 100)), *map(float, range(12, 64)))  # of RDP: 1.1 to 10.9, 12 to 63
INSTEAD = ("mu", "noise_multiplier", "cell_epsilon")  # of epsilon; label_noise, where labels alone are protected
SEARCH = {"privacy.clip": Interval(0.1, 10.0, log=True)}  # of every mechanism that has the key


@from_conf("privacy/dp_sgd")
class Budget(PrivacyConfig):
    """Keys of every mechanism."""

    epsilon: Annotated[float, Range(above=0, at_most=SEARCH_END, infinite=True)] | None
    delta: float | None


@from_conf("privacy/dp_sgd")
class Clipped(Budget):
    """Keys of mechanisms that clip, and add Gaussian noise."""

    clip: Positive
    noise_multiplier: Annotated[float, Range(at_least=0)] | None


@from_conf("privacy/embedding_and_label")
class Released(Clipped):
    """Keys of mechanisms whose releases of a row are counted."""

    mu: Annotated[float, Range(above=0, infinite=True)] | None


@from_conf("privacy/label_dp")
class Labels(Budget):
    """Keys of mechanisms that protect labels."""

    label_noise: Positive | None
    rating_classes: Annotated[int, Range(at_least=5, at_most=6)]


@from_conf("privacy/dp_sgd")
class Gradients(Clipped):
    """Keys of mechanisms that protect gradients."""

    prediction_noise: Positive | None
    prediction_clip: Positive
    split: list[float] | None


def trains_privately(config: PrivacyConfig) -> bool:
    """Whether gradients get noise, so that batches are drawn at random."""
    return isinstance(config, Gradients)


def serving_of(privacy: PrivacyConfig) -> Serving | None:
    """How rows are served that are predicted, the key `serving`; None where the mechanism has no such key."""
    found: Serving | None = vars(privacy).get("serving")
    return found


def least_epsilon(delta: float) -> float:
    """The least epsilon that RDP over `ORDERS` can prove, however large the noise."""
    return min(math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1) for order in ORDERS)


def check_budget(config: Budget, rdp: bool = False) -> list[Problem]:
    """Return what is wrong with the keys of a budget, each by itself or together.

    Parameters
    ----------
    rdp : whether RDP accounts for the noise, which bounds the target from below.
    """
    problems = []
    delta, epsilon = config.delta, config.epsilon
    if delta is not None and not 0 < delta <= 0.5:
        allowed = "must lie between 0 and 0.5, well below one over the number of rows"
        problems.append(Problem("privacy.delta", delta, allowed))
    first, *more = given(config) or ["epsilon"]
    if more:
        names = ", ".join(f"privacy.{key}" for key in (first, *more))
        allowed = f"only one key may say how much noise there is, and {1 + len(more)} do: {names}"
        problems.append(Problem(f"privacy.{first}", getattr(config, first), allowed))
    elif rdp and epsilon is not None and delta is not None and not problems:
        least = least_epsilon(delta)
        if epsilon <= least:
            allowed = f"must be above {least:.4g}: RDP proves nothing smaller at delta={delta:g}"
            problems.append(Problem("privacy.epsilon", epsilon, allowed))
    return problems


def check_gradients(config: Gradients, rdp: bool = True) -> list[Problem]:
    """As `check_budget`, and what is wrong with the noise of predictions."""
    problems, split, noise = check_budget(config, rdp), config.split, config.prediction_noise
    if split is not None:
        shown = "[" + ",".join(f"{share:g}" for share in split) + "]"
        if len(split) != 2 or min(split) <= 0 or not math.isclose(sum(split), 1):
            allowed = "must be two shares above 0 that add up to 1: of gradients, and of predictions"
            problems.append(Problem("privacy.split", shown, allowed))
        for key in ("noise_multiplier", "prediction_noise"):
            if vars(config)[key] is not None:
                allowed = f"shares out privacy.epsilon, and privacy.{key} is given: use one"
                problems.append(Problem("privacy.split", shown, allowed))
    elif noise is not None and config.noise_multiplier is None:
        other = "privacy.split=[0.5,0.5] shares out one epsilon of gradients and predictions"
        allowed = f"goes with privacy.noise_multiplier; {other}"
        problems.append(Problem("privacy.prediction_noise", noise, allowed))
    return problems


def given(config: Budget) -> list[str]:
    """The keys that say how much noise there is."""
    instead = [key for key in INSTEAD if hasattr(config, key)] or ["label_noise"]
    return [key for key in ("epsilon", *instead) if vars(config).get(key) is not None]
