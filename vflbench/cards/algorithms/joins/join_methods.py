"""What the cards of methods over joins share: facts, keys and the rules between them."""

from typing import Annotated, Any, Literal

from vflbench.cards.privacy.keys import trains_privately
from vflbench.defaults import from_conf
from vflbench.types import Count, Interval, Positive, Problem, Range, RunConfig, convex_problem

FAMILY: dict[str, Any] = {  # facts about every method here (AlgorithmInfo)
    "models": ("linear", "mlp"),  # a sum of shares: with a network above the sum they would be other methods
    "epochs": True,
}
# what is searched
SGD: dict[str, Any] = {
    "algorithm.batch_size": Interval(512, 20480, log=True, int=True),
    "algorithm.lr": Interval(0.01, 1.0, log=True),
}
BY_SGD = {"algorithm.solver": "sgd"}
ADMM: dict[str, Any] = {
    "algorithm.solver": ("sgd", "exact"),
    "algorithm.rho": Interval(0.3, 5.0, log=True),
    "algorithm.local_epochs": Interval(2, 40, log=True, int=True, where=BY_SGD),
    "algorithm.lr": Interval(0.01, 0.5, log=True, where=BY_SGD),
    "algorithm.batch_size": Interval(128, 4096, log=True, int=True, where=BY_SGD),
}
CONVEX = (
    "convex problems are for mtcd, stcd, svfl, dcpa and centralized_gd; to learn and predict use "
    "dataset.problem=learning"
)


@from_conf("algorithm/centralized_join")
class Keys:
    """Keys of all methods over joins."""

    name: str
    lr: float
    weight_decay: Annotated[float, Range(at_least=0)]
    center_labels: bool
    default_rounds: Count


@from_conf("algorithm/centralized_join")
class PartyKeys:
    """Keys of methods on aligned rows."""

    parties: int | None


@from_conf("algorithm/rfl_admm")
class PartKeys(Keys):
    """Keys of methods that take tables in horizontal parts."""

    parts: int


@from_conf("algorithm/rfl_admm")
class AdmmKeys(Keys):
    """Keys of methods by ADMM."""

    rho: Positive
    solver: Literal["sgd", "exact"]
    local_epochs: Count
    batch_size: int
    proximal: bool


def check(config: RunConfig[Keys]) -> list[Problem]:
    """What is wrong across the keys that the methods over joins share."""
    cfg, attack, problems = config.algorithm, config.attack, []
    convex = convex_problem(config.dataset)
    if "parties" in vars(cfg) and convex:  # layout aligned; joins say it themselves
        problems.append(Problem("dataset.problem", convex, CONVEX))
    linear = config.model.name == "linear" and not config.model.relu_output
    allowed = "solves linear models only (model=linear, model.relu_output=false)"
    admm = isinstance(cfg, AdmmKeys)  # starts from predictions 0, whatever the model
    if attack.name != "none" and not linear and not (attack.name == "residual_labels" and admm):
        problems.append(Problem("attack", attack.name, allowed))
    exact = isinstance(cfg, AdmmKeys) and cfg.solver == "exact"
    if exact and not linear:
        problems.append(Problem("algorithm.solver", "exact", f"{allowed}; use sgd"))
    if exact and trains_privately(config.privacy):
        why = f"an exact minimiser has no noisy gradients, so privacy={config.privacy.name} would protect nothing"
        problems.append(Problem("algorithm.solver", "exact", f"{why}: use sgd"))
    if (
        attack.name == "prediction_recovery"
        and attack.parameters == "received"
        and not (isinstance(cfg, PartKeys) and cfg.parts > 1)
    ):
        allowed = (
            f"the server of {cfg.name} receives parameters of tables in several algorithm.parts only: use released"
        )
        problems.append(Problem("attack.parameters", "received", allowed))
    return problems
