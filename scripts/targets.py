"""What a target costs in privacy (LEASGD's Table 1): `python scripts/targets.py FOLDER ... [--target 0.9 ...]`.

Every FOLDER holds runs with an epsilon (a sweep's folder). Settings (algorithm and number of workers) are averaged over
their seeds: accuracy and epsilon after the last step, and steps and epsilon at the first evaluation at which the
validation metric is at the target, over the runs that get there. The noise is that of the whole run. Spreads are sample
standard deviations. Prints CSV.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from vflbench.results import reader


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
    print("algorithm,workers,at,seeds,steps_mean,steps_sd,epsilon_mean,epsilon_sd,classical_epsilon,test_mean,test_sd")
    for (name, workers), runs in sorted(settings.items(), key=lambda item: (item[0][1], item[0][0])):
        metric = runs[0].summary["metric"]["name"]
        for target in [None, *given.target]:
            rows = [run.curve if target is None else run.curve[run.curve[f"val_{metric}"] >= target] for run in runs]
            found = [own.iloc[-1 if target is None else 0] for own in rows if len(own)]
            columns = [
                moments([float(row[key]) for row in found]) for key in ("iterations", "epsilon", f"test_{metric}")
            ]
            classical = f"{runs[0].summary['privacy']['classical_epsilon']:.4f}" if target is None else ""
            print(f"{name},{workers},{target or 'end'},{len(found)},{columns[0]},{columns[1]},{classical},{columns[2]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
