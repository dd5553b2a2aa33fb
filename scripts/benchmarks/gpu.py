"""A method of each family on a GPU: against one CPU thread, and against its bare arithmetic on the same GPU.

All are seconds of the wall clock, taken when the device has done what it was given.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from benchmarks import gossip
from benchmarks.common import federation, say
from vflbench.cards.models import classifiers as classifiers_card
from vflbench.models import DTYPES
from vflbench.runner.run import Federation

Bare = Callable[[Federation, int, str], Callable[[int], None]]  # (federation, rounds, device) -> round t, from 0


class Timing(NamedTuple):
    """Seconds of a round: on the CPU, on the GPU, and of its bare arithmetic there."""

    family: str
    algorithm: str
    data: str
    cpu_seconds: float
    gpu_seconds: float
    bare_seconds: float


def gpu() -> list[Timing]:
    """Print and return the timings."""
    torch.set_num_threads(1)
    found = []
    for family, measure in FAMILIES.items():
        algorithm, data, cpu, _ = measure("cpu")
        _, _, there, bare = measure("cuda")
        found.append(Timing(family, algorithm, data, cpu, there, bare))
        say(f"gpu: ms a round, {algorithm} on {data}", f"{1e3 * there:.2f}")
        say("  one CPU thread over that", f"{cpu / there:.2f}   ({1e3 * cpu:.2f} ms)")
        say("  over its bare arithmetic on the same GPU", f"{there / bare:.2f}   ({1e3 * bare:.2f} ms)")
    return found


def moment(device: str) -> float:
    """Seconds of the wall clock, once the device is done."""
    if device != "cpu":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def timed(
    words: Sequence[str], bare: Bare, device: str, rounds: int, repeats: int = 3
) -> tuple[str, str, float, float]:
    """Algorithm, data, and seconds of a round: through the federation, and bare. The least of some repeats each.

    The first round, with what is set up before it, and scoring are left out.
    """
    made = federation(*words, f"device={device}", f"rounds={rounds + 2}")
    whole, alone = [], []
    for _ in range(repeats):
        ends: list[float] = []

        def on_round(t: int, _: object, ends: list[float] = ends) -> bool:
            ends.append(moment(device))
            return t == rounds + 1

        made.engine(eval_every=rounds + 3, on_round=on_round).run()
        whole.append((ends[-1] - ends[0]) / rounds)
        step = bare(made, rounds + 1, device)
        step(0)
        began = moment(device)
        for t in range(1, rounds + 1):
            step(t)
        alone.append((moment(device) - began) / rounds)
    data = f"{made.config.dataset.name} ({made.task.source.kind})"
    return made.info.name, data, min(whole), min(alone)


# --- the families -----------------------------------------------------------------------------------------------------


def graph(device: str, rounds: int = 30, words: Sequence[str] = ("dataset=cora",)) -> tuple[str, str, float, float]:
    """GLASU, one local step a round."""
    return timed(["algorithm=glasu", "algorithm.local_steps=1", *words], bare_glasu, device, rounds)


def joins(
    device: str, rounds: int = 3, words: Sequence[str] = ("dataset=star_schema", "dataset.rows=20000")
) -> tuple[str, str, float, float]:
    """RFL-SGD-V, an epoch a round."""
    return timed(["algorithm=rfl_sgd_v", *words], bare_joins, device, rounds)


def tokens(
    device: str, rounds: int = 5, words: Sequence[str] = ("dataset=star_schema", "dataset.rows=20000")
) -> tuple[str, str, float, float]:
    """SVFL with a network per client."""
    more = ["model=split_mlp", "algorithm.parties=3", "algorithm.lr=0.01"]
    return timed(["algorithm=svfl", *more, *words], bare_svfl, device, rounds)


def split(
    device: str, rounds: int = 1, words: Sequence[str] = ("dataset=star_schema", "dataset.rows=4000")
) -> tuple[str, str, float, float]:
    """Split learning with a worker per party, an epoch a round."""
    return timed(["algorithm=vfl", "model=mlp10", *words], bare_split, device, rounds)


def workers(device: str, count: int = 15, batch: int = 32, width: int = 784) -> tuple[str, str, float, float]:
    """D-PSGD on a ring; a round is an iteration."""
    from vflbench.data.tasks import Shard, ShardedTask
    from vflbench.types import DataSource, Metric

    rng, rows = np.random.default_rng(0), 10 * batch
    shards = [Shard(rng.normal(size=(rows, width)).astype(np.float32), rng.integers(0, 10, rows)) for _ in range(count)]
    task = ShardedTask("made", DataSource("synthetic"), Metric("accuracy", "max"), 10, tuple(shards), {})
    model = classifiers_card.Config("mlp3", [200])
    whole = gossip.iteration("d_psgd", task, model, device, workers=count, batch_size=batch)
    bare = min(gossip.bare("d_psgd", task, model, device, 6, gossip.Own, batch_size=batch) / 60 for _ in range(5))
    return "d_psgd", f"{count} workers, made up", whole, bare


FAMILIES = {"graph": graph, "joins": joins, "tokens": tokens, "gossip": workers, "split": split}


# --- their arithmetic in plain torch ----------------------------------------------------------------------------------


def bare_glasu(made: Federation, rounds: int, device: str) -> Callable[[int], None]:
    """GLASU's networks and their sum on the neighbours that the parties sampled in as many rounds."""
    from vflbench.algorithms.graph.graph_learner import GraphLearner, make_optimizer, update
    from vflbench.algorithms.graph.joint import Aggregation, aggregation_layers
    from vflbench.models import gnn

    cfg, task = made.config.algorithm, made.task
    count, dtype = task.parties, DTYPES[made.config.model.dtype]
    ends = aggregation_layers(cfg.layers, cfg.aggregations, cfg.aggregation_layers)
    aggregation, inputs = Aggregation(cfg.aggregate, count), GraphLearner.inputs
    drawn: dict[int, list[Any]] = defaultdict(list)  # by learner, in the order of clients

    def recording(self: GraphLearner, levels: Any, sampled: Any) -> Any:
        drawn[id(self)].append((levels, sampled))
        return inputs(self, levels, sampled)

    GraphLearner.inputs = recording  # type: ignore[method-assign]
    try:
        made.engine(rounds=rounds, eval_every=rounds + 1).run()
    finally:
        GraphLearner.inputs = inputs  # type: ignore[method-assign]
    sampled, parts = list(drawn.values()), [task.part(m) for m in range(count)]
    features = [gnn.Features(part.features, device, dtype) for part in parts]
    labels = torch.tensor(parts[0].labels, device=device)
    masks = [torch.Generator().manual_seed(m) for m in range(count)]
    models = [
        gnn.build(
            made.config.model, features[m].width, task.classes, cfg.layers, ends, masks[m], device,
            aggregation.columns(made.config.model.hidden, m),
        )
        for m in range(count)
    ]  # fmt: skip
    optimizers = [make_optimizer(cfg, model) for model in models]

    def step(t: int) -> None:
        blocks = [[gnn.adjacency(b, device, dtype) for b in own[t][1]] for own in sampled]
        hidden = [
            m.start(f.rows(own[t][0][0]), g) for m, f, own, g in zip(models, features, sampled, masks, strict=True)
        ]
        y, starts = labels[torch.from_numpy(sampled[0][t][0][-1]).to(device)], list(hidden)
        for segment in range(len(ends)):
            for m, model in enumerate(models):
                hidden[m], starts[m] = model.segment(segment, blocks[m], hidden[m], starts[m], masks[m])
            total = aggregation.combine([h.detach() for h in hidden])
            others = [aggregation.extract(total, h.detach(), m) for m, h in enumerate(hidden)]
            hidden = [aggregation.insert(others[m], h, m) for m, h in enumerate(hidden)]
        for m, model in enumerate(models):
            update(optimizers[m], F.cross_entropy(model.classify(hidden[m], masks[m]), y))
            float(hidden[m].detach()[0, 0])  # the loss is read in every round

    return step


