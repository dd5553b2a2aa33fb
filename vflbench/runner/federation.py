"""The federation of a run: its task, its parties and what they are driven with."""

import dataclasses
import logging
import math
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import torch

from vflbench import adapt, registry
from vflbench.data import sanity, sources
from vflbench.data.tasks import Task
from vflbench.federation import clock, topology
from vflbench.federation.delays import Delays
from vflbench.federation.party import SERVER, PartySpec
from vflbench.federation.phases import Sized
from vflbench.federation.simulated import SimulatedEngine
from vflbench.privacy import examples, keys, mechanisms
from vflbench.runner import assumed, task_baselines
from vflbench.runner.costs import PartyInfo, link_problems
from vflbench.runner.evaluate import Observer
from vflbench.types import (
    DEVICES,
    AlgorithmInfo,
    ConfigError,
    Problem,
    RunConfig,
    VflbenchError,
    batch_size,
    division,
    dtype,
    hook,
    messages,
    module_of,
    refuse,
    rounds_per_epoch,
)

log = logging.getLogger(__name__)
SCALES = {"full": 10**12, "small": None, "smoke": 2}  # the most rounds; small: a quarter


def resolve_device(device: str, usable: Sequence[str] = DEVICES, key: str = "device") -> str:
    """The device of parties that can compute on those that are `usable`; `auto` is a GPU where there is one.

    Raises
    ------
    ConfigError
        The GPU of `key` is not usable, or not there.
    """
    if device == "auto":
        return "cuda" if "cuda" in usable and torch.cuda.is_available() else "cpu"
    if (kind := device.partition(":")[0]) not in usable:
        allowed = f"this algorithm computes on {', '.join(usable)} only with these data: use auto or cpu"
        raise ConfigError([Problem(key, device, allowed)])
    if kind == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if int(device.partition(":")[2] or 0) >= count:
            allowed = f"this machine has {count} GPUs that torch can use; auto and cpu always work"
            raise ConfigError([Problem(key, device, allowed)])
    return device


@dataclasses.dataclass(frozen=True)
class Known:
    """What a survey of the data finds.

    Without the parties' data it is what the driver of their processes knows (runner/distributed.py).
    """

    task: Task
    layout: str
    decided: RunConfig
    facts: dict[str, Any]  # what the algorithm chose by itself, for the summary
    devices: tuple[str, ...]  # what its parties can compute on, of DEVICES
    specs: dict[str, PartySpec]
    fitted: Any  # the algorithm's keys, with defaults that fit the data
    baselines: dict[str, Any] | None = None  # for the summary; None: the task tells (runner/task_baselines.py)


