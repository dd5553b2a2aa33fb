"""What a party program sees: `me`, its state, its guarded data and the rules for what may cross.

An algorithm is a set of party programs, plain ``async def`` coroutines. They own their data and meet the others only
through messages (ARCHITECTURE.md, section 1). They are written against the interface `Party`; what they are given is
`runtime.me.Me`.
"""

from __future__ import annotations

import functools
import re
import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

import numpy as np

from vflbench import seeding
from vflbench.types import FederationError

if TYPE_CHECKING:
    import torch

SERVER = "server"
F = TypeVar("F", bound=Callable[..., Any])
Program = Callable[..., Coroutine[Any, Any, Any]]  # async def program(me, data, public, config)


def party_names(prefix: str, count: int) -> list[str]:
    """`count` names whose alphabetical order is their numerical order.

    client_0 .. client_9, or client_00 .. client_14.
    """
    width = len(str(max(count - 1, 0)))
    return [f"{prefix}_{i:0{width}d}" for i in range(count)]


@functools.lru_cache(maxsize=10_000)
def role_of(name: str) -> str:
    """A party's name without its numbers: `client` of client_07, `passive_worker` of passive_1_worker_0."""
    return re.sub(r"_\d+", "", name)


@dataclass(frozen=True)
class PartySpec:
    """One party: its program, ``async def program(me, data, public, config)``, its own data and where it stands."""

    program: Program
    data: Any = None
    role: str = "client"  #: server | client | worker
    #: parties of one organisation talk over `local` links; None: an organisation of its own
    organisation: str | None = None
    cores: float | None = None  #: cores that its computations keep busy, where the run reports their utilisation
    expendable: bool = False  #: engine=ray: where its process dies, the run goes on; who waits for it gets PartyLost


class PartyLost(FederationError):
    """An expendable party that others wait for has died, and nothing of it is left to read."""

    def __init__(self, name: str) -> None:
        super().__init__(name)  # from its arguments, another process makes a copy
        self.name = name

    def __str__(self) -> str:
        return f"the process of {self.name} has died"


# --- guarded data -----------------------------------------------------------------------------------------------------


class _Running:
    """The party whose program runs at this moment; None outside the federation."""

    name: str | None = None


RUNNING = _Running()


class Guarded:
    """A party's own data: `FederationError` where another party's program reads a field of it."""

    __slots__ = ("_owner", "_read")

    def __init__(self, owner: str, data: Any) -> None:
        def read(name: str) -> Any:
            if RUNNING.name is not None and owner != RUNNING.name:
                raise FederationError(f"{RUNNING.name} touched `{name}` of {owner}'s data: a party reads only its own")
            if name.startswith("_"):  # `__dict__` would get around the guard
                raise AttributeError(f"{owner}'s data have no field `{name}` to read")
            value = getattr(data, name)
            if isinstance(value, types.MethodType):  # its __self__ would get around the guard
                raise AttributeError(f"{owner}'s data have no field `{name}` to read: it is a method")
            return value

        object.__setattr__(self, "_owner", owner)
        object.__setattr__(self, "_read", read)

    def __getattr__(self, name: str) -> Any:
        return self._read(name)

    def __reduce_ex__(self, _: Any) -> Any:
        raise FederationError(f"{self._owner}'s data cannot be copied or pickled: read their fields")

    def __setattr__(self, name: str, value: Any) -> None:
        raise FederationError(
            f"{RUNNING.name or 'somebody'} tried to change `{name}` of {self._owner}'s data: data are read-only"
        )


# --- computations -----------------------------------------------------------------------------------------------------


def batchable(function: F) -> F:
    """Mark a pure module-level function as one that `me.compute` may run for a cohort in one `torch.func.vmap` call.

    It takes and returns tensors (or containers of them), calls no `.item()`, changes nothing in place and draws no
    random numbers. Where the function has an attribute `together`, that is called instead of vmap: a function of the
    same arguments with every tensor stacked.
    """
    function.batchable = True  # type: ignore[attr-defined]
    return function


class Report(TypedDict, total=False):
    """What a party may tell the observer.

    Scores, (rows, outputs), are given by split: `val`, `test`; partial scores also for `train` and `rows`.
    """

    train_loss: float  #: mean over the parties, and over the rounds since the last evaluation
    predictions: Mapping[str, Any]  #: of a party that predicts alone
    otherwise: Mapping[str, Any]  #: the same, of rows served as privacy.serving does not say
    partial: Mapping[str, Any]  #: this party's part of the sum that is the prediction
    offset: Any  #: what is added to that sum
    penalty: float  #: of this party's block of a convex problem
    parameters: Any  #: a whole model as one vector
    iterations: int  #: updates so far
    epoch: float  #: passes over the data so far
    facts: Mapping[str, Any]  #: what else the summary shows, by name


