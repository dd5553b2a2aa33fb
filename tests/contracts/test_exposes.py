"""What EXPOSES declares of each algorithm is what the table of who learns what says."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tests.every import for_each
from vflbench import exposure, registry
from vflbench.plots import demands
from vflbench.types import KINDS, SHOWN, Implied, messages

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
    for entry in messages(registry.exposed(algorithm)):
        sender, receiver = (role.removesuffix("_worker") for role in (entry.sender, entry.receiver))
        # hub and worker of one organisation
        inside = sender == receiver and (sender, receiver) != (entry.sender, entry.receiver)
        if not inside and entry.kind not in ("ids", "sizes", "timing"):
            found.add((receiver, entry.kind, entry.about))
    return found


@for_each("algorithm", registry.algorithms())
def test_an_algorithm_declares_what_the_table_says(algorithm: str) -> None:
    assert learnt(algorithm) == LEARNS[algorithm]


@for_each("algorithm", registry.algorithms())
def test_what_is_disclosed_is_read_from_the_source(algorithm: str) -> None:
    """Each kind that the table says somebody learns from messages is shown to that role, and nothing else is sent."""
    shown = exposure.disclosed(algorithm, {})
    messages = {(one.observer, one.what) for one in shown if one.how in ("sent", "served")}
    assert messages == {(observer, SHOWN[kind]) for observer, kind, _ in LEARNS[algorithm]}
    assert len(set(shown)) == len(shown)


EXACT_ENTRIES = [
    (name, entry)
    for name in registry.algorithms()
    for entry in registry.exposed(name)
    if isinstance(entry, Implied) and entry.exact
]


@for_each(("algorithm", "entry"), EXACT_ENTRIES)
def test_what_is_worked_out_exactly_is_disclosed_and_meets_no_requirement_that_hides_it(
    algorithm: str, entry: Implied
) -> None:
    """Under no mechanism, or with one that noises neither it nor its messages. `test_implied` has the attacks."""
    keys = {**vars(registry.option_config("algorithm", algorithm)()), "protection": "none"}
    keys |= dict([entry.when[:2]] if entry.when else [])
    sent = [one for one in messages(registry.exposed(algorithm)) if one.tag in entry.tags and one.kind in SHOWN]
    noising = {name.partition(".")[0] for one in (entry, *sent) for name in one.noised}
    what, observer = SHOWN[entry.kind], entry.observer.removesuffix("_worker")
    for mechanism in registry.algorithms()[algorithm].privacy:
        default = {} if mechanism == "none" else vars(registry.option_config("privacy", mechanism)())
        private = {**default, "name": mechanism, "epsilon": 8.0}
        one = demands.of_method(algorithm, keys, private, 8.0)
        covered = mechanism in noising
        assert covered or any(observer in end for end in ends(one, what)), mechanism
        assert what in (*(one.clear or ()), *(one.noised if covered else ())), mechanism
        for demand in demands.relevant([one]):
            assert covered or what not in demand.hides or demands.unmet(one, demand), (mechanism, demand)


def ends(one: demands.Seen, what: str) -> list[str]:
    """Who gets it, as the words about a method say."""
    return [part.partition(":")[0] for part in str(one.to_whom).split("; ") if what in part.partition(":")[2]]


def test_labels_that_gradients_tell_are_no_secret() -> None:
    """The promise that was false: AVFL was said to show no labels."""
    for name in ("vfl", "vfl_ps", "avfl", "avfl_ps", "pubsub_vfl"):
        one = demands.of_method(name, {"protection": "none"})
        assert one.words == "embedding, gradient, labels (inferred)" and one.inferred == ("labels",)
        for key in ("labels", "forms", "rows", "noise"):
            assert "labels" in str(demands.unmet(one, demands.wanted(key) or pytest.fail()))
        noised = demands.of_method(name, {"protection": "none"}, {"name": "label_rr", "epsilon": 20.0}, 20.0)
        assert noised.noised == ("labels",) and "labels at epsilon 20" in str(
            demands.unmet(noised, demands.wanted("labels") or pytest.fail())
        )


def test_all_that_carries_data_is_shown() -> None:
    assert set(KINDS) == {*SHOWN, "ids", "sizes", "timing"}
    assert in_words("send_once") == "passive to active: binned, raw, projection"
    assert in_words("send_once", form="bins") == "passive to active: binned"
    assert in_words("graph_once", form="raw") == "client to server: raw, edges, labels"
    assert "server to client: model" in in_words("gram_once", cross="rows")
    assert in_words("vfl") == "passive to active: embedding; active to passive: gradient, labels (inferred)"
    assert in_words("centralized_gd") == "all to all: raw, labels" and in_words("local_sgd") == "nothing"
    assert "embedding (predicted rows)" in in_words("hetero_lr", protection="paillier")


def in_words(algorithm: str, **keys: Any) -> str:
    return exposure.in_words(exposure.disclosed(algorithm, keys))


def test_no_module_is_imported_for_it() -> None:
    code = "import sys; from vflbench import exposure, registry"
    code += "; [exposure.disclosed(name, {}) for name in registry.algorithms()]"
    subprocess.run([sys.executable, "-c", f"{code}; assert 'torch' not in sys.modules"], check=True)
