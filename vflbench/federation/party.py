"""What a party program sees: `me`, its state, its guarded data and the rules for what may cross.

An algorithm is a set of party programs, plain ``async def`` coroutines that own their data and meet the others only through
messages (design section 2). `Party` is the interface that they are written against; an engine subclasses it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch

from vflbench import seeding
from vflbench.types import FederationError

SERVER = "server"
F = TypeVar("F", bound=Callable[..., Any])


def party_names(prefix: str, count: int) -> list[str]:
    """`count` names whose alphabetical order is their numerical order: client_0 .. client_9, or client_00 .. client_14."""
    width = len(str(max(count - 1, 0)))
    return [f"{prefix}_{i:0{width}d}" for i in range(count)]


@dataclass(frozen=True)
class PartySpec:
    """One party: its program, ``async def program(me, data, public, config)``, its own data and where it stands."""

    program: Callable[..., Coroutine[Any, Any, Any]]
    data: Any = None
    role: str = "client"  # server | client | worker
    organisation: str | None = None  # parties of one organisation talk over `local` links; None: an organisation of its own
    cores: float | None = None  # cores that its computations keep busy, where the run reports their utilisation
    expendable: bool = False  # engine=ray: where its process dies, the run goes on; who waits for it gets PartyLost


class PartyLost(FederationError):
    """The process of a party that others wait for has died, and nothing of it is left to read; only of those that are expendable."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the process of {name} has died")
        self.name = name


# --- guarded data -------------------------------------------------------------------------------------------------------


class _Running:
    """The party whose program runs at this moment; None outside the federation."""

    name: str | None = None


RUNNING = _Running()


class Guarded:
    """A party's own data: reading any field of it while another party's program runs raises `FederationError`."""

    __slots__ = ("_data", "_owner")

    def __init__(self, owner: str, data: Any) -> None:
        object.__setattr__(self, "_owner", owner)
        object.__setattr__(self, "_data", data)

    def __getattr__(self, name: str) -> Any:
        if RUNNING.name is not None and self._owner != RUNNING.name:
            raise FederationError(f"{RUNNING.name} touched `{name}` of {self._owner}'s data: a party reads only its own")
        return getattr(self._data, name)

    def __setattr__(self, name: str, value: Any) -> None:
        raise FederationError(f"{RUNNING.name or 'somebody'} tried to change `{name}` of {self._owner}'s data: data are read-only")


# --- payloads -----------------------------------------------------------------------------------------------------------


class Sized:
    """A payload whose size is known: `value` is what arrives. A codec sends fewer bytes than `value` has."""

    __slots__ = ("nbytes", "value", "vectors")

    def __init__(self, nbytes: int, vectors: int, value: Any = None) -> None:
        self.nbytes = nbytes
        self.vectors = vectors
        self.value = value


def copy_payload(payload: Any) -> tuple[Any, int, int]:
    """A detached copy of a payload, its size in bytes (dtype and shape; framing is not charged) and the arrays in it.

    Tensors and numpy arrays, numbers (8 bytes), booleans (1), text (UTF-8), None (0), and tuples, lists and dicts of those. The
    keys of a dict are text and not charged: they are part of the protocol. Anything else raises FederationError.
    """
    if type(payload) is np.ndarray:  # first, and without isinstance: this runs for every message
        if payload.dtype.hasobject:
            raise FederationError("a payload cannot be an array of Python objects")
        return payload.copy(), payload.nbytes, 1
    if isinstance(payload, torch.Tensor):
        if payload.layout is not torch.strided:
            raise FederationError(f"a payload must be dense, not {payload.layout}: send indices and values as they are")
        return payload.detach().clone(), payload.numel() * payload.element_size(), 1
    if payload is None:
        return None, 0, 0
    if isinstance(payload, (bool, np.bool_)):
        return bool(payload), 1, 0
    if isinstance(payload, (int, float, np.integer, np.floating)):
        if isinstance(payload, int) and not -(2**63) <= payload < 2**63:
            raise FederationError("a payload's integers have 64 bits: send a larger one as an array or text")
        return payload, 8, 0
    if isinstance(payload, str):
        return payload, len(payload.encode()), 0
    if isinstance(payload, np.ndarray):  # a subclass may carry more than its buffer (a mask): only the plain array crosses
        return copy_payload(np.array(payload))
    if isinstance(payload, (tuple, list)):
        values, nbytes, vectors = [], 0, 0
        for part in payload:
            if type(part) is float or (type(part) is int and -(2**63) <= part < 2**63):  # headers: most of what small messages hold
                values.append(part)
                nbytes += 8
            else:
                value, size, count = copy_payload(part)
                values.append(value)
                nbytes, vectors = nbytes + size, vectors + count
        return tuple(values) if isinstance(payload, tuple) else values, nbytes, vectors
    if isinstance(payload, dict):
        if not all(isinstance(key, str) for key in payload):
            raise FederationError("a payload's dict has text as keys, which are not charged: send numbers as an array")
        items = {key: copy_payload(value) for key, value in payload.items()}
        return {k: v[0] for k, v in items.items()}, sum(v[1] for v in items.values()), sum(v[2] for v in items.values())
    if isinstance(payload, Sized):
        return payload.value, payload.nbytes, payload.vectors
    raise FederationError(f"a payload cannot hold {type(payload).__name__}: arrays, numbers, text and containers of those can cross")


