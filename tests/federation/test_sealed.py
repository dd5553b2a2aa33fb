"""What a party is handed is its own to read, and nobody's to change."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from vflbench.data.tasks import GraphPart, GraphPublic
from vflbench.federation.party import PartySpec
from vflbench.federation.simulated import SimulatedEngine
from vflbench.types import FederationError


def handed(body: Callable[[Any, Any], Any]) -> GraphPublic:
    """Run `body(data, public)` as a party's program; returns the `public` that the task keeps."""
    splits = {"train": np.arange(3), "test": np.arange(3, 5)}
    public = GraphPublic(5, 2, 1, splits)
    part = GraphPart(np.ones((5, 2), np.float32), np.zeros((2, 0), np.int64), np.zeros(5, np.int64))

    async def program(me: Any, data: Any, public: Any, config: Any) -> None:
        async for _ in me.rounds():
            body(data, public)

    SimulatedEngine({"client": PartySpec(program, part)}, public, SimpleNamespace()).run()
    assert splits["test"].tolist() == [3, 4] and (part.features == 1).all()
    return public


def swap_splits(_: Any, public: Any) -> None:
    public.splits["test"] = public.splits["train"]


def shuffle_split(_: Any, public: Any) -> None:
    np.random.default_rng(0).shuffle(public.splits["train"])


def make_writable(_: Any, public: Any) -> None:
    public.splits["train"].flags.writeable = True


def set_a_field(_: Any, public: Any) -> None:
    public.nodes = 3


def scale_features(data: Any, _: Any) -> None:
    data.features[:] *= 2


@pytest.mark.parametrize("body", [swap_splits, shuffle_split, make_writable, set_a_field, scale_features])
def test_nothing_handed_can_be_changed(body: Callable[[Any, Any], Any]) -> None:
    with pytest.raises((TypeError, ValueError, AttributeError)):
        handed(body)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_data_are_read_not_copied(copied: Callable[[Any], Any]) -> None:
    with pytest.raises(FederationError, match="client's data cannot be copied or pickled: read their fields"):
        handed(lambda data, _: copied(data))


def test_programs_have_public_arrays_of_their_own() -> None:
    """An array that a program gets at by force is not the observer's."""
    seen: list[np.ndarray] = []
    public = handed(lambda _, public: seen.append(public.splits["test"]))
    assert not np.shares_memory(seen[0], public.splits["test"])
