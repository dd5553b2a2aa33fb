"""A network is called by its values."""

from typing import Any

import pytest

from tests.conftest import network_option
from vflbench import registry
from vflbench.results.identity import config_hash, identifying
from vflbench.results.network import by_values, network_label

SLOW = {"latency_ms": 50.0, "bandwidth_gbps": 0.1}


@pytest.mark.parametrize("name", ["cost_ratio", "ideal", "lan", "omnipath_100g", "us_uk", "us_us"])
def test_an_option_as_it_is_keeps_its_name(name: str) -> None:
    assert network_label(network_option(name)) == by_values(network_option(name)) == name
    # so its runs keep their hash, as before there were headers
    before = {key: value for key, value in network_option(name).items() if key != "header_bytes"}
    assert identifying({"network": network_option(name)}) == {"network": before}


def test_a_key_that_was_set_is_told() -> None:
    both = network_option("us_uk", client_server=SLOW, client_client=SLOW)
    assert network_label(both) == "50 ms, 0.1 Gbit/s"
    one = network_option("us_uk", client_server={"latency_ms": 50.0, "bandwidth_gbps": None})
    assert network_label(one) == "client_server 50 ms; client_client 136 ms, 0.42 Gbit/s"
    assert network_label(network_option("lan", timing="round")) == "lan, timing=round"
    assert network_label(network_option("ideal", ratio=5.0)) == network_label(network_option("cost_ratio", ratio=5.0))
    assert "the server 2 Gbit/s" in network_label(network_option("lan", server_bandwidth_gbps=2.0))
    links = {"client_0->server": SLOW}
    assert "1 link unlike the others" in network_label(network_option("lan", links=links))


def test_a_name_of_ones_own_stands_before_the_values() -> None:
    mine = {**network_option("us_uk", client_server=SLOW, client_client=SLOW), "name": "hospitals"}
    assert network_label(mine) == "hospitals (50 ms, 0.1 Gbit/s)"
    assert network_label({**network_option("lan"), "name": "hospitals"}) == "hospitals (lan)"


def test_equal_values_are_one_experiment_and_others_are_not() -> None:
    us_us = network_option("us_us")
    typed = network_option("us_uk", client_server=us_us["client_server"], client_client=us_us["client_client"])
    assert network_label(typed) == "us_us"
    assert config_hash({"network": typed}) == config_hash({"network": us_us})
    whole = {"latency_ms": 136, "bandwidth_gbps": 0.42}  # a typed 136 is 136.0
    typed_whole = {"network": network_option("us_uk", client_server=whole, ratio=1)}
    assert config_hash(typed_whole) == config_hash({"network": network_option("us_uk")})
    slow = network_option("us_uk", client_server=SLOW)
    assert config_hash({"network": slow}) == config_hash({"network": {**slow, "name": "mine"}})
    assert len({config_hash({"network": found}) for found in (typed, slow, network_option("us_uk"))}) == 3


def test_a_network_of_a_module_keeps_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its links are computed: equal keys of two modules are not equal networks."""
    monkeypatch.setattr(registry, "option_entries", lambda group: {"scattered": None})
    assert network_label({**network_option("us_uk"), "name": "scattered"}) == "scattered"


DAMAGES: list[dict[str, Any]] = [
    {"links": 5},
    {"client_server": 3},
    {"client_server": {"latency_ms": 10**400}},
    {"ratio": []},
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_network_still_has_a_name(damage: dict[str, Any]) -> None:
    assert isinstance(network_label(network_option("lan", **damage)), str)
