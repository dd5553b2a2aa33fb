"""Is the simulated time true? The same party programs in real processes, over real sockets, through links of real
latency and bandwidth.

    python scripts/validate_timing.py                                # GLASU, RFL-ADMM-V and MTCD between the US and the
    UK python scripts/validate_timing.py --network us_us --rounds 20 python scripts/validate_timing.py --only glasu
    model=gcn         # one of them, with other values

Every party is a process, with `PartyEngine` of the Ray engine and its own data. What it sends goes over TCP to a proxy
on the loopback interface, which holds every direction of every pair back as a link of the network would: a pipe takes
bytes up at its bandwidth, one message after the other, and gives them out one latency later. The proxy reckons by bytes
and knows nothing of messages.

Compared, at the end of a round:

communication  measured: the seconds in which every party waited for a message, by the parties' own clocks. Simulated:
               the simulated engine's communication_seconds of the same configuration, from a run of its own.
total          measured: when the last party was through. Simulated: what the real parties sent and how long they worked
               in between, put on the same network by `vflbench reprice`'s replay. So both have the same computing.
untimed        work of the parties outside `me.compute` (sampling, building models, packing messages), in no
simulation's time.

Messages, their bytes and the trained parameters are the same in both, or the script fails. It prints a Markdown table,
and ends with 1 where communication is more than 10 % off. The total is not judged: on a machine with fewer cores than
parties it has waiting for cores in it, as `proxy late` shows. Connections are made before the clock starts. The rounds
are followed by one more, not timed: a program's last round has an evaluation, whose messages cost nothing in a
simulation and real seconds here.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shaped_links import measure

if TYPE_CHECKING:
    import numpy as np

    from vflbench.federation.simulated import SimulatedEngine
    from vflbench.runner.federation import Federation
    from vflbench.types import AlgorithmInfo, LinkConfig, NetworkConfig, RunConfig

TOLERANCE = 0.1

# What is run: a name, how, and whether every second pair of parties has the links of the other network.
RUNS = (
    ("glasu", ["algorithm=glasu", "dataset=cora"], False),
    ("rfl_admm_v", ["algorithm=rfl_admm_v", "dataset=movielens"], False),
    (
        "mtcd",
        [
            "algorithm=mtcd",
            "algorithm.parties=4",
            "algorithm.tokens=2",
            "algorithm.hops=2",
            "dataset=ridge",
            "topology=path",
        ],
        True,
    ),
)


def busy(trace: np.ndarray, waits: Sequence[tuple[float, float]]) -> np.ndarray:
    """A party's real trace in which all that it did between its messages is computing: what a program does outside
    `me.compute` too.

    trace, result : (events, 5) rows as of `federation.ledger`. waits : (begin, end) by the trace's clock, in order.
    """
    import numpy as np

    from vflbench.federation.ledger import COMPUTE, TRACE_COLUMN

    rows: list[Sequence[float]] = []
    now, pending = 0.0, deque(waits)

    def work(until: float) -> None:
        nonlocal now
        if until > now:
            rows.append((COMPUTE, -1.0, 0.0, until - now, until))
            now = until

    for event in trace[trace[:, TRACE_COLUMN["kind"]] != COMPUTE].tolist():
        while pending and pending[0][1] <= event[TRACE_COLUMN["time"]]:
            begin, end = pending.popleft()
            work(begin)
            now = end
        work(event[TRACE_COLUMN["time"]])
        rows.append(event)
    return np.array(rows)


def simulated(
    config: RunConfig, info: AlgorithmInfo, eval_every: int, other: Mapping[str, LinkConfig] | None
) -> tuple[Federation, SimulatedEngine, NetworkConfig, dict[tuple[str, str], str]]:
    """Run the parties in virtual time: the engine at its end, the network, and the kind of link of each pair.

    `other` is as in `validate`.
    """
    from vflbench.federation import links as L
    from vflbench.runner.federation import Federation

    federation = Federation(config, info)
    engine = federation.engine(eval_every=eval_every)
    pairs = [(a, b) for a in engine.order for b in engine.order if a is not b]
    kinds = {(a.name, b.name): L.link_kind(a, b) for a, b in pairs}
    network = config.network
    if other is not None:
        links = {
            f"{a}->{b}": other[kind]
            for at, ((a, b), kind) in enumerate(kinds.items())
            if at % 2 and kind != L.LOCAL and federation.topology.connected(a, b)
        }
        network = engine.runtime.network = dataclasses.replace(network, links=links)  # made for the first message
    if network.timing != "causal" or network.server_bandwidth_gbps is not None:
        raise SystemExit(
            "the proxy knows links of their own alone: network.timing=causal, network.server_bandwidth_gbps=null"
        )
    engine.run()
    return federation, engine, network, kinds


def same(what: str, told: Mapping[str, Any], engine: SimulatedEngine, ledger: np.ndarray) -> np.ndarray:
    """The real parties' ledger, sorted.

    Raises
    ------
    SystemExit : messages or parameters differ from those of the simulation.
    """
    import numpy as np

    from vflbench.federation.ledger import COLUMN, sort_ledger

    parts = []
    for rows, tags, *_ in told.values():
        codes = np.array([engine.ledger.tag(tag) for tag in tags], dtype=np.float64)
        rows[:, COLUMN["tag"]] = codes[rows[:, COLUMN["tag"]].astype(int)]
        parts.append(rows)
    found = sort_ledger(np.concatenate(parts))
    times = [COLUMN["sent"], COLUMN["delivered"]]
    if not np.array_equal(np.delete(found, times, axis=1), np.delete(ledger, times, axis=1)):
        raise SystemExit(f"{what}: other messages were sent than in the simulation")
    for name, (*_, parameters, _, _) in told.items():
        own = engine.parties[name].parameters()
        if own.keys() != parameters.keys() or not all(np.array_equal(own[k].numpy(), v) for k, v in parameters.items()):
            raise SystemExit(f"{what}: {name} has other parameters than in the simulation")
    return found


def validate(words: Sequence[str], rounds: int, other: Mapping[str, LinkConfig] | None) -> Row:
    """Simulate and measure one configuration.

    Parameters
    ----------
    words : Hydra's overrides, the network's among them.
    other : kind of link -> what every second pair of parties has instead of the network's own.

    Raises
    ------
    SystemExit : a party failed, or the two differ in what was sent or trained.
    """
    from vflbench import config, registry
    from vflbench.federation import links as L
    from vflbench.federation.ledger import sort_ledger

    with config.session(words) as hydra:
        run_config = config.plan(hydra, [*words, f"rounds={rounds + 1}"]).config
    assert run_config is not None
    info = registry.algorithms()[run_config.algorithm.name]
    if info.time_dependent:
        raise SystemExit(f"{info.name} depends on time: what it sends in a simulation and for real differs")
    # Nobody waits for others at a round's boundary: they would here, for real.
    real = dataclasses.replace(
        run_config.engine, compute_clock="measured", batch_compute=False, threads=1, window=rounds + 1
    )
    virtual = dataclasses.replace(run_config, engine=dataclasses.replace(real, compute_clock="none"))
    never = rounds + 2
    federation, engine, network, kinds = simulated(virtual, info, never, other)
    ledger, traces = sort_ledger(engine.ledger.take()), engine.take_trace()

    def shape(pair: tuple[str, str]) -> tuple[float, float]:
        link = L.link_config(network, kinds[pair], "->".join(pair))
        return link.latency_ms / 1e3, L.seconds_per_byte(link.bandwidth_gbps)

    began = time.perf_counter()
    told, late = measure(
        dataclasses.replace(run_config, engine=real, network=network),
        info,
        never,
        {pair: shape(pair) for pair in kinds},
    )
    wall = time.perf_counter() - began
    what = " ".join(words)
    found = same(what, told, engine, ledger)
    nbytes, messages, times = compared(what, rounds, told, (ledger, found), traces, federation, engine)
    return Row(
        f"`{info.name}`, {run_config.dataset.name} ({federation.task.source.kind})",
        network.name + ("" if other is None else ", every second link the other's"),
        len(told),
        rounds,
        messages,
        nbytes,
        sum(one[6] for one in told.values()) / sum(one[5] for one in told.values()) - 1,
        *times,
        1e3 * sum(late) / len(late),
        wall,
    )


def compared(
    what: str,
    rounds: int,
    told: Mapping[str, Any],
    ledgers: tuple[np.ndarray, np.ndarray],  # simulated, real
    traces: dict[str, np.ndarray],
    federation: Federation,
    engine: SimulatedEngine,
) -> tuple[int, int, tuple[float, float, float, float, float]]:
    """Bytes, messages, and the times of a `Row` from `communication` to `beside`."""
    from vflbench.federation.accounting import Payload
    from vflbench.federation.ledger import MARK, TRACE_COLUMN
    from vflbench.federation.replay import Program
    from vflbench.runner.costs import Costs

    timed_alone = {name: one[2] for name, one in told.items()}  # what the programs do in `me.compute`
    real_traces = {name: busy(one[2], one[3]) for name, one in told.items()}
    kind, value, clock = (TRACE_COLUMN[key] for key in ("kind", "value", "time"))
    end = max(
        float(trace[(trace[:, kind] == MARK) & (trace[:, value] == rounds), clock][0]) for trace in real_traces.values()
    )
    (ledger, found), network = ledgers, engine.runtime.network
    payload = Payload(list(engine.ledger.tags), **federation.payload)
    roles = {name: info.role for name, info in federation.party_infos.items()}

    def costs(of: dict[str, np.ndarray], in_time: bool) -> Costs:
        return Costs(ledger, of, federation.party_infos, network, "strict", payload, in_time)

    simulated_end = Program(ledger, traces, roles).retime(network).ends[rounds]
    communication = costs(traces, False).times([rounds], [simulated_end])[0]["communication_seconds"]
    replay = Program(found, real_traces, roles)
    if replay.without_computing(network)[rounds] != communication:
        raise SystemExit(f"{what}: the replay of the real run without its computing is not the simulated run")
    nbytes, messages, _, _ = costs(traces, False).totals.until(rounds)
    waiting, beside = (costs(of, True).times([rounds], [end])[0]["idle_seconds"] for of in (real_traces, timed_alone))
    times = waiting, communication, end, replay.retime(network).ends[rounds], beside - waiting
    return round(nbytes), int(messages), times


@dataclass
class Row:
    """Of one configuration. Times in seconds, up to the end of the last timed round."""

    what: str
    network: str
    parties: int
    rounds: int
    messages: int
    nbytes: int
    framing: float  # bytes on the wire beyond the charged ones, as a share of these
    communication: float
    simulated_communication: float
    total: float
    simulated_total: float
    beside: float  # in which some party worked, but none in `me.compute`
    late: float  # ms, the mean over what the proxy gave out: a busy machine's, not the link's
    wall: float  # with the start of the processes and the round that is not timed

    @property
    def ratios(self) -> tuple[float, float]:
        """Measured over simulated: communication, total."""
        return self.communication / self.simulated_communication, self.total / self.simulated_total

    @property
    def off(self) -> bool:
        """Whether communication is further from the simulated one than is allowed."""
        return abs(self.ratios[0] - 1) > TOLERANCE

    def cells(self) -> list[str]:
        """The row of the table."""
        communication, total = self.ratios
        return [
            *(
                self.what,
                self.network,
                str(self.parties),
                str(self.rounds),
                f"{self.messages:,}",
                f"{self.nbytes / 1e6:.2f}",
            ),
            *(
                f"{self.framing:.2%}",
                f"{self.communication:.2f}",
                f"{self.simulated_communication:.2f}",
                f"{communication:.3f}",
            ),
            *(
                f"{self.total:.2f}",
                f"{self.simulated_total:.2f}",
                f"{total:.3f}",
                f"{self.beside:.2f}",
                f"{self.late:.1f}",
            ),
        ]


HEAD = [
    *("method, data", "network", "parties", "rounds", "messages", "MB", "framing"),
    *(
        "communication s, measured",
        "simulated",
        "ratio",
        "total s, measured",
        "simulated",
        "ratio",
        "untimed s",
        "proxy late, ms",
    ),
]


def count(text: str) -> int:
    """A whole number of at least 1, for argparse."""
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text}: must be a whole number of at least 1")
    return int(text)


def main(args: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description="Compare the simulated engine's times with real ones over shaped links."
    )
    parser.add_argument("--network", default="us_uk", help="the network whose links are made real (us_uk)")
    parser.add_argument(
        "--other", default="us_us", help="the network that gives every second link of the uneven run (us_us)"
    )
    parser.add_argument("--rounds", type=count, default=20, help="timed rounds (20)")
    parser.add_argument("--only", choices=[name for name, _, _ in RUNS], help="one of the runs")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="for all that is run, as vflbench takes them")
    flags = parser.parse_intermixed_args(args)

    from vflbench import config
    from vflbench.federation import links as L
    from vflbench.types import VflbenchError

    off = False
    print("| " + " | ".join(HEAD) + " |\n|" + " --- |" * len(HEAD), flush=True)
    try:
        with config.session([f"network={flags.other}"]) as hydra:
            plan = config.plan(hydra, [f"network={flags.other}"])
        assert plan.config is not None
        other = {L.CLIENT_SERVER: plan.config.network.client_server, L.CLIENT_CLIENT: plan.config.network.client_client}
        for name, words, uneven in RUNS:
            if flags.only in (None, name):
                row = validate(
                    [*words, f"network={flags.network}", *flags.overrides], flags.rounds, other if uneven else None
                )
                print("| " + " | ".join(row.cells()) + " |", flush=True)
                off |= row.off
    except VflbenchError as error:
        print(error, file=sys.stderr)
        return 1
    verdict = (
        f"communication: {'a ratio is more than' if off else 'all ratios are within'} {TOLERANCE:.0%} "
        f"{'off' if off else 'of 1'}"
    )
    print(f"\n{verdict}; load of the machine at the end {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    return int(off)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
