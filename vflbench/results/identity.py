"""The hash of a run's configuration identifies it: equal hash, equal experiment."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from vflbench.results.folder import plain
from vflbench.results.network import by_values
from vflbench.results.run_schema import infinities

# Keys that say how a run is carried out, not what it computes. Where the data are does not count either: the manifest
# has their hashes.
EXCLUDED = frozenset({"resume", "device", "overwrite", "dry_run", "plot", "floor", "data_root", "hydra", "predictions"})
EXCLUDED |= {"objective", "logger"}
# Keys that there are no more: (group, its options) -> what they always are now. They count as if they were there, so
# that runs from before are still the same experiments.
RETIRED: dict[tuple[str, tuple[str, ...]], dict[str, Any]] = {
    ("algorithm", ("gd_join", "gram_once", "rfl_admm", "rfl_admm_v", "rfl_sgd", "rfl_sgd_v")): {"key_hash": "sha256"},
    ("algorithm", ("rfl_admm", "rfl_admm_v", "vfl_admm")): {"z_solver": "newton"},
    ("algorithm", ("pubsub_vfl",)): {"embedding_capacity": 5, "gradient_capacity": 5, "worker_range": [2, 50]},
    (
        "dataset",
        ("amsterdam", "citeseer", "cora", "digits_graph", "graph_files", "pubmed", "reddit", "suzhou", "venice"),
    ): {"normalize_features": False},
    ("dataset", ("reddit",)): {"mean_degree": 50.0},
    ("dataset", ("synthetic",)): {"separation": 1.0, "flipped": 0.01},
    ("dataset", ("yelp",)): {"memory_gb": 2.0},
}


def identifying(config: Mapping[str, Any]) -> dict[str, Any]:
    """The top-level entries of a composed configuration that decide what a run computes.

    A network is named by its values: the same links are the same experiment, whatever option they were made from.
    """
    found = {key: value for key, value in config.items() if key not in EXCLUDED and not key.startswith("hydra.")}
    for (group, names), keys in RETIRED.items():
        if isinstance(option := found.get(group), Mapping) and option.get("name") in names:
            found[group] = {**keys, **option}
    if isinstance(dataset := found.get("dataset"), Mapping) and dataset.get("order") == "file":
        found["dataset"] = {key: value for key, value in dataset.items() if key != "order"}  # as before there was a key
    if isinstance(network := found.get("network"), Mapping) and "name" in network:
        network = {key: _as_floats(value) if key != "latencies" else value for key, value in network.items()}
        if network.get("header_bytes") == 70.0:
            del network["header_bytes"]  # as before there was a key
        found["network"] = {**network, "name": by_values(network)}
    return found


def _as_floats(value: Any) -> Any:
    """The value with all of its numbers as floats: 136 ms are 136.0 ms."""
    if isinstance(value, Mapping):
        return {key: _as_floats(item) for key, item in value.items()}
    return float(value) if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53 else value


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Every key of a configuration by its dotted name."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return found


def hide(value: Any, texts: Mapping[str, str]) -> Any:
    """`value`, in which each of `texts`, which come from the environment, is replaced by its name."""
    if isinstance(value, str):
        for text, name in texts.items():
            value = value.replace(text, name)
        return value
    if isinstance(value, Mapping):
        return {key: hide(item, texts) for key, item in value.items()}
    return [hide(item, texts) for item in value] if isinstance(value, list | tuple) else value


def config_hash(config: Mapping[str, Any]) -> str:
    """First 16 hex digits of the SHA-256 of the configuration's canonical JSON; the order of keys does not matter."""
    text = json.dumps(plain(infinities(identifying(config))), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
