"""What a run costs in bytes and time: the columns of curve and summary that are sums over ledger and trace.

The same for a run that has just been trained and for one that is re-priced; so it imports no torch.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from vflbench import registry
from vflbench.federation.accounting import Payload, Totals
from vflbench.federation.ledger import COLUMN, COMPUTE, TRACE_COLUMN
from vflbench.federation.links import CLIENT_SERVER, LINK_KINDS, LOCAL, link_kind
from vflbench.federation.phases import NOTHING, Exchange, setup
from vflbench.federation.replay import Program, idle_seconds
from vflbench.results.folder import PER
from vflbench.types import LinkConfig, NetworkConfig, Problem, VflbenchError, closest, hook


@dataclass(frozen=True)
class PartyInfo:
    """What costs depend on of a party; in the manifest as `parties`."""

    role: str
    organisation: str | None = None  # None: one of its own
    cores: float | None = None  # cores that its computations keep busy, where the run reports their utilisation


@dataclass(frozen=True)
class Around:
    """What a run has beside its own program: exchanges before and after it."""

    aligned: Exchange = NOTHING  # the data set's own alignment
    assumed: Mapping[str, Exchange] = field(default_factory=dict)  # phase -> what the method assumes to be there
    served: Exchange | None = None  # of the last evaluation; None: not known
    predictions: int = 0  # rows of that evaluation


@dataclass(eq=False)
class Costs:
    """The costs of one run under one network and accounting."""

    ledger: np.ndarray  # (messages, 10) rows; `sent` and `delivered` are read of a time-dependent run only
    traces: Mapping[str, np.ndarray]  # party -> (events, 4 or 5) rows; of a time-dependent run with their times
    parties: Mapping[str, PartyInfo]  # in the parties' order
    network: NetworkConfig
    accounting: str
    payload: Payload
    time_dependent: bool = False  # or in real time: there is no replay
    program: Program | None = None  # made of ledger and traces, where there is one already
    around: Around = Around()

    def __post_init__(self) -> None:
        rule = registry.load_option("accounting", self.accounting)
        seconds, self.before = hook(rule, "seconds"), hook(rule, "price_before")
        self.header = (hook(rule, "header") or (lambda network: 0))(self.network)
        self.priced = rule.price(self.ledger, self.payload) + self.header
        self.roles = {name: party.role for name, party in self.parties.items()}
        first = [*self._early("align"), *self._early("setup")] if self.before else []
        self.seconds_before = self._seconds(first)
        nbytes, rows = self._priced(first, self.priced, self.ledger) if first else (self.priced, self.ledger)
        self.totals = Totals(nbytes, rows, self.network.ratio)
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

    def life(self, rounds: int, clock: float) -> dict[str, Any]:
        """What the summary says of phases: `phases`, and `before`, where the accounting charges what was not sent."""
        found: dict[str, Any] = {"phases": self.phases(rounds, clock)}
        if self.before is not None:
            sums = self._sums(*self._priced([*self._early("align"), *self._early("setup")]))
            found["before"] = {key: sums[key] for key in ("bytes", "messages")}
        return found

    def others(self) -> dict[str, Exchange]:
        """The exchanges on the ledger that are not of the run's own program, by phase, with their times."""
        found = {"align": self.around.aligned, "predict": self.around.served or NOTHING}
        return {phase: one.sent(self.network, self.roles) for phase, one in found.items() if len(one.rows)}

    def phases(self, rounds: int, clock: float) -> dict[str, dict[str, float | None] | None]:
        """Bytes, messages, weighted cost and seconds of each phase of a run that ended as `summary` says.

        Seconds are of communication; those of `setup` and `train` add up to the run's. `align` is the data set's own
        alignment, as it was sent. What the accounting charges before the run is in `align` and `setup`. `predict` is
        one request for `PER` predictions, by the bytes of a row in the last evaluation, whose `rows` it says. It is
        None where that is not known.
        """
        early = self.ledger[:, COLUMN["round"]] == 0
        aligned, handed, served = self._early("align"), self._early("setup"), self.around.served
        own = setup(self.ledger, self.traces, list(self.parties))
        begun = 0.0  # an accounting with times of its own has none before the first round
        if self.charged is None and self.time_dependent:  # its times are what they were
            begun = float(own.rows[:, COLUMN["delivered"]].max(initial=0.0))
        elif self.charged is None:
            begun = own.seconds(self.network, self.roles)
        communication = self.times([rounds], [clock])[0]["communication_seconds"]
        found: dict[str, dict[str, float | None] | None] = {
            "align": {**self._sums(*self._priced(aligned)), "seconds": self._seconds(aligned)},
            "setup": {
                **self._sums(*self._priced(handed, self.priced[early], self.ledger[early])),
                "seconds": self._seconds(handed) + begun,
            },
            "train": {
                **self._sums(self.priced[~early], self.ledger[~early]),
                "seconds": None if communication is None else communication - self.seconds_before - begun,
            },
            "predict": None,
        }
        if served is not None and self.around.predictions:
            times = PER / self.around.predictions
            sums = self._sums(served.rows[:, COLUMN["bytes"]] * times + self.header, served.rows)
            seconds = served.seconds(self.network, self.roles, times)
            found["predict"] = {**sums, "seconds": seconds, "rows": self.around.predictions}
        return found

    def _early(self, phase: str) -> list[Exchange]:
        """The exchanges before the run's own program that are shown in `phase`."""
        found = [self.around.aligned] if phase == "align" else []
        return [*found, self.around.assumed[phase]] if self.before and phase in self.around.assumed else found

    def _priced(
        self, exchanges: Sequence[Exchange], nbytes: np.ndarray | None = None, rows: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """(bytes, rows) of the messages of `exchanges`, and after them those given."""
        found = [one.rows for one in [NOTHING, *exchanges]]
        price = self.before or (lambda rows, _: rows[:, COLUMN["bytes"]] + self.header)
        costs = [price(one, self.payload) for one in found]
        more = ([], []) if rows is None or nbytes is None else ([nbytes], [rows])
        return np.concatenate([*costs, *more[0]]), np.concatenate([*found, *more[1]])

    def _seconds(self, exchanges: Sequence[Exchange]) -> float:
        return sum((one.seconds(self.network, self.roles) for one in exchanges), 0.0)

    def _sums(self, nbytes: np.ndarray, rows: np.ndarray) -> dict[str, float | None]:
        """Of what is charged of `rows`, which cost `nbytes`."""
        kind = rows[:, COLUMN["kind"]]
        paid, remote = kind != LINK_KINDS.index(LOCAL), kind == LINK_KINDS.index(CLIENT_SERVER)
        weight = np.where(remote, self.network.ratio, 1.0)
        total = float(nbytes[paid].sum())
        return {"bytes": round(total), "messages": int(paid.sum()), "cost": float((nbytes * weight)[paid].sum())}

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
        before = self.seconds_before if self.charged is None else 0.0
        return [
            {
                "virtual_seconds": before + seconds + busy,
                "communication_seconds": None if idle else before + seconds,
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
        program = self.program or Program(self.ledger, self.traces, self.roles)
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


def link_code(parties: Mapping[str, PartyInfo], a: str, b: str) -> int:
    """The ledger's code of the kind of link between two parties; one without organisation is one of its own."""
    both = [dataclasses.replace(parties[name], organisation=parties[name].organisation or name) for name in (a, b)]
    return LINK_KINDS.index(link_kind(*both))


def network_config(values: Mapping[str, Any]) -> NetworkConfig:
    """The dataclass of a composed `network`, whose values have been checked.

    Raises
    ------
    VflbenchError : a key of the network's module is not known, as its package is not there.
    """
    kind = registry.option_config("network", str(values.get("name")))
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