class Federation:
    """A task's parties, ready to be driven; with `known` there is no data to drive them with."""

    def __init__(self, config: RunConfig, info: AlgorithmInfo, known: Known | None = None) -> None:
        self.config, self.info = config, info
        self.module: ModuleType = registry.load_algorithm(info.name)
        self.exposes = registry.exposed(info.name)
        self._settle()
        found = known or self._survey()
        self.config = dataclasses.replace(config, algorithm=found.fitted)
        self.devices, self.device = found.devices, resolve_device(config.device, found.devices)
        self.task, self.layout, self.decided, self.facts, self.specs = (
            found.task,
            found.layout,
            found.decided,
            found.facts,
            found.specs,
        )
        self._baselines = found.baselines
        self._connect()

    def baselines(self) -> dict[str, Any]:
        """Floor and ceiling of the task, for the summary."""
        if self._baselines is not None:
            return self._baselines
        how, seed = self.config.floor, self.config.seed
        levels = task_baselines.levels(self.task, seed, how) if how != "none" else {}
        return {"ship_it": task_baselines.ship_it(self.task), **levels}

    def _settle(self) -> None:
        """Decide what the configuration leaves open before data are read, and refuse a GPU that is not there.

        Clock, randomness, the number of rounds and how often they are scored.
        """
        config, info = self.config, self.info
        resolve_device(config.device)
        if config.engine.threads is not None:
            torch.set_num_threads(config.engine.threads)
        self.live = config.engine.name == "ray"  # times are measured
        secure = config.privacy.secure_rng
        self.secure = config.privacy.name != "none" and (self.live if secure is None else secure)
        timed = info.time_dependent or info.modelled or config.protection.name != "none"
        self.clock_mode = "measured" if self.live else clock.resolve(config.engine.compute_clock, timed)
        if config.protection.name != "none" and self.clock_mode != "modelled":
            log.warning(
                "protection=%s is not performed: only engine.compute_clock=modelled counts its seconds, and this is %s",
                config.protection.name,
                self.clock_mode,
            )
        epochs = config.epochs or config.algorithm.default_rounds
        scale, full = SCALES[config.scale], config.rounds or epochs * rounds_per_epoch(config.algorithm)
        self.rounds: int = max(full // 4, 1) if scale is None else min(full, scale)
        self.eval_every = config.eval_every or (1 if info.epochs else info.eval_every)
        if config.scale != "full":
            self.eval_every = min(self.eval_every, max(self.rounds // 2, 1))

    def _survey(self) -> Known:
        """Load the data, let the algorithm look at them, refuse what does not go with them, build its parties."""
        asked = self.config
        self.config = adapt.parties(asked, self.info, sources.data_root(asked.data_root))
        task, layout = self._load()
        if layout == "aligned":  # some data sets have one number of parties
            self.config = adapt.number(self.config, len(task.divided_among))
        if most := hook(self.module, "most"):
            self.config = adapt.sizes(self.config, most(task, self.config))
        devices = self._devices(task)
        # An algorithm sees the device and the number of rounds that were decided on, not `auto` and null.
        device, facts = resolve_device(self.config.device, devices), dict[str, Any]()
        decided = dataclasses.replace(self.config, device=device, rounds=self.rounds)
        if self.live:
            decided = dataclasses.replace(
                decided, engine=dataclasses.replace(decided.engine, compute_clock=self.clock_mode)
            )
        if decided.compute.sharing == "organisation" and not self.info.time_dependent:
            # in step: its workers compute at the same times, and a run is re-priced from what each has computed
            decided = dataclasses.replace(decided, compute=dataclasses.replace(decided.compute, sharing="evenly"))
        decided = dataclasses.replace(decided, privacy=keys.settled(decided.privacy, task.units))
        if decide := hook(self.module, "decide"):
            decided, facts = decide(task, decided)
        self._check(task)
        if task.by_rows is None:  # else the algorithm knows how many rows each party trains on
            examples.warn(decided.privacy, [task.units])
        specs = self.module.parties(task, decided)
        if adapted := adapt.changes(asked, self.config):
            facts = {**facts, "adapted": adapted}
        return Known(task, layout, decided, facts, devices, specs, self.config.algorithm)

    def _devices(self, task: Task) -> tuple[str, ...]:
        """What the algorithm's parties can compute on with these data."""
        ask = hook(self.module, "devices")
        devices: tuple[str, ...] = ask(task, self.config) if ask else DEVICES
        if "cpu" not in devices or not set(devices) <= set(DEVICES):
            allowed = "it must have 'cpu', and may have 'cuda'"
            raise VflbenchError(f"{self.module.__file__}: devices(task, config) gives {devices!r}: {allowed}")
        return devices

    def _load(self) -> tuple[Task, str]:
        """The task, and which layout it has."""
        config = self.config
        layout = registry.fit(self.info, registry.datasets()[config.dataset.name])
        if layout is None:
            raise VflbenchError(f"{self.info.name} does not run on {config.dataset.name}")
        load: Callable[..., Task] = registry.load_dataset(config.dataset.name).load
        return load(
            config.dataset, layout, division(config.algorithm), config.seed, sources.data_root(config.data_root)
        ), layout

    def _check(self, task: Task) -> None:
        """Refuse data that are not sane, and a target, a privacy mechanism and an attack that do not go with them."""
        config, metric, problems = self.config, task.metric.name, list[Problem]()
        sanity.check(task, config.dataset)
        share = metric in ("accuracy", "auroc")
        if config.target is not None and not 0 <= config.target <= (1 if share else math.inf):
            allowed = f"cannot be: {metric} {'lies between 0 and 1' if share else 'is never below 0'}"
            problems.append(Problem("target", config.target, allowed))
        if check := hook(module_of(config.privacy), "check_labels"):
            problems += check(config.privacy, task.training_labels(), task.classes)
        if check := hook(module_of(config.attack), "check_task"):
            problems += check(task, config)
        refuse(problems)

    def _connect(self) -> None:
        """Decide who may talk to whom."""
        servers = [name for name, spec in self.specs.items() if spec.role == "server"]
        clients = [name for name in self.specs if name not in servers]
        self.topology = topology.build(self.config.topology, servers, clients, self.config.seed)
        refuse(link_problems(self.config.network, self.specs, self.topology.connected))

    def mechanisms(self) -> dict[str, Any]:
        """The privacy mechanism of each party that has one; none where privacy=none."""
        if self.config.privacy.name == "none":
            return {}
        count = hook(self.module, "max_releases")
        bound = count(self.decided, self.rounds) if count else None
        batch, samples = batch_size(self.decided.algorithm), getattr(self.task.public, "samples", None)
        if self.info.one_shot:  # one message: no batches
            batch = samples = None
        alone = not messages(self.exposes)
        facts = mechanisms.Facts(self.layout, bound, batch, samples, self.task.classes, alone)
        made = {
            name: mechanisms.make(self.decided.privacy, facts, spec.role == "server")
            for name, spec in self.specs.items()
        }
        return {name: one for name, one in made.items() if one is not None}

    @property
    def party_infos(self) -> dict[str, PartyInfo]:
        """The role, organisation and cores of each party."""
        return {name: PartyInfo(spec.role, spec.organisation, spec.cores) for name, spec in self.specs.items()}

    @property
    def cores(self) -> float:
        """The cores of all parties together, by the delay model."""
        return Delays(self.decided.compute).total_cores(division(self.config.algorithm, len(self.specs)))

    @property
    def payload(self) -> dict[str, int]:
        """What an accounting must know of predictions: the bytes of one number, and how many there are in one."""
        return {
            "value_bytes": np.dtype(dtype(self.config.model)).itemsize,
            "outputs": getattr(self.task.public, "outputs", 1),
        }

    @property
    def assumed(self) -> list[tuple[str, Sized]]:
        """What the algorithm assumes to be there, as messages: (phase, (sender, receiver, tag, bytes))."""
        return assumed.messages(self.info, self.task, self.attacked)

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
            "network": config.network,
            "connected": self.topology.connected,
            "neighbours": self.topology.neighbours,
            "rounds": self.rounds,
            "eval_every": self.eval_every,
            "seed": config.seed,
            "device": self.device,
            "clock": clock.ComputeClock(self.clock_mode, config.compute, self.device),
            "window": config.engine.window,
            "codec": config.codec,
            "remembered": self.info.remembered,
            "exposes": messages(self.exposes),
            "reports": self.info.reports,
            "secure": self.secure,
        }

    def engine(self, observer: Observer | None = None, **kwargs: Any) -> SimulatedEngine:
        """A simulated engine with these parties."""
        arguments = self.engine_arguments() | {"batch_compute": self.config.engine.batch_compute}
        if self.clock_mode == "modelled":
            arguments["machines"] = Delays(self.decided.compute).machines(self.specs)
        arguments |= {"privacy": kwargs["privacy"] if "privacy" in kwargs else self.mechanisms()}
        if observer is not None:
            arguments |= {"on_report": observer.on_report, "on_round": observer.on_round}
        return SimulatedEngine(self.specs, self.task.public, self.decided, **(arguments | kwargs))
