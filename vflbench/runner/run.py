"""One run: drive the engine of a federation, write the run folder."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from vflbench import compiler, registry
from vflbench.attacks import transcript
from vflbench.data.columns.inspection import in_words, leaks
from vflbench.exposure import disclosures, exposure, keys_of
from vflbench.federation.accounting import Payload
from vflbench.federation.codec import Encoder
from vflbench.federation.engine import Engine
from vflbench.federation.links import LINK_KINDS
from vflbench.federation.phases import Exchange, Tapes, exchange, one_by_one
from vflbench.federation.snapshot import Cut
from vflbench.privacy import keys, mechanisms
from vflbench.results import folder as files
from vflbench.results import parquet
from vflbench.results.experiment import SEMANTICS
from vflbench.results.identity import config_hash, hide
from vflbench.results.reader import Run
from vflbench.runner import assumed, inference, interrupts, provenance, task_baselines
from vflbench.runner.checkpoint import Checkpoints, Recorder, Saved
from vflbench.runner.costs import Around, Costs, link_code
from vflbench.runner.evaluate import Halt, Observer
from vflbench.runner.federation import Federation
from vflbench.runner.logs import Log
from vflbench.runner.progress import progress
from vflbench.runner.transcript import TranscriptWriter
from vflbench.seeding import forget, stream
from vflbench.types import ENDED_WELL, AlgorithmInfo, DataSource, FederationError, RunConfig, VflbenchError, own_rows

if TYPE_CHECKING:
    from vflbench.runner.distributed import Host

log = logging.getLogger(__name__)


def run(
    config: RunConfig,
    folder: Path,  # with `config.resume` and a checkpoint in it the run goes on from there
    *,
    command: str,  # for the manifest
    choices: dict[str, str],  # the options chosen in each group
    plain: dict[str, Any],  # the configuration as plain data, for the manifest
    identity: str,  # its hash
    hidden: Mapping[str, str],  # texts that come from the environment, and the names by which files have them
    info: AlgorithmInfo,
    quiet: bool = False,  # no progress bar
    clear: Callable[[], None] | None = None,  # removes the run to replace: called when nothing can be refused any more
    draw: Callable[[Path, dict[str, Any]], None] | None = None,  # draws the curve, of the folder and the summary
    halt: Halt | None = None,  # ends the run with status `budget`, for the reason that it gives
) -> dict[str, Any]:
    """Train, and write the run folder (docs/concepts/files.md); `summary.json`, its last file, is what is returned.

    Ctrl-C (SIGTERM too, where it is heeded) ends the run with status `interrupted`, everything up to the last finished
    round written; an error in a round ends it as `failed`, the same written, and is raised again.

    Raises VflbenchError, OSError: bad data, a broken rule of the federation, a disk that is full or not writable.
    """
    began = time.perf_counter()
    compiler.put_off()
    with interrupts.once(), contextlib.ExitStack() as processes, contextlib.ExitStack() as building:
        # Noise is calibrated by the host (ray) or by `mechanisms`, which may fail: no file is touched before.
        host = _host(config, info, processes)
        federation = host.federation if host else Federation(config, info)
        privacy = {} if host else federation.mechanisms()
        files.prepare(folder)
        if clear is not None:
            clear()
        manifest = {
            "schema": files.SCHEMA, "config": files.infinities(plain), "config_hash": identity, "choices": choices,
            "semantics": SEMANTICS, "plugins": registry.plugin_sources(plain),
            **provenance.collect(command, torch.get_num_threads(), federation.device),
            "data": hide(_about(federation.task.source), hidden),
            "rounds": federation.rounds, "compute_clock": federation.clock_mode,
            # for `vflbench reprice`
            "parties": federation.standing, "cores": federation.cores, "payload": federation.payload,
            "assumed": federation.assumed,
            **({"adapted": adapted} if (adapted := federation.facts.get("adapted")) else {}),
            **({"environment": config_hash(hidden)} if hidden else {}),  # runs that differ in it alone are two
            **({"broker": host.broker.facts} if host and host.broker else {}),
        }  # fmt: skip
        opened = time.perf_counter()
        checkpoints = Checkpoints(folder / "checkpoint", manifest["config_hash"])
        saved = _saved(federation, folder, checkpoints, manifest["data"])
        _tell(federation)
        # from here on there is a run: one that is interrupted says how far it came, once its engine can be asked
        if host is None:
            building.enter_context(interrupts.held_back())
        files.write_manifest(folder, manifest)
        if saved is None:
            checkpoints.begin()
        observer = _observer(federation, host, saved)
        observer.halt = halt
        watch = _watch(federation)
        writer = _writer(folder, watch, lambda name: engine.parties[name].state.model.theta, saved)
        recorder = Recorder(checkpoints, writer)
        logs = Log(config, folder, federation.task.metric.name, manifest["config"])
        processes.callback(logs.finish, {"status": "failed"})  # where it has not been finished

        engine: Engine
        with progress(federation.rounds, metric=federation.task.metric.name, quiet=quiet) as bar:

            def on_round(round: int, engine: Engine) -> bool:
                stops = observer.on_round(round, engine)
                logs.row(observer.rows, round)
                if watch is not None and writer is not None:  # before the round's cut
                    _write_transcript(writer, watch, engine, round, config.seed)
                bar.update(round, **_news(observer, round), bytes=engine.bytes_sent)
                return stops

            def on_cut(cut: Cut) -> None:
                with interrupts.held_back():
                    recorder.cut(engine, observer, cut)

            shared: dict[str, Any] = {
                "on_round": on_round, "checkpoint_every": config.checkpoint_every,
                "resume_from": saved[0] if saved else None,
                "on_cut": on_cut,
            }  # fmt: skip
            if host:
                engine = host.engine(observer, **shared)
            else:
                engine = federation.engine(
                    observer, privacy=privacy, on_read=writer.on_read if writer is not None else None, **shared
                )
            failure = _drive(engine, observer, building)
        wall_seconds = time.perf_counter() - began
        floor = _baselines(federation) if observer.status in ENDED_WELL else {}

        try:
            with interrupts.held_back():
                summary: dict[str, Any] = hide(
                    _write(federation, engine, observer, recorder, folder, wall_seconds, floor), hidden
                )
                if draw is not None and observer.rows:
                    draw(folder, summary)
                ended = provenance.later(manifest["started"], time.perf_counter() - opened)
                files.write_manifest(folder, {**manifest, "ended": ended})
                files.write_summary(folder, summary)
                if observer.status not in ("interrupted", "failed"):
                    _forget(checkpoints, engine)
            logs.finish(summary)  # after the run's own files: whatever happens to it, the run is there
        except Exception as error:
            raise (failure or error) from None  # a full disk fails twice: the first reason is the one to tell
        if failure is not None:
            raise failure
        return summary


def _host(config: RunConfig, info: AlgorithmInfo, processes: contextlib.ExitStack) -> Host | None:
    """The host of the parties' processes, which end with `processes`. None where the parties are simulated."""
    if config.engine.name != "ray":
        return None
    from vflbench.runner.distributed import Host

    return processes.enter_context(Host(config, info))


