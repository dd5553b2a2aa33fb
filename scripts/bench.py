"""Benchmarks: `python scripts/bench.py [engine] [glasu] [tablepuppet] [mtcd] [leasgd] [pubsub] [reprice] [report]
[start] [ray] [broker]`.

Rates or ratios, one torch thread.

engine  messages of 100 bytes a second through me.send and me.recv, links and ledger on, with 3 and with 1,000 parties
glasu   a GLASU round on Cora against the bare tensor arithmetic of the same round: the same batches, no parties, no
    messages
tablepuppet  an epoch of learning over joins at MovieLens-1M's size and beside a plain loop over rows, the table
        mapping, and how an epoch's time grows with the joined rows while the tables stay as they are
mtcd    a hop of a token against the bare matrix-vector products of its local steps, 100,000 hops over 1,000 clients,
        and the cost of a hop from 10 to 10,000 clients; seconds to render the twelve views of a mesh, and of voxel
        grids
leasgd  workers in one call against a loop over them, a D-PSGD iteration against its bare arithmetic, clipped gradients,
        1,000 workers; on a GPU where there is one
pubsub  an epoch of PubSub-VFL on 700,000 rows of 500 columns against the bare arithmetic of its batches, and
        publish/subscribe operations a second through hubs and workers that compute nothing
reprice  CPU seconds of `vflbench reprice` for a run of 1,000,000 messages: the whole command, and without start and
    pictures
report  seconds of `vflbench report` over 200 runs, trained ones copied with other seeds; megabytes of a page of 50
start   CPU seconds of `vflbench --help` and `vflbench list`
ray     a message between two parties in processes of their own against a bare call between two Ray actors, there and
        back; GLASU on Cora through Ray, after start-up, against the simulated engine; needs vflbench[ray], and is left
        out of a run of all without it
broker  embeddings of 64 KB from a publisher's process to a subscriber's through a NATS server of its own, and by Ray's
        calls alone; needs vflbench[ray,broker], and is left out of a run of all without them
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import resource
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vflbench.runner.run import Federation

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


def topology_config(name: str) -> Any:
    from vflbench import registry

    return registry.option_config("topology", name)(name)


def say(name: str, value: str) -> None:
    print(f"{name:64} {value}", flush=True)


# --- engine -----------------------------------------------------------------------------------------------------------


def messages_per_second(parties: int, rounds: int, per_round: int) -> float:
    """A star whose clients send 100 bytes up and get 100 bytes down, `per_round` times a round; CPU seconds of one
    core."""
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

    specs = {"server": PartySpec(server, role="server")} | {
        f"client_{i:04d}": PartySpec(client) for i in range(parties - 1)
    }
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
    """GLASU on Cora, K = 2, through the federation and bare; both draw batches and neighbours alike, from streams of
    their own."""
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
            # of rounds: the first one, with what is set up before it, is left out, as in the bare loop
            ends: list[float] = []

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


def bare_glasu(federation: Federation, rounds: int) -> float:  # noqa: C901  (one plain loop is its point)
    """CPU seconds of the rounds' tensor arithmetic as one plain loop, given the sampled node ids and edges."""
    import asyncio

    import numpy as np
    import torch
    import torch.nn.functional as F

    from vflbench.algorithms.graph.joint import Aggregation, aggregation_layers, forward
    from vflbench.algorithms.graph.shared import make_optimizer, update
    from vflbench.data.graph.sampling import Graph, sample_blocks, union
    from vflbench.models import DTYPES, gnn

    cfg, model_config, task = federation.config.algorithm, federation.config.model, federation.task
    count, dtype = task.parties, DTYPES[model_config.dtype]
    ends = aggregation_layers(cfg.layers, cfg.aggregations, cfg.aggregation_layers)
    aggregation = Aggregation(cfg.aggregate, count)
    parts = [task.part(m) for m in range(count)]
    features = [gnn.Features(part.features, "cpu", dtype) for part in parts]
    labels = torch.tensor(parts[0].labels)
    generators = [torch.Generator().manual_seed(m) for m in range(count)]
    hidden_columns = [aggregation.columns(model_config.hidden, m) for m in range(count)]
    models = [
        gnn.build(
            model_config, features[m].width, task.classes, cfg.layers, ends, generators[m], "cpu", hidden_columns[m]
        )
        for m in range(count)
    ]
    optimizers = [make_optimizer(cfg, model) for model in models]
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

        sampled = await asyncio.gather(
            *(sample_blocks(graph, batch, cfg.layers, cfg.fanout, rng, unite, None) for graph in graphs)
        )
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
            update(optimizers[m], F.cross_entropy(model.classify(hidden[m], generators[m]), y))
            for _ in range(1, cfg.local_steps):

                def merge(segment: int, h: torch.Tensor, m: int = m, stale: list = others[m]) -> torch.Tensor:
                    return aggregation.insert(stale[segment], h, m)

                x, blocks = inputs[m]
                update(optimizers[m], F.cross_entropy(forward(model, x, blocks, generators[m], merge), y))
    return time.process_time() - began


