"""A saved graph of torch_geometric as arrays: a `Data` object, its dict, or the folder of an `InMemoryDataset`.

`torch.load(weights_only=True)` reads it. Of all classes in the file only those that a `Data` needs are known, and ours
stand in for them: nothing of the file runs, and torch_geometric is not needed.
"""

import contextlib
import io
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from vflbench.types import DataError

# What a saved Data names beside tensors.
_CLASSES = (
    *("torch_geometric.data.data.Data", "torch_geometric.data.storage.GlobalStorage"),
    *("torch_geometric.data.data.DataEdgeAttr", "torch_geometric.data.data.DataTensorAttr"),
)
_ADVICE = "Save it with torch.save(data, FILE), or torch.save(data.to_dict(), FILE)"


def find(path: Path, shown: str) -> Path:
    """The file that `path` means: itself, or the processed data in a folder of a data set.

    Raises
    ------
    DataError : the folder has none, or several.
    """
    if not path.is_dir():
        return path
    places = [place for place in (path / "processed", path) if place.is_dir()]
    if (usual := next((place / "data.pt" for place in places if (place / "data.pt").is_file()), None)) is not None:
        return usual
    found = sorted(
        file
        for place in places
        for file in place.glob("*.pt")
        if file.name not in ("pre_filter.pt", "pre_transform.pt")
    )
    if len(found) == 1:
        return found[0]
    names = f"{', '.join(file.name for file in found)}: name one of them" if found else "none"
    raise DataError(f"{shown}: a data set's folder has the file processed/data.pt; this one has {names}.")


def read(data: bytes, where: str) -> dict[str, np.ndarray]:
    """The tensors of one graph, by name.

    Parameters
    ----------
    data : what `torch.save` wrote.
    where : the file's name in errors.

    Raises
    ------
    DataError : it is cut short, names anything but a Data, or holds several graphs.
    """
    import torch

    held, slices = _load(data, where), None
    if isinstance(held, tuple) and len(held) in (2, 3):
        held, slices = held[:2]
    if isinstance(held, _StandIn):
        store = vars(held).get("_store")
        held = vars(store if isinstance(store, _StandIn) else held).get("_mapping", vars(held))
    if not isinstance(held, dict) or not all(isinstance(key, str) for key in held):
        raise DataError(f"{where}: holds a {type(held).__name__} where a graph belongs. {_ADVICE}.")
    ends = slices.values() if isinstance(slices, dict) else ()
    if (graphs := max((len(own) for own in ends if np.ndim(own) == 1), default=2) - 1) > 1:
        raise DataError(f"{where}: holds {graphs} graphs; one graph is needed, whose nodes have labels.")
    # {"split_idx": {"train": ...}}, as OGB has it, is train_idx
    nested = {
        f"{name}_idx": own
        for key, own in held.items()
        if "split" in key and isinstance(own, dict)
        for name, own in own.items()
    }
    arrays = {}
    for key, value in {**held, **nested}.items():
        if isinstance(value, torch.Tensor):
            try:
                value = value.detach().to_dense()
                arrays[key] = (value.float() if value.dtype == torch.bfloat16 else value).numpy()
            except (RuntimeError, TypeError, ValueError) as error:
                raise DataError(f"{where}, {key}: a tensor that cannot be read ({_line(error)}).") from None
    return arrays


class _StandIn:
    """In place of a class of torch_geometric; what the file says of an object is in its `__dict__`."""


@contextlib.contextmanager
def _only_data() -> Iterator[None]:
    """Torch knows the classes of a Data, and none that another package has announced."""
    from torch import serialization

    others = serialization.get_safe_globals()
    serialization.clear_safe_globals()
    try:
        stand_ins = [type(name.rpartition(".")[2], (_StandIn,), {}) for name in _CLASSES]
        with serialization.safe_globals(list(zip(stand_ins, _CLASSES, strict=True))):
            yield
    finally:
        serialization.clear_safe_globals()
        serialization.add_safe_globals(others)


def _load(data: bytes, where: str) -> Any:
    import torch

    try:
        with _only_data(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of old protocols
            return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged pickle raises whatever its opcodes lead to
        if named := re.search(r"(?:GLOBAL|[Uu]nsupported class) ([A-Za-z_][\w.]*)", str(error)):
            reason = f"names {named[1]}, which no graph needs: refused, nothing was run"
            raise DataError(f"{where}: {reason}. {_ADVICE}.") from None
        raise DataError(f"{where}: cut short or not saved by torch.save ({_line(error)}). {_ADVICE}.") from None


def _line(error: Exception) -> str:
    """The first line of an error, without advice to load the file unsafely."""
    text = str(error).partition("\n")[0]
    unsafe = "weights_only" in text or "Weights only" in text
    return type(error).__name__ if unsafe or not text else text[:120].rstrip(". ")
