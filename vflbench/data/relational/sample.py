"""Some joined rows of a task, for diagnostics outside the federation."""

from __future__ import annotations

import numpy as np

from vflbench.data.relational.join import hand_over, join, unite
from vflbench.data.tasks import AlignedTask, RelationalTask
from vflbench.seeding import stream


def joined_rows(task: RelationalTask | AlignedTask, rows: int, seed: int) -> list[np.ndarray]:
    """Per table its features (k, d_i) behind the joined rows of about `rows` training rows of the label table, drawn by "diagnosis"."""
    rng = stream(seed, "diagnosis")
    if isinstance(task, AlignedTask):
        some = np.sort(rng.choice(len(task.labels), min(rows, len(task.labels)), replace=False))
        return [block[some] for block in task.features]
    keys, features = {}, []
    for table, clients in zip(task.tables, task.public.parts, strict=True):
        parts = [task.clients[client] for client in clients]
        # of the label table a share of every part
        total = sum(part.rows for part in parts)
        share = min(1.0, rows / total) if table == task.label_table else 1.0
        chosen = [np.sort(rng.choice(part.rows, round(share * part.rows), replace=False)) for part in parts]
        columns = [{c: v[own] for c, v in part.keys.items()} for part, own in zip(parts, chosen, strict=True)]
        keys[table] = unite([hand_over(c, len(own), "none", table) for c, own in zip(columns, chosen, strict=True)], table)
        features.append(np.concatenate([part.features[own] for part, own in zip(parts, chosen, strict=True)]))
    behind = join(keys, task.joins, task.label_table)
    return [block[behind[table]] for table, block in zip(task.tables, features, strict=True)]
