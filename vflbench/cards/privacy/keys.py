"""Keys that mechanisms share, and what they say of a run."""

from dataclasses import dataclass
from typing import Annotated, Literal

from vflbench.types import Interval, Positive, PrivacyConfig, Range

Serving = Literal["clean", "noisy"]  # of rows that are predicted: vflbench/privacy/serving.py
SEARCH_END = 500.0  # Opacus looks for epsilon in [0, 500]
CLIP = {"privacy.clip": Interval(0.1, 10.0, log=True)}  # searched


@dataclass
class Budget(PrivacyConfig):
    """Keys of every mechanism."""

    # of all releases of a unit together; inf: no noise, no guarantee; null: 8, where no other key says it
    epsilon: Annotated[float, Range(above=0, at_most=SEARCH_END, infinite=True)] | None = None
    # null: the largest power of ten below 1 / (1.1 n), n the units of the largest party; labels and bins need none
    delta: float | None = None


@dataclass
class Clipped(Budget):
    """Keys of mechanisms that clip, and add Gaussian noise."""

    clip: Positive = 1.0  # largest L2 norm of a row or gradient that gets noise
    # standard deviation over clip, instead of epsilon
    noise_multiplier: Annotated[float, Range(at_least=0)] | None = None


@dataclass
class Released(Clipped):
    """Keys of mechanisms whose releases of a row are counted."""

    # of all releases of a row together, instead of epsilon; inf: no noise
    mu: Annotated[float, Range(above=0, infinite=True)] | None = None


@dataclass
class Labels(Budget):
    """Keys of mechanisms that protect labels."""

    # lambda: standard deviation of the noise on each coordinate of a one-hot label; null: calibrated to epsilon
    label_noise: Positive | None = None
    # a regression's labels are classes: 5 (1 to 5) | 6 (0 to 5)
    rating_classes: Annotated[int, Range(at_least=5, at_most=6)] = 5


@dataclass
class Gradients(Clipped):
    """Keys of mechanisms that protect gradients."""

    # standard deviation over prediction_clip of the noise on predictions; null: none
    prediction_noise: Positive | None = None
    prediction_clip: Positive = 1.0  # largest L2 norm of a prediction that is sent, where predictions get noise
    # shares of epsilon, in mu^2: of gradients, and of predictions, which get noise then; null: gradients have it all
    split: list[float] | None = None


def trains_privately(config: PrivacyConfig) -> bool:
    """Whether gradients get noise, so that batches are drawn at random."""
    return isinstance(config, Gradients)


def serving_of(privacy: PrivacyConfig) -> Serving | None:
    """How rows are served that are predicted, the key `serving`; None where the mechanism has no such key."""
    found: Serving | None = vars(privacy).get("serving")
    return found
