"""Parties of a cohort that compute the same function on equal shapes at the same instant run as one call."""

from __future__ import annotations

import types
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from vflbench.federation import counted_work
from vflbench.federation.clock import ComputeClock
from vflbench.federation.counted_work import Work

if TYPE_CHECKING:
    from vflbench.federation.runtime.member import Member


class Call(NamedTuple):
    """A computation that waits for those of other parties."""

    party: Member
    key: Any  # equal ones can run as one
    function: Callable[..., Any]
    args: tuple[Any, ...]
    cost: float


class Cohort:
    """Computations that wait until nobody can run without them. Implements `runtime.protocols.Batches`."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.results: dict[str, Any] = {}  # by party, until it reads its own
        self.works: dict[Any, Work] = {}  # of what has been counted

    @types.coroutine
    def compute(
        self, party: Member, function: Callable[..., Any], args: tuple[Any, ...], cost: float
    ) -> Generator[None, None, Any]:
        """Wait until the cohort is computed; returns the result for `party`."""
        leaves, structure = flatten(args)
        key: Any = [function, structure]
        for leaf in leaves:
            if isinstance(leaf, torch.Tensor) and not leaf.requires_grad:
                key.append((leaf.shape, leaf.dtype, leaf.device))
            elif isinstance(leaf, CONSTANTS):
                key.append((type(leaf), leaf))
            else:  # nobody else has this key: the call runs by itself
                key = party
                break
        else:
            key = tuple(key)
        self.calls.append(Call(party, key, function, args, cost))
        yield
        return self.results.pop(party.name)

    def run(self, clock: ComputeClock) -> list[Member]:
        """Run all that wait, equal ones as one vmap call, in the parties' order; returns the parties that can go on."""
        calls, self.calls = sorted(self.calls, key=lambda call: call.party.index), []
        groups: dict[Any, list[Call]] = {}
        for call in calls:
            groups.setdefault(call.key, []).append(call)
        for members in groups.values():
            counted = self._work(members[0]).seconds(clock.config) if clock.counts else None
            start = clock.moment()
            results = run_batch(members[0].function, [call.args for call in members])
            elapsed = (clock.moment() - start) / len(members)
            for call, result in zip(members, results, strict=True):
                self.results[call.party.name] = result
                call.party.advance(clock.seconds(call.cost, elapsed) if counted is None else counted)
        return [call.party for call in calls]

    def _work(self, call: Call) -> Work:
        """The work of one party's computation: of the function, the shapes and the constants that are no reals."""
        if call.key is call.party:
            key: Any = None
        else:
            key = tuple(float if isinstance(part, tuple) and part[0] is float else part for part in call.key)
        if (found := self.works.get(key)) is None:
            copies = pytree.tree_map(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, call.args)
            found = counted_work.counted(call.function, *copies)[1]  # it may change its arguments
            if key is not None:
                self.works[key] = found
        return found


CONSTANTS = (bool, int, float, str, type(None))  # arguments that a batch shares, where they are equal


LEAVES = (torch.Tensor, *CONSTANTS)


def flatten(args: tuple[Any, ...]) -> tuple[Sequence[Any], Any]:
    """As `pytree.tree_flatten`, but quicker for arguments that hold no containers: their structure is None here."""
    for arg in args:
        if not isinstance(arg, LEAVES):
            return pytree.tree_flatten(args)
    return args, None


def stack(leaves: Sequence[torch.Tensor]) -> torch.Tensor:
    """As `torch.stack`, without a copy where the tensors are neighbours in memory, as an earlier batch left them."""
    first, base = leaves[0], leaves[0]._base  # neighbours are views of one tensor
    if base is None:
        return torch.stack(tuple(leaves))
    size, place = first.numel(), first.storage_offset()
    for leaf in leaves:
        if leaf._base is not base or leaf.requires_grad or leaf.storage_offset() != place or not leaf.is_contiguous():
            return torch.stack(tuple(leaves))
        place += size
    return first.as_strided((len(leaves), *first.shape), (size, *first.stride()))


def run_batch(function: Callable[..., Any], calls: list[tuple[Any, ...]]) -> list[Any]:
    """The results of `function` on each call's arguments, computed as one call over their stacked tensors.

    That call is of `function.together` where there is one, else of vmap.
    """
    if len(calls) == 1:
        return [function(*calls[0])]
    flat = [flatten(call) for call in calls]
    first, structure = flat[0]
    if not any(isinstance(leaf, torch.Tensor) for leaf in first):
        return [function(*call) for call in calls]
    stacked, dims = [], []
    for leaves in zip(*(leaves for leaves, _ in flat), strict=True):
        tensor = isinstance(leaves[0], torch.Tensor)
        stacked.append(stack(leaves) if tensor else leaves[0])
        dims.append(0 if tensor else None)

    def call(*leaves: Any) -> Any:
        return function(*(leaves if structure is None else pytree.tree_unflatten(list(leaves), structure)))

    if structure is None and hasattr(function, "together"):
        result = function.together(*stacked)
    else:
        result = torch.func.vmap(call, in_dims=tuple(dims))(*stacked)
    if isinstance(result, tuple) and all(isinstance(leaf, torch.Tensor) for leaf in result):
        return list(zip(*(leaf.unbind() for leaf in result), strict=True))
    out, out_structure = pytree.tree_flatten(result)
    return [pytree.tree_unflatten([leaf[i] for leaf in out], out_structure) for i in range(len(calls))]