def bare_joins(made: Federation, rounds: int, device: str) -> Callable[[int], None]:
    """The sum of linear models of the tables on contiguous batches of joined rows, whose rows are found once."""
    from vflbench.data.tasks.join import hand_over, join, unite

    task, cfg, dtype = made.task, made.config.algorithm, DTYPES[made.config.model.dtype]
    keys, xs = {}, []
    for table, clients in zip(task.tables, task.public.parts, strict=True):
        parts = [task.clients[c] for c in clients]
        keys[table] = unite([hand_over(part.keys, part.rows, "none", table) for part in parts], table)
        xs.append(torch.cat([torch.from_numpy(np.asarray(part.features)) for part in parts]).to(device, dtype))
    behind = join(keys, task.joins, task.label_table)
    every = [np.asarray(part.labels) for part in task.clients if part.labels is not None]
    labels = torch.from_numpy(np.concatenate(every)[np.asarray(behind[task.label_table])]).to(device)
    outputs, classes = task.public.outputs, task.public.classes
    y = labels.long() if classes else labels.to(dtype)
    weights = [torch.zeros(x.shape[1], outputs, dtype=dtype, device=device) for x in xs]
    found = []  # per batch its labels, and per table the rows behind it and their places
    for first in range(0, len(y), cfg.batch_size):
        part = slice(first, first + cfg.batch_size)
        pairs = (np.unique(np.asarray(behind[table])[part], return_inverse=True) for table in task.tables)
        found.append((y[part], [tuple(torch.from_numpy(one).to(device) for one in pair) for pair in pairs]))

    def step(t: int) -> None:
        for labels, rows in found:
            z = sum((x[own] @ w)[places] for x, w, (own, places) in zip(xs, weights, rows, strict=True))
            slope = torch.softmax(z, 1) - F.one_hot(labels, outputs) if classes else z - labels[:, None]
            float(F.cross_entropy(z, labels) if classes else slope.square().mean() / 2)
            for x, w, (own, places) in zip(xs, weights, rows, strict=True):
                residual = slope.new_zeros(len(own), outputs).index_add_(0, places, slope)
                w.mul_(1 - cfg.lr * cfg.weight_decay).sub_(x[own].T @ residual, alpha=cfg.lr / len(labels))

    return step


