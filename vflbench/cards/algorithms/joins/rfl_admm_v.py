"""RFL-ADMM-V of TablePuppet."""

from vflbench.cards.algorithms import codecs
from vflbench.cards.algorithms.joins import join_messages, join_methods
from vflbench.defaults import from_conf
from vflbench.types import AlgorithmInfo

ALGORITHM = AlgorithmInfo(
    name="rfl_admm_v",
    summary="learning over joins by ADMM: tables stay apart, one prediction per table row and round",
    paper="Xu et al. 2024, arXiv 2403.15839 (TablePuppet)",
    label="RFL-ADMM-V",
    place=0,
    **join_methods.FAMILY,
    layouts=("relational",),
    divided_by=None,
    reports=("partial",),
    privacy=("none", "label_dp", "dp_sgd", "tablepuppet"),
    attacks=("none", "prediction_recovery", "residual_labels"),
    # any codec: the multipliers stay at the server; rounded residuals make inexact updates
    remembered=("prediction", "residual"),
    accounting=("strict", "framed", "tablepuppet", "everything"),
)
EXPOSES = join_messages.EXPOSES
SEARCH = {**join_methods.ADMM, **codecs.ROUNDING}
check = join_methods.check


@from_conf()
class Config(join_methods.AdmmKeys):
    """Keys of RFL-ADMM-V."""
