"""Labels guessed from gradients."""

from vflbench.defaults import from_conf
from vflbench.types import Count, OptionInfo

OPTIONS = (OptionInfo("label_inference", "a passive party guesses labels from the gradients that it received"),)


@from_conf()
class Config:
    """Keys of label_inference."""

    name: str
    rows: Count
    epochs: Count | None
