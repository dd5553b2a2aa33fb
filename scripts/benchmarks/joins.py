"""Learning over joins: every method against its bare arithmetic, the table mapping, how time grows with joined rows."""

import itertools
import resource
import statistics
import time
from typing import Any

from benchmarks.common import (
    federation,
    messages_a_second,
    messages_of_rounds,
    ratio,
    say,
    seconds_of_rounds,
    topology_config,
)
from vflbench.cards.data.relational import movielens as movielens_card
from vflbench.cards.data.relational import star_schema as star_schema_card
from vflbench.runner.run import Federation


def joins() -> None:
    """Every method over joins on the twin of MovieLens-1M; what a message costs where tables are small."""
    for algorithm, rounds, bare in (
        ("rfl_admm_v", 1, bare_admm),
        ("rfl_admm", 1, bare_consensus),
        ("vfl_admm", 1, bare_admm),
        ("rfl_sgd_v", 2, bare_sgd),
        ("rfl_sgd", 2, bare_sgd),
        ("gd_join", 8, bare_sgd),
        ("vfl_sgd", 2, bare_sgd),
        ("centralized_join", 2, bare_sgd),
    ):
        made = federation(f"algorithm={algorithm}", "dataset=movielens", "dataset.source=synthetic")
        ratio(
            f"{algorithm}: ms of {rounds} epochs, the twin of MovieLens-1M, over bare",
            lambda made=made, rounds=rounds: seconds_of_rounds(made, rounds),
            lambda made=made, rounds=rounds, bare=bare: bare(made, rounds),
            pairs=3 if algorithm.endswith(("admm", "admm_v")) else 5,
        )
    made = federation("algorithm=rfl_sgd", "dataset=star_schema", "dataset.source=synthetic")
    messages_a_second(
        "rfl_sgd: 40 epochs of star_schema",
        lambda: seconds_of_rounds(made, 40),
        lambda: bare_sgd(made, 40),
        messages_of_rounds(made, 40),
    )


class Tables:
    """What is learnt from: per table its rows that join; y of the joined rows, centred.

    Attributes
    ----------
    x : per table (n_i, d_i); of aligned rows (N, d_i).
    rows : per table (N,) int64, the row of x behind each joined row; None where rows are aligned.
    """

    def __init__(self, made: Federation) -> None:
        import numpy as np
        import torch

        from vflbench.data.tasks import RelationalTask
        from vflbench.models import DTYPES

        task, dtype = made.task, DTYPES[made.config.model.dtype]
        self.owner, self.rows = task.public.owner, None
        labels = task.training_labels()
        if isinstance(task, RelationalTask):
            _, behind = joined(task, "none")
            labels = labels[behind[task.label_table]]
            parts = [np.concatenate([task.clients[c].features for c in own]) for own in task.public.parts]
            places = [np.unique(behind[table], return_inverse=True) for table in task.tables]
            blocks = [part[distinct] for part, (distinct, _) in zip(parts, places, strict=True)]
            self.rows = [torch.from_numpy(inverse) for _, inverse in places]
        else:
            blocks = list(task.features)
        self.x = [torch.from_numpy(np.ascontiguousarray(block)).to(dtype) for block in blocks]
        self.y = torch.from_numpy(labels - labels.mean()).to(dtype)

    def expand(self, table: int, values: Any, rows: Any) -> Any:
        """`values` (n,) of the table's rows for every joined row."""
        return values if rows is None else values.index_select(0, rows[table])

    def collapse(self, table: int, values: Any, rows: Any, size: int) -> Any:
        """The sum of `values` over the joined rows of each row of the table."""
        return values if rows is None else values.new_zeros(size).index_add_(0, rows[table], values)


