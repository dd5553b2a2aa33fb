"""Methods with a token: a hop against its bare products, many clients, and the views of a mesh."""

import statistics
import time

from benchmarks.common import say, topology_config


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
