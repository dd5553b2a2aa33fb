"""One fixed look: an algorithm has the same colour and marker in every picture."""

import hashlib
import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vflbench import registry

# Okabe and Ito's palette for all kinds of colour vision; its yellow, unreadable on white, replaced by a wine red.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#882255", "#000000")
# A family may have more methods than there are colours.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h", "<", ">", "p")
GREYS = ("#000000", "#999999", "#555555", "#BBBBBB")  # lines of several methods each
LINES = ("-", "--", "-.", ":")
ALARM = "#C00000"  # warnings: data that are not real, a run that went wrong
QUIET = "#666666"
NO_NETWORK = "engine=ray"  # instead of a network's name: these times are of real processes, without a model network

PAPERS = {
    "tablepuppet": "TablePuppet",
    "glasu": "GLASU",
    "mtcd": "MTCD",
    "leasgd": "LEASGD",
    "pubsub_vfl": "PubSub-VFL",
    "comparison": "Comparison",
}

# The place of a family shifts its colours. New ones go last, so that no colour changes.
FAMILIES = ("graph", "joins", "tokens", "gossip", "split", "oneshot")
_DATASETS = {
    **{
        "citeseer": "CiteSeer",
        "pubmed": "PubMed",
        "digits_graph": "Digits graph",
        "movielens": "MovieLens",
        "mimic3": "MIMIC-III",
    },
    **{"star_schema": "Star schema", "sql": "SQL", "modelnet10": "ModelNet10", "modelnet40": "ModelNet40"},
    **{
        "cifar10": "CIFAR-10",
        "mnist": "MNIST",
        "graph_files": "own graph",
        "tabular_files": "own table",
        "breast_cancer": "Breast cancer",
    },
}

# rcParams of every picture. Text stays text in the SVG; the fixed salt makes equal runs give equal files.
RC = {
    **{
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": "#E6E6E6",
    },
    **{
        "grid.linewidth": 0.8,
        "axes.axisbelow": True,
        "axes.edgecolor": "#808080",
        "lines.linewidth": 1.8,
        "lines.markersize": 5,
    },
    **{"legend.frameon": False, "legend.fontsize": 9, "legend.handlelength": 3.5},
    **{"svg.fonttype": "none", "svg.hashsalt": "vflbench", "figure.dpi": 130},
}
SIZE = (6.4, 4.2)  # inches, of one panel


@dataclass(frozen=True)
class Look:
    """How an algorithm is drawn."""

    label: str
    color: str
    marker: str


def look(algorithm: str) -> Look:
    """Label, colour and marker of an algorithm.

    Colours differ within a family, pairs of colour and marker over all. The colour of another package's algorithm
    comes from the hash of its name.
    """
    entry = registry.algorithm_entries().get(algorithm)
    info = entry.info if entry else None
    if entry and info and not entry.plugin:
        color = PALETTE[(info.place + FAMILIES.index(info.family)) % len(PALETTE)]
        return Look(info.label, color, MARKERS[info.place % len(MARKERS)])
    code = hashlib.sha256(algorithm.encode()).digest()[0]
    return Look((info.label if info else "") or algorithm, PALETTE[code % len(PALETTE)], "*")


def looks(algorithms: Sequence[str]) -> list[dict[str, Any]]:
    """Colour, marker and dashes of the lines of one picture, by their algorithms, for matplotlib.

    Colours differ as long as there are enough: the first line of an algorithm has its own one, where no other line has
    it already. Further lines of an algorithm keep its marker, and differ in dashes too.
    """
    seen = Counter[str]()
    colors: list[str | None] = []
    for algorithm in algorithms:
        own = look(algorithm).color
        colors.append(own if not seen[algorithm] and own not in colors else None)
        seen[algorithm] += 1
    free = itertools.cycle([color for color in PALETTE if color not in colors] or PALETTE)
    seen.clear()
    found = []
    for algorithm, color in zip(algorithms, colors, strict=True):
        dashes = LINES[seen[algorithm] % len(LINES)]
        seen[algorithm] += 1
        found.append({"color": color or next(free), "marker": look(algorithm).marker, "linestyle": dashes})
    return found


def dataset_label(dataset: str, variant: str | None = None) -> str:
    """The data set's name as its makers write it, and the variant."""
    name = _DATASETS.get(dataset, dataset.replace("_", " ").capitalize())
    return f"{name} {variant}" if variant else name
