"""Names that all packages share: configuration, facts of options, statuses and errors. Imports nothing heavy."""

import difflib
import importlib
import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar

from vflbench.defaults import filled, from_conf

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


def rules_of(config: Any) -> Callable[..., Any] | None:
    """The hook `check` of the option that `config` belongs to: in its card, or beside its programs."""
    return hook(sys.modules[type(config).__module__], "check") or hook(module_of(config), "check")


def hook(module: Any, name: str) -> Callable[..., Any] | None:
    """The hook `name` of a module; None where it has none."""
    found: Callable[..., Any] | None = vars(module).get(name)
    return found


def dtype(model: Any) -> str:
    """The type of a model's numbers; float32 where it has no choice."""
    return str(getattr(model, "dtype", "float32"))


# --- facts: what a card says of an option (cards/) -------------------------------------------------------------------


SCORED = ("predictions", "partial", "parameters")  # reports that a party may be scored by (runner/evaluate.py)
#: One of what may be protected. feature_row: what one party's row is, or is computed to; example: a row of a worker or
#: of a table, with all that it changes in a sum or a model
Unit = Literal["feature_row", "label", "edge", "gradient_row", "example"]
#: What a message carries of somebody's data, and what one unit of that is; None: nothing to protect.
UNITS: dict[str, Unit | None] = {
    **dict.fromkeys(("features", "embeddings"), "feature_row"),
    **{"gradients": "gradient_row", "labels": "label", "predictions": "feature_row", "parameters": "example"},
    **dict.fromkeys(("sizes", "ids", "timing")),
    **dict.fromkeys(("raw", "binned", "projection"), "feature_row"),
    **{"sums": "example", "split_bitmaps": "feature_row", "ciphertext": "feature_row", "edges": "edge"},
}
KINDS = tuple(UNITS)


#: What a method may assume to be there for nothing, and what that means.
ASSUMED = {
    "aligned_rows": "row i is the same sample at every party",
    "join": "every party has its columns of the joined, matched rows",
    "labels": "every client has the training labels",
    "seed": "parties draw walks, batches or models from a common seed",
    "edges": "every client has all edges",
    "pooled": "one party has all data",
}


#: Kind of a message -> what its receiver is shown. Ids, sizes and times are left out.
SHOWN = {
    **{"features": "raw", "raw": "raw", "binned": "binned", "projection": "projection", "embeddings": "embedding"},
    **{"gradients": "gradient", "parameters": "model", "sums": "sums", "labels": "labels", "predictions": "prediction"},
    **{"split_bitmaps": "split bitmaps", "ciphertext": "ciphertext", "edges": "edges"},
}


#: How an observer sees it, from worst to best. `summed`: only a sum over three parties or more.
FORMS = ("clear", "hashed", "summed", "noised", "encrypted", "none")
# How often one party sends another such a message. once: before the first round; round 1: in that one alone.
TIMES = ("per round", "once", "per hop", "round 1", "per evaluation")  # once, per hop: before the first round


@dataclass(frozen=True)
class Sent:
    """One kind of message, an entry of an algorithm's `EXPOSES`: who sends what to whom, about whose data.

    A role is a party's name without its numbers: `client`, `passive_worker`.
    """

    tag: str
    sender: str
    receiver: str
    kind: str
    about: str  #: the role whose data it carries; `all`: everybody's
    keys: tuple[str, ...] = ()  #: all that its dicts can have; they are not charged
    #: a key of the algorithm, `privacy` or `privacy.split` (whether it is set), and values with which it is sent
    when: tuple[Any, ...] = ()
    form: tuple[Any, ...] = ("clear",)  #: of FORMS; with a key and a value: clear unless the algorithm's key has it
    times: str | int = "per round"  #: of TIMES; or so many messages from one party to another, before the first round
    noised: tuple[str, ...] = ()  #: mechanisms that noise it; `dp_sgd.prediction_noise`: where that key of it is set
    served: bool = False  #: evaluations send it, too, about held-out rows and without noise
    convex: bool = False  #: only for a convex problem
    note: str = ""
    unit: Unit | None = None  #: where it is not that of the kind (UNITS): a gradient of a whole model is of examples


