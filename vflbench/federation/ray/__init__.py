"""The Ray engine: the same party programs, each in a process of its own (an actor). Time is real.

The processes are on one machine or a cluster. A party's process (process.py) runs its program in one thread, as
`PartyEngine` (party.py): a `Runtime` with one program, whose other parties are elsewhere. driver.py drives, cluster.py
starts and ends processes, nats_broker.py is a real broker. outboxes.py has what waits to be sent,
published_inbox.py what the broker has passed on.

Messages go from actor to actor and not through the driver, in the wire form of `wire.py`. Per pair one call is in
flight and carries all that was sent since the last. Async actors reorder calls; this keeps the order, is faster, and
holds back a sender that is too fast.

The driver hears only of round boundaries: reports, ledger, trace. It holds no party's data. It says when the next round
may begin and asks for the parts of a cut. It notices when a party has died, and when all wait for each other.

For every method that does not depend on time, the parameters, reports, messages, bytes and random streams are exact.
All times are measured. `me.clock`, timeouts and recv_any follow the real clock here, so the course of a method that
depends on time is not reproducible.
"""

import importlib.util

from vflbench.types import Problem, RunConfig


def check(config: RunConfig) -> list[Problem]:
    """What does not go with engine=ray, each with what to use."""
    engine, network, problems = config.engine, config.network, []
    if engine.compute_clock not in ("auto", "measured"):
        problems.append(Problem("engine.compute_clock", engine.compute_clock, "engine=ray measures: auto or measured"))
    if engine.batch_compute:
        problems.append(
            Problem("engine.batch_compute", "true", "every party of engine=ray computes in its own process: false")
        )
    if network.timing != "causal":
        problems.append(
            Problem("network.timing", network.timing, "times exchanges on the virtual clock: engine=simulated has one")
        )
    if network.server_bandwidth_gbps is not None:
        allowed = "a shared bandwidth is simulated; engine=ray has the machine's own network: null"
        problems.append(Problem("network.server_bandwidth_gbps", network.server_bandwidth_gbps, allowed))
    if config.attack.name != "none":
        problems.append(
            Problem("attack", config.attack.name, "reads a transcript that one process writes: use engine=simulated")
        )
    if importlib.util.find_spec("ray") is None:
        problems.append(Problem("engine", "ray", "needs Ray, which is not installed: pip install 'vflbench[ray]'"))
    return problems
