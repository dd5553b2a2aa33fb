"""What a module must have to be an algorithm, a data set or an option of another group; checked when it is loaded.

This holds for our modules, each with its card, and for a user's. Each protocol says what a module must define, its
`...Hooks` what it may define beside that. Of ours, `check` is in the card, but a data set's. contract_checks.py
compares.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from vflbench.types import (
    AlgorithmInfo,
    CodecConfig,
    DatasetInfo,
    Exposed,
    LinkConfig,
    NetworkConfig,
    OptionConfig,
    OptionInfo,
    PrivacyConfig,
    Problem,
    RunConfig,
)

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import Tensor

    from vflbench.attacks.transcript import Message, Watch
    from vflbench.data.tasks import Task
    from vflbench.federation.accounting import Payload
    from vflbench.federation.party import PartySpec
    from vflbench.privacy.mechanisms import Facts
    from vflbench.runner.logs import LoggedRun

LAYOUTS = ("aligned", "graph", "relational", "sharded")  # data/tasks


class Algorithm(Protocol):
    """An algorithm's module.

    `Config` is a dataclass of `name`, `default_rounds` and the algorithm's own keys, each with a default; those of ours
    are in `conf/` (defaults.py).
    """

    ALGORITHM: AlgorithmInfo
    EXPOSES: tuple[Exposed, ...]
    Config: type

    @staticmethod
    def parties(task: Any, config: RunConfig) -> dict[str, PartySpec]:
        """The parties by name, in their order, each with its program and its own data.

        Raises
        ------
        ConfigError : a configuration that these data rule out.
        """


class AlgorithmHooks(Protocol):
    """What an algorithm may also define."""

    SEARCH: dict[str, Any]  #: what is searched: a key of the run -> a tuple of choices, or a types.Interval

    @staticmethod
    def check(config: RunConfig) -> list[Problem]:
        """What is wrong with the configuration, across keys, before any data is loaded."""

    @staticmethod
    def decide(task: Any, config: RunConfig) -> tuple[RunConfig, dict[str, Any]]:
        """The configuration with what the algorithm chooses once it sees the data; and that choice, for the summary."""

    @staticmethod
    def most(task: Any, config: RunConfig) -> dict[str, int]:
        """The largest values of its keys that these data allow: a larger default is cut to them."""

    @staticmethod
    def devices(task: Any, config: RunConfig) -> tuple[str, ...]:
        """What its parties can compute on with these data, of types.DEVICES; without this hook: on all of them."""

    @staticmethod
    def max_releases(config: RunConfig, rounds: int) -> int:
        """How often one row of a party is released at most; a target epsilon is calibrated to it."""


class Dataset(Protocol):
    """A data set's module; `Config` is a dataclass of `name` and its own keys, each with a default."""

    DATASETS: tuple[DatasetInfo, ...]
    Config: type

    @staticmethod
    def load(config: Any, layout: str, parties: int, seed: int, root: Path | None) -> Task:
        """The task in one of the layouts that DATASETS names; `root` is data_root, None where none was given.

        Raises
        ------
        DataError : files are missing or malformed.
        """


class DatasetHooks(Protocol):
    """What a data set may also define."""

    @staticmethod
    def most_parties(config: Any, layout: str, root: Path | None) -> int | None:
        """Between how many parties it can be divided at most, where `check` cannot know that; None: any number."""

    @staticmethod
    def check(config: Any, layout: str, parties: int) -> list[Problem]:
        """What is wrong with its keys, before anything is read."""

    @staticmethod
    def load_own(config: Any, layout: str, parties: int, seed: int, root: Path | None, task: Any, index: int) -> Task:
        """The `task`, which has no features yet, with those of part `index` only.

        With engine=ray each party's files are then read in its own process.
        """


class Option(Protocol):
    """A module of an open group; `Config` is a dataclass of `name` and its own keys, each with a default."""

    OPTIONS: tuple[OptionInfo, ...]
    Config: type


class OptionHooks(Protocol):
    """What every option may also define."""

    @staticmethod
    def check(config: Any) -> list[Problem]:
        """What is wrong with its keys, before any work."""


class Attack(Option, Protocol):
    """What an adversary finds out from the messages that it received."""

    @staticmethod
    def watch(task: Any, config: RunConfig, hubs: list[str]) -> Watch:
        """Whose messages are kept; `hubs` are the parties that hold data, in the order of the task's parts."""

    @staticmethod
    def attack(view: Iterable[Message], task: Any, config: RunConfig, hubs: list[str]) -> dict[str, Any]:
        """What it finds in the messages, for the summary; the task has the truth, only for the score."""


class AttackHooks(OptionHooks, Protocol):
    """What an attack may also define."""

    @staticmethod
    def check_task(task: Any, config: RunConfig) -> list[Problem]:
        """Why it cannot be tried on this task."""


class Codec(Option, Protocol):
    """How an array of numbers is compressed; `Config` has the keys of `types.CodecConfig`."""

    @staticmethod
    def encode(values: Tensor, rng: np.random.Generator, config: Any) -> tuple[Tensor, ...]:
        """What is sent, and charged by the ledger, for (n,) floats, n > 0; `rng` is the sender's."""

    @staticmethod
    def decode(sent: tuple[Tensor, ...], size: int, dtype: torch.dtype, config: Any) -> Tensor:
        """What the receiver makes of what was sent: (size,) floats of `dtype`."""


