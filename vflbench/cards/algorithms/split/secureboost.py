"""SecureBoost."""

from typing import Annotated, Literal

from vflbench.cards.algorithms.split import embedding_messages, split_methods
from vflbench.cards.models.model_facts import MOST_BINS
from vflbench.defaults import from_conf
from vflbench.types import AlgorithmInfo, Count, Implied, Interval, Positive, Problem, Range, RunConfig, Sent

ALGORITHM = AlgorithmInfo(
    name="secureboost",
    summary="boosted trees by exchange of histograms; with protection=paillier labels and gradients are encrypted",
    paper="Cheng et al. 2021, arXiv 1901.08755; Chen et al. 2021, arXiv 2110.10927 (SecureBoost+)",
    label="SecureBoost",
    place=6,
    layouts=("aligned",),
    divided_by="parties",
    reports=("predictions",),
    refuses=(("any", "protection=paillier hides the gradients from passive parties"),),
    exact="subtraction needs the sums as they are",
    protections=("none", "paillier"),
    assumes=("aligned_rows",),
    epochs=True,
)
EXPOSES = (
    Sent(
        "gradient", "active", "passive", "labels", "active", when=("protection", "none"), note="labels: g = p - y",
    ),
    Sent("gradient", "active", "passive", "ciphertext", "active", when=("protection", "paillier"), unit="label"),
    Sent("rows", "active", "passive", "ids", "active", when=("goss", True), note="most of them have large gradients"),
    Sent("bins", "passive", "active", "sizes", "passive", times="once", note="how many bins it has"),
    Sent("histogram", "passive", "active", "binned", "passive", note="sums of gradients up to each bin"),
    Sent("nodes", "active", "passive", "ids", "all", note="which rows fall into the same node"),
    Sent("split", "active", "passive", "sizes", "active", note="which column and bin won"),
    Sent(
        "side", "passive", "active", "binned", "passive", keys=embedding_messages.HELD_OUT, served=True,
        note="which rows are below the edge of a split",
    ),
    Implied(
        "passive", "active", "labels", ("nodes",), "argued",
        "rows of a node that is no longer split are alike in their labels, also where gradients are encrypted",
    ),
    Implied(
        "passive", "active", "labels", ("rows",), "argued",
        "rows of a rare class are kept more often, also where gradients are encrypted", when=("goss", True),
    ),
)  # fmt: skip
SEARCH = {
    "algorithm.learning_rate": Interval(0.03, 0.5, log=True),
    "algorithm.depth": Interval(2, 6, int=True),
    "algorithm.bins": (8, 16, 32),
    "algorithm.goss": (False, True),
    "algorithm.l2": Interval(0.1, 10.0, log=True),
}


@from_conf()
class Config:
    """Keys of SecureBoost."""

    name: str
    parties: Count
    depth: Annotated[int, Range(at_least=1, at_most=12)]
    bins: Annotated[int, Range(at_least=2, at_most=MOST_BINS)]
    learning_rate: Positive
    l2: Annotated[float, Range(at_least=0)]
    min_child_weight: Annotated[float, Range(at_least=0)]
    first_tree: Literal["all", "active"]
    goss: bool
    top_rate: Annotated[float, Range(at_least=0, at_most=1)]
    other_rate: Annotated[float, Range(at_least=0, at_most=1)]
    packing: bool
    subtraction: bool
    compression: bool
    default_rounds: Count


def check(config: RunConfig[Config]) -> list[Problem]:
    """Rules across keys, before any data is loaded."""
    cfg = config.algorithm
    problems = split_methods.check_learning(config)
    if cfg.goss and (cfg.top_rate + cfg.other_rate > 1 or (cfg.top_rate < 1 and not cfg.other_rate)):
        allowed = f"with top_rate={cfg.top_rate}: above 0, and at most 1 together"
        problems.append(Problem("algorithm.other_rate", cfg.other_rate, allowed))
    return problems