def _saved(federation: Federation, folder: Path, checkpoints: Checkpoints, data: dict[str, Any]) -> Saved | None:
    """The checkpoint that the run goes on from. None where it starts anew.

    Raises VflbenchError: the run cannot go on, or not on `data`.
    """
    saved = checkpoints.load() if federation.config.resume else None
    if saved is None:
        return None
    _same_data(folder, data)
    if federation.secure and federation.live and federation.info.time_dependent:
        raise VflbenchError(
            f"{folder}: {federation.info.name} with noise of the parties' own cannot be continued. What was sent after "
            "the checkpoint would be sent again in another order, and epsilon would count it once: start anew in "
            "another folder"
        )
    return saved


def _about(source: DataSource) -> dict[str, Any]:
    """Where the data came from, as the manifest has it; `tables` only of a user's own files, `lacks` if anything."""
    about = dataclasses.asdict(source)
    return {key: value for key, value in about.items() if value or key not in ("tables", "lacks")}


def of_files(federation: Federation) -> list[str]:
    """What was made of a user's own files, in lines."""
    return in_words(federation.task.source.tables, own_rows(federation.config.dataset), federation.info.own_rows)


def _tell(federation: Federation) -> None:
    """Tell the user what was made of files of their own, and where every party could compute the others' noise."""
    for line in of_files(federation):
        log.info("%s", line)
    if federation.config.privacy.name != "none" and not federation.secure:
        log.info(
            "Noise comes from the run's seed, which all parties know: for simulation only (privacy.secure_rng=true "
            "keeps it secret)."
        )