@dataclass(frozen=True)
class Implied:
    """What an observer can compute from messages, an entry of `EXPOSES`; roles, kinds and keys as in `Sent`."""

    observer: str
    about: str
    kind: str
    tags: tuple[str, ...]  #: of the messages that it is computed from
    proof: str  #: the attack that shows it; `argued`: the note is the argument
    note: str
    exact: bool = False
    convex: bool = False
    times: str | int = "per round"
    when: tuple[Any, ...] = ()
    noised: tuple[str, ...] = ()
    unit: Unit | None = None


@dataclass(frozen=True)
class Given:
    """What a role has without any message, an entry of `EXPOSES`; roles, kinds and keys as in `Sent`.

    `all` is everybody.
    """

    observer: str
    about: str
    kind: str
    note: str
    when: tuple[Any, ...] = ()
    unit: Unit | None = None


Exposed = Sent | Implied | Given  # an entry of an `EXPOSES`


def unit_of(entry: Exposed) -> Unit | None:
    """What one protected unit is of what an entry shows; None where it shows nothing to protect."""
    return entry.unit or UNITS[entry.kind]


def messages(exposes: Iterable[Exposed]) -> tuple[Sent, ...]:
    """The messages among the entries of an `EXPOSES`."""
    return tuple(entry for entry in exposes if isinstance(entry, Sent))


@dataclass(frozen=True)
class Tolerates:
    """What a method does where a party does not send what others need."""

    #: in time. waits: who needs it does nothing else | goes_on: others work on, and take it when it comes | retries:
    #: who needs it gives up after a deadline, and it is asked for again
    late: Literal["waits", "goes_on", "retries"] = "waits"
    #: ever again. waits: the run ends without a result | replaces: others of its organisation take over its work
    absent: Literal["waits", "replaces"] = "waits"


@dataclass(frozen=True)
class AlgorithmInfo:
    """The facts of an algorithm: `ALGORITHM = AlgorithmInfo(...)` in its card."""

    name: str
    summary: str
    paper: str
    layouts: tuple[str, ...]  #: graph | relational | aligned | sharded, the preferred one first
    divided_by: str | None  #: its key, one of DIVISORS, for the number of parts of the data; None: they stay whole
    reports: tuple[str, ...]  #: of SCORED: what its parties report to be scored by
    label: str = ""  #: its name in pictures and reports; empty: `name`
    #: methods of one family differ in colour; empty: no family. Do not write it for ours: it is the folder's name
    family: str = ""
    place: int = 0  #: in its family, from 0: gives colour and marker. No two share one, and none ever changes
    privacy: tuple[str, ...] = ("none",)
    noisy_serving: bool = False  #: privacy.serving=noisy: held-out rows can be sent with the noise of training rows
    protections: tuple[str, ...] = ("none",)
    attacks: tuple[str, ...] = ("none",)
    models: tuple[str, ...] = ()  #: allowed options of the model group; empty: takes none
    topologies: tuple[str, ...] = ("star",)
    accounting: tuple[str, ...] = ("strict", "everything")  #: rules by which its ledger may be priced
    #: of ASSUMED: what is there for nothing. accounting=everything charges it, so `pooled` and `edges` go without that
    assumes: tuple[str, ...] = ()
    #: a round is a pass over the data: `epochs` and `rounds` are one key, and every round is evaluated
    epochs: bool = False
    eval_every: int = 10  #: rounds between evaluations, where the key is null and a round is no epoch
    one_shot: bool = False  #: all that it sends is in round 1
    own_rows: bool = False  #: learns also from rows that only the labels' owner has: dataset.own_rows=train
    tolerates: Tolerates = Tolerates()
    time_dependent: bool = False  #: control flow depends on virtual time: no replay, and engines may differ
    #: why it takes no mechanism of that name, or none at all ("any"): (name, reason), for reasons worth telling
    refuses: tuple[tuple[str, str], ...] = ()
    implies_nothing: str = ""  #: why nothing exact follows from its messages, where EXPOSES has no Implied
    #: why it takes no codec: it breaks unless exactly the numbers that were sent arrive; empty: it takes any
    exact: str = ""
    #: tags that codec.feedback may remember: messages about the same entries every time, or about rows (`me.about`)
    remembered: tuple[str, ...] = ()
    #: tags that a broker may pass on; payload[0] is the channel, which holds one message
    published: tuple[str, ...] = ()
    #: it is about running times: computing takes time unless engine.compute_clock says otherwise
    modelled: bool = False


