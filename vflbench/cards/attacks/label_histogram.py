"""Shares of classes read from gradients."""

from dataclasses import dataclass

from vflbench.types import Count, OptionInfo

OPTIONS = (OptionInfo("label_histogram", "a worker reads the others' shares of classes from their first gradients"),)


@dataclass
class Config:
    """Keys of label_histogram."""

    name: str = "label_histogram"
    steps: Count = 3  # first gradients of each worker that count
