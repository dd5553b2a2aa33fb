"""One run: drive the engine of a federation, write the run folder."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from vflbench import compiler, registry
from vflbench.data.columns.inspection import in_words
from vflbench.federation.engine import Engine
from vflbench.results import folder as files
from vflbench.results import run_schema
from vflbench.results.experiment import SEMANTICS
from vflbench.results.identity import config_hash, hide
from vflbench.results.reader import Run
from vflbench.runner import interrupts, outcome, provenance
from vflbench.runner.checkpoint import Checkpoints, Saved
from vflbench.runner.evaluate import Halt, Observer
from vflbench.runner.federation import Federation
from vflbench.runner.logs import Log
from vflbench.runner.progress import progress
from vflbench.runner.rounds import Rounds
from vflbench.seeding import forget
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
    layers: Mapping[str, Any] = MappingProxyType({}),  # key -> where its value comes from, if it is no default
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
        manifest = _manifest(federation, host, command, choices, layers, plain, identity, hidden)
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
        logs = Log(config, folder, federation.task.metric.name, manifest["config"])
        processes.callback(logs.finish, {"status": "failed"})  # where it has not been finished
        with progress(federation.rounds, metric=federation.task.metric.name, quiet=quiet) as bar:
            rounds = Rounds(federation, folder, observer, checkpoints, saved, logs, bar)
            rounds.engine = _engine(federation, host, rounds, privacy, saved)
            failure = _drive(rounds.engine, observer, building)
        try:
            summary = _finish(federation, rounds, folder, manifest, (began, opened), hidden, draw)
        except Exception as error:
            raise (failure or error) from None  # a full disk fails twice: the first reason is the one to tell
        if failure is not None:
            raise failure
        return summary


def _manifest(
    federation: Federation,
    host: Host | None,
    command: str,
    choices: dict[str, str],
    layers: Mapping[str, Any],
    plain: dict[str, Any],
    identity: str,
    hidden: Mapping[str, str],
) -> dict[str, Any]:
    """What the manifest says at the start; the arguments are those of `run`."""
    adapted = federation.facts.get("adapted", {})
    return {
        "schema": run_schema.SCHEMA,
        "config": run_schema.infinities(plain),
        "config_hash": identity,
        "choices": choices,
        "layers": {**layers, **{key: {"layer": "adapted", "from": "the data"} for key in adapted}},
        "semantics": SEMANTICS,
        "plugins": registry.plugin_sources(plain),
        **provenance.collect(command, torch.get_num_threads(), federation.device),
        "data": hide(_about(federation.task.source), hidden),
        "rounds": federation.rounds,
        "compute_clock": federation.clock_mode,
        # for `vflbench reprice`
        "parties": federation.party_infos,
        "cores": federation.cores,
        "payload": federation.payload,
        "assumed": federation.assumed,
        **({"adapted": adapted} if adapted else {}),
        **({"environment": config_hash(hidden)} if hidden else {}),  # runs that differ in it alone are two
        **({"broker": host.broker.facts} if host and host.broker else {}),
    }


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


def _engine(
    federation: Federation, host: Host | None, rounds: Rounds, privacy: Mapping[str, Any], saved: Saved | None
) -> Engine:
    """The engine that drives the parties, from the checkpoint `saved` where there is one."""
    told: dict[str, Any] = {
        "on_round": rounds.on_round,
        "on_cut": rounds.on_cut,
        "checkpoint_every": federation.config.checkpoint_every,
        "resume_from": saved[0] if saved else None,
    }
    if host:
        return host.engine(rounds.observer, **told)
    on_read = rounds.writer.on_read if rounds.writer is not None else None
    return federation.engine(rounds.observer, privacy=privacy, on_read=on_read, **told)


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


def _finish(
    federation: Federation,
    rounds: Rounds,
    folder: Path,
    manifest: dict[str, Any],
    began: tuple[float, float],
    hidden: Mapping[str, str],
    draw: Callable[[Path, dict[str, Any]], None] | None,
) -> dict[str, Any]:
    """Write what the run leaves, the summary last; `began`: when `run` was called, and when the manifest was made."""
    wall_seconds = time.perf_counter() - began[0]
    observer = rounds.observer
    floor = _baselines(federation) if observer.status in ENDED_WELL else {}
    with interrupts.held_back():
        summary: dict[str, Any] = hide(outcome.write(federation, rounds, folder, wall_seconds, floor), hidden)
        if draw is not None and observer.rows:
            draw(folder, summary)
        ended = provenance.later(manifest["started"], time.perf_counter() - began[1])
        files.write_manifest(folder, {**manifest, "ended": ended})
        files.write_summary(folder, summary)
        if observer.status not in ("interrupted", "failed"):
            _forget(rounds.recorder.checkpoints, rounds.engine)
    rounds.logs.finish(summary)  # after the run's own files: whatever happens to it, the run is there
    return summary


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
