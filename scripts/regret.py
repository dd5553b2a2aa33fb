"""The answers of `vflbench choose` on real data, beside exhaustive comparisons: `python scripts/regret.py [DATA ...]
[NETWORK ...] [before] [trials=3] [budget=10m]`.

A comparison (`vflbench figures comparison/<data>`) trains every method with three seeds; docs/results/comparison has
what that gave. `choose` is asked the same: the same division of the same data, and the mean over the comparison's seeds
of its target. Bytes are those until validation rows are at the target, and those of 1,000 predictions, on both sides.
Each answer is a row more in docs/results/choosing/regret.csv. Rows that are there are kept, and set beside the
comparisons of today. A search that was stopped goes on. An answer before every method was tried once gets no row. Words
with = are for `choose`; without any, methods have three trials. Searches are in outputs/regret, below the current
folder. With `before` only the five papers' systems and their baselines are asked and compared, as if nobody had thought
of the rivals; the rows are in docs/results/choosing/before.csv.
"""

from __future__ import annotations

import csv
import json
import os
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "results"
RIVALS = ("choco_sgd", "ensemble", "extra", "fedavg", "fedbuff", "gram_once", "graph_once", "hetero_lr", "powergossip")
RIVALS += ("secureboost", "send_once", "tree_cg")  # of no paper that is reproduced here
NETWORKS = ("us_uk", "lan")
TWO = ["algorithm.parties=2"]
DATA: dict[str, list[str]] = {"bank": TWO, "energy": TWO, "movielens": [], "cora": [], "mnist": []}  # how it is divided
PREDICTIONS, SEEDS = 1000, (0, 1, 2)


def target(data: str) -> float:
    """The mean of the comparison's target over its seeds, to four places."""
    from vflbench import config
    from vflbench.cli.choose import measure_one
    from vflbench.papers import definition, measured

    (rule,) = definition.load(f"comparison/{data}").target.values()
    found = []
    for seed in SEEDS if isinstance(rule, str) else ():
        words = [f"dataset={data}", "dataset.source=real", *DATA[data], "algorithm=send_once", f"seed={seed}"]
        if rule.startswith(measured.LEAST_SQUARES):
            with config.session(words) as hydra:
                run = config.plan(hydra, words).config
            assert run is not None
            best = measured.least_squares(json.dumps(asdict(run.dataset), sort_keys=True), seed, None)
            found.append(best + float(rule.removeprefix(measured.LEAST_SQUARES)))
        else:
            levels = measure_one(None, words)["floor"]
            alone, centralised = (levels[name]["validation"] for name in ("alone", "centralised"))
            found.append(alone + float(rule.removeprefix(measured.ALONE)) * (centralised - alone))
    return round(statistics.fmean(found), 4) if found else float(rule)


def entering(data: str, but: Sequence[str]) -> list[str]:
    """The methods that `choose` compares, without the methods `but`.

    It takes for no answer: one party that has all data, parties that send nothing, and workers with rows of data that
    are divided by columns.
    """
    from vflbench import registry
    from vflbench.types import messages

    layouts = registry.datasets()[data].layouts
    return [
        name
        for name, info in registry.algorithms().items()
        if name not in but and "pooled" not in info.assumes and messages(registry.exposed(name))
        if (layout := registry.fit(info, registry.datasets()[data])) is not None
        if layout != "sharded" or layouts[0] == "sharded"
    ]


