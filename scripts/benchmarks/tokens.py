"""Methods with a token: a hop against its bare products, many clients, and the views of a mesh."""

import statistics
import time
from functools import partial
from typing import Any

from benchmarks.common import federation, ratio, say, seconds_of_rounds, topology_config
from vflbench.cards.algorithms.tokens import stcd as stcd_card


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
    algorithm = stcd_card.Config(parties=clients, hops=hops, local_steps=local_steps)
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


class Convex:
    """Rounds of a convex objective, with the steps, walks and averages of each method.

    Parameters
    ----------
    xp : what computes: torch, or numpy as in the program. Both know every function here.
    """

    def __init__(self, federation: Any, xp: Any) -> None:
        import numpy as np

        task, graph = federation.task, federation.topology
        self.xp, self.copy = xp, np.copy if xp is np else xp.clone
        self.cfg, self.samples, self.objective = federation.config.algorithm, len(task.labels), task.objective
        blocks = [np.asarray(block, dtype=np.float64) for block in task.features]
        if self.cfg.name == "centralized_gd":
            blocks = [np.concatenate(blocks, axis=1)]
        self.blocks = [xp.asarray(block) for block in blocks]  # by rows, as the program has them
        self.ridge, self.lr = task.objective.kind == "ridge", 1e-3
        self.y = xp.asarray(task.labels if self.ridge else np.where(task.labels > 0, 1.0, -1.0))
        self.thetas = [self.zeros(block.shape[1]) for block in self.blocks]
        self.near, self.rng = neighbours(graph), np.random.default_rng(0)
        self.h, self.ys, self.psis, self.zs = ([self.zeros(self.samples) for _ in self.blocks] for _ in range(4))
        self.visited: set[int] = set()
        self.at, self.u = 0, self.zeros(self.samples)  # stcd's token
        if self.cfg.name == "dcpa":
            self.mixing = ((np.eye(len(self.blocks)) + graph.mixing("metropolis")) / 2).tolist()

    def zeros(self, size: int) -> Any:
        return self.xp.zeros(size, dtype=self.xp.float64)

    def visit(self, k: int, theta: Any, u: Any, onward: bool = True) -> tuple[Any, Any]:
        from scipy.special import expit

        xp, x, y, theta, u = self.xp, self.blocks[k], self.y, self.copy(theta), self.copy(u)
        sigmoid = getattr(xp, "sigmoid", expit)
        for place in range(1, self.cfg.local_steps + 1):
            if self.ridge:
                step = -self.lr * (x.T @ (u - y) + self.objective.weight * theta)
            else:
                moved = theta - self.lr * (x.T @ (sigmoid(-y * u) * (-y / self.samples)))
                step = xp.sign(moved) * xp.clip(xp.abs(moved) - self.lr * self.objective.weight, 0, None) - theta
            theta += step
            if onward or place < self.cfg.local_steps:
                u += x @ step
        return theta, u

    def svfl(self) -> None:
        u = added([x @ theta for x, theta in zip(self.blocks, self.thetas, strict=True)])
        for k, theta in enumerate(self.thetas):
            self.thetas[k] = self.visit(k, theta, u, onward=False)[0]

    centralized_gd = svfl  # of one block

    def mtcd(self) -> None:
        for k in self.visited:
            self.h[k] = self.blocks[k] @ self.thetas[k]
        start, tokens = added(self.h), self.cfg.tokens
        copies: list[dict[int, Any]] = [{} for _ in self.blocks]
        for token in range(tokens):
            u, k = start, int(self.rng.integers(len(copies)))
            for hop in range(self.cfg.hops + 1):
                theta = copies[k].get(token, self.thetas[k])
                copies[k][token], u = self.visit(k, theta, u, onward=hop < self.cfg.hops)
                k = int(self.rng.choice(self.near[k]))
        self.visited = {k for k, own in enumerate(copies) if own}
        for k in self.visited:
            self.thetas[k] = (sum(copies[k].values()) + (tokens - len(copies[k])) * self.thetas[k]) / tokens

    def stcd(self) -> None:
        for _ in range(self.cfg.hops):
            self.thetas[self.at], self.u = self.visit(self.at, self.thetas[self.at], self.u)
            self.at = int(self.rng.choice(self.near[self.at]))

    def dcpa(self) -> None:
        """Of ridge."""
        for _ in range(self.cfg.iterations):
            phis, dual = [], self.cfg.dual_lr
            for k, x in enumerate(self.blocks):
                self.thetas[k] = self.thetas[k] - self.lr * (self.objective.weight * self.thetas[k] + x.T @ self.ys[k])
                psi = self.ys[k] + dual * (x @ self.thetas[k])
                phis.append(psi + self.zs[k] - self.psis[k])
                self.psis[k] = psi
            for k, near in enumerate(self.near):
                self.zs[k] = sum(self.mixing[k][other] * phis[other] for other in near)
                self.ys[k] = (self.zs[k] - dual * self.y) / (1 + dual)


