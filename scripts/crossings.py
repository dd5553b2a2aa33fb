"""Which setting is the cheapest at which cost ratio: `python scripts/crossings.py FOLDER ... [--gap 1e-6]`.

Every FOLDER holds runs (a sweep's folder). A run's cost to the gap is r x bytes client-server + bytes client-client up
to its first evaluation at or below it, so that one run serves every r: from 0.01 to 1,000. Settings (runs alike but for
seed and network) are averaged over their seeds; one of which a seed does not get there is left out, and named. The
bytes that find SVFL's step size (tag smoothness) are counted, as all are.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from vflbench.results import identity, reader


def bytes_to(run: reader.Run, gap: float) -> tuple[float, float] | None:
    """(client-server, client-client) bytes up to the first evaluation at or below `gap`."""
    reached = run.curve[run.curve["train_suboptimality"] <= gap]
    if not len(reached):
        return None
    ledger = run.ledger[run.ledger["round"] <= reached["round"].iloc[0]]
    sums = ledger.groupby("link", observed=False)["bytes"].sum()
    return float(sums.get("client_server", 0)), float(sums.get("client_client", 0))


def settings(runs: list[reader.Run]) -> dict[str, list[reader.Run]]:
    """Runs that differ in nothing but the seed and the network's prices, one per seed, by a name: what sets them apart
    from the others."""
    configs = []
    for run in runs:
        keys = identity.flat(identity.identifying(run.manifest["config"]))
        configs.append({key: value for key, value in keys.items() if key != "seed" and not key.startswith("network.")})
    found: dict[str, dict[int, reader.Run]] = defaultdict(dict)
    for run, config in zip(runs, configs, strict=True):
        peers = [other for other in configs if other["algorithm.name"] == config["algorithm.name"]]
        apart = [key for key in config if any(peer.get(key) != config[key] for peer in peers)]
        name = [config["algorithm.name"], config["dataset.name"], config["topology.name"]]
        name += [
            f"{key.removeprefix('algorithm.')}={config[key]}"
            for key in apart
            if key not in ("topology.name", "dataset.name")
        ]
        found[" ".join(name)].setdefault(run.manifest["config"]["seed"], run)
    return {name: list(own.values()) for name, own in found.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--gap", type=float, default=1e-6)
    options = parser.parse_args()
    ended = ("completed", "target_reached", "budget", "diverged")
    runs = [run for folder in options.folders for run in reader.find(folder) if run.status in ended]
    costs = {name: [bytes_to(run, options.gap) for run in own] for name, own in settings(runs).items()}
    reached = {}
    print(f"MB to a gap of {options.gap:g}: client-server, client-client (mean and standard deviation over seeds)")
    for name, found in costs.items():
        values = np.array([pair for pair in found if pair is not None]) / 1e6
        if len(values) < len(found):
            print(f"  {name:60} not reached in {len(found) - len(values)} of {len(found)} runs")
            continue
        reached[name] = values.mean(axis=0)
        (server, between), spread = (
            values.mean(axis=0),
            values.std(axis=0, ddof=1) if len(values) > 1 else (np.nan, np.nan),
        )
        print(f"  {name:60} {server:9.2f} +- {spread[0]:.2f}  {between:9.2f} +- {spread[1]:.2f}  n={len(values)}")
    if not reached:
        return 1
    names, table = list(reached), np.array(list(reached.values()))
    ratios = np.geomspace(0.01, 1000, 5001)
    cheapest = (ratios[:, None] * table[:, 0] + table[:, 1]).argmin(axis=1)
    print("\ncheapest, by r = cost of a byte client-server over one client-client")
    edges = [0, *(np.flatnonzero(np.diff(cheapest)) + 1), len(ratios)]
    for low, high in itertools.pairwise(edges):
        print(f"  r = {ratios[low]:8.3g} to {ratios[high - 1]:8.3g}   {names[cheapest[low]]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
