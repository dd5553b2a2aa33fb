"""What EXPOSES declares of each algorithm is what the table of who learns what says."""

from __future__ import annotations

import subprocess
import sys

import pytest

from vflbench import registry
from vflbench.results import texts
from vflbench.types import KINDS, SHOWN, messages

# Its columns for what is made of others' data, by messages alone: (observer, kind, whose). Ids, sizes and timing are
# left out.
SPLIT = {("active", "embeddings", "passive"), ("passive", "gradients", "active")}
JOINS = {("server", "embeddings", "client"), ("server", "labels", "client"), ("client", "gradients", "all")}
GLASU = {("server", "embeddings", "client"), ("client", "embeddings", "client")}
EXACT = GLASU | {("server", "gradients", "client"), ("client", "gradients", "client")}
# theta_0
TOKEN = {("server", "embeddings", "client"), ("client", "embeddings", "client"), ("client", "parameters", "server")}
MODELS = {("worker", "parameters", "worker")}
REPRESENTATIONS = {("client", "embeddings", "client")}
NOTHING: set[tuple[str, str, str]] = set()
LEARNS: dict[str, set[tuple[str, str, str]]] = {
    **dict.fromkeys(("vfl", "avfl", "vfl_ps", "avfl_ps", "pubsub_vfl"), SPLIT),
    # in clear, or with an arbiter
    "hetero_lr": {
        *SPLIT,
        ("passive", "labels", "active"),
        *((who, "ciphertext", whose) for who, whose in (("active", "passive"), ("passive", "active"))),
        *(("arbiter", "ciphertext", whose) for whose in ("active", "passive")),
        *((who, "sums", whose) for who, whose in (("active", "passive"), ("passive", "active"))),
    },
    **dict.fromkeys(("rfl_admm_v", "rfl_sgd_v", "gd_join", "vfl_admm", "vfl_sgd"), JOINS),
    "rfl_admm": JOINS | {("server", "parameters", "client"), ("client", "parameters", "client")},
    "rfl_sgd": JOINS | {("server", "gradients", "client"), ("client", "gradients", "client")},
    **dict.fromkeys(("svfl", "mtcd"), TOKEN),
    **dict.fromkeys(("stcd", "dcpa", "tree_cg", "extra"), REPRESENTATIONS),
    "glasu": GLASU,
    **dict.fromkeys(("glasu_exact", "simulated_centralized"), EXACT),
    "send_once": {("active", kind, "passive") for kind in ("binned", "raw", "projection")},  # one of them, by its form
    # g and h, or ciphertexts of them
    "secureboost": {
        ("passive", "labels", "active"),
        ("passive", "ciphertext", "active"),
        ("active", "binned", "passive"),
    },
    "ensemble": {("server", "predictions", "client")},
    "graph_once": {("server", kind, "client") for kind in ("raw", "edges", "projection", "labels")},
    "gram_once": {
        ("server", "labels", "client"),
        *(("server", kind, "client") for kind in ("raw", "sums")),
        *(("client", kind, "all") for kind in ("sums", "parameters")),
    },
    **dict.fromkeys(("d_psgd", "choco_sgd"), MODELS),
    "powergossip": MODELS | {("worker", "projection", "worker")},
    "leasgd": MODELS | {("worker", "sums", "worker"), ("worker", "sums", "all")},  # losses; roles
    "leasgd_async": MODELS | {("worker", "sums", "worker")},
    **dict.fromkeys(("easgd", "fedavg", "fedbuff"), MODELS | {("server", "parameters", "worker")}),
    "allreduce_sgd": {("worker", "gradients", "worker")},
    **dict.fromkeys(
        ("local_sgd", "standalone_gnn", "centralized_gd", "centralized_gnn", "centralized_join", "centralized_sgd"),
        NOTHING,
    ),
}


def learnt(algorithm: str) -> set[tuple[str, str, str]]:
    """(observer, kind, whose) of an algorithm's messages between organisations."""
    found = set()
    for entry in messages(registry.load_algorithm(algorithm).EXPOSES):
        sender, receiver = (role.removesuffix("_worker") for role in (entry.sender, entry.receiver))
        # hub and worker of one organisation
        inside = sender == receiver and (sender, receiver) != (entry.sender, entry.receiver)
        if not inside and entry.kind not in ("ids", "sizes", "timing"):
            found.add((receiver, entry.kind, entry.about))
    return found


@pytest.mark.parametrize("algorithm", registry.algorithms())
def test_an_algorithm_declares_what_the_table_says(algorithm: str) -> None:
    assert learnt(algorithm) == LEARNS[algorithm]


@pytest.mark.parametrize("algorithm", registry.algorithms())
def test_what_is_disclosed_is_read_from_the_source(algorithm: str) -> None:
    """Each kind that the table says somebody learns is shown to that role, and nothing else."""
    shown = registry.discloses(algorithm)
    messages = {(receiver, what) for _, receiver, what in shown if receiver != "all"}
    assert messages == {(observer, SHOWN[kind]) for observer, kind, _ in LEARNS[algorithm]}
    assert len(set(shown)) == len(shown)


def test_all_that_carries_data_is_shown() -> None:
    assert set(KINDS) == {*SHOWN, "ids", "sizes", "timing"}
    assert texts.shown_to(registry.discloses("send_once")) == "passive to active: binned, raw, projection"
    assert texts.shown_to(registry.discloses("send_once", {"form": "bins"})) == "passive to active: binned"
    assert texts.shown_to(registry.discloses("graph_once", {"form": "raw"})) == "client to server: raw, edges, labels"
    assert "server to client: model" in texts.shown_to(registry.discloses("gram_once", {"cross": "rows"}))
    assert texts.shown_to(registry.discloses("vfl")) == "passive to active: embedding; active to passive: gradient"
    assert texts.shown_to(registry.discloses("local_sgd")) == "nothing"


def test_no_module_is_imported_for_it() -> None:
    code = "import sys; from vflbench import registry; [registry.discloses(name) for name in registry.algorithms()]"
    subprocess.run([sys.executable, "-c", f"{code}; assert 'torch' not in sys.modules"], check=True)
