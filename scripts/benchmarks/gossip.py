"""Workers with rows of their own: in one call against a loop over them, and against the bare arithmetic."""

import itertools
import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.common import messages_a_second, ratio, say, topology_config
from vflbench.cards.models import classifiers as classifiers_card

METHODS = ("allreduce_sgd", "centralized_sgd", "easgd", "fedavg", "leasgd", "leasgd_async", "local_sgd")


def seconds(algorithm: str, task: Any, model: Any, device: str, rounds: int, **options: Any) -> float:
    """Seconds of so many rounds of `algorithm` through the federation; a first one is left out."""
    from vflbench import registry
    from vflbench.federation import topology
    from vflbench.federation.simulated import SimulatedEngine
    from vflbench.types import ComputeConfig, EngineConfig, NetworkConfig, PrivacyConfig, RunConfig

    module = registry.load_algorithm(algorithm)
    graph_config = topology_config(registry.algorithms()[algorithm].topologies[0])
    others = NetworkConfig("ideal"), graph_config, PrivacyConfig(), EngineConfig(), ComputeConfig()
    keys = registry.option_config("algorithm", algorithm)(**options)
    config = RunConfig(
        keys,
        None,
        model,
        *others,
        rounds=rounds + 1,
        device=device,
    )  # type: ignore[arg-type]
    marks: list[float] = []

    def on_round(round: int, engine: SimulatedEngine) -> bool:
        marks.append(moment(device))
        return round == rounds + 1  # the last round would be evaluated

    specs = module.parties(task, config)
    servers = [name for name, spec in specs.items() if spec.role == "server"]
    graph = topology.build(graph_config, servers, [name for name in specs if name not in servers], 0)
    SimulatedEngine(
        specs, task.public, config, rounds=rounds + 2, eval_every=rounds + 3, on_round=on_round, device=device,
        connected=graph.connected, neighbours=graph.neighbours,
    ).run()  # fmt: skip
    return marks[-1] - marks[0]


