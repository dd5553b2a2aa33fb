"""RFL-ADMM of TablePuppet, on tables in horizontal parts."""

from typing import Literal

from vflbench.cards.algorithms import codecs
from vflbench.cards.algorithms.joins import join_messages, join_methods
from vflbench.defaults import from_conf
from vflbench.types import AlgorithmInfo, Count, Interval, Sent

ALGORITHM = AlgorithmInfo(
    name="rfl_admm",
    summary="learning over joins of unions by ADMM: horizontal parts of a table agree on its parameters by consensus",
    paper="Xu et al. 2024, arXiv 2403.15839 (TablePuppet)",
    label="RFL-ADMM",
    place=4,
    **join_methods.FAMILY,
    layouts=("relational",),
    divided_by="parts",
    reports=("partial",),
    privacy=("none", "label_dp", "dp_sgd", "tablepuppet"),
    attacks=("none", "prediction_recovery", "residual_labels"),
    # any codec: multipliers stay at the server, and those of a round start again; else rounding makes inexact updates
    remembered=("prediction", "residual", "parameters", "consensus"),
    assumes=("seed",),
    accounting=("strict", "framed", "tablepuppet", "everything"),
)
EXPOSES = (
    *join_messages.EXPOSES,
    Sent("parameters", "client", "server", "parameters", "client", noised=join_messages.OF_MODELS),
    Sent("consensus", "server", "client", "parameters", "client", form=("summed",), noised=join_messages.OF_MODELS),
)
SEARCH = {
    **join_methods.ADMM,
    "algorithm.inner_rounds": Interval(2, 20, log=True, int=True),
    **codecs.ROUNDING,
}
check = join_methods.check


@from_conf()
class Config(join_methods.AdmmKeys, join_methods.PartKeys):
    """Keys of RFL-ADMM."""

    inner_rounds: Count
    predict: Literal["own", "consensus"]
