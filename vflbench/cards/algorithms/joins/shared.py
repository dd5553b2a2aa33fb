"""What the cards of methods over joins share: facts, keys and the rules between them."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from vflbench.cards.privacy.keys import trains_privately
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


@dataclass
class Keys:
    """Keys of all methods over joins."""

    name: str = ""
    lr: float = 0.1  # learning rate
    weight_decay: Annotated[float, Range(at_least=0)] = 1e-5  # beta of R = ||theta||^2 / 2
    center_labels: bool = True  # regression: whoever trains on the labels subtracts their mean
    default_rounds: Count = 10  # epochs, where epochs and rounds are null


@dataclass
class JoinKeys(Keys):
    """Keys of methods that join tables."""

    key_hash: Literal["sha256", "none"] = "sha256"  # how join keys are handed over: sha256 | none (integers in clear)


@dataclass
class PartyKeys:
    """Keys of methods on aligned rows."""

    # organisations that one table's columns are divided between; null: 2, or one for each table of a join
    parties: int | None = None


@dataclass
class PartKeys(JoinKeys):
    """Keys of methods that take tables in horizontal parts."""

    parts: int = 2  # Q_i: horizontal parts of each table, one client each, where the data set does not say


@dataclass
class AdmmKeys(Keys):
    """Keys of methods by ADMM."""

    rho: Positive = 1.0  # penalty of the ADMM (of both, where a table comes in parts)
    solver: Literal["sgd", "exact"] = "sgd"  # update of theta: sgd | exact (linear models)
    local_epochs: Count = 10  # solver=sgd: passes over the own rows per update
    batch_size: int = 1024  # solver=sgd: rows of a local batch
    proximal: bool = False  # damp the parties' simultaneous updates: with exact ones stable for any rho
    z_solver: Literal["newton", "adam"] = "newton"  # classification: newton | adam (100 steps, as the released code)


def check(config: RunConfig) -> list[Problem]:
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
    exact = admm and cfg.solver == "exact"
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
