"""Columns of passive parties, sent once."""

from typing import Annotated, Literal

from vflbench.cards.algorithms import codecs
from vflbench.cards.models.model_facts import IMAGES, MOST_BINS
from vflbench.defaults import from_conf
from vflbench.types import (
    AlgorithmInfo,
    Count,
    Interval,
    Positive,
    Problem,
    Range,
    RunConfig,
    Sent,
    convex_problem,
    own_rows,
)

HELD_OUT = "what is learnt at home is scored on rows held out: dataset.problem=learning"
ALGORITHM = AlgorithmInfo(
    name="send_once",
    summary="each passive party sends its columns once (binned, raw or projected); the label owner learns at home",
    paper="Tian et al. 2020, arXiv 2011.02796 (vertical FederBoost), for form=bins",
    label="Send once",
    place=0,
    layouts=("aligned",),
    divided_by="parties",
    reports=("predictions",),
    assumes=("aligned_rows",),
    privacy=("none", "gaussian_embedding", "gdp_embedding", "rr_bins"),
    noisy_serving=True,
    models=("mlp10", "residual_mlp", "linear", "mlp", "split_mlp", "mvcnn", "resnet", "vertical"),
    epochs=True,
    one_shot=True,
    own_rows=True,
)
NOISED = ("gaussian_embedding", "gdp_embedding")
EXPOSES = (
    Sent(
        "features", "passive", "active", "binned", "passive", keys=("val", "test"), when=("form", "bins"),
        times="round 1", noised=(*NOISED, "rr_bins"), served=True,
    ),
    Sent(
        "features", "passive", "active", "raw", "passive", when=("form", "raw"),
        times="round 1", noised=NOISED, served=True,
    ),
    Sent(
        "features", "passive", "active", "projection", "passive", when=("form", "pca"),
        times="round 1", noised=NOISED, served=True,
    ),
)  # fmt: skip
TREES = {"algorithm.learner": "trees"}
SEARCH = {
    "algorithm.form": ("bins", "raw", "pca"),
    "algorithm.bins": Interval(
        4, MOST_BINS, log=True, int=True, least=2, most=MOST_BINS, where={"algorithm.form": "bins"}
    ),
    "algorithm.components": Interval(2, 16, log=True, int=True, where={"algorithm.form": "pca"}),
    "algorithm.learner": ("trees", "linear"),
    "algorithm.learning_rate": Interval(0.03, 0.3, log=True, where=TREES),
    "algorithm.leaves": Interval(7, 63, log=True, int=True, where=TREES),
    **codecs.ROUNDING,
}


@from_conf()
class Config:
    """Keys of send_once."""

    name: str
    parties: Count
    form: Literal["bins", "raw", "pca"]
    bins: Annotated[int, Range(at_least=2, at_most=MOST_BINS)]
    components: Count
    learner: Literal["trees", "linear", "model"]
    fallback: bool
    patience: Count
    learning_rate: Positive
    leaves: Annotated[int, Range(at_least=2)]
    penalty: Annotated[float, Range(at_least=0)]
    batch_size: Count
    lr: Positive
    optimizer: Literal["adam", "sgd"]
    default_rounds: Count


def check(config: RunConfig[Config]) -> list[Problem]:
    """What is wrong across keys: a codec that finds nothing to compress, and images that are none any more."""
    cfg, problems = config.algorithm, []
    if problem := convex_problem(config.dataset):
        problems.append(Problem("dataset.problem", problem, HELD_OUT))
    if cfg.form == "bins" and config.codec.name != "none":
        allowed = "bin numbers are whole, and codecs compress fractions: use algorithm.form=raw or pca, or fewer bins"
        problems.append(Problem("codec", config.codec.name, allowed))
    if own_rows(config.dataset) == "train" and cfg.learner != "trees":
        allowed = "takes no rows without the others' columns: use trees, or dataset.own_rows=fit"
        problems.append(Problem("algorithm.learner", cfg.learner, allowed))
    if config.privacy.name == "rr_bins" and cfg.form != "bins":
        problems.append(Problem("privacy", "rr_bins", "randomises bin numbers: use algorithm.form=bins"))
    images = cfg.learner == "model" and config.model.name in IMAGES
    if images and (cfg.form != "raw" or config.privacy.name != "none"):
        allowed = f"model={config.model.name} takes images: use raw, without privacy"
        problems.append(Problem("algorithm.form", cfg.form, allowed))
    return problems
