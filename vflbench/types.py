"""Names that all packages share: configuration, statuses, errors, and those of facts.py. Imports nothing heavy."""

import difflib
import importlib
import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar

from vflbench.defaults import filled, from_conf
from vflbench.facts import ASSUMED as ASSUMED
from vflbench.facts import FORMS as FORMS
from vflbench.facts import KINDS as KINDS
from vflbench.facts import SCORED as SCORED
from vflbench.facts import SHOWN as SHOWN
from vflbench.facts import TIMES as TIMES
from vflbench.facts import TRAINING_METRIC as TRAINING_METRIC
from vflbench.facts import UNITS as UNITS
from vflbench.facts import AlgorithmInfo as AlgorithmInfo
from vflbench.facts import DatasetInfo as DatasetInfo
from vflbench.facts import DataSource as DataSource
from vflbench.facts import Exposed as Exposed
from vflbench.facts import Given as Given
from vflbench.facts import Implied as Implied
from vflbench.facts import Interval as Interval
from vflbench.facts import Metric as Metric
from vflbench.facts import OptionInfo as OptionInfo
from vflbench.facts import Sent as Sent
from vflbench.facts import Tolerates as Tolerates
from vflbench.facts import Unit as Unit
from vflbench.facts import messages as messages
from vflbench.facts import searchable as searchable
from vflbench.facts import searched as searched
from vflbench.facts import unit_of as unit_of

if TYPE_CHECKING:
    from typing_extensions import TypeVar as Defaulting  # Python 3.13's has defaults, too

    #: an algorithm's keys; a `RunConfig` alone is that of any algorithm
    Algorithm = Defaulting("Algorithm", covariant=True, default=Any)
else:
    Algorithm = TypeVar("Algorithm", covariant=True)
Status = Literal["completed", "target_reached", "budget", "diverged", "interrupted", "failed", "skipped"]
ENDED_WELL: tuple[Status, ...] = ("completed", "target_reached", "budget")
ENDED: tuple[Status, ...] = (*ENDED_WELL, "diverged")  # nothing is left to do


# --- errors -----------------------------------------------------------------------------------------------------------


class VflbenchError(Exception):
    """Base of every error whose message is for the user: the command prints it without a traceback and exits with 1."""


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a configuration: `key` has `value`; `allowed` says what it may be."""

    key: str
    value: Any
    allowed: str
    closest: str | None = None

    def __str__(self) -> str:
        hint = f" Did you mean {self.closest!r}?" if self.closest else ""
        return f"{self.key}={self.value}: {self.allowed}.{hint}"


def closest(word: str, options: Iterable[str]) -> str | None:
    """The option that is most similar to `word`, or else the only one that begins with it; case does not count."""
    lowered, typed = {option.lower(): option for option in options}, word.lower()
    begun = [option for option in lowered if typed and option.startswith(typed)]
    found = difflib.get_close_matches(typed, lowered, n=1, cutoff=0.55) or (begun if len(begun) == 1 else [])
    return lowered[found[0]] if found else None


class ConfigError(VflbenchError):
    """Every problem of a configuration, found before any work starts."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        super().__init__(problems)  # these arguments are what it is unpickled from in another process

    def __str__(self) -> str:
        return "\n".join(map(str, self.problems))


def refuse(problems: list[Problem]) -> None:
    """Raise ConfigError where there are any `problems`."""
    if problems:
        raise ConfigError(problems)


class DataError(VflbenchError):
    """A data set that is missing or malformed: names the file (and line), and what to do."""


class FederationError(VflbenchError):
    """A party program broke a rule of the federation, e.g. a send where there is no edge, or a deadlock."""


# --- configuration ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Range:
    """What a number may be; written with its key: `rows: Annotated[int, Range(at_least=1)] = 1000`."""

    at_least: float = -math.inf
    above: float = -math.inf
    at_most: float = math.inf
    below: float = math.nan  #: NaN: no limit
    infinite: bool = False  #: it may be inf

    def refuses(self, value: float) -> str:
        """What `value` must be; empty where it is in the range."""
        if not value > self.above:
            return f"must be greater than {self.above}"
        if not value >= self.at_least:
            return f"must be at least {self.at_least}"
        if value >= self.below:
            return f"must be below {self.below}"
        unlimited = self.infinite and value == math.inf
        return f"must be at most {self.at_most}" if value > self.at_most and not unlimited else ""