# --- the party --------------------------------------------------------------------------------------------------------


class State:
    """All of a party that outlives a round.

    Modules, optimisers, tensors, arrays, numbers, text and containers of those.
    """

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
    secret : what `secret_rng` draws from under privacy.secure_rng, else None.
    """

    __slots__ = ()

    name: str
    index: int
    role: str
    servers: tuple[str, ...]
    clients: tuple[str, ...]
    neighbours: tuple[str, ...]
    device: str
    state: State
    fresh: bool
    privacy: Any
    secret: seeding.Secret | None

    @abstractmethod
    def rng(self, name: str) -> np.random.Generator:
        """The numpy generator of this party's stream `name`; within `evaluating()` an independent one."""

    @abstractmethod
    def torch_rng(self, name: str) -> torch.Generator:
        """The torch generator of this party's stream `name`; within `evaluating()` an independent one.

        It is on the CPU, so that a seed means the same numbers on every device. Draw there, and move what was drawn:
        `torch.randn(n, generator=me.torch_rng("noise")).to(me.device)`.
        """

    @abstractmethod
    def secret_rng(self, name: str) -> np.random.Generator | seeding.SecretStream:
        """As `rng`, for what nobody else may know: noise, and who is in a batch.

        Under privacy.secure_rng it draws from `secret`.
        """

    @abstractmethod
    def secret_torch_rng(self, name: str) -> torch.Generator | seeding.SecretStream:
        """As `torch_rng`; under privacy.secure_rng it draws from `secret`."""

    @property
    @abstractmethod
    def clock(self) -> float:
        """The party's virtual time in seconds. Reading it makes the program time-dependent."""

    @abstractmethod
    def send(self, dst: str, payload: Any, tag: str = "message") -> Any:
        """Hand a detached copy of `payload` to `dst`; never waits.

        Raises
        ------
        FederationError
            There is no edge to `dst`.
        """

    @abstractmethod
    def send_many(self, dsts: Sequence[str], payload: Any, tag: str = "message") -> Any:
        """Send the same payload to each of `dsts`, one message (and ledger row) each."""

    @abstractmethod
    def about(self, rows: np.ndarray | None) -> None:
        """What this party sends from now on is about these rows of the data, (B,) int; None: always about the same.

        Of a message that is its first array, where it has B entries. codec.feedback then remembers what has arrived of
        each row. Without it nothing changes.
        """

    @abstractmethod
    def recv(self, src: str, tag: str = "message", timeout: float | None = None) -> Any:
        """The next payload from `src` with `tag`.

        Parameters
        ----------
        timeout : virtual seconds; with it the program is time-dependent.

        Raises
        ------
        TimeoutError
            No message has come in that time.
        """

    @abstractmethod
    def recv_all(self, srcs: Sequence[str], tag: str = "message") -> Any:
        """One payload from each of `srcs`, in their order, whatever the order of arrival."""

    @abstractmethod
    def recv_any(
        self, srcs: Sequence[str] | Mapping[str, Sequence[str]], tag: str = "message", timeout: float | None = None
    ) -> Any:
        """(src, payload) of the message delivered first (ties: by party order). Time-dependent.

        `srcs` may be tag -> sources, one mapping for all calls: then (src, tag, payload).
        """

    @abstractmethod
    def compute(
        self,
        function: Callable[..., Any],
        *args: Any,
        cost: float = 0.0,
        seconds: float | None = None,
        latency: float = 0.0,
    ) -> Any:
        """``function(*args)`` on the compute clock. Equal `batchable` calls of a cohort run as one.

        Parameters
        ----------
        cost : in the units of compute.seconds_per_unit, for the modelled clock.
        seconds : what the modelled clock takes in place of `cost`.
        latency : seconds before `seconds`, during which no core is busy.
        """

    @abstractmethod
    def rounds(self) -> Any:
        """Round numbers 1, 2, ...; between two of them lies a boundary: checkpoint, budgets, the others' progress."""

    @abstractmethod
    def evaluates(self, round: int) -> bool:
        """Whether this round ends with an evaluation (every `eval_every` rounds, and the last)."""

    @abstractmethod
    def evaluating(self, priced: bool = True) -> Any:
        """``async with me.evaluating():`` messages inside cost no bytes and no time; the last ones are kept.

        Parameters
        ----------
        priced : False: they are not kept, so that no phase is charged with them. Only an observer wants them.
        """

    @abstractmethod
    def report(self, **values: Unpack[Report]) -> None:
        """Tell the observer what it scores in this round. Never features."""
