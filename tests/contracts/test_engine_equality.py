"""For every algorithm that does not depend on time: parties in processes of their own (engine=ray) do what simulated
ones do.

Equal to the last bit: parameters, the curve without its times, the ledger without its times, privacy. That is the proof
that no party peeks at another's data and that no byte goes uncounted.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.contracts.test_algorithms import CASES, REPRESENTATIVES, TABLES, run
from vflbench import registry
from vflbench.results.reader import Run, load
from vflbench.results.run_schema import validate_summary
from vflbench.runner.reprice import Profile, reprice

INFOS = registry.algorithms()
SYNCHRONOUS = [(name, layout) for name, layout in CASES if not INFOS[name].time_dependent]
TIMES = ["virtual_seconds", "communication_seconds", "idle_seconds", "compute_seconds"]
APART = ["engine=ray", "engine.address=auto", "checkpoint_every=null"]
TOGETHER = ["engine.batch_compute=false", "checkpoint_every=null"]


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than these runs."""
    monkeypatch.setattr("vflbench.plots.curves.draw_run", lambda folder, *_: None)


def few(algorithm: str) -> list[str]:
    """Fewer parties than the algorithm has by default: a process for each takes seconds."""
    config = registry.option_config("algorithm", algorithm)()
    return ["algorithm.workers=3"] if hasattr(config, "workers") and algorithm not in ("vfl_ps",) else []


def equal(simulated: Run, ray: Run) -> None:
    pd.testing.assert_frame_equal(simulated.curve.drop(columns=TIMES), ray.curve.drop(columns=TIMES), check_exact=True)
    mine, theirs = (one.messages.drop(columns=["sent", "delivered"]).astype({"tag": str}) for one in (simulated, ray))
    pd.testing.assert_frame_equal(mine, theirs, check_exact=True)  # tags as text: which was used first depends on time
    assert {path.name for path in (simulated.folder / "model").glob("*")} == {
        path.name for path in (ray.folder / "model").glob("*")
    }
    for path in sorted((simulated.folder / "model").glob("*")):
        assert path.read_bytes() == (ray.folder / "model" / path.name).read_bytes(), path.name
    for key in (
        "status",
        "metric",
        "rounds",
        "bytes",
        "messages",
        "vectors",
        "cost",
        "privacy",
        "averaged_model",
        "assumes",
    ):
        assert simulated.summary.get(key) == ray.summary.get(key), key


def measured(ray: Run) -> None:
    """Its times are real ones, and it says so."""
    assert validate_summary(ray.summary) == []
    assert (ray.summary["engine"], ray.summary["compute_clock"], ray.summary["timing"]) == (
        "ray",
        "measured",
        "measured",
    )
    assert (ray.ledger["delivered"] >= ray.ledger["sent"]).all() and (ray.ledger["sent"] >= 0).all()
    assert (np.diff(ray.curve["virtual_seconds"]) > 0).all()
    assert 0 < ray.summary["virtual_seconds"] < ray.summary["wall_seconds"]
    assert (ray.trace["kind"] == "compute").any()
    assert ray.summary["communication_seconds"] is None and ray.summary["idle_seconds"] > 0


def equally_repriced(simulated: Run, ray: Run, out: Path) -> None:
    """Both under another network: the same time in communication; and what the Ray run computed, as it was measured, in
    between."""
    network = {
        "name": "us_us",
        **{link: {"latency_ms": 67.0, "bandwidth_gbps": 1.15} for link in ("client_server", "client_client")},
    }
    refused: list[str] = []
    profile = Profile({"network": "us_us"}, {**ray.manifest["config"]["network"], **network})
    results = reprice([str(one.folder) for one in (simulated, ray)], [profile], out, command="", refused=refused.append)
    assert not refused and len(results) == 2
    one, other = (load(result.folder) for result in results)
    assert list(one.curve["communication_seconds"]) == list(other.curve["communication_seconds"])
    assert one.summary["communication_seconds"] == other.summary["communication_seconds"]
    assert other.summary["timing"] == "causal" and other.summary["compute_seconds"] >= 0
    # of that machine, not of this network
    assert not {"utilisation", "waiting_seconds", "start_seconds", "cores"} & other.summary.keys()