def bare_sgd(made: Federation, rounds: int) -> float:
    """CPU seconds of epochs of SGD on the join as one plain loop; of gd_join one batch of all rows.

    A table in parts has a replica of its weights in each; they follow the sum of the parts' gradients.
    """
    import torch

    cfg, tables = made.config.algorithm, Tables(made)
    every, size = range(len(tables.x)), getattr(cfg, "batch_size", len(tables.y))
    parts = getattr(cfg, "parts", 1)
    weights = [[x.new_zeros(x.shape[1]) for _ in range(parts)] for x in tables.x]
    biases = [tables.y.new_zeros(()) for _ in range(parts)]
    batches = []  # labels and rows of each table, and which of these are behind each joined row: the same every epoch
    for at in range(0, len(tables.y), size):
        taken = slice(at, at + size)
        if tables.rows is None or size >= len(tables.y):
            x, places = [x if tables.rows is not None else x[taken] for x in tables.x], tables.rows
        else:
            distinct, places = zip(*(rows[taken].unique(return_inverse=True) for rows in tables.rows), strict=True)
            x = [x.index_select(0, rows) for x, rows in zip(tables.x, distinct, strict=True)]
        batches.append((tables.y[taken], [own.tensor_split(parts) for own in x], places))
    began = time.process_time()
    for _ in range(rounds):
        total = 0.0
        for y, x, places in batches:
            own = []
            for i in every:
                z = [
                    part @ w + b if i == tables.owner else part @ w
                    for part, w, b in zip(x[i], weights[i], biases, strict=True)
                ]
                own.append(z[0] if parts == 1 else torch.cat(z))
            gradient = sum(tables.expand(i, own[i], places) for i in every) - y
            total += float(gradient.square().sum()) / 2
            for i in every:
                back = tables.collapse(i, gradient, places, len(own[i])).tensor_split(parts)
                step = sum(torch.mv(part.T, rows) for part, rows in zip(x[i], back, strict=True)) / len(y)
                shift = sum(rows.sum() for rows in back) / len(y) if i == tables.owner else None
                for w, b in zip(weights[i], biases, strict=True):
                    w.mul_(1 - cfg.lr * cfg.weight_decay).sub_(step, alpha=cfg.lr)
                    if shift is not None:
                        b.mul_(1 - cfg.lr * cfg.weight_decay).sub_(shift, alpha=cfg.lr)
    return time.process_time() - began


def bare_admm(made: Federation, rounds: int, parts: int = 1) -> float:
    """CPU seconds of epochs of ADMM as one plain loop; tables are fitted by the program's own update.

    Parameters
    ----------
    parts : of each table; several agree in rounds of consensus.
    """
    import numpy as np
    import torch

    from vflbench.algorithms.joins.admm import Objective, ThetaUpdate
    from vflbench.models.partial import Partial

    cfg, tables = made.config.algorithm, Tables(made)
    y, rows, every, total = tables.y, tables.rows, range(len(tables.x)), len(tables.y)
    counts = [torch.ones_like(y)] * len(every) if rows is None else [r.bincount().to(y.dtype) for r in rows]
    updates = []  # per table and part
    for i, x in enumerate(tables.x):
        held = zip(x.tensor_split(parts), counts[i].tensor_split(parts), strict=True)
        updates.append([])
        for own, count in held:
            model = Partial(made.config.model, x.shape[1], 1, i == tables.owner, np.random.default_rng(0), "cpu")
            one = Objective(cfg.rho, decay=cfg.weight_decay)
            several = Objective(cfg.rho, share=float(count.sum()) / total, pull=cfg.rho)
            updates[i].append(ThetaUpdate(model, own, count, one if parts == 1 else several, cfg))
    z, dual, h = torch.zeros_like(y), torch.zeros_like(y), [x.new_zeros(len(x)) for x in tables.x]
    began = 0.0
    for t in range(rounds + 1):
        if t == 1:  # as of the other, the first epoch is left out: it factors what stays
            began = time.process_time()
        own = [tables.expand(i, h[i], rows) for i in every]
        summed = sum(own)
        z = (y + dual + cfg.rho * summed) / (1 + cfg.rho)
        dual = dual + cfg.rho * (summed - z)
        pull = dual + cfg.rho * (summed - z)
        for i in every:
            residual = tables.collapse(i, pull - cfg.rho * own[i], rows, len(h[i]))
            pieces = residual[:, None].tensor_split(parts)
            if parts == 1:
                updates[i][0](pieces[0])
            else:
                agree(updates[i], pieces, cfg)
            h[i] = torch.cat([update.model(update.x)[:, 0] for update in updates[i]])
        float((sum(tables.expand(i, h[i], rows) for i in every) - y).square().mean() / 2)
    return time.process_time() - began


def agree(updates: Any, residuals: Any, cfg: Any) -> None:
    """Rounds of consensus between the parts of a table."""
    import torch

    w = torch.zeros_like(updates[0].model.theta)
    duals, weight = [torch.zeros_like(w) for _ in updates], cfg.rho * len(updates)
    for _ in range(cfg.inner_rounds):
        for update, residual, dual in zip(updates, residuals, duals, strict=True):
            update(residual, w - dual)
        w = (sum(update.model.theta for update in updates) + sum(duals)) * (cfg.rho / (weight + cfg.weight_decay))
        duals = [dual + update.model.theta - w for update, dual in zip(updates, duals, strict=True)]


def bare_consensus(made: Federation, rounds: int) -> float:
    """As `bare_admm`, of tables in the method's number of parts."""
    return bare_admm(made, rounds, made.config.algorithm.parts)


