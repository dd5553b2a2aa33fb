"""What the cards of GLASU and its baselines share: facts, keys and the rules between them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from vflbench.types import Count, Interval, Positive, Problem, Range, RunConfig, module_of

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


@dataclass
class Keys:
    """Keys of all methods on graphs."""

    name: str = ""
    parties: int = 3  # M: clients; the features are split between them
    layers: int = 4  # L
    fanout: Count | None = 3  # F: neighbours sampled per node and layer; null: all
    batch_size: int = 16  # S: training nodes per round
    optimizer: Literal["adam", "sgd"] = "adam"  # adam | sgd
    lr: float = 0.01  # learning rate
    weight_decay: Annotated[float, Range(at_least=0)] = 5e-4  # L2, on all parameters
    # cosine (to 0 over the run) | step (a quarter after each 3/8 of the run, as the released code) | none
    schedule: Literal["cosine", "step", "none"] = "cosine"
    default_rounds: Count = 250  # T, where rounds is null


@dataclass
class AggregationKeys(Keys):
    """Keys of methods that choose the layers after which they aggregate."""

    aggregations: int = 2  # K: the representations are aggregated after the last layer of each of K equal blocks
    aggregation_layers: list[int] | None = None  # the set I itself, counted from 0, instead of aggregations
    aggregate: Literal["avg", "cat"] = "avg"  # avg | cat


@dataclass
class GradientKeys:
    """Keys of methods that send gradients."""

    # with noise: largest L2 norm of a row of a gradient that is sent; null: privacy.clip / batch_size, as a loss is a
    # mean over the batch
    gradient_clip: Positive | None = None


def check(config: RunConfig) -> list[Problem]:
    """What is wrong across keys: the layers of aggregation, and the width that parties share."""
    cfg = config.algorithm
    problems = (
        check_layers(cfg.layers, cfg.aggregations, cfg.aggregation_layers) if isinstance(cfg, AggregationKeys) else []
    )
    shares = (cfg.parties, cfg.aggregate) if hasattr(cfg, "aggregate") else ()
    return [*problems, *module_of(config.model).check_width(config.model, *shares)]


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
