"""Names that every room shares: configuration dataclasses, what a registry knows, statuses and errors. Imports nothing heavy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["completed", "target_reached", "budget", "diverged", "interrupted", "failed", "skipped"]


# --- errors -----------------------------------------------------------------------------------------------------------


class VflbenchError(Exception):
    """Base of every error whose message is meant for the user: the command prints it without a traceback and exits 1."""


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
    """The option that looks most like `word`, if one does; capitals are no difference."""
    lowered = {option.lower(): option for option in options}
    found = difflib.get_close_matches(word.lower(), lowered, n=1, cutoff=0.55)
    return lowered[found[0]] if found else None


class ConfigError(VflbenchError):
    """Every problem of a configuration, found before any work starts."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        super().__init__("\n".join(str(p) for p in problems))


class DataError(VflbenchError):
    """A data set that is missing or malformed: names the file (and line), and what to do."""


class FederationError(VflbenchError):
    """A party program broke a rule of the federation: a send where there is no edge, another party's data, a deadlock."""


# --- configuration ----------------------------------------------------------------------------------------------------


@dataclass
class LinkConfig:
    latency_ms: float = 0.0
    bandwidth_gbps: float | None = None  # null = unbounded


@dataclass
class NetworkConfig:
    name: str = "us_uk"
    client_server: LinkConfig = field(default_factory=LinkConfig)
    client_client: LinkConfig = field(default_factory=LinkConfig)
    server_bandwidth_gbps: float | None = None  # shared by all links of a server with clients, each way, first come first served
    timing: str = "causal"  # causal | round
    latencies: int = 2  # timing=round: latencies per exchange, 1 or 2
    links: dict[str, LinkConfig] = field(default_factory=dict)  # "client_0->server": a link that differs from its kind
    ratio: float = 1.0  # weighted cost: one byte client-server in units of one byte client-client


@dataclass
class TopologyConfig:
    name: str = "star"
    probability: float = 0.3  # erdos_renyi
    clusters: int = 2  # clusters, semi_decentralized
    inside: str = "complete"  # clusters, semi_decentralized: graph within a cluster: complete | ring | path
    edges: str | None = None  # edge_list: a file with one "a b" pair of party names a line
    seed: int | None = None  # null: the run's seed


@dataclass
class PrivacyConfig:
    name: str = "none"
    clip: float = 1.0
    noise_multiplier: float | None = None  # standard deviation over clip; null: calibrated to epsilon
    epsilon: float | None = None  # target; null: noise_multiplier is given
    delta: float = 1e-5
    neighbouring: str = "replace_one"  # replace_one | add_remove
    label_noise: float = 0.5  # lambda: standard deviation of the noise on each coordinate of a one-hot label
    rating_classes: int = 5  # a regression's labels are classes: 5 (1 to 5) | 6 (0 to 5)
    prediction_noise: float | None = None  # standard deviation over prediction_clip of the noise on predictions; null: none
    prediction_clip: float = 1.0  # largest L2 norm of a prediction that is sent, with prediction_noise
    accountant: str = "rdp"  # dp_sgd on sharded rows: rdp | prv | gdp
    clip_unit: str = "example"  # dp_sgd on sharded rows: what is clipped: every example's gradient | the whole batch's
    mu: float = 1.0  # gdp_embedding: of all publications of a row together; inf: no noise
    max_retries: int = 1  # gdp_embedding: how often more than once per epoch a row may be published, on average over the run
    calibration: Literal["guaranteed", "paper"] = "guaranteed"  # gdp_embedding: how mu becomes noise


@dataclass
class AttackConfig:
    name: str = "none"
    parameters: Literal["released", "received"] = "released"  # how the server knows theta: every iterate is public | from the protocol
    rows: int = 1000  # attacked rows per client, drawn at random
    tolerance: float = 0.05  # what counts as recovered: a row's relative error (prediction_recovery), an entry's (embedding_inversion)


@dataclass
class CodecConfig:
    name: str = "none"
    fraction: float = 0.1  # topk: share of an array's entries that are sent
    feedback: bool = False  # topk: send the largest entries of the difference to what has arrived before


@dataclass
class BrokerConfig:
    name: str = "embedded"
    address: str | None = None  # nats: of a server that runs, nats://host:port or tls://host:port; null: one of the run's own
    user: str | None = None  # of that server; null with a password: the password is a token
    password_env: str | None = None  # the environment variable that holds its password


@dataclass
class EngineConfig:
    name: str = "simulated"
    compute_clock: str = "auto"  # auto | none | modelled | measured
    batch_compute: bool = True  # one vmap call for a cohort's equal computations
    window: int = 1  # rounds that a party may run ahead of the slowest
    threads: int | None = None  # torch threads; null: as torch chooses
    address: str = "local"  # ray: local (a cluster of the run's own, on the loopback interface) | auto (the one that runs here)
    timeout: float = 120.0  # ray: s after which a party that does not answer fails the run
    devices: dict[str, str] = field(default_factory=dict)  # ray: party -> its device; the others have `device`


