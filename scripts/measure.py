"""Run presets and keep what they measured: `python scripts/measure.py glasu/table2 [glasu/table4 ...] [-- key=value ...]`.

Each preset runs as `vflbench experiment=<preset>` in outputs/measure/<preset> (what is completed there is kept, so an interrupted call
goes on), and its seeds are averaged into vflbench/papers/<preset>.csv: one row per setting, mean and standard deviation of the test
metric at the round that validation chose, bytes, communication time, and when the validation metric first reached the target: the
preset's own, or an accuracy of 80 %, an RMSE of least squares on the join plus 0.003, a relative gap of 1e-6 to the optimum.
Of split learning also the running time, how much of it cores were busy and workers waited, and what an attack recovered.
Where rounds are epochs, or parts of one, <preset>_epochs.csv has the mean and the standard deviation of the test metric after each, and
outputs/measure/<preset>/epochs.png its picture.
A preset with other values keeps them under another name: `tablepuppet/fig5:tablepuppet/fig5_100k -- dataset.variant=100k`.
"""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))


def settings(runs: list[Any]) -> list[str]:
    """The keys that the sweep varies, without the seed; an option by its name (`model.name`)."""
    import yaml

    words = [yaml.safe_load((run.folder / ".hydra" / "overrides.yaml").read_text(encoding="utf-8")) for run in runs]
    differing = {word.split("=", 1)[0] for own in words for word in own if any(word not in other for other in words)}
    from vflbench.results.identity import flat

    known = flat(runs[0].manifest["config"])
    return sorted(f"{key}.name" if f"{key}.name" in known else key for key in differing - {"seed"})


@functools.lru_cache
def least_squares(dataset: str, seed: int) -> dict[str, tuple[float, float]]:
    """Split -> RMSE of least squares on the join of the training rows, and of predicting their labels' mean.

    `dataset` is that part of a manifest's configuration, as JSON.
    """
    from vflbench import registry
    from vflbench.data import sources

    values = json.loads(dataset)
    module = registry.load_dataset(values["name"])
    task = module.load(module.Config(**values), "aligned", 1, seed, sources.data_root(None))

    def rmse(errors: Any) -> float:
        return float(np.sqrt(np.mean(np.square(errors))))

    def joined(blocks: Any, start: int = 0, end: int | None = None) -> Any:
        parts = [block[start:end] for block in blocks]
        return np.concatenate([*parts, np.ones((len(parts[0]), 1))], axis=1).astype(np.float64)

    gram, right, size = 0.0, 0.0, 200_000  # in pieces: a join of millions of rows in float64 is large
    for start in range(0, len(task.labels), size):
        x = joined(task.features, start, start + size)
        gram, right = gram + x.T @ x, right + x.T @ task.labels[start : start + size]
    best = np.linalg.lstsq(gram, right, rcond=None)[0]
    return {
        split: (rmse(joined(task.held_out_features[split]) @ best - truth), rmse(task.labels.mean() - truth))
        for split, truth in task.held_out_labels.items()
    }


def target(run: Any) -> float:
    """What the validation metric is to reach; one value for all methods, so that times can be compared. NaN: there is none."""
    name, own = run.summary["metric"]["name"], run.manifest["config"]["target"]
    if own is not None or "utilisation" in run.summary:
        return float("nan") if own is None else own
    if name == "accuracy":
        return 0.80
    if name == "suboptimality":
        return 1e-6
    if name == "rmse":
        return least_squares(json.dumps(run.manifest["config"]["dataset"], sort_keys=True), run.summary["seed"])["val"][0] + 0.003
    return float("nan")


SPLIT_LEARNING = ("epochs", "running_seconds", "utilisation", "waiting_seconds", "epsilon", "success_rate", "floor", "r2")


def split_learning(summary: dict[str, Any]) -> dict[str, float]:
    """What is measured of split learning alone; nothing of other methods."""
    if "utilisation" not in summary:
        return {}
    found = {
        "epochs": summary["epochs"],
        "running_seconds": summary["virtual_seconds"],
        "utilisation": summary["utilisation"],
        "waiting_seconds": summary["waiting_seconds"],
    }
    if summary["privacy"]["epsilon"] is not None:
        found["epsilon"] = summary["privacy"]["epsilon"]
    return found | {key: summary["attack"][key] for key in ("success_rate", "floor", "r2") if key in summary.get("attack", {})}