def _observer(federation: Federation, host: Host | None, saved: Saved | None) -> Observer:
    """The run's observer, as it was at the checkpoint `saved` where there is one."""
    observer = Observer(federation.task, federation.config, host.models if host else None)
    if saved is not None:
        observer.load_state_dict(saved[1])
    return observer


def _watch(federation: Federation) -> transcript.Watch | None:
    """What the configured attack needs of the run. None where there is no attack."""
    config = federation.config
    if config.attack.name == "none":
        return None
    watch: transcript.Watch = registry.load_option("attack", config.attack.name).watch(
        federation.task, config, federation.attacked
    )
    return watch


def _writer(
    folder: Path, watch: transcript.Watch | None, theta: Callable[[str], Any], saved: Saved | None
) -> TranscriptWriter | None:
    """The writer of what the attack needs. None where there is no attack."""
    if watch is None:
        return None
    released = theta if watch.released else None
    return TranscriptWriter(
        folder / "transcript", watch.party, watch.sent, released, saved[2] if saved else (), watch.received, watch.also
    )


def _write_transcript(writer: TranscriptWriter, watch: transcript.Watch, engine: Engine, round: int, seed: int) -> None:
    """Write what the adversary read in `round`, and the parties' answers to its questions after it."""
    for name, rows in watch.questions.items():
        answer = _answer(engine.parties[name], rows, stream(seed, f"attack/{name}/{round}"), engine.codec)
        writer.add(transcript.Message(round, name, watch.party, transcript.ANSWER, (answer,)))
    writer.write(round)


def _news(observer: Observer, round: int) -> dict[str, float | None]:
    """The metric and the training loss after `round`, for the progress bar."""
    row = observer.rows[-1] if observer.rows and observer.rows[-1]["round"] == round else {}
    metric = observer.task.metric.name
    return {
        "metric": row.get(f"{files.splits(metric)[-1]}_{metric}"),
        "loss": observer.losses[-1] if observer.losses else row.get("train_loss"),
    }


def _drive(engine: Engine, observer: Observer, building: contextlib.ExitStack) -> Exception | None:
    """Run the engine to its end; how the run ended is in the observer's status. The error that ended it, or None.

    `building` holds signals back until the engine is built.
    """
    try:
        building.close()
        engine.run()
        observer.conclude()
        return FederationError(str(observer.reason)) if observer.status == "failed" else None
    except KeyboardInterrupt:
        observer.status, observer.reason = "interrupted", f"interrupted in round {engine.finished_round + 1}"
        return None
    except Exception as error:  # whatever it is, what was reached before it is written
        observer.status, observer.reason = "failed", f"after round {engine.finished_round}: {error}"
        return error


def _baselines(federation: Federation) -> dict[str, Any]:
    """Floor and ceiling; where they fail the run is kept all the same, and its summary says why there are none."""
    try:
        return federation.baselines()
    except KeyboardInterrupt:
        log.warning("interrupted: the run is kept, without what its floor and ceiling are")
    except Exception as error:
        log.warning("the run is kept, without its floor and ceiling: %s: %s", type(error).__name__, error)
    return {}


