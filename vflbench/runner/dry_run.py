"""What a run would send: one round is run in memory, measured and thrown away."""

from collections.abc import Iterator
from dataclasses import asdict, fields
from typing import Any

import numpy as np
import torch

from vflbench.federation.ledger import COLUMN
from vflbench.federation.links import LINK_KINDS, LOCAL
from vflbench.privacy import mechanisms
from vflbench.results.network import network_label
from vflbench.results.texts import human_bytes
from vflbench.runner import task_baselines
from vflbench.runner.federation import Federation
from vflbench.runner.run import of_files
from vflbench.types import AlgorithmInfo, RunConfig


def dry_run(config: RunConfig, info: AlgorithmInfo) -> str:
    """Parties, shapes, and the messages and bytes of a round: one round is run in memory, measured and thrown away."""
    federation = Federation(config, info)
    privacy = federation.mechanisms()
    engine = federation.engine(on_round=lambda round, _: True, eval_every=federation.rounds + 1, privacy=privacy)
    engine.run()
    source = federation.task.source
    adapted = federation.facts.get("adapted", {})
    data = f"{source.kind} data" + (f": {source.lacks}" if source.lacks else "")
    lines = [
        f"{info.name} on {config.dataset.name} ({data}), {federation.rounds} rounds, "
        f"{network_label(asdict(config.network))}",
        *of_files(federation),
        *(f"adapted to the data: {key}={one['used']} ({one['default']})" for key, one in adapted.items()),
        "",
        "parties",
    ]
    lines += _parties(federation, engine)
    ledger = engine.ledger.take()
    tags, names = list(engine.ledger.tags), list(engine.parties)
    lines += [
        "",
        "messages of one round, measured on one that is thrown away (sampled sets differ from round to round)",
    ]
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
    shipped = task_baselines.on_network(task_baselines.ship_it(federation.task), config.network)
    sending = 1 if info.one_shot else federation.rounds
    lines.append(f"\n{federation.rounds} rounds: about {human_bytes(int(total * sending))}; {seconds}")
    lines += mechanisms.noise_in_words(privacy.values())
    if shipped["bytes"]:
        once = f"{human_bytes(shipped['bytes'])} ({shipped['form']}), {shipped['seconds']:.4g} s"
        lines.append(f"the data themselves, sent once (ship it): {once}")
    return "\n".join(lines)


def _parties(federation: Federation, engine: Any) -> Iterator[str]:
    """A line for each party: its role, the shapes of its data, and its parameters."""
    for name, spec in federation.specs.items():
        given = {} if spec.data is None else {item.name: getattr(spec.data, item.name) for item in fields(spec.data)}
        shapes = [f"{key} {one.shape} {one.dtype}" for key, one in given.items() if isinstance(one, np.ndarray)]
        models = [value for _, value in engine.parties[name].state if isinstance(value, torch.nn.Module)]
        parameters = sum(p.numel() for model in models for p in model.parameters())
        held = [*shapes, *([f"{parameters:,} parameters"] if parameters else [])]
        yield f"  {name:12} {spec.role:8} {', '.join(held) or 'no data'}"
