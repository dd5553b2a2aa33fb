"""For every algorithm that does not depend on time: a re-priced run equals, to the last bit, a fresh run under that
network."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from tests.contracts.test_algorithms import CASES, REPRESENTATIVES, represented, run
from vflbench import registry
from vflbench.results.reader import Run, load
from vflbench.runner.reprice import Profile, reprice

INFOS = registry.algorithms()
INDEPENDENT = [(name, layout) for name, layout in CASES if not INFOS[name].time_dependent]
SHORT = ["rounds=2", "eval_every=1", "checkpoint_every=null"]
# A small server bandwidth, so that messages do wait for each other there.
SHARED = ["network=us_us", "network.server_bandwidth_gbps=0.001", "network.ratio=7"]
ROUND = ["network=lan", "network.timing=round", "network.latencies=1", "network.client_client.latency_ms=50"]


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than these runs."""
    monkeypatch.setattr("vflbench.plots.curves.draw_run", lambda folder, *_: None)


def repriced(source: Run, out: Path, like: Run) -> Run:
    """`source` under the network and accounting of `like`."""
    config = like.manifest["config"]
    profile = Profile({"network": config["network"]["name"], "accounting": config["accounting"]}, config["network"])
    refused: list[str] = []
    (result,) = reprice([str(source.folder)], [profile], out, command="", refused=refused.append) or [None]
    assert result is not None and not refused, refused
    return load(result.folder)


def assert_equal(made: Run, fresh: Run) -> None:
    assert (made.folder / "curve.csv").read_text() == (fresh.folder / "curve.csv").read_text()
    without = [{key: value for key, value in one.summary.items() if key != "wall_seconds"} for one in (made, fresh)]
    assert without[0] == without[1]
    assert json.dumps(without[0]["bytes"]["by_link"]) == json.dumps(without[1]["bytes"]["by_link"])
    for one, other in ((made.messages, fresh.messages), (made.trace, fresh.trace)):
        plain = [
            frame.astype({c: object for c in frame.columns if frame[c].dtype == "category"}) for frame in (one, other)
        ]
        pd.testing.assert_frame_equal(*plain, check_exact=True)
    assert (
        made.manifest["config_hash"] == fresh.manifest["config_hash"] != made.manifest["repriced_from"]["config_hash"]
    )


def accounting(algorithm: str) -> list[str]:
    rules = INFOS[algorithm].accounting
    return [f"accounting={next(rule for rule in ('tablepuppet', 'everything', 'framed') if rule in rules)}"]


# One of each family: a replay reads messages, whichever algorithm sent them.
LEADING = [case for case in INDEPENDENT if case[0] in REPRESENTATIVES]


@pytest.mark.parametrize(("algorithm", "layout"), represented(LEADING, {"vfl"}))
def test_there_and_back(algorithm: str, layout: str, tmp_path: Path) -> None:
    """From links of their own to a shared bandwidth with another cost ratio and accounting, and from there back; with
    computing."""
    other = [*SHARED, *accounting(algorithm)]
    computing = [*SHORT, "engine.compute_clock=modelled", "compute.seconds_per_unit=1e-3"]
    plain = run(tmp_path / "plain", algorithm, layout, *computing)
    shared = run(tmp_path / "shared", algorithm, layout, *computing, *other)
    assert_equal(repriced(plain, tmp_path / "a", shared), shared)
    assert_equal(repriced(shared, tmp_path / "b", plain), plain)
    if len(plain.ledger):
        assert plain.summary["virtual_seconds"] != shared.summary["virtual_seconds"]


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "layout"), LEADING)
def test_every_profile(algorithm: str, layout: str, tmp_path: Path) -> None:
    """With the algorithm's own compute clock: US-US, exchanges instead of messages, a shared bandwidth, a cost ratio,
    an accounting."""
    plain = run(tmp_path / "plain", algorithm, layout, *SHORT)
    exchanges = run(tmp_path / "round", algorithm, layout, *SHORT, *ROUND)
    profiles = [
        ["network=us_us"],
        ["network=cost_ratio"],
        SHARED,
        ["network=us_us", *accounting(algorithm)],
    ]
    for number, profile in enumerate(profiles):
        fresh = run(tmp_path / f"fresh{number}", algorithm, layout, *SHORT, *profile)
        for name, source in (("plain", plain), ("round", exchanges)):
            assert_equal(repriced(source, tmp_path / f"{name}{number}", fresh), fresh)
    assert_equal(repriced(plain, tmp_path / "exchanges", exchanges), exchanges)
    assert_equal(repriced(exchanges, tmp_path / "messages", plain), plain)