Count = Annotated[int, Range(at_least=1)]
Seed = Annotated[int, Range(at_least=0)]
Positive = Annotated[float, Range(above=0)]
# Wide limits that keep a clock of 64 bits exact: times of days, rates from a bit a second to far beyond any network.
Seconds = Annotated[float, Range(at_least=0, at_most=1e6)]
Milliseconds = Annotated[float, Range(at_least=0, at_most=1e9)]
Gbps = Annotated[float, Range(above=0, at_least=1e-9, at_most=1e9)]
Mbps = Annotated[float, Range(above=0, at_least=1e-6, at_most=1e12)]


@dataclass
class OptionConfig:
    """The keys of `none`, which every other option of a group has beside its own."""

    name: str = "none"


@dataclass
class LinkConfig:
    """A link, one way."""

    latency_ms: Milliseconds = 0.0
    bandwidth_gbps: Gbps | None = None  #: null = unbounded


@from_conf("network/ideal")
class NetworkConfig(OptionConfig):
    """The links between parties, and how time passes on them."""

    name: str
    client_server: LinkConfig = field(default_factory=LinkConfig)
    client_client: LinkConfig = field(default_factory=LinkConfig)
    server_bandwidth_gbps: Gbps | None
    timing: Literal["causal", "round"]
    latencies: Annotated[int, Range(at_least=1, at_most=2)]
    links: dict[str, LinkConfig]
    ratio: Gbps
    header_bytes: Annotated[int, Range(at_least=0, at_most=10_000)]


@from_conf("privacy/gaussian_embedding")
class PrivacyConfig(OptionConfig):
    """The keys that every mechanism has."""

    secure_rng: bool | None


@from_conf("codec/topk")
class CodecConfig(OptionConfig):
    """The keys that every codec has."""

    feedback: bool


@from_conf("broker/embedded", "broker/nats")
class BrokerConfig:
    """What carries published messages."""

    name: Literal["embedded", "nats"]
    address: str | None
    user: str | None
    password_env: str | None


Objective = Literal["bytes_to_target", "seconds_to_target", "metric"]
ClockMode = Literal["auto", "none", "modelled", "measured"]


@from_conf("engine/simulated", "engine/ray")
class EngineConfig:
    """What runs the parties."""

    name: Literal["simulated", "ray"]
    compute_clock: ClockMode
    batch_compute: bool
    window: Count
    threads: Annotated[int, Range(at_least=1, at_most=1024)] | None
    address: Literal["local", "auto"]
    timeout: Annotated[float, Range(above=0, at_most=1e6)]
    devices: dict[str, str]


@dataclass
class Delay:
    """Seconds of one core per sample, in a batch of B samples: scale * B**exponent."""

    scale: float
    exponent: float


@from_conf("compute/modelled")
class ComputeConfig:
    """The delay model of compute_clock=modelled.

    By the counted work, where its constants are given: federation/counted_work.py. Else by `delays`:
    federation/delays.py. Else seconds = base_seconds + cost * seconds_per_unit.
    """

    name: str
    base_seconds: Seconds
    seconds_per_unit: Seconds
    delays: dict[str, Delay]
    cores: list[int]
    sharing: Literal["evenly", "organisation", "machine"]
    core_cap: Annotated[float, Range(above=0, at_least=1e-6, at_most=1e6)]
    batch_latency: Seconds
    server_seconds: Seconds
    operation_seconds: Seconds
    flop_seconds: Seconds
    number_seconds: Seconds
    message_seconds: Seconds
    penalty_batch: Positive | None
    penalty_workers: Positive | None
    file: str | None

    @property
    def counts_work(self) -> bool:
        """Whether computing is charged by its work: federation/counted_work.py."""
        return self.operation_seconds + self.flop_seconds + self.number_seconds > 0


@dataclass
class Chosen(Generic[Algorithm]):
    """What every run chooses; an `Any` is the option's own dataclass."""

    algorithm: Algorithm
    dataset: Any
    model: Any
    network: NetworkConfig
    topology: Any
    privacy: Any
    engine: EngineConfig
    compute: ComputeConfig


