"""Graphs of a known shape."""

from vflbench.defaults import from_conf
from vflbench.types import OptionConfig, OptionInfo

OPTIONS = (
    OptionInfo("star", "no two clients meet"),
    OptionInfo("path", "each client and the next"),
    OptionInfo("ring", "a path whose ends meet"),
    OptionInfo("grid", "a grid as near to a square as can be"),
    OptionInfo("complete", "every two clients meet"),
)


@from_conf()
class Config(OptionConfig):
    """The keys of a topology in a known shape."""

    name: str
