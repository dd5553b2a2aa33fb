"""The authors' TablePuppet as an oracle: `python scripts/oracle.py CLONE [--epochs 10] [--rates ...] [--rhos ...]`.

CLONE is your folder with a clone of github.com/JerryLead/TablePuppet (commit 716b310 or later); nothing is written in
it. Both train on the same tables, the 100,000-rating sample of MovieLens-1M, with the same grid of learning rates (and
rho). Each takes the setting with the least validation error at the last epoch; the table has its test error. The table
is printed, and with --out written to a new file: docs/results/tablepuppet/oracle.csv was made so.

Theirs runs as its README says, a process a setting: `run/admm.py` (their TP-Join-ADMM) and `run/sgd.py` (VFL-SGD). It
scores one file of ratings, so that it gets the validation ratings as its test file, and the test ratings at the end
only. What it imports (torch, pandas, scikit-learn, PyYAML, opacus; ray in its later commits) is this Python's. Three
modules are stand-ins in a temporary folder:

- wandb: writes what is logged (errors and seconds of every epoch, at full precision) to a file, and sends nothing.
- loguru, torcheval: theirs for printing and for accuracies. The one prints, the other is not used in regression.

Its ray asks for a running cluster with GPUs. It gets one with a GPU by name only (RAY_OVERRIDE_RESOURCES), and computes
on the CPU.

Seconds are those of training. Theirs are its own sum over epochs, without the join and without scoring. Ours are the
run's whole time: the join, the epochs and one scoring.

Ours runs twice, with the same model and with our defaults. The same model: relu on every table's output, an intercept
in every table, labels that are not centred, float64. Their loss of SGD has no factor 1/2: the same rate is twice the
step there. Their initial weights have no seed: the stand-in for loguru, which all their processes import, gives one.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vflbench.cards.data.relational import movielens as movielens_card

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parent.parent
if TYPE_CHECKING:
    import pandas as pd

    from vflbench.data.tasks import RelationalTask

LOG = "log.jsonl"
NEEDED = [f"{folder}/{name}.py" for folder in ("run", "client", "server") for name in ("admm", "sgd")]
NEEDED += ["dataset/movielens.py", "model/model.py"]
THEIR_NAMES = {"ratings": "ratings", "movies": "movies_genres_split", "users": "users"}
OTHER_TABLES = {"movieid": "movies", "userid": "users"}  # a key of a rating -> the table that has it, too
DATA = ["dataset=movielens", "dataset.source=real", "dataset.variant=1m_sample"]
# Our names of two methods, and the settings that theirs has, too.
METHODS = {
    "rfl_admm_v": ["algorithm.batch_size=1024", "algorithm.local_epochs=10", "algorithm.proximal=false"],
    "vfl_sgd": ["algorithm.batch_size=10240"],
}
# A model -> our words for it.
THEIRS = ["model.relu_output=true", "model.intercept=tables", "model.dtype=float64", "algorithm.center_labels=false"]
MODELS: dict[str, list[str]] = {"theirs": THEIRS, "default": []}
STAND_INS = {
    "wandb.py": """
import json, os

class Config(dict):
    __getattr__ = dict.__getitem__

class Run:
    pass

def init(config, **ignored):
    globals()["config"] = Config(vars(config))
    return Run()

def log(item, **ignored):
    with open(os.environ["ORACLE_LOG"], "a") as file:
        file.write(json.dumps({key: float(value) for key, value in item.items()}) + "\\n")

def define_metric(*ignored, **more):
    pass

finish = define_metric
""",
    "loguru.py": """
import torch

torch.manual_seed(0)

class logger:
    configure = debug = staticmethod(lambda *ignored, **more: None)
    info = warning = staticmethod(print)
