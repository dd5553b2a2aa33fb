"""2 bytes a value: IEEE half precision, rounded to nearest; off by at most 2^-11 |x|, below 2^-14 by 2^-25.

What is larger than 65504 is sent as 65504, with a warning. Infinity and NaN stay what they are.
"""

import logging

import numpy as np
import torch
from torch import Tensor

from vflbench.cards.federation.codecs.fp16 import Config

LARGEST = 65504.0
log = logging.getLogger(__name__)


def encode(values: Tensor, rng: np.random.Generator, config: Config) -> tuple[Tensor, ...]:
    """The values in half precision."""
    if values.element_size() <= 2:
        return (values,)  # half precision already
    half = values.half()
    beyond = half.isinf() & values.isfinite()
    if bool(beyond.any()):
        if not config.warned:
            largest = float(values[beyond].abs().max())
            log.warning("codec=fp16: a number of size %.4g is sent as 65504, the largest that it has", largest)
            config.warned = True
        half = half.where(~beyond, half.sign() * LARGEST)
    return (half,)


def decode(sent: tuple[Tensor, ...], size: int, dtype: torch.dtype, config: Config) -> Tensor:
    """What arrives."""
    return sent[0].to(dtype)
