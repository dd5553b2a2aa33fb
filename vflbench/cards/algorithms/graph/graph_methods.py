"""What the cards of GLASU and its baselines share: facts, keys and the rules between them."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from vflbench.defaults import from_conf
from vflbench.types import Count, Interval, Positive, Problem, Range, RunConfig, rules_of

FAMILY: dict[str, Any] = {  # facts about every method here (AlgorithmInfo)
    "layouts": ("graph",),
    "divided_by": "parties",
    "reports": ("predictions",),
    "models": ("gcnii", "gcn", "gat", "residual_gcn", "pyg"),
}
# what is searched
STEPS: dict[str, Any] = {
    "algorithm.lr": Interval(0.003, 0.1, log=True),
    "algorithm.batch_size": Interval(8, 64, log=True, int=True),
}
AGGREGATIONS: dict[str, Any] = {"algorithm.aggregations": (1, 2, 4)}
DROPOUT: dict[str, Any] = {"model.dropout": Interval(0.2, 0.7, least=0.0, most=0.9)}
NETWORK: dict[str, Any] = {"model.hidden": (16, 32, 64), **DROPOUT}  # of a client that has others
ALONE: dict[str, Any] = {**STEPS, "model.hidden": (32, 64, 128), **DROPOUT}  # of methods that train without others


@from_conf("algorithm/centralized_gnn")
class Keys:
    """Keys of all methods on graphs."""

    name: str
    parties: int
    layers: int
    fanout: Count | None
    batch_size: int
    optimizer: Literal["adam", "sgd"]
    lr: float
    weight_decay: Annotated[float, Range(at_least=0)]
    schedule: Literal["cosine", "step", "none"]
    default_rounds: Count


@from_conf("algorithm/glasu_exact")
class AggregationKeys(Keys):
    """Keys of methods that choose the layers after which they aggregate."""

    aggregations: int
    aggregation_layers: list[int] | None
    aggregate: Literal["avg", "cat"]


@from_conf("algorithm/glasu_exact")
class GradientKeys:
    """Keys of methods that send gradients."""

    gradient_clip: Positive | None


def check(config: RunConfig[Keys]) -> list[Problem]:
    """What is wrong across keys: the layers of aggregation, and the width that parties share."""
    cfg = config.algorithm
    problems = (
        check_layers(cfg.layers, cfg.aggregations, cfg.aggregation_layers) if isinstance(cfg, AggregationKeys) else []
    )
    shares = (cfg.parties, cfg.aggregate) if hasattr(cfg, "aggregate") else ()
    check_width = rules_of(config.model, "check_width")
    return [*problems, *check_width(config.model, *shares)] if check_width else problems


def check_layers(layers: int, aggregations: int, chosen: Sequence[int] | None) -> list[Problem]:
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
