"""What a setting shows others, before it is trained, and whether the question allows it."""

from __future__ import annotations

from collections.abc import Sequence

from vflbench.choosing.question import Question
from vflbench.plots import demands
from vflbench.types import RunConfig

DEFAULT_EPSILON = 8.0  # of a mechanism whose epsilon is null


def demand_of(question: Question) -> demands.Demand | None:
    """What is asked for, as the report has it."""
    if question.demand is None:
        return None
    hides: tuple[str, ...] = ()
    for key, words, more in demands.LADDER:
        hides += more
        if key == question.demand:
            return demands.Demand(key, words, hides)
    raise AssertionError(question.demand)


def seen(run: RunConfig) -> demands.Seen:
    """What a configuration shows others."""
    private = vars(run.privacy)
    epsilon = None
    if run.privacy.name != "none":
        epsilon = private.get("epsilon") or DEFAULT_EPSILON
    keys = {**vars(run.algorithm), "protection": run.protection.name}
    clear, noised, to_whom = demands.shown(run.algorithm.name, keys, private if epsilon is not None else None)
    return demands.Seen(clear, noised, epsilon, None, to_whom, private.get("label_epsilon"))


def hidden(run: RunConfig, question: Question) -> str | None:
    """Why a configuration shows more than the question allows; None where it does not."""
    demand = demand_of(question)
    if demand is None:
        return None
    return demands.unmet(seen(run), demand, max(demands.NOISE, question.epsilon or 0.0))


def names(run: RunConfig) -> list[str]:
    """What a configuration shows; with noise: `~` before it."""
    one = seen(run)
    return sorted([*(one.clear or ()), *(f"~{what}" for what in one.noised)])


def no_more(shows: Sequence[str], than: Sequence[str]) -> bool:
    """Whether one setting shows nothing that another does not."""
    return all(what in than or (what.startswith("~") and what[1:] in than) for what in shows)
