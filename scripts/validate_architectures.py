"""Is the simulated time of the five split-learning architectures true? `python scripts/validate_architectures.py
[--help]`

Each architecture trains with the same workers and batches in real time, every worker a process on this machine
(engine=ray; PubSub-VFL over broker=nats), and in virtual time, all parties on one machine of as many cores
(compute=reference, compute.sharing=machine). A run of VFL before them, whose two processes take turns, tells what the
simulator cannot know of this machine: how much slower than compute=reference its processes compute, and what a message
costs beside. Both see the same load. Told are seconds and computing of an epoch that is faster than four fifths of
them, as other work on the machine only slows them down; without the first, in which processes warm up, and the last,
which is evaluated. Of several runs (--repeats) it is the median.

--write puts the findings into docs/results/validation/cores.csv, and the ratios into vflbench/plots/running_time.json:
`vflbench report` shows no modelled running time of an architecture that is more than 25 % off. It judges nothing else:
the exit status is 0 whatever the ratios are.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import itertools
import json
import os
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from validate_timing import count

ARCHITECTURES = ("vfl", "vfl_ps", "avfl", "avfl_ps", "pubsub_vfl")
ROOT = Path(__file__).resolve().parent.parent
FINDINGS = ROOT / "docs" / "results" / "validation" / "cores.csv"
RATES = ("operation_seconds", "flop_seconds", "number_seconds")
ALONE = ("vfl", "avfl")  # have one worker for each party; the others take --workers


def words(flags: argparse.Namespace, architecture: str) -> list[str]:
    """What both runs have in common."""
    found = [
        f"algorithm={architecture}",
        "dataset=bank",
        f"algorithm.batch_size={flags.batch}",
        f"epochs={flags.epochs}",
    ]
    found += [
        f"seed={flags.seed}",
        f"eval_every={flags.epochs}",
        "checkpoint_every=null",
        "overwrite=true",
        "plot=none",
        f"dataset.source={flags.source}",
    ]
    if architecture not in ALONE:
        found.append(f"algorithm.workers={flags.workers}")
    if architecture == "pubsub_vfl":
        found += [f"algorithm.passive_workers={flags.workers}", "algorithm.deadline=null"]
    found += [f"model.width={flags.width}"] if flags.width else []
    return found + ([f"dataset.samples={flags.rows}"] if flags.rows else [])


@contextlib.contextmanager
def rounds_ends() -> Iterator[list[float]]:
    """The clock at the end of every epoch of the runs in the block: virtual, or the wall's since all processes were
    ready."""
    from vflbench.runner.evaluate import Observer

    ends: list[float] = []
    on_round = Observer.on_round

    def noted(self: Any, round: int, engine: Any) -> bool:
        ends.append(engine.boundary_clock)
        return on_round(self, round, engine)

    Observer.on_round = noted  # type: ignore[method-assign]
    try:
        yield ends
    finally:
        Observer.on_round = on_round  # type: ignore[method-assign]


class Run(NamedTuple):
    """Of one run; seconds and messages of an epoch."""

    epoch: float
    computing: float  # summed over all workers
    messages: float  # local ones too


def run(overrides: list[str], folder: Path) -> Run:
    """Train, and tell what an epoch takes."""
    import vflbench

    with rounds_ends() as ends, contextlib.redirect_stdout(io.StringIO()):
        done = vflbench.run([*overrides, f"hydra.run.dir={folder}"])
    trace = done.trace
    # how many epochs the party has ended
    passed = (trace["kind"] == "mark").groupby(trace["party"], observed=True).cumsum()
    busy = trace[(trace["kind"] == "compute") & (trace["seq"] == 0)]["value"]  # seq 1: no core was busy
    computing = busy.groupby(passed).sum().reindex(range(len(ends)), fill_value=0.0).tolist()
    steady = [after - before for before, after in itertools.pairwise(ends[:-1])]
    return Run(low(steady), low(computing[1:-1]), len(done.ledger) / len(ends))


def low(values: list[float]) -> float:
    """What a fifth of the values are below."""
    return sorted(values)[len(values) // 5]


REAL = ["engine=ray", "engine.address=auto"]


def constants(factor: float, message: float, cores: int) -> list[str]:
    """The overrides of a prediction: compute=reference, `factor` times as slow, all parties on this machine."""
    import yaml

    values = yaml.safe_load((ROOT / "conf" / "compute" / "reference.yaml").read_text(encoding="utf-8"))
    found = [f"compute.{name}={factor * values[name]:.6e}" for name in RATES]
    found += [f"compute.message_seconds={message:.6e}", f"compute.cores=[{cores}]", "compute.sharing=machine"]
    return ["compute=reference", "engine.compute_clock=modelled", "network=ideal", *found]


def calibrated(flags: argparse.Namespace, cores: int, out: Path) -> tuple[float, float]:
    """How many times as slow as the reference a process computes here now, and the seconds of a message."""
    common = words(flags, "vfl")
    real = run([*common, *REAL], out / "calibration_ray")
    simulated = run([*common, *constants(1.0, 0.0, cores)], out / "calibration_simulated")
    # its processes take turns: what is not computing is messages
    return real.computing / simulated.computing, max(0.0, real.epoch - real.computing) / real.messages


def machine() -> str:
    """This machine, in words."""
    import torch

    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown CPU")
    return f"{name}, {len(os.sched_getaffinity(0))} cores, PyTorch {torch.__version__}"


def parsed(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--architectures", default=",".join(ARCHITECTURES), help="which, with commas (all)")
    parser.add_argument("--epochs", type=count, default=20, help="of each run, at least 4 (20)")
    parser.add_argument("--rows", type=count, help="of the data set, at most (all)")
    parser.add_argument("--batch", type=count, default=256, help="rows of a batch (256)")
    parser.add_argument("--workers", type=count, default=2, help="of each party, where an architecture has several (2)")
    parser.add_argument("--width", type=count, help="of the networks' layers (the model's own)")
    parser.add_argument("--source", default="auto", choices=("auto", "real", "synthetic"), help="of the data (auto)")
    parser.add_argument("--repeats", type=count, default=3, help="real runs of each architecture (3)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="put the findings where pages and reports read them")
    parser.add_argument(
        "--out", type=Path, default=Path("outputs/architectures"), help="folder of the runs (outputs/architectures)"
    )
    flags = parser.parse_args(argv)
    chosen = flags.architectures = flags.architectures.split(",")
    if unknown := [name for name in chosen if name not in ARCHITECTURES]:
        parser.error(f"no architecture {', '.join(unknown)}: there are {', '.join(ARCHITECTURES)}")
    if flags.epochs < 4:
        parser.error(f"--epochs {flags.epochs}: at least 4, the first and the last are not counted")
    if flags.write and set(chosen) != set(ARCHITECTURES):
        parser.error("--write: of all architectures, not of some")
    return flags


def main(argv: list[str] | None = None) -> int:
    flags = parsed(argv)
    chosen = flags.architectures
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import vflbench  # noqa: F401  sets what torch reads when it is imported
    from vflbench.federation.ray.cluster import Cluster
    from vflbench.plots.running_time import FILE, WANTED

    out, cores = flags.out.absolute(), len(os.sched_getaffinity(0))
    print(f"{flags.epochs} epochs of Bank, batches of {flags.batch}, {flags.workers} workers each; {machine()}")
    heads = ("epoch_seconds", "epoch_predicted", "ratio", "computing_seconds", "computing_predicted", "messages")
    heads = ("architecture", *heads, "slower", "message_ms", "load")
    print(f"\n| {' | '.join(heads)} |\n|{' --- |' * len(heads)}", flush=True)
    trials: dict[str, list[tuple[float, ...]]] = {name: [] for name in chosen}
    with Cluster():
        for _ in range(flags.repeats):
            slower, message = calibrated(flags, cores, out)
            for name in chosen:
                load = os.getloadavg()[0]  # processes that wanted a core in the last minute
                broker = ["broker=nats"] if name == "pubsub_vfl" else []
                real = run([*words(flags, name), *REAL, *broker], out / f"{name}_ray")
                predicted = run([*words(flags, name), *constants(slower, message, cores)], out / f"{name}_simulated")
                times = (real.epoch, predicted.epoch, real.epoch / predicted.epoch, real.computing, predicted.computing)
                trials[name].append((*times, real.messages, slower, 1e3 * message, load))
                print(f"| {' | '.join([name, *(f'{value:.3g}' for value in trials[name][-1])])} |", flush=True)
    rows = [
        dict(zip(heads, [name, *(f"{statistics.median(of):.3g}" for of in zip(*own, strict=True))], strict=True))
        for name, own in trials.items()
    ]
    far = [row for row in rows if abs(float(row["ratio"]) - 1) > WANTED]
    print(f"\nWithin {WANTED:.0%}: {', '.join(row['architecture'] for row in rows if row not in far) or 'none'}.")
    for row in far:
        print(f"{row['architecture']}: an epoch takes {row['ratio']} times as long as predicted.")
    if flags.write:
        with FINDINGS.open("w", encoding="utf-8", newline="") as file:
            table = csv.DictWriter(file, (*heads, "machine"), lineterminator="\n")
            table.writeheader()
            table.writerows({**row, "machine": machine()} for row in rows)
        found = {"machine": machine(), "ratios": {row["architecture"]: float(row["ratio"]) for row in rows}}
        FILE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
