"""Made tasks with a known answer, which `vflbench choose` must find.

    python scripts/known_answers.py --seeds 20      # a row for each task and seed, in docs/results/choosing/known.csv
    python scripts/known_answers.py --tasks slow --out known.csv

- slow: a message takes ten seconds. One exchange of many bytes (gram_once) wins over an exchange an epoch (vfl_sgd).
- thin: the same data, but a byte takes a second: few bytes in many messages win.
- private: epsilon is 0.15. Noise on every label, or on every row, hides 4,200 rows; noise on sums of their gradients
  does not: of three mechanisms dp_sgd survives.
- useless: the other party's columns are noise. No federation is needed.

Rows that are in the file are kept, so that what was stopped goes on.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parent.parent
COLUMNS = ("task", "seed", "expected", "answer", "right")
WIDE = [  # least squares with many columns: descent needs many epochs, rows are long
    *("dataset=ridge", "dataset.problem=learning", "dataset.samples=1000", "dataset.features=200"),
    *("dataset.noise=0.02", "target=0.06", "epochs=100", "cost=seconds", "algorithm=gram_once,vfl_sgd", "trials=2"),
]
STAR = [  # three classes
    *("dataset=star_schema", "dataset.task=classes", "dataset.rows=6000", "dataset.dimension_rows=100"),
    *("dataset.duplication=1", "dataset.noise=0.1", "algorithm=vfl_sgd"),
]
Found = tuple[str, str | None]  # the known answer, and that of `choose`


def choose(folder: Path, seed: int, *words: str) -> dict[str, Any]:
    """What `vflbench choose` answers."""
    from vflbench import cli

    place = folder / "choose"
    code = cli.command(["choose", *words, f"seed={seed}", f"out={place}"])
    if code not in (0, 2):
        raise SystemExit(f"vflbench choose ended with {code}")
    answer: dict[str, Any] = json.loads((place / "answer.json").read_text(encoding="utf-8"))
    return answer


def files(folder: Path, seed: int) -> list[str]:
    """Two tables of the same people: what predicts is at the labels' owner, the other's columns are noise."""
    import numpy as np
    import pandas as pd

    rng, ids = np.random.default_rng(seed), np.arange(400)
    own, others = (
        pd.DataFrame(rng.normal(size=(len(ids), 3)), columns=[f"{name}{n}" for n in range(3)]) for name in "ab"
    )
    label = (own.sum(axis=1) > 0).astype(int)
    own.assign(id=ids, label=label).to_csv(folder / "a.csv", index=False)
    others.assign(id=ids).to_csv(folder / "b.csv", index=False)
    return ["dataset=tabular_files", f"dataset.files=[{folder / 'a.csv'},{folder / 'b.csv'}]", "dataset.label=label"]


def slow(folder: Path, seed: int) -> Found:
    """Fewest messages win."""
    return "gram_once", choose(folder, seed, *WIDE, "network.latency_ms=10000", "network.bandwidth_mbps=1e6")["winner"]


def thin(folder: Path, seed: int) -> Found:
    """Fewest bytes win."""
    return "vfl_sgd", choose(folder, seed, *WIDE, "network.latency_ms=0", "network.bandwidth_mbps=8e-6")["winner"]


def private(folder: Path, seed: int) -> Found:
    """One mechanism survives."""
    found = choose(folder, seed, *STAR, "target=0.7", "epochs=20", "privacy.epsilon=0.15", "trials=2")
    survivors = [one["name"] for one in found["methods"] if one["reached"]]
    return "vfl_sgd · dp_sgd", " and ".join(survivors) if len(survivors) > 1 else found["winner"]


def useless(folder: Path, seed: int) -> Found:
    """Nobody needs the other party."""
    data = files(folder, seed)
    found = choose(folder, seed, *data, "target=0.85", "algorithm=send_once", "trials=1")
    return "not needed", found["verdict"]["kind"]


TASKS: dict[str, Callable[[Path, int], Found]] = {"slow": slow, "thin": thin, "private": private, "useless": useless}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="how many, from 0")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=[*TASKS])
    parser.add_argument("--out", type=Path, default=ROOT / "docs/results/choosing/known.csv")
    options = parser.parse_args(arguments)
    rows: list[dict[str, str]] = []
    if options.out.is_file():
        with options.out.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    known = {(row["task"], row["seed"]) for row in rows}
    for name in options.tasks:
        for seed in range(options.seeds):
            if (name, str(seed)) in known:
                continue
            with tempfile.TemporaryDirectory() as folder:
                expected, answer = TASKS[name](Path(folder), seed)
            values = (name, str(seed), expected, answer or "nobody", str(int(answer == expected)))
            rows.append(dict(zip(COLUMNS, values, strict=True)))
            _write(options.out, rows)
        right = [row["right"] for row in rows if row["task"] == name]
        print(f"{name}: {right.count('1')} of {len(right)}", flush=True)
    return int(any(row["right"] != "1" for row in rows))


def _write(path: Path, rows: list[dict[str, str]]) -> None:
    """The rows, by task and seed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = sorted(rows, key=lambda row: ([*TASKS].index(row["task"]), int(row["seed"])))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