def table(folder: Path) -> Any:
    """One row per setting of a sweep's completed runs."""
    import pandas as pd

    from vflbench.results import reader
    from vflbench.results.identity import flat

    runs = [run for run in reader.find(folder) if run.status in ("completed", "target_reached", "diverged")]
    keys = settings(runs)
    rows = []
    for run in runs:
        summary, curve = run.summary, run.curve
        metric, sign = summary["metric"]["name"], 1 if summary["metric"]["goal"] == "max" else -1
        judged = f"val_{metric}" if f"val_{metric}" in curve else f"train_{metric}"
        reached = curve[sign * curve[judged] >= sign * target(run)]
        values = flat(run.manifest["config"])
        rows.append(
            {
                **{key: str(values[key]) if isinstance(values[key], list) else values[key] for key in keys},
                "dataset": summary["dataset"],
                "data_source": summary["data_source"],
                "seed": summary["seed"],
                "diverged": run.status == "diverged",
                "updates": int(curve["iterations"].iloc[-1]),
                "rounds": run.manifest["rounds"],  # as planned: a run that diverges ends early
                "selected": summary["metric"]["selected"],
                "final": summary["metric"]["final"],
                "megabytes": summary["bytes"]["total"] / 1e6,
                "communication_seconds": summary["communication_seconds"],
                "megabytes_to_target": reached["bytes"].iloc[0] / 1e6 if len(reached) else float("nan"),
                "seconds_to_target": reached["communication_seconds"].iloc[0] if len(reached) else float("nan"),
                "wall_seconds": summary["wall_seconds"],
                **split_learning(summary),
            }
        )
    frame = pd.DataFrame(rows)
    further = {f"{key}_{name}": (key, how) for key in frame if key in SPLIT_LEARNING for name, how in (("mean", "mean"), ("sd", "std"))}
    groups = frame.groupby([*keys, "dataset", "data_source", "rounds"], sort=True, dropna=False)
    result = groups.agg(
        updates=("updates", "max"),
        seeds=("seed", "count"),
        diverged=("diverged", "sum"),
        selected_mean=("selected", "mean"),
        selected_sd=("selected", "std"),
        final_mean=("final", "mean"),
        final_sd=("final", "std"),
        megabytes=("megabytes", "mean"),
        communication_seconds=("communication_seconds", "mean"),
        reached_target=("seconds_to_target", "count"),
        megabytes_to_target=("megabytes_to_target", "mean"),
        seconds_to_target=("seconds_to_target", "mean"),
        wall_seconds=("wall_seconds", "mean"),
        **further,
    )
    return result.reset_index()


def epochs(folder: Path, path: Path) -> None:
    """The picture of the metric per epoch, and its means as `path`; nothing where rounds are no epochs, or the metric is a gap."""
    from vflbench.plots.curves import draw_runs
    from vflbench.results import reader
    from vflbench.types import TRAINING_METRIC

    runs = list(reader.find(folder))
    ended = [run for run in runs if run.status == "completed" and run.summary["metric"]["name"] != TRAINING_METRIC]
    if ended and all(run.curve["epoch"].notna().all() for run in ended):
        draw_runs(runs, folder, x="epoch", name="epochs")
        shutil.copy(folder / "epochs.csv", path)


def main() -> int:
    words = sys.argv[1:]
    presets, overrides = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    if not presets:
        print(__doc__, file=sys.stderr)
        return 1
    for word in presets:
        preset, _, name = word.partition(":")
        name = name or preset
        folder = Path("outputs/measure") / name
        command = [str(Path(sys.executable).parent / "vflbench"), f"experiment={preset}", f"hydra.sweep.dir={folder}", "resume=true"]
        subprocess.run([*command, "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "engine.threads=1", *overrides], check=True)
        result = table(folder)
        path = REPOSITORY / "vflbench" / "papers" / f"{name}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        result.to_csv(path, index=False, lineterminator="\n", float_format="%.6g")
        epochs(folder, path.with_name(f"{path.stem}_epochs.csv"))
        print(f"\n{name} -> {path.relative_to(REPOSITORY)}\n{result.round(3).to_string(index=False)}\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