# --- tablepuppet ------------------------------------------------------------------------------------------------------


def epochs(algorithm: str, task: Any, count: int = 4, dtype: str = "float64", **options: Any) -> list[float]:
    """CPU seconds of every epoch but the first, which also maps the tables and factors what stays."""
    from vflbench import registry
    from vflbench.federation.simulated import SimulatedEngine
    from vflbench.models.partial import Config as ModelConfig
    from vflbench.types import ComputeConfig, EngineConfig, NetworkConfig, PrivacyConfig, RunConfig

    module = registry.load_algorithm(algorithm)
    others = NetworkConfig(), topology_config("star"), PrivacyConfig(), EngineConfig(), ComputeConfig()
    config = RunConfig(module.Config(**options), None, ModelConfig(dtype=dtype), *others, rounds=count, device="cpu")  # type: ignore[arg-type]
    marks: list[float] = []

    def on_round(round: int, engine: SimulatedEngine) -> bool:
        marks.append(time.process_time())
        return False

    specs = module.parties(task, config)
    SimulatedEngine(specs, task.public, config, rounds=count, seed=0, eval_every=10 * count, on_round=on_round).run()
    return [after - before for before, after in itertools.pairwise(marks)]


def joined(task: Any, how: str) -> tuple[float, Any]:
    """CPU seconds of the table mapping: keys as clients hand them over, united and joined. And how many rows join."""
    from vflbench.data.relational.join import hand_over, join, unite

    began = time.process_time()
    keys = {}
    for table, clients in zip(task.tables, task.public.parts, strict=True):
        keys[table] = unite([hand_over(task.clients[c].keys, task.clients[c].rows, how, table) for c in clients], table)
    behind = join(keys, task.joins, task.label_table)
    return time.process_time() - began, behind


def clients_half(task: Any, count: int = 9) -> float:
    """CPU seconds an epoch that the clients of `rfl_admm_v` spend on their updates, all together."""
    from vflbench.algorithms.joins.admm import ThetaUpdate

    spent: list[float] = []
    update = ThetaUpdate.__call__

    def timed(self: ThetaUpdate, *args: Any) -> None:
        began = time.process_time()
        update(self, *args)
        spent.append(time.process_time() - began)

    ThetaUpdate.__call__ = timed  # type: ignore[method-assign]
    try:
        epochs("rfl_admm_v", task, count)
    finally:
        ThetaUpdate.__call__ = update  # type: ignore[method-assign]
    tables = len(task.tables)
    return statistics.median(sum(spent[at : at + tables]) for at in range(tables, len(spent), tables))


def row_by_row(task: Any, behind: Any, rows: int) -> float:
    """CPU seconds a joined row of the server's half of an epoch, written as a plain loop over joined rows."""
    h = [{} for _ in task.tables]  # type: ignore[var-annotated]
    places = [behind[table][:rows].tolist() for table in task.tables]
    for table, place in enumerate(places):
        h[table] = dict.fromkeys(place, 0.1)
    y = [3.0] * rows
    z, dual, sums = [0.0] * rows, [0.0] * rows, [dict.fromkeys(place, 0.0) for place in places]
    began = time.process_time()
    for j in range(rows):
        own = [h[table][places[table][j]] for table in range(len(places))]
        total = sum(own)
        z[j] = (y[j] + dual[j] + total) / 2
        dual[j] += total - z[j]
        for table in range(len(places)):
            sums[table][places[table][j]] += dual[j] + total - own[table] - z[j]
    return (time.process_time() - began) / rows


