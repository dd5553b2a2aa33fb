"""Named random streams derived from one seed. No global generator is ever used."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def derive(seed: int, name: str) -> int:
    """A 63-bit seed for the stream `name` of `seed`: equal on every machine and Python (never `hash`)."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def stream(seed: int, name: str) -> np.random.Generator:
    """NumPy generator of the stream `name` (`init`, `partition`, `batches/<party>`, `noise/<party>`, `topology`, `evaluation`)."""
    return np.random.Generator(np.random.PCG64(derive(seed, name)))


def torch_stream(seed: int, name: str, device: str = "cpu") -> torch.Generator:
    """torch generator of the stream `name` on `device`."""
    import torch

    return torch.Generator(device=device).manual_seed(derive(seed, name))
