"""Small federations for the tests of the Ray engine; a module of their own, which the parties' processes import."""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.federation.toys import behind
from vflbench.federation.clock import ComputeClock
from vflbench.federation.party import Party, PartySpec
from vflbench.federation.ray.party_thread import remote_program
from vflbench.federation.ray.process import PartyProcess
from vflbench.types import ComputeConfig

NAMES = ("server", "client_0", "client_1")


def leave(_: Any) -> None:
    """Ends a party's thread."""
    raise SystemExit


class Again(PartyProcess):
    """A party's process that goes from run to run."""

    async def prepare(self, *how: Any) -> bytes:
        if hasattr(self, "thread"):  # it was another run's party
            self.put(leave)
            await self.loop.run_in_executor(None, self.thread.join)
        if self.courier is not None:
            await self.courier.close()
            self.courier = None
        return await super().prepare(*how)


def office(me: Party) -> Any:
    """The process behind `me`."""
    return behind(me).runtime.transport.office


def build(programs: dict[str, Any], options: dict[str, Any], name: str) -> dict[str, Any]:
    """The arguments of a party's engine; `programs` are functions of this module by party."""
    specs = {
        party: PartySpec(program, role="server" if party == "server" else "client")
        for party, program in programs.items()
    }
    specs = {
        party: spec if party == name else dataclasses.replace(spec, program=remote_program)
        for party, spec in specs.items()
    }
    clock = ComputeClock("measured", ComputeConfig())
    return {"specs": specs, "public": None, "config": options.get("config"), "clock": clock, "threads": 1} | {
        key: value
        for key, value in options.items()
        if key in ("rounds", "seed", "eval_every", "checkpoint_every", "window")
    }


async def server(me: Party, data: Any, public: Any, config: Any) -> None:
    """Adds what the clients send, and sends the sum back."""
    me.state.total = torch.zeros(3)
    async for t in me.rounds():
        parts = await me.recv_all(me.clients, "up")
        me.state.total += sum(parts)
        await me.send_many(me.clients, me.state.total, "down")
        me.report(train_loss=float(me.state.total.sum()))
        if me.evaluates(t):
            async with me.evaluating():
                shown = await me.recv_all(me.clients, "shown")
            me.report(predictions={"test": torch.stack(shown)})


async def client(me: Party, data: Any, public: Any, config: Any) -> None:
    me.state.x = torch.zeros(3)
    me.state.step = np.float64(0.0)
    async for t in me.rounds():
        noise = torch.from_numpy(me.rng("noise").normal(size=3)).float()
        await me.send("server", await me.compute(torch.add, me.state.x, noise), "up")
        me.state.x = 0.5 * await me.recv("server", "down")
        me.state.step = np.float64(t)
        if me.evaluates(t):
            async with me.evaluating():
                await me.send("server", me.state.x + float(me.rng("shown").random()), "shown")


STAR = dict(zip(NAMES, (server, client, client), strict=True))


async def set_back(me: Party, data: Any, public: Any, config: Any) -> None:
    """A client whose wall clock is set back by an hour in each round."""
    async for t in me.rounds():
        wall = time.time
        time.time = lambda wall=wall: wall() - 3600.0  # type: ignore[assignment,misc]
        await me.send("server", torch.zeros(3), "up")
        await me.recv("server", "down")
        try:
            await me.recv("server", "never", timeout=0.2)
        except TimeoutError:
            me.report(facts={"waited": me.clock})
        if me.evaluates(t):
            async with me.evaluating():
                await me.send("server", torch.zeros(3), "shown")


async def doomed(me: Party, data: Any, public: Any, config: Any) -> None:
    """Is killed in round 4 of its first start, in which it writes the file `config`."""
    me.state.x = torch.zeros(3)
    async for t in me.rounds():
        if t == 4 and not Path(config).exists():
            Path(config).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        await me.send("server", me.state.x + t, "up")
        me.state.x = 0.5 * await me.recv("server", "down")
        if me.evaluates(t):
            async with me.evaluating():
                await me.send("server", me.state.x, "shown")


