"""MVCNN, a network for views of an object."""

from typing import Literal

from vflbench.cards.models import image
from vflbench.defaults import from_conf
from vflbench.types import Count

MODEL_NAMES = ("mvcnn",)


@from_conf()
class Config:
    """Keys of mvcnn."""

    name: str
    channels: list[int]
    norm: Literal["group", "none"]
    embedding: Count
    dtype: Literal["float32", "float64"]


check = image.check
