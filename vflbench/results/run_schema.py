"""What `manifest.json` and `summary.json` of a run folder hold: their keys, types and allowed values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, get_args

from vflbench.types import Status

SCHEMA = 1  # version of every file written here; a reader refuses any other
UNCHARGED_LINK = "local"  # inside one organisation or at the server: in the ledger, but in no total
PHASES = ("align", "setup", "train", "predict")  # of a model's life: federation/phases.py

_NUMBER = (int, float)
_NUMBER_OR_NULL = (*_NUMBER, type(None))
_TEXT_OR_NULL = (str, type(None))
_METRIC: dict[str, Any] = {
    "name": _TEXT_OR_NULL,
    "goal": _TEXT_OR_NULL,
    "final": _NUMBER_OR_NULL,
    "selected": _NUMBER_OR_NULL,
    "selected_round": (int, type(None)),
    "selected_validation": _NUMBER_OR_NULL,
}
_BYTES: dict[str, Any] = {"total": int, "by_tag": dict, "by_link": dict}
PRIVACY: dict[str, Any] = {
    "mechanism": str,
    "epsilon": (*_NUMBER, *_TEXT_OR_NULL),
    "delta": _NUMBER_OR_NULL,
    "unit": _TEXT_OR_NULL,
    "neighbouring": _TEXT_OR_NULL,
    "covers": _TEXT_OR_NULL,
}
# Keys of a summary's privacy.serving, which only some runs have.
_SERVING: dict[str, Any] = {"chosen": str, "round": int, "clean": _NUMBER, "noisy": _NUMBER}
# The keys of a summary, in this order.
SUMMARY: dict[str, Any] = {
    "schema": int,
    "status": str,
    "reason": _TEXT_OR_NULL,
    "algorithm": str,
    "dataset": str,
    "data_source": _TEXT_OR_NULL,
    "data_variant": _TEXT_OR_NULL,
    "seed": int,
    "metric": _METRIC,
    "rounds": int,
    "epochs": _NUMBER_OR_NULL,
    "bytes": _BYTES,
    "messages": int,
    "vectors": int,
    "cost": _NUMBER,
    "communication_seconds": _NUMBER_OR_NULL,
    "idle_seconds": _NUMBER_OR_NULL,
    "compute_seconds": _NUMBER,
    "virtual_seconds": _NUMBER,
    "wall_seconds": _NUMBER,
    "compute_clock": str,
    "timing": str,
    "accounting": str,
    "privacy": PRIVACY,
    "device": str,
}
_ALLOWED: dict[str, tuple[Any, ...]] = {
    "schema": (SCHEMA,),
    "status": get_args(Status),
    "data_source": ("real", "partial", "synthetic", None),
    "metric.goal": ("max", "min", None),
    "privacy.neighbouring": ("add_remove", "replace_one", None),
    "privacy.covers": ("model", "transcript", None),
    "metric_of": ("server", "mean worker"),
}
# Keys of a summary's attack, of those that say how much it found; older runs have `success_rate`.
_ATTACK: dict[str, Any] = {
    "name": str,
    **dict.fromkeys(("success", "success_rate", "floor"), _NUMBER_OR_NULL),
    "interval": (list, type(None)),
}
_PHASE: dict[str, Any] = {"bytes": int, "messages": int, "cost": _NUMBER, "seconds": _NUMBER_OR_NULL}
# Keys that only some runs have.
_SUMMARY_OPTIONAL: dict[str, Any] = {
    "data_lacks": str,
    "phases": dict,
    "predictions": int,
    "assumes": list,
    "before": {"bytes": int, "messages": int},
    "attack": dict,
    "metric_of": str,
    "averaged_model": dict,
    "utilisation": _NUMBER_OR_NULL,
    "waiting_seconds": _NUMBER,
    "engine": str,
    "cores": _NUMBER,
    "ship_it": dict,
    "times_ship_it": _NUMBER_OR_NULL,
    "alone": dict,
    "centralised": dict,
    "others": dict,
    "brings": dict,
    "leaks": list,
    "exposure": {"algorithm": str, "note": str, "entries": list},
}
_MANIFEST: dict[str, Any] = {
    "config": {"algorithm": {"name": str}, "dataset": {"name": str}, "network": dict},
    "config_hash": str,
}
_MANIFEST_OPTIONAL: dict[str, Any] = {
    "semantics": int,
    "plugins": dict,
    "choices": dict,
    "layers": dict,
    "command": _TEXT_OR_NULL,
    "versions": dict,
    "git": (dict, type(None)),
    "platform": str,
    "hardware": dict,
    "data": dict,
    "rounds": int,
    "compute_clock": str,
    "parties": dict,
    "cores": _NUMBER,
    "repriced_from": dict,
    "payload": {"value_bytes": int, "outputs": int},
    "assumed": list,
}


def infinities(value: Any) -> Any:
    """`value`, in which an infinite number is the text `inf`: JSON has none. A budget may be infinite."""
    if isinstance(value, Mapping):
        return {key: infinities(item) for key, item in value.items()}
    return "inf" if isinstance(value, float) and value == math.inf else value


def charged(bytes_by_link: Mapping[str, int]) -> int:
    """The bytes of all links except those that cost nothing."""
    return sum(count for link, count in bytes_by_link.items() if link != UNCHARGED_LINK)


def validate_manifest(manifest: Mapping[str, Any]) -> list[str]:
    """Where `manifest` breaks the run folder's contract, one line each."""
    problems = _mistyped(manifest, _MANIFEST, optional=_MANIFEST_OPTIONAL)
    listed = manifest.get("data", {}).get("files") or [] if not problems else []
    if not isinstance(listed, list) or not all(
        isinstance(f, list) and len(f) == 2 and all(isinstance(w, str) for w in f) for f in listed
    ):
        problems.append("data.files: no list of names with their hashes")
    return problems


