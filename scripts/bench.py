"""Benchmarks: `python scripts/bench.py [engine] [glasu] [start]`; each a rate or a ratio measured in one run, on one torch thread.

    engine  messages of 100 bytes a second through me.send and me.recv, links and ledger on, with 3 and with 1,000 parties
    glasu   a GLASU round on Cora against the bare tensor arithmetic of the same round: the same batches, no parties, no messages
    start   CPU seconds of `vflbench --help` and `vflbench list`
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


def say(name: str, value: str) -> None:
    print(f"{name:64} {value}", flush=True)


# --- engine -----------------------------------------------------------------------------------------------------------


def messages_per_second(parties: int, rounds: int, per_round: int) -> float:
    """A star whose clients send 100 bytes up and get 100 bytes down, `per_round` times a round; CPU seconds of one core."""
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

    specs = {"server": PartySpec(server, role="server")} | {f"client_{i:04d}": PartySpec(client) for i in range(parties - 1)}
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


# --- start ------------------------------------------------------------------------------------------------------------


def start() -> None:
    command = Path(sys.executable).parent / "vflbench"
    for args in (["--help"], ["list"]):
        seconds = []
        for _ in range(5):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([str(command), *args], stdout=subprocess.DEVNULL, check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        say(f"start: CPU seconds of vflbench {' '.join(args)} (under 1)", f"{statistics.median(seconds):.2f}")


BENCHMARKS: dict[str, Callable[[], None]] = {"engine": engine, "start": start}


def main() -> int:
    names = sys.argv[1:] or list(BENCHMARKS)
    if unknown := [name for name in names if name not in BENCHMARKS]:
        print(f"no benchmark {', '.join(unknown)}: there are {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 1
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for name in names:
        BENCHMARKS[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
