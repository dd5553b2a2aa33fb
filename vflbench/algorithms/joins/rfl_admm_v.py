"""RFL-ADMM-V: learning over joins by ADMM, one exchange of a prediction per *table* row a round.

Xu et al.: TablePuppet, arXiv 2403.15839, section 5. The programs and the departures from the paper are in consensus.py.
"""

from vflbench.algorithms.joins import consensus, stability

decide, parties = stability.decide, consensus.parties
