"""Messages a second through `me.send` and `me.recv`, links and ledger on."""

import statistics
import time

from benchmarks.common import say


def messages_per_second(parties: int, rounds: int, per_round: int) -> float:
    """A star whose clients send 100 bytes up and get 100 bytes down, `per_round` times a round; CPU seconds of one
    core."""
    import numpy as np

    from vflbench.federation.party import Party, PartySpec
    from vflbench.federation.simulated import SimulatedEngine
    from vflbench.types import LinkConfig, NetworkConfig

    payload = np.zeros(25, np.float32)

    async def server(me: Party, _data: None, _public: None, _config: None) -> None:
        async for _ in me.rounds():
            for _ in range(per_round):
                await me.recv_all(me.clients, "up")
                await me.send_many(me.clients, payload, "down")

    async def client(me: Party, _data: None, _public: None, _config: None) -> None:
        async for _ in me.rounds():
            for _ in range(per_round):
                await me.send("server", payload, "up")
                await me.recv("server", "down")

    specs = {"server": PartySpec(server, role="server")} | {
        f"client_{i:04d}": PartySpec(client) for i in range(parties - 1)
    }
    network = NetworkConfig("us_uk", LinkConfig(136, 0.42), LinkConfig(136, 0.42))
    engine = SimulatedEngine(specs, network=network, rounds=rounds)
    began = time.process_time()
    engine.run()
    seconds = time.process_time() - began
    return len(engine.ledger.take()) / seconds


def engine() -> None:
    for parties, rounds, target in ((3, 3_000, 150_000), (1_000, 8, 80_000)):
        rates = [messages_per_second(parties, rounds, 10) for _ in range(5)]
        say(f"engine: messages/s, {parties} parties (at least {target:,})", f"{statistics.median(rates):,.0f}")
