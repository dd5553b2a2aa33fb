"""Who needs how many vectors to which loss (LEASGD's Fig. 2b): `python scripts/vectors.py FOLDER ...`.

Every FOLDER holds runs of methods with whole models (a sweep's folder). Settings are averaged over their seeds: the
mean worker's and the averaged model's test accuracy at the end, the training loss there, the vectors sent. Then, for
every setting of LEASGD and every seed: the vectors that D-PSGD sends until its training loss is LEASGD's last one (and
1.25 times that), against what LEASGD sends until then, interpolated between evaluations; a run that never gets there is
counted, with all its vectors as the least that it would need.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from vflbench.results import reader


def setting(run: reader.Run) -> tuple[str, int, int]:
    algorithm = run.manifest["config"]["algorithm"]
    return algorithm["name"], algorithm["workers"], algorithm.get("local_steps", 0)


def needed(run: reader.Run, loss: float) -> float:
    """Vectors up to the first time at which the training loss is `loss`; NaN where it never is."""
    losses, vectors = run.curve["train_loss"].to_numpy(float), run.curve["vectors"].to_numpy(float)
    below = np.flatnonzero(losses <= loss)
    if not len(below):
        return float("nan")
    at = below[0]
    if at == 0:
        return float(vectors[0])
    share = (losses[at - 1] - loss) / (losses[at - 1] - losses[at])
    return float(vectors[at - 1] + share * (vectors[at] - vectors[at - 1]))


def spread(values: list[float], times: float = 1.0) -> str:
    return f"{times * np.mean(values):.2f} +- {times * np.std(values, ddof=1) if len(values) > 1 else float('nan'):.2f}"


def main() -> int:
    if not sys.argv[1:]:
        print(__doc__, file=sys.stderr)
        return 1
    runs: dict[tuple[str, int, int], dict[int, reader.Run]] = defaultdict(dict)
    for folder in sys.argv[1:]:
        for run in reader.find(folder):
            if run.status == "completed":
                runs[setting(run)][run.manifest["config"]["seed"]] = run
    print("at the end: mean worker's test accuracy (%), averaged model's, training loss, vectors")
    for (name, workers, tau), own in sorted(runs.items(), key=str):
        ends = list(own.values())
        mean = spread([run.summary["metric"]["final"] for run in ends], 100)
        averaged = spread([run.summary["averaged_model"]["final"] for run in ends], 100)
        loss = f"{np.mean([run.curve['train_loss'].iloc[-1] for run in ends]):.4f}"
        vectors = f"{np.mean([run.summary['vectors'] for run in ends]):,.0f}"
        print(
            f"  {name:10} m={workers:<3} tau={tau or '-':<3} {mean:16} {averaged:16} {loss}  {vectors:>8}  "
            f"n={len(ends)}"
        )
    print("\nvectors that LEASGD saves against D-PSGD, % of D-PSGD's, to a training loss of factor x LEASGD's last")
    for (name, workers, tau), own in sorted(runs.items(), key=str):
        others = runs.get(("d_psgd", workers, 0), {})
        seeds = sorted(set(own) & set(others))
        if name != "leasgd" or not seeds:
            continue
        for factor in (1.0, 1.25):
            saved, never = [], 0
            for seed in seeds:
                loss = factor * own[seed].curve["train_loss"].iloc[-1]
                theirs = needed(others[seed], loss)
                never += np.isnan(theirs)
                theirs = float(others[seed].curve["vectors"].iloc[-1]) if np.isnan(theirs) else theirs
                saved.append(1 - needed(own[seed], loss) / theirs)
            said = f"  (D-PSGD never gets there in {never} of {len(seeds)}: at least)" if never else ""
            print(f"  m={workers:<3} tau={tau:<3} factor {factor:<5} {spread(saved, 100)}{said}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
