"""Choose hyper-parameters on validation data: `python scripts/search.py ALGORITHM DATASET [key=value ...]`.

Every method of a family gets the same budget: as many settings, the same seeds (100 and 101, which no reported result
uses), and the rounds given. A key of the grid, or one with several values (algorithm.lr=0.1,0.3,1.0), takes the place
of the grid's own; `seed=` that of the seeds. The score is the best validation metric of a run, averaged over the seeds;
test values are never read. Prints the scores, best first; what wins is written by hand into
conf/tuned/<algorithm>/<dataset>.yaml, scores in its comments.
"""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
SEEDS = (100, 101)


def score(overrides: list[str]) -> tuple[float, str]:
    """The best validation value of one run, and whether more is better; a run that diverges is the worst."""
    import vflbench
    from vflbench.plots import curves

    curves.draw_run = lambda folder, summary: None  # nobody looks at them
    with tempfile.TemporaryDirectory() as folder:
        run = vflbench.run([*overrides, f"hydra.run.dir={folder}/run"])
        metric = run.summary["metric"]
    if metric["selected_validation"] is None or run.summary["status"] == "diverged":
        return (float("-inf") if metric["goal"] == "max" else float("inf")), metric["goal"]
    return metric["selected_validation"], metric["goal"]


def main() -> int:
    if len(sys.argv) < 3 or "=" in sys.argv[1] + sys.argv[2]:
        print(__doc__, file=sys.stderr)
        return 1
    algorithm, dataset, *given = sys.argv[1:]
    from vflbench import registry

    grid = dict(registry.algorithms()[algorithm].search) if algorithm in registry.algorithms() else {}
    varied = [text for text in given if "," in text or text.partition("=")[0] in (*grid, "seed")]
    given = [text for text in given if text not in varied]
    grid |= {key: tuple(values.split(",")) for key, _, values in (text.partition("=") for text in varied)}
    seeds = grid.pop("seed", tuple(map(str, SEEDS)))
    settings = [
        list(values) for values in itertools.product(*([f"{key}={v}" for v in values] for key, values in grid.items()))
    ]
    jobs = [
        [f"algorithm={algorithm}", f"dataset={dataset}", *given, *setting, f"seed={seed}"]
        for setting in settings
        for seed in seeds
    ]
    with ProcessPoolExecutor(max_workers=os.cpu_count()) as pool:
        scores = list(pool.map(score, jobs))
    table = []
    for number, setting in enumerate(settings):
        own = [value for value, _ in scores[number * len(seeds) : (number + 1) * len(seeds)]]
        table.append((sum(own) / len(own), setting, own))
    for mean, setting, own in sorted(table, reverse=scores[0][1] == "max"):
        print(f"{mean:.4f}  {' '.join(setting):40} {' '.join(f'{value:.3f}' for value in own)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    sys.exit(main())
