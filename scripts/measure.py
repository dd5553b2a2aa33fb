"""Run presets and keep what they measured: `python scripts/measure.py glasu/table2 [glasu/table4 ...] [-- key=value ...]`.

Each preset runs as `vflbench experiment=<preset>` in outputs/measure/<preset> (what is completed there is kept, so an interrupted call
goes on), and its seeds are averaged into vflbench/papers/<preset>.csv: one row per setting, mean and standard deviation of the test
metric at the round that validation chose, bytes, communication time, and when the validation metric first reached TARGET.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))
TARGET = 0.80  # of the validation metric; one value for all, so that times can be compared


def settings(runs: list[Any]) -> list[str]:
    """The keys in which the runs' configurations differ, without the seed."""
    flats = [flat(run.manifest["config"]) for run in runs]
    keys = {key for values in flats for key in values}
    differing = [key for key in sorted(keys) if len({repr(values.get(key)) for values in flats}) > 1]
    if "algorithm.name" in differing:  # then all its other keys differ too
        return ["algorithm.name"]
    follow = ("rounds", "eval_every")  # derived from the others
    if "model.name" in differing:
        return ["model.name"]
    return [key for key in differing if key != "seed" and key not in follow]


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found


def table(folder: Path) -> Any:
    """One row per setting of a sweep's completed runs."""
    import pandas as pd

    from vflbench.results import reader

    runs = [run for run in reader.find(folder) if run.status in ("completed", "target_reached")]
    keys = settings(runs)
    rows = []
    for run in runs:
        summary, curve = run.summary, run.curve
        metric = summary["metric"]["name"]
        reached = curve[curve[f"val_{metric}"] >= TARGET]
        values = flat(run.manifest["config"])
        rows.append(
            {
                **{key: values[key] for key in keys},
                "dataset": summary["dataset"],
                "data_source": summary["data_source"],
                "seed": summary["seed"],
                "updates": int(curve["iterations"].iloc[-1]),
                "rounds": summary["rounds"],
                "selected": summary["metric"]["selected"],
                "final": summary["metric"]["final"],
                "megabytes": summary["bytes"]["total"] / 1e6,
                "communication_seconds": summary["communication_seconds"],
                "megabytes_to_target": reached["bytes"].iloc[0] / 1e6 if len(reached) else float("nan"),
                "seconds_to_target": reached["communication_seconds"].iloc[0] if len(reached) else float("nan"),
                "wall_seconds": summary["wall_seconds"],
            }
        )
    frame = pd.DataFrame(rows)
    groups = frame.groupby([*keys, "dataset", "data_source", "rounds", "updates"], sort=True)
    result = groups.agg(
        seeds=("seed", "count"),
        selected_mean=("selected", "mean"),
        selected_sd=("selected", "std"),
        final_mean=("final", "mean"),
        megabytes=("megabytes", "mean"),
        communication_seconds=("communication_seconds", "mean"),
        reached_target=("seconds_to_target", "count"),
        megabytes_to_target=("megabytes_to_target", "mean"),
        seconds_to_target=("seconds_to_target", "mean"),
        wall_seconds=("wall_seconds", "mean"),
    )
    return result.reset_index()


def main() -> int:
    words = sys.argv[1:]
    presets, overrides = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    if not presets:
        print(__doc__, file=sys.stderr)
        return 1
    for preset in presets:
        folder = Path("outputs/measure") / preset
        command = [str(Path(sys.executable).parent / "vflbench"), f"experiment={preset}", f"hydra.sweep.dir={folder}", "resume=true"]
        subprocess.run([*command, "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "engine.threads=1", *overrides], check=True)
        result = table(folder)
        path = REPOSITORY / "vflbench" / "papers" / f"{preset}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        result.round(4).to_csv(path, index=False, lineterminator="\n")
        print(f"\n{preset} -> {path.relative_to(REPOSITORY)}\n{result.round(3).to_string(index=False)}\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
