"""Keys that mechanisms share, and what they say of a run."""

from typing import Annotated, Literal

from vflbench.defaults import from_conf
from vflbench.types import Interval, Positive, PrivacyConfig, Range

Serving = Literal["clean", "noisy"]  # of rows that are predicted: vflbench/privacy/serving.py
SEARCH_END = 500.0  # Opacus looks for epsilon in [0, 500]
SEARCH = {"privacy.clip": Interval(0.1, 10.0, log=True)}  # of every mechanism that has the key


@from_conf("privacy/dp_sgd")
class Budget(PrivacyConfig):
    """Keys of every mechanism."""

    epsilon: Annotated[float, Range(above=0, at_most=SEARCH_END, infinite=True)] | None
    delta: float | None


@from_conf("privacy/dp_sgd")
class Clipped(Budget):
    """Keys of mechanisms that clip, and add Gaussian noise."""

    clip: Positive
    noise_multiplier: Annotated[float, Range(at_least=0)] | None


@from_conf("privacy/embedding_and_label")
class Released(Clipped):
    """Keys of mechanisms whose releases of a row are counted."""

    mu: Annotated[float, Range(above=0, infinite=True)] | None


@from_conf("privacy/label_dp")
class Labels(Budget):
    """Keys of mechanisms that protect labels."""

    label_noise: Positive | None
    rating_classes: Annotated[int, Range(at_least=5, at_most=6)]


@from_conf("privacy/dp_sgd")
class Gradients(Clipped):
    """Keys of mechanisms that protect gradients."""

    prediction_noise: Positive | None
    prediction_clip: Positive
    split: list[float] | None


def trains_privately(config: PrivacyConfig) -> bool:
    """Whether gradients get noise, so that batches are drawn at random."""
    return isinstance(config, Gradients)


def serving_of(privacy: PrivacyConfig) -> Serving | None:
    """How rows are served that are predicted, the key `serving`; None where the mechanism has no such key."""
    found: Serving | None = vars(privacy).get("serving")
    return found
