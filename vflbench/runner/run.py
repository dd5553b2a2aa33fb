"""One run: build the task and its parties, drive the engine, write the run folder."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from vflbench import registry
from vflbench.attacks import embedding_inversion, label_inference, prediction_recovery, transcript
from vflbench.data import sources
from vflbench.data.tasks import AlignedTask, GraphTask, ShardedTask, Task
from vflbench.federation import clock, topology
from vflbench.federation.accounting import Payload
from vflbench.federation.codec import Codec, Encoder
from vflbench.federation.delays import Delays
from vflbench.federation.ledger import COLUMN, sort_ledger
from vflbench.federation.links import LINK_KINDS, LOCAL
from vflbench.federation.party import SERVER, Party, PartySpec
from vflbench.federation.ray_engine import Engine, RayEngine
from vflbench.federation.simulated import SimulatedEngine
from vflbench.federation.snapshot import Cut
from vflbench.privacy import mechanisms
from vflbench.results import folder as files
from vflbench.results.identity import config_hash
from vflbench.results.units import human_bytes
from vflbench.runner import provenance
from vflbench.runner.checkpoint import Checkpoints
from vflbench.runner.costs import Costs, Standing, link_problems
from vflbench.runner.evaluate import Observer
from vflbench.runner.progress import progress
from vflbench.runner.transcript import TranscriptWriter
from vflbench.seeding import stream
from vflbench.types import AlgorithmInfo, ConfigError, Problem, RunConfig, VflbenchError, division

if TYPE_CHECKING:
    from vflbench.runner.distributed import Host

ATTACKS: dict[str, Any] = {
    module.__name__.rpartition(".")[2]: module for module in (prediction_recovery, embedding_inversion, label_inference)
}
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
        self.clock_mode = "measured" if self.live else clock.resolve(config.engine.compute_clock, info.time_dependent or info.modelled)
        epochs = config.epochs or config.algorithm.default_rounds
        scale, full = SCALES[config.scale], config.rounds or epochs * getattr(config.algorithm, "rounds_per_epoch", 1)
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
        if hasattr(self.module, "decide"):
            self.decided, self.facts = self.module.decide(self.task, self.decided)
        if self.task.metric.name == "accuracy" and config.target is not None and config.target > 1:
            raise ConfigError([Problem("target", config.target, "is a fraction of 1, as every accuracy")])
        if problems := [*self._label_problems(), *self._attack_problems()]:
            raise ConfigError(problems)
        self.specs = self.module.parties(self.task, self.decided)

    def _label_problems(self) -> list[Problem]:
        """Labels that the privacy mechanism cannot noise."""
        task = self.task
        if isinstance(task, GraphTask | ShardedTask):
            return []
        parts = [task.labels] if isinstance(task, AlignedTask) else [part.labels for part in task.clients if part.labels is not None]
        return mechanisms.check_labels(self.config.privacy, np.concatenate(parts), task.classes)

    def _attack_problems(self) -> list[Problem]:
        """What of the task the attack cannot be tried on."""
        check = getattr(ATTACKS.get(self.config.attack.name), "check_task", None)
        return check(self.task, self.config) if check is not None else []

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
        bound = self.module.max_releases(self.decided, self.rounds) if hasattr(self.module, "max_releases") else None
        clients = [name for name, spec in self.specs.items() if spec.role != "server"]
        batch, samples = getattr(self.decided.algorithm, "batch_size", None), getattr(self.task.public, "samples", None)
        return {name: mechanisms.make(self.config.privacy, bound, self.layout, batch, samples) for name in clients}

    @property
    def standing(self) -> dict[str, Standing]:
        """Where the parties stand."""
        return {name: Standing(spec.role, spec.organisation, spec.cores) for name, spec in self.specs.items()}

    @property
    def cores(self) -> float:
        """Of all parties together, by the delay model."""
        return Delays(self.config.compute).total_cores(division(self.config.algorithm))

    @property
    def payload(self) -> dict[str, int]:
        """What an accounting must know of predictions: the bytes of one number, and how many there are in one."""
        dtype = getattr(self.config.model, "dtype", "float32")
        return {"value_bytes": np.dtype(dtype).itemsize, "outputs": getattr(self.task.public, "outputs", 1)}

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
            "clock": clock.ComputeClock(self.clock_mode, config.compute), "batch_compute": config.engine.batch_compute,
            "window": config.engine.window, "codec": config.codec, "remembered": self.info.remembered,
        }  # fmt: skip

    def engine(self, observer: Observer | None = None, **kwargs: Any) -> SimulatedEngine:
        arguments = self.engine_arguments() | {"privacy": kwargs["privacy"] if "privacy" in kwargs else self.mechanisms()}
        if observer is not None:
            arguments |= {"on_report": observer.on_report, "on_round": observer.on_round}
        return SimulatedEngine(self.specs, self.task.public, self.decided, **(arguments | kwargs))


class Recorder:
    """What a run has produced so far: the ledger and trace, in memory since the last checkpoint and in parts before it."""

    def __init__(self, federation: Federation, checkpoints: Checkpoints) -> None:
        self.federation = federation
        self.checkpoints = checkpoints
        self.unsaved: tuple[int, np.ndarray, dict[str, np.ndarray]] | None = None  # the rows of a cut while it is written, and its round

    def cut(self, engine: Engine, observer: Observer, cut: Cut) -> None:
        ledger, traces = engine.ledger.take(cut.round), engine.take_trace(cut.round)
        self.unsaved = cut.round, ledger, traces
        self.checkpoints.save(cut, observer.state_dict(), ledger, traces)
        self.unsaved = None

    def collect(self, engine: Engine) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """The whole ledger, sorted, and the traces, of finished rounds."""
        rest, last = engine.ledger.take(engine.finished_round), engine.take_trace(engine.finished_round)
        ledger, traces = self.checkpoints.ledger(), self.checkpoints.traces(list(engine.parties))
        if self.unsaved is not None and self.unsaved[0] > self.checkpoints.last_round:  # the cut failed, or Ctrl-C came in the middle of it
            ledger.append(self.unsaved[1])
            traces = {name: [*parts, self.unsaved[2][name]] for name, parts in traces.items()}
        return sort_ledger(np.concatenate([*ledger, rest])), {name: np.concatenate([*traces[name], rows]) for name, rows in last.items()}


def run(
    config: RunConfig,
    folder: Path,
    *,
    command: str,
    choices: dict[str, str],
    plain: dict[str, Any],
    info: AlgorithmInfo,
    quiet: bool = False,
    clear: Callable[[], None] | None = None,
    draw: Callable[[Path, dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Train, and write the run folder of design section 6; `summary.json` is its last file.

    Parameters
    ----------
    config, plain, choices : the configuration as dataclasses, as plain data, and the options chosen in each group.
    folder : the run folder; with `config.resume` and a checkpoint in it the run goes on from there.
    command : for the manifest.
    info : the algorithm's registry entry.
    quiet : no progress bar.
    clear : called once all that may be refused has been looked at, just before the first file is written: removes the run to replace.
    draw : called with the folder and the summary once the curve is written, to draw it.

    Returns
    -------
    The summary. Ctrl-C ends the run with status `interrupted`, everything up to the last finished round written; an error in a round
    ends it as `failed`, the same written, and is raised again.

    Raises
    ------
    VflbenchError, OSError : bad data, a broken rule of the federation, a disk that is full or not writable.
    """
    began = time.perf_counter()
    files.prepare(folder)
    with contextlib.ExitStack() as processes:
        host: Host | None = None
        if config.engine.name == "ray":
            from vflbench.runner.distributed import Host

            host = processes.enter_context(Host(config, info))
        return _run(
            config, folder, began, host, command=command, choices=choices, plain=plain, info=info, quiet=quiet, clear=clear, draw=draw
        )


