"""RFL-SGD of TablePuppet, on tables in horizontal parts."""

from vflbench.cards.algorithms import codecs
from vflbench.cards.algorithms.joins import exposes, shared
from vflbench.defaults import from_conf
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
    Sent("gradient", "client", "server", "gradients", "client", noised=exposes.OF_MODELS, unit="example"),
    Sent("step", "server", "client", "gradients", "client", form=("summed",), noised=exposes.OF_MODELS, unit="example"),
)
SEARCH = {**shared.SGD, **codecs.ROUNDING}
check = shared.check


@from_conf()
class Config(shared.PartKeys):
    """Keys of RFL-SGD."""

    batch_size: int
