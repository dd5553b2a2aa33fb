"""The four layouts of vertically or horizontally split data (ARCHITECTURE.md), one file each.

They are frozen dataclasses of numpy arrays. An algorithm runs on a task, but no party sees it. Each party gets its own
part, guarded (`federation.party.Guarded`), and the public facts. Scoring, outside the federation, reads labels and
splits from the task itself.
"""

from vflbench.data.tasks.aligned import AlignedPart, AlignedPublic, AlignedTask, JoinedPart, Objective, OwnRows
from vflbench.data.tasks.base import Table, Task
from vflbench.data.tasks.graph import GraphPart, GraphPublic, GraphTask
from vflbench.data.tasks.relational import Equality, HeldOut, RelationalPart, RelationalPublic, RelationalTask
from vflbench.data.tasks.sharded import Shard, ShardedPublic, ShardedTask

__all__ = [
    "AlignedPart",
    "AlignedPublic",
    "AlignedTask",
    "Equality",
    "GraphPart",
    "GraphPublic",
    "GraphTask",
    "HeldOut",
    "JoinedPart",
    "Objective",
    "OwnRows",
    "RelationalPart",
    "RelationalPublic",
    "RelationalTask",
    "Shard",
    "ShardedPublic",
    "ShardedTask",
    "Table",
    "Task",
]
