"""Workers with rows of their own that average models: LEASGD, FedAvg and their baselines."""

from vflbench.cards.algorithms.gossip import exposes as exposes  # where plug-ins look for it