class Networks:
    """Rounds of networks with a sum on top in plain torch, with the steps, walks and averages of each method."""

    def __init__(self, federation: Any) -> None:
        import numpy as np

        from vflbench.models.split_network import SplitClient, SplitServer
        from vflbench.models.vertical import criterion

        task, config = federation.task, federation.config
        self.cfg, self.public = config.algorithm, task.public
        centre = SplitServer(task.labels, task.public, config, config.model, "cpu")
        parts = [
            SplitClient(k, task.part(k, True), task.public, config, config.model, "cpu") for k in range(task.parties)
        ]
        self.networks, self.blocks, self.labels = [part.local for part in parts], [part.x for part in parts], centre.y
        self.owns = [list(network.parameters()) for network in self.networks]
        self.fusion, self.frozen = centre.fusion, parts[0]._fusion[0]  # frozen: as the clients have it in a round
        self.tops, self.lr = list(self.fusion.parameters()), 0.01
        self.near, self.rng = neighbours(federation.topology), np.random.default_rng(0)
        self.criterion = partial(criterion, classes=task.public.classes)
        self.round = 0

    def batch(self) -> None:
        """Draw the rows of the next round, and hand the fusion network to the clients."""
        import torch

        from vflbench.algorithms.tokens.block_descent import batch

        self.round += 1
        rows = batch(0, self.round, self.public.samples, self.cfg.batch_size)
        at = slice(None) if rows is None else torch.from_numpy(rows)
        self.xs, self.y = [x[at] for x in self.blocks], self.labels[at]
        with torch.no_grad():
            for theirs, ours in zip(self.frozen.parameters(), self.tops, strict=True):
                theirs.copy_(ours)

    def descend(self, parameters: list[Any], loss: Any) -> None:
        import torch

        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.sub_(gradient, alpha=self.lr)

    def local_steps(self, k: int, a: Any, h: Any) -> Any:
        """Take a client's steps, the first one from its representation h; returns what others add to a."""
        others = a - h.detach()
        for q in range(self.cfg.local_steps):
            h = self.networks[k](self.xs[k]) if q else h
            self.descend(self.owns[k], self.criterion(self.frozen(others + h), self.y))
        return others

    def top_steps(self, a: Any, steps: int) -> None:
        for _ in range(steps if self.tops else 0):
            self.descend(self.tops, self.criterion(self.fusion(a), self.y))

    def centralized_gd(self) -> None:
        self.batch()
        every = [*self.tops, *(parameter for own in self.owns for parameter in own)]
        for _ in range(self.cfg.local_steps):
            a = added([network(x) for network, x in zip(self.networks, self.xs, strict=True)])
            self.descend(every, self.criterion(self.fusion(a), self.y))

    def svfl(self) -> None:
        self.batch()
        hs = [network(x) for network, x in zip(self.networks, self.xs, strict=True)]
        a = added([h.detach() for h in hs])
        for k, h in enumerate(hs):
            self.local_steps(k, a, h)
        self.top_steps(a, self.cfg.local_steps)

    def mtcd(self) -> None:
        """With batches: every client sends its representation in every round."""
        import torch
        from torch.nn.utils import parameters_to_vector, vector_to_parameters

        self.batch()
        hs, tokens = [network(x) for network, x in zip(self.networks, self.xs, strict=True)], self.cfg.tokens
        start = added([h.detach() for h in hs])
        thetas = [parameters_to_vector(own).detach() for own in self.owns]
        copies: list[dict[int, Any]] = [{} for _ in thetas]
        for token in range(tokens):
            a, k = start, int(self.rng.integers(len(thetas)))
            for hop in range(self.cfg.hops + 1):
                vector_to_parameters(copies[k].get(token, thetas[k]).clone(), self.owns[k])
                h = self.networks[k](self.xs[k]) if copies[k] else hs[k]  # nobody has moved its parameters yet
                others = self.local_steps(k, a, h)
                if hop < self.cfg.hops:
                    with torch.no_grad():
                        a = others + self.networks[k](self.xs[k])
                copies[k][token] = parameters_to_vector(self.owns[k]).detach()
                k = int(self.rng.choice(self.near[k]))
        for own, theta, passed in zip(self.owns, thetas, copies, strict=True):
            vector_to_parameters((sum(passed.values()) + (tokens - len(passed)) * theta) / tokens, own)
        self.top_steps(start, self.cfg.local_steps * (self.cfg.hops + 1))


def neighbours(graph: Any) -> list[Any]:
    """Per client, the numbers of the clients where its token may go, its own among them."""
    import numpy as np

    links = graph.adjacency[graph.servers :, graph.servers :]
    return [np.flatnonzero(row) for row in links | np.eye(len(links), dtype=bool)]


def added(parts: list[Any]) -> Any:
    """The sum of arrays or tensors."""
    return sum(parts[1:], start=parts[0])


