"""RFL-SGD: learning over joins of unions by mini-batch SGD; a table's horizontal parts share one gradient.

Xu et al.: TablePuppet, arXiv 2403.15839, sections 4 and 6. The programs and the departures from the paper are in
sgd.py.
"""

from vflbench.algorithms.joins import sgd

parties = sgd.parties