@dataclass(frozen=True)
class DatasetInfo:
    """The facts of a data set: an entry of `DATASETS = (DatasetInfo(...), ...)` in its card."""

    name: str
    summary: str
    layouts: tuple[str, ...]
    sources: tuple[str, ...] = ("real", "synthetic")
    folder: str | None = None  #: below data_root
    comes_with: str | None = None  #: the library that has it: no files are needed


@dataclass(frozen=True)
class OptionInfo:
    """The facts of an option of an open group: an entry of `OPTIONS = (OptionInfo(...), ...)` in its card."""

    name: str
    summary: str
    #: for options of other packages: those that it goes with, beside those that name it themselves
    algorithms: tuple[str, ...] = ()
    #: privacy, of other packages: of SHOWN's values, what gets its noise before it is sent
    noises: tuple[str, ...] = ()
    units: tuple[Unit, ...] = ()  #: privacy: one of what its epsilon protects, apart for each


@dataclass(frozen=True)
class Interval:
    """A range of a key that `choose` and `tune` try, in a card's `SEARCH`; a user's file has the same fields."""

    low: float
    high: float
    log: bool = False  #: tried evenly in the logarithm
    int: bool = False  #: whole numbers only
    least: float | None = None  #: it is widened down to this at most; None: without a limit
    most: float | None = None
    where: dict[str, Any] | None = None  #: keys of the same space, with the values that make it count


def searched(given: Any) -> Any:
    """An entry of a `SEARCH` as a user's file has it: a list of choices, or the fields of an Interval that are set.

    What is neither is returned as it is.
    """
    if isinstance(given, Interval):
        return {each.name: value for each in fields(given) if (value := getattr(given, each.name)) != each.default}
    return list(given) if isinstance(given, tuple) else given


def searchable(given: Any) -> bool:
    """Whether `given` is a list of at least two choices, or a range with the fields of an Interval."""
    if isinstance(given, list) and len(given) > 1:
        return True
    if not (isinstance(given, dict) and {"low", "high"} <= set(given) <= {each.name for each in fields(Interval)}):
        return False
    numbers = [given[name] for name in ("low", "high", "least", "most") if name in given]
    sound = all(isinstance(number, int | float) and math.isfinite(number) for number in numbers)
    sound = sound and isinstance(given.get("where", {}), dict)
    return sound and given["low"] < given["high"] and (given["low"] > 0 or not given.get("log"))


TRAINING_METRIC = "suboptimality"  # measured on the training samples: it has no validation or test value


@dataclass(frozen=True)
class Metric:
    """What a run is judged by."""

    name: str
    goal: Literal["max", "min"]


@dataclass(frozen=True)
class DataSource:
    """Where a task's data came from."""

    kind: Literal["real", "partial", "synthetic"]
    variant: str | None = None
    note: str = ""  #: e.g. which parts are made up, or missing
    files: tuple[tuple[str, str], ...] = ()  #: (file name, sha256), no machine paths
    #: messages that brought rows together, before the run: part of the sender, of the receiver, tag, bytes
    alignment: tuple[tuple[int, int, str, int], ...] = ()
    #: of a user's own tables, per file: rows, matched, imputed, encoded (data/columns/inspection.py)
    tables: tuple[dict[str, Any], ...] = ()
    #: kind partial: what real data lack of the published data set; empty: parts of them are made up
    lacks: str = ""
