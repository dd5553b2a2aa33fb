"""What a run leaves: its curve, ledger, trace and models, and the summary."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vflbench import registry
from vflbench.attacks import transcript
from vflbench.data.columns.inspection import leaks
from vflbench.exposure import disclosures, exposure, keys_of
from vflbench.federation.accounting import Payload
from vflbench.federation.engine import Engine
from vflbench.federation.links import LINK_KINDS
from vflbench.federation.phases import Exchange, Tapes, exchange, one_by_one
from vflbench.privacy import keys, mechanisms
from vflbench.results import folder as files
from vflbench.results import parquet, run_schema
from vflbench.runner import assumed, inference, task_baselines
from vflbench.runner.costs import Around, Costs, link_code
from vflbench.runner.evaluate import Observer
from vflbench.runner.federation import Federation
from vflbench.runner.rounds import Rounds
from vflbench.runner.transcript_writer import TranscriptWriter

log = logging.getLogger(__name__)


def write(
    federation: Federation, rounds: Rounds, folder: Path, wall_seconds: float, floor: dict[str, Any]
) -> dict[str, Any]:
    """Write curve, ledger, trace and model; return the summary.

    Parameters
    ----------
    floor : floor and ceiling of the task; empty where they are not known.
    """
    config, metric = federation.config, federation.task.metric
    engine, observer = rounds.engine, rounds.observer
    live, costs = federation.live, _costs(federation, rounds)
    rows, others = costs.curve(observer.rows), costs.others()
    messages, events = ({phase: getattr(one, part) for phase, one in others.items()} for part in ("rows", "traces"))
    parquet.ledger_parquet(
        folder / "ledger.parquet", costs.ledger.T, list(engine.parties), costs.payload.tags, LINK_KINDS, messages
    )
    parquet.trace_parquet(folder / "trace.parquet", costs.traces, events)
    files.write_curve(folder / "curve.csv", rows, metric.name)
    _save_models(engine, folder)

    spent = mechanisms.by_organisation(engine.order)
    if shares := mechanisms.clipped(spent):
        log.info("rows that were clipped (computed without noise, so not private; no result has it): %s", shares)
    spent_on = costs.summary(engine.finished_round, engine.boundary_clock)
    if floor:
        shipped = floor["ship_it"] if live else task_baselines.on_network(floor["ship_it"], config.network)
        times = task_baselines.times(run_schema.charged(spent_on["bytes_by_link"]), shipped)
        floor |= {"ship_it": shipped, "times_ship_it": times}
    extra = _disclosed(federation) | _measured(federation, rounds, costs)
    return files.summarise(
        status=observer.status,
        reason=observer.reason,
        algorithm=federation.info.name,
        dataset=config.dataset.name,
        source=federation.task.source,
        seed=config.seed,
        metric=metric,
        rows=rows,
        rounds=engine.finished_round,
        epochs=rows[-1].get("epoch") if rows else None,
        **spent_on,
        wall_seconds=wall_seconds,
        compute_clock=federation.clock_mode,
        timing="measured" if live else config.network.timing,
        accounting=config.accounting,
        device=federation.device,
        privacy=_private(federation, observer, spent, rows),
        extra={**federation.facts, **extra, **floor, **observer.extra},
    )


def _costs(federation: Federation, rounds: Rounds) -> Costs:
    """What the run has cost."""
    config = federation.config
    ledger, traces = rounds.recorder.collect(rounds.engine)
    around = _around(federation, rounds.engine, rounds.observer)  # it adds tags of its own
    return Costs(
        ledger,
        traces,
        federation.party_infos,
        config.network,
        config.accounting,
        Payload(list(rounds.engine.ledger.tags), **federation.payload),
        federation.live or federation.info.time_dependent,  # in real time there is no virtual clock to replay
        around=around,
    )


def _disclosed(federation: Federation) -> dict[str, Any]:
    """What the summary says of who learns what."""
    config, exposes, keys = federation.config, federation.exposes, keys_of(federation.config)
    shown = disclosures(federation.info, exposes, keys, vars(config.privacy))
    model = vars(config.model) if config.model else None
    learnt = exposure(federation.info, exposes, keys, vars(config.privacy), config.codec.name, model)
    found: dict[str, Any] = {"codec": config.codec.name}
    found |= {"discloses": [[one.source, one.observer, one.words] for one in shown], "exposure": learnt}
    return found | ({"secure_rng": federation.secure} if config.privacy.name != "none" else {})


def _measured(federation: Federation, rounds: Rounds, costs: Costs) -> dict[str, Any]:
    """What the summary says beyond scores, costs and privacy: leaks, the attack, waiting times, use of cores."""
    config, engine, observer = federation.config, rounds.engine, rounds.observer
    found: dict[str, Any] = {}
    if leaking := leaks(federation.task.source.tables):
        found["leaks"] = leaking
    if config.attack.name != "none":
        assert rounds.writer is not None
        found["attack"] = _attack(federation, rounds.writer)
    if observer.models is not None:
        found["averaged_model"] = observer.models.summary()
    threads = engine.cores and (config.engine.threads or engine.cores)
    return found | {
        "assumes": assumed.assumes(federation.info, federation.task),
        "predictions": inference.asked(config, federation.task),
        **costs.life(engine.finished_round, engine.boundary_clock),
        **engine.facts,
        **costs.use(engine.cores or federation.cores, engine.boundary_clock, engine.finished_round, threads),
    }


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
    infos = federation.party_infos

    def made(tapes: Tapes, round: int = 0) -> Exchange:
        return exchange(tapes, names, lambda a, b: link_code(infos, a, b), engine.ledger.tag, round)

    scored = observer.rows[-1]["round"] if observer.rows else 0
    roles = {name: party.role for name, party in infos.items()}
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


def _save_models(engine: Engine, folder: Path) -> None:
    """The parties' final parameters: model/<party>.safetensors."""
    from safetensors.torch import save

    for party in engine.order:
        tensors = party.parameters()
        if tensors:
            (folder / "model").mkdir(mode=0o700, exist_ok=True)
            files.atomic_write(folder / "model" / f"{party.name}.safetensors", save(tensors))
