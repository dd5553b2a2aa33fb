"""What methods share whose workers average with all neighbours, by the weights of a mixing matrix W."""

from dataclasses import dataclass
from typing import Literal

from vflbench.cards.algorithms.gossip.shared import WorkerKeys


@dataclass
class AveragingKeys(WorkerKeys):
    """Keys of these methods."""

    # W: 1 / (1 + the larger degree of the two) | 1 / (1 + the largest degree of all)
    weights: Literal["metropolis", "uniform"] = "metropolis"
