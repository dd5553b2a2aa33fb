"""Shares of classes read from gradients."""

from vflbench.defaults import from_conf
from vflbench.types import Count, OptionInfo

OPTIONS = (OptionInfo("label_histogram", "a worker reads the others' shares of classes from their first gradients"),)


@from_conf()
class Config:
    """Keys of label_histogram."""

    name: str
    steps: Count
