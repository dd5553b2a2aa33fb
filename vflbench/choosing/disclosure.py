"""What a configuration discloses to others, before it is trained, and whether the question allows it."""

from __future__ import annotations

from collections.abc import Sequence

from vflbench import exposure
from vflbench.choosing.question import Question
from vflbench.plots import demands
from vflbench.types import RunConfig

DEFAULT_EPSILON = 8.0  # of a mechanism whose epsilon is null


def seen(run: RunConfig) -> demands.Seen:
    """What a configuration shows others."""
    private = vars(run.privacy)
    epsilon = None
    if run.privacy.name != "none":
        epsilon = private.get("epsilon") or DEFAULT_EPSILON
    keys, spent = exposure.keys_of(run), private if epsilon is not None else None
    return demands.of_method(run.algorithm.name, keys, spent, epsilon, None, private.get("label_epsilon"))


def violation(run: RunConfig, question: Question) -> str | None:
    """Why a configuration shows more than the question allows; None where it does not."""
    demand = demands.wanted(question.demand)
    if demand is None:
        return None
    return demands.unmet(seen(run), demand, max(demands.NOISE, question.epsilon or 0.0))


def disclosed(run: RunConfig) -> list[str]:
    """What a configuration shows; with noise: `~` before it."""
    one = seen(run)
    return sorted([*(one.clear or ()), *(f"~{what}" for what in one.noised)])


def no_more(shows: Sequence[str], than: Sequence[str]) -> bool:
    """Whether one setting shows nothing that another does not."""
    return all(what in than or (what.startswith("~") and what[1:] in than) for what in shows)
