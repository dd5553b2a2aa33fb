"""Vertical learning by SGD, as TablePuppet compares with it."""

from vflbench.cards.algorithms import codecs
from vflbench.cards.algorithms.joins import join_messages, join_methods
from vflbench.cards.algorithms.joins.join_methods import Keys, PartyKeys
from vflbench.defaults import from_conf
from vflbench.types import AlgorithmInfo

ALGORITHM = AlgorithmInfo(
    name="vfl_sgd",
    summary="vertical learning on aligned rows by SGD: every party predicts every joined row of a batch",
    paper="Xu et al. 2024, arXiv 2403.15839 (TablePuppet), section 7",
    label="VFL-SGD",
    place=3,
    **join_methods.FAMILY,
    layouts=("aligned",),
    divided_by="parties",
    reports=("partial",),
    privacy=("none", "label_dp", "dp_sgd", "tablepuppet"),
    attacks=("none", "prediction_recovery", "residual_labels"),
    # any codec: rounded predictions make noisy gradients; each batch has other rows, so nothing is remembered
    assumes=("join",),
    accounting=("strict", "framed", "tablepuppet", "everything"),
)
EXPOSES = (
    join_messages.LABELS,
    *join_messages.DRAWN,
    *join_messages.LEARNING,
)
SEARCH = {**join_methods.SGD, **codecs.ROUNDING}
check = join_methods.check


@from_conf()
class Config(Keys, PartyKeys):
    """Keys of VFL-SGD."""

    batch_size: int
