"""RFL-SGD of TablePuppet, on tables in horizontal parts."""

from vflbench.cards.algorithms import codecs
from vflbench.cards.algorithms.joins import join_messages, join_methods
from vflbench.defaults import from_conf
from vflbench.types import AlgorithmInfo, Sent

ALGORITHM = AlgorithmInfo(
    name="rfl_sgd",
    summary="learning over joins of unions by SGD: the clients of a table share one gradient a batch",
    paper="Xu et al. 2024, arXiv 2403.15839 (TablePuppet)",
    label="RFL-SGD",
    place=5,
    **join_methods.FAMILY,
    layouts=("relational",),
    divided_by="parts",
    reports=("partial",),
    privacy=("none", "label_dp", "dp_sgd", "tablepuppet"),
    attacks=("none", "prediction_recovery", "residual_labels"),
    # any codec: rounded predictions make noisy gradients; nothing is remembered of the batches' rows
    remembered=("gradient", "step"),
    assumes=("seed",),
    accounting=("strict", "framed", "tablepuppet", "everything"),
)
EXPOSES = (
    *join_messages.EXPOSES,
    *join_messages.BATCHES,
    Sent("gradient", "client", "server", "gradients", "client", noised=join_messages.OF_MODELS, unit="example"),
    Sent(
        "step",
        "server",
        "client",
        "gradients",
        "client",
        form=("summed",),
        noised=join_messages.OF_MODELS,
        unit="example",
    ),
)
SEARCH = {**join_methods.SGD, **codecs.ROUNDING}
check = join_methods.check


@from_conf()
class Config(join_methods.PartKeys):
    """Keys of RFL-SGD."""

    batch_size: int
