"""The Ray engine: the same party programs, each in a process of its own (an actor), on one machine or a cluster. Time
is real.

A party's process (process.py) runs its program in one thread, as `PartyEngine` (party.py): a `Runtime` with one program
and everybody else elsewhere. driver.py drives, cluster.py starts and ends processes, nats_broker.py is a real broker.

Messages go from actor to actor and not through the driver, in the wire form of `wire.py`. Per pair one call is in
flight and carries all that was sent since the last: async actors reorder calls, this keeps the order, is quicker and
holds back a sender that is too fast.

The driver hears of round boundaries alone: reports, ledger, trace. It holds no party's data. It says when the next
round may begin, asks for the parts of a cut, and notices who has died and when all wait for each other.

What is exact: parameters, reports, messages, bytes, random streams of every method that does not depend on time. What
is measured: all times. `me.clock`, timeouts and recv_any are of the real clock here, so a method that depends on time
does what time lets it do.
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