def _run(
    config: RunConfig,
    folder: Path,
    began: float,
    host: Host | None,
    *,
    command: str,
    choices: dict[str, str],
    plain: dict[str, Any],
    info: AlgorithmInfo,
    quiet: bool,
    clear: Callable[[], None] | None,
    draw: Callable[[Path, dict[str, Any]], None] | None,
) -> dict[str, Any]:
    """`run`, where parties that have processes of their own have a `host` for them."""
    federation = host.federation if host else Federation(config, info)  # here and in the next line noise is calibrated, which may fail
    privacy = {} if host else federation.mechanisms()
    if clear is not None:
        clear()
    manifest = {
        "schema": files.SCHEMA, "config": plain, "config_hash": config_hash(plain), "choices": choices,
        **provenance.collect(command, torch.get_num_threads(), federation.device),
        "data": dataclasses.asdict(federation.task.source), "rounds": federation.rounds, "compute_clock": federation.clock_mode,
        "parties": federation.standing, "cores": federation.cores, "payload": federation.payload,  # for `vflbench reprice`
        **({"broker": host.broker.facts} if host and host.broker else {}),
    }  # fmt: skip
    checkpoints = Checkpoints(folder / "checkpoint")
    saved = checkpoints.load() if config.resume else None
    if saved is not None:
        _same_data(folder, manifest["data"])
    files.write_json(folder / "manifest.json", manifest)
    checkpoints.folder.mkdir(exist_ok=True)
    observer = Observer(federation.task, config, host.models if host else None)
    if saved is not None:
        observer.load_state_dict(saved[1])
    recorder = Recorder(federation, checkpoints)
    writer, watch = None, transcript.Watch(SERVER)
    if config.attack.name != "none":
        watch = ATTACKS[config.attack.name].watch(federation.task, config, federation.attacked)
        theta = (lambda name: cast(SimulatedEngine, engine).parties[name].state.model.theta) if watch.released else None
        resumed = saved[0].round if saved else None
        writer = TranscriptWriter(folder / "transcript", watch.party, watch.sent, theta, resumed, watch.received)
    metric = federation.task.metric

    engine: Engine
    with progress(federation.rounds, metric=metric.name, quiet=quiet) as bar:

        def on_round(round: int, engine: Engine) -> bool:
            stops = observer.on_round(round, engine)
            if writer is not None:  # before the round's cut
                assert isinstance(engine, SimulatedEngine)  # config.check refuses attacks elsewhere
                for name, rows in watch.questions.items():
                    answer = _answer(engine.parties[name], rows, stream(config.seed, f"attack/{name}/{round}"), engine.codec)
                    writer.add(transcript.Message(round, name, watch.party, transcript.ANSWER, (answer,)))
                writer.write(round)
            row = observer.rows[-1] if observer.rows and observer.rows[-1]["round"] == round else {}
            loss = observer.losses[-1] if observer.losses else row.get("train_loss")
            bar.update(round, metric=row.get(f"{files.splits(metric.name)[-1]}_{metric.name}"), loss=loss, bytes=engine.bytes_sent)
            return stops

        shared: dict[str, Any] = {
            "on_round": on_round, "checkpoint_every": config.checkpoint_every, "resume_from": saved[0] if saved else None,
            "on_cut": lambda cut: recorder.cut(engine, observer, cut),
        }  # fmt: skip
        if host:
            engine = host.engine(observer, **shared)
        else:
            engine = federation.engine(observer, privacy=privacy, on_read=writer.on_read if writer is not None else None, **shared)
        failure: Exception | None = None
        try:
            engine.run()
        except KeyboardInterrupt:
            observer.status, observer.reason = "interrupted", f"interrupted in round {engine.finished_round + 1}"
        except Exception as error:  # whatever it is, what was reached before it is written
            observer.status, observer.reason = "failed", f"after round {engine.finished_round}: {error}"
            failure = error

    try:
        with uninterrupted():  # a second Ctrl-C must not leave half a result
            summary = _write(federation, engine, observer, recorder, folder, time.perf_counter() - began)
            if draw is not None and observer.rows:
                draw(folder, summary)
            files.write_json(folder / "manifest.json", {**manifest, "ended": provenance.now()})
            files.write_json(folder / "summary.json", summary)
            if observer.status not in ("interrupted", "failed"):
                checkpoints.drop_parts()
    except Exception as error:
        raise (failure or error) from None  # a full disk fails twice: the first reason is the one to tell
    if failure is not None:
        raise failure
    return summary


