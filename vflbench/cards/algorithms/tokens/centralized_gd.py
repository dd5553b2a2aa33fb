"""Gradient descent on all columns in one place."""

from vflbench.cards.algorithms.tokens import token_methods
from vflbench.cards.algorithms.tokens.token_methods import NetworkKeys
from vflbench.defaults import from_conf
from vflbench.types import AlgorithmInfo, Problem, RunConfig, convex_problem

ALGORITHM = AlgorithmInfo(
    name="centralized_gd",
    summary="reference of MTCD: one party with all columns takes gradient steps, no messages",
    paper="baseline",
    label="Centralized GD",
    place=4,
    layouts=("aligned",),
    divided_by="parties",
    reports=("predictions", "partial"),
    privacy=("none", "dp_sgd"),
    models=("auto", "split_mlp", "mvcnn", "resnet", "resnet_bn", "linear", "mlp", "mlp10", "residual_mlp", "vertical"),
    exact="it sends nothing",
    assumes=("pooled",),
    accounting=("strict", "framed"),
)
EXPOSES = ()
SEARCH = token_methods.BLOCKS
PRIVATE_LR = "needs a number with privacy: without one the step size is 1 / L, which is computed from the data"


@from_conf()
class Config(NetworkKeys):
    """Keys of centralized gradient descent."""

    local_steps: int
    lr: float | None


def check(config: RunConfig[Config]) -> list[Problem]:
    """What is wrong across keys."""
    return token_methods.check_networks(config) + check_step(config, convex_problem(config.dataset) is not None)


def check_step(config: RunConfig[Config], convex: bool) -> list[Problem]:
    """A problem where privacy meets a step size that is found from the data."""
    found = convex and config.privacy.name != "none" and config.algorithm.lr is None
    return [Problem("algorithm.lr", "null", PRIVATE_LR)] if found else []