def tablepuppet() -> None:
    import logging

    import numpy as np

    from vflbench.data.relational import movielens, star_schema
    from vflbench.data.tasks import RelationalTask

    logging.disable(logging.WARNING)  # that the twin is made up
    twin = movielens.load(movielens.Config(source="synthetic", variant="1m"), "relational", 1, 0, None)
    assert isinstance(twin, RelationalTask)
    for how, limit in (("none", "0.5"), ("sha256", "1.5")):
        seconds = min(joined(twin, how)[0] for _ in range(3))
        name = "integer keys" if how == "none" else "hashed keys"
        say(f"tablepuppet: CPU s, mapping of MovieLens-1M's size, {name} (under {limit})", f"{seconds:.2f}")
    behind = joined(twin, "none")[1]
    total = len(behind["ratings"])
    exact, sgd = epochs("rfl_admm_v", twin, solver="exact"), epochs("rfl_admm_v", twin)
    say("tablepuppet: CPU s, RFL-ADMM-V epoch, exact (under 0.3)", f"{statistics.median(exact):.2f}")
    say(
        "tablepuppet: CPU s, RFL-ADMM-V epoch, 10 local epochs of batch 1,024 (under 3)",
        f"{statistics.median(sgd):.2f}",
    )
    say("tablepuppet: CPU s, RFL-SGD-V epoch, batch 10,240", f"{statistics.median(epochs('rfl_sgd_v', twin)):.2f}")
    plain = row_by_row(twin, behind, 100_000) * total
    say(f"tablepuppet: the server's half by a plain loop over {total:,} rows, CPU s", f"{plain:.2f}")
    say("tablepuppet: that over the whole exact epoch", f"{plain / statistics.median(exact):.1f}")

    sizes, halves = [], []
    for duplication in (1, 4, 16, 64):
        config = star_schema.Config(rows=20_000, dimension_rows=6_400, duplication=duplication, width=16)
        task = star_schema.load(config, "relational", 1, 0, None)
        assert isinstance(task, RelationalTask)
        sizes.append(len(joined(task, "none")[1]["facts"]))
        whole, clients = statistics.median(epochs("rfl_admm_v", task, count=9)), clients_half(task)
        halves.append((clients, whole - clients))
        numbers = f"{clients * 1e3:.1f} {(whole - clients) * 1e3:.1f}"
        say(
            f"tablepuppet: duplication {duplication}, {sizes[-1]:,} joined rows: CPU ms an epoch, clients server",
            numbers,
        )
    slopes = []
    # the server's is a difference of two times: where that is lost in noise it says nothing
    for half in zip(*halves, strict=True):
        pairs = [(size, seconds) for size, seconds in zip(sizes, half, strict=True) if seconds > 0]
        slopes.append(float(np.polyfit(*np.log(np.transpose(pairs)), 1)[0]))
    say(
        "tablepuppet: slope of log time over log joined rows (1: linear), clients server",
        f"{slopes[0]:.2f} {slopes[1]:.2f}",
    )

    big = star_schema.load(
        star_schema.Config(rows=1_115_000, dimension_rows=64_000, duplication=64, width=1), "relational", 1, 0, None
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    _, behind = joined(big, "none")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    say(
        f"tablepuppet: s, mapping of {len(behind['facts']):,} joined rows (under 60)",
        f"{time.perf_counter() - began:.1f}",
    )
    say("tablepuppet: peak memory of this process, GB (under 8)", f"{max(before, peak) / 2**20:.1f}")


# --- mtcd -------------------------------------------------------------------------------------------------------------


def token_hops(clients: int, width: int, hops: int, rounds: int, samples: int = 1000, local_steps: int = 20) -> float:
    """CPU seconds a hop of STCD on a ring of `clients` with `width` columns each, after the first round."""
    import numpy as np

    from vflbench.algorithms.tokens import stcd
    from vflbench.data.tasks import AlignedTask, Objective
    from vflbench.federation import topology
    from vflbench.federation.simulated import SimulatedEngine
    from vflbench.types import ComputeConfig, DataSource, EngineConfig, Metric, NetworkConfig, PrivacyConfig, RunConfig

    rng = np.random.default_rng(0)
    blocks = tuple(rng.normal(size=(samples, width)) / np.sqrt(samples) for _ in range(clients))
    metric, objective = Metric("suboptimality", "min"), Objective("ridge", 1.0)
    task = AlignedTask(
        "ridge", DataSource("synthetic"), metric, 0, 0, blocks, rng.normal(size=samples), {}, {}, objective, 1.0
    )
    others = NetworkConfig("ideal"), topology_config("ring"), PrivacyConfig(), EngineConfig(), ComputeConfig()
    algorithm = stcd.Config(parties=clients, hops=hops, local_steps=local_steps)
    config = RunConfig(algorithm, None, None, *others, rounds=rounds + 1, device="cpu")
    marks: list[float] = []

    def on_round(round: int, engine: SimulatedEngine) -> bool:
        marks.append(time.process_time())
        return round == rounds + 1  # the last round would be evaluated

    specs = stcd.parties(task, config)
    graph = topology.build(config.topology, [], list(specs), 0)
    SimulatedEngine(
        specs, task.public, config, rounds=rounds + 2, eval_every=10 * rounds, connected=graph.connected,
        neighbours=graph.neighbours,
        on_round=on_round,
    ).run()  # fmt: skip
    return (marks[-1] - marks[0]) / (rounds * hops)


def bare_products(
    width: int, samples: int = 1000, local_steps: int = 20, clients: int = 40, repeats: int = 1000
) -> float:
    """CPU seconds of the two matrix-vector products of `local_steps` steps, over the blocks of `clients`."""
    import numpy as np

    rng = np.random.default_rng(0)
    blocks = [rng.normal(size=(samples, width)) for _ in range(clients)]
    u, theta = rng.normal(size=samples), rng.normal(size=width)
    began = time.process_time()
    for i in range(repeats):
        x = blocks[i % clients]
        for _ in range(local_steps):
            x.T @ u
            x @ theta
    return (time.process_time() - began) / repeats


def mtcd() -> None:
    hops, bare = [], []
    for _ in range(5):
        hops.append(token_hops(40, 50, hops=500, rounds=2))
        bare.append(bare_products(50))
    say("mtcd: us a hop, N = 1,000, d_k = 50, Q = 20, 40 clients on a ring", f"{1e6 * min(hops):.0f}")
    say(
        "  over its bare matrix-vector products (at most 1.5)",
        f"{min(hops) / min(bare):.2f}   ({1e6 * min(bare):.0f} us)",
    )
    seconds = 100_000 * token_hops(1000, 2, hops=10_000, rounds=10)
    say("mtcd: CPU s, 100,000 hops over 1,000 clients, d_k = 2, Q = 20 (at most 60)", f"{seconds:.1f}")
    sizes, many, few = (10, 100, 1000, 10_000), 50_000, 5_000
    small: dict[int, list[float]] = {clients: [] for clients in sizes}
    large: dict[int, list[float]] = {clients: [] for clients in sizes}
    for _ in range(3):  # in turn, so that a slow minute of the machine is everyone's
        for clients in sizes:
            small[clients].append(few * token_hops(clients, 2, hops=few, rounds=1, samples=100, local_steps=1))
            large[clients].append(many * token_hops(clients, 2, hops=many, rounds=1, samples=100, local_steps=1))
    for clients in sizes:  # without what a round costs, token or no token: that is the difference
        hop = (min(large[clients]) - min(small[clients])) / (many - few)
        say(f"mtcd: us a hop of one local step, N = 100, d_k = 2, {clients:,} clients (flat)", f"{1e6 * hop:.1f}")
    boundary = min(5 * token_hops(10_000, 2, hops=5, rounds=1, samples=100, local_steps=1) for _ in range(3)) / 10_000
    say("mtcd: us that a round costs each of 10,000 clients, of which a token visits 6", f"{1e6 * boundary:.1f}")
    views()


def views() -> None:
    """Twelve views of a mesh of 7,168 faces, and of as many voxel grids as ModelNet10 has."""
    import numpy as np
    import trimesh

    from vflbench.data.shapes.views import VIEWS, mesh_views, side_by_side, voxel_view

    torus = trimesh.creation.torus(1, 0.4, major_sections=64, minor_sections=56)
    vertices, faces = np.asarray(torus.vertices), np.asarray(torus.faces)
    for size, target in ((64, " (at most 0.05)"), (224, "")):
        seconds = []
        for _ in range(12):  # the first one imports the ray caster
            began = time.process_time()
            mesh_views(vertices, faces, size, "torus")
            seconds.append(time.process_time() - began)
        say(
            f"mtcd: CPU s, 12 views of {len(faces):,} faces, {size} px{target}", f"{statistics.median(seconds[1:]):.3f}"
        )
    grids = np.zeros((4_899, 32, 32, 32), bool)
    grids[:, 8:24, 8:24, 8:24] = True
    began = time.process_time()
    full = side_by_side(grids)
    for view in range(VIEWS):
        voxel_view(full, 64, view)
    say(f"mtcd: CPU s, 12 depth views of {len(grids):,} voxel grids, 64 px", f"{time.process_time() - began:.1f}")


# --- leasgd -----------------------------------------------------------------------------------------------------------


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


# --- pubsub -----------------------------------------------------------------------------------------------------------


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


# --- reprice ----------------------------------------------------------------------------------------------------------


def large_run(folder: Path, messages: int, clients: int = 20, per_round: int = 500) -> None:
    """The folder of a finished run of so many messages between a server and clients that also compute; nothing is
    trained."""
    import dataclasses

    import numpy as np

    from vflbench import config
    from vflbench.federation.accounting import Payload
    from vflbench.federation.clock import ComputeClock
    from vflbench.federation.ledger import sort_ledger
    from vflbench.federation.links import LINK_KINDS
    from vflbench.federation.party import Party, PartySpec
    from vflbench.federation.simulated import SimulatedEngine
    from vflbench.results import folder as files
    from vflbench.results.identity import config_hash
    from vflbench.runner.costs import Costs, Standing
    from vflbench.types import ComputeConfig, DataSource, LinkConfig, Metric, NetworkConfig

    payload = np.zeros(25, np.float32)

    async def server(me: Party, _data: None, _public: None, _config: None) -> None:
        async for _ in me.rounds():
            for _ in range(per_round):
                await me.recv_all(me.clients, "up")
                await me.send_many(me.clients, payload, "down")

    async def client(me: Party, _data: None, _public: None, _config: None) -> None:
        async for _ in me.rounds():
            for _ in range(per_round):
                await me.compute(lambda: None, cost=1.0)
                await me.send("server", payload, "up")
                await me.recv("server", "down")

    with config.session() as hydra:
        values = config.plain(config.plan(hydra, ["dataset=digits_graph"]).cfg)
    rounds = messages // (2 * clients * per_round)
    specs = {"server": PartySpec(server, role="server")} | {
        f"client_{i:02d}": PartySpec(client) for i in range(clients)
    }
    network = NetworkConfig("us_uk", LinkConfig(136.0, 0.42), LinkConfig(136.0, 0.42))
    ends: list[float] = []

    def on_round(round: int, engine: SimulatedEngine) -> bool:
        ends.append(engine.boundary_clock)
        return False

    made = SimulatedEngine(
        specs, network=network, rounds=rounds, clock=ComputeClock("modelled", ComputeConfig()), on_round=on_round
    )
    made.run()
    ledger, traces, tags = sort_ledger(made.ledger.take()), made.take_trace(), list(made.tags)
    parties = {name: Standing(spec.role) for name, spec in specs.items()}
    costs = Costs(ledger, traces, parties, network, "strict", Payload(tags, 4, 1))
    scores = [
        {"round": r, "virtual_seconds": ends[r - 1], "val_accuracy": 0.5, "test_accuracy": 0.5}
        for r in range(1, rounds + 1)
    ]
    curve = costs.curve(scores)
    files.prepare(folder)
    files.ledger_parquet(folder / "ledger.parquet", ledger.T, list(specs), tags, LINK_KINDS)
    files.trace_parquet(folder / "trace.parquet", traces)
    files.write_curve(folder / "curve.csv", curve, "accuracy")
    manifest = {
        "schema": files.SCHEMA,
        "config": values,
        "config_hash": config_hash(values),
        "rounds": rounds,
        "cores": 0,
    }
    manifest |= {"parties": {name: dataclasses.asdict(party) for name, party in parties.items()}}
    files.write_json(folder / "manifest.json", manifest)
    summary = files.summarise(
        status="completed", algorithm="glasu", dataset="digits_graph", source=DataSource("synthetic"),
        metric=Metric("accuracy", "max"),
        seed=0,
        rows=curve, rounds=rounds, wall_seconds=0.0, compute_clock="modelled", timing="causal", accounting="strict",
        device="cpu",
        **costs.summary(rounds, ends[-1]),
    )  # fmt: skip
    files.write_json(folder / "summary.json", summary)


def reprice() -> None:
    import tempfile

    from vflbench.runner.reprice import Profile
    from vflbench.runner.reprice import reprice as repriced

    with tempfile.TemporaryDirectory() as name:
        large_run(Path(name) / "large", 1_000_000)
        command = [str(Path(sys.executable).parent / "vflbench"), "reprice", "large", "network=us_us", "overwrite=true"]
        whole, own = [], []
        profile = Profile(
            {"network": "us_us"},
            {"name": "us_us", **{k: {"latency_ms": 67.0} for k in ("client_server", "client_client")}},
        )
        for _ in range(3):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True, cwd=name)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            whole.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
            began = time.process_time()
            refusals: list[str] = []
            repriced(
                [f"{name}/large"], [profile], Path(name) / "out", command="", overwrite=True, refused=refusals.append
            )
            own.append(time.process_time() - began)
            assert not refusals, refusals
        say(
            "reprice: CPU s, 1,000,000 messages, reading and writing included (under 5)",
            f"{statistics.median(own):.2f}",
        )
        say("  the whole command, with start and pictures", f"{statistics.median(whole):.2f}")


