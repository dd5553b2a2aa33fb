"""The edges of a file."""

from dataclasses import dataclass
from pathlib import Path

from vflbench.types import OptionConfig, OptionInfo, Problem

OPTIONS = (OptionInfo("edge_list", "the edges of a file"),)


@dataclass
class Config(OptionConfig):
    """The keys of topology=edge_list."""

    name: str = "edge_list"
    edges: str | None = None  # a text file with one "a b" pair of party names a line


def check(config: Config) -> list[Problem]:
    """A problem where there is no such file."""
    if config.edges is None:
        return [Problem("topology.edges", "null", 'must name a text file with one "a b" pair of party names a line')]
    return [] if Path(config.edges).is_file() else [Problem("topology.edges", config.edges, "no such file")]
