"""Runs whose parties are in processes of their own (engine=ray): who builds what, and who holds which data.

Each party's process loads the data set itself and keeps its own part. A process of its own, the surveyor, looks at the whole task
before the run, as `Federation` does, and tells the driver what is public and what scoring needs; no features. Where workers report whole
models, which are scored on rows (sharded data), the surveyor stays and scores them; else it ends before the parties start.
"""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from vflbench.data.tasks import AlignedTask, GraphTask, Shard, ShardedTask, Task
from vflbench.federation.nats_broker import Channels, Service
from vflbench.federation.ray_engine import Cluster, RayEngine, elsewhere
from vflbench.runner.evaluate import METRICS, Observer
from vflbench.runner.models import WholeModels
from vflbench.runner.run import Federation, Known
from vflbench.types import AlgorithmInfo, ConfigError, Problem, RunConfig, VflbenchError


def without_features(task: Task) -> Task:
    """What the driver may hold: labels, splits and sizes for scoring; of features, edges and keys the shapes of a row."""

    def empty(array: np.ndarray) -> np.ndarray:
        return np.empty((0, *array.shape[1:]), array.dtype)

    def bare(shard: Shard) -> Shard:
        return Shard(empty(shard.features), shard.labels)

    if isinstance(task, GraphTask):
        no_edges = np.empty((2, 0), np.int64)
        features, edges = tuple(map(empty, task.features)), (no_edges,) * task.parties
        return dataclasses.replace(task, features=features, edges=edges, all_edges=no_edges, columns=None)
    if isinstance(task, AlignedTask):
        return dataclasses.replace(task, features=tuple(map(empty, task.features)), held_out_features={})
    if isinstance(task, ShardedTask):
        held_out = {split: bare(shard) for split, shard in task.held_out.items()}
        return dataclasses.replace(task, shards=tuple(map(bare, task.shards)), held_out=held_out)
    clients = [dataclasses.replace(part, keys={}, features=empty(part.features), labels=None, held_out={}) for part in task.clients]
    return dataclasses.replace(task, clients=tuple(clients))


def detached(value: Any) -> Any:
    """A party's data without views: a slice of a matrix would keep the whole of it, the others' columns too, in memory."""
    if isinstance(value, np.ndarray):
        return value if value.base is None or isinstance(value, np.memmap) else value.copy(order="K")
    if isinstance(value, Mapping):
        return {key: detached(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(detached, value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return type(value)(**{f.name: detached(getattr(value, f.name)) for f in dataclasses.fields(value)})
    return value


class Surveyor:
    """The actor that sees the whole task, and scores whole models."""

    def survey(self, config: RunConfig, info: AlgorithmInfo) -> Known | list[Problem] | str:
        """What the driver may know; or what is wrong with the configuration or the data."""
        try:
            federation = Federation(config, info)
            federation.mechanisms()  # noise is calibrated here for the first time, which may fail
        except ConfigError as error:
            return error.problems
        except VflbenchError as error:
            return str(error)
        except OSError as error:
            return f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)
        task = federation.task
        if isinstance(task, ShardedTask):
            self.models = WholeModels(task, config.model, METRICS[task.metric.name])
        specs = {name: dataclasses.replace(spec, program=elsewhere, data=None) for name, spec in federation.specs.items()}
        return Known(without_features(task), federation.layout, federation.decided, federation.facts, specs)

    def score(self, round: int, models: list[Any]) -> tuple[dict[str, float], dict[str, Any]]:
        """`WholeModels.score`, and its row of the averaged model."""
        values = self.models.score(round, models)
        return values, self.models.averaged.pop()


class ScoredElsewhere(WholeModels):
    """`WholeModels` whose rows are with the surveyor."""

    def __init__(self, task: ShardedTask, surveyor: Any) -> None:
        self.task, self.surveyor = task, surveyor
        self.averaged = []

    def score(self, round: int, models: list[Any]) -> dict[str, float]:
        import ray

        values, averaged = ray.get(self.surveyor.score.remote(round, models))
        self.averaged.append(averaged)
        return values


def party(
    config: RunConfig, info: AlgorithmInfo, eval_every: int, checkpoint_every: int | None, broker: Channels | None, name: str
) -> dict[str, Any]:
    """In the party's process: the arguments of its `PartyEngine`, with its own data and nobody else's."""
    federation = Federation(dataclasses.replace(config, device=config.engine.devices.get(name, config.device)), info)
    own = federation.specs[name]
    specs = {n: dataclasses.replace(spec, program=elsewhere, data=None) for n, spec in federation.specs.items()}
    specs[name] = dataclasses.replace(own, data=detached(own.data))
    arguments = federation.engine_arguments() | {
        "eval_every": eval_every, "checkpoint_every": checkpoint_every, "privacy": federation.mechanisms(),
        "specs": specs, "public": federation.task.public, "config": federation.decided, "threads": config.engine.threads,
        "broker": broker if name in federation.hubs else None,
    }  # fmt: skip
    arguments["privacy"] = {client: secret for client, secret in arguments["privacy"].items() if client == name}
    del federation, own
    gc.collect()
    return arguments


class Host:
    """The processes of one run: `with Host(config, info) as host:`.

    Attributes
    ----------
    federation : what the driver knows. models : scores whole models; None where parties report predictions. broker : None or a real one.

    Raises
    ------
    ConfigError, VflbenchError : on entering; as `Federation`, and where Ray does not start.
    """

    def __init__(self, config: RunConfig, info: AlgorithmInfo) -> None:
        root = None if config.data_root is None else str(Path(config.data_root).expanduser().absolute())
        self.config, self.info = dataclasses.replace(config, data_root=root), info
        self.cluster = Cluster(config.engine)
        self.broker = Service(config, info) if config.broker.name == "nats" else None

    def __enter__(self) -> Host:
        self.cluster.__enter__()
        try:
            self.federation, self.models = self._survey()
            if self.broker is not None:
                self.broker.__enter__()
        except BaseException:
            self.cluster.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        try:
            self.cluster.__exit__(kind, error, where)
        finally:
            if self.broker is not None:
                self.broker.__exit__()

    def _survey(self) -> tuple[Federation, ScoredElsewhere | None]:
        import ray

        surveyor = self.cluster.hire(Surveyor)
        known = ray.get(surveyor.survey.remote(self.config, self.info))
        if isinstance(known, list):
            raise ConfigError(known)
        if isinstance(known, str):
            raise VflbenchError(known)
        federation = Federation(self.config, self.info, known)
        if unknown := [name for name in self.config.engine.devices if name not in federation.specs]:
            allowed = f"there is no such party; there are: {', '.join(federation.specs)}"
            raise ConfigError([Problem(f"engine.devices.{name}", self.config.engine.devices[name], allowed) for name in unknown])
        if isinstance(known.task, ShardedTask):
            return federation, ScoredElsewhere(known.task, surveyor)
        self.cluster.dismiss([surveyor])
        return federation, None

    def engine(self, observer: Observer, **options: Any) -> RayEngine:
        """The engine of the run, whose parties are yet to be started."""
        federation, every = self.federation, options.get("checkpoint_every")
        build = partial(party, self.config, self.info, federation.eval_every, every, self.broker.channels if self.broker else None)
        timeout, names = self.config.engine.timeout, list(federation.specs)
        expendable = [name for name, spec in federation.specs.items() if spec.expendable]
        options |= {"expendable": expendable, "on_report": observer.on_report}
        return RayEngine(self.cluster, names, build, timeout=timeout, rounds=federation.rounds, **options)
