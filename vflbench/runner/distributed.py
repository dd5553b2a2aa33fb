"""Runs whose parties are in processes of their own (engine=ray): who builds what, and who holds which data.

A process of its own, the surveyor, looks at the whole task before the run, as `Federation` does. It tells the driver
what is public and what scoring needs, but no features. Where workers report whole models, which are scored on rows
(sharded data), the surveyor stays and scores them. Else it ends before the parties start.

Each party's process then builds its own part. Of a benchmark set it loads all and keeps its part. Where the user has a
file for each party (modules of data sets with a function `load_own`) it opens its own and no other. The surveyor has
brought the files together, as a private set intersection or a table mapping would. `Briefing` is what the party learns
from that: its rows' numbers, the splits, and labels if its program has them. A party whose program holds more (a
centralized baseline's) opens all files.
"""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import FunctionType, MethodType, TracebackType
from typing import Any

import numpy as np
import torch

from vflbench import registry
from vflbench.data import sources
from vflbench.data.tasks import ShardedTask, Task
from vflbench.federation.engine import Engine
from vflbench.federation.ray.calls import STARTING, deaths, no_answer
from vflbench.federation.ray.cluster import Cluster
from vflbench.federation.ray.driver import RayEngine
from vflbench.federation.ray.nats_broker import Channels, Service
from vflbench.federation.ray.party_thread import remote_program
from vflbench.models.metrics import METRICS
from vflbench.runner import task_baselines
from vflbench.runner.evaluate import Observer
from vflbench.runner.federation import Federation, Known, resolve_device
from vflbench.runner.models import WholeModels
from vflbench.types import (
    DEVICES,
    AlgorithmInfo,
    FederationError,
    Problem,
    RunConfig,
    VflbenchError,
    division,
    hook,
    refuse,
)


