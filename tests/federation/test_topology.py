"""Shapes, neighbours, mixing matrices and errors of every topology."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.options import topology_config
from vflbench import registry
from vflbench.config import convert
from vflbench.federation.topology import Topology, build, check
from vflbench.types import ConfigError, VflbenchError

SHAPES = [name for name in registry.option_entries("topology") if name != "edge_list"]


def names(n: int) -> list[str]:
    return [f"client_{i:02d}" for i in range(n)]


def make(name: str, n: int, servers: int = 0, seed: int = 0, **keys: object) -> Topology:
    return build(topology_config(name, **keys), ["server", "server_1"][:servers], names(n), seed)  # type: ignore[arg-type]


def degrees(topology: Topology) -> list[int]:
    return [len(topology.neighbours(name)) for name in topology.parties]


@pytest.mark.parametrize(
    ("name", "n", "expected"),
    [
        ("star", 4, [4, 1, 1, 1, 1]),
        ("path", 4, [4, 2, 3, 3, 2]),
        ("ring", 4, [4, 3, 3, 3, 3]),
        ("ring", 2, [2, 2, 2]),
        ("grid", 9, [9, 3, 4, 3, 4, 5, 4, 3, 4, 3]),
        ("grid", 5, [5, 3, 4, 2, 3, 3]),  # rows of 3 and 2
        ("complete", 4, [4, 4, 4, 4, 4]),
        ("clusters", 5, [5, 3, 3, 3, 2, 2]),  # complete clusters of 3 and 2
        ("semi_decentralized", 5, [5, 3, 3, 3, 2, 2]),
    ],
)
def test_degrees_with_a_server(name: str, n: int, expected: list[int]) -> None:
    assert degrees(make(name, n, servers=1)) == expected


def test_edges_by_hand() -> None:
    star = make("star", 2, servers=2)
    assert star.parties == ("server", "server_1", "client_00", "client_01")
    assert star.edges == (
        ("server", "server_1"),
        ("server", "client_00"),
        ("server", "client_01"),
        ("server_1", "client_00"),
        ("server_1", "client_01"),
    )
    assert make("ring", 3).edges == (("client_00", "client_01"), ("client_00", "client_02"), ("client_01", "client_02"))
    assert make("ring", 4).neighbours("client_00") == ("client_01", "client_03")
    grid = make("grid", 7)  # rows of 4 and 3
    assert grid.neighbours("client_01") == ("client_00", "client_02", "client_05") and not grid.connected(
        "client_03", "client_04"
    )
    assert make("clusters", 6, clusters=2, inside="ring").components == (tuple(names(6)[:3]), tuple(names(6)[3:]))
    assert make("clusters", 6, clusters=2, inside="path").neighbours("client_04") == ("client_03", "client_05")
    assert make("semi_decentralized", 4, servers=1).neighbours("server") == tuple(names(4))
    assert make("path", 2, servers=1).components == (("server", "client_00", "client_01"),)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize(("clients", "servers"), [(0, 1), (0, 2), (1, 0), (1, 1), (2, 1), (7, 0)])
def test_any_size(name: str, clients: int, servers: int) -> None:
    topology = make(name, clients, servers, **{"clusters": 1} if name in ("clusters", "semi_decentralized") else {})
    assert topology.adjacency.shape == (clients + servers,) * 2
    assert np.array_equal(topology.adjacency, topology.adjacency.T) and not topology.adjacency.diagonal().any()
    for a in topology.parties:
        assert topology.neighbours(a) == tuple(b for b in topology.parties if topology.connected(a, b))
    assert sum(degrees(topology)) == 2 * len(topology.edges)
    assert sorted(sum(topology.components, ())) == sorted(topology.parties)


def spectral_gap(weights: np.ndarray) -> float:
    """1 - the largest eigenvalue, in absolute value, beside the one of consensus; 1: one step averages exactly, 0:
    never reached."""
    return float(1 - np.abs(np.linalg.eigvalsh(weights - 1 / len(weights))).max())


@settings(deadline=None)
@given(
    st.sampled_from(["path", "ring", "grid", "complete", "erdos_renyi"]),
    st.integers(1, 40),
    st.integers(0, 2),
    st.integers(0, 9),
)
def test_mixing(name: str, n: int, servers: int, seed: int) -> None:
    topology = make(name, n, servers, seed, **{"probability": 0.6} if name == "erdos_renyi" else {})
    assert len(topology.components) == 1
    for rule in ("metropolis", "uniform"):
        weights = topology.mixing(rule)
        assert weights.shape == (n, n) and np.array_equal(weights, weights.T)
        assert (
            np.allclose(weights.sum(axis=0), 1, rtol=0, atol=1e-12)
            and (weights >= 0).all()
            and (weights.diagonal() > 0).all()
        )
        links = topology.adjacency[servers:, servers:]
        assert np.array_equal(weights > 0, links | np.eye(n, dtype=bool))
        assert 0 < spectral_gap(weights) <= 1 + 1e-12


def test_mixing_by_hand() -> None:
    assert np.allclose(make("ring", 5, servers=1).mixing()[0], [1 / 3, 1 / 3, 0, 0, 1 / 3])
    for rule in ("metropolis", "uniform"):
        assert np.allclose(make("complete", 4).mixing(rule), 1 / 4)
    assert spectral_gap(make("complete", 4).mixing()) == pytest.approx(1)
    # ring of 4: eigenvalues (1 + 2 cos(k pi/2))/3 = 1, 1/3, -1/3, 1/3
    assert spectral_gap(make("ring", 4).mixing()) == pytest.approx(2 / 3)
    # path of 3 and its end: degrees 1, 2, 1, all edges 1/3 by both rules; clusters never agree
    assert np.allclose(make("path", 3).mixing(), [[2 / 3, 1 / 3, 0], [1 / 3, 1 / 3, 1 / 3], [0, 1 / 3, 2 / 3]])
    assert spectral_gap(make("clusters", 4).mixing()) == pytest.approx(0)
    # an edge of two leaves apart from a triangle: metropolis 1/2 there, uniform 1/3
    uneven = make("clusters", 5)
    assert uneven.mixing("metropolis")[3, 4] == pytest.approx(1 / 2) and uneven.mixing("uniform")[
        3, 4
    ] == pytest.approx(1 / 3)
    assert np.array_equal(make("star", 3, servers=1).mixing(), np.eye(3))
    with pytest.raises(ValueError, match="no mixing rule"):
        uneven.mixing("max")


def test_erdos_renyi_is_seeded_and_connected() -> None:
    assert make("erdos_renyi", 20, seed=1).edges == make("erdos_renyi", 20, seed=1).edges
    assert make("erdos_renyi", 20, seed=1).edges != make("erdos_renyi", 20, seed=2).edges
    config = topology_config("erdos_renyi", seed=7)  # a seed of its own holds whatever the run's seed is
    assert build(config, [], names(20), 1).edges == build(config, [], names(20), 2).edges
    assert make("erdos_renyi", 6, probability=1.0).edges == make("complete", 6).edges
    # a density that is rarely connected at the first draw: redrawn until it is
    assert all(len(make("erdos_renyi", 12, seed=seed, probability=0.2).components) == 1 for seed in range(10))
    with pytest.raises(
        ConfigError, match=r"topology.probability=0.001: 100 draws gave no connected graph of 30 clients"
    ):
        make("erdos_renyi", 30, probability=0.001)


def test_edge_list(tmp_path: Path) -> None:
    path = tmp_path / "edges.txt"
    path.write_text(
        "# who meets whom\nserver client_00\n\nclient_01 client_00  # back and\nclient_00 client_01\n", encoding="utf-8"
    )
    topology = make("edge_list", 3, servers=1, edges=str(path))
    assert topology.edges == (("server", "client_00"), ("client_00", "client_01"))
    assert topology.components == (("server", "client_00", "client_01"), ("client_02",))


def test_edge_list_reports_every_bad_line(tmp_path: Path) -> None:
    path = tmp_path / "edges.txt"
    path.write_text("client_00 client_01\nclient_00 client_0l\nclient_01 client_01\nclient_00\n", encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        make("edge_list", 2, edges=str(path))
    two, three, four = error.value.problems
    assert "line 2" in two.key and two.value == "client_0l" and two.closest in ("client_00", "client_01")
    assert "line 3" in three.key and "itself" in three.allowed
    assert "line 4" in four.key and "two party names" in four.allowed
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot be read as text"):
        make("edge_list", 2, edges=str(path))


@pytest.mark.parametrize(
    ("config", "wrong"),
    [
        (topology_config("semi_decentralized", clusters=4), ["topology.clusters"]),
        (topology_config("edge_list"), ["topology.edges"]),
        (topology_config("edge_list", edges="nowhere.txt"), ["topology.edges"]),
    ],
)
def test_errors(config: Any, wrong: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        build(config, ["server"], names(3), 0)
    assert [problem.key for problem in error.value.problems] == wrong


def test_keys_out_of_their_range() -> None:
    _, problems = convert(
        registry.option_config("topology", "clusters"), {"name": "clusters", "clusters": 0, "inside": "rin"}
    )
    assert [(p.key, p.allowed, p.closest) for p in problems] == [
        ("clusters", "must be at least 1", None), ("inside", "must be one of complete, ring, path", "ring"),
    ]  # fmt: skip
    _, problems = convert(
        registry.option_config("topology", "erdos_renyi"), {"name": "erdos_renyi", "probability": 0.0}
    )
    assert [(p.key, p.allowed) for p in problems] == [("probability", "must be greater than 0")]
    assert check(topology_config("clusters", clusters=9)) == []  # of how many parties, nobody knows yet


def test_an_edge_to_nobody_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for edge in (("client_00", "client_9"), ("client_00", "client_00")):
        monkeypatch.setattr(registry.load_option("topology", "ring"), "edges", lambda *args, edge=edge: [edge])
        with pytest.raises(
            VflbenchError,
            match=f"topology=ring has an edge from {edge[0]} to {edge[1]}: an edge joins two of client_00",
        ):
            make("ring", 3)