""",
    "torcheval/__init__.py": "",
    "torcheval/metrics.py": "BinaryAUROC = None  # of classification",
}


class Failed(Exception):
    """What cannot be compared, in one sentence."""


def tables(task: RelationalTask, split: str) -> dict[str, pd.DataFrame]:
    """The tables of `task` by name; of ratings those of `split` (train, val or test) that join.

    Features are those that our parties hold: standardised, missing values replaced.
    """
    import numpy as np
    import pandas as pd

    parts, found = {part.table: part for part in task.clients}, {}
    for name, part in parts.items():
        features, keys, labels = part.features, dict(part.keys), part.labels
        if name == task.label_table and split != "train":
            joined = dict(zip(task.tables, task.held_out[split].rows, strict=True))
            own, first = np.unique(joined[name], return_index=True)  # a rating, and one of the rows that it joins
            features, labels = part.held_out[split][own], task.held_out[split].labels[first]
            keys = {key: parts[other].keys[key][joined[other][first]] for key, other in OTHER_TABLES.items()}
        frame = pd.DataFrame(keys)
        frame[[f"x{column}" for column in range(features.shape[1])]] = features
        if name == task.label_table:
            frame["rating"] = labels
        found[name] = frame
    return found


def write(task: RelationalTask, folder: Path) -> None:
    """The files that theirs reads: in `folder`/val and `folder`/test the training tables, and those to score."""
    for scored in ("val", "test"):
        for part, split in (("train", "train"), ("test", scored)):
            place = folder / scored / part
            place.mkdir(parents=True)
            for name, frame in tables(task, split).items():
                frame.to_csv(place / f"{THEIR_NAMES[name]}.csv", index=False)


def surroundings(clone: Path, folder: Path) -> dict[str, str]:
    """Environment variables of the clone's processes."""
    path = [str(folder / "stand_ins"), str(clone), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        "PYTHONPATH": os.pathsep.join(path),
        "PYTHONDONTWRITEBYTECODE": "1",  # nothing is written in the clone
        "ORACLE_LOG": str(folder / LOG),
    }


@contextlib.contextmanager
def ray_for(clone: Path, folder: Path) -> Iterator[None]:
    """A cluster of Ray, which `ray.init(address="auto")` of the clone finds; nothing for commits without Ray."""
    if "import ray" not in (clone / "client/admm.py").read_text(encoding="utf-8"):
        yield
        return
    from vflbench.federation.ray.cluster import Cluster

    os.environ |= surroundings(clone, folder) | {"RAY_OVERRIDE_RESOURCES": '{"CPU": 4, "GPU": 1}'}  # the raylet's
    with Cluster():
        import ray

        os.environ["RAY_ADDRESS"] = ray.get_runtime_context().gcs_address
        yield


def theirs(clone: Path, folder: Path, method: str, scored: str, epochs: int, lr: float, rho: float) -> list[float]:
    """Error of the last epoch (inf: it diverged) on the `scored` ratings, and seconds of training, by the clone's code.

    Parameters
    ----------
    folder : has what `write` wrote, and the stand-ins.

    Raises
    ------
    Failed : it ended with an error.
    """
    if method == "rfl_admm_v":
        program = "run/admm.py"
        told = [f"--communication_round={epochs}", f"--rho={rho}", f"--local_lr={lr}", "--local_epoch=10"]
        told += ["--local_batch_size=1024"]
    else:
        program, told = "run/sgd.py", [f"--epoch={epochs}", f"--lr={lr}", "--batch_size=10240"]
    told = [str(folder / scored), "--dataset=MovieLens-1M", "--model=Linear", "--use_GPU=False", *told]
    log = folder / LOG
    log.unlink(missing_ok=True)
    done = subprocess.run(
        [sys.executable, str(clone / program), *told],
        cwd=folder, env=os.environ | surroundings(clone, folder), capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise Failed(f"{program} of the clone ended with {done.returncode}: {last}")
    rows = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()] if log.exists() else []
    if not rows:
        raise Failed(f"{program} of the clone logged no epoch to wandb: is it a later version?")
    error = rows[-1]["test/rmse"] if len(rows) == epochs else math.inf  # theirs stops at an error above 100
    return [error if math.isfinite(error) else math.inf, sum(row["exec_t"] for row in rows)]


def words(method: str, model: str, epochs: int, seed: int, lr: float, rho: float) -> list[str]:
    """What this package is told to train. It scores once, at the end."""
    found = [f"algorithm={method}", *DATA, *METHODS[method], *MODELS[model], f"algorithm.lr={lr}", f"epochs={epochs}"]
    found += [f"algorithm.rho={rho}"] if method == "rfl_admm_v" else []
    return [*found, f"eval_every={epochs}", "device=cpu", "floor=none", "plot=none", f"seed={seed}"]


