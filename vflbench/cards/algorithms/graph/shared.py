"""What GLASU and its baselines share: a party's data, network and optimiser, and both halves of an exchange."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from vflbench.cards.algorithms.graph import joint
from vflbench.types import Count, Problem, Range, RunConfig, module_of

FAMILY: dict[str, Any] = {  # facts about every method here (AlgorithmInfo)
    "layouts": ("graph",),
    "divided_by": "parties",
    "reports": ("predictions",),
    "models": ("gcnii", "gcn", "gat", "residual_gcn", "pyg"),
}


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


def check(config: RunConfig) -> list[Problem]:
    """What is wrong across keys: the layers of aggregation, and the width that parties share."""
    cfg = config.algorithm
    problems = (
        joint.check(cfg.layers, cfg.aggregations, cfg.aggregation_layers) if isinstance(cfg, AggregationKeys) else []
    )
    shares = (cfg.parties, cfg.aggregate) if hasattr(cfg, "aggregate") else ()
    return [*problems, *module_of(config.model).check_width(config.model, *shares)]