def bare_svfl(made: Federation, rounds: int, device: str) -> Callable[[int], None]:
    """All representations and their sum, then the steps of every network, each with the others' sum frozen."""
    from vflbench.models import split_network
    from vflbench.models.vertical import criterion

    task, cfg, public = made.task, made.config.algorithm, made.task.public
    model = split_network.resolve(made.config.model, task)
    clients = [
        split_network.SplitClient(k, task.part(k, share_labels=True), public, made.decided, model, device)
        for k in range(task.parties)
    ]
    centre = split_network.SplitServer(task.labels, public, made.decided, model, device)
    y = centre.y

    def step(t: int) -> None:
        hs = [client.local(client.x) for client in clients]
        total = centre.aggregation.aggregate([h.detach() for h in hs])
        for k, client in enumerate(clients):
            own = list(client.local.parameters())
            others = centre.aggregation.without(total, hs[k].detach())
            for q in range(cfg.local_steps):
                h = client.local(client.x) if q else hs[k]
                loss = criterion(centre.fusion(centre.aggregation.put(others, h, k)), y, public.classes)
                split_network.descend(own, loss, cfg.lr)
        own = list(centre.fusion.parameters())
        for _ in range(cfg.local_steps if own else 0):
            split_network.descend(own, criterion(centre.fusion(total), y, public.classes), cfg.lr)
        float(total[0, 0])

    return step


def bare_split(made: Federation, rounds: int, device: str) -> Callable[[int], None]:
    """The parties' forward passes, the loss, their backward passes and steps of every batch; rows come from the CPU."""
    from vflbench.models import split_learning
    from vflbench.seeding import batches

    task, cfg, public, config = made.task, made.config.algorithm, made.task.public, made.config.model
    generator = torch.Generator().manual_seed(0)
    blocks = [np.asarray(block) for block in task.features]
    passive = [split_learning.Passive(config, block.shape[1:], generator).to(device) for block in blocks[1:]]
    active = split_learning.Active(config, blocks[0].shape[1:], public, task.labels, generator).to(device)
    optimisers = [torch.optim.Adam([model.theta], cfg.lr) for model in (active, *passive)]

    def step(t: int) -> None:
        for rows in batches(0, t, public.samples, cfg.batch_size):
            x, *xs = (torch.from_numpy(block[rows]).to(device, active.theta.dtype) for block in blocks)
            y = torch.from_numpy(task.labels[rows]).to(device)
            made = [model.embed(own) for model, own in zip(passive, xs, strict=True)]
            _, active.theta.grad, dzs = active.gradients(x, y, [one.z.detach() for one in made])
            for model, one, dz in zip(passive, made, dzs, strict=True):
                model.theta.grad = torch.autograd.grad(one.z, one.theta, dz)[0]
            for optimiser in optimisers:
                optimiser.step()

    return step