def batchable(function: F) -> F:
    """Mark a pure module-level function as one that `me.compute` may run for a cohort in one `torch.func.vmap` call.

    It takes and returns tensors (or containers of them), calls no `.item()`, changes nothing in place and draws no random numbers.
    An attribute `together` of it, a function of the same arguments with every tensor stacked, is called instead of vmap.
    """
    function.batchable = True  # type: ignore[attr-defined]
    return function


# --- the party ----------------------------------------------------------------------------------------------------------


class State:
    """All of a party that outlives a round: modules, optimisers, tensors, arrays, numbers, text and containers of those."""

    if TYPE_CHECKING:  # any attribute may be set and read

        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter(vars(self).items())


class Party(ABC):
    """The interface of `me`. Programs await nothing but its methods.

    Attributes
    ----------
    name, index, role : who this is; `index` is the place in the parties' order.
    servers, clients : names of the parties of that role (`clients`: all that are not servers), in order.
    neighbours : names of the parties that this one shares an edge with.
    device : torch device, as text.
    state : what is checkpointed. Set its attributes before `rounds()`; after a resume `rounds()` restores into them.
    fresh : False after a resume: messages that only a first start sends go under ``if me.fresh``.
    privacy : the mechanism to call before sending (`vflbench.privacy.mechanisms`), or None.
    """

    name: str
    index: int
    role: str
    servers: tuple[str, ...]
    clients: tuple[str, ...]
    neighbours: tuple[str, ...]
    device: str
    fresh: bool = True
    privacy: Any = None

    def __init__(self, seed: int) -> None:
        self.state = State()
        self.in_evaluation = False
        self._seed = seed
        self._generators: dict[str, np.random.Generator] = {}
        self._torch_generators: dict[str, torch.Generator] = {}

    def rng(self, name: str) -> np.random.Generator:
        """The numpy generator of this party's stream `name`; within `evaluating()` an independent one."""
        key = f"evaluation/{name}/{self.name}" if self.in_evaluation else f"{name}/{self.name}"
        if key not in self._generators:
            self._generators[key] = seeding.stream(self._seed, key)
        return self._generators[key]

    def torch_rng(self, name: str) -> torch.Generator:
        """The torch generator of this party's stream `name`, on its device; within `evaluating()` an independent one."""
        key = f"evaluation/{name}/{self.name}" if self.in_evaluation else f"{name}/{self.name}"
        if key not in self._torch_generators:
            self._torch_generators[key] = seeding.torch_stream(self._seed, key, self.device)
        return self._torch_generators[key]

    @property
    @abstractmethod
    def clock(self) -> float:
        """This party's virtual time in seconds. Reading it makes the program time-dependent."""

    @abstractmethod
    def send(self, dst: str, payload: Any, tag: str = "message") -> Any:
        """Hand a detached copy of `payload` to `dst`. Never waits. Raises FederationError where there is no edge to `dst`."""

    @abstractmethod
    def send_many(self, dsts: Sequence[str], payload: Any, tag: str = "message") -> Any:
        """The same payload to each of `dsts`, one message (and ledger row) each."""

    @abstractmethod
    def recv(self, src: str, tag: str = "message", timeout: float | None = None) -> Any:
        """The next payload from `src` with `tag`. With a timeout in virtual seconds (time-dependent): TimeoutError after it."""

    @abstractmethod
    def recv_all(self, srcs: Sequence[str], tag: str = "message") -> Any:
        """One payload from each of `srcs`, in their order, whatever the order of arrival."""

    @abstractmethod
    def recv_any(self, srcs: Sequence[str] | Mapping[str, Sequence[str]], tag: str = "message", timeout: float | None = None) -> Any:
        """(src, payload) of the message delivered first (ties: by party order). Time-dependent.

        `srcs` may be tag -> sources, one mapping for all calls: then (src, tag, payload).
        """

    @abstractmethod
    def compute(
        self, function: Callable[..., Any], *args: Any, cost: float = 0.0, seconds: float | None = None, latency: float = 0.0
    ) -> Any:
        """``function(*args)`` on the compute clock. `batchable` ones of a cohort run as one.

        The modelled clock takes `seconds`, after `latency` seconds during which no core is busy; where `seconds` is None, `cost` in the
        units of compute.seconds_per_unit.
        """

    @abstractmethod
    def rounds(self) -> Any:
        """Round numbers 1, 2, ...; between two of them lies a boundary: checkpoint, budgets, the others' progress."""

    @abstractmethod
    def evaluates(self, round: int) -> bool:
        """Whether this round ends with an evaluation (every `eval_every` rounds, and the last)."""

    @abstractmethod
    def evaluating(self) -> Any:
        """``async with me.evaluating():`` exchanges in it cost no bytes and no time, and are in no ledger."""

    @abstractmethod
    def report(self, **values: Any) -> None:
        """Tell the observer: train_loss=, predictions={"val": scores, "test": scores}, iterations=, epoch=. Never features."""
