"""A consistent cut of a federation (Chandy and Lamport).

It holds what each party was when it passed a round boundary, and what was in flight. Values are copied when they are
captured, into plain containers, numbers, text and tensors. So a checkpoint file can be read back without executing
anything.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from vflbench.types import FederationError


def freeze(value: Any, where: str = "state", home: str = "cpu") -> Any:
    """Copy a value into plain data.

    A tensor that is not on `home`, the party's device, is marked: elsewhere `thaw` moves the others to its party's.

    Raises
    ------
    FederationError
        A checkpoint cannot hold the value, whose place is `where`.
    """
    if isinstance(value, torch.Tensor):
        copy = value.detach().clone()
        return copy if copy.device.type == home.partition(":")[0] else {"__cpu__": copy.cpu()}
    if isinstance(value, np.str_):
        return str(value)
    # np.generic before float: np.float64 is a float, and a file of plain data cannot hold it
    if isinstance(value, (np.ndarray, np.generic)):
        kind = "__ndarray__" if isinstance(value, np.ndarray) else "__scalar__"
        try:
            return {kind: torch.from_numpy(np.array(value, order="K"))}
        except TypeError:
            raise FederationError(
                f"{where}: arrays of {value.dtype} cannot be saved: use numbers of a native type"
            ) from None
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (tuple, list)):
        frozen = [freeze(v, f"{where}[{i}]", home) for i, v in enumerate(value)]
        return tuple(frozen) if isinstance(value, tuple) else frozen
    if hasattr(value, "state_dict"):
        return {"__state_dict__": freeze(dict(value.state_dict()), where, home)}
    if isinstance(value, dict):
        return {k: freeze(v, f"{where}.{k}", home) for k, v in value.items()}
    raise FederationError(
        f"{where} is a {type(value).__name__}: state holds modules, optimisers, tensors, arrays, numbers, text or "
        "containers of those"
    )


def optimised(state: Iterable[tuple[str, Any]]) -> set[int]:
    """The ids of the tensors that the optimisers of a party's state step.

    A resumed run must keep these very objects.
    """
    groups = [group for _, value in state for group in getattr(value, "param_groups", ())]
    return {id(parameter) for group in groups for parameter in group["params"]}


def thaw(
    value: Any,
    current: Any = None,
    where: str = "state",
    kept: set[int] | frozenset[int] = frozenset(),
    home: str = "cpu",
) -> Any:
    """The inverse of `freeze`, also of one that another device wrote.

    `current` is what the program has just built in that place. An object with a state_dict is loaded into it: from
    tensors on the CPU, as torch's objects expect. A tensor that learns (requires_grad, or its id in `kept`) keeps its
    identity. All else is new: `current` may share memory with the party's data. It is on the device of `current`, or
    where that is no tensor on `home`, the party's.
    """
    if isinstance(value, dict):
        if "__cpu__" in value:
            return thaw(value["__cpu__"], current, where, kept)
        if "__ndarray__" in value:
            return value["__ndarray__"].numpy().copy(order="K")
        if "__scalar__" in value:
            return value["__scalar__"].numpy()[()]
        if "__state_dict__" in value:
            if not hasattr(current, "load_state_dict"):
                raise FederationError(f"{where} must exist before rounds(), so that a resumed run can load into it")
            try:
                current.load_state_dict(thaw(value["__state_dict__"]))
            except RuntimeError as error:  # torch: names or shapes differ
                raise FederationError(
                    f"{where} was saved by another version of vflbench: start the run anew"
                ) from error
            return current
        old = current if isinstance(current, dict) else {}
        return {k: thaw(v, old.get(k), f"{where}.{k}", kept, home) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        old_items = (
            current if isinstance(current, (tuple, list)) and len(current) == len(value) else [None] * len(value)
        )
        return type(value)(
            thaw(v, o, f"{where}[{i}]", kept, home) for i, (v, o) in enumerate(zip(value, old_items, strict=True))
        )
    if isinstance(value, torch.Tensor):
        learns = isinstance(current, torch.Tensor) and (current.requires_grad or id(current) in kept)
        if learns and current.is_leaf and current.shape == value.shape and current.dtype == value.dtype:
            with torch.no_grad():
                current.copy_(value)
            return current
        return value.to(current.device if isinstance(current, torch.Tensor) else home, copy=True)
    return value


@dataclass
class Cut:
    """The cut at the boundary after `round`."""

    round: int
    parties: dict[str, dict[str, Any]] = field(default_factory=dict)
    inflight: list[dict[str, Any]] = field(default_factory=list)  # sent before it, consumed after it
    # server -> (arrival, src, seq, end), served before it
    ingress: dict[str, list[tuple[float, int, int, float]]] = field(default_factory=dict)
    # machine -> (when each core is free, (when, party, seconds, round) that were asked for since)
    cores: dict[str, tuple[list[float], list[tuple[float, int, float, int]]]] = field(default_factory=dict)
    totals: dict[str, Any] = field(default_factory=dict)