# --- report -----------------------------------------------------------------------------------------------------------


def copies(runs: list[Path], count: int, into: Path) -> None:
    """`count` run folders, those of `runs` in turn, each with a seed of its own, without the files that a report does
    not read."""
    import json
    import shutil

    for number in range(count):
        source, folder = runs[number % len(runs)], into / str(number)
        folder.mkdir(parents=True)
        for name in ("curve.csv", "ledger.parquet", "trace.parquet"):
            shutil.copy(source / name, folder / name)
        manifest, summary = (json.loads((source / name).read_text()) for name in ("manifest.json", "summary.json"))
        manifest["config"]["seed"] = summary["seed"] = number
        for name, values in (("manifest.json", manifest), ("summary.json", summary)):
            (folder / name).write_text(json.dumps(values))


def report() -> None:
    import tempfile

    import vflbench
    from vflbench.results import reader

    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        small = [
            "dataset=ridge",
            "dataset.samples=200",
            "dataset.features=100",
            "topology=path",
            "rounds=50",
            "eval_every=1",
        ]
        kinds = {"svfl": 5, "stcd": 5, "mtcd": 5}
        for name, parties in kinds.items():
            vflbench.run(
                [
                    f"algorithm={name}",
                    *small,
                    f"algorithm.parties={parties}",
                    f"hydra.run.dir={root / 'trained' / name}",
                ]
            )
        trained = [root / "trained" / name for name in kinds]
        for count in (200, 50):
            copies(trained, count, root / str(count))
            page = root / f"{count}.html"
            code = "from vflbench.cli import main; main()"
            before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            command = [sys.executable, "-c", code, "report", str(root / str(count)), "--out", str(page)]
            environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent)}
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env=environment)
            seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
            used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            size = page.stat().st_size / 1e6
            limit = " (under 10)" if count == 200 else ""
            say(f"report: s, {count} runs of 50 evaluations{limit}", f"{seconds:.1f}   ({used:.1f} s of CPU)")
            say(f"  MB of the page{' (under 3)' if count == 50 else ''}", f"{size:.2f}")
        messages = statistics.mean(len(reader.load(folder).ledger) for folder in trained)
        say("  messages a run, on average", f"{messages:,.0f}")


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


