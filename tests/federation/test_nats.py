"""The NATS server of a run: what it keeps and drops, who may connect, when it starts again and when it ends; the order
of messages."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import REPOSITORY
from vflbench.federation import wire
from vflbench.federation.ledger import COLUMN, Ledger
from vflbench.federation.ray.nats_broker import Channels, Courier, Server, Service, connected
from vflbench.federation.ray.process import PartyProcess
from vflbench.types import ConfigError, FederationError, VflbenchError

RUN = ["algorithm=pubsub_vfl", "dataset=synthetic", "engine=ray", "broker=nats"]
INFO: Any = SimpleNamespace(published=("embedding", "gradient"))


def configuration(timeout: float = 20.0, **broker: Any) -> Any:
    given = {"address": None, "user": None, "password_env": None} | broker
    engine = SimpleNamespace(timeout=timeout)
    return SimpleNamespace(broker=SimpleNamespace(**given), engine=engine)


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(configuration(), INFO) as service:
        yield service


def refused(*words: str) -> str:
    import vflbench

    with pytest.raises(ConfigError) as error:
        vflbench.run([*RUN, *words])
    return str(error.value)


def test_what_does_not_go_with_it_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = refused("engine=simulated", "broker.user=me")
    assert (
        "broker=nats: needs parties in processes of their own: engine=ray; engine=simulated has broker=embedded"
        in alone
    )
    assert "broker.user=(not shown): must be null without broker.address" in alone
    text = refused("algorithm=avfl", "broker.address='nats://hunter2@there:4222'", "broker.password_env=hunter2")
    assert (
        "broker=nats: avfl publishes nothing that could pass a broker: broker=embedded; these publish: pubsub_vfl"
        in text
    )
    assert (
        "broker.address=nats://***@there:4222: must be of the form nats://host:port or tls://host:port, without user"
        in text
    )
    assert "broker.password_env=(not shown): must name an environment variable that is set" in text
    assert "hunter2" not in text + refused("broker.address='nats://me:hunter2@there:4222'")
    assert "broker=mqtt: unknown broker; there are: embedded, nats" in refused("broker=mqtt")
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "nats" else find(name, *rest))
    assert "broker=nats: needs NATS, which is not installed: pip install 'vflbench[broker]'" in refused()


class Inbox:
    """What a courier hands over."""

    def __init__(self) -> None:
        self.got: list[tuple[str, str, int, bytes]] = []
        self.problems: list[FederationError] = []

    def take(self, *message: Any) -> None:
        self.got.append(message)

    def numbers(self) -> list[int]:
        return [number for _, _, number, _ in self.got]

    async def until(self, last: int) -> None:
        deadline = time.monotonic() + 20.0
        while last not in self.numbers():
            assert time.monotonic() < deadline, self.got
            await asyncio.sleep(0.01)


def between(
    channels: Channels, work: Callable[[Courier, Courier, Inbox], Awaitable[None]], names: tuple[str, str]
) -> None:
    """Run `work` with a sender's courier and a receiver's, which is not open yet."""

    async def main() -> None:
        inbox = Inbox()
        sender = Courier(names[0], channels, lambda *_: None, inbox.problems.append)
        receiver = Courier(names[1], channels, inbox.take, inbox.problems.append)
        await sender.open()
        try:
            await work(sender, receiver, inbox)
        finally:
            await sender.close()
            await receiver.close()
        assert not inbox.problems

    asyncio.run(main())


def test_a_channel_keeps_the_newest_message_and_what_is_taken_is_removed(service: Service) -> None:
    async def work(sender: Courier, receiver: Courier, inbox: Inbox) -> None:
        for number, channel in enumerate([7, 7, 8, 7, 7], start=1):
            await sender.publish("b", "embedding", channel, number, b"x")
        await sender.publish("b", "gradient", 7, 1, b"old")
        await sender.publish("b", "gradient", 7, 2, b"new")
        await sender.publish("c", "embedding", 7, 1, b"for another")
        await receiver.open()
        await inbox.until(5)
        while not (await receiver.drained("embedding") and await receiver.drained("gradient")):
            await asyncio.sleep(0.01)
        embeddings = [number for _, tag, number, _ in inbox.got if tag == "embedding"]
        assert embeddings == [3, 5]  # of channel 7's 1, 2, 4, 5 the last
        assert [message for message in inbox.got if message[1] == "gradient"] == [("a", "gradient", 2, b"new")]
        async with connected(service.channels) as client:
            left = await client.jetstream().stream_info(service.channels.streams["embedding"])
            assert left.state.messages == 1  # c's

    between(service.channels, work, ("a", "b"))


def test_nobody_connects_without_the_password_which_is_in_one_file_that_others_cannot_read(service: Service) -> None:
    assert service.server is not None
    assert service.channels.password not in repr(service.channels) and service.channels.url.startswith(
        "nats://127.0.0.1:"
    )
    assert service.facts["kind"] == "nats" and re.fullmatch(r"\d+\.\d+\.\d+", service.facts["server_version"])
    holding = [
        p
        for p in service.server.folder.rglob("*")
        if p.is_file() and service.server.password.encode() in p.read_bytes()
    ]
    assert [p.name for p in holding] == ["server.conf"]
    assert holding[0].stat().st_mode & 0o777 == 0o600 and service.server.folder.stat().st_mode & 0o777 == 0o700
    command = Path(f"/proc/{service.server.process.pid}/cmdline").read_bytes()
    assert service.server.password.encode() not in command

    async def knock(channels: Channels) -> None:
        async with connected(channels):
            pass

    for user, password in (("vflbench", "guess"), (None, None)):
        stranger = Channels(service.channels.url, {}, 5.0, user, password)
        with pytest.raises(VflbenchError, match=r"the broker at nats://127.0.0.1:\d+: .*[Aa]uthorization"):
            asyncio.run(knock(stranger))


@pytest.mark.slow
def test_a_server_that_is_killed_starts_again_with_all_that_it_had_and_the_order_stays(service: Service) -> None:
    async def work(sender: Courier, receiver: Courier, inbox: Inbox) -> None:
        server = service.server
        assert server is not None
        for number in range(1, 6):
            await sender.publish("e", "embedding", number, number, bytes(1000))
        before = server.process.pid
        os.kill(before, signal.SIGKILL)
        for number in range(6, 11):  # it waits until the server is back
            await sender.publish("e", "embedding", number, number, bytes(1000))
        assert server.process.pid != before
        await receiver.open()
        await inbox.until(7)
        os.kill(server.process.pid, signal.SIGKILL)
        await inbox.until(10)
        assert list(dict.fromkeys(inbox.numbers())) == list(range(1, 11))  # one may come twice

    between(service.channels, work, ("d", "e"))


@pytest.mark.slow
def test_who_waits_for_a_broker_that_does_not_come_back_is_told_within_the_timeout() -> None:
    server = Server()
    channels = Channels(server.url, {"embedding": "none"}, 1.0, "vflbench", server.password)

    async def main() -> list[FederationError]:
        problems: list[FederationError] = []
        courier = Courier("a", channels, lambda *_: None, problems.append)
        # there is no stream to read
        courier.channels = Channels(channels.url, {}, channels.timeout, channels.user, channels.password)
        await courier.open()
        courier.channels = channels
        server.stop()
        with pytest.raises(
            FederationError, match=r"did not take the message 'embedding' of a to b within 1 s \(engine.timeout\)"
        ):
            await courier.publish("b", "embedding", 1, 1, b"x")
        deadline = time.monotonic() + 20.0
        while not problems and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        await courier.close()
        began = time.monotonic()
        with pytest.raises(VflbenchError, match=r"the broker at nats://127.0.0.1:\d+: .*Connect call failed"):
            async with connected(channels):
                pass
        assert time.monotonic() - began < 20.0  # it does not try for minutes
        return problems

    [problem] = asyncio.run(main())
    assert re.search(
        r"a has had no connection to the broker at nats://127.0.0.1:\d+ for 1 s \(engine.timeout\)", str(problem)
    )


def test_streams_at_a_broker_that_is_named_end_with_the_run(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    assert service.server is not None
    monkeypatch.setenv("BROKER_PASSWORD", service.server.password)

    async def streams() -> int:
        async with connected(service.channels) as client:
            return len(await client.jetstream().streams_info())

    before = asyncio.run(streams())
    named = configuration(address=service.channels.url, user="vflbench", password_env="BROKER_PASSWORD")
    with Service(named, INFO) as other:
        assert other.server is None and not other.facts["own_server"]
        assert asyncio.run(streams()) == before + 2
    assert asyncio.run(streams()) == before
    monkeypatch.setenv("BROKER_PASSWORD", "guess")
    with pytest.raises(VflbenchError, match=r"[Aa]uthorization"), Service(named, INFO):
        pass


ALONE = """
import sys, time
from vflbench.federation.ray.nats_broker import Server
server = Server()
print(server.process.pid, server.folder, flush=True)
time.sleep(600)
"""


def test_the_server_and_its_files_end_with_the_process_that_started_it_whatever_that_dies_of() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])}
    process = subprocess.Popen([sys.executable, "-c", ALONE], env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pid, folder = process.stdout.readline().split()
    assert Path(f"/proc/{pid}").exists() and Path(folder).exists()
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 20.0
    while (Path(folder).exists() or running(int(pid))) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not running(int(pid)) and not Path(folder).exists()


def running(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_messages_keep_their_order_across_both_ways_and_what_the_broker_dropped_holds_nobody_up(
    service: Service,
) -> None:
    """Two parties' processes in one, whose actors' calls are plain ones: a publishes five into a channel that holds
    one."""

    async def main() -> None:
        a, b = PartyProcess(), PartyProcess()
        for process, name, other, there in ((a, "f", b, "g"), (b, "g", a, "f")):
            process.loop = asyncio.get_running_loop()
            process._begin(name, {there: SimpleNamespace(deliver=SimpleNamespace(remote=other.deliver))})
            process.engine = SimpleNamespace(  # type: ignore[assignment]
                ledger=Ledger(), tags={}, clock=SimpleNamespace(at=lambda when: 0.0, deadline=None),
                facts=lambda: {"round": 1, "for": "", "parked": False, "finished": False}, lose=lambda name: None,
            )  # fmt: skip
            process.courier = Courier(name, service.channels, process.published.take, process.fail)
        assert a.courier is not None and b.courier is not None
        await a.courier.open()
        row = (1, 0, 1, 0, 0, 10, 1, 0.0, 0)
        a.post("g", b"first", row)
        for number in range(5):
            a.post("g", b"published %d" % number, row, ("embedding", 3))
        a.post("g", b"last", row)
        a.post("g", b"published 5", row, ("embedding", 4))
        a.tell({"kind": "boundary"})  # which is told when all has come
        await asyncio.sleep(0.5)
        assert not a.events
        await b.courier.open()
        await asyncio.wait_for(a.news.wait(), 20.0)
        came: list[bytes] = []
        while not b.inbox.empty():
            b.inbox.get()(SimpleNamespace(arrive=lambda src, first, parts, when: came.extend(parts)))  # type: ignore[arg-type]
        assert came == [b"first", b"published 4", b"last", b"published 5"]
        told = [wire.unpack(await process.status()) for process in (a, b)]
        # As a deadlock is told by: what was dropped is not on its way.
        assert told[0]["sent"] == {"g": 8} and told[1]["received"] == {"f": 8}
        assert (a.published.dropped, b.published.dropped) == ({}, {"embedding": 4})  # of the five in channel 3
        [event] = a.events
        rows = event["ledger"].reshape(-1, len(COLUMN))
        assert len(rows) == 8 and rows[:, COLUMN["bytes"]].sum() == 80  # those that were dropped were sent
        await a.lose(b"g")
        a.post("g", b"in vain", row)
        assert wire.unpack(await a.status())["sent"] == {}
        b.tell({"kind": "boundary"})
        await asyncio.wait_for(b.news.wait(), 20.0)
        assert b.events[0]["dropped"] == {"embedding": 4}  # as the driver hears
        await a.courier.close()
        await b.courier.close()

    asyncio.run(main())


def test_it_starts_where_an_event_loop_runs_and_in_other_threads() -> None:
    async def main() -> dict[str, Any]:
        with Service(configuration(), INFO) as service:
            return service.facts

    found: list[dict[str, Any]] = []
    thread = threading.Thread(target=lambda: found.append(asyncio.run(main())))
    thread.start()
    thread.join()
    assert found[0]["own_server"] and json.dumps(found[0])