def _same_data(folder: Path, data: dict[str, Any]) -> None:
    """Raise VflbenchError where the run in `folder`, which is to be continued, was begun on other data."""
    before = json.loads((folder / "manifest.json").read_text(encoding="utf-8")).get("data", {})
    now = json.loads(json.dumps(data))
    differing = [key for key in ("kind", "variant", "files") if before.get(key) != now[key]]
    if differing:
        was, is_now = (f"{d.get('kind')} data" + (f", variant {d['variant']}" if d.get("variant") else "") for d in (before, now))
        what = f"{was}; now there is {is_now}" if was != is_now else f"{was}, of which files have changed"
        raise VflbenchError(f"{folder}: the run was begun on {what}. Continue it with the same data_root (or VFLBENCH_DATA)")


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C back in the block (a few seconds of writing); in the main thread, where signals can be caught."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _write(
    federation: Federation, engine: Engine, observer: Observer, recorder: Recorder, folder: Path, wall_seconds: float
) -> dict[str, Any]:
    """Write curve, ledger, trace and model; return the summary."""
    config, metric = federation.config, federation.task.metric
    ledger, traces = recorder.collect(engine)
    names, tags = list(engine.parties), list(engine.ledger.tags)
    payload = Payload(tags, **federation.payload)
    live = federation.live  # its times are what they were; there is no virtual clock to replay
    in_time = live or federation.info.time_dependent
    costs = Costs(ledger, traces, federation.standing, config.network, config.accounting, payload, in_time)
    rows = costs.curve(observer.rows)
    columns = {("link" if key == "kind" else key): ledger[:, at] for key, at in COLUMN.items()}
    files.ledger_parquet(folder / "ledger.parquet", columns, names, tags, LINK_KINDS)
    party = np.repeat(np.arange(len(names)), [len(traces[name]) for name in names])
    events = np.concatenate([traces[name] for name in names])
    trace = {"party": party, **{key: events[:, at] for at, key in enumerate(("kind", "peer", "seq", "value"))}}
    files.trace_parquet(folder / "trace.parquet", trace, names)
    files.write_curve(folder / "curve.csv", rows, metric.name)
    _save_models(engine, folder)

    secrets = {name: engine.parties[name].privacy for name in federation.hubs}
    spent = {name: secret.spent() for name, secret in secrets.items() if secret is not None}
    extra: dict[str, Any] = {"codec": config.codec.name}
    if config.attack.name != "none":
        extra["attack"] = _attack(federation, folder)
    if observer.models is not None:
        extra["averaged_model"] = observer.models.summary()
    if isinstance(engine, RayEngine):
        extra |= {"engine": "ray", "start_seconds": engine.started_seconds, "cores": engine.cores}
        extra |= {"lost": engine.lost} if engine.lost else {}
        if config.broker.name == "nats":  # beside what the algorithm's own channels drop
            extra["dropped_by_broker"] = {
                tag: sum(party.dropped.get(tag, 0) for party in engine.order) for tag, _ in federation.info.published
            }
        used = costs.use(engine.cores, engine.boundary_clock, engine.finished_round, config.engine.threads or engine.cores)
    else:
        used = costs.use(federation.cores, engine.boundary_clock, engine.finished_round)
    extra |= used
    source = federation.task.source
    return files.summarise(
        status=observer.status, reason=observer.reason, algorithm=federation.info.name, dataset=config.dataset.name, source=source,
        seed=config.seed, metric=metric, rows=rows, rounds=engine.finished_round, epochs=rows[-1].get("epoch") if rows else None,
        **costs.summary(engine.finished_round, engine.boundary_clock), wall_seconds=wall_seconds,
        compute_clock=federation.clock_mode, timing="measured" if live else config.network.timing, accounting=config.accounting,
        device=federation.device,
        privacy=mechanisms.together(spent), extra={**federation.facts, **extra, **observer.extra},
    )  # fmt: skip


