"""Workers with rows of their own: in one call against a loop over them, and against the bare arithmetic."""

import time
from collections.abc import Callable
from typing import Any

from benchmarks.common import say, topology_config


def iteration(algorithm: str, task: Any, model: Any, device: str, count: int = 60, **options: Any) -> float:
    """Seconds of an iteration of `algorithm` through the federation, the least disturbed of 5 runs; the first round is
    left out."""
    from vflbench import registry
    from vflbench.federation import topology
    from vflbench.federation.simulated import SimulatedEngine
    from vflbench.types import ComputeConfig, EngineConfig, NetworkConfig, PrivacyConfig, RunConfig

    module = registry.load_algorithm(algorithm)
    graph_config = topology_config(registry.algorithms()[algorithm].topologies[0])
    others = NetworkConfig("ideal"), graph_config, PrivacyConfig(), EngineConfig(), ComputeConfig()
    steps = task.public.rows[0] // options["batch_size"]
    rounds = max(3, 1 + count // steps)
    config = RunConfig(module.Config(**options), None, model, *others, rounds=rounds, device=device)  # type: ignore[arg-type]
    found = []
    for _ in range(5):
        marks: list[float] = []

        def on_round(round: int, engine: SimulatedEngine, marks: list[float] = marks) -> bool:
            marks.append(moment(device))
            return False

        specs = module.parties(task, config)
        graph = topology.build(graph_config, [], list(specs), 0)
        engine = SimulatedEngine(
            specs, task.public, config, rounds=rounds, eval_every=rounds + 1, on_round=on_round, device=device,
            connected=graph.connected, neighbours=graph.neighbours,
        )  # fmt: skip
        engine.run()
        found.append((marks[-1] - marks[0]) / ((rounds - 1) * steps))
    return min(found)


def moment(device: str) -> float:
    """CPU seconds of this process; on a GPU, wall seconds once it is done."""
    import torch

    if device == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def least(function: Callable[[], Any], device: str, count: int = 15) -> float:
    """Seconds of the fastest of so many calls, after two that are not counted."""
    found = []
    for _ in range(count + 2):
        began = moment(device)
        function()
        found.append(moment(device) - began)
    return min(found[2:])


def looped(task: Any, model: Any, batch: int, device: str) -> float:
    """Seconds of an iteration of all workers as one usually writes it: a loop, autograd, torch.optim.SGD."""
    import torch
    import torch.nn.functional as F

    from vflbench.models import classifiers

    nets, batches = [], []
    for shard in task.shards:
        net = (
            classifiers.build(model, task.public.shape, task.public.outputs, torch.Generator())
            .to(device)
            .requires_grad_(True)
        )
        nets.append((net, torch.optim.SGD(net.parameters(), lr=0.1, weight_decay=1e-4)))
        batches.append((torch.from_numpy(shard.features).to(device), torch.from_numpy(shard.labels).to(device)))
    order = torch.arange(batch, device=device)

    def step() -> None:
        for (net, optimizer), (x, y) in zip(nets, batches, strict=True):
            optimizer.zero_grad()
            F.cross_entropy(net(x[order]), y[order]).backward()
            optimizer.step()

    return least(step, device, 40)


def bare_d_psgd(task: Any, model: Any, batch: int, device: str) -> float:
    """Seconds of a D-PSGD iteration's tensor arithmetic alone, on stacked models: batches, W w - eta g by the program's
    own in-place step.

    The others' shares of W w are one product, taken before the step changes w.
    """
    import numpy as np
    import torch

    from vflbench.federation import topology
    from vflbench.models import classifiers

    count, network = len(task.shards), classifiers.network(model, task.public)
    init = classifiers.flat(classifiers.build(model, task.public.shape, task.public.outputs, torch.Generator()))
    w = init.repeat(count, 1).to(device)
    x = torch.stack([torch.from_numpy(shard.features) for shard in task.shards]).to(device)
    y = torch.stack([torch.from_numpy(shard.labels) for shard in task.shards]).to(device)
    matrix = topology.build(topology_config("ring"), [], [f"w{i}" for i in range(count)], 0).mixing()
    own = float(matrix[0, 0])  # 1/3, of all workers of a ring
    others = torch.from_numpy(matrix - own * np.eye(count)).to(device, torch.float32)
    rows = torch.randint(x.shape[1], (count, batch)).to(device)
    who = torch.arange(count, device=device)[:, None]

    def step() -> None:
        mixed = others @ w
        network.descend(w, x[who, rows], y[who, rows], own - 0.1 * 1e-4, 0.1)
        w.add_(mixed)

    def steps() -> None:  # as `iteration` counts: the least of 5 means over 60, no single lucky one
        for _ in range(60):
            step()

    return least(steps, device, 5) / 60


def leasgd() -> None:
    import numpy as np
    import torch

    from vflbench.data.tasks import Shard, ShardedTask
    from vflbench.models import classifiers
    from vflbench.types import DataSource, Metric

    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rng = np.random.default_rng(0)

    def task(workers: int, rows: int, width: int) -> ShardedTask:
        shards = [
            Shard(rng.normal(size=(rows, width)).astype(np.float32), rng.integers(0, 10, rows)) for _ in range(workers)
        ]
        return ShardedTask("made", DataSource("synthetic"), Metric("accuracy", "max"), 10, tuple(shards), {})

    wide = classifiers.Config("mlp3", [200])
    for batch, limit in ((10, "at least 1.8"), (32, "at least 1"), (128, "at least 1")):
        made = task(15, 10 * batch, 784)
        one, loop = (
            iteration("local_sgd", made, wide, device, workers=15, batch_size=batch),
            looped(made, wide, batch, device),
        )
        limit = "at least 8" if device == "cuda" else limit
        say(f"leasgd: ms, 15 workers of 784-200-10 at once, batch {batch}, {device}", f"{1e3 * one:.2f}")
        say(f"  a loop over them, over that ({limit})", f"{loop / one:.2f}   ({1e3 * loop:.2f} ms)")
    for batch in (10, 32, 128):
        made = task(15, 10 * batch, 784)
        whole, bare = (
            iteration("d_psgd", made, wide, device, workers=15, batch_size=batch),
            bare_d_psgd(made, wide, batch, device),
        )
        say(f"leasgd: ms, a D-PSGD iteration, m = 15, batch {batch}, {device}", f"{1e3 * whole:.2f}")
        say("  over its batched arithmetic alone (at most 1.3)", f"{whole / bare:.2f}   ({1e3 * bare:.2f} ms)")

    public = task(1, 512, 784).public
    net = classifiers.build(wide, public.shape, 10, torch.Generator()).to(device)
    network, theta = classifiers.network(wide, public), classifiers.flat(net)
    x, y = torch.randn(512, 784, device=device), torch.randint(10, (512,), device=device)
    counts = torch.ones(512, device=device)
    seconds = least(lambda: network.clipped_gradient(theta, x, y, counts, 1.0), device)
    say(f"leasgd: ms, clipped gradients of 512 rows, 784-200-10, {device} (under 116)", f"{1e3 * seconds:.1f}")
    single = torch.func.vmap(
        torch.func.grad(lambda w, x, y: network.losses(network.predict(w, x[None]), y[None])[0]), (None, 0, 0)
    )
    say("  per-sample gradients by torch.func alone, ms", f"{1e3 * least(lambda: single(theta, x, y), device, 3):.1f}")

    many = task(1000, 100, 20)
    for name in ("d_psgd", "leasgd"):
        seconds = iteration(name, many, classifiers.Config("logistic"), device, count=10, workers=1000, batch_size=10)
        say(f"leasgd: s, an iteration of {name} with 1,000 workers, {device} (under 1)", f"{seconds:.3f}")