@from_conf("config")
class RunConfig(Chosen[Algorithm]):
    """The whole configuration of one run, after composition.

    A method's own functions take a `RunConfig[Config]`, so that a type checker knows its keys. What serves several
    methods takes that of the keys that they share.
    """

    seed: Seed
    device: str
    rounds: Count | None
    epochs: Count | None
    eval_every: Count | None
    target: float | None
    max_bytes: Positive | None
    max_virtual_seconds: Positive | None
    predictions: Annotated[int, Range(at_least=0)] | None
    resume: bool
    checkpoint_every: Count | None
    overwrite: bool
    dry_run: bool
    plot: Literal["auto", "none"]
    floor: Literal["auto", "full", "none"]
    accounting: str
    data_root: str | None
    scale: Literal["full", "small", "smoke"]
    objective: Objective | None
    attack: Any = field(default_factory=OptionConfig)
    codec: Any = field(default_factory=lambda: filled(CodecConfig))
    protection: Any = field(default_factory=OptionConfig)
    broker: BrokerConfig = field(default_factory=lambda: filled(BrokerConfig))
    logger: Any = field(default_factory=OptionConfig)
    #: no key: those of ADAPTABLE that nobody typed, whose defaults adapt to the data (adapt.py)
    untyped: frozenset[str] = frozenset()


#: keys whose defaults adapt to the data
ADAPTABLE = tuple(f"algorithm.{key}" for key in ("parties", "batch_size", "workers", "passive_workers"))
DEVICES = ("cpu", "cuda")  # what parties can compute on; a GPU may have a number, cuda:1
DIVISORS = ("parties", "workers", "parts")  # keys of an algorithm that say into how many parts a data set is divided


def division(algorithm: Any, otherwise: int = 2) -> int:
    """The number of parties, workers, or horizontal parts of each table, of `algorithm`; `otherwise` where null."""
    number = next((getattr(algorithm, key) for key in DIVISORS if hasattr(algorithm, key)), 1)
    return otherwise if number is None else int(number)


def rounds_per_epoch(algorithm: Any) -> int:
    """Rounds in a pass over the data, for an algorithm that counts epochs."""
    return int(getattr(algorithm, "rounds_per_epoch", 1))


def batch_size(algorithm: Any) -> int | None:
    """Rows of a batch; None for an algorithm without batches."""
    size: int | None = getattr(algorithm, "batch_size", None)
    return size


def convex_problem(dataset: Any) -> str | None:
    """The convex problem that a data set's keys choose; None where rows are held out."""
    problem: str | None = getattr(dataset, "problem", None)
    return None if problem == "learning" else problem


def own_rows(dataset: Any) -> str:
    """What a data set's rows count for that not all parties have; `ignore` where it has no such key."""
    return str(getattr(dataset, "own_rows", "ignore"))


def module_name(card: str) -> str:
    """The name of the module whose card is the module `card`: ours are in a mirror of the package, vflbench/cards."""
    return card.replace("vflbench.cards.", "vflbench.", 1)


def module_of(config: Any) -> ModuleType:
    """The module of the option that `config` belongs to; `Config` is in its card (contracts.py)."""
    return importlib.import_module(module_name(type(config).__module__))


def rules_of(config: Any, name: str = "check") -> Callable[..., Any] | None:
    """The hook `check`, or another `name`, in the card of the option that `config` belongs to; None if it has none."""
    return rules(sys.modules[type(config).__module__], name)


def rules(card: ModuleType, name: str = "check") -> Callable[..., Any] | None:
    """The hook `name` of a card. A card says where it is (`module:function`) if it needs what no card may import."""
    found: Callable[..., Any] | str | None = vars(card).get(name)
    if not isinstance(found, str):
        return found
    module, _, function = found.partition(":")
    named: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return named


def hook(module: Any, name: str) -> Callable[..., Any] | None:
    """The hook `name` of a module; None where it has none."""
    found: Callable[..., Any] | None = vars(module).get(name)
    return found


def dtype(model: Any) -> str:
    """The type of a model's numbers; float32 where it has no choice."""
    return str(getattr(model, "dtype", "float32"))
