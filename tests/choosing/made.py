"""Runs and records made by hand, whose answer is known."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vflbench.choosing.record import Method, Record, Trial
from vflbench.results import folder as files
from vflbench.types import Metric

NETWORK = {
    "name": "us_uk", "client_server": {"latency_ms": 20, "bandwidth_gbps": 0.1},
    "client_client": {"latency_ms": 20, "bandwidth_gbps": 0.1}, "server_bandwidth_gbps": None, "timing": "causal",
    "latencies": 2, "links": {}, "ratio": 1.0,
}  # fmt: skip
FLOOR = {
    "ship_it": {"bytes": 5000, "seconds": 0.5, "form": "float32", "stored": 5000, "largest": 5000},
    "alone": {"metric": "accuracy", "value": 0.7, "validation": 0.71, "learner": "boosted trees"},
    "centralised": {"metric": "accuracy", "value": 0.95, "validation": 0.96, "learner": "boosted trees"},
}
Curve = Sequence[tuple[int, float, float]]  # bytes, seconds and validation value of each round
NO_PRIVACY = {"mechanism": "none"}


def run(
    folder: Path, algorithm: str, seed: int, curve: Curve, privacy: dict[str, Any] | None = None, **more: Any
) -> None:
    """A run's folder without ledger and trace: it cannot be re-priced."""
    folder.mkdir(parents=True)
    name, source = more.pop("dataset", "breast_cancer"), more.pop("source", "real")
    rows = [
        {
            **dict.fromkeys(files.curve_columns("accuracy")), "round": number, "virtual_seconds": seconds,
            "communication_seconds": seconds, "compute_seconds": 0.0, "bytes": sent, "messages": 1, "vectors": 1,
            "cost": float(sent), "val_accuracy": value, "test_accuracy": value - 0.01,
        }
        for number, (sent, seconds, value) in enumerate(curve, start=1)
    ]  # fmt: skip
    given = {
        "status": "completed", "algorithm": algorithm, "dataset": name, "seed": seed, "rounds": len(rows),
        "messages": 1, "vectors": 1, "cost": rows[-1]["cost"], "communication_seconds": rows[-1]["virtual_seconds"],
        "compute_seconds": 0.0, "virtual_seconds": rows[-1]["virtual_seconds"], "wall_seconds": 1.0,
        "compute_clock": "none", "timing": "causal", "accounting": "strict", "device": "cpu",
    } | more  # fmt: skip
    summary = files.summarise(
        source=None, metric=Metric("accuracy", "max"), rows=rows,
        bytes_by_tag={"x": rows[-1]["bytes"]}, bytes_by_link={"client_server": rows[-1]["bytes"]},
        privacy={**NO_PRIVACY, **(privacy or {})}, **given,
    )  # fmt: skip
    summary["data_source"] = source
    manifest = {
        "config": {
            "algorithm": {"name": algorithm}, "dataset": {"name": name}, "network": NETWORK, "seed": seed,
            "privacy": {"name": (privacy or NO_PRIVACY)["mechanism"]},
        },
        "config_hash": "0" * 16,
    }  # fmt: skip
    files.write_curve(folder / "curve.csv", rows, "accuracy")
    for name, content in (("manifest", manifest), ("summary", summary)):
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")


def question(**given: Any) -> dict[str, Any]:
    return {
        "words": ["dataset=breast_cancer", "target=0.9"], "dataset": "breast_cancer", "target": 0.9, "goal": "max",
        "metric": "accuracy", "cost": "bytes", "demand": None, "epsilon": None, "budget_seconds": 60.0, "trials": 2,
        "seed": 0, "seeds": [0, 1, 2],
    } | given  # fmt: skip


def method(
    folder: Path, algorithm: str, curves: Sequence[Curve], privacy: dict[str, Any] | None = None, **more: Any
) -> Method:
    """A method with a final run for each curve, and one trial."""
    mechanism = (privacy or NO_PRIVACY)["mechanism"]
    made = Method(algorithm, mechanism, [f"algorithm={algorithm}", "dataset=breast_cancer"], {})
    for seed, curve in enumerate(curves):
        place = f"finals/{algorithm}-{mechanism}/{seed}"
        run(folder / place, algorithm, seed, curve, privacy, **more)
        made.finals.append(place)
    sent, seconds, value = curves[0][-1]
    values = {"algorithm.learning_rate": 0.1, "algorithm.batch_size": 32}
    made.trials = [
        Trial(0, values, made.finals[0], "completed", value >= 0.9, value, float(sent), seconds, 1.0, 2.0, sent=7.0)
    ]
    made.best = 0
    return made


def record(methods: Sequence[Method], **given: Any) -> Record:
    found = Record(question(**given), "complete", list(methods), floor=json.loads(json.dumps(FLOOR)))
    found.trials_each = 1
    return found


def curves(costs: Sequence[tuple[int, float]], last: float = 0.93) -> list[Curve]:
    """Of each seed: two rounds, of which the second costs so many bytes and seconds and comes to `last`."""
    return [[(sent // 2, seconds / 2, 0.8), (sent, seconds, last)] for sent, seconds in costs]