def _attack(federation: Federation, folder: Path) -> dict[str, Any]:
    """What the configured attack finds in the run's transcript."""
    task = federation.task
    assert not isinstance(task, GraphTask | ShardedTask)  # no algorithm on graphs declares an attack
    module, view = ATTACKS[federation.config.attack.name], transcript.read(folder / "transcript")
    found: dict[str, Any] = module.attack(view, task, federation.decided, federation.attacked)
    return found


def _answer(party: Party, inputs: np.ndarray, rng: np.random.Generator, codec: Codec | None) -> np.ndarray:
    """What would arrive if `party` published of `inputs` now, by its own mechanism, with noise of its own; counted by nobody."""
    model = party.state.model
    like = next(model.parameters())
    with torch.no_grad():
        rows = model(torch.as_tensor(inputs, dtype=like.dtype, device=like.device))
        if party.privacy is not None:
            generator = torch.Generator(device=like.device).manual_seed(int(rng.integers(2**62)))
            rows = party.privacy.noised(rows, generator)
    if codec is not None:
        rows = Encoder(codec, rng).encode(rows).value
    return np.asarray(rows.cpu())


def _save_models(engine: Engine, folder: Path) -> None:
    """The parties' final parameters: model/<party>.safetensors."""
    from safetensors.torch import save

    for party in engine.order:
        tensors = party.parameters()
        if tensors:
            (folder / "model").mkdir(exist_ok=True)
            data = save(tensors)
            files.atomic_write(folder / "model" / f"{party.name}.safetensors", data)


