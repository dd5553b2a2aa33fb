"""The simulated engine: all parties in one process, in virtual time.

engine.py drives; clock.py has the heap of what depends on time; transport.py times messages; batches.py computes for a
cohort at once.
"""

from vflbench.federation.simulated.engine import SimulatedEngine

__all__ = ["SimulatedEngine"]