def bare(federation: Any, rounds: int, own: bool = False) -> float:
    """CPU seconds of `rounds` rounds in one plain loop, where what a party would be sent is at hand.

    Parameters
    ----------
    own : with the program's own arithmetic where that is not PyTorch: NumPy's, of a convex objective.
    """
    import numpy as np
    import torch

    convex = federation.task.objective is not None
    rounds_of = Convex(federation, np if own else torch) if convex else Networks(federation)
    a_round = getattr(rounds_of, federation.config.algorithm.name)
    began = time.process_time()
    for _ in range(rounds):
        a_round()
    return time.process_time() - began


RIDGE = ("dataset=ridge", "algorithm.parties=40", "topology=ring", "algorithm.lr=0.001")
LOGISTIC = ("dataset=bank", "dataset.problem=sparse_logistic", "algorithm.parties=10", "algorithm.lr=0.001")
NETWORKS = ("dataset=bank", "algorithm.parties=4", "algorithm.lr=0.01")
MLP = (*NETWORKS, "model=mlp")
VERTICAL = (*NETWORKS, "model=vertical", "model.aggregate=sum")
WALKS = ("algorithm.tokens=2", "algorithm.hops=4", "algorithm.local_steps=5", "algorithm.batch_size=2048")
CASES: tuple[tuple[str, int, str, tuple[str, ...]], ...] = (  # method, rounds, data, configuration
    ("svfl", 40, "ridge, N = 1,000, 40 clients", RIDGE),
    ("svfl", 10, "sparse logistic of bank", LOGISTIC),
    ("svfl", 4, "bank, model=mlp", MLP),
    ("svfl", 4, "bank, model=vertical", VERTICAL),
    ("mtcd", 10, "ridge, N = 1,000, 40 clients", RIDGE),
    ("mtcd", 2, "bank, model=mlp", (*MLP, *WALKS)),
    ("mtcd", 2, "bank, model=vertical", (*VERTICAL, *WALKS)),
    ("stcd", 5, "ridge, N = 1,000, 40 clients", RIDGE),
    ("dcpa", 6, "ridge, N = 1,000, 40 clients", RIDGE),
    ("centralized_gd", 100, "ridge, N = 1,000", (*RIDGE[:2], RIDGE[-1])),
    ("centralized_gd", 4, "bank, model=mlp", MLP),
    ("centralized_gd", 4, "bank, model=vertical", VERTICAL),
)


def tokens() -> None:
    """Rounds of every method against their bare arithmetic.

    The target is about plain torch. A line without target says what the federation costs beside the program's own
    arithmetic, where that is NumPy's: it takes half of torch's time where products are small.
    """
    import torch

    torch.set_num_threads(1)
    for name, rounds, data, words in CASES:
        whole = federation(f"algorithm={name}", *words)
        kinds = [(False, "", 1.3), (True, ", over its own NumPy alone", None)]
        for own, over, most in kinds[: 1 if whole.task.objective is None else 2]:
            ratio(
                f"tokens: {rounds} rounds of {name}, {data}{over}",
                partial(seconds_of_rounds, whole, rounds),
                partial(bare, whole, rounds, own),
                most,
            )


def mtcd() -> None:
    seconds = 100_000 * token_hops(1000, 2, hops=10_000, rounds=10)
    say("mtcd: CPU s, 100,000 hops over 1,000 clients, d_k = 2, Q = 20 (at most 60)", f"{seconds:.1f}", seconds <= 60)
    sizes, many, few = (10, 100, 1000, 10_000), 50_000, 5_000
    small: dict[int, list[float]] = {clients: [] for clients in sizes}
    large: dict[int, list[float]] = {clients: [] for clients in sizes}
    for _ in range(3):  # in turn, so that a slow minute of the machine is everyone's
        for clients in sizes:
            small[clients].append(few * token_hops(clients, 2, hops=few, rounds=1, samples=100, local_steps=1))
            large[clients].append(many * token_hops(clients, 2, hops=many, rounds=1, samples=100, local_steps=1))
    first = 0.0
    for clients in sizes:  # without what a round costs, token or no token: that is the difference
        hop = (min(large[clients]) - min(small[clients])) / (many - few)
        first = first or hop
        name = f"mtcd: us a hop of one local step, N = 100, d_k = 2, {clients:,} clients"
        say(f"{name} (at most twice the first)", f"{1e6 * hop:.1f}", hop <= 2 * first)
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
    for size, most in ((64, 0.05), (224, None)):
        seconds = []
        for _ in range(12):  # the first one imports the ray caster
            began = time.process_time()
            mesh_views(vertices, faces, size, "torus")
            seconds.append(time.process_time() - began)
        took, target = statistics.median(seconds[1:]), f" (at most {most:g})" if most else ""
        name = f"mtcd: CPU s, 12 views of {len(faces):,} faces, {size} px{target}"
        say(name, f"{took:.3f}", took <= most if most else None)
    grids = np.zeros((4_899, 32, 32, 32), bool)
    grids[:, 8:24, 8:24, 8:24] = True
    began = time.process_time()
    full = side_by_side(grids)
    for view in range(VIEWS):
        voxel_view(full, 64, view)
    say(f"mtcd: CPU s, 12 depth views of {len(grids):,} voxel grids, 64 px", f"{time.process_time() - began:.1f}")