# --- ray --------------------------------------------------------------------------------------------------------------


async def there(me: Any, data: Any, count: int, size: int) -> None:
    """Sends `size` bytes and waits for them to come back, `count` times; reports the seconds of one way."""
    import time

    import numpy as np

    payload = np.zeros(size, np.uint8)
    async for _ in me.rounds():
        began = time.perf_counter()
        for _ in range(count):
            await me.send("back", payload, "x")
            await me.recv("back", "x")
        me.report(facts={"seconds": (time.perf_counter() - began) / count / 2})


async def back(me: Any, data: Any, count: int, size: int) -> None:
    async for _ in me.rounds():
        for _ in range(count):
            await me.send("there", await me.recv("there", "x"), "x")


def two_parties(count: int, size: int, name: str) -> dict[str, Any]:
    from vflbench.federation.party import PartySpec
    from vflbench.federation.ray.party import elsewhere

    specs = {
        party: PartySpec(program if party == name else elsewhere)
        for party, program in (("there", there), ("back", back))
    }
    return {"specs": specs, "public": count, "config": size, "rounds": 5, "threads": 1}


class Bare:
    """An actor that calls another one, which answers with a number."""

    async def take(self, data: Any) -> float:
        return float(len(data))

    async def call(self, other: Any, count: int, size: int) -> float:
        import time

        import numpy as np

        payload = np.zeros(size, np.uint8)
        began = time.perf_counter()
        for _ in range(count):
            await other.take.remote(payload)
        return (time.perf_counter() - began) / count