def _forget(checkpoints: Checkpoints, engine: Engine) -> None:
    """Remove what only a run that goes on would need."""
    checkpoints.drop()
    for party in engine.order:
        forget(party.kept)


def _same_data(folder: Path, data: dict[str, Any]) -> None:
    """Raise VflbenchError where the run in `folder`, which is to be continued, was begun on other data."""
    before = Run(folder).manifest.get("data", {})
    now = json.loads(json.dumps(data))
    differing = [key for key in ("kind", "variant", "files") if before.get(key) != now[key]]
    if differing:
        was, is_now = (
            f"{d.get('kind')} data" + (f", variant {d['variant']}" if d.get("variant") else "") for d in (before, now)
        )
        what = f"{was}; now there is {is_now}" if was != is_now else f"{was}, of which files have changed"
        raise VflbenchError(
            f"{folder}: the run was begun on {what}. Continue it with the same data_root (or VFLBENCH_DATA)"
        )


def _write(
    federation: Federation,
    engine: Engine,
    observer: Observer,
    recorder: Recorder,
    folder: Path,
    wall_seconds: float,
    floor: dict[str, Any],
) -> dict[str, Any]:
    """Write curve, ledger, trace and model; return the summary."""
    config, metric = federation.config, federation.task.metric
    ledger, traces = recorder.collect(engine)
    around = _around(federation, engine, observer)
    tags = list(engine.ledger.tags)
    payload = Payload(tags, **federation.payload)
    live = federation.live  # its times are what they were; there is no virtual clock to replay
    in_time = live or federation.info.time_dependent
    costs = Costs(
        ledger, traces, federation.standing, config.network, config.accounting, payload, in_time, around=around
    )
    rows = costs.curve(observer.rows)
    others = costs.others()
    messages, events = ({phase: getattr(one, part) for phase, one in others.items()} for part in ("rows", "traces"))
    parquet.ledger_parquet(folder / "ledger.parquet", ledger.T, list(engine.parties), tags, LINK_KINDS, messages)
    parquet.trace_parquet(folder / "trace.parquet", traces, events)
    files.write_curve(folder / "curve.csv", rows, metric.name)
    _save_models(engine, folder)

    spent = mechanisms.by_organisation(engine.order)
    if shares := mechanisms.clipped(spent):
        log.info("rows that were clipped (computed without noise, so not private; no result has it): %s", shares)
    exposes, keys = federation.exposes, keys_of(config)
    shown = disclosures(federation.info, exposes, keys, vars(config.privacy))
    discloses = [[one.source, one.observer, one.words] for one in shown]
    model = vars(config.model) if config.model else None
    learnt = exposure(federation.info, exposes, keys, vars(config.privacy), config.codec.name, model)
    extra: dict[str, Any] = {"codec": config.codec.name, "discloses": discloses, "exposure": learnt}
    if config.privacy.name != "none":
        extra["secure_rng"] = federation.secure
    if found := leaks(federation.task.source.tables):
        extra["leaks"] = found
    if config.attack.name != "none":
        assert recorder.writer is not None
        extra["attack"] = _attack(federation, recorder.writer)
    if observer.models is not None:
        extra["averaged_model"] = observer.models.summary()
    threads = engine.cores and (config.engine.threads or engine.cores)
    extra |= {
        "assumes": assumed.assumes(federation.info, federation.task),
        "predictions": inference.asked(config, federation.task),
        **costs.life(engine.finished_round, engine.boundary_clock),
        **engine.facts,
        **costs.use(engine.cores or federation.cores, engine.boundary_clock, engine.finished_round, threads),
    }
    spent_on = costs.summary(engine.finished_round, engine.boundary_clock)
    if floor:
        shipped = floor["ship_it"] if live else task_baselines.on_network(floor["ship_it"], config.network)
        floor |= {
            "ship_it": shipped,
            "times_ship_it": task_baselines.times(files.charged(spent_on["bytes_by_link"]), shipped),
        }
    source, private = federation.task.source, _private(federation, observer, spent, rows)
    return files.summarise(
        status=observer.status, reason=observer.reason, algorithm=federation.info.name, dataset=config.dataset.name,
        source=source,
        seed=config.seed, metric=metric, rows=rows, rounds=engine.finished_round,
        epochs=rows[-1].get("epoch") if rows else None,
        **spent_on, wall_seconds=wall_seconds,
        compute_clock=federation.clock_mode, timing="measured" if live else config.network.timing,
        accounting=config.accounting,
        device=federation.device,
        privacy=private, extra={**federation.facts, **extra, **floor, **observer.extra},
    )  # fmt: skip


