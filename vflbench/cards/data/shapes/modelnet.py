"""ModelNet10 and ModelNet40."""

from dataclasses import dataclass
from typing import Annotated, Literal

from vflbench.types import Count, DatasetInfo, Range

DATASETS = (
    DatasetInfo(
        name="modelnet10",
        summary="ModelNet10: 4,899 objects of 10 kinds from 12 sides, a view per party; meshes or voxels",
        layouts=("aligned",),
        folder="modelnet10",
    ),
    DatasetInfo(
        name="modelnet40",
        summary="ModelNet40: 12,311 objects of 40 kinds from 12 sides, a view per party; meshes",
        layouts=("aligned",),
        folder="modelnet40",
    ),
)


@dataclass
class Config:
    """Keys of the data set."""

    name: str = "modelnet10"
    source: Literal["auto", "real", "synthetic"] = "auto"
    variant: Literal["auto", "meshes", "voxels"] = "auto"  # auto (the fullest found) | meshes | voxels (modelnet10)
    verify: bool = True  # compare the files with the known checksums
    size: Annotated[int, Range(at_least=16, at_most=512)] = 64  # pixels of a view's side
    # fraction of each class's training objects, drawn by the run's seed
    validation: Annotated[float, Range(at_least=0, below=1)] = 0.1
    processes: Count = 1  # that render meshes
