"""Re-time a finished run from its trace: the same engine, driven by what each party did instead of by its program.

Exact for programs whose control flow does not depend on time: equal links serve equal messages in equal order, in the same
floating-point expressions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from vflbench.federation.ledger import COLUMN, COMPUTE, RECV, SEND, sort_ledger
from vflbench.federation.party import PartySpec, Sized
from vflbench.federation.simulated import SimulatedEngine
from vflbench.types import NetworkConfig


def retime(
    ledger: np.ndarray,
    traces: Mapping[str, np.ndarray],
    specs: Mapping[str, PartySpec],
    network: NetworkConfig,
    computing: bool = True,
) -> dict[int, float]:
    """When each round ends under `network`.

    Parameters
    ----------
    ledger : (messages, 10) rows of the run.
    traces : party -> (events, 5) rows in program order.
    specs : the run's parties; only role and organisation are read.
    computing : False takes every computation as 0 seconds.

    Returns
    -------
    round -> seconds: the latest party's clock at that round's boundary.
    """
    rows = sort_ledger(ledger)
    names = list(specs)
    pairs = rows[:, COLUMN["src"]] * len(names) + rows[:, COLUMN["dst"]]
    first = np.searchsorted(pairs, np.arange(len(names) ** 2))  # where a pair's messages begin; they are numbered from 0
    nbytes, vectors, tags = (rows[:, COLUMN[key]].astype(np.int64).tolist() for key in ("bytes", "vectors", "tag"))
    ends: dict[int, float] = {}

    async def player(me: Any, events: Any, _public: None, _config: None) -> None:
        for kind, peer, seq, value, _ in events.rows.tolist():
            if kind == SEND:
                at = int(first[me.index * len(names) + int(peer)]) + int(seq)
                me.send(names[int(peer)], Sized(nbytes[at], vectors[at]), str(tags[at]))
            elif kind == RECV:
                at = int(first[int(peer) * len(names) + me.index]) + int(seq)
                await me.recv(names[int(peer)], str(tags[at]))
            elif kind == COMPUTE:
                me.advance(value if computing else 0.0)
            else:
                ends[int(value)] = max(ends.get(int(value), 0.0), me.now)
        me.done = True  # all its rounds are in the trace

    players = {name: PartySpec(player, _Events(traces[name]), spec.role, spec.organisation) for name, spec in specs.items()}
    SimulatedEngine(players, network=network, rounds=0).run()
    return ends


class _Events:
    """A party's trace rows."""

    def __init__(self, rows: np.ndarray) -> None:
        self.rows = rows


def idle_seconds(traces: Mapping[str, np.ndarray], until: list[float]) -> list[float]:
    """For each time, the seconds before it in which no party computes: the communication time of a time-dependent run."""
    rows = np.concatenate([trace[trace[:, 0] == COMPUTE] for trace in traces.values()])
    intervals = np.stack([rows[:, 4] - rows[:, 3], rows[:, 4]], axis=1)
    intervals = intervals[np.argsort(intervals[:, 0], kind="stable")]
    merged: list[list[float]] = []
    for start, end in intervals.tolist():
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return [time - sum(max(0.0, min(end, time) - start) for start, end in merged if start < time) for time in until]
