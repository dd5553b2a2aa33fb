"""The federation of a run: its task, its parties and what they are driven with."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import torch

from vflbench import registry
from vflbench.data import sanity, sources
from vflbench.data.tasks import Task
from vflbench.federation import clock, topology
from vflbench.federation.delays import Delays
from vflbench.federation.engine import Engine
from vflbench.federation.party import SERVER, PartySpec
from vflbench.federation.simulated import SimulatedEngine
from vflbench.privacy import examples, mechanisms
from vflbench.runner.costs import Standing, link_problems
from vflbench.runner.evaluate import Observer
from vflbench.types import (
    AlgorithmInfo,
    ConfigError,
    Problem,
    RunConfig,
    VflbenchError,
    batch_size,
    division,
    dtype,
    hook,
    module_of,
    rounds_per_epoch,
)

SCALES = {"full": 10**12, "small": None, "smoke": 2}  # the most rounds; small: a quarter


def resolve_device(device: str) -> str:
    """`auto` is a GPU where there is one. Raises ConfigError for a GPU that is not there."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device.startswith("cuda"):
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if int(device.partition(":")[2] or 0) >= count:
            raise ConfigError([Problem("device", device, f"this machine has {count} GPUs that torch can use; auto and cpu always work")])
    return device


@dataclasses.dataclass(frozen=True)
class Known:
    """What of a federation somebody knows who does not hold the parties' data (runner/distributed.py)."""

    task: Task  # without features
    layout: str
    decided: RunConfig
    facts: dict[str, Any]
    specs: dict[str, PartySpec]  # without programs and data


