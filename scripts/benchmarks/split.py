"""Split learning: an epoch against the bare arithmetic of its batches, and operations of the broker."""

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from benchmarks.common import say, topology_config


def pubsub_seconds(task: Any, batch: int, **options: Any) -> float:
    """CPU seconds of the second of two epochs of PubSub-VFL, 8 and 10 workers; starting up and the first one are left
    out."""
    from vflbench.algorithms.split import pubsub_vfl
    from vflbench.federation import clock, topology
    from vflbench.federation.simulated import SimulatedEngine
    from vflbench.models import split_learning
    from vflbench.types import ComputeConfig, EngineConfig, NetworkConfig, PrivacyConfig, RunConfig

    algorithm = pubsub_vfl.Config(workers=8, passive_workers=10, batch_size=batch, **options)
    compute = ComputeConfig(seconds_per_unit=1e-4, core_cap=1.0)
    others = NetworkConfig("ideal"), topology_config("star"), PrivacyConfig(), EngineConfig(), compute
    model = split_learning.Config("mlp10")
    config = RunConfig(algorithm, None, model, *others, rounds=2, device="cpu")  # type: ignore[arg-type]
    marks: list[float] = []

    def on_round(round: int, engine: SimulatedEngine) -> bool:
        marks.append(time.process_time())
        return False

    specs = pubsub_vfl.parties(task, config)
    servers = [name for name, spec in specs.items() if spec.role == "server"]
    graph = topology.build(config.topology, servers, [name for name in specs if name not in servers], 0)
    engine = SimulatedEngine(
        specs, task.public, config, rounds=2, eval_every=3, on_round=on_round, connected=graph.connected,
        neighbours=graph.neighbours, clock=clock.ComputeClock("modelled", compute),
    )  # fmt: skip
    engine.run()
    return marks[1] - marks[0]


def bare_pubsub(task: Any, batch: int) -> float:
    """CPU seconds of an epoch's batches, one after the other: both forward passes, the loss, both backward passes, both
    steps."""
    import numpy as np
    import torch
    import torch.nn.functional as F

    from vflbench.models import split_learning

    public, generator = task.public, torch.Generator().manual_seed(0)
    model = split_learning.Config("mlp10")
    passive = split_learning.Passive(model, task.features[1].shape[1:], generator)
    active = split_learning.Active(model, task.features[0].shape[1:], public, task.labels, generator)
    thetas = [passive.theta.requires_grad_(), active.theta.requires_grad_()]
    optimisers = [torch.optim.Adam([theta], 1e-3) for theta in thetas]
    order = np.random.default_rng(0).permutation(public.samples)
    began = time.process_time()
    for first in range(0, public.samples, batch):
        rows = order[first : first + batch]
        x_a, x_p = (torch.from_numpy(block[rows]) for block in task.features)
        z = passive(x_p)
        loss = F.cross_entropy(active(x_a, [z]), torch.from_numpy(task.labels[rows]))
        for theta, gradient in zip(thetas, torch.autograd.grad(loss, thetas), strict=True):
            theta.grad = gradient
        for optimiser in optimisers:
            optimiser.step()
    return time.process_time() - began


def pubsub() -> None:
    import numpy as np
    import torch

    from vflbench.algorithms.split.broker import Broker
    from vflbench.algorithms.split.shared import Side
    from vflbench.data.tasks import AlignedTask
    from vflbench.types import DataSource, Metric

    torch.set_num_threads(1)
    rng = np.random.default_rng(0)

    def task(rows: int, width: int) -> AlignedTask:
        blocks = tuple(rng.standard_normal((rows, width), dtype=np.float32) for _ in range(2))
        return AlignedTask(
            "made", DataSource("synthetic"), Metric("auroc", "max"), 2, 0, blocks, rng.integers(0, 2, rows), {}, {}
        )

    large = task(700_000, 250)
    pairs = [(pubsub_seconds(large, 256), bare_pubsub(large, 256)) for _ in range(2)]
    whole, bare = (min(values) for values in zip(*pairs, strict=True))
    say("pubsub: CPU s, an epoch, 700,000 x 500, B = 256, 8 + 10 workers", f"{whole:.1f}")
    say("  over its bare tensor arithmetic (at most 1.3)", f"{whole / bare:.2f}   ({bare:.1f} s)")
    del large

    nothing = torch.zeros(1, 1)
    methods = Side._embed, Side._backward, Side._learn
    Side._embed = lambda self, rows: nothing  # type: ignore[method-assign]
    Side._backward = lambda self, theta, rows, dz, steps: None  # type: ignore[method-assign]
    Side._learn = lambda self, rows, zs, steps: (0.0, [nothing])  # type: ignore[method-assign]
    batches, small = 5_000, task(5_000, 1)
    seconds = pubsub_seconds(small, 1)
    calls: Counter[str] = Counter()

    def counted(name: str) -> Callable[..., Any]:
        method = getattr(Broker, name)

        def call(self: Broker, *args: Any) -> Any:
            calls[name] += 1
            return method(self, *args)

        return call

    operations = {
        name: counted(name) for name in ("publish", "next", "depth", "wait", "deadline", "discard", "expired")
    }
    methods_of_broker = {name: getattr(Broker, name) for name in operations}
    for name, call in operations.items():
        setattr(Broker, name, call)
    pubsub_seconds(small, 1)  # both of its epochs are counted
    for name, method in methods_of_broker.items():
        setattr(Broker, name, method)
    Side._embed, Side._backward, Side._learn = methods  # type: ignore[method-assign]
    say(
        "pubsub: broker operations a CPU s, workers that compute nothing (at least 20,000)",
        f"{calls.total() / 2 / seconds:,.0f}",
    )
    say("  of them messages published and taken", f"{(calls['publish'] + calls['next']) / 2 / seconds:,.0f}")
    say("  batches, from queue to step", f"{batches / seconds:,.0f}")
