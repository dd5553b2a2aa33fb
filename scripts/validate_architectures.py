"""Is the simulated time of the five split-learning architectures true? `python scripts/validate_architectures.py
[--help]`

Each architecture trains with the same workers and batches in virtual time, two parties of one core each, with the
constants that `vflbench data profile` measures here; and in real time, every worker a process on this machine
(engine=ray; PubSub-VFL over broker=nats). Two Markdown tables, measured beside predicted. The first: seconds an epoch,
and of the whole run the share of the cores that computed and the seconds that a worker waited in an epoch. The first
epoch, in which processes warm up, and the last, which is evaluated, are not in the seconds an epoch. The second says
where the difference is: the seconds of computing in an epoch, real, in one process (the same programs,
engine.compute_clock=measured) and by the profile's constants; and the messages, which take nothing in this prediction
(network=ideal, and between an organisation's own processes always). It judges nothing: the exit status is 0 whatever
the ratios are.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import itertools
import os
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from validate_timing import count

ARCHITECTURES = ("vfl", "vfl_ps", "avfl", "avfl_ps", "pubsub_vfl")
WANTED = 0.25  # how far a prediction may be off
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


def run(overrides: list[str], folder: Path) -> tuple[float, float, float, float, float]:
    """Seconds an epoch, share of busy cores, seconds that a worker waited in an epoch, messages of an epoch, local ones
    too, and seconds of computing in an epoch, summed over all workers."""
    import vflbench

    with rounds_ends() as ends, contextlib.redirect_stdout(io.StringIO()):
        done = vflbench.run([*overrides, f"hydra.run.dir={folder}"])
        summary = done.summary
    computing = float(done.trace.loc[done.trace["kind"] == "compute", "value"].sum()) / len(ends)
    steady = [after - before for before, after in itertools.pairwise(ends[:-1])]
    return (
        statistics.median(steady),
        summary["utilisation"],
        summary["waiting_seconds"],
        len(done.ledger) / len(ends),
        computing,
    )


def columns(flags: argparse.Namespace) -> tuple[int, int]:
    """How many columns each party has, for the profile."""
    from vflbench import config, registry
    from vflbench.data.tasks import AlignedTask
    from vflbench.runner.run import Federation

    overrides = words(flags, "vfl")
    with config.session(overrides) as hydra:
        planned = config.plan(hydra, overrides).config
    assert planned is not None
    task = Federation(planned, registry.algorithms()["vfl"]).task
    assert isinstance(task, AlignedTask)
    return task.features[0].shape[1], task.features[1].shape[1]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--architectures", default=",".join(ARCHITECTURES), help="which, with commas (all)")
    parser.add_argument("--epochs", type=count, default=6, help="of each run, at least 3 (6)")
    parser.add_argument("--rows", type=count, help="of the data set, at most (all)")
    parser.add_argument("--batch", type=count, default=256, help="rows of a batch (256)")
    parser.add_argument("--workers", type=count, default=2, help="of each party, where an architecture has several (2)")
    parser.add_argument(
        "--width",
        type=count,
        help="of the networks' layers (the model's own): wide ones compute longer for each message",
    )
    parser.add_argument("--source", default="auto", choices=("auto", "real", "synthetic"), help="of the data (auto)")
    parser.add_argument("--repetitions", type=count, default=15, help="of every timing of the profile (15)")
    parser.add_argument(
        "--repeats", type=count, default=1, help="real runs of each architecture, the median is told (1)"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("outputs/architectures"),
        help="folder of profile and runs (outputs/architectures)",
    )
    flags = parser.parse_args(argv)
    chosen = flags.architectures.split(",")
    if unknown := [name for name in chosen if name not in ARCHITECTURES]:
        parser.error(f"no architecture {', '.join(unknown)}: there are {', '.join(ARCHITECTURES)}")
    if flags.epochs < 3:
        parser.error(f"--epochs {flags.epochs}: at least 3, the first and the last are not counted")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import vflbench  # noqa: F401  sets what torch reads when it is imported
    from vflbench.federation.ray.cluster import Cluster
    from vflbench.runner import profile
    from vflbench.types import EngineConfig

    out = flags.out.absolute()
    options = profile.Options(features=columns(flags), repetitions=flags.repetitions)
    if flags.width:
        options = dataclasses.replace(options, width=flags.width)
    constants = profile.profile(options, out)
    cores = len(os.sched_getaffinity(0))
    load = os.getloadavg()[0]  # processes that wanted a core in the last minute
    print(
        f"{flags.epochs} epochs of Bank, batches of {flags.batch}, {flags.workers} workers each, {cores} cores, load "
        f"{load:.1f}"
    )
    print("\n| architecture | s an epoch | predicted | ratio | cores busy | predicted | waiting, s | predicted |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
    off: dict[str, float] = {}
    why: list[list[str]] = []
    with Cluster(EngineConfig("ray")):
        for name in chosen:
            virtual = [*words(flags, name), "network=ideal"]
            modelled = [
                "compute=measured",
                f"compute.file={constants}",
                "compute.cores=[1]",
                "engine.compute_clock=modelled",
            ]
            predicted = run([*virtual, *modelled], out / f"{name}_simulated")
            alone = run(
                [*virtual, "engine.compute_clock=measured", "engine.batch_compute=false"], out / f"{name}_one_process"
            )
            real = ["engine=ray", "engine.address=auto", *(["broker=nats"] if name == "pubsub_vfl" else [])]
            times = [run([*words(flags, name), *real], out / f"{name}_ray") for _ in range(flags.repeats)]
            measured = tuple(statistics.median(column) for column in zip(*times, strict=True))
            off[name] = measured[0] / predicted[0]
            row = [
                f"{measured[0]:.2f}",
                f"{predicted[0]:.2f}",
                f"{off[name]:.2f}",
                f"{measured[1]:.0%}",
                f"{predicted[1]:.0%}",
            ]
            print(f"| {' | '.join([name, *row, f'{measured[2]:.2f}', f'{predicted[2]:.2f}'])} |", flush=True)
            seconds = [f"{one[4]:.2f}" for one in (measured, alone, predicted)]
            why.append(
                [name, *seconds, f"{measured[3]:.0f}", f"{1e3 * (measured[0] - predicted[0]) / measured[3]:.2f}"]
            )
    print(
        "\n| architecture | computing, s an epoch | in one process | by the profile | messages an epoch | ms beyond "
        "it, a message |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    print("\n".join(f"| {' | '.join(row)} |" for row in why))
    far = {name: ratio for name, ratio in off.items() if abs(ratio - 1) > WANTED}
    near = [name for name in off if name not in far]
    print(f"\nWithin {WANTED:.0%} of the prediction: {', '.join(near) or 'none'}.")
    for name, ratio in far.items():
        how = f"{ratio:.2f} times as long as" if ratio > 1 else f"{ratio:.0%} of"
        print(f"{name}: an epoch takes {how} predicted.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
