"""Keys of the methods with server back-propagation."""

from dataclasses import dataclass

from vflbench.types import Positive


@dataclass
class GradientKeys:
    """Keys of methods that send gradients."""

    # with noise: largest L2 norm of a row of a gradient that is sent; null: privacy.clip / batch_size, as a loss is a
    # mean over the batch
    gradient_clip: Positive | None = None
