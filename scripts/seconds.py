"""Seconds of communication to targets that take communication (LEASGD): `python scripts/seconds.py FOLDER ...`.

Every FOLDER holds runs of methods whose workers have rows of their own (a sweep's folder), Local SGD's among them. A
target is a share of what Local SGD reaches with the same seed and as many workers (measured.py `beyond_local`): of its
lowest training loss, or of its fewest errors on validation rows. So it gets to no target, and sends nothing.

Settings (algorithm, workers, local steps) are averaged over their seeds, at the first evaluation that is at the target;
`end`: after the last, of runs that did not diverge. `unranked_seconds`: the same run without the messages that rank
workers, re-timed from its trace. A mean is `inf` where not every seed gets there. Spreads are sample standard
deviations. Prints CSV.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from vflbench.federation.ledger import COLUMN
from vflbench.papers import measured
from vflbench.results import reader, selection
from vflbench.runner.costs import clock, network_config
from vflbench.runner.finished import Trained
from vflbench.types import VflbenchError

KEYS = ("algorithm.name", "algorithm.workers", "algorithm.local_steps")
RANKING = ("loss", "roles")  # tags of LEASGD's messages that say who leads
TARGETS = {  # metric or train_loss -> shares
    "train_loss": (0.5,),
    "accuracy": (0.75, 0.6),
}
COLUMNS = ("goal", "seconds", "unranked_seconds", "megabytes", "vectors", "updates")


def unranked(run: reader.Run) -> list[float]:
    """Communication seconds at each evaluation, if nobody sent what ranks workers or waited for it."""
    own = run.curve["communication_seconds"].astype(float).tolist()
    if not set(RANKING) & set(run.summary["bytes"]["by_tag"]):
        return own
    done = Trained(run.folder)
    tags = [tag in RANKING for tag in done.tags]
    absent = np.array(tags)[done.program.rows[:, COLUMN["tag"]].astype(int)]
    network = network_config(run.manifest["config"]["network"])
    at = clock(done.program.without_computing(network, absent))
    return [at(round) for round in run.curve["round"].astype(int)]


def place(run: reader.Run, column: str, goal: float) -> int | None:
    """The first evaluation at which the training loss, or the metric on validation rows, is at the goal."""
    if column != measured.TRAIN_LOSS:
        return selection.reached(run, goal, f"val_{column}")
    there = run.curve[column] <= goal
    return int(there.to_numpy().argmax()) if there.any() else None


def sums(run: reader.Run, without: list[float], at: int) -> list[float]:
    """COLUMNS at an evaluation, but for the goal."""
    row = run.curve.iloc[at]
    return [row["communication_seconds"], without[at], row["bytes"] / 1e6, row["vectors"], row["iterations"]]


def main() -> int:
    if not sys.argv[1:]:
        print(__doc__, file=sys.stderr)
        return 1
    settings: dict[tuple[str, ...], list[reader.Run]] = defaultdict(list)
    local: dict[tuple[str, int], list[reader.Run]] = defaultdict(list)
    for folder in sys.argv[1:]:
        for run in reader.find(folder):
            if run.status in measured.COUNTED:
                key = tuple("" if value is None else str(value) for value in measured.setting(run, KEYS).values())
                settings[key].append(run)
                if key[0] == "local_sgd":
                    local[key[1], run.summary["seed"]].append(run)
    print(",".join([*KEYS, "target", "share", "seeds", "reached", *(f"{name},{name}_sd" for name in COLUMNS)]))
    for key, runs in sorted(settings.items(), key=lambda item: (int(item[0][1]), item[0])):
        times = [unranked(run) for run in runs]
        rows = [("end", 0.0), *((target, share) for target, shares in TARGETS.items() for share in shares)]
        for target, share in rows:
            found = []
            for run, without in zip(runs, times, strict=True):
                if target != "end":
                    alone = local.get((key[1], run.summary["seed"]))
                    if alone is None:
                        raise VflbenchError(f"{run.folder}: there is no run of local_sgd with its seed and workers")
                    goal = measured.beyond_local(alone, share, target == measured.TRAIN_LOSS)
                    at = place(run, target, goal)
                elif run.status == "diverged":
                    continue
                else:
                    goal, at = math.nan, len(run.curve) - 1
                found.append([goal, *([math.inf] * 5 if at is None else sums(run, without, at))])
            reached = sum(math.isfinite(one[1]) for one in found)
            columns = [
                measured.moments([value for value in values if value == value]) for values in zip(*found, strict=True)
            ]
            texts = ["" if math.isnan(value) else f"{value:.6g}" for both in columns for value in both]
            print(",".join([*key, target, f"{share:g}" if share else "", str(len(found)), str(reached), *texts]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
