"""What a run costs in bytes and time: the columns of curve and summary that are sums over ledger and trace.

The same for a run that has just been trained and for one that is re-priced; so it imports no torch.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from vflbench import registry
from vflbench.federation.accounting import Payload, Totals
from vflbench.federation.ledger import COMPUTE, TRACE_COLUMN
from vflbench.federation.replay import Program, idle_seconds
from vflbench.types import LinkConfig, NetworkConfig, Problem, VflbenchError, closest, hook


@dataclass(frozen=True)
class Standing:
    """Where a party stands; in the manifest as `parties`."""

    role: str
    organisation: str | None = None  # None: one of its own
    cores: float | None = None  # cores that its computations keep busy, where the run reports their utilisation


@dataclass(eq=False)
class Costs:
    """The costs of one run under one network and accounting."""

    ledger: np.ndarray  # (messages, 10) rows; `sent` and `delivered` are not read
    traces: Mapping[str, np.ndarray]  # party -> (events, 4 or 5) rows; of a time-dependent run with their times
    parties: Mapping[str, Standing]  # in the parties' order
    network: NetworkConfig
    accounting: str
    payload: Payload
    time_dependent: bool = False  # or in real time: there is no replay
    program: Program | None = None  # made of ledger and traces, where there is one already

    def __post_init__(self) -> None:
        rule = registry.load_option("accounting", self.accounting)
        seconds = hook(rule, "seconds")
        self.totals = Totals(rule.price(self.ledger, self.payload), self.ledger, self.network.ratio)
        self.charged: dict[int, float] | None = seconds(self.ledger, self.payload, self.network) if seconds else None

    def curve(self, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The curve's rows, given with `round` and the virtual clock's `virtual_seconds`, with all columns of costs."""
        times = self.times([row["round"] for row in rows], [row["virtual_seconds"] for row in rows])
        return [{**row, **self._row(row["round"], found)} for row, found in zip(rows, times, strict=True)]

    def _row(self, round_: int, times: Mapping[str, float | None]) -> dict[str, Any]:
        nbytes, messages, vectors, cost = self.totals.until(round_)
        return {
            **times,
            "bytes": round(nbytes),
            "messages": int(messages),
            "vectors": int(vectors),
            "cost": float(cost),
        }

    def summary(self, rounds: int, clock: float) -> dict[str, Any]:
        """The costs of the whole run, as `results.folder.summarise` takes them.

        The run ended after `rounds` at `clock` on the virtual clock.
        """
        row = self._row(rounds, self.times([rounds], [clock])[0])
        by_tag = {self.payload.tags[code]: count for code, count in sorted(self.totals.by_tag.items())}
        return {
            "bytes_by_tag": by_tag,
            "bytes_by_link": self.totals.by_link,
            **{key: row[key] for key in row if key != "bytes"},
        }

    def times(self, rounds: list[int], clocks: list[float]) -> list[dict[str, float | None]]:
        """The columns of seconds up to the end of each of `rounds`, where the virtual clock shows `clocks`.

        A run that cannot be replayed has idle_seconds, the others communication_seconds; the other is None. An
        accounting that charges its own times replaces either.
        """
        uncomputed = self._uncomputed(rounds, clocks)
        compute = [end - seconds for end, seconds in zip(clocks, uncomputed, strict=True)]
        if self.charged is not None:
            uncomputed = [sum(seconds for at, seconds in self.charged.items() if at <= round) for round in rounds]
        idle = self.time_dependent and self.charged is None
        return [
            {
                "virtual_seconds": seconds + busy,
                "communication_seconds": None if idle else seconds,
                "idle_seconds": seconds if idle else None,
                "compute_seconds": busy,
            }
            for seconds, busy in zip(uncomputed, compute, strict=True)
        ]

    def _uncomputed(self, rounds: list[int], clocks: list[float]) -> list[float]:
        """Seconds without computing: of the replayed run, or those in which no party computes."""
        if not any((trace[:, TRACE_COLUMN["kind"]] == COMPUTE).any() for trace in self.traces.values()):
            return clocks
        if self.time_dependent:
            return idle_seconds(self.traces, clocks)
        return [self._instant(round) for round in rounds]

    @cached_property
    def _instant(self) -> Callable[[int], float]:
        """Round -> what the virtual clock would show at its end if computing took no time."""
        roles = {name: party.role for name, party in self.parties.items()}
        program = self.program or Program(self.ledger, self.traces, roles)
        return clock(program.without_computing(self.network))

    def use(self, cores: float, seconds: float, rounds: int, threads: int | None = None) -> dict[str, Any]:
        """How well `cores`, all that there were, were used in a run of `seconds` and `rounds`.

        Parameters
        ----------
        threads : of each party, for a run in real time, where parties that outnumber the cores take turns.

        Returns
        -------
        `utilisation` : core-seconds of computing over all that there were, 0 to 1.
        `waiting_seconds` : seconds per epoch in which a worker did nothing, the mean over workers (parties that are not
            the first of several in an organisation).

        Both are missing where no party counts its cores.
        """
        if all(party.cores is None for party in self.parties.values()):
            return {}
        busy, waiting = 0.0, []
        size = Counter(party.organisation for party in self.parties.values())
        computed = {name: trace[trace[:, TRACE_COLUMN["kind"]] == COMPUTE] for name, trace in self.traces.items()}
        for name, party in self.parties.items():
            rows = computed[name]
            busy += (party.cores or 0.0) * rows[rows[:, TRACE_COLUMN["seq"]] == 0, TRACE_COLUMN["value"]].sum()
            if party.organisation is None or size[party.organisation] == 1 or name != party.organisation:
                waiting.append(seconds - rows[:, TRACE_COLUMN["value"]].sum())
        if threads is not None:
            busy = core_seconds(np.concatenate(list(computed.values())), cores, threads)
        utilisation = float(busy / (cores * seconds)) if seconds > 0 else None
        return {"utilisation": utilisation, "waiting_seconds": float(np.mean(waiting) / max(rounds, 1))}


