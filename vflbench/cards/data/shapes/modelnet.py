"""ModelNet10 and ModelNet40."""

from typing import Annotated, Literal

from vflbench.defaults import from_conf
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


@from_conf()
class Config:
    """Keys of the data set."""

    name: str
    source: Literal["auto", "real", "synthetic"]
    variant: Literal["auto", "meshes", "voxels"]
    verify: bool
    size: Annotated[int, Range(at_least=16, at_most=512)]
    validation: Annotated[float, Range(at_least=0, below=1)]
    processes: Count
