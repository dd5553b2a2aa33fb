"""RFL-SGD: learning over joins of unions by mini-batch SGD; a table's horizontal parts share one gradient.

Xu et al.: TablePuppet, arXiv 2403.15839, sections 4 and 6. The programs and the departures from the paper are in
sgd.py.
"""

from dataclasses import dataclass

from vflbench.algorithms.joins import exposes, sgd, shared
from vflbench.types import AlgorithmInfo, Sent

ALGORITHM = AlgorithmInfo(
    name="rfl_sgd",
    summary="learning over joins of unions by SGD: the clients of a table share one gradient a batch",
    paper="Xu et al. 2024, arXiv 2403.15839 (TablePuppet)",
    label="RFL-SGD",
    place=5,
    **shared.FAMILY,
    layouts=("relational",),
    divided_by="parts",
    reports=("partial",),
    privacy=("none", "label_dp", "dp_sgd", "tablepuppet"),
    attacks=("none", "prediction_recovery", "residual_labels"),
    # any codec: rounded predictions make noisy gradients; nothing is remembered of the batches' rows
    remembered=("gradient", "step"),
    assumes=("seed",),
    accounting=("strict", "tablepuppet", "everything"),
)
EXPOSES = (
    *exposes.EXPOSES,
    *exposes.BATCHES,
    Sent("gradient", "client", "server", "gradients", "client", noised=exposes.OF_MODELS),
    Sent("step", "server", "client", "gradients", "client", form=("summed",), noised=exposes.OF_MODELS),
)
check = shared.check
parties = sgd.parties


@dataclass
class Config(shared.PartKeys):
    """Keys of RFL-SGD."""

    name: str = "rfl_sgd"
    batch_size: int = 10240  # B: joined rows of a batch