def network_config(values: Mapping[str, Any]) -> NetworkConfig:
    """The dataclass of a composed `network`, whose values have been checked.

    Raises
    ------
    VflbenchError : a key of the network's module is not known, as its package is not there.
    """
    kind = registry.option_config("network", str(values.get("name", NetworkConfig.name)))
    if unknown := values.keys() - {field.name for field in dataclasses.fields(kind)}:
        raise VflbenchError(
            f"network={values.get('name')} has no key {', '.join(sorted(unknown))}: is its package installed?"
        )
    kinds = {kind: LinkConfig(**values[kind]) for kind in ("client_server", "client_client") if kind in values}
    links = {pair: LinkConfig(**link) for pair, link in (values.get("links") or {}).items()}
    found: NetworkConfig = kind(**{**values, **kinds, "links": links})
    return found


def core_seconds(computed: np.ndarray, cores: float, threads: int) -> float:
    """The core-seconds that computations kept busy.

    Parameters
    ----------
    computed : (n, 5) trace rows with their times.
    cores : the most that can be busy at once.
    threads : of each computation.
    """
    ends, lasted = computed[:, TRACE_COLUMN["time"]], computed[:, TRACE_COLUMN["value"]]
    times = np.concatenate([ends - lasted, ends])
    order = np.argsort(times, kind="stable")
    wanted = np.cumsum(np.repeat([threads, -threads], len(ends))[order])
    return float((np.minimum(wanted, cores)[:-1] * np.diff(times[order])).sum())


def clock(ends: Mapping[int, float]) -> Callable[[int], float]:
    """Round -> the virtual clock at its end, from when each round ends for its last party. Time never goes back."""
    rounds = sorted(ends)
    latest = np.maximum.accumulate([0.0, *(ends[round] for round in rounds)])
    return lambda round: float(latest[np.searchsorted(rounds, round, side="right")])


def link_problems(network: NetworkConfig, names: Iterable[str], connected: Callable[[str, str], bool]) -> list[Problem]:
    """Problems with links of their own (network.links) that no message between the parties `names` can pass."""
    names, problems = list(names), []
    for pair, link in network.links.items():
        ends = pair.split("->")
        if len(ends) != 2 or not all(end in names for end in ends):
            edges = [f"{a}->{b}" for a in names for b in names if a != b and connected(a, b)]
            allowed = f"must name two parties as in {edges[0]}" if edges else "there are no links between parties"
            problems.append(Problem(f"network.links.{pair}", f"{link.latency_ms} ms", allowed, closest(pair, edges)))
        elif not connected(*ends):
            problems.append(
                Problem(f"network.links.{pair}", f"{link.latency_ms} ms", "the topology has no edge between the two")
            )
    return problems
