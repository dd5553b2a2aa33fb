"""The handwritten digits that come with scikit-learn, of which a table and a graph are made."""

import functools

import numpy as np


def images() -> tuple[np.ndarray, np.ndarray]:
    """Pixels (1797, 64), integers 0 to 16 as float64, and digits (1797,)."""
    pixels, digits = _read()
    return pixels.copy(), digits.copy()


@functools.cache
def _read() -> tuple[np.ndarray, np.ndarray]:
    """They are a compressed text, read once in a process."""
    from sklearn.datasets import load_digits

    found: tuple[np.ndarray, np.ndarray] = load_digits(return_X_y=True)
    return found
