"""What a network is called: its values decide, since the name of an option says nothing once one of its keys is set."""

import functools
from collections.abc import Mapping
from typing import Any

import yaml

from vflbench import registry
from vflbench.results.texts import as_text

KINDS = ("client_server", "client_client")
LINKS = (*KINDS, "server_bandwidth_gbps", "links")


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
    values = {key: value for key, value in network.items() if key != "name"}
    if set(network) == {"name"}:  # nothing else is known
        return name
    alike = {name: option for name, option in _options().items() if all(_same(key, values, option) for key in LINKS)}
    # the one with the fewest keys that differ
    nearest = min(alike, key=lambda name: sum(not _same(key, values, alike[name]) for key in values), default=None)
    usual = _options()[nearest or "us_uk"]
    others = [
        f"{key}={as_text(value)}" for key, value in values.items() if key not in LINKS and usual.get(key) != value
    ]
    return ", ".join([nearest or _links(values), *others])


def network_label(network: Mapping[str, Any]) -> str:
    """The network's name for a reader: a name that is not one of vflbench's own stands before the values."""
    name, values = str(network.get("name", "")), by_values(network)
    return values if not name or name in _options() or name == values else f"{name} ({values})"


def _same(key: str, values: Mapping[str, Any], option: Mapping[str, Any]) -> bool:
    """Whether a network has the option's value; older runs lack keys."""
    return key not in values or (key in option and values[key] == option[key])


def _links(values: Mapping[str, Any]) -> str:
    """Latency and bandwidth of all links."""
    kinds = [_link(values.get(kind, {})) for kind in KINDS]
    parts = [kinds[0]] if kinds[0] == kinds[1] else [" ".join(both) for both in zip(KINDS, kinds, strict=True)]
    links = values.get("links")
    if own := len(links) if isinstance(links, Mapping) else 0:
        parts.append(f"{own} link{'s' if own > 1 else ''} unlike the others")
    if (shared := values.get("server_bandwidth_gbps")) is not None:
        parts.append(f"the server {as_text(shared)} Gbit/s")
    return "; ".join(parts)


def _link(link: Any) -> str:
    """A link's latency and bandwidth, where it has one."""
    if not isinstance(link, Mapping):  # a damaged manifest
        return str(link)
    bandwidth = link.get("bandwidth_gbps")
    return f"{as_text(link.get('latency_ms', 0))} ms" + ("" if bandwidth is None else f", {as_text(bandwidth)} Gbit/s")
