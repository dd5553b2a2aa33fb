"""RFL-SGD-V of TablePuppet."""

from vflbench.cards.algorithms import codecs
from vflbench.cards.algorithms.joins import join_messages, join_methods
from vflbench.defaults import from_conf
from vflbench.types import AlgorithmInfo

ALGORITHM = AlgorithmInfo(
    name="rfl_sgd_v",
    summary="learning over joins by SGD: one prediction per distinct table row of a batch",
    paper="Xu et al. 2024, arXiv 2403.15839 (TablePuppet)",
    label="RFL-SGD-V",
    place=1,
    **join_methods.FAMILY,
    layouts=("relational",),
    divided_by=None,
    reports=("partial",),
    privacy=("none", "label_dp", "dp_sgd", "tablepuppet"),
    attacks=("none", "prediction_recovery", "residual_labels"),
    # any codec: rounded predictions make noisy gradients; each batch has other rows, so nothing is remembered
    accounting=("strict", "framed", "tablepuppet", "everything"),
)
EXPOSES = (*join_messages.EXPOSES, *join_messages.BATCHES)
SEARCH = {**join_methods.SGD, **codecs.ROUNDING}
check = join_methods.check


@from_conf()
class Config(join_methods.Keys):
    """Keys of RFL-SGD-V."""

    batch_size: int
