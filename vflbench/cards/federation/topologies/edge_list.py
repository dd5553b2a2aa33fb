"""The edges of a file."""

from pathlib import Path

from vflbench.defaults import from_conf
from vflbench.types import OptionConfig, OptionInfo, Problem

OPTIONS = (OptionInfo("edge_list", "the edges of a file"),)


@from_conf()
class Config(OptionConfig):
    """The keys of topology=edge_list."""

    name: str
    edges: str | None


def check(config: Config) -> list[Problem]:
    """A problem where there is no such file."""
    if config.edges is None:
        return [Problem("topology.edges", "null", 'must name a text file with one "a b" pair of party names a line')]
    return [] if Path(config.edges).is_file() else [Problem("topology.edges", config.edges, "no such file")]