def ours(folder: Path, *setting: Any) -> list[float]:
    """Validation and test error of the last epoch (inf: it diverged), and seconds, by this package.

    Parameters
    ----------
    setting : what `words` takes.
    """
    import vflbench

    run = vflbench.run([*words(*setting), f"hydra.run.dir={tempfile.mkdtemp(dir=folder)}"])
    last = run.curve.iloc[-1] if run.status == "completed" else {"val_rmse": math.inf, "test_rmse": math.inf}
    return [float(last["val_rmse"]), float(last["test_rmse"]), run.summary["wall_seconds"]]


def compare(clone: Path, folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each method and code."""
    rows = []
    for method in METHODS:
        rhos = options.rhos if method == "rfl_admm_v" else [0.0]
        grid = list(itertools.product(options.rates, rhos))
        for code, model in (("authors", "theirs"), ("ours", "theirs"), ("ours", "default")):
            found = {}
            for lr, rho in grid:
                if code == "authors":
                    found[lr, rho] = theirs(clone, folder, method, "val", options.epochs, lr, rho)
                else:
                    found[lr, rho] = ours(folder, method, model, options.epochs, options.seed, lr, rho)
                print(f"{method} {code} {model} lr={lr} rho={rho}: {found[lr, rho]}", file=sys.stderr)
            best = min(found, key=lambda setting: found[setting][0])
            validation, *rest = found[best]
            if code == "authors":
                rest = theirs(clone, folder, method, "test", options.epochs, *best)
            rows.append(
                {"method": method, "code": code, "model": model, "epochs": options.epochs, "trials": len(grid)}
                | {"lr": best[0], "rho": best[1] or ""}
                | {"val_rmse": round(validation, 5), "test_rmse": round(rest[0], 5), "seconds": round(rest[1], 3)}
            )
    return rows


def positive(kind: type[int] | type[float]) -> Callable[[str], float]:
    """The type of an argument that is a finite number above 0."""

    def read(text: str) -> float:
        if not 0 < (value := kind(text)) < math.inf:
            raise ValueError
        return value

    read.__name__ = "positive number"
    return read


def main(arguments: list[str] | None = None) -> int:
    from vflbench.data import sources
    from vflbench.data.relational import movielens
    from vflbench.types import VflbenchError

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clone", type=Path)
    parser.add_argument("--epochs", type=positive(int), default=10)
    parser.add_argument("--rates", type=positive(float), nargs="+", default=[0.05, 0.1])
    parser.add_argument("--rhos", type=positive(float), nargs="+", default=[0.5, 1.0])
    parser.add_argument("--seed", type=int, default=0, help="which ratings are for validation and test")
    parser.add_argument("--out", type=Path, help="a new file for the table, as CSV")
    options = parser.parse_args(arguments)
    clone = options.clone.resolve()
    try:
        if options.out and (options.out.exists() or not options.out.absolute().parent.is_dir()):
            raise Failed(f"--out {options.out}: must be a new file in a folder that is there")
        if missing := [name for name in NEEDED if not (clone / name).is_file()]:
            raise Failed(f"{options.clone}: no clone of JerryLead/TablePuppet, as it has no {', '.join(missing)}")
        data = movielens_card.Config(source="real", variant="1m_sample")
        task = movielens.load(data, "relational", 1, options.seed, sources.data_root(None))
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for file, text in STAND_INS.items():
                (folder / "stand_ins" / file).parent.mkdir(parents=True, exist_ok=True)
                (folder / "stand_ins" / file).write_text(text, encoding="utf-8")
            write(task, folder)  # type: ignore[arg-type]  # of layout relational
            with ray_for(clone, folder):
                rows = compare(clone, folder, options)
    except (Failed, VflbenchError) as error:
        print(error, file=sys.stderr)
        return 1
    if options.out:
        with options.out.open("x", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    for row in ([*rows[0]], *(row.values() for row in rows)):
        print(" ".join(f"{value!s:>10}" for value in row))
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
