"""Made-up objects as voxel grids: a class is a few boxes, ellipsoids, cylinders and cones, which its objects vary."""

import numpy as np

from vflbench.seeding import stream

SIDE = 32
_MISREAD = 0.06  # fraction of objects that look like another class, so that no model reaches 100 %


def made_up(name: str, classes: int, per_class: int, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Objects for the twin of `name`, in random order; no grid is empty.

    Returns
    -------
    grids (classes * per_class, 32, 32, 32) bool, indexed [x, y, z], and labels.
    """
    rng = stream(0, f"twin/{name}/{split}")
    recipes = [_recipe(stream(0, f"twin/{name}/class {c}")) for c in range(classes)]
    labels = rng.permutation(np.repeat(np.arange(classes), per_class))
    misread = rng.random(len(labels)) < _MISREAD
    looks = np.where(misread, (labels + rng.integers(1, classes, len(labels))) % classes, labels)
    axis = (2 * np.arange(SIDE) + 1) / SIDE - 1
    cells = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"))
    return np.stack([_object(recipes[look], cells, rng) for look in looks]), labels


def _recipe(rng: np.random.Generator) -> list[tuple[int, np.ndarray, np.ndarray]]:
    """The two to four solids of a class: kind, middle (3,) and half extent (3,), within the cube from -1 to 1."""
    solids = []
    for _ in range(rng.integers(2, 5)):
        half = rng.uniform(0.12, 0.5, 3)
        solids.append((int(rng.integers(4)), rng.uniform(-0.75, 0.75, 3) * (1 - half), half))
    return solids


def _object(
    recipe: list[tuple[int, np.ndarray, np.ndarray]], cells: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    full = np.zeros((SIDE,) * 3, bool)
    for kind, middle, half in recipe:
        middle, half = middle + rng.normal(0, 0.05, 3), half * np.exp(rng.normal(0, 0.2, 3))
        x, y, z = (cells - middle[:, None, None, None]) / half[:, None, None, None]
        if kind == 0:  # box
            full |= np.maximum(np.maximum(abs(x), abs(y)), abs(z)) <= 1
        elif kind == 1:  # ellipsoid
            full |= x**2 + y**2 + z**2 <= 1
        elif kind == 2:  # cylinder, upright
            full |= (x**2 + y**2 <= 1) & (abs(z) <= 1)
        else:  # cone, with its tip above
            full |= (4 * (x**2 + y**2) <= (1 - z) ** 2) & (abs(z) <= 1)
    return full