@pytest.mark.slow  # each takes ten seconds: a process per party
@pytest.mark.parametrize(("algorithm", "layout"), SYNCHRONOUS)
@pytest.mark.usefixtures("ray_pool")
def test_engine_equality(algorithm: str, layout: str, tmp_path: Path) -> None:
    simulated = run(tmp_path / "simulated", algorithm, layout, *few(algorithm), *TOGETHER)
    ray = run(tmp_path / "ray", algorithm, layout, *few(algorithm), *APART)
    equal(simulated, ray)
    measured(ray)
    if algorithm in REPRESENTATIVES:  # a replay reads messages, whichever algorithm sent them
        equally_repriced(simulated, ray, tmp_path / "us_us")


TOKENS = ["privacy=gaussian_embedding", "privacy.noise_multiplier=0.1"]
PRIVATE = {  # of each family what noises in ways of its own
    "glasu_exact": ("graph", ["privacy=gaussian_embedding"]),
    "graph_once": ("graph", ["privacy=edge_rr", "privacy.row_epsilon=8"]),
    "leasgd": (
        "sharded",
        ["privacy=dp_sgd", "privacy.epsilon=null", "privacy.noise_multiplier=1.5", "algorithm.workers=3"],
    ),
    **dict.fromkeys(("mtcd", "dcpa"), ("aligned", TOKENS)),
    # workers release rows in turn, and train on the same labels
    "vfl_ps": ("aligned", ["privacy=embedding_and_label", "dataset.task=classes"]),
}


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", PRIVATE)
@pytest.mark.usefixtures("ray_pool")
def test_engine_equality_with_privacy_and_codecs(algorithm: str, tmp_path: Path) -> None:
    """The same noise, the same rounding of it where it can be rounded, the same epsilon."""
    layout, more = PRIVATE[algorithm]
    codec = "none" if INFOS[algorithm].exact else "int8"
    more = [*more, f"codec={codec}", "privacy.secure_rng=false"]
    simulated = run(tmp_path / "simulated", algorithm, layout, *more, *TOGETHER)
    ray = run(tmp_path / "ray", algorithm, layout, *more, *APART)
    equal(simulated, ray)
    assert simulated.summary["privacy"]["epsilon"] is not None


@pytest.mark.slow
@pytest.mark.usefixtures("ray_pool")
def test_engine_equality_with_randomised_edges(tmp_path: Path) -> None:
    """The same edges shown, whoever draws them."""
    more = ["privacy=edge_rr", "privacy.row_epsilon=8", "privacy.secure_rng=false"]
    simulated = run(tmp_path / "simulated", "glasu", "graph", *more, *TOGETHER)
    ray = run(tmp_path / "ray", "glasu", "graph", *more, *APART)
    equal(simulated, ray)
    assert simulated.summary["privacy"]["row_releases"]["done"] > 0


@pytest.mark.slow
@pytest.mark.usefixtures("ray_pool")
def test_engine_equality_of_networks_of_tokens(tmp_path: Path) -> None:
    import vflbench

    network = [*TABLES, "algorithm.parties=3", "algorithm.lr=0.01", "algorithm.batch_size=50", "model=split_mlp"]
    network += [*TOKENS, "privacy.secure_rng=false"]
    small = ["algorithm=mtcd", *network, "eval_every=2", "engine.threads=1", "plot=none", "rounds=4"]
    simulated = vflbench.run([*small, *TOGETHER, f"hydra.run.dir={tmp_path / 'simulated'}"])
    equal(simulated, vflbench.run([*small, *APART, f"hydra.run.dir={tmp_path / 'ray'}"]))