def iteration(algorithm: str, task: Any, model: Any, device: str, count: int = 60, **options: Any) -> float:
    """Seconds of an iteration of `algorithm` through the federation, the least disturbed of 5 runs."""
    steps = task.public.rows[0] // options["batch_size"]
    rounds = max(2, count // steps)
    return min(seconds(algorithm, task, model, device, rounds, **options) for _ in range(5)) / (rounds * steps)


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


class Plain:
    """Gradients in plain torch: perceptrons as rows of w (m, D), stacked, with autograd.

    That is the fastest of the plain forms: a loop over the models, or `torch.func.vmap`, takes longer.
    """

    def __init__(self, model: Any, task: Any) -> None:
        self.widths = list(itertools.pairwise((math.prod(task.public.shape), *model.widths, task.public.outputs)))
        self.sizes = [size for inputs, outputs in self.widths for size in (inputs * outputs, outputs)]

    def pieces(self, w: Any) -> Any:
        """Views of w, one per weight and bias."""
        return w.split(self.sizes, dim=1)

    def gradients(self, w: Any, x: Any, y: Any) -> tuple[Any, Any]:
        """The mean losses (m,), and per piece its gradient."""
        import torch
        import torch.nn.functional as F

        leaves, h = [piece.detach().requires_grad_() for piece in self.pieces(w)], x
        for place, (inputs, outputs) in enumerate(self.widths):
            weight, bias = leaves[2 * place].view(-1, outputs, inputs), leaves[2 * place + 1]
            h = h.relu() if place else h
            if len(w) == 1:  # quicker than a batch of one
                h = F.linear(h[0], weight[0], bias[0])[None]
            else:
                h = torch.baddbmm(bias[:, None], h, weight.transpose(1, 2))
        losses = F.cross_entropy(h.flatten(0, 1), y.flatten(), reduction="none").view(y.shape).mean(dim=1)
        return losses.detach(), torch.autograd.grad(losses.sum(), leaves)

    def descend(self, w: Any, x: Any, y: Any, keep: float, lr: float) -> Any:
        """Set w to keep * w - lr * gradient; returns the losses."""
        losses, gradients = self.gradients(w, x, y)
        w.mul_(keep)
        for piece, gradient in zip(self.pieces(w), gradients, strict=True):
            piece.sub_(gradient, alpha=lr)
        return losses


class Own:
    """The same by the program's own kernel, which has no autograd: quicker than any plain form."""

    def __init__(self, model: Any, task: Any) -> None:
        from vflbench.models import classifiers

        self.network = classifiers.network(model, task.public)
        self.descend = self.network.descend

    def pieces(self, w: Any) -> Any:
        """All of w."""
        return (w,)

    def gradients(self, w: Any, x: Any, y: Any) -> tuple[Any, Any]:
        """As `Plain.gradients`."""
        losses, gradient = self.network.gradients(w, x, y)
        return losses, (gradient,)


def bare(  # noqa: C901  (one plain loop is its point)
    algorithm: str, task: Any, model: Any, device: str, rounds: int, kernel: Any = Plain, **options: Any
) -> float:
    """Seconds of the same rounds as one plain loop: all workers' models stacked, and stepped by `kernel`.

    Of `leasgd_async`, see `bare_clocks`.
    """
    import torch

    from vflbench.models import classifiers

    count, batch, lr, decay = len(task.shards), options["batch_size"], 0.1, 1e-4
    stepper = kernel(model, task)
    init = classifiers.flat(classifiers.build(model, task.public.shape, task.public.outputs, torch.Generator()))
    w = init.repeat(count, 1).to(device)
    x = torch.stack([torch.from_numpy(shard.features) for shard in task.shards]).to(device)
    y = torch.stack([torch.from_numpy(shard.labels) for shard in task.shards]).to(device)
    size, steps = x.shape[1], x.shape[1] // batch
    centre, running = init.clone().to(device), torch.zeros(count, device=device)

    def descend(w: Any, x: Any, y: Any, own: float = 1.0) -> Any:
        return stepper.descend(w, x, y, own - lr * decay, lr)

    def d_psgd(i: int, x: Any, y: Any) -> None:
        mixed = others @ w  # the others' shares of W w, before the step changes w
        descend(w, x, y, own)
        w.add_(mixed)

    def allreduce_sgd(i: int, x: Any, y: Any) -> None:
        for piece, gradient in zip(stepper.pieces(w), stepper.gradients(w, x, y)[1], strict=True):
            piece.sub_(gradient.add_(piece, alpha=decay).mean(dim=0), alpha=lr)

    def easgd(i: int, x: Any, y: Any) -> None:
        pull = (centre - w).mul_(0.9 / count)
        centre.sub_(pull.sum(dim=0))
        descend(w, x, y)
        w.add_(pull)

    def leasgd(i: int, x: Any, y: Any) -> None:
        nonlocal ranks
        if i % 10 == 0:
            ranks = running.argsort(descending=True)
        few = (count - 1) // 2
        followers, leaders = ranks[:few], ranks[few:][torch.randperm(count - few, device=device)[:few]]
        pull = (w[leaders] - w[followers]).mul_(0.5)
        running.mul_(0.9).add_(descend(w, x, y), alpha=0.1)
        w.index_add_(0, followers, pull).index_add_(0, leaders, pull, alpha=-1)

    def alone(i: int, x: Any, y: Any) -> None:
        descend(w, x, y)

    step = {"d_psgd": d_psgd, "allreduce_sgd": allreduce_sgd, "easgd": easgd, "leasgd": leasgd}.get(algorithm, alone)
    if algorithm == "d_psgd":
        matrix = torch.from_numpy(ring(count))
        own = float(matrix[0, 0])  # 1/3, of all workers of a ring
        others = (matrix - own * torch.eye(count)).to(device, torch.float32)
    ranks, every = torch.arange(count, device=device), torch.arange(count, device=device)
    flat = x.flatten(0, 1), y.flatten(0, 1)
    began = moment(device)
    for t in range(rounds):
        who = every
        if algorithm == "fedavg":  # a part of the workers starts from the server's model
            who = torch.randperm(count, device=device)[: round(0.4 * count)]
            w = centre.repeat(len(who), 1)
        order = torch.stack([torch.randperm(size, device=device)[: steps * batch] for _ in who])
        for i, rows in enumerate(order.split(batch, dim=1)):
            at = (who[:, None] * size + rows).flatten()  # index_select is several times as fast as [who, rows]
            step(t * steps + i, *(part.index_select(0, at).unflatten(0, rows.shape) for part in flat))
        if algorithm == "fedavg":
            centre = w.mean(dim=0)
    return moment(device) - began


def bare_clocks(task: Any, model: Any, device: str, rounds: int, kernel: Any = Plain, **options: Any) -> float:
    """Seconds of as many rounds of asynchronous LEASGD: workers step one by one by clocks, and pull a partner."""
    import heapq

    import numpy as np
    import torch

    from vflbench.models import classifiers

    count, batch, lr, decay = len(task.shards), options["batch_size"], 0.1, 1e-4
    stepper = kernel(model, task)
    init = classifiers.flat(classifiers.build(model, task.public.shape, task.public.outputs, torch.Generator()))
    w = init.repeat(count, 1).to(device)
    data = [
        (torch.from_numpy(shard.features).to(device), torch.from_numpy(shard.labels).to(device))
        for shard in task.shards
    ]
    rng, losses = np.random.default_rng(0), np.zeros(count)
    rates = 0.5 + np.arange(count) / (count - 1)  # of wakes per iteration of the mean worker
    alarms = [(rng.exponential(1 / rate), i) for i, rate in enumerate(rates)]
    heapq.heapify(alarms)
    end = rounds * (len(task.shards[0].labels) // batch)
    began = moment(device)
    while alarms[0][0] < end:
        when, i = alarms[0]
        heapq.heapreplace(alarms, (when + rng.exponential(1 / rates[i]), i))
        x, y = data[i]
        rows = torch.from_numpy(rng.choice(len(y), batch, replace=False, shuffle=False)).to(device)
        loss = stepper.descend(w[i : i + 1], x[rows][None], y[rows][None], 1 - lr * decay, lr)
        losses[i] = 0.9 * losses[i] + 0.1 * float(loss)
        followers = np.argsort(-losses)[: (count - 1) // 2]
        pool = followers if i not in followers else np.setdiff1d(np.arange(count), followers)
        j = int(rng.choice(pool))
        pull = (w[j] - w[i]).mul_(0.5)
        w[i].add_(pull)
        w[j].sub_(pull)
    return moment(device) - began


def ring(count: int) -> Any:
    """The matrix W of a ring of so many workers."""
    from vflbench.federation import topology

    return topology.build(topology_config("ring"), [], [f"w{i}" for i in range(count)], 0).mixing()


def gossip() -> None:
    """Every method of workers: 5 of them, mlp3 as conf/ has it, rows of MNIST's width, a fifth of their number.

    The target is about plain torch, which has autograd. A line without target says what the federation costs beside the
    program's own kernel, whose steps take about half of autograd's where batches are small.
    """
    import torch

    torch.set_num_threads(1)
    device, model = "cuda" if torch.cuda.is_available() else "cpu", classifiers_card.Config()
    batches = [(name, batch) for name in ("d_psgd", "leasgd") for batch in (10, 128)]
    for name, batch in [*((name, 32) for name in ("d_psgd", *METHODS)), *batches]:
        several = name != "centralized_sgd"
        made = task(5 if several else 1, 2_200 if several else 11_000, 784)
        options = {"batch_size": batch} | ({"workers": 5} if several else {})
        plain = bare_clocks if name == "leasgd_async" else partial(bare, name)
        shape = "-".join(map(str, (784, *model.widths, 10)))
        text = (
            f"{name}: ms of {made.public.rows[0] // batch} iterations, m = {len(made.shards)}, {shape}, batch {batch}"
        )
        for kernel, over, most in ((Plain, "", 1.3), (Own, ", over its own kernel alone", None)):
            ratio(
                f"{text}, {device}{over}",
                partial(seconds, name, made, model, device, 1, **options),
                partial(plain, made, model, device, 1, kernel, **options),
                most,
                pairs=5,
            )
    made, wide, options = task(15, 320, 784), classifiers_card.Config("mlp3", [200]), {"workers": 15, "batch_size": 32}
    messages_a_second(
        f"allreduce_sgd: 40 iterations, m = 15, 784-200-10, {device}",
        partial(seconds, "allreduce_sgd", made, wide, device, 4, **options),
        partial(bare, "allreduce_sgd", made, wide, device, 4, Own, **options),  # else its speed would hide messages
        messages=40 * 2 * 15 * 14,
    )


def task(workers: int, rows: int, width: int) -> Any:
    """A sharded task of made-up rows in 10 classes."""
    import numpy as np

    from vflbench.data.tasks import Shard, ShardedTask
    from vflbench.types import DataSource, Metric

    rng = np.random.default_rng(0)
    shards = [
        Shard(rng.normal(size=(rows, width)).astype(np.float32), rng.integers(0, 10, rows)) for _ in range(workers)
    ]
    return ShardedTask("made", DataSource("synthetic"), Metric("accuracy", "max"), 10, tuple(shards), {})


def leasgd() -> None:
    import torch

    from vflbench.models import classifiers

    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"

    wide = classifiers_card.Config("mlp3", [200])
    for batch, limit in ((10, 1.8), (32, 1.0), (128, 1.0)):
        made = task(15, 10 * batch, 784)
        one, loop = (
            iteration("local_sgd", made, wide, device, workers=15, batch_size=batch),
            looped(made, wide, batch, device),
        )
        limit = 8.0 if device == "cuda" else limit
        say(f"leasgd: ms, 15 workers of 784-200-10 at once, batch {batch}, {device}", f"{1e3 * one:.2f}")
        say(
            f"  a loop over them, over that, batch {batch} (at least {limit:g})",
            f"{loop / one:.2f}   ({1e3 * loop:.2f} ms)",
            loop / one >= limit,
        )

    public = task(1, 512, 784).public
    net = classifiers.build(wide, public.shape, 10, torch.Generator()).to(device)
    network, theta = classifiers.network(wide, public), classifiers.flat(net)
    x, y = torch.randn(512, 784, device=device), torch.randint(10, (512,), device=device)
    counts = torch.ones(512, device=device)
    took = least(lambda: network.clipped_gradient(theta, x, y, counts, 1.0), device)
    text = f"leasgd: ms, clipped gradients of 512 rows, 784-200-10, {device} (under 116)"
    say(text, f"{1e3 * took:.1f}", took < 0.116)
    single = torch.func.vmap(
        torch.func.grad(lambda w, x, y: network.losses(network.predict(w, x[None]), y[None])[0]), (None, 0, 0)
    )
    say("  per-sample gradients by torch.func alone, ms", f"{1e3 * least(lambda: single(theta, x, y), device, 3):.1f}")

    many = task(1000, 100, 20)
    for name in ("d_psgd", "leasgd"):
        took = iteration(name, many, classifiers_card.Config("logistic"), device, count=10, workers=1000, batch_size=10)
        say(f"leasgd: s, an iteration of {name} with 1,000 workers, {device} (under 1)", f"{took:.3f}", took < 1)
