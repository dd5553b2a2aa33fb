"""What methods with a whole model at every worker show: in their cards, and here, where plug-ins look for it."""

from vflbench.cards.algorithms.gossip.model_messages import NOISED as NOISED
from vflbench.cards.algorithms.gossip.model_messages import SETUP as SETUP
from vflbench.cards.algorithms.gossip.model_messages import of_models as of_models
