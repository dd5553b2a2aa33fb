"""A GPU that is not there: tensors of device "cuda" lie in the CPU's memory, and what a real one refuses is refused.

    with PretendedGpu() as gpu:
        vflbench.run(["device=cuda", ...])
    assert gpu.products["cuda"] and not gpu.products["cpu"]

The arithmetic is that of the CPU, so a run has its curve. Every tensor's storage has a home, "cpu" or "cuda". As on a
real GPU, these raise: an operation on tensors of two homes (but for numbers, and for row numbers that index a tensor of
the GPU), `.numpy()` of a tensor of the GPU, and a generator of the other device.

torch's own FakeTensorMode checks devices too, but its tensors have no values: a run that reads a loss, compares two
numbers or draws as many rows as it received ends there. A tensor subclass has values, but not every C++ path of
autograd and of optimisers keeps it. Here tensors are plain ones, and the home is a fact of their storage.

What it cannot tell: kernels that CUDA lacks, memory, and rounding, which differs on a real GPU.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

CUDA = torch.device("cuda", 0)
CPU = torch.device("cpu")
MANY = 100_000  # storages, from which those that are gone are forgotten
# operations that multiply matrices: by these a test sees where a method computes
PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "baddbmm_", "mv", "addmv", "convolution", "_embedding_bag", "dot"}
# (operation, places of its arguments that may be on the CPU while the others are not)
INDEXED = {"index": (1,), "index_put": (1,), "index_put_": (1,), "_index_put_impl_": (1,), "_unsafe_index": (1,)}
NO_NUMBERS = {"cat", "stack"}  # operations that do not take a number of the CPU among tensors of the GPU
TO_NUMPY = (Tensor.numpy, Tensor.__array__, Tensor.__dlpack__)
ALIASES = (torch.as_tensor, torch.asarray)  # their result may be the argument's own memory


class Generator(torch.Generator):
    """A generator that knows which device it was made for; its numbers are the CPU's."""

    def __new__(cls, device: Any = "cpu") -> Generator:
        made = super().__new__(cls, device="cpu")
        made.home = torch.device(device).type
        return made

    @property
    def device(self) -> torch.device:
        return CUDA if self.home == "cuda" else CPU


class PretendedGpu:
    """Within it torch has one GPU; `products` counts the matrix products of each device, `waits` synchronisations."""

    def __init__(self) -> None:
        self.storages: dict[int, StorageWeakRef] = {}  # of the GPU; the reference keeps an address from being reused
        self.inside = False  # a function of torch's that was given tensors of the GPU: what it makes is there too
        self.products: Counter[str] = Counter()
        self.waits = 0
        self.patch = pytest.MonkeyPatch()

    def __enter__(self) -> PretendedGpu:
        cuda = {
            "is_available": lambda: True, "device_count": lambda: 1, "get_device_name": lambda device=None: "pretended",
            "synchronize": self._wait, "is_current_stream_capturing": lambda: False,
        }  # fmt: skip
        for name, value in cuda.items():
            self.patch.setattr(torch.cuda, name, value)
        self.patch.setattr(torch, "Generator", Generator)
        self.modes = [_Operations(self), _Functions(self)]
        for mode in self.modes:
            mode.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        for mode in reversed(self.modes):
            mode.__exit__(*raised)
        self.patch.undo()

    def _wait(self, device: Any = None) -> None:
        self.waits += 1

    # --- homes --------------------------------------------------------------------------------------------------------

    def has(self, tensor: Tensor) -> bool:
        """Whether `tensor` is the GPU's."""
        return tensor.device.type == "cpu" and storage(tensor)._cdata in self.storages

    def home(self, tensor: Tensor) -> torch.device:
        """The device of `tensor`, as torch would say."""
        return CUDA if self.has(tensor) else tensor.device

    def take(self, tensor: Tensor) -> None:
        """Make the memory of `tensor` the GPU's."""
        if tensor.device.type == "cpu":
            memory = storage(tensor)
            self.storages[memory._cdata] = StorageWeakRef(memory)
        if len(self.storages) > MANY:
            self.storages = {place: kept for place, kept in self.storages.items() if not kept.expired()}

    def moved(self, tensor: Tensor, device: torch.device) -> Tensor:
        """`tensor` on `device`: itself where it is there, else a copy."""
        if self.home(tensor).type == device.type:
            return tensor
        if device.type == "meta":
            return tensor.to("meta")
        copy = tensor.clone()
        if device.type == "cuda":
            self.take(copy)
        else:
            self.storages.pop(storage(copy)._cdata, None)
        return copy


