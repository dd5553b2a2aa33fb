"""Vertical learning by ADMM."""

from vflbench.cards.algorithms import codecs
from vflbench.cards.algorithms.joins import join_messages, join_methods
from vflbench.cards.algorithms.joins.join_methods import AdmmKeys, PartyKeys
from vflbench.defaults import from_conf
from vflbench.types import AlgorithmInfo

ALGORITHM = AlgorithmInfo(
    name="vfl_admm",
    summary="vertical learning on aligned rows by ADMM: every party predicts every joined row, once a round",
    paper="Xie et al. 2022, arXiv 2207.10226",
    label="VFL-ADMM",
    place=2,
    **join_methods.FAMILY,
    layouts=("aligned",),
    divided_by="parties",
    reports=("partial",),
    privacy=("none", "label_dp", "dp_sgd", "tablepuppet"),
    attacks=("none", "prediction_recovery", "residual_labels"),
    # any codec: the multipliers stay at the server; rounded residuals make inexact updates
    remembered=("prediction", "residual"),
    assumes=("join",),
    accounting=("strict", "framed", "tablepuppet", "everything"),
)
EXPOSES = (
    join_messages.LABELS,
    *join_messages.LEARNING,
)
SEARCH = {**join_methods.ADMM, **codecs.ROUNDING}
check = join_methods.check


@from_conf()
class Config(AdmmKeys, PartyKeys):
    """Keys of VFL-ADMM."""
