"""RFL-SGD-V: learning over joins by mini-batch SGD, with one message entry per distinct *table* row of a batch.

Xu et al.: TablePuppet, arXiv 2403.15839, section 4. Each way, one number is sent per distinct table row and output. The
programs and the departures from the paper are in sgd.py.
"""

from vflbench.algorithms.joins import sgd

parties = sgd.parties