def validate_summary(summary: Mapping[str, Any]) -> list[str]:
    """Where `summary` breaks the run folder's contract, one line each."""
    summary = {key: infinities(value) if key == "privacy" else value for key, value in summary.items()}
    if problems := _mistyped(summary, SUMMARY, optional=_SUMMARY_OPTIONAL):
        return problems
    total, by_tag, by_link = (summary["bytes"][key] for key in _BYTES)
    for key, counts in (("by_tag", by_tag), ("by_link", by_link)):
        problems += _mistyped(counts, dict.fromkeys(counts, int), f"bytes.{key}.")
    if problems:
        return problems
    if sum(by_tag.values()) != total:
        problems.append(f"bytes.by_tag sums to {sum(by_tag.values())}, not to bytes.total={total}")
    if (found := charged(by_link)) != total:
        problems.append(f"bytes.by_link sums to {found} without {UNCHARGED_LINK}, not to bytes.total={total}")
    if (summary["communication_seconds"] is None) == (summary["idle_seconds"] is None):
        problems.append("communication_seconds, idle_seconds: exactly one must be null")
    problems += _mistyped(summary.get("attack") or {}, {}, "attack.", optional=_ATTACK)
    problems += _mistyped(summary["privacy"], {}, "privacy.", optional={"serving": _SERVING})
    for name in PHASES if "phases" in summary else ():
        one = summary["phases"].get(name)
        if isinstance(one, dict):
            problems += _mistyped(one, _PHASE | ({"rows": int} if name == "predict" else {}), f"phases.{name}.")
        elif one is not None or name != "predict":
            problems.append(f"phases.{name}: {one!r} is no object")
    if summary["status"] in ("failed", "skipped") and not summary["reason"]:
        problems.append(f"reason: missing for status {summary['status']}")
    if None in (summary["data_source"], summary["metric"]["name"]) and summary["status"] not in (
        "failed",
        "skipped",
        "interrupted",
    ):
        problems.append(f"data_source, metric.name: null with status {summary['status']}")
    return problems


def _mistyped(
    values: Mapping[str, Any], types: Mapping[str, Any], prefix: str = "", optional: Mapping[str, Any] | None = None
) -> list[str]:
    """Keys that are missing, and values that are of the wrong type or not allowed."""
    problems = []
    for key, kind in {**types, **(optional or {})}.items():
        name = prefix + key
        if key not in values:
            problems += [f"{name}: missing"] if key in types else []
            continue
        value = values[key]
        if isinstance(kind, dict):
            problems += (
                _mistyped(value, kind, f"{name}.") if isinstance(value, dict) else [f"{name}: {value!r} is no object"]
            )
        elif (
            isinstance(value, bool)
            or not isinstance(value, kind)
            or (isinstance(value, float) and not math.isfinite(value))
        ):
            problems.append(f"{name}: {value!r} has the wrong type")
        elif isinstance(value, int) and abs(value) >= 2**63:
            problems.append(f"{name}: is too large for an integer of 64 bits")
        elif name == "privacy.epsilon" and isinstance(value, str) and value != "inf":
            problems.append(f"{name}: {value!r} is no number")
        elif name == "privacy.epsilon" and not isinstance(value, str | None) and value < 0:
            problems.append(f"{name}: {value!r} is below 0")
        elif name in _ALLOWED and value not in _ALLOWED[name]:
            problems.append(f"{name}: {value!r} is none of {_ALLOWED[name]}")
    return problems
