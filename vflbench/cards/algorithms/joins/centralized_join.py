"""SGD on the join in one place."""

from vflbench.cards.algorithms.joins import join_methods
from vflbench.cards.algorithms.joins.join_methods import Keys, PartyKeys
from vflbench.defaults import from_conf
from vflbench.types import AlgorithmInfo

ALGORITHM = AlgorithmInfo(
    name="centralized_join",
    summary="reference of learning over joins: one party joins all tables and runs SGD, no messages",
    paper="Xu et al. 2024, arXiv 2403.15839 (TablePuppet), section 7",
    label="Centralized join",
    place=7,
    **join_methods.FAMILY,
    layouts=("aligned",),
    divided_by="parties",
    reports=("predictions",),
    privacy=("none", "dp_sgd"),
    exact="it sends nothing",
    assumes=("pooled",),
    accounting=("strict", "framed", "tablepuppet"),
)
EXPOSES = ()
SEARCH = join_methods.SGD
check = join_methods.check


@from_conf()
class Config(Keys, PartyKeys):
    """Keys of the centralized join."""

    batch_size: int