def storage(tensor: Tensor) -> torch.UntypedStorage:
    """The memory of a tensor, also of one that vmap or grad has wrapped."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor.untyped_storage()


def tensors(value: Any) -> Iterator[Tensor]:
    """All tensors in `value`."""
    return (leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor))


class _Operations(TorchDispatchMode):
    """Sees each operation with its tensors, in the backward pass too: refuses mixtures, and gives results homes."""

    def __init__(self, gpu: PretendedGpu) -> None:
        super().__init__()
        self.gpu = gpu

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        with torch._C.DisableTorchFunction():
            given = [t for t in tensors((args, kwargs)) if t.device.type == "cpu"]
            ours = [t for t in given if self.gpu.has(t)]
            name = func.overloadpacket.__name__
            if name in PRODUCTS:
                self.gpu.products["cuda" if ours else "cpu"] += 1
            if ours and len(ours) < len(given):
                self._check(func, name, args, kwargs)
            known = {storage(t)._cdata for t in given}
            result = func(*args, **kwargs)
            for made in tensors(result) if ours or (self.gpu.inside and not given) else ():
                if made.device.type == "cpu" and storage(made)._cdata not in known:
                    self.gpu.take(made)
        return result

    def _check(self, func: Any, name: str, args: Any, kwargs: Any) -> None:
        """Refuse tensors of two homes."""
        if name == "copy_":
            return
        kept = [a for place, a in enumerate(args) if place not in INDEXED.get(name, ()) or not self._ours_first(args)]
        homes = {self.gpu.has(t) for t in tensors((kept, kwargs)) if t.dim() or name in NO_NUMBERS or self.gpu.has(t)}
        written = [args[place] for place, a in enumerate(func._schema.arguments[: len(args)]) if _writes(a)]
        if len(homes) > 1 or not all(map(self.gpu.has, tensors(written))):
            where = ", ".join(f"{self.gpu.home(t)} {tuple(t.shape)}" for t in tensors((args, kwargs)))
            raise RuntimeError(f"Expected all tensors to be on the same device: {name} got {where}")

    def _ours_first(self, args: Any) -> bool:
        return isinstance(args[0], Tensor) and self.gpu.has(args[0])


def _writes(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


class _Functions(TorchFunctionMode):
    """Sees each call of torch from Python: asks for devices are answered as if the GPU were there."""

    def __init__(self, gpu: PretendedGpu) -> None:
        super().__init__()
        self.gpu = gpu

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        gpu, kwargs = self.gpu, dict(kwargs or {})
        if func in ASKED:
            return ASKED[func](gpu.home(args[0]))
        if func in TO_NUMPY and gpu.has(args[0]):
            raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first")
        if func is Tensor.cpu or func is Tensor.cuda:
            return gpu.moved(args[0], CPU if func is Tensor.cpu else CUDA)
        if func is Tensor.to:
            return self._to(*args, **kwargs)
        device = kwargs.get("device")
        device = None if device is None else torch.device(device)
        if device is not None and device.type == "cuda":
            kwargs["device"] = CPU
        outside, gpu.inside = gpu.inside, device is None and any(map(gpu.has, tensors((args, kwargs))))
        try:
            result = func(*args, **kwargs)
        finally:
            gpu.inside = outside
        if func is Tensor.__deepcopy__ and gpu.has(args[0]):
            gpu.take(result)
        if device is not None and device.type != "meta" and isinstance(result, Tensor):
            if func in ALIASES or gpu.has(result):
                result = gpu.moved(result, device)
            elif device.type == "cuda":
                gpu.take(result)
        for generator in (a for a in (*args, *kwargs.values()) if isinstance(a, torch.Generator)):
            home, place = getattr(generator, "home", "cpu"), gpu.home(next(tensors(result))).type
            if home != place and place != "meta":
                raise RuntimeError(f"Expected a {place!r} device type for generator but found {home!r}")
        return result

    def _to(self, tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        device = kwargs.pop("device", None)
        for argument in args:
            if isinstance(argument, str | torch.device):
                device = argument
            elif isinstance(argument, torch.dtype):
                kwargs["dtype"] = argument
            elif isinstance(argument, Tensor):
                device, kwargs["dtype"] = self.gpu.home(argument), argument.dtype
        device = self.gpu.home(tensor) if device is None else torch.device(device)
        return self.gpu.moved(tensor.to(**kwargs) if kwargs else tensor, device)


ASKED = {
    Tensor.device.__get__: lambda device: device,
    Tensor.is_cuda.__get__: lambda device: device.type == "cuda",
    Tensor.is_cpu.__get__: lambda device: device.type == "cpu",
    Tensor.get_device: lambda device: 0 if device.type == "cuda" else -1,
}
