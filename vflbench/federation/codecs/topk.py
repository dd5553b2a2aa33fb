"""The `fraction` of the entries that are largest in magnitude: float32 and an int32 index each.

Their number is rounded and at least one; of equals the first are taken. Every other entry arrives as 0: off by at most
sqrt(1 - k/n) of the array's norm. An entry takes 8 bytes. So an array of float32 gets smaller below a fraction of one
half, and crosses unchanged from there on.
"""

import numpy as np
import torch
from torch import Tensor

from vflbench.cards.federation.codecs.topk import Config


def encode(values: Tensor, rng: np.random.Generator, config: Config) -> tuple[Tensor, ...]:
    """The largest values and their places, in the order of the places."""
    kept = max(1, round(config.fraction * len(values)))
    largest = values.abs().sort(descending=True, stable=True).indices[:kept].sort().values
    chosen = values[largest]
    return chosen.float() if chosen.element_size() > 4 else chosen, largest.to(
        torch.int32 if len(values) <= 2**31 else torch.int64
    )


def decode(sent: tuple[Tensor, ...], size: int, dtype: torch.dtype, config: Config) -> Tensor:
    """What arrives: 0 where nothing was sent."""
    values, places = sent
    whole = values.new_zeros(size, dtype=dtype)
    whole[places.long()] = values.to(dtype)
    return whole
