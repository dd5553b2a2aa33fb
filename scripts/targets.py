"""What a target costs in privacy (LEASGD's Table 1): `python scripts/targets.py FOLDER ... [--target 0.9 ...]`.

Every FOLDER holds runs with an epsilon (a sweep's folder). Settings (algorithm and number of workers) are averaged over
their seeds: accuracy and epsilon after the last step, and steps and epsilon at the first evaluation at which the
validation metric is at the target, over the runs that get there. The noise is that of the whole run. Epsilon is the
run's own, and beside it that of the moments accountant, by which the paper reports its own. Spreads are sample standard
deviations. Prints CSV.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from vflbench.privacy import accountant
from vflbench.results import reader
from vflbench.types import VflbenchError


def classical(run: reader.Run, steps: int) -> float:
    """The moments accountant's epsilon after so many steps of a run; it covers models, and no noisy losses.

    Raises
    ------
    VflbenchError : losses have noise of their own, whose part of epsilon is not known here.
    """
    spent = run.summary["privacy"]
    if "ranking_epsilon" in spent:
        raise VflbenchError(f"{run.folder}: ranking=noisy spends epsilon on losses, too: use ranking=running")
    return accountant.classical_epsilon([(spent["noise_multiplier"], spent["sample_rate"], steps)], spent["delta"])


def moments(values: list[float]) -> str:
    return f"{np.mean(values):.4f},{np.std(values, ddof=1) if len(values) > 1 else float('nan'):.4f}" if values else ","


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", metavar="FOLDER")
    parser.add_argument("--target", nargs="+", type=float, default=[0.88, 0.9, 0.91, 0.92, 0.93])
    given = parser.parse_args()
    settings: dict[tuple[str, int], list[reader.Run]] = defaultdict(list)
    for folder in given.folders:
        for run in reader.find(folder):
            if run.status == "completed" and run.summary["privacy"]["epsilon"]:
                algorithm = run.manifest["config"]["algorithm"]
                settings[algorithm["name"], algorithm["workers"]].append(run)
    names = ("steps", "epsilon", "classical_epsilon", "test")
    spreads = ",".join(f"{name},{name}_sd" for name in names)
    print(f"algorithm.name,algorithm.workers,at,seeds,{spreads}")
    for (name, workers), runs in sorted(settings.items(), key=lambda item: (item[0][1], item[0][0])):
        metric = runs[0].summary["metric"]["name"]
        for target in [None, *given.target]:
            found = []
            for run in runs:
                rows = run.curve if target is None else run.curve[run.curve[f"val_{metric}"] >= target]
                if len(rows):
                    row = rows.iloc[-1 if target is None else 0]
                    steps = int(row["iterations"])
                    found.append((steps, row["epsilon"], classical(run, steps), row[f"test_{metric}"]))
            columns = [moments([float(one[place]) for one in found]) for place in range(len(names))]
            print(f"{name},{workers},{target or 'end'},{len(found)},{','.join(columns)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
