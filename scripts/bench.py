"""Benchmarks: `python scripts/bench.py [NAME ...]`; without a name, all that can run here.

Rates, CPU seconds and ratios on one torch thread. Every algorithm is timed against its bare arithmetic in plain torch,
in alternating pairs. A line with a target says MISSED where it is not met, and the exit code is then 1.
"""

import importlib
import importlib.util
import os
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent)]

# name: file and function below benchmarks/, what it times, packages that may not be installed
BENCHMARKS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "engine": ("engine.engine", "messages a second, with 3 and with 1,000 parties", ()),
    "graph": ("graph.graph", "rounds of every graph method on Cora against its bare arithmetic", ()),
    "glasu": ("graph.glasu", "the lines of `graph` about GLASU", ()),
    "joins": ("joins.joins", "epochs of every method over joins on MovieLens against its bare arithmetic", ()),
    "tablepuppet": ("joins.tablepuppet", "epochs over joins, the table mapping, growth with joined rows", ()),
    "tokens": ("tokens.tokens", "a round of every method with tokens against its bare arithmetic", ()),
    "mtcd": ("tokens.mtcd", "hops of a token, from 10 to 10,000 clients; views of meshes", ("trimesh", "embreex")),
    "gossip": ("gossip.gossip", "iterations of every method of workers against its bare arithmetic", ()),
    "leasgd": ("gossip.leasgd", "iterations of up to 1,000 workers; on a GPU where there is one", ()),
    "split": ("split.split", "an epoch of every split learning method against its bare arithmetic", ()),
    "pubsub": ("split.pubsub", "PubSub-VFL on 500 columns; operations of its broker", ()),
    "reprice": ("results.reprice", "`vflbench reprice` of a run of 1,000,000 messages", ()),
    "report": ("results.report", "`vflbench report` over 200 runs, and the size of a page of 50", ()),
    "start": ("start.start", "`vflbench --help`, `vflbench list`, a dry run, a first job", ()),
    "sweep": ("start.sweep", "20 toy jobs, by each launcher on this machine", ()),
    "ray": ("processes.ray", "a message through Ray; GLASU on Cora through Ray", ("ray",)),
    "gpu": ("gpu.gpu", "a method of each family on a GPU, against the CPU and against its bare arithmetic there", ()),
    "broker": ("processes.broker", "embeddings through a NATS server, and by Ray's calls", ("ray", "nats")),
}


def main() -> int:
    """Run the named benchmarks."""
    if sys.argv[1:2] in (["-h"], ["--help"]):
        print(__doc__, *(f"  {name:12} {what}" for name, (_, what, _) in BENCHMARKS.items()), sep="\n")
        return 0
    wanted = sys.argv[1:] or list(BENCHMARKS)
    if unknown := [name for name in wanted if name not in BENCHMARKS]:
        print(f"no benchmark {', '.join(unknown)}: there are {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 1
    left = [name for name in wanted if not all(map(importlib.util.find_spec, BENCHMARKS[name][2]))]
    if left:
        print(
            f"left out, as what they need is not installed: {', '.join(left)} (pip install "
            "'vflbench[ray,broker,shapes]')",
            file=sys.stderr,
        )
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import vflbench  # noqa: F401  sets what torch reads when it is imported

    if "gpu" in wanted and not importlib.import_module("torch").cuda.is_available():
        print("left out, as torch finds no CUDA device here: gpu", file=sys.stderr)
        left.append("gpu")

    common = importlib.import_module("benchmarks.common")
    for name in wanted:
        if name not in left:
            file, function = BENCHMARKS[name][0].split(".")
            getattr(importlib.import_module(f"benchmarks.{file}"), function)()
    if common.missed:
        print(f"{len(common.missed)} missed: {'; '.join(common.missed)}", file=sys.stderr)
    return int(bool(common.missed or (left and sys.argv[1:])))


if __name__ == "__main__":
    sys.exit(main())
