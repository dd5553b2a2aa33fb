"""Made tasks with a known answer, which `vflbench choose` must find: `python scripts/known_answers.py [SEEDS] [TASK]`.

- slow: a message takes ten seconds. One exchange (gram_once) wins over one update an epoch (gd_join, rfl_sgd_v).
- thin: a byte takes a second. What sends fewest bytes wins, whatever its messages.
- private: all that predicts is at the party without labels, and epsilon is 0.05. Labels and embeddings drown in their
  noise; what is left is noise on gradients.
- useless: the other party's columns are noise. No federation is needed.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
STAR = [*("dataset=star_schema", "dataset.rows=400", "dataset.dimension_rows=20", "dataset.width=3"), "target=0.61"]
ROWS = 400


def choose(folder: Path, seed: int, *words: str) -> dict[str, Any]:
    """What `vflbench choose` answers."""
    from vflbench import cli

    place = folder / "choose"
    code = cli.command(["choose", *words, f"seed={seed}", f"out={place}"])
    if code not in (0, 2):
        raise SystemExit(f"vflbench choose ended with {code}")
    answer: dict[str, Any] = json.loads((place / "answer.json").read_text(encoding="utf-8"))
    return answer


def files(folder: Path, seed: int, owner_knows: bool) -> list[str]:
    """Two tables of the same people: the labels' owner's and another's; one of both has what predicts."""
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(seed)
    useful, noise = rng.normal(size=(ROWS, 3)), rng.normal(size=(ROWS, 3))
    label = (useful.sum(axis=1) > 0).astype(int)
    own, others = (useful, noise) if owner_knows else (noise, useful)
    ids = np.arange(ROWS)
    pd.DataFrame({"id": ids, **{f"a{n}": own[:, n] for n in range(3)}, "label": label}).to_csv(
        folder / "a.csv", index=False
    )
    pd.DataFrame({"id": ids, **{f"b{n}": others[:, n] for n in range(3)}}).to_csv(folder / "b.csv", index=False)
    return ["dataset=tabular_files", f"dataset.files=[{folder / 'a.csv'},{folder / 'b.csv'}]", "dataset.label=label"]


def slow(folder: Path, seed: int) -> bool:
    """One exchange wins."""
    network = ["cost=seconds", "network.latency_ms=10000", "network.bandwidth_mbps=1000000"]
    found = choose(folder, seed, *STAR, *network, "algorithm=gram_once,gd_join,rfl_sgd_v", "trials=2")
    return bool(found["winner"] == "gram_once")


def thin(folder: Path, seed: int) -> bool:
    """Fewest bytes win."""
    network = ["cost=seconds", "network.latency_ms=0", "network.bandwidth_mbps=0.000008"]
    found = choose(folder, seed, *STAR, *network, "algorithm=gram_once,gd_join,vfl_sgd", "trials=2")
    sent = {one["name"]: one["bytes"] for one in found["methods"] if one["reached"] and one["bytes"]}
    return bool(found["winner"] == min(sent, key=lambda name: sent[name]))


def private(folder: Path, seed: int) -> bool:
    """One mechanism survives."""
    data = files(folder, seed, owner_knows=False)
    asked = ["target=0.8", "privacy.epsilon=0.05", "algorithm=vfl", "trials=2", "epochs=40"]
    found = choose(folder, seed, *data, *asked)
    return bool(found["winner"] == "vfl · gaussian_gradient" and len(reached(found)) == 1)


def useless(folder: Path, seed: int) -> bool:
    """Nobody needs the other party."""
    found = choose(
        folder, seed, *files(folder, seed, owner_knows=True), "target=0.85", "algorithm=send_once", "trials=1"
    )
    return bool(found["verdict"]["kind"] == "not needed")


def reached(found: dict[str, Any]) -> list[str]:
    """The names of the methods that reached the target in some seed."""
    return [one["name"] for one in found["methods"] if one["reached"]]


TASKS: dict[str, Callable[[Path, int], bool]] = {"slow": slow, "thin": thin, "private": private, "useless": useless}


def main() -> int:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    names = sys.argv[2:] or list(TASKS)
    failed = 0
    for name in names:
        right = []
        for seed in range(seeds):
            with tempfile.TemporaryDirectory() as folder:
                right.append(TASKS[name](Path(folder), seed))
        print(f"{name}: {sum(right)} of {seeds}", flush=True)
        failed += not all(right)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    sys.exit(main())
