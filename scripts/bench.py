"""Benchmarks: `python scripts/bench.py [engine] [glasu] [start]`; each a rate or a ratio measured in one run, on one torch thread.

engine  messages of 100 bytes a second through me.send and me.recv, links and ledger on, with 3 and with 1,000 parties
glasu   a GLASU round on Cora against the bare tensor arithmetic of the same round: the same batches, no parties, no messages
start   CPU seconds of `vflbench --help` and `vflbench list`
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vflbench.runner.run import Federation

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


def say(name: str, value: str) -> None:
    print(f"{name:64} {value}", flush=True)


# --- engine -----------------------------------------------------------------------------------------------------------


def messages_per_second(parties: int, rounds: int, per_round: int) -> float:
    """A star whose clients send 100 bytes up and get 100 bytes down, `per_round` times a round; CPU seconds of one core."""
    import numpy as np

    from vflbench.federation.party import Party, PartySpec
    from vflbench.federation.simulated import SimulatedEngine
    from vflbench.types import LinkConfig, NetworkConfig

    payload = np.zeros(25, np.float32)

    async def server(me: Party, _data: None, _public: None, _config: None) -> None:
        async for _ in me.rounds():
            for _ in range(per_round):
                await me.recv_all(me.clients, "up")
                await me.send_many(me.clients, payload, "down")

    async def client(me: Party, _data: None, _public: None, _config: None) -> None:
        async for _ in me.rounds():
            for _ in range(per_round):
                await me.send("server", payload, "up")
                await me.recv("server", "down")

    specs = {"server": PartySpec(server, role="server")} | {f"client_{i:04d}": PartySpec(client) for i in range(parties - 1)}
    network = NetworkConfig("us_uk", LinkConfig(136, 0.42), LinkConfig(136, 0.42))
    engine = SimulatedEngine(specs, network=network, rounds=rounds)
    began = time.process_time()
    engine.run()
    seconds = time.process_time() - began
    return len(engine.ledger.take()) / seconds


def engine() -> None:
    for parties, rounds, target in ((3, 3_000, 150_000), (1_000, 8, 80_000)):
        rates = [messages_per_second(parties, rounds, 10) for _ in range(5)]
        say(f"engine: messages/s, {parties} parties (at least {target:,})", f"{statistics.median(rates):,.0f}")


# --- glasu ------------------------------------------------------------------------------------------------------------


def glasu(rounds: int = 60) -> None:
    """GLASU on Cora, K = 2, through the federation and bare; both draw batches and neighbours alike, from streams of their own."""
    import torch

    from vflbench import config, registry
    from vflbench.runner.run import Federation

    torch.set_num_threads(1)
    root = Path(os.environ.get("VFLBENCH_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
    source = [f"data_root={root}"] if root.is_dir() else ["dataset.source=synthetic"]
    for local_steps in (1, 4):
        overrides = ["algorithm=glasu", "dataset=cora", f"algorithm.local_steps={local_steps}", *source]
        with config.session(overrides) as hydra:
            run_config = config.to_config(config.plain(config.plan(hydra, overrides).cfg))
        federation = Federation(run_config, registry.algorithms()["glasu"])
        seconds: dict[str, list[float]] = {"engine": [], "bare": []}
        for _ in range(9):
            ends: list[float] = []  # of rounds: the first one, with what is set up before it, is left out, as in the bare loop

            def on_round(t: int, _: object, ends: list[float] = ends) -> bool:
                ends.append(time.process_time())
                return t == rounds + 1

            federation.engine(rounds=rounds + 2, eval_every=rounds + 3, on_round=on_round).run()
            seconds["engine"].append(ends[-1] - ends[0])
            seconds["bare"].append(bare_glasu(federation, rounds))
        whole, bare = (min(seconds[key]) / rounds for key in ("engine", "bare"))  # the least disturbed of each
        kind = federation.task.source.kind
        say(f"glasu: ms a round, Q = {local_steps}, {kind} Cora", f"{1e3 * whole:.2f}")
        say("  over its tensor arithmetic alone (at most 1.3)", f"{whole / bare:.2f}   ({1e3 * bare:.2f} ms)")


def bare_glasu(federation: Federation, rounds: int) -> float:
    """CPU seconds of the rounds' tensor arithmetic as one plain loop, given the sampled node ids and edges."""
    import asyncio

    import numpy as np
    import torch
    import torch.nn.functional as F

    from vflbench.data.graph.sampling import Graph, sample_blocks, union
    from vflbench.models import gnn, training
    from vflbench.models.split_gnn import Aggregation, aggregation_layers, forward

    cfg, model_config, task = federation.config.algorithm, federation.config.model, federation.task
    count, dtype = task.parties, gnn.DTYPES[model_config.dtype]
    ends = aggregation_layers(cfg.layers, cfg.aggregations, cfg.aggregation_layers)
    aggregation = Aggregation(cfg.aggregate, count)
    parts = [task.part(m) for m in range(count)]
    features = [gnn.Features(part.features, "cpu", dtype) for part in parts]
    labels = torch.tensor(parts[0].labels)
    generators = [torch.Generator().manual_seed(m) for m in range(count)]
    models = [
        gnn.build(model_config, features[m].width, task.classes, cfg.layers, ends, generators[m], "cpu", aggregation.columns(64, m))
        for m in range(count)
    ]
    optimizers = [training.make_optimizer(cfg.optimizer, model.parameters(), cfg.lr, cfg.weight_decay) for model in models]
    graphs = [Graph.from_edges(part.edges, len(task.labels), models[0].self_weight) for part in parts]
    rng = np.random.default_rng(0)

    async def sample_all() -> list[tuple[np.ndarray, list]]:
        """One round's level sets of all clients: the common levels are united, as the server does."""
        batch = np.sort(rng.choice(task.splits["train"], cfg.batch_size, replace=False))
        waiting: dict[int, list[np.ndarray]] = {}
        done = asyncio.Event()

        async def unite(level: int, ids: np.ndarray) -> np.ndarray:
            nonlocal done
            if level != ends[0] + 1:
                return ids
            waiting.setdefault(level, []).append(ids)
            if len(waiting[level]) == count:
                done.set()
            await done.wait()
            return union(len(task.labels), waiting[level])

        sampled = await asyncio.gather(*(sample_blocks(graph, batch, cfg.layers, cfg.fanout, rng, unite, None) for graph in graphs))
        return [(batch, sampled)]

    async def sample_rounds() -> list:
        return [(await sample_all())[0] for _ in range(rounds)]

    drawn = asyncio.run(sample_rounds())
    began = time.process_time()
    for batch, sampled in drawn:
        inputs = [
            (f.rows(levels[0]), [gnn.adjacency(b, "cpu", dtype) for b in blocks])
            for f, (levels, blocks) in zip(features, sampled, strict=True)
        ]
        y = labels[torch.from_numpy(batch)]
        hidden = [model.start(x, g) for model, (x, _), g in zip(models, inputs, generators, strict=True)]
        starts, others = list(hidden), [[] for _ in models]
        for segment in range(len(ends)):
            own = []
            for m, model in enumerate(models):
                h, starts[m] = model.segment(segment, inputs[m][1], hidden[m], starts[m], generators[m])
                own.append(h)
            total = aggregation.combine([h.detach() for h in own])
            for m, h in enumerate(own):
                others[m].append(aggregation.extract(total, h.detach(), m))
                hidden[m] = aggregation.insert(others[m][segment], h, m)
        for m, model in enumerate(models):
            training.update(optimizers[m], F.cross_entropy(model.classify(hidden[m], generators[m]), y))
            for _ in range(1, cfg.local_steps):

                def merge(segment: int, h: torch.Tensor, m: int = m, stale: list = others[m]) -> torch.Tensor:
                    return aggregation.insert(stale[segment], h, m)

                x, blocks = inputs[m]
                training.update(optimizers[m], F.cross_entropy(forward(model, x, blocks, generators[m], merge), y))
    return time.process_time() - began


# --- start ------------------------------------------------------------------------------------------------------------


def start() -> None:
    command = Path(sys.executable).parent / "vflbench"
    for args in (["--help"], ["list"]):
        seconds = []
        for _ in range(5):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([str(command), *args], stdout=subprocess.DEVNULL, check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        say(f"start: CPU seconds of vflbench {' '.join(args)} (under 1)", f"{statistics.median(seconds):.2f}")


BENCHMARKS: dict[str, Callable[[], None]] = {"engine": engine, "glasu": glasu, "start": start}


def main() -> int:
    names = sys.argv[1:] or list(BENCHMARKS)
    if unknown := [name for name in names if name not in BENCHMARKS]:
        print(f"no benchmark {', '.join(unknown)}: there are {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 1
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for name in names:
        BENCHMARKS[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
