"""A graph network split between parties: how representations are aggregated, and passes through one party's share."""

from collections.abc import Sequence

from vflbench.types import Problem


def check(layers: int, aggregations: int, chosen: Sequence[int] | None) -> list[Problem]:
    """What is wrong with the aggregation layers."""
    problems = []
    if chosen is not None:
        if list(chosen) != sorted(set(chosen)) or not chosen or chosen[0] < 0 or chosen[-1] != layers - 1:
            last = layers - 1
            allowed = f"must list layers from 0 to {last}, ascending, each once, with the last layer {last} among them"
            problems.append(Problem("algorithm.aggregation_layers", list(chosen), allowed))
    elif not 1 <= aggregations <= layers or layers % aggregations:
        divisors = [k for k in range(1, layers + 1) if layers % k == 0]
        fitting = f"must divide algorithm.layers={layers}: {', '.join(map(str, divisors))}"
        problems.append(
            Problem("algorithm.aggregations", aggregations, f"{fitting}; or give algorithm.aggregation_layers")
        )
    return problems
