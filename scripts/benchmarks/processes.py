"""Parties in processes of their own: Ray, and a real broker."""

import os
import statistics
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.common import say


async def there(me: Any, data: Any, count: int, size: int) -> None:
    """Sends `size` bytes and waits for them to come back, `count` times; reports the seconds of one way."""
    import time

    import numpy as np

    payload = np.zeros(size, np.uint8)
    async for _ in me.rounds():
        began = time.perf_counter()
        for _ in range(count):
            await me.send("back", payload, "x")
            await me.recv("back", "x")
        me.report(facts={"seconds": (time.perf_counter() - began) / count / 2})


async def back(me: Any, data: Any, count: int, size: int) -> None:
    async for _ in me.rounds():
        for _ in range(count):
            await me.send("there", await me.recv("there", "x"), "x")


def two_parties(count: int, size: int, name: str) -> dict[str, Any]:
    from vflbench.federation.party import PartySpec
    from vflbench.federation.ray.party_thread import remote_program

    specs = {
        party: PartySpec(program if party == name else remote_program)
        for party, program in (("there", there), ("back", back))
    }
    return {"specs": specs, "public": count, "config": size, "rounds": 5, "threads": 1}


class Bare:
    """An actor that calls another one, which answers with a number."""

    async def take(self, data: Any) -> float:
        return float(len(data))

    async def call(self, other: Any, count: int, size: int) -> float:
        import time

        import numpy as np

        payload = np.zeros(size, np.uint8)
        began = time.perf_counter()
        for _ in range(count):
            await other.take.remote(payload)
        return (time.perf_counter() - began) / count


def ray(count: int = 300, rounds: int = 100) -> None:
    from vflbench import config, registry
    from vflbench.federation.ray.cluster import Cluster
    from vflbench.federation.ray.driver import RayEngine
    from vflbench.runner.distributed import Host
    from vflbench.runner.evaluate import Observer
    from vflbench.runner.run import Federation

    with Cluster() as cluster:
        import ray  # now that its environment is set

        for size in (400, 65_536):
            bare = [cluster.hire(Bare), cluster.hire(Bare)]
            ray.get(bare[0].call.remote(bare[1], 50, size))
            calls = [ray.get(bare[0].call.remote(bare[1], count, size)) for _ in range(5)]
            told: list[float] = []
            make = partial(two_parties, count, size)
            on_report = lambda name, round, values, told=told: told.append(values["facts"]["seconds"])  # noqa: E731
            RayEngine(cluster, ["there", "back"], make, timeout=60.0, rounds=5, on_report=on_report).run()
            message, call = statistics.median(told[1:]), statistics.median(calls)
            say(f"ray: ms a message of {size:,} bytes, one way", f"{1e3 * message:.2f}")
            text = f"  of {size:,} bytes, over a bare call of an actor (at most 1.3)"
            say(text, f"{message / call:.2f}   ({1e3 * call:.2f} ms)", message <= 1.3 * call)
        root = Path(os.environ.get("VFLBENCH_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
        source = [f"data_root={root}"] if root.is_dir() else ["dataset.source=synthetic"]
        overrides = [
            "algorithm=glasu",
            "dataset=cora",
            "engine=ray",
            "engine.address=auto",
            f"rounds={rounds}",
            *source,
        ]
        with config.session(overrides) as hydra:
            run_config = config.to_config(config.plain(config.plan(hydra, overrides).cfg))
        info = registry.algorithms()["glasu"]
        federation = Federation(run_config, info)
        ratios, walls = [], []
        with Host(run_config, info) as host:
            for _ in range(3):
                began = time.perf_counter()
                federation.engine(Observer(federation.task, run_config)).run()
                simulated = time.perf_counter() - began
                engine = host.engine(Observer(host.federation.task, run_config))
                engine.run()
                ratios.append(engine.boundary_clock / simulated)
                walls.append((engine.boundary_clock, simulated))
        real, simulated = walls[ratios.index(statistics.median(ratios))]
        say(f"ray: s of {rounds} rounds of GLASU on Cora, after start-up", f"{real:.2f}")
        text = "  GLASU through Ray over the simulated engine (at most 3)"
        say(text, f"{statistics.median(ratios):.2f}   ({simulated:.2f} s)", statistics.median(ratios) <= 3)


async def publisher(me: Any, data: Any, count: int, size: int) -> None:
    """Publishes `count` embeddings of `size` bytes, each in a channel of its own, until the subscriber has all; reports
    the seconds."""
    import time

    import torch

    payload = torch.zeros(size // 256, 64)
    async for _ in me.rounds():
        began = time.perf_counter()
        for channel in range(count):
            await me.send("subscriber", (channel, payload), "embedding")
        await me.recv("subscriber", "all")
        me.report(facts={"seconds": time.perf_counter() - began})


async def subscriber(me: Any, data: Any, count: int, size: int) -> None:
    async for _ in me.rounds():
        for _ in range(count):
            await me.recv("publisher", "embedding")
        await me.send("publisher", 0, "all")


def publish(count: int, size: int, broker: Any, name: str) -> dict[str, Any]:
    from vflbench.federation.party import PartySpec
    from vflbench.federation.ray.party_thread import remote_program

    programs = {"publisher": publisher, "subscriber": subscriber}
    specs = {party: PartySpec(program if party == name else remote_program) for party, program in programs.items()}
    return {"specs": specs, "public": count, "config": size, "rounds": 4, "threads": 1, "broker": broker}


def broker(count: int = 1000, size: int = 65_536) -> None:
    from types import SimpleNamespace

    from vflbench.federation.ray.cluster import Cluster
    from vflbench.federation.ray.driver import RayEngine
    from vflbench.federation.ray.nats_broker import Service
    from vflbench.types import BrokerConfig, EngineConfig

    configuration: Any = SimpleNamespace(broker=BrokerConfig("nats"), engine=EngineConfig("ray"))
    published: Any = SimpleNamespace(published=("embedding",))
    with Cluster() as cluster, Service(configuration, published) as service:
        for how, channels in (("NATS JetStream", service.channels), ("Ray's calls", None)):
            told: list[float] = []
            make = partial(publish, count, size, channels)
            on_report = lambda name, round, values, told=told: told.append(values["facts"]["seconds"])  # noqa: E731
            RayEngine(cluster, ["publisher", "subscriber"], make, timeout=60.0, rounds=4, on_report=on_report).run()
            rate = count / statistics.median(told[1:])
            say(
                f"broker: messages a second of {size:,} bytes, by {how}",
                f"{rate:,.0f}   ({rate * size / 1e6:,.0f} MB/s)",
            )
