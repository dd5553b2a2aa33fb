"""The wire form: what goes in comes out, with dtype, shape and layout; what is not of this form is refused, and nothing
is unpickled."""

from __future__ import annotations

import pickle
import random
from typing import Any

import numpy as np
import pytest
import torch

from vflbench.federation import wire
from vflbench.federation.ray.calls import join, split
from vflbench.types import FederationError

GENERATOR = torch.Generator().manual_seed(0)
TENSORS = {
    **{name: torch.arange(12).reshape(3, 4).to(dtype) for name, dtype in wire.TORCH_DTYPES.items()},
    "transposed": torch.rand(5, 3, generator=GENERATOR).T,
    "channels last": torch.rand(2, 3, 4, 5, generator=GENERATOR).to(memory_format=torch.channels_last),
    "permuted bfloat16": torch.rand(2, 3, 4, generator=GENERATOR).to(torch.bfloat16).permute(2, 0, 1),
    "every other": torch.arange(10.0)[::2],
    "one number": torch.tensor(2.5),
    "nothing": torch.zeros(0, 7),
    "expanded": torch.tensor([[1.0], [2.0]]).expand(2, 3),
    "with gradient": torch.ones(3, requires_grad=True),
}


@pytest.mark.parametrize("name", TENSORS)
def test_a_tensor_comes_out_as_it_went_in(name: str) -> None:
    sent = TENSORS[name]
    found = wire.unpack(memoryview(wire.pack(("x", sent))))[1]
    assert torch.equal(found, sent.detach()) and (found.dtype, found.shape) == (sent.dtype, sent.shape)
    assert not found.requires_grad and found.numel() * found.element_size() == found.untyped_storage().nbytes()
    if name not in ("every other", "nothing", "expanded"):  # of a copy, sums are taken in the same order
        assert found.stride() == sent.stride()
    found.zero_()  # its own, and writable


def test_arrays_numbers_and_containers_come_out_as_they_went_in() -> None:
    value = {
        "array": np.arange(6, dtype=np.int16).reshape(2, 3).T,
        "text": np.array(["a", "bcd"]),
        "dates": np.array(["2020-01-01", "NaT"], "datetime64[ns]"),
        "scalars": (np.float32(0.1), np.int64(-(2**62)), np.bool_(True), np.zeros(()), np.zeros((0, 3), np.uint8)),
        "plain": [None, True, -7, 2**62, 0.1, float("inf"), "Zürich", {}, [], ()],
        5: {"nested": [(1, [2, {"x": np.ones(2)}])]},
    }
    found = wire.unpack(wire.pack(value))

    def same(one: Any, other: Any) -> bool:
        assert type(one) is type(other)
        if isinstance(one, dict):
            return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
        if isinstance(one, list | tuple):
            return len(one) == len(other) and all(map(same, one, other))
        if isinstance(one, np.ndarray | np.generic):
            np.testing.assert_array_equal(one, other)
            return bool(one.dtype == other.dtype and one.shape == other.shape)
        return bool(one == other)

    assert same(value, found)
    found["array"][:] = 0


@pytest.mark.parametrize(
    "value", [object(), {1, 2}, np.array([object()]), torch.eye(2).to_sparse(), {(1, 2): 3}, b"bytes"]
)
def test_what_cannot_cross_is_refused(value: Any) -> None:
    with pytest.raises(FederationError, match="cannot cross between processes"):
        wire.pack(value)


def test_what_is_not_of_this_form_is_refused() -> None:
    good = wire.pack(("tag", 1, torch.arange(6.0).reshape(2, 3), np.arange(3)))
    deep: Any = 1
    for _ in range(80):
        deep = [deep]
    bad = [b"", b"\x05", pickle.dumps([1]), good[:-1], good + b"x", wire.pack(deep), wire.LENGTH.pack(2**31) + b"[]"]
    for head in (
        b'["T","float32",[-1],[0],true]', b'["T","float32",[2],[1],true]', b'["T","object",[2],[0],true]',
        b'["T","float32",["2"],[0],true]',
        b'["a","O",[1]]', b'["a","<f8",[9999999999]]', b'["a","<U0",[99999999999]]', b'["a","|S0",[]]', b'["s","<U0"]',
        b'["T","float32",[0,4611686018427387904,4611686018427387904],[0,1,2],true]',
        b'["a","<f8",[0,4611686018427387904,4611686018427387904]]', b'["q",1]', b'{"a":1}', b'["d",[[1],2]]', b"[",
        b"\xff\xff", b"[[]]",
    ):  # fmt: skip
        bad.append(wire.LENGTH.pack(len(head)) + head)
    for data in bad:
        with pytest.raises(FederationError, match="not a message"):
            wire.unpack(data)


def test_whatever_bytes_arrive_end_in_a_value_or_a_refusal() -> None:
    draw = random.Random(0)
    good = bytearray(wire.pack(("tag", 1, torch.arange(6.0).reshape(2, 3), {"x": np.arange(3)})))
    for _ in range(2000):
        data = bytearray(good)
        for _ in range(draw.randint(1, 4)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        try:
            wire.unpack(bytes(data))
        except FederationError as error:
            assert str(error).startswith("not a message")


def test_a_call_is_taken_apart_as_it_was_put_together() -> None:
    parts = [b"", b"abc", b"x" * 1000]
    first, found = split(join(7, parts))
    assert first == 7 and list(map(bytes, found)) == parts
    for data in (b"", join(7, parts)[:-1], join(7, parts) + b"x"):
        with pytest.raises(ValueError, match="not a message"):
            split(data)
