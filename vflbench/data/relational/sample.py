"""Some joined rows of a task, for diagnostics outside the federation."""

import numpy as np

from vflbench.data.tasks import AlignedTask, RelationalTask
from vflbench.seeding import stream


def joined_rows(task: RelationalTask | AlignedTask, rows: int, seed: int) -> list[np.ndarray]:
    """`task.sample` of about `rows` training rows, drawn by "diagnosis"."""
    return task.sample(rows, stream(seed, "diagnosis"))
