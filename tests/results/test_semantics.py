"""Witnesses of what runs mean: where one changes, SEMANTICS is to be raised, so that old and new runs are not averaged.

After SEMANTICS was raised, `python -m tests.results.test_semantics` writes the new witnesses beside the old ones.
"""

import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import vflbench
from tests.options import card_of
from vflbench import registry
from vflbench.results.experiment import SEMANTICS

WITNESSES = Path(__file__).with_name("semantics.json")  # version -> name -> witness
SMALL = ["rounds=2", "eval_every=2", "floor=none", "plot=none", "seed=3"]
RUNS = {
    "glasu": ["algorithm=glasu", "dataset=digits_graph"],
    "hetero_lr": ["algorithm=hetero_lr", "dataset=breast_cancer", "dataset.problem=learning"],
    "leasgd": ["algorithm=leasgd", "dataset=digits", "privacy=none"],
    "mtcd": ["algorithm=mtcd", "dataset=digits"],
    "rfl_sgd_v": ["algorithm=rfl_sgd_v", "dataset=star_schema", "accounting=tablepuppet"],
    "vfl": ["algorithm=vfl", "dataset=digits", "accounting=everything"],
}
TASKS = {
    "digits": ("digits", "aligned", {}),
    "digits, rows divided": ("digits", "sharded", {}),
    "own classes": ("tabular_files", "aligned", {"label": "y"}),
    "own amounts": ("tabular_files", "aligned", {"label": "x", "task": "regression"}),
}


def own_table(folder: Path) -> str:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.permutation(200) / 7, "z": rng.normal(size=200), "y": rng.random(200) < 0.1})
    frame.to_csv(folder / "own.csv", index=False)
    return str(folder / "own.csv")


def of_task(name: str, folder: Path) -> str:
    """Which rows are where: a hash of labels and of the order of features in every split, equal on every machine."""
    dataset, layout, keys = TASKS[name]
    keys = {**keys, "files": [own_table(folder)]} if dataset == "tabular_files" else keys
    module = registry.load_dataset(dataset)
    task = module.load(card_of(module).Config(**keys), layout, 3 if layout == "sharded" else 2, 3, None)
    content = hashlib.sha256()
    for part in _arrays(task):
        order = np.argsort(np.argsort(part.reshape(len(part), -1)[:, 0], kind="stable"), kind="stable")
        content.update(order.astype("<i8").tobytes())
    return content.hexdigest()[:16]


def _arrays(value: Any) -> list[np.ndarray]:
    """Features and labels of a task, split by split."""
    if hasattr(value, "labels"):
        return _arrays(
            [value.features, value.labels, *(vars(value).get(f"held_out_{k}") for k in ("features", "labels"))]
        )
    if hasattr(value, "shards"):
        return _arrays([value.shards, value.held_out])
    if value is None:
        return []
    if isinstance(value, dict):
        return [array for key in sorted(value) for array in _arrays(value[key])]
    if isinstance(value, list | tuple):
        return [array for inner in value for array in _arrays(inner)]
    return [np.asarray(value)] if np.size(value) else []


def of_run(name: str, folder: Path) -> dict[str, Any]:
    """What a short run sends, by tag and by phase."""
    summary = vflbench.run([*RUNS[name], *SMALL, f"hydra.run.dir={folder / name}"]).summary
    phases = {phase: found and found["bytes"] for phase, found in summary["phases"].items()}
    return {"bytes": summary["bytes"]["by_tag"], "phases": phases, "cost": round(summary["cost"], 3)}


def witness(name: str, folder: Path) -> Any:
    return of_run(name, folder) if name in RUNS else of_task(name, folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*RUNS, *TASKS])
def test_what_runs_mean_changes_with_the_version_alone(name: str, tmp_path: Path) -> None:
    known = json.loads(WITNESSES.read_text())[str(SEMANTICS)]
    advice = "splits, bytes or accounting have changed: raise SEMANTICS in vflbench/results/experiment.py"
    assert witness(name, tmp_path) == known[name], advice


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        made = {name: witness(name, Path(place)) for name in [*RUNS, *TASKS]}
    before = json.loads(WITNESSES.read_text()) if WITNESSES.exists() else {}
    assert before.get(str(SEMANTICS), made) == made, "raise SEMANTICS first"
    WITNESSES.write_text(json.dumps({**before, str(SEMANTICS): made}, indent=1) + "\n")
