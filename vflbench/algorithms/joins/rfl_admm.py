"""RFL-ADMM: learning over joins of unions by ADMM; a table's horizontal parts agree on its parameters by consensus.

Xu et al.: TablePuppet, arXiv 2403.15839, sections 5 and 6. The programs and the departures from the paper are in
consensus.py.
"""

from vflbench.algorithms.joins import consensus, stability

decide, parties = stability.decide, consensus.parties