class Federation:
    """A task's parties, ready to be driven; with `known` there is no data to drive them with."""

    def __init__(self, config: RunConfig, info: AlgorithmInfo, known: Known | None = None) -> None:
        self.config = config
        self.info = info
        self.module: ModuleType = registry.load_algorithm(info.name)
        self.device = resolve_device(config.device)
        if config.engine.threads is not None:
            torch.set_num_threads(config.engine.threads)
        self.live = config.engine.name == "ray"  # times are measured
        secure = config.privacy.secure_rng
        self.secure = config.privacy.name != "none" and (self.live if secure is None else secure)
        self.clock_mode = "measured" if self.live else clock.resolve(config.engine.compute_clock, info.time_dependent or info.modelled)
        epochs = config.epochs or config.algorithm.default_rounds
        scale, full = SCALES[config.scale], config.rounds or epochs * rounds_per_epoch(config.algorithm)
        self.rounds: int = max(full // 4, 1) if scale is None else min(full, scale)
        self.eval_every = config.eval_every or (1 if info.epochs else 10)
        if config.scale != "full":
            self.eval_every = min(self.eval_every, max(self.rounds // 2, 1))
        # An algorithm sees the device and the number of rounds that were decided on, not `auto` and null.
        self.decided = dataclasses.replace(config, device=self.device, rounds=self.rounds)
        if self.live:
            self.decided = dataclasses.replace(self.decided, engine=dataclasses.replace(config.engine, compute_clock=self.clock_mode))
        self.task: Task
        self.specs: dict[str, PartySpec]
        self.facts: dict[str, Any] = {}  # what the algorithm chose by itself, for the summary
        if known is None:
            self._survey()
        else:
            self.task, self.layout, self.decided, self.facts, self.specs = (getattr(known, f.name) for f in dataclasses.fields(known))
        servers = [name for name, spec in self.specs.items() if spec.role == "server"]
        clients = [name for name in self.specs if name not in servers]
        self.topology = topology.build(config.topology, servers, clients, config.seed)
        if problems := link_problems(config.network, self.specs, self.topology.connected):
            raise ConfigError(problems)

    def _survey(self) -> None:
        """Load the data, let the algorithm look at them, build its parties."""
        config = self.config
        self.task = self._load()
        if decide := hook(self.module, "decide"):
            self.decided, self.facts = decide(self.task, self.decided)
        sanity.check(self.task)
        if problems := [*self._target_problems(), *self._label_problems(), *self._attack_problems()]:
            raise ConfigError(problems)
        if self.task.by_rows is None:  # else the algorithm knows how many rows each party trains on
            examples.warn(config.privacy, [len(self.task.training_labels())])
        self.specs = self.module.parties(self.task, self.decided)

    def _target_problems(self) -> list[Problem]:
        """A target that no value of the metric reaches, or every one."""
        metric, target = self.task.metric, self.config.target
        if target is None or 0 <= target <= (1 if metric.name in ("accuracy", "auroc") else math.inf):
            return []
        allowed = "lies between 0 and 1" if metric.name in ("accuracy", "auroc") else "is never below 0"
        return [Problem("target", target, f"cannot be: {metric.name} {allowed}")]

    def _label_problems(self) -> list[Problem]:
        """Labels that the privacy mechanism cannot noise."""
        check = hook(module_of(self.config.privacy), "check_labels")
        return check(self.config.privacy, self.task.training_labels(), self.task.classes) if check else []

    def _attack_problems(self) -> list[Problem]:
        """What of the task the attack cannot be tried on."""
        check = hook(module_of(self.config.attack), "check_task")
        return check(self.task, self.config) if check else []

    def _load(self) -> Task:
        layout = registry.fit(self.info, registry.datasets()[self.config.dataset.name])
        if layout is None:
            raise VflbenchError(f"{self.info.name} does not run on {self.config.dataset.name}")
        self.layout = layout
        load: Callable[..., Task] = registry.load_dataset(self.config.dataset.name).load
        root = sources.data_root(self.config.data_root)
        return load(self.config.dataset, layout, division(self.config.algorithm), self.config.seed, root)

    def mechanisms(self) -> dict[str, Any]:
        """One privacy mechanism per client, none where privacy=none."""
        if self.config.privacy.name == "none":
            return {}
        count = hook(self.module, "max_releases")
        bound = count(self.decided, self.rounds) if count else None
        clients = [name for name, spec in self.specs.items() if spec.role != "server"]
        batch, samples = batch_size(self.decided.algorithm), getattr(self.task.public, "samples", None)
        facts = mechanisms.Facts(self.layout, bound, batch, samples)
        return {name: mechanisms.make(self.config.privacy, facts) for name in clients}

    @property
    def standing(self) -> dict[str, Standing]:
        """Where the parties stand."""
        return {name: Standing(spec.role, spec.organisation, spec.cores) for name, spec in self.specs.items()}

    @property
    def cores(self) -> float:
        """Of all parties together, by the delay model."""
        return Delays(self.config.compute).total_cores(division(self.config.algorithm, len(self.specs)))

    @property
    def payload(self) -> dict[str, int]:
        """What an accounting must know of predictions: the bytes of one number, and how many there are in one."""
        return {"value_bytes": np.dtype(dtype(self.config.model)).itemsize, "outputs": getattr(self.task.public, "outputs", 1)}

    @property
    def hubs(self) -> list[str]:
        """The parties that speak for an organisation, in their order; the others are its workers."""
        return [name for name, spec in self.specs.items() if spec.organisation in (None, name)]

    @property
    def attacked(self) -> list[str]:
        """The hubs whose data an attack is about, in the order of the task's parts."""
        return [name for name in self.hubs if name != SERVER]

    def engine_arguments(self) -> dict[str, Any]:
        """What every engine of this federation is given."""
        config = self.config
        return {
            "network": config.network, "connected": self.topology.connected, "neighbours": self.topology.neighbours,
            "rounds": self.rounds, "eval_every": self.eval_every, "seed": config.seed, "device": self.device,
            "clock": clock.ComputeClock(self.clock_mode, config.compute), "window": config.engine.window, "codec": config.codec,
            "remembered": self.info.remembered, "exposes": self.module.EXPOSES, "reports": self.info.reports, "secure": self.secure,
        }  # fmt: skip

    def engine(self, observer: Observer | None = None, **kwargs: Any) -> Engine:
        arguments = self.engine_arguments() | {"batch_compute": self.config.engine.batch_compute}
        arguments |= {"privacy": kwargs["privacy"] if "privacy" in kwargs else self.mechanisms()}
        if observer is not None:
            arguments |= {"on_report": observer.on_report, "on_round": observer.on_round}
        return SimulatedEngine(self.specs, self.task.public, self.decided, **(arguments | kwargs))
