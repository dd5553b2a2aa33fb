"""Messages a second through `me.send` and `me.recv`, links and ledger on."""

import statistics
import time

from benchmarks.common import say, star


def messages_per_second(parties: int, rounds: int, per_round: int) -> float:
    """A star whose clients send 100 bytes up and get 100 bytes down, `per_round` times a round; CPU seconds of one
    core."""

    from vflbench.federation.simulated import SimulatedEngine
    from vflbench.types import LinkConfig, NetworkConfig

    specs = star(parties - 1, per_round)
    network = NetworkConfig("us_uk", LinkConfig(136, 0.42), LinkConfig(136, 0.42))
    engine = SimulatedEngine(specs, network=network, rounds=rounds)
    began = time.process_time()
    engine.run()
    seconds = time.process_time() - began
    return len(engine.ledger.take()) / seconds


def engine() -> None:
    for parties, rounds, target in ((3, 3_000, 150_000), (1_000, 8, 80_000)):
        rate = statistics.median(messages_per_second(parties, rounds, 10) for _ in range(5))
        say(f"engine: messages/s, {parties} parties (at least {target:,})", f"{rate:,.0f}", rate >= target)
