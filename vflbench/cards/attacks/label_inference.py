"""Labels guessed from gradients."""

from dataclasses import dataclass

from vflbench.types import Count, OptionInfo

OPTIONS = (OptionInfo("label_inference", "a passive party guesses labels from the gradients that it received"),)


@dataclass
class Config:
    """Keys of label_inference."""

    name: str = "label_inference"
    rows: Count = 1000  # attacked training rows, drawn at random
    epochs: Count | None = None  # epochs whose gradients are read, from the first; null: all
