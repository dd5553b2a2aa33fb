"""Gradient descent over a join."""

from vflbench.cards.algorithms import codecs
from vflbench.cards.algorithms.joins import join_messages, join_methods
from vflbench.cards.algorithms.joins.join_methods import Keys
from vflbench.defaults import from_conf
from vflbench.types import AlgorithmInfo, Interval

ALGORITHM = AlgorithmInfo(
    name="gd_join",
    summary="learning over joins by gradient descent: one full-batch update an epoch",
    paper="Kumar, Naughton, Patel, SIGMOD 2015; Schleich, Olteanu, Ciucanu, SIGMOD 2016",
    label="GD on the join",
    place=6,
    **join_methods.FAMILY,
    layouts=("relational",),
    divided_by=None,
    reports=("partial",),
    privacy=("none", "label_dp", "dp_sgd", "tablepuppet"),
    attacks=("none", "prediction_recovery", "residual_labels"),
    # any codec: rounded predictions make a noisy gradient
    remembered=("prediction", "residual"),
    accounting=("strict", "framed", "tablepuppet", "everything"),
)
EXPOSES = join_messages.EXPOSES
SEARCH = {"algorithm.lr": Interval(0.01, 2.0, log=True), **codecs.ROUNDING}
check = join_methods.check


@from_conf()
class Config(Keys):
    """Keys of GD over joins."""
