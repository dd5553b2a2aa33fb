"""What benchmarks share: lines with targets, timings in pairs, and a federation that is ready to run.

The rule of all ratios to bare arithmetic: the setting is the shipped one. That is what conf/ has for the method and its
model, and the shape of the data set that its own presets and tuned values are for. Rows are made up where the data are
not here; there may be fewer of them, but several batches. No line has another setting to meet its target. What a
message costs where there is little to compute is a line of its own, in messages a second (`messages_a_second`).
"""

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vflbench.federation.party import Party, PartySpec
from vflbench.runner.run import Federation

DATA = Path(os.environ.get("VFLBENCH_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))

missed: list[str] = []  # names of lines that are not within their target


def say(name: str, value: str, ok: bool | None = None) -> None:
    """Print a line; `ok`: whether it is within its target, where it has one."""
    if ok is False:
        missed.append(name.strip())
    print(f"{name:72} {value}{'' if ok is not False else '   MISSED'}", flush=True)


def ratio(
    name: str,
    whole: Callable[[], float],
    bare: Callable[[], float],
    most: float | None = 1.3,
    pairs: int = 7,
    unit: tuple[float, str] = (1e3, "ms"),
) -> None:
    """Print the median over alternating pairs of `whole` over `bare`, both of which return CPU seconds of equal work.

    A first pair is not counted: it warms caches and allocators.
    """
    timings = [(whole(), bare()) for _ in range(pairs + 1)][1:]
    found = statistics.median(a / b for a, b in timings)
    scale, text = unit
    of = " over ".join(f"{scale * statistics.median(values):.2f}" for values in zip(*timings, strict=True))
    limit = "" if most is None else f" (at most {most:g})"
    say(f"{name}{limit}", f"{found:.2f}   ({of} {text})", None if most is None else found <= most)


def messages_a_second(
    name: str, whole: Callable[[], float], bare: Callable[[], float], messages: int, least: int = 20_000
) -> None:
    """Print how many messages a CPU second cost what `whole` takes beyond `bare`: a median over pairs, as in `ratio`.

    `least` is a target of ours; the paper-sized rounds of a method have some hundred messages.
    """
    timings = [(whole(), bare()) for _ in range(6)][1:]
    rate = messages / statistics.median(a - b for a, b in timings)
    say(f"{name}: messages/s beside the arithmetic (at least {least:,})", f"{rate:,.0f}", rate >= least)


def federation(*words: str) -> Federation:
    """The federation of a configuration, its data loaded: real data where they are, else synthetic, if it can be."""
    from vflbench import config, registry

    name = next((word.removeprefix("dataset=") for word in words if word.startswith("dataset=")), "cora")
    made_up = ["dataset.source=synthetic"] if "synthetic" in registry.datasets()[name].sources else []
    overrides = [*words, *([f"data_root={DATA}"] if DATA.is_dir() else made_up)]
    with config.session(overrides) as hydra:
        run_config = config.to_config(config.plain(config.plan(hydra, overrides).cfg))
    return Federation(run_config, registry.algorithms()[run_config.algorithm.name])


def seconds_of_rounds(federation: Federation, rounds: int) -> float:
    """CPU seconds of `rounds` rounds; the first one, with what is set up before it, and scoring are left out."""
    ends: list[float] = []

    def on_round(t: int, _: object) -> bool:
        ends.append(time.process_time())
        return t == rounds + 1

    federation.engine(rounds=rounds + 2, eval_every=rounds + 3, on_round=on_round).run()
    return ends[-1] - ends[0]


def messages_of_rounds(federation: Federation, rounds: int) -> int:
    """How many messages the rounds have that `seconds_of_rounds` times."""
    engine = federation.engine(rounds=rounds + 2, eval_every=rounds + 3, on_round=lambda t, _: t == rounds + 1)
    engine.run()
    numbers = engine.ledger.take()[:, 0]
    return int(((numbers > 1) & (numbers <= rounds + 1)).sum())


def star(clients: int, per_round: int, computes: bool = False) -> dict[str, PartySpec]:
    """Clients that send 100 bytes to a server and get 100 bytes back, `per_round` times a round."""
    import numpy as np

    payload = np.zeros(25, np.float32)

    async def server(me: Party, _data: None, _public: None, _config: None) -> None:
        async for _ in me.rounds():
            for _ in range(per_round):
                await me.recv_all(me.clients, "up")
                await me.send_many(me.clients, payload, "down")

    async def client(me: Party, _data: None, _public: None, _config: None) -> None:
        async for _ in me.rounds():
            for _ in range(per_round):
                if computes:
                    await me.compute(lambda: None, cost=1.0)
                await me.send("server", payload, "up")
                await me.recv("server", "down")

    parties = {f"client_{i:04d}": PartySpec(client) for i in range(clients)}
    return {"server": PartySpec(server, role="server")} | parties


def topology_config(name: str) -> Any:
    """The configuration of a topology, with its defaults."""
    from vflbench import registry

    return registry.option_config("topology", name)(name)