def epochs(algorithm: str, task: Any, count: int = 4, dtype: str = "float64", **options: Any) -> list[float]:
    """CPU seconds of every epoch but the first, which also maps the tables and factors what stays."""
    from vflbench import registry
    from vflbench.cards.models.partial import Config as ModelConfig
    from vflbench.federation.simulated import SimulatedEngine
    from vflbench.types import ComputeConfig, EngineConfig, NetworkConfig, PrivacyConfig, RunConfig

    module = registry.load_algorithm(algorithm)
    others = NetworkConfig(), topology_config("star"), PrivacyConfig(), EngineConfig(), ComputeConfig()
    keys = registry.option_config("algorithm", algorithm)(**options)
    config = RunConfig(
        keys,
        None,
        ModelConfig(dtype=dtype),
        *others,
        rounds=count,
        device="cpu",
    )  # type: ignore[arg-type]
    marks: list[float] = []

    def on_round(round: int, engine: SimulatedEngine) -> bool:
        marks.append(time.process_time())
        return False

    specs = module.parties(task, config)
    SimulatedEngine(specs, task.public, config, rounds=count, seed=0, eval_every=10 * count, on_round=on_round).run()
    return [after - before for before, after in itertools.pairwise(marks)]


def joined(task: Any, how: str) -> tuple[float, Any]:
    """CPU seconds of the table mapping: keys as clients hand them over, united and joined. And how many rows join."""
    from vflbench.data.tasks.join import hand_over, join, unite

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


def growth() -> None:
    """How an epoch's time grows with the joined rows."""
    import numpy as np

    from vflbench.data.relational import star_schema
    from vflbench.data.tasks import RelationalTask

    sizes, halves = [], []
    for duplication in (1, 4, 16, 64):
        config = star_schema_card.Config(rows=20_000, dimension_rows=6_400, duplication=duplication, width=16)
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
    slopes: list[float] = []
    # the server's is a difference of two times: where that is lost in noise it says nothing
    for half in zip(*halves, strict=True):
        pairs = [(size, seconds) for size, seconds in zip(sizes, half, strict=True) if seconds > 0]
        slopes.append(float(np.polyfit(*np.log(np.transpose(pairs)), 1)[0]))
    say(
        "tablepuppet: slope of log time over log joined rows (at most 1.2; 1: linear), clients server",
        f"{slopes[0]:.2f} {slopes[1]:.2f}",
        max(slopes) <= 1.2,
    )


def large_join() -> None:
    """Time and memory of a mapping of 71 million joined rows."""
    from vflbench.data.relational import star_schema

    big = star_schema.load(
        star_schema_card.Config(rows=1_115_000, dimension_rows=64_000, duplication=64, width=1),
        "relational",
        1,
        0,
        None,
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    _, behind = joined(big, "none")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds, peak = time.perf_counter() - began, max(before, peak) / 2**20
    say(f"tablepuppet: s, mapping of {len(behind['facts']):,} joined rows (under 60)", f"{seconds:.1f}", seconds < 60)
    say("tablepuppet: peak memory of this process, GB (under 8)", f"{peak:.1f}", peak < 8)


def tablepuppet() -> None:
    import logging

    from vflbench.data.relational import movielens
    from vflbench.data.tasks import RelationalTask

    logging.disable(logging.WARNING)  # that the twin is made up
    twin = movielens.load(movielens_card.Config(source="synthetic", variant="1m"), "relational", 1, 0, None)
    assert isinstance(twin, RelationalTask)
    for how, limit in (("none", 0.5), ("sha256", 1.5)):
        seconds = min(joined(twin, how)[0] for _ in range(3))
        name = "integer keys" if how == "none" else "hashed keys"
        text = f"tablepuppet: CPU s, mapping of MovieLens-1M's size, {name} (under {limit})"
        say(text, f"{seconds:.2f}", seconds < limit)
    behind = joined(twin, "none")[1]
    total = len(behind["ratings"])
    exact, sgd = (statistics.median(epochs("rfl_admm_v", twin, solver=solver)) for solver in ("exact", "sgd"))
    say("tablepuppet: CPU s, RFL-ADMM-V epoch, exact (under 0.3)", f"{exact:.2f}", exact < 0.3)
    say("tablepuppet: CPU s, RFL-ADMM-V epoch, 10 local epochs of batch 1,024 (under 3)", f"{sgd:.2f}", sgd < 3)
    say("tablepuppet: CPU s, RFL-SGD-V epoch, batch 10,240", f"{statistics.median(epochs('rfl_sgd_v', twin)):.2f}")
    plain = row_by_row(twin, behind, 100_000) * total
    say(f"tablepuppet: the server's half by a plain loop over {total:,} rows, CPU s", f"{plain:.2f}")
    say("tablepuppet: that over the whole exact epoch", f"{plain / exact:.1f}")

    growth()
    large_join()
