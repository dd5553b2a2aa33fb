"""Labels read from residuals."""

from dataclasses import dataclass

from vflbench.types import Count, OptionInfo

OPTIONS = (OptionInfo("residual_labels", "a table's owner reads labels from the first residual that it receives"),)


@dataclass
class Config:
    """Keys of residual_labels."""

    name: str = "residual_labels"
    rounds: Count = 3  # residuals whose correlation with the sums of labels is told
