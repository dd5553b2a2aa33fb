"""1 byte a value and a float32 scale per array, max |x| / 127: stochastic rounding to its multiples.

A value is off by less than one scale, and right in the mean (QSGD: Alistarh et al. 2017, arXiv 1610.02132, section 3.1,
with the largest value as the norm). One scale per array and not per row: predictions and residuals are (n, 1), and a
scale per row would be larger than the rows. An array with infinity, NaN or a float64 beyond 127 times the largest
float32 arrives as NaN.
"""

import numpy as np
import torch
from torch import Tensor

from vflbench.cards.federation.codecs.int8 import Config

LEVELS = 127  # on either side of 0


def encode(values: Tensor, rng: np.random.Generator, config: Config) -> tuple[Tensor, ...]:
    """The values as whole numbers from -127 to 127, and the scale."""
    wide = values.double()
    largest = float(wide.abs().max())
    with np.errstate(over="ignore"):
        scale = np.float32(largest / LEVELS)
    if float(scale) * LEVELS < largest:  # exact in doubles; with a smaller scale the largest value would be cut off
        scale = np.nextafter(scale, np.float32(np.inf))
    draws = torch.from_numpy(rng.random(len(values))).to(values.device)
    if not np.isfinite(scale):
        scale, codes = np.float32(np.nan), torch.zeros_like(wide)
    else:
        codes = (wide / float(scale) + draws).floor().clamp(-LEVELS, LEVELS) if scale else torch.zeros_like(wide)
    return codes.to(torch.int8), torch.tensor([scale], device=values.device)


def decode(sent: tuple[Tensor, ...], size: int, dtype: torch.dtype, config: Config) -> Tensor:
    """What arrives."""
    codes, scale = sent
    return (codes.double() * scale.double()).to(dtype)
