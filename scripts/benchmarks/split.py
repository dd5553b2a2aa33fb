"""Split learning: epochs against the bare arithmetic of their batches, and operations of the broker."""

import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.common import federation, ratio, say, seconds_of_rounds

# algorithm -> how many replicas of its model the active organisation trains, and each passive one
REPLICAS = {"vfl": (1, 1), "vfl_ps": (8, 8), "avfl": (1, 1), "avfl_ps": (8, 8), "pubsub_vfl": (8, 10)}


def bare(federation: Any) -> float:
    """CPU seconds of an epoch in one plain loop: forward passes, loss, backward passes, steps of all replicas.

    VFL-PS cuts every batch and averages the replicas after it. The others deal whole batches to their replicas in turn,
    and average them at the end.
    """
    import numpy as np
    import torch
    import torch.nn.functional as F

    from vflbench.models import split_learning

    task, config = federation.task, federation.config
    cfg, public, counts = config.algorithm, federation.task.public, REPLICAS[config.algorithm.name]
    blocks, labels = [torch.from_numpy(block) for block in task.features], torch.from_numpy(task.labels)
    generator = torch.Generator().manual_seed(0)
    shapes = [block.shape[1:] for block in blocks]
    actives = [split_learning.Active(config.model, shapes[0], public, task.labels, generator) for _ in range(counts[0])]
    passives = [split_learning.Passive(config.model, shapes[1], generator) for _ in range(counts[1])]
    optimisers = {model: torch.optim.Adam([model.theta.requires_grad_()], cfg.lr) for model in (*actives, *passives)}

    def step(active: Any, passive: Any, rows: torch.Tensor) -> None:
        z = passive(blocks[1][rows])
        loss = F.cross_entropy(active(blocks[0][rows], [z]), labels[rows])
        for model in (active, passive):
            optimisers[model].zero_grad()
        loss.backward()
        for model in (active, passive):
            optimisers[model].step()

    def average() -> None:
        with torch.no_grad():
            for models in (actives, passives):
                mean = torch.stack([model.theta for model in models]).mean(dim=0)
                for model in models:
                    model.theta.copy_(mean)

    cuts = cfg.name == "vfl_ps"
    order = torch.from_numpy(np.random.default_rng(0).permutation(public.samples))
    began = time.process_time()
    for j, batch in enumerate(order.split(cfg.batch_size)):
        for place, rows in enumerate(batch.tensor_split(counts[0])) if cuts else [(j, batch)]:
            step(actives[place % counts[0]], passives[place % counts[1]], rows)
        if cuts:
            average()
    if not cuts and counts[0] > 1:
        average()
    return time.process_time() - began


def split() -> None:
    """An epoch of every method on Bank Marketing."""
    import torch

    torch.set_num_threads(1)
    for name in REPLICAS:
        whole = federation(f"algorithm={name}", "dataset=bank", "dataset.samples=12000")
        ratio(
            f"split: an epoch of {name}, 7,200 rows of bank, over its bare arithmetic",
            partial(seconds_of_rounds, whole, 1),
            partial(bare, whole),
        )


def pubsub() -> None:
    """PubSub-VFL on many columns, and with workers that compute nothing."""
    import torch

    from vflbench.algorithms.split.broker import Broker
    from vflbench.algorithms.split.worker_replica import Side
    from vflbench.models.split_learning import Embedded

    torch.set_num_threads(1)
    wide = federation("algorithm=pubsub_vfl", "dataset=synthetic", "dataset.samples=30000", "dataset.features=500")
    ratio(
        "pubsub: an epoch of 18,000 x 500, over its bare arithmetic",
        partial(seconds_of_rounds, wide, 1),
        partial(bare, wide),
    )
    small = federation("algorithm=pubsub_vfl", "dataset=bank", "dataset.samples=8000", "algorithm.batch_size=1")
    batches = small.task.public.samples
    nothing, made = torch.zeros(1, 1), Embedded(torch.zeros(1), torch.zeros(1, 1))
    methods = Side._embed, Side._backward, Side._learn
    Side._embed = lambda self, rows, waiting: made  # type: ignore[method-assign]
    Side._backward = lambda self, made, rows, dz, steps: None  # type: ignore[method-assign]
    Side._learn = lambda self, rows, zs, steps: (0.0, [nothing])  # type: ignore[method-assign]
    seconds = seconds_of_rounds(small, 1)
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
    seconds_of_rounds(small, 1)  # both of its epochs are counted
    for name, method in methods_of_broker.items():
        setattr(Broker, name, method)
    Side._embed, Side._backward, Side._learn = methods  # type: ignore[method-assign]
    rate = calls.total() / 2 / seconds
    say(
        "pubsub: broker operations a CPU s, workers that compute nothing (at least 20,000)",
        f"{rate:,.0f}",
        rate >= 20_000,
    )
    say("  of them messages published and taken", f"{(calls['publish'] + calls['next']) / 2 / seconds:,.0f}")
    say("  batches, from queue to step", f"{batches / seconds:,.0f}")
