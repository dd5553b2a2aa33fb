"""Who wins on which network: the finals' runs, re-priced over latency and bandwidth.

Exact for methods whose course does not depend on time: a cell is what a fresh run there would take. The others are left
out by name.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vflbench.choosing.method_ranking import Contender, Ranked, ordered
from vflbench.plots import running_time
from vflbench.results import selection
from vflbench.results.reader import Run
from vflbench.runner.costs import network_config
from vflbench.runner.reprice import Finished
from vflbench.types import ConfigError, LinkConfig, NetworkConfig, VflbenchError

LATENCIES = (0.1, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)  # ms
BANDWIDTHS = (1.0, 10.0, 100.0, 1000.0, 10000.0)  # Mbit/s
MOST_STEPS = 10_000_000  # messages times cells: about a minute
STEPS = 10  # of the search for the place between two cells where the winner changes
Cell = tuple[float, float | None]  # latency in ms, bandwidth in Mbit/s; None: unbounded


@dataclass
class Pricing:
    """The runs of methods that can be re-priced."""

    pool: list[Contender]
    runs: list[list[tuple[int, Finished, int]]]  #: of each method: seed, run, the round that reached the target
    network: NetworkConfig
    sign: int
    kept: dict[Cell, list[Ranked]]

    def at(self, cell: Cell) -> list[Ranked]:
        """The methods at a cell, best first."""
        if cell not in self.kept:
            there = on(self.network, *cell)
            spent = [
                {seed: run.seconds(there, until, run.summary.get("predictions", 0)) for seed, run, until in runs}
                for runs in self.runs
            ]
            self.kept[cell] = ordered(self.pool, spent, self.sign)
        return self.kept[cell]

    def first(self, cell: Cell) -> str:
        """Who wins at a cell."""
        return self.at(cell)[0].contender.name


def on(network: NetworkConfig, latency: float, bandwidth: float | None) -> NetworkConfig:
    """The network with all links alike; the rest of it stays."""
    link = LinkConfig(latency_ms=latency, bandwidth_gbps=None if bandwidth is None else bandwidth / 1000)
    return replace(network, client_server=link, client_client=link, links={})


def draw_up(ranked: Sequence[Ranked], target: float, goal: str) -> dict[str, Any]:
    """The map of those of `ranked` that reached the target in as many seeds as the first.

    Returns
    -------
    `latencies`, `bandwidths`, `cells` (by latency, then bandwidth: winner, seconds of every method, tie), `you` (the
    user's cell, None where links differ), `left_out` (name, why), `words`, and `why` where there is no map.
    """
    found: dict[str, Any] = {"latencies": [], "bandwidths": [], "cells": [], "you": None, "left_out": [], "words": []}
    able = [row.contender for row in ranked if row.spent and row.share == ranked[0].share]
    if not able:
        return {**found, "why": "none of the methods here reaches the target"}
    values = able[0].runs[0].manifest["config"]["network"]
    if any(run.summary["timing"] == "measured" for one in able for run in one.runs):
        return {**found, "why": "times are those of real processes"}
    pricing = Pricing([], [], network_config(values), 1 if goal == "max" else -1, {})
    for one in able:
        try:
            if not all(map(running_time.may_be_shown, one.runs)):
                raise VflbenchError("its running time is a prediction that real processes did not confirm")
            pricing.runs.append(
                [_finished(run, target) for run in one.runs if selection.reached(run, target) is not None]
            )
            pricing.pool.append(one)
        except VflbenchError as error:
            found["left_out"].append({"name": one.name, "why": _reason(error)})
    if not pricing.pool:
        return {**found, "why": "no method that reaches the target can be re-priced"}
    you = _you(pricing.network)
    latencies, bandwidths = _grid(pricing, you)
    try:
        cells = [[_cell(pricing.at((latency, bandwidth))) for bandwidth in bandwidths] for latency in latencies]
        words = _words(pricing, latencies, bandwidths, you)
    except VflbenchError as error:
        return {**found, "why": _reason(error)}
    place = None if you is None else [latencies.index(you[0]), bandwidths.index(you[1])]
    if place is not None:  # the others were trained there
        own = ordered(able, [one.spent("seconds", target) for one in able], pricing.sign)
        cells[place[0]][place[1]] = _cell(
            [row for row in own if all(map(running_time.may_be_shown, row.contender.runs))]
        )
    found |= {"latencies": latencies, "bandwidths": bandwidths, "cells": cells, "you": place, "words": words}
    return {**found, "why": None if you else "your links differ, so that your network is no point of it"}


def _finished(run: Run, target: float) -> tuple[int, Finished, int]:
    """A run that can be re-priced: its seed, itself, and the round that reached the target."""
    place, finished = selection.reached(run, target), Finished(run.folder.resolve())
    assert place is not None
    finished.check()
    if run.summary["accounting"] != "strict":
        raise VflbenchError(f"its times are by accounting={run.summary['accounting']}")
    return run.summary["seed"], finished, int(run.curve["round"].iloc[place])


def _reason(error: VflbenchError) -> str:
    return "; ".join(map(str, error.problems)) if isinstance(error, ConfigError) else str(error)


def _you(network: NetworkConfig) -> Cell | None:
    """The user's own network, where all of its links are alike."""
    if network.links or network.client_server != network.client_client:
        return None
    own = network.client_server
    return float(own.latency_ms), None if own.bandwidth_gbps is None else float(f"{own.bandwidth_gbps * 1000:.12g}")


def _grid(pricing: Pricing, you: Cell | None) -> tuple[list[float], list[float | None]]:
    """Latencies and bandwidths of the map, the user's among them; fewer where runs are long."""
    messages = sum(len(run.program.rows) for runs in pricing.runs for _, run, _ in runs)
    every = next((n for n in (1, 2, 3) if messages * 60 // n**2 <= MOST_STEPS), 6)
    latencies = {*LATENCIES[::every], *([you[0]] if you else [])}
    bandwidths: set[float | None] = {*BANDWIDTHS[:: min(every, 4)], *([you[1]] if you else [])}
    return sorted(latencies), sorted(bandwidths, key=lambda one: math.inf if one is None else one)


def _cell(rows: Sequence[Ranked]) -> dict[str, Any]:
    second = rows[1].behind if len(rows) > 1 else None
    seconds = {row.contender.name: row.value for row in rows}
    return {"winner": rows[0].contender.name, "tie": bool(second and second.tie), "seconds": seconds}


# --- in words ---------------------------------------------------------------------------------------------------------


def _words(
    pricing: Pricing, latencies: Sequence[float], bandwidths: Sequence[float | None], you: Cell | None
) -> list[dict[str, Any]]:
    """Where another method wins than at the user's network: along its latency, and along its bandwidth."""
    if you is None:
        return []
    labels, own = {one.name: one.label for one in pricing.pool}, pricing.first(you)
    wide = [one for one in bandwidths if one is not None]
    along = {"ms": _segments(latencies, lambda value: pricing.first((value, you[1])))}
    along["Mbit/s"] = _segments(wide, lambda value: pricing.first((you[0], value)))
    return [
        {"words": f"{_between(low, high)} {unit} {labels[name]}", "name": name}
        for unit, segments in along.items()
        for low, high, name in segments
        if name != own
    ]


def _segments(values: Sequence[float], first: Callable[[float], str]) -> list[tuple[float | None, float | None, str]]:
    """(from, to, who wins) along an axis; None at its ends."""
    found: list[tuple[float | None, float | None, str]] = []
    begun: float | None = None
    for low, high in itertools.pairwise(values):
        while (name := first(low)) != first(high):
            low, after = _change(low, high, first)
            edge = float(f"{after:.2g}")
            found.append((begun, edge, name))
            begun, low = edge, after
    return [*found, (begun, None, first(values[-1]))] if values else []


def _change(low: float, high: float, first: Callable[[float], str]) -> tuple[float, float]:
    """Two near values between which the winner of `low` changes."""
    name = first(low)
    for _ in range(STEPS):
        half = math.sqrt(low * high) if low > 0 else high / 2
        low, high = (half, high) if first(half) == name else (low, half)
    return low, high


def _between(low: float | None, high: float | None) -> str:
    if low is None:
        return f"below {high:g}"
    return f"above {low:g}" if high is None else f"from {low:g} to {high:g}"
