"""How the rows of a prediction are served: `privacy.serving`, a key of mechanisms that noise what is sent of a row."""

from typing import Literal

from vflbench.types import PrivacyConfig

Serving = Literal["clean", "noisy"]  # the type of the key


def chosen(privacy: PrivacyConfig) -> Serving | None:
    """The value of the key; None where the mechanism has none."""
    found: Serving | None = vars(privacy).get("serving")
    return found
