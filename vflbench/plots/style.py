"""One fixed look: an algorithm has the same colour and marker in every picture, whatever else is drawn."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

# Okabe and Ito's palette for all kinds of colour vision; its yellow, unreadable on white, replaced by a wine red.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#882255", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h")
GREYS = ("#000000", "#999999", "#555555", "#BBBBBB")  # lines on each of which are several methods
LINES = ("-", "--", "-.", ":")
ALARM = "#C00000"  # what must not be overlooked: data that are not real, a run that went wrong
QUIET = "#666666"
NO_NETWORK = "engine=ray"  # instead of a network's name: the times are of real processes, which use none of it

PAPERS = {"tablepuppet": "TablePuppet", "glasu": "GLASU", "mtcd": "MTCD", "leasgd": "LEASGD", "pubsub_vfl": "PubSub-VFL"}

# One line per paper: its system first, then its baselines. New ones go last in their line, so that no colour moves.
FAMILIES: tuple[dict[str, str], ...] = (
    {
        **{"glasu": "GLASU", "centralized_gnn": "Centralized GNN", "standalone_gnn": "Standalone GNN"},
        **{"simulated_centralized": "Simulated centralized", "glasu_exact": "GLASU (exact)"},
    },
    {
        **{"rfl_admm_v": "RFL-ADMM-V", "rfl_sgd_v": "RFL-SGD-V", "vfl_admm": "VFL-ADMM", "vfl_sgd": "VFL-SGD", "rfl_admm": "RFL-ADMM"},
        **{"rfl_sgd": "RFL-SGD", "gd_join": "GD on the join", "centralized_join": "Centralized join"},
    },
    {"mtcd": "MTCD", "stcd": "STCD", "svfl": "SVFL", "dcpa": "DCPA", "centralized_gd": "Centralized GD"},
    {
        **{"leasgd": "LEASGD", "d_psgd": "D-PSGD", "easgd": "EASGD", "local_sgd": "Local SGD", "allreduce_sgd": "AllReduce SGD"},
        **{"centralized_sgd": "Centralized SGD", "leasgd_async": "LEASGD (async)"},
    },
    {"pubsub_vfl": "PubSub-VFL", "vfl": "VFL", "vfl_ps": "VFL-PS", "avfl": "AVFL", "avfl_ps": "AVFL-PS"},
)
_DATASETS = {
    **{"citeseer": "CiteSeer", "pubmed": "PubMed", "digits_graph": "Digits graph", "movielens": "MovieLens", "mimic3": "MIMIC-III"},
    **{"star_schema": "Star schema", "sql": "SQL", "modelnet10": "ModelNet10", "modelnet40": "ModelNet40"},
    **{"cifar10": "CIFAR-10", "mnist": "MNIST", "graph_files": "own graph", "tabular_files": "own table", "breast_cancer": "Breast cancer"},
}

# rcParams of every picture. Text stays text in the SVG; the fixed salt makes equal runs give equal files.
RC = {
    **{"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": "#E6E6E6"},
    **{"grid.linewidth": 0.8, "axes.axisbelow": True, "axes.edgecolor": "#808080", "lines.linewidth": 1.8, "lines.markersize": 5},
    **{
        "legend.frameon": False,
        "legend.fontsize": 9,
        "legend.handlelength": 3.5,
        "svg.fonttype": "none",
        "svg.hashsalt": "vflbench",
        "savefig.dpi": 130,
    },
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

    Colours differ within a family, (colour, marker) pairs over all. One that is not ours gets what its name's hash says.
    """
    for shift, family in enumerate(FAMILIES):
        if algorithm in family:
            place = list(family).index(algorithm)
            return Look(family[algorithm], PALETTE[(place + shift) % len(PALETTE)], MARKERS[place])
    code = hashlib.sha256(algorithm.encode()).digest()[0]
    return Look(algorithm, PALETTE[code % len(PALETTE)], "*")


def dataset_label(dataset: str, variant: str | None = None) -> str:
    """The data set's name as its makers write it, and which variant of it is meant."""
    name = _DATASETS.get(dataset, dataset.replace("_", " ").capitalize())
    return f"{name} {variant}" if variant else name