def ray(count: int = 300, rounds: int = 100) -> None:
    from vflbench import config, registry
    from vflbench.federation.ray.cluster import Cluster
    from vflbench.federation.ray.driver import RayEngine
    from vflbench.runner.distributed import Host
    from vflbench.runner.evaluate import Observer
    from vflbench.runner.run import Federation
    from vflbench.types import EngineConfig

    with Cluster(EngineConfig("ray")) as cluster:
        import ray  # now that its environment is set

        for size in (400, 65_536):
            bare = [cluster.hire(Bare), cluster.hire(Bare)]
            ray.get(bare[0].call.remote(bare[1], 50, size))
            calls = [ray.get(bare[0].call.remote(bare[1], count, size)) for _ in range(5)]
            told: list[float] = []
            make = partial(two_parties, count, size)
            on_report = lambda name, round, values, told=told: told.append(values["facts"]["seconds"])  # noqa: E731
            RayEngine(cluster, ["there", "back"], make, timeout=60.0, rounds=5, on_report=on_report).run()
            message, call = statistics.median(told[1:]), statistics.median(calls)
            say(f"ray: ms a message of {size:,} bytes, one way", f"{1e3 * message:.2f}")
            say("  over a bare call of an actor (at most 1.3)", f"{message / call:.2f}   ({1e3 * call:.2f} ms)")
        root = Path(os.environ.get("VFLBENCH_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
        source = [f"data_root={root}"] if root.is_dir() else ["dataset.source=synthetic"]
        overrides = [
            "algorithm=glasu",
            "dataset=cora",
            "engine=ray",
            "engine.address=auto",
            f"rounds={rounds}",
            *source,
        ]
        with config.session(overrides) as hydra:
            run_config = config.to_config(config.plain(config.plan(hydra, overrides).cfg))
        info = registry.algorithms()["glasu"]
        federation = Federation(run_config, info)
        ratios, walls = [], []
        with Host(run_config, info) as host:
            for _ in range(3):
                began = time.perf_counter()
                federation.engine(Observer(federation.task, run_config)).run()
                simulated = time.perf_counter() - began
                engine = host.engine(Observer(host.federation.task, run_config))
                engine.run()
                ratios.append(engine.boundary_clock / simulated)
                walls.append((engine.boundary_clock, simulated))
        real, simulated = walls[ratios.index(statistics.median(ratios))]
        say(f"ray: s of {rounds} rounds of GLASU on Cora, after start-up", f"{real:.2f}")
        say("  over the simulated engine (at most 3)", f"{statistics.median(ratios):.2f}   ({simulated:.2f} s)")


# --- broker -----------------------------------------------------------------------------------------------------------


async def publisher(me: Any, data: Any, count: int, size: int) -> None:
    """Publishes `count` embeddings of `size` bytes, each in a channel of its own, until the subscriber has all; reports
    the seconds."""
    import time

    import torch

    payload = torch.zeros(size // 256, 64)
    async for _ in me.rounds():
        began = time.perf_counter()
        for channel in range(count):
            await me.send("subscriber", (channel, payload), "embedding")
        await me.recv("subscriber", "all")
        me.report(facts={"seconds": time.perf_counter() - began})


async def subscriber(me: Any, data: Any, count: int, size: int) -> None:
    async for _ in me.rounds():
        for _ in range(count):
            await me.recv("publisher", "embedding")
        await me.send("publisher", 0, "all")


def publish(count: int, size: int, broker: Any, name: str) -> dict[str, Any]:
    from vflbench.federation.party import PartySpec
    from vflbench.federation.ray.party import elsewhere

    programs = {"publisher": publisher, "subscriber": subscriber}
    specs = {party: PartySpec(program if party == name else elsewhere) for party, program in programs.items()}
    return {"specs": specs, "public": count, "config": size, "rounds": 4, "threads": 1, "broker": broker}


def broker(count: int = 1000, size: int = 65_536) -> None:
    from types import SimpleNamespace

    from vflbench.federation.ray.cluster import Cluster
    from vflbench.federation.ray.driver import RayEngine
    from vflbench.federation.ray.nats_broker import Service
    from vflbench.types import BrokerConfig, EngineConfig

    configuration: Any = SimpleNamespace(
        algorithm=SimpleNamespace(p=5), broker=BrokerConfig("nats"), engine=EngineConfig("ray")
    )
    published: Any = SimpleNamespace(published=(("embedding", "p"),))
    with Cluster(EngineConfig("ray")) as cluster, Service(configuration, published) as service:
        for how, channels in (("NATS JetStream", service.channels), ("Ray's calls", None)):
            told: list[float] = []
            make = partial(publish, count, size, channels)
            on_report = lambda name, round, values, told=told: told.append(values["facts"]["seconds"])  # noqa: E731
            RayEngine(cluster, ["publisher", "subscriber"], make, timeout=60.0, rounds=4, on_report=on_report).run()
            rate = count / statistics.median(told[1:])
            say(
                f"broker: messages a second of {size:,} bytes, by {how}",
                f"{rate:,.0f}   ({rate * size / 1e6:,.0f} MB/s)",
            )


BENCHMARKS: dict[str, Callable[[], None]] = {
    "engine": engine, "glasu": glasu, "tablepuppet": tablepuppet, "mtcd": mtcd, "leasgd": leasgd, "pubsub": pubsub,
    "reprice": reprice, "report": report, "start": start, "ray": ray, "broker": broker,
}  # fmt: skip


def main() -> int:
    lacking = {
        "mtcd": ["trimesh", "embreex"],
        "ray": ["ray"],
        "broker": ["ray", "nats"],
    }  # what a benchmark needs that may not be installed
    absent = [name for name, packages in lacking.items() if not all(map(importlib.util.find_spec, packages))]
    wanted = sys.argv[1:] or list(BENCHMARKS)
    names = [name for name in wanted if name not in absent]
    if left := [name for name in wanted if name in absent]:
        print(
            f"left out, as what they need is not installed: {', '.join(left)} (pip install "
            "'vflbench[ray,broker,shapes]')",
            file=sys.stderr,
        )
    if unknown := [name for name in names if name not in BENCHMARKS]:
        print(f"no benchmark {', '.join(unknown)}: there are {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 1
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import vflbench  # noqa: F401  sets what torch reads when it is imported

    for name in names:
        BENCHMARKS[name]()
    return int(bool(left and sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