@dataclass
class Delay:
    """Seconds of one core per sample, in a batch of B samples: scale * B**exponent."""

    scale: float
    exponent: float


@dataclass
class ComputeConfig:
    """The delay model of compute_clock=modelled.

    Without `delays`: seconds = base_seconds + cost * seconds_per_unit. With them: federation/delays.py.
    """

    name: str = "modelled"
    base_seconds: float = 0.0
    seconds_per_unit: float = 1e-6
    delays: dict[str, Delay] = field(default_factory=dict)  # the parts of split learning: federation/delays.py PARTS
    cores: list[int] = field(default_factory=lambda: [32])  # of each party, the active one first; the last entry repeats
    core_cap: float = 1.0  # largest number of cores that one worker can use
    batch_latency: float = 0.0  # seconds per batch that keep a worker but no core busy
    server_seconds: float = 0.0  # seconds of a parameter server per worker of its own and synchronisation
    penalty_batch: float | None = None  # epochs to a target grow as 1 + B / penalty_batch; null: they do not depend on B
    file: str | None = None  # the profile of a machine that the constants are from


@dataclass
class RunConfig:
    """The whole configuration of one run, after composition. `algorithm`, `dataset` and `model` are the option's own dataclass."""

    algorithm: Any
    dataset: Any
    model: Any
    network: NetworkConfig
    topology: TopologyConfig
    privacy: PrivacyConfig
    engine: EngineConfig
    compute: ComputeConfig
    seed: int = 0
    device: str = "auto"
    rounds: int | None = None
    epochs: int | None = None
    eval_every: int | None = None
    target: float | None = None
    max_bytes: float | None = None
    max_virtual_seconds: float | None = None
    resume: bool = False
    checkpoint_every: int | None = 50
    overwrite: bool = False
    dry_run: bool = False
    accounting: str = "strict"
    data_root: str | None = None
    scale: str = "full"
    attack: AttackConfig = field(default_factory=AttackConfig)
    codec: CodecConfig = field(default_factory=CodecConfig)
    broker: BrokerConfig = field(default_factory=BrokerConfig)


def division(algorithm: Any) -> int:
    """Into how many a data set is divided for `algorithm`: parties, workers, or horizontal parts of each table."""
    return next((int(getattr(algorithm, key)) for key in ("parties", "workers", "parts") if hasattr(algorithm, key)), 1)


# --- what the registry knows of an option without importing it ----------------------------------------------------------


@dataclass(frozen=True)
class AlgorithmInfo:
    """Written as a literal `ALGORITHM = AlgorithmInfo(...)` in the algorithm's file: `list` reads it without importing torch."""

    name: str
    summary: str
    paper: str
    layouts: tuple[str, ...]  # graph | relational | aligned | sharded
    privacy: tuple[str, ...] = ("none",)
    attacks: tuple[str, ...] = ("none",)
    models: tuple[str, ...] = ()  # allowed options of the model group; empty: takes none
    topologies: tuple[str, ...] = ("star",)
    accounting: tuple[str, ...] = ("strict",)  # rules by which its ledger may be priced
    epochs: bool = False  # a round is a pass over the data: `epochs` and `rounds` are one key, and every round is evaluated
    time_dependent: bool = False  # control flow depends on virtual time: no replay, engine equality not claimed
    exact: str = ""  # why it takes no codec: what it is would break if not the very numbers arrived; empty: it takes any
    remembered: tuple[str, ...] = ()  # tags whose messages are about the same entries every time: what codec.feedback may remember
    published: tuple[tuple[str, str], ...] = ()  # (tag, key of a channel's capacity): a broker may pass these; payload[0] is the channel
    modelled: bool = False  # running times are what is compared: computing takes time unless engine.compute_clock says otherwise


@dataclass(frozen=True)
class DatasetInfo:
    """Written as literals in `DATASETS = (DatasetInfo(...), ...)` of a module below vflbench/data."""

    name: str
    summary: str
    layouts: tuple[str, ...]
    sources: tuple[str, ...] = ("real", "synthetic")
    folder: str | None = None  # below data_root
    comes_with: str | None = None  # the library that has it: no files are looked for


TRAINING_METRIC = "suboptimality"  # the one that is of the training samples: there is no validation or test value


@dataclass(frozen=True)
class Metric:
    name: str
    goal: Literal["max", "min"]


@dataclass(frozen=True)
class DataSource:
    """Where a task's data came from."""

    kind: Literal["real", "partial", "synthetic"]
    variant: str | None = None
    note: str = ""  # e.g. which parts are made up
    files: tuple[tuple[str, str], ...] = ()  # (file name, sha256 or, of huge files, size and time), no machine paths
