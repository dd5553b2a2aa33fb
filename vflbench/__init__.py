"""Compares federated methods: which one reaches your accuracy with the least communication.

The data are split between organisations.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from vflbench.version import __version__ as __version__

if TYPE_CHECKING:
    from vflbench.python.choices import choose, tune
    from vflbench.python.reports import report
    from vflbench.python.runs import load, plot, reprice, run
    from vflbench.python.tables import tables
    from vflbench.types import ConfigError, DataError, VflbenchError

# Torch reads this when it is imported, so it is set before. Passive waiting keeps two busy processes on two cores from
# slowing each other down 10 to 30 times. Huge pages (THP_MEM_ALLOC_ENABLE) stay off: they help new tensors beyond
# 32 MB, which nothing here makes in a loop, and slow down the 10 MB of a cohort's models.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# Name -> its module: imported when it is first used, since `vflbench --help` needs none.
_MODULES = {"choose": "python.choices", "tune": "python.choices", "report": "python.reports", "tables": "python.tables"}
_MODULES |= dict.fromkeys(("load", "plot", "reprice", "run"), "python.runs")
_MODULES |= dict.fromkeys(("ConfigError", "DataError", "VflbenchError"), "types")
__all__ = ["ConfigError", "DataError", "VflbenchError"]  # found by __getattr__
__all__ += ["choose", "load", "plot", "report", "reprice", "run", "tables", "tune"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'vflbench' has no attribute {name!r}")
    return getattr(importlib.import_module(f"vflbench.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