def _private(
    federation: Federation, observer: Observer, spent: Mapping[str, Mapping[str, Any]], rows: list[dict[str, Any]]
) -> dict[str, Any] | None:
    """The summary's `privacy`, of what each organisation has `spent`. None without privacy."""
    private = mechanisms.together(spent)
    if private is None:
        return None
    release = private.pop("one_prediction", None)
    metric = federation.task.metric
    if served := inference.both_ways(federation.config.privacy, release, rows, metric, observer.otherwise):
        private["serving"] = served
    if zero := mechanisms.zero_in_words(private):
        log.warning("%s.", zero)
    told = [keys.large_delta(federation.decided.privacy, federation.task.units), zero]  # the first is logged already
    hollow = {"delta_too_large": True} if told[0] else {}  # it is no guarantee
    return private | hollow | ({"notes": notes} if (notes := [*filter(None, told)]) else {})


def _around(federation: Federation, engine: Engine, observer: Observer) -> Around:
    """The exchanges before the run's own program, and that of its last evaluation."""
    task, names = federation.task, list(engine.parties)
    standing = federation.standing

    def made(tapes: Tapes, round: int = 0) -> Exchange:
        return exchange(tapes, names, lambda a, b: link_code(standing, a, b), engine.ledger.tag, round)

    scored = observer.rows[-1]["round"] if observer.rows else 0
    roles = {name: party.role for name, party in standing.items()}
    served = {party.name: party.served for party in engine.order}
    connected, once = federation.topology.connected, federation.info.one_shot
    tapes = inference.tapes(scored, served, observer.shares, roles, connected, once) if scored else None
    known = None
    if tapes is not None:
        with contextlib.suppress(ValueError):  # a process that has died took its part along
            known = made(tapes, scored)
    return Around(
        made(one_by_one(assumed.aligned(task, federation.attacked))),
        assumed.exchanges(federation.assumed, made),
        known,
        inference.rows(task),
    )


def _attack(federation: Federation, writer: TranscriptWriter) -> dict[str, Any]:
    """What the configured attack finds in the run's transcript. Raises VflbenchError where that is damaged."""
    writer.check()
    module, view = (
        registry.load_option("attack", federation.config.attack.name),
        transcript.read(writer.folder, writer.files),
    )
    began = time.perf_counter()
    found: dict[str, Any] = module.attack(view, federation.task, federation.decided, federation.attacked)
    return found | {"seconds": time.perf_counter() - began}


def _answer(party: Any, inputs: np.ndarray, rng: np.random.Generator, codec: Any) -> np.ndarray:
    """What would arrive if `party` published `inputs` now, with noise of its own; nobody counts it."""
    model = party.state.model
    like = next(model.parameters())
    with torch.no_grad():
        rows = model(torch.as_tensor(inputs, dtype=like.dtype, device=like.device))
        if party.privacy is not None:
            generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
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
            (folder / "model").mkdir(mode=0o700, exist_ok=True)
            files.atomic_write(folder / "model" / f"{party.name}.safetensors", save(tensors))