async def stopped(me: Party, data: Any, public: Any, config: Any) -> None:
    async for _ in me.rounds():
        os.kill(os.getpid(), signal.SIGSTOP)
        await me.send("server", torch.zeros(3), "up")


async def misshapen(me: Party, data: Any, public: Any, config: Any) -> None:
    async for _ in me.rounds():
        await me.send("server", torch.zeros(2), "up")
        await me.recv("server", "down")


async def malformed(me: Party, data: Any, public: Any, config: Any) -> None:
    async for _ in me.rounds():
        office(me).post("server", b"\x80\x04\x95pickled", None)
        await me.recv("server", "down")


async def lost(me: Party, data: Any, public: Any, config: Any) -> None:
    """A message of it never arrives."""
    async for _ in me.rounds():
        office(me).outboxes.boxes["server"].numbered += 1
        await me.send("server", torch.zeros(3), "up")
        await me.recv("server", "down")


async def in_flight(me: Party, data: Any, public: Any, config: Any) -> None:
    """Says to have sent a message more than it has."""
    async for _ in me.rounds():
        office(me).outboxes.boxes["server"].posted += 1
        await me.recv("server", "down")


class Unreachable:
    """An actor that is not reached, but has not died."""

    class deliver:
        @staticmethod
        async def remote(*_: Any) -> float:
            raise OSError("no route")


async def cut_off(me: Party, data: Any, public: Any, config: Any) -> None:
    async for _ in me.rounds():
        office(me).outboxes.boxes["server"].actor = Unreachable
        await me.send("server", torch.zeros(3), "up")
        await me.recv("server", "down")


async def cut_off_at_the_end(me: Party, data: Any, public: Any, config: Any) -> None:
    """What its program has sent last does not arrive, when it has ended."""
    async for t in me.rounds():
        await me.send("server", torch.zeros(3), "up")
        await me.recv("server", "down")
        if me.evaluates(t):
            async with me.evaluating():
                if t == 3:
                    office(me).outboxes.boxes["server"].actor = Unreachable
                await me.send("server", torch.zeros(3), "shown")


async def hoarder(me: Party, data: Any, public: Any, config: Any) -> None:
    """Keeps as state what cannot be in a cut that crosses to the driver."""
    async for _ in me.rounds():
        me.state.kept = {(1, 2): 3}
        await me.send("server", torch.zeros(3), "up")
        await me.recv("server", "down")
        async with me.evaluating():
            await me.send("server", torch.zeros(3), "shown")


async def deaf(me: Party, data: Any, public: Any, config: Any) -> None:
    """Waits for what nobody sends."""
    async for _ in me.rounds():
        await me.recv("server", "never")


async def quits(me: Party, data: Any, public: Any, config: Any) -> None:
    async for _ in me.rounds():
        await me.send("server", torch.zeros(3), "up")
        break


async def early(me: Party, data: Any, public: Any, config: Any) -> None:
    """Needs for its round t what `late` sends in its round t + 1: the window alone would hold `late` back."""
    async for t in me.rounds():
        if t < 4:
            me.report(train_loss=float(await me.recv("late", "x")))


async def late(me: Party, data: Any, public: Any, config: Any) -> None:
    async for t in me.rounds():
        if t > 1:
            await me.send("early", 10.0 * t, "x")


async def hub(me: Party, data: Any, public: Any, config: Any) -> None:
    """Takes what comes first, and waits in vain."""
    async for _ in me.rounds():
        begun = me.clock
        first, _ = await me.recv_any(("quick", "slow"), "x")
        second, _ = await me.recv_any(("quick", "slow"), "x", timeout=30.0)
        try:
            await me.recv("quick", "nothing", timeout=0.2)
        except TimeoutError:
            waited = me.clock - begun
        me.report(facts={"first": first, "second": second, "waited": waited})


async def quick(me: Party, data: Any, public: Any, config: Any) -> None:
    async for _ in me.rounds():
        await me.send("hub", 1.0, "x")


async def slow(me: Party, data: Any, public: Any, config: Any) -> None:
    async for _ in me.rounds():
        time.sleep(0.3)
        await me.send("hub", 2.0, "x")