def exhaustive(data: str, but: Sequence[str] = ()) -> dict[str, float]:
    """Method and form -> MB to the target and for the predictions; of methods that reach it with every seed.

    Left out are methods that do not enter.
    """
    found, names = {}, entering(data, but)
    with (RESULTS / "comparison" / f"{data}.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            name, form = row["algorithm.name"], row.get("algorithm.form", "").removeprefix("'-")
            if name not in names or row["reached"] != row["seeds"]:
                continue
            sent = float(row["megabytes_to_target"]) + float(row["predict_megabytes"] or 0) * PREDICTIONS / 1000
            found[f"{name} {form}".strip()] = sent
    return found


def compared(answer: dict[str, Any], every: dict[str, float]) -> dict[str, Any]:
    """The columns that set an answer beside what every method took."""
    winner = next((one for one in answer["methods"] if one["place"] == 1 and one["reached"]), None)
    sent = winner["bytes"] / 1e6 if winner else float("inf")
    setting = "" if winner is None else " ".join(f"{key}={value}" for key, value in winner["values"].items())
    return {
        "trials": answer["tuning"]["trials_each"],
        "finals": sum(one["basis"] == "finals" and len(one["seeds"]) == one["of"] for one in answer["methods"]),
        "status": answer["status"],
        "winner": "-" if winner is None else winner["name"],
        "setting": setting,
        "reached": 0 if winner is None else winner["reached"],
        "seeds": len(answer["question"]["seeds"]),
        "megabytes": sent,
        **beside(sent, every),
        "verdict": answer["verdict"]["kind"],
        "wall_seconds": answer["tuning"]["wall_seconds"],
        "version": answer["made_by"],
    }


def beside(sent: float, every: dict[str, float]) -> dict[str, Any]:
    """What the comparison says of an answer that takes `sent` MB.

    `timed_megabytes` is the least of methods whose course depends on time: what they send depends on the network.
    """
    from vflbench import registry

    best = min(every, key=lambda name: every[name])
    timed = [least for name, least in every.items() if registry.algorithms()[name.split()[0]].time_dependent]
    return {
        "best": best,
        "best_megabytes": every[best],
        "regret": round(sent / every[best] - 1, 6) or 0.0,  # no -0
        "methods": len(every),
        "timed_megabytes": min(timed, default=""),
    }


def renew(table: Path, but: Sequence[str]) -> None:
    """Set the answers that there are beside the comparisons of today, which may have been made anew."""
    if not table.exists():
        return
    with table.open(encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file))
    renewed = []
    for row in found:
        every = exhaustive(row["dataset"], but)
        renewed.append(row | beside(float(row["megabytes"]), every) if every else row)
    table.unlink()  # not before all rows are known
    for row in renewed:
        add(row, table)


def add(row: dict[str, Any], table: Path) -> None:
    """A row more in the table."""
    table.parent.mkdir(exist_ok=True)
    new = not table.exists()
    with table.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(row), lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow({key: f"{value:.6g}" if isinstance(value, float) else value for key, value in row.items()})


def there(table: Path) -> set[tuple[str, str]]:
    """Data set and network of the rows that there are."""
    if not table.exists():
        return set()
    with table.open(encoding="utf-8", newline="") as file:
        return {(row["dataset"], row["network"]) for row in csv.DictReader(file)}


def main() -> int:
    from vflbench import cli

    given = [word for word in sys.argv[1:] if "=" not in word]
    effort = [word for word in sys.argv[1:] if "=" in word]
    if unknown := [word for word in given if word not in (*DATA, *NETWORKS, "before")]:
        print(f"no {', '.join(unknown)}: there are {', '.join((*DATA, *NETWORKS, 'before'))}", file=sys.stderr)
        return 1
    name, but = ("before", RIVALS) if "before" in given else ("regret", ())
    table = RESULTS / "choosing" / f"{name}.csv"
    renew(table, but)
    for network in [word for word in given if word in NETWORKS] or NETWORKS:
        for data in [word for word in given if word in DATA] or DATA:
            if (data, network) in there(table):
                continue
            if not (every := exhaustive(data, but)):
                print(f"{data} on {network}: no method of the comparison is at the target with all seeds, so no row")
                continue
            folder, wanted = Path("outputs") / name / f"{data}_{network}", target(data)
            words = [f"dataset={data}", "dataset.source=real", *DATA[data], f"target={wanted}", f"network={network}"]
            words += ["cost=bytes", f"predictions={PREDICTIONS}", "seed=0", f"out={folder}"]
            words += effort or ["trials=3"]
            words += [f"algorithm={','.join(entering(data, but))}"] if but else []
            if (code := cli.command(["choose", *words, "resume=true"])) not in (0, 2):
                return code
            answer = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
            if not answer["tuning"]["trials_each"]:
                print(f"{data} on {network}: not every method was tried once, so no row: a larger budget= goes on")
                continue
            add({"dataset": data, "network": network, "target": wanted} | compared(answer, every), table)
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
