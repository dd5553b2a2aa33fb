"""Networks and losses; they know nothing of parties."""

import functools

import torch

DTYPES = {"float32": torch.float32, "float64": torch.float64}


def columns(rows: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Rows of features (n, d); those of images (n, ...) are their pixels, between 0 and 1 where they are bytes."""
    flat = rows.flatten(1).to(dtype)
    return flat / 255 if rows.ndim > 2 and rows.dtype == torch.uint8 else flat


@functools.lru_cache(maxsize=1_000)
def scalar(value: float, dtype: torch.dtype) -> torch.Tensor:
    """`value` as a tensor of no dimensions, not to be changed: torch takes half as long for it as for Python's number.

    The results have the same bits: torch rounds a number of Python's to the other operand's type too.
    """
    return torch.tensor(value, dtype=dtype)
