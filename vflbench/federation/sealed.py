"""What parties are handed cannot be changed: an in-place shuffle would reach everybody, and the observer's scores."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np


def sealed(value: Any, copy: bool = False) -> Any:
    """`value` with arrays that are read-only, and mappings that are: also those inside dataclasses, tuples, mappings.

    Other objects stay what they are. A list becomes a tuple.

    Parameters
    ----------
    copy : whether arrays are copies, which cannot be set writable again; else they are views of the same numbers.
    """
    if isinstance(value, np.ndarray):
        if copy and not value.dtype.hasobject:
            return np.frombuffer(value.tobytes(), value.dtype).reshape(value.shape)
        view = value.view()
        view.flags.writeable = False
        return view
    if isinstance(value, Mapping):
        return MappingProxyType({key: sealed(one, copy) for key, one in value.items()})
    if isinstance(value, list) or type(value) is tuple:
        return tuple(sealed(one, copy) for one in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
        return dataclasses.replace(value, **{name: sealed(part, copy) for name, part in parts.items()})
    return value
