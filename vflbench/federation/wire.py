"""The wire form of what crosses between processes. Nothing is unpickled.

Plain data are JSON, arrays their dtype, shape and bytes:

    4 bytes length n of the head | n bytes head: JSON | the arrays' bytes, in the order of the head

In the head null, booleans, numbers and text are themselves. All else is a list that begins with its kind:

    ["l", ...]                  list
    ["t", ...]                  tuple
    ["d", [key, value], ...]    dict
    ["a", dtype, shape]         numpy array
    ["s", dtype]                numpy scalar
    ["T", dtype, shape, order of the dimensions in memory, whether it was on the sender's device]    torch tensor
"""

import json
import math
import re
import struct
from typing import Any

import numpy as np
import torch

from vflbench.types import FederationError

LENGTH = struct.Struct("<I")
NUMBERS = "biufc"
PLAIN_KINDS = NUMBERS + "SUmM"  # of numpy dtypes: numbers, text and times; objects and records do not cross
TORCH_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128),
    )
}
# np.dtype itself takes much more than these
DTYPE = re.compile(rf"[<>|=][{PLAIN_KINDS}]\d{{1,8}}(\[\d{{0,8}}[A-Za-zμ]{{1,2}}\])?")
NAMES = {dtype: name for name, dtype in TORCH_DTYPES.items()}
NUMPY_DTYPES = {name: np.dtype(name) for name in TORCH_DTYPES if name != "bfloat16"}
DEEPEST = 64  # levels of containers
encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
decode = json.JSONDecoder().decode


def pack(value: Any, device: str = "cpu") -> bytes:
    """The wire form of tensors, arrays, numbers, text, None and lists, tuples and dicts of those.

    `device` is the sender's.

    Raises
    ------
    FederationError
        The value holds something else.
    """
    buffers: list[Any] = []
    head = encode(_describe(value, buffers, device.partition(":")[0])).encode()
    return b"".join((LENGTH.pack(len(head)), head, *buffers))


def unpack(data: bytes | memoryview, device: str = "cpu") -> Any:
    """The inverse of `pack`: new, writable arrays and tensors.

    A tensor that was on the sender's device arrives on `device`, the receiver's.

    Raises
    ------
    FederationError
        The bytes are not of this form.
    """
    try:
        (length,) = LENGTH.unpack_from(data)
        if length > len(data) - LENGTH.size:
            raise ValueError("it ends before its head does")
        head = decode(str(data[LENGTH.size : LENGTH.size + length], "utf-8"))
        reader = _Reader(memoryview(data)[LENGTH.size + length :], device)
        value = reader.read(head, 0)
        if reader.at != len(reader.data):
            raise ValueError(f"{len(reader.data) - reader.at} bytes more than its head says")
        return value
    except (
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        struct.error,
        RuntimeError,
        RecursionError,
        OverflowError,
        MemoryError,
    ) as error:
        raise FederationError(f"not a message: {error}") from None


def _describe(value: Any, buffers: list[Any], home: str) -> Any:
    kind = type(value)
    if value is None or kind is bool or kind is int or kind is float or kind is str:
        return value
    if isinstance(value, torch.Tensor):
        name = NAMES.get(value.dtype)
        if name is None or value.layout is not torch.strided:
            raise FederationError(f"a tensor of {value.dtype}, {value.layout}, cannot cross between processes")
        tensor, at_home = value.detach(), value.device.type == home
        if value.device.type != "cpu":
            tensor = tensor.cpu()
        if tensor.is_contiguous():
            order = list(range(tensor.dim()))
        else:  # a copy keeps its layout, since that decides the order of sums
            strides = tensor.stride()
            order = sorted(range(tensor.dim()), key=lambda d: -strides[d])
            tensor = tensor.permute(order).contiguous()
        buffers.append(_buffer(tensor))
        return ["T", name, list(value.shape), order, at_home]
    if isinstance(value, np.ndarray | np.generic):
        array = np.ascontiguousarray(value)
        if array.dtype.kind not in PLAIN_KINDS:
            raise FederationError(f"an array of {array.dtype} cannot cross between processes")
        buffers.append(array.data if array.dtype.kind in NUMBERS and array.ndim else array.tobytes())
        return ["s", array.dtype.str] if isinstance(value, np.generic) else ["a", array.dtype.str, list(value.shape)]
    if isinstance(value, list | tuple):
        return ["t" if isinstance(value, tuple) else "l", *(_describe(part, buffers, home) for part in value)]
    if isinstance(value, dict) and all(isinstance(key, str | int) for key in value):
        return ["d", *([key, _describe(part, buffers, home)] for key, part in value.items())]
    raise FederationError(
        f"{kind.__name__} cannot cross between processes: arrays, numbers, text and containers of those can"
    )


