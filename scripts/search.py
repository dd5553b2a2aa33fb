"""Choose hyper-parameters on validation nodes: `python scripts/search.py ALGORITHM DATASET [key=value ...]`.

Every method gets the same budget: the same grid of learning rate x dropout, the same seeds (100 and 101, which no reported
result uses), and the rounds given. The score is the best validation metric of a run, averaged over the seeds; test values are never
read. Prints the scores, best first; what wins is written by hand into conf/tuned/<algorithm>/<dataset>.yaml, scores in its comments.
"""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
GRID = {"algorithm.lr": ("0.003", "0.01", "0.03"), "model.dropout": ("0.3", "0.5", "0.7")}
SEEDS = (100, 101)


def score(overrides: list[str]) -> float:
    """The best validation value of one run."""
    import vflbench

    with tempfile.TemporaryDirectory() as folder:
        run = vflbench.run([*overrides, f"hydra.run.dir={folder}/run"])
        value: float = run.summary["metric"]["selected_validation"]
    return value


def main() -> int:
    if len(sys.argv) < 3 or "=" in sys.argv[1] + sys.argv[2]:
        print(__doc__, file=sys.stderr)
        return 1
    algorithm, dataset, *given = sys.argv[1:]
    settings = [list(values) for values in itertools.product(*([f"{key}={v}" for v in values] for key, values in GRID.items()))]
    jobs = [[f"algorithm={algorithm}", f"dataset={dataset}", *given, *setting, f"seed={seed}"] for setting in settings for seed in SEEDS]
    with ProcessPoolExecutor(max_workers=os.cpu_count()) as pool:
        scores = list(pool.map(score, jobs))
    table = []
    for number, setting in enumerate(settings):
        own = scores[number * len(SEEDS) : (number + 1) * len(SEEDS)]
        table.append((sum(own) / len(own), setting, own))
    for mean, setting, own in sorted(table, reverse=True):
        print(f"{mean:.4f}  {' '.join(setting):40} {' '.join(f'{value:.3f}' for value in own)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    sys.exit(main())
