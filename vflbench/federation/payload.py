"""What may cross from party to party, and what it costs.

What a receiver could tell from a message is charged or cannot vary. Values cost what they hold. They pay for the first
dimension of arrays and for the length of text too, which the values count out.

All else of a payload is its *form*: types, containers, keys, further dimensions, the order of dimensions in memory. The
first form of a tag from one party to another is the tag's, and free: it is the protocol. A message of another form
costs 8 bytes for each entry of its form.

Some things are never free:

- an array without entries that is the first or in a container (8 bytes a dimension);
- a container within a container, or an empty one (8 bytes);
- None (1 byte);
- keys of dicts (UTF-8) that the algorithm's EXPOSES does not declare;
- a message (1 byte), and the tag of one below 16 bytes (`with_tag`).

What cannot be charged is refused: subclasses, names and metadata of types. Strides do not arrive. The time at which a
message is sent is not charged; framing is under accounting=framed. Nor are the type of a number or text by itself, and
what crosses within `evaluating()`.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np
import torch

from vflbench.federation import wire
from vflbench.types import FederationError

Form = str | tuple[Any, ...]  # all of a payload but values and the first dimension of arrays, which values pay for
Copied = tuple[Any, int, int, Form]  # a detached copy, its bytes, the arrays in it, its form
SIZE = 8  # bytes of a dimension, of a length, of a number
SMALL = 16  # bytes below which a message pays for its tag: in a larger one a tag is next to nothing
PLAIN = ("none", "bool", "int", "float", "text", "number")  # forms without a dimension


def copy_payload(payload: Any) -> Copied:
    """A detached copy of a payload, its size in bytes, the arrays in it, and its form.

    Nothing else of the original crosses. Tensors and numpy arrays cost what their entries have; without entries and
    inside a container, at least 8 bytes a dimension. Numbers cost 8, booleans and None 1, text its UTF-8. A tuple, list
    or dict is free if it is the payload, and costs 8 bytes inside another, or empty. `form_bytes` charges keys and
    forms.

    Raises
    ------
    FederationError
        A type is not exactly one of these.
    """
    kind = type(payload)
    copy = COPIES.get(kind)
    if copy is None:
        near = [k.__name__ for k in kind.__mro__ if k in COPIES]
        hint = f" (it is not exactly {near[0]})" if near else ""
        raise FederationError(
            f"a payload cannot hold {kind.__name__}{hint}: arrays, numbers, text and containers of those can cross"
        )
    return copy(payload)


def _copy_array(array: np.ndarray) -> Copied:
    dtype = array.dtype
    if dtype.kind not in wire.PLAIN_KINDS or dtype.metadata is not None:
        raise FederationError(f"a payload cannot be an array of {dtype!r}: numbers, text and times can cross")
    plain = np.dtype(dtype.str)  # one type for the same numbers: long and long long are two
    return array.astype(plain, order="C"), array.nbytes, 1, _shaped(f"array {plain.str}", array.shape, array.itemsize)


def _copy_tensor(tensor: torch.Tensor) -> Copied:
    if tensor.layout is not torch.strided:
        raise FederationError(f"a payload must be dense, not {tensor.layout}: send indices and values as they are")
    name = TENSORS.get(tensor.dtype)
    if name is None:
        raise FederationError(f"a payload cannot be a tensor of {tensor.dtype}")
    shape = tensor.shape
    form: Form
    if len(shape) == 1:
        form = name
    elif len(shape) == 2 and shape[1]:  # as `_shaped`, in a third of its time
        form = name, shape[1]
    else:
        form = _shaped(name, tuple(shape), tensor.element_size())
    if tensor.requires_grad:
        tensor = tensor.detach()
    # the stride of a dimension of size 1 means nothing, and a copy would keep it
    if 1 in shape and tensor.is_contiguous():
        copy = tensor.clone(memory_format=torch.contiguous_format)
    else:
        copy = tensor.clone()
    if not copy.is_contiguous():  # a copy keeps its layout, since that decides the order of sums
        strides = copy.stride()
        order = sorted(range(len(shape)), key=lambda d: -strides[d])
        dense = copy.permute(order).clone(memory_format=torch.contiguous_format)
        copy, form = dense.permute([order.index(d) for d in range(len(shape))]), ("order", *order, form)
    return copy, copy.nbytes, 1, form


def _shaped(name: str, shape: tuple[int, ...], itemsize: int) -> Form:
    """The form of an array: without the first dimension where entries pay for it.

    They do not pay for that of (n, 0), nor where an entry has no bytes.
    """
    if not itemsize or 0 in shape[1:]:
        return (f"{name} of {shape[0]}", *shape[1:])
    return name if len(shape) == 1 else (name, *shape[1:])


def _copy_int(number: int) -> Copied:
    if not -(2**63) <= number < 2**63:
        raise FederationError("a payload's integers have 64 bits: send a larger one as an array or text")
    return number, SIZE, 0, "int"


def _copy_parts(parts: Any) -> Copied:
    kind, values, forms = type(parts), [], []
    nbytes, vectors = 0 if parts else SIZE, 0
    for part in parts:
        value, size, count, form = (COPIES.get(type(part)) or copy_payload)(part)
        values.append(value)
        forms.append(form)
        nbytes, vectors = nbytes + size, vectors + count
        if type(part) in CONTAINERS and part:
            nbytes += SIZE
        elif not size:  # an array without entries
            nbytes += SIZE * _entries(form)
    return kind(values), nbytes, vectors, (kind.__name__, *forms)


def _copy_dict(parts: dict[Any, Any]) -> Copied:
    """The copy has its keys in sorted order: any other order would tell the receiver something."""
    if not all(type(key) is str for key in parts):
        raise FederationError("a payload's dict has text as keys: send numbers as an array")
    keys = sorted(parts)
    values, nbytes, vectors, form = _copy_parts([parts[key] for key in keys])
    return dict(zip(keys, values, strict=True)), nbytes, vectors, ("dict", tuple(keys), *form[1:])


CONTAINERS = (tuple, list, dict)
TENSORS = {dtype: f"tensor {name}" for dtype, name in wire.NAMES.items()}
# forms of arrays of one dimension, by the id of the dtype: numpy has one object for each
LINES = {id(dtype): f"array {dtype.str}" for dtype in wire.NUMPY_DTYPES.values()}
COPIES: dict[type, Callable[[Any], Copied]] = {
    np.ndarray: _copy_array,
    torch.Tensor: _copy_tensor,
    torch.nn.Parameter: _copy_tensor,
    type(None): lambda _: (None, 1, 0, "none"),
    bool: lambda value: (value, 1, 0, "bool"),
    int: _copy_int,
    float: lambda value: (value, SIZE, 0, "float"),
    str: lambda value: (value, len(value.encode("utf-8", "surrogatepass")) or 1, 0, "text"),
    np.bool_: lambda value: (bool(value), 1, 0, "bool"),
    **{
        dtype.type: lambda value: (value, SIZE, 0, "number")
        for dtype in wire.NUMPY_DTYPES.values()
        if dtype.kind in "iuf"
    },
    tuple: _copy_parts,
    list: _copy_parts,
    dict: _copy_dict,
}


def form_bytes(form: Form, first: Form, declared: Collection[str]) -> int:
    """What a payload's form costs: keys that are not declared, and 8 bytes for each entry where it is not `first`.

    `first` is the form of the first message with its tag between the same two parties: a repeated form says nothing
    new. Entries are the dimensions of arrays and the parts of containers. A number or text by itself has none.
    """
    keys = sum(len(key.encode("utf-8", "surrogatepass")) or 1 for key in _keys(form) if key not in declared)
    return keys + (0 if form == first or form in PLAIN else SIZE * _entries(form))


def tag_bytes(tags: int) -> int:
    """The bytes that tell one of `tags` tags from the others: ceil(log2(tags)) bits, rounded up to a byte."""
    return -(-(max(tags, 1) - 1).bit_length() // 8)


def with_tag(nbytes: int, tag: int) -> int:
    """What a message of `nbytes` is charged, whose tag takes `tag` bytes: at least 1 byte.

    A sender could say anything in the tags of empty messages, or by how many of them there are.
    """
    return nbytes if nbytes >= SMALL else nbytes + tag or 1


def _keys(form: Form) -> Iterator[str]:
    if isinstance(form, tuple):
        parts = form[1:]
        if form[0] == "dict":
            yield from parts[0]
            parts = parts[1:]
        for part in parts:
            yield from _keys(part)


def _entries(form: Any) -> int:
    return sum(map(_entries, form)) if isinstance(form, tuple) else 1
