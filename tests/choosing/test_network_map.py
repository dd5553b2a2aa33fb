"""The map is what fresh runs there would take."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest

import vflbench
from tests.choosing.made import record
from vflbench import cli
from vflbench.choosing import answer, network_map
from vflbench.choosing.method_ranking import Contender, ordered
from vflbench.choosing.record import Method, Record
from vflbench.results import reader
from vflbench.results.pricing import Charged
from vflbench.types import LinkConfig, NetworkConfig

HERE = ["network.latency_ms=20", "network.bandwidth_mbps=100"]


@pytest.fixture(scope="module")
def chosen(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Record, dict[str, Any]]:
    """A record with finals of VFL, of AVFL, which depends on time, and of sending once; and the answer to it."""
    root = tmp_path_factory.mktemp("chosen")
    made = record([], target=0.6, seeds=[0])
    for algorithm in ("vfl", "avfl", "send_once"):
        words = [f"algorithm={algorithm}", "dataset=breast_cancer", "dataset.problem=learning", *HERE]
        folder = root / f"finals/{algorithm}/0"
        how = ["rounds=2", "eval_every=1", "seed=0", "floor=none", "plot=none", f"hydra.run.dir={folder}"]
        vflbench.run([*words, *how])
        made.methods.append(Method(algorithm, "none", words, {}, finals=[f"finals/{algorithm}/0"]))
    return root, made, answer.answer(root, made)


@pytest.mark.slow
def test_a_cell_is_a_fresh_price(
    chosen: tuple[Path, Record, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, _, found = chosen
    drawn = found["map"]
    assert [left["name"] for left in drawn["left_out"]] == ["avfl"] and "depends on time" in drawn["left_out"][0]["why"]
    monkeypatch.chdir(tmp_path)
    for row, column in ((0, 0), (3, 1), (len(drawn["latencies"]) - 1, len(drawn["bandwidths"]) - 1)):
        latency, bandwidth = drawn["latencies"][row], drawn["bandwidths"][column]
        words = [f"network.latency_ms={latency}", f"network.bandwidth_mbps={bandwidth}", "--out", f"{row}"]
        with contextlib.redirect_stdout(io.StringIO()):
            assert (
                cli.command(["reprice", *(str(root / f"finals/{name}") for name in ("vfl", "send_once")), *words]) == 0
            )
        for path in Path(f"{row}").rglob("summary.json"):
            run = reader.load(path.parent)
            place = int((run.curve["val_accuracy"] >= 0.6).to_numpy().argmax())
            there = run.curve["virtual_seconds"].iloc[place] + Charged().more(run, "virtual_seconds")
            assert drawn["cells"][row][column]["seconds"][run.summary["algorithm"]] == pytest.approx(there, rel=1e-12)


@pytest.mark.slow
def test_the_users_cell_has_every_method_as_it_ran(chosen: tuple[Path, Record, dict[str, Any]]) -> None:
    _, _, found = chosen
    row, column = found["map"]["you"]
    assert (found["map"]["latencies"][row], found["map"]["bandwidths"][column]) == (20.0, 100.0)
    cell = found["map"]["cells"][row][column]
    assert cell["seconds"] == {row["name"]: row["seconds"] for row in found["methods"]}


def test_where_the_winner_changes_is_said() -> None:
    """One sends 10 messages of 1 kB one after the other, one a single message of 1 MB."""

    class Fixed:
        def __init__(self, messages: int, nbytes: int) -> None:
            self.messages, self.nbytes = messages, nbytes

        def seconds(self, network: NetworkConfig, until: int, predictions: int) -> float:
            link = network.client_server
            assert link.bandwidth_gbps is not None
            return self.messages * link.latency_ms / 1e3 + 8 * self.nbytes / (link.bandwidth_gbps * 1e9)

        summary: dict[str, Any] = {}

    pool = [Contender(Method(name, "none", [], {}), [], None, None, 1) for name in ("vfl", "svfl")]
    runs: Any = [[(0, Fixed(10, 10_000), 1)], [(0, Fixed(1, 1_000_000), 1)]]
    link = LinkConfig(latency_ms=1, bandwidth_gbps=0.1)
    network = NetworkConfig(client_server=link, client_client=link)
    pricing = network_map.Pricing(pool, runs, network, 1, {})
    words = network_map._words(pricing, [0.1, 1.0, 10.0, 100.0], [10.0, 100.0, 10000.0], (1.0, 100.0))
    # equal at 9 L = 8 x 990,000 / B: L = 8.8 ms at 100 Mbit/s, B = 880 Mbit/s at 1 ms
    assert [one["words"] for one in words] == ["above 8.8 ms SVFL", "above 880 Mbit/s SVFL"]
    assert ordered(pool, [{0: 2.0}, {0: 1.0}], 1)[0].contender.name == "svfl"


def test_a_network_of_differing_links_is_no_point_of_the_map() -> None:
    near, far = LinkConfig(latency_ms=1, bandwidth_gbps=1), LinkConfig(latency_ms=100, bandwidth_gbps=None)
    assert network_map._you(NetworkConfig(client_server=near, client_client=far)) is None
    assert network_map._you(NetworkConfig(client_server=far, client_client=far)) == (100.0, None)
    changed = network_map.on(NetworkConfig(client_server=near, client_client=far, timing="round"), 3.0, 50.0)
    assert changed.client_server == changed.client_client == LinkConfig(latency_ms=3.0, bandwidth_gbps=0.05)
    assert changed.timing == "round" and json.dumps(changed.links) == "{}"
