"""What a party may report: the rules of `Report`."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from vflbench.federation.party import Report
from vflbench.types import SCORED, FederationError, closest

SPLITS = {"predictions": {"val", "test"}, "otherwise": {"val", "test"}, "partial": {"train", "val", "test", "rows"}}


def check_report(party: str, round: int, values: Mapping[str, Any], scored: Sequence[str]) -> None:
    """Refuse what no report may hold.

    Parameters
    ----------
    scored : those of SCORED that the algorithm declares.

    Raises
    ------
    FederationError
        A key is unknown or not declared, or its value has the wrong type.
    """
    for key, value in values.items():
        if key not in Report.__annotations__:
            near = closest(key, Report.__annotations__)
            hint = f". Did you mean {near!r}?" if near else ""
            raise FederationError(
                f"{party} reports {key!r} in round {round}; what can be reported is "
                f"{', '.join(Report.__annotations__)}{hint}"
            )
        if key in SCORED and key not in scored:
            raise FederationError(f"{party} reports {key!r}; its ALGORITHM says that it reports {', '.join(scored)}")
        if key in ("train_loss", "penalty", "iterations", "epoch"):
            one = isinstance(value, torch.Tensor | np.ndarray) and np.prod(value.shape) == 1
            good, wanted = one or isinstance(value, int | float | np.number), "a number"
        elif key == "facts":
            good, wanted = (
                isinstance(value, Mapping) and all(isinstance(name, str) for name in value),
                "a dict with names as keys",
            )
        elif key in SPLITS:
            arrays = isinstance(value, Mapping) and all(
                isinstance(scores, np.ndarray | torch.Tensor) for scores in value.values()
            )
            good, wanted = (
                arrays and SPLITS[key] >= value.keys(),
                f"a dict of arrays, by split: {', '.join(sorted(SPLITS[key]))}",
            )
        else:
            good, wanted = isinstance(value, int | float | np.number | np.ndarray | torch.Tensor), "an array"
        if not good:
            raise FederationError(f"{party} reports {key} of type {type(value).__name__}: it must be {wanted}")
