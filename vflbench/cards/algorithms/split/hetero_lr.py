"""Hetero-LR."""

from typing import Annotated, Literal

from vflbench.cards.algorithms import codecs
from vflbench.cards.algorithms.split import embedding_messages, split_methods
from vflbench.cards.algorithms.split.split_methods import Keys
from vflbench.defaults import from_conf
from vflbench.types import AlgorithmInfo, Implied, Interval, Problem, Range, RunConfig, Sent

ALGORITHM = AlgorithmInfo(
    name="hetero_lr",
    summary="linear and logistic regression by mini-batches: one number per row each way",
    paper="Hardy et al. 2017, arXiv 1711.10677; Yang et al. 2019, arXiv 1902.04885",
    label="Hetero-LR",
    place=5,
    **{**split_methods.FAMILY, "models": ("linear",)},
    protections=("none", "paillier"),
    # any codec: a rounded score or residual is one with noise
    assumes=("aligned_rows",),
)
CLEAR, SEALED = ("protection", "none"), ("protection", "paillier")
EXPOSES = (
    Sent(
        "score", "passive", "active", "embeddings", "passive",
        keys=embedding_messages.HELD_OUT, noised=embedding_messages.EMBEDDINGS, served=True, when=CLEAR,
    ),
    Sent("residual", "active", "passive", "gradients", "active", noised=embedding_messages.GRADIENTS, when=CLEAR),
    Sent(
        "residual", "active", "passive", "labels", "active", noised=embedding_messages.LABELS, when=CLEAR,
        note="of two classes its sign is the label; in the first batch it is the label, but for a known number",
    ),
    Implied(
        "active", "passive", "features", ("score",), "argued",
        "a weighted sum of each row's columns; of one column all of it, but for a factor",
        noised=embedding_messages.EMBEDDINGS, when=CLEAR,
    ),
    Sent("score", "passive", "active", "ciphertext", "passive", when=SEALED),
    Sent(
        "score", "passive", "active", "embeddings", "passive",
        keys=embedding_messages.HELD_OUT, times="per evaluation", served=True, when=SEALED,
    ),
    Sent("residual", "active", "passive", "ciphertext", "active", when=SEALED, unit="gradient_row"),
    Sent(
        "masked", "passive", "arbiter", "ciphertext", "passive", when=SEALED,
        note="the arbiter sees it under a mask", unit="example",
    ),
    Sent(
        "masked", "active", "arbiter", "ciphertext", "active", when=SEALED,
        note="the arbiter sees it under a mask", unit="example",
    ),
    Sent("unmasked", "arbiter", "passive", "sums", "active", when=SEALED, note="of its columns, over a batch"),
    Sent("unmasked", "arbiter", "active", "sums", "passive", when=SEALED, note="of its columns, over a batch"),
    Implied(
        "passive", "active", "labels", ("unmasked",), "argued",
        "a host with as many columns as a batch has rows (the last may be short) can solve for the residuals",
        when=SEALED,
    ),
    Implied(
        "active", "passive", "features", ("unmasked",), "argued",
        "a guest with as many columns as a batch has rows can solve for the hosts' scores", when=SEALED,
    ),
    Implied(
        "active", "passive", "features", ("score",), "argued",
        "held-out scores are in clear: of one column all of it, but for a factor", times="per evaluation", when=SEALED,
    ),
    embedding_messages.SEEDED,
    embedding_messages.KNOWN,
)  # fmt: skip
SEARCH = {
    "algorithm.batch_size": Interval(64, 4096, log=True, int=True),
    "algorithm.lr": Interval(0.001, 0.1, log=True),
    "algorithm.alpha": (0.0, 0.0001, 0.01),
    **codecs.ROUNDING,
}


@from_conf()
class Config(Keys):
    """Keys of Hetero-LR."""

    alpha: Annotated[float, Range(at_least=0)]
    gradient: Literal["exact", "taylor"] | None


def check(config: RunConfig[Config]) -> list[Problem]:
    """Rules across keys, before any data is loaded."""
    cfg = config.algorithm
    problems = split_methods.check_learning(config)
    if config.model.relu_output:
        problems.append(Problem("model.relu_output", True, "scores are linear here: false"))
    if cfg.gradient == "taylor" and config.privacy.name in embedding_messages.LABELS:
        allowed = f"knows no randomised labels, and privacy={config.privacy.name} corrects the loss: exact"
        problems.append(Problem("algorithm.gradient", cfg.gradient, allowed))
    if config.protection.name != "none":
        for key, name in (("privacy", config.privacy.name), ("codec", config.codec.name)):
            if name != "none":
                problems.append(Problem(key, name, f"cannot change what is encrypted: none with {sealed(config)}"))
    return problems


def sealed(config: RunConfig[Config]) -> str:
    """The protection, as a user writes it."""
    return f"protection={config.protection.name}"