class Protection(Option, Protocol):
    """How what is added up is hidden from who adds it up; it may be priced only."""

    @staticmethod
    def slots(config: Any, terms: int, numbers: int) -> int:
        """How many groups of `numbers` a ciphertext holds, if up to `terms` ciphertexts are added up."""

    @staticmethod
    def seal(config: Any, values: np.ndarray, slots: int) -> np.ndarray:
        """What is sent, and charged by the ledger, of (m, k) numbers, `slots` rows of them in a ciphertext."""

    @staticmethod
    def unseal(sealed: np.ndarray, values: int, numbers: int, dtype: type, slots: int) -> np.ndarray:
        """The (values, numbers) that were sealed."""

    @staticmethod
    def seconds(config: Any, encrypted: int = 0, decrypted: int = 0, added: int = 0, multiplied: int = 0) -> float:
        """What so many operations on ciphertexts take."""


class Mechanism(Option, Protocol):
    """What the owner of data does to what it sends; `Config` has the keys of `types.PrivacyConfig`."""

    @staticmethod
    def make(config: Any, facts: Facts) -> Any:
        """The mechanism of one party, of a client; None where it protects nothing of a client's.

        It has `spent`, `state_dict`, `load_state_dict`, and the methods that its algorithms call.

        Raises
        ------
        ConfigError : it does not go with the facts of the run.
        """


class MechanismHooks(OptionHooks, Protocol):
    """What a mechanism may also define."""

    SEARCH: dict[str, Any]  #: what is searched with it: as an algorithm's, of its own keys (`privacy.clip`)

    @staticmethod
    def make_server(config: Any, facts: Facts) -> Any:
        """The mechanism of a server, which has the labels; as `make`. Without this hook only clients have one."""

    @staticmethod
    def check_labels(config: Any, labels: np.ndarray, classes: int) -> list[Problem]:
        """Why it cannot add noise to these labels; `classes` is 0 for a regression."""


class Topology(Option, Protocol):
    """Who may talk to whom."""

    @staticmethod
    def edges(config: Any, servers: list[str], clients: list[str], seed: int) -> Iterable[tuple[str, str]]:
        """The pairs that may exchange messages, in any order, also those of a server with its clients.

        Raises
        ------
        ConfigError : keys that these parties rule out.
        """


class Network(Option, Protocol):
    """The links; `Config` has the keys of `types.NetworkConfig`, whose `links` take precedence over this."""

    @staticmethod
    def link(config: Any, kind: str, pair: str) -> LinkConfig:
        """The link `pair` ("src->dst"), the same at every call; `kind` is client_server or client_client."""


class Launcher(Option, Protocol):
    """Where and when the jobs of a sweep run."""

    @staticmethod
    def launch(jobs: list[Callable[[], Any]], config: Any) -> list[Any]:
        """Call each job, here or pickled in another process, and return their results in order.

        Raises
        ------
        RuntimeError : a job ends without a result.
        """


class Logger(Option, Protocol):
    """Who is told of a run while it trains."""

    @staticmethod
    def start(config: Any, run: LoggedRun) -> Any:
        """What logs one run, with `log(row)` for each evaluation and `finish(summary)` at the end."""


class Accounting(Protocol):
    """What every message of a ledger costs; an option of this group has no keys."""

    OPTIONS: tuple[OptionInfo, ...]

    @staticmethod
    def price(rows: np.ndarray, payload: Payload) -> np.ndarray:
        """Bytes charged for each message, (n,); `rows` is a whole ledger, (n, 10), by federation.ledger.COLUMN."""


class AccountingHooks(Protocol):
    """What an accounting may also define."""

    @staticmethod
    def seconds(rows: np.ndarray, payload: Payload, network: NetworkConfig) -> dict[int, float]:
        """Communication time charged for each round, instead of the engine's."""

    @staticmethod
    def header(network: NetworkConfig) -> int:
        """Bytes that every message costs beside its price, in all phases; without this hook none."""

    @staticmethod
    def price_before(rows: np.ndarray, payload: Payload) -> np.ndarray:
        """Bytes charged for each message before the run, (n,): alignment, and what the method assumes.

        Without this hook they are free.
        """


@dataclasses.dataclass(frozen=True)
class Kind:
    """What the options of an open group are."""

    protocol: type
    hooks: type = OptionHooks
    keys: type | None = OptionConfig  # every Config has them; None: its options have no keys
    bare: str = "none"  # the option that has only these keys, and no module; *: any that has a YAML


OPTIONS = {
    "attack": Kind(Attack, AttackHooks),
    "codec": Kind(Codec, keys=CodecConfig),
    "protection": Kind(Protection),
    "accounting": Kind(Accounting, AccountingHooks, keys=None),
    "privacy": Kind(Mechanism, MechanismHooks, PrivacyConfig),
    "topology": Kind(Topology, bare=""),
    "network": Kind(Network, keys=NetworkConfig, bare="*"),
    "launcher": Kind(Launcher, bare="*"),
    "logger": Kind(Logger),
}