def dry_run(config: RunConfig, info: AlgorithmInfo) -> str:
    """Parties, shapes, and the messages and bytes of a round: one round is run in memory, measured and thrown away."""
    federation = Federation(config, info)
    engine = federation.engine(on_round=lambda round, _: True, eval_every=federation.rounds + 1)
    engine.run()
    lines = [
        f"{info.name} on {config.dataset.name} ({federation.task.source.kind} data), {federation.rounds} rounds, {config.network.name}",
        "",
        "parties",
    ]
    for name, spec in federation.specs.items():
        shapes = []
        if spec.data is not None:
            for item in dataclasses.fields(spec.data):
                value = getattr(spec.data, item.name)
                if isinstance(value, np.ndarray):
                    shapes.append(f"{item.name} {tuple(value.shape)} {value.dtype}")
        parameters = sum(p.numel() for _, v in engine.parties[name].state if isinstance(v, torch.nn.Module) for p in v.parameters())
        lines.append(
            f"  {name:12} {spec.role:8} {', '.join([*shapes, *([f'{parameters:,} parameters'] if parameters else [])]) or 'no data'}"
        )
    ledger = engine.ledger.take()
    tags, names = list(engine.ledger.tags), list(engine.parties)
    lines += ["", "messages of one round, measured on one that is thrown away (sampled sets differ from round to round)"]
    first = ledger[ledger[:, 0] <= 1]
    inside = first[:, COLUMN["kind"]] == LINK_KINDS.index(LOCAL)
    local, first = first[inside], first[~inside]
    groups: dict[tuple[str, str, str], list[float]] = {}
    for row in first:
        src, dst = (names[int(row[COLUMN[end]])].rsplit("_", 1)[0] for end in ("src", "dst"))
        entry = groups.setdefault((tags[int(row[COLUMN["tag"]])], src, dst), [0, 0])
        entry[0] += 1
        entry[1] += row[COLUMN["bytes"]]
    for (tag, src, dst), (count, nbytes) in groups.items():
        lines.append(f"  {tag:18} {src:>10} -> {dst:10} {int(count):6,} messages  {human_bytes(int(nbytes)):>10}")
    total = sum(entry[1] for entry in groups.values())
    lines.append(f"  {'all':18} {'':24} {len(first):6,} messages  {human_bytes(int(total)):>10}")
    if len(local):
        nbytes = int(local[:, COLUMN["bytes"]].sum())
        lines.append(f"  {'inside organisations, free':43} {len(local):6,} messages  {human_bytes(nbytes):>10}")
    seconds = f"one round takes {engine.boundary_clock:.4g} s of virtual time"
    lines.append(f"\n{federation.rounds} rounds: about {human_bytes(int(total * federation.rounds))}; {seconds}")
    return "\n".join(lines)