def _buffer(tensor: torch.Tensor) -> Any:
    """The bytes of a contiguous tensor."""
    if not tensor.numel():
        return b""
    return (tensor.reshape(-1).view(torch.uint8) if tensor.dtype is torch.bfloat16 else tensor).numpy().data


class _Reader:
    def __init__(self, data: memoryview, device: str) -> None:
        self.data, self.device, self.at = data, device, 0

    def take(self, nbytes: int) -> memoryview:
        if not 0 <= nbytes <= len(self.data) - self.at:
            raise ValueError("an array is longer than the message")
        self.at += nbytes
        return self.data[self.at - nbytes : self.at]

    def array(self, text: str, shape: list[int]) -> np.ndarray:
        if not DTYPE.fullmatch(text) or not all(type(size) is int and size >= 0 for size in shape):
            raise ValueError(f"an array of {text!r} with shape {shape}")
        dtype = np.dtype(text)
        if not dtype.itemsize:  # a message without a byte could hold any number of entries
            raise ValueError(f"an array of {text!r}, whose entries have no size")
        return np.frombuffer(self.take(math.prod(shape) * dtype.itemsize), dtype).reshape(shape).copy()

    def tensor(self, name: str, shape: list[int], order: list[int], at_home: bool) -> torch.Tensor:
        dtype, rank = TORCH_DTYPES[name], len(shape)
        straight = list(range(rank))
        if not all(type(size) is int and size >= 0 for size in shape) or (
            order != straight and sorted(order) != straight
        ):
            raise ValueError(f"dimensions {order} of a tensor with shape {shape}")
        raw = self.take(math.prod(shape) * dtype.itemsize)
        if not len(raw):
            tensor = torch.empty(shape, dtype=dtype)
        elif order == straight and name in NUMPY_DTYPES:
            tensor = torch.from_numpy(np.frombuffer(raw, NUMPY_DTYPES[name]).reshape(shape).copy())
        else:
            flat = torch.from_numpy(np.frombuffer(raw, np.uint8).copy()).view(dtype)
            tensor = flat.reshape([shape[d] for d in order]).permute([order.index(d) for d in straight])
        return tensor.to(self.device) if at_home and self.device != "cpu" else tensor

    def read(self, head: Any, depth: int) -> Any:
        if not isinstance(head, list):
            if head is None or isinstance(head, bool | int | float | str):
                return head
            raise ValueError("a head holds lists and plain values")
        if depth > DEEPEST:
            raise ValueError("containers too deep")
        kind, *parts = head
        if kind == "T":
            return self.tensor(*parts)
        if kind == "a":
            return self.array(*parts)
        if kind == "s":
            return self.array(parts[0], [])[()]
        if kind in ("l", "t"):
            items = [self.read(part, depth + 1) for part in parts]
            return items if kind == "l" else tuple(items)
        if kind == "d":
            if not all(isinstance(key, str | int) for key, _ in parts):
                raise ValueError("a dict's keys are text or whole numbers")
            return {key: self.read(part, depth + 1) for key, part in parts}
        raise ValueError(f"kind {kind!r}")


def shape_of(value: Any) -> str:
    """A payload in few words, for messages about errors: float32 (20, 24)."""
    if isinstance(value, torch.Tensor | np.ndarray):
        return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(shape_of, value[:8]))}{', ...' if len(value) > 8 else ''}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {shape_of(part)}' for key, part in list(value.items())[:8])}}}"
    return type(value).__name__
