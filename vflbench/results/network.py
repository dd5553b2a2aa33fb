"""What a network is called: its values decide, since the name of an option says nothing once one of its keys is set."""

import functools
from collections.abc import Mapping
from typing import Any

import yaml

from vflbench import registry
from vflbench.results.texts import as_text

KINDS = ("client_server", "client_client")


@functools.cache
def _options() -> dict[str, dict[str, Any]]:
    """The values of every network that comes with vflbench."""
    files = sorted((registry.config_dir() / "network").glob("*.yaml"))
    return {file.stem: yaml.safe_load(file.read_text(encoding="utf-8")) for file in files}


def by_values(network: Mapping[str, Any]) -> str:
    """The option with these values, else the values: equal for equal networks, whatever they are called.

    A network whose module computes its links keeps its name.
    """
    name = str(network.get("name", ""))
    if name in registry.option_entries("network"):
        return name
    found = {key: value for key, value in network.items() if key != "name"}
    own_first = sorted(_options().items(), key=lambda option: option[0] != name)
    for option, values in own_first:
        if all(key in values and values[key] == value for key, value in found.items()):
            return option
    links = [_link(found.pop(kind, {})) for kind in KINDS]
    usual = _options()["us_uk"]
    others = [f"{key}={value}" for key, value in found.items() if key != "links" and usual.get(key) != value]
    own = len(found.get("links") or {})
    unlike = f"{own} link{'s' if own > 1 else ''} unlike the others" if own else ""
    both = links[0] if links[0] == links[1] else "; ".join(map(" ".join, zip(KINDS, links, strict=True)))
    return ", ".join(filter(None, [both, unlike, *others]))


def network_label(network: Mapping[str, Any]) -> str:
    """The network's name for a reader: a name that is not one of vflbench's own stands before the values."""
    name, values = str(network.get("name", "")), by_values(network)
    return values if not name or name in _options() or name == values else f"{name} ({values})"


def _link(link: Any) -> str:
    """A link's latency and bandwidth, where it has one."""
    if not isinstance(link, Mapping):  # a damaged manifest
        return str(link)
    bandwidth = link.get("bandwidth_gbps")
    return f"{as_text(link.get('latency_ms', 0))} ms" + ("" if bandwidth is None else f", {as_text(bandwidth)} Gbit/s")