def _detached(value: Any) -> Any:
    """A party's data without views.

    A slice of a matrix would keep the whole matrix in memory, with the others' columns.
    """
    if isinstance(value, np.ndarray):
        return value if value.base is None or isinstance(value, np.memmap) else value.copy(order="K")
    if isinstance(value, Mapping):
        return {key: _detached(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_detached, value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return type(value)(**{f.name: _detached(getattr(value, f.name)) for f in dataclasses.fields(value)})
    return value


# --- what a party is told that opens only its own files ---------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Briefing:
    """What the surveyor tells a party; with its own files it makes the party's data."""

    task: Task  # without features, and without what is for other parties
    index: int | None  # the part of the task that is its organisation's; None: it has none


def same(one: Any, other: Any) -> bool:
    """Whether two parties' programs and data are equal."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        numbers = one.dtype.kind in "fc"
        return (
            one.dtype == other.dtype
            and one.shape == other.shape
            and bool(np.array_equal(one, other, equal_nan=numbers))
        )
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, partial):
        return same(one.func, other.func) and same(one.args, other.args) and same(one.keywords, other.keywords)
    if isinstance(one, torch.nn.Module):
        return same(dict(one.state_dict()), dict(other.state_dict()))
    if isinstance(one, MethodType):
        return one.__func__ is other.__func__ and same(one.__self__, other.__self__)
    if hasattr(one, "__dict__") and not isinstance(one, FunctionType | type):
        return same(vars(one), vars(other))
    return bool(one == other)


def _briefings(federation: Federation) -> dict[str, Briefing]:
    """What each party is told that needs only its own files.

    With these, its data are what they are in the whole federation.
    """
    task, dataset, found = federation.task, federation.config.dataset, {}
    if not (hook(registry.load_dataset(dataset.name), "load_own") and task.own_files(dataset)):
        return {}
    made: dict[tuple[int | None, bool], tuple[Briefing, dict[str, Any]]] = {}
    for name, spec in federation.specs.items():
        hub = spec.organisation or name
        index = federation.attacked.index(hub) if hub in federation.attacked else None
        for labelled in (False, True):
            if (index, labelled) not in made:
                bare = task.facts_for(index, labelled)
                try:
                    own = bare if index is None else bare.with_part(task, index)
                    specs = federation.module.parties(own, federation.decided)
                except Exception:  # it needs more than there is, and may fail in any way
                    specs = {}
                made[index, labelled] = Briefing(bare, index), specs
            message, specs = made[index, labelled]
            if name in specs and same(specs[name].data, spec.data) and same(specs[name].program, spec.program):
                found[name] = message
                break
    return found


# --- before the run ---------------------------------------------------------------------------------------------------


class Surveyor:
    """The actor that sees the whole task, and scores whole models."""

    def survey(self, config: RunConfig, info: AlgorithmInfo) -> tuple[Known, dict[str, Briefing]] | VflbenchError:
        """What the driver may know, and what it passes on to parties.

        An error where the configuration or the data are wrong.
        """
        try:
            federation = Federation(config, info)
            federation.mechanisms()  # noise is calibrated here for the first time, which may fail
        except VflbenchError as error:
            return error
        except OSError as error:
            return VflbenchError(
                f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)
            )
        task = federation.task
        if task.by_rows is not None:
            self.models = WholeModels(task.by_rows, config.model, METRICS[task.metric.name])
        specs = {
            name: dataclasses.replace(spec, program=remote_program, data=None)
            for name, spec in federation.specs.items()
        }
        bare = task.without_features()
        levels = (
            task_baselines.levels(task, config.seed, config.floor, kept_only=True) if config.floor != "none" else {}
        )
        facts = federation.facts, federation.devices, specs, federation.config.algorithm
        known = Known(
            bare, federation.layout, federation.decided, *facts, {"ship_it": task_baselines.ship_it(task), **levels}
        )
        return known, _briefings(federation)

    def score(self, round: int, models: list[Any]) -> tuple[dict[str, float], dict[str, Any]]:
        """As `WholeModels.score`, and its row of the averaged model."""
        values = self.models.score(round, models)
        return values, self.models.averaged.pop()


class ScoredElsewhere(WholeModels):
    """`WholeModels` whose rows are with the surveyor."""

    def __init__(self, task: ShardedTask, surveyor: Any, timeout: float) -> None:
        self.task, self.surveyor, self.timeout = task, surveyor, timeout
        self.averaged = []

    def score(self, round: int, models: list[Any]) -> dict[str, float]:
        """As `WholeModels.score`.

        Raises
        ------
        FederationError
            The surveyor does not answer within `timeout` s.
        """
        values: dict[str, float]
        values, averaged = answer(
            self.surveyor.score.remote(round, models), "the surveyor, which scores the models,", self.timeout
        )
        self.averaged.append(averaged)
        return values


def answer(reference: Any, who: str, seconds: float, starting: bool = False) -> Any:
    """The result of a call of an actor, `who` in words.

    Raises
    ------
    FederationError
        It dies, fails or takes longer than `seconds`.
    """
    import ray

    try:
        return ray.get(reference, timeout=seconds)
    except ray.exceptions.GetTimeoutError as error:
        raise FederationError(no_answer(who, seconds, starting)) from error
    except deaths() as error:
        raise FederationError(f"the process of {who} has died (killed, or out of memory)") from error
    except ray.exceptions.RayTaskError as error:
        problem = FederationError(f"{who} failed: {type(error.cause).__name__}: {error.cause}")
        problem.add_note(str(error))  # with its traceback
        raise problem from error


def party(
    config: RunConfig,
    info: AlgorithmInfo,
    eval_every: int,
    checkpoint_every: int | None,
    name: str,
    # `known` and `index`: its `Briefing` and what else is public, where it opens only its own files
    known: Known | None = None,
    index: int | None = None,
    source: str | None = None,  # the kind of data that the surveyor found, where the party loads the whole set
    devices: tuple[str, ...] = DEVICES,  # what it can compute on, as the surveyor found
    broker: Channels | None = None,  # passes on what the party publishes to other organisations
) -> dict[str, Any]:
    """In the party's process: the arguments of its `PartyEngine`, with its own data and nobody else's."""
    if (device := config.engine.devices.get(name)) is not None:
        config = dataclasses.replace(config, device=resolve_device(device, devices, f"engine.devices.{name}"))
    if known is None:
        federation = Federation(config, info)
        # they differ, for example, where a download failed for one of them
        if source not in (None, found := federation.task.source.kind):
            raise VflbenchError(
                f"its data of {config.dataset.name} are {found}, but the process that looked before the run found "
                f"{source}"
            )
    else:
        task, decided = known.task, dataclasses.replace(known.decided, device=resolve_device(config.device, devices))
        if index is not None:
            load_own, root = registry.load_dataset(config.dataset.name).load_own, sources.data_root(config.data_root)
            task = load_own(config.dataset, known.layout, division(known.fitted), config.seed, root, task, index)
        federation = Federation(config, info, dataclasses.replace(known, task=task, decided=decided))
        federation.specs = federation.module.parties(task, decided)
    own = federation.specs[name]
    specs = {n: dataclasses.replace(spec, program=remote_program, data=None) for n, spec in federation.specs.items()}
    specs[name] = dataclasses.replace(own, data=_detached(own.data))
    arguments = federation.engine_arguments() | {
        "eval_every": eval_every,
        "checkpoint_every": checkpoint_every,
        "privacy": federation.mechanisms(),
        "specs": specs,
        "public": federation.task.public,
        "config": federation.decided,
        "threads": config.engine.threads,
        "broker": broker,
    }
    # the first optimiser imports a second's worth of torch: part of starting, not of the first round
    if config.model is not None:
        torch.optim.SGD([torch.zeros(1)])
    arguments["privacy"] = {client: secret for client, secret in arguments["privacy"].items() if client == name}
    del federation, own
    gc.collect()
    return arguments


class Host:
    """The processes of one run: `with Host(config, info) as host:`.

    `federation` is what the driver knows, `models` scores whole models (None where parties report predictions), and
    `broker` is a real broker (None without one).

    Raises
    ------
    ConfigError, VflbenchError
        On entering; as `Federation`, and where Ray does not start.
    """

    def __init__(self, config: RunConfig, info: AlgorithmInfo) -> None:
        root = None if config.data_root is None else str(Path(config.data_root).expanduser().absolute())
        self.config, self.info = dataclasses.replace(config, data_root=root), info
        self.cluster = Cluster(config.engine.address)
        self.broker = Service(config, info) if config.broker.name == "nats" else None

    def __enter__(self) -> Host:
        self.cluster.__enter__()
        try:
            self.federation, self.models, self.known, self.messages = self._survey()
            if self.broker is not None:
                self.broker.__enter__()
        except BaseException:
            self.cluster.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        try:
            self.cluster.__exit__(kind, error, where)
        finally:
            if self.broker is not None:
                self.broker.__exit__()

    def _survey(self) -> tuple[Federation, ScoredElsewhere | None, Known, dict[str, Briefing]]:
        surveyor, timeout = self.cluster.hire(Surveyor), self.config.engine.timeout
        call = surveyor.survey.remote(self.config, self.info)
        found = answer(
            call, "the surveyor, which looks at the data before the run,", max(timeout, STARTING), timeout < STARTING
        )
        if isinstance(found, VflbenchError):
            raise found
        known, messages = found
        federation = Federation(self.config, self.info, known)
        allowed = f"there is no such party; there are: {', '.join(federation.specs)}"
        devices = self.config.engine.devices.items()
        unknown = [(name, device) for name, device in devices if name not in federation.specs]
        refuse([Problem(f"engine.devices.{name}", device, allowed) for name, device in unknown])
        if known.task.by_rows is not None:
            return federation, ScoredElsewhere(known.task.by_rows, surveyor, timeout), known, messages
        self.cluster.dismiss([surveyor])
        return federation, None, known, messages

    def engine(self, observer: Observer, **options: Any) -> Engine:
        """The engine of the run, whose parties are not started yet."""
        federation, every = self.federation, options.get("checkpoint_every")
        kind, devices = self.known.task.source.kind, self.known.devices
        whole = partial(party, self.config, self.info, federation.eval_every, every, source=kind, devices=devices)
        builds = dict.fromkeys(federation.specs, whole)
        for name, message in self.messages.items():
            builds[name] = partial(
                builds[name], known=dataclasses.replace(self.known, task=message.task), index=message.index
            )
        if self.broker is not None:
            builds |= {name: partial(builds[name], broker=self.broker.channels) for name in federation.hubs}
        timeout, names = self.config.engine.timeout, list(federation.specs)
        options |= {
            "on_report": observer.on_report,
            "expendable": [name for name, spec in federation.specs.items() if spec.expendable],
        }
        options["published"] = list(self.info.published) if self.broker is not None else []
        return RayEngine(self.cluster, names, builds, timeout=timeout, rounds=federation.rounds, **options)
