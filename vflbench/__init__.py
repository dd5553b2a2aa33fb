"""Compares federated methods: which one reaches your accuracy with the least communication.

The data are split between organisations.
"""

import os

from vflbench.version import __version__ as __version__

# Torch reads this when it is imported, so it is set before. Passive waiting keeps two busy processes on two cores from
# slowing each other down 10 to 30 times. Huge pages (THP_MEM_ALLOC_ENABLE) stay off: they help new tensors beyond
# 32 MB, which nothing here makes in a loop, and slow down the 10 MB of a cohort's models.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def run(overrides: list[str], config_dir: str | None = None):  # type: ignore[no-untyped-def]
    """Run one experiment as ``vflbench OVERRIDES...`` would, and return it.

    Parameters
    ----------
    overrides : Hydra overrides, e.g. ``["algorithm=glasu", "dataset=cora", "seed=1"]``.
    config_dir : a folder with options of your own (the command's ``--config-dir``).

    Returns
    -------
    vflbench.results.reader.Run : ``.curve`` is a pandas DataFrame, ``.summary`` a dict, ``.folder`` a Path.

    Raises
    ------
    vflbench.types.ConfigError : listing the problems of the overrides.
    vflbench.types.VflbenchError : for data that is missing or malformed, or a run that failed.
    """
    from vflbench.cli.train import run as _run

    return _run(overrides, config_dir)
