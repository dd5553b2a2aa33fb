"""An empty folder to stand in, and a PostgreSQL server of our own for all tests that ask one."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg
import pytest

PASSWORD = "tr0ub4dor&3"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder in which vflbench is started."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def binaries() -> Path | None:
    """The newest PostgreSQL server's folder."""
    found = shutil.which("initdb")
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return Path(found).parent if found else debian[-1].parent if debian else None


class Server:
    """A PostgreSQL server of its own on a free port."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder = folder
        # PostgreSQL refuses to run as root; Debian's package brings a user for it.
        self.who = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
        if self.who:
            shutil.chown(folder, "postgres", "postgres")
        (folder / "password").write_text(PASSWORD)
        (folder / "password").chmod(0o644)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        setup = [
            programs / "initdb",
            "-D",
            folder / "data",
            "-U",
            "owner",
            "-A",
            "scram-sha-256",
            "--pwfile",
            folder / "password",
            "-N",
        ]
        subprocess.run([*setup, "-E", "UTF8", "--locale", "C"], check=True, capture_output=True, cwd=folder, **self.who)
        options = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off"]
        self.program = [
            programs / "postgres",
            "-D",
            folder / "data",
            "-p",
            str(self.port),
            *(x for o in options for x in ("-c", o)),
        ]
        self.process = None

    def start(self) -> None:
        log = (self.folder / "log").open("ab")
        self.process = subprocess.Popen(self.program, stdout=log, stderr=log, cwd=self.folder, **self.who)
        for _ in range(300):
            with contextlib.suppress(psycopg.OperationalError), self.connect():
                return
            assert self.process.poll() is None, (self.folder / "log").read_text()
            time.sleep(0.1)
        raise AssertionError("PostgreSQL does not answer")

    def stop(self, how=signal.SIGINT) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(30)
            self.process = None

    def connect(self):
        return psycopg.connect(
            f"postgresql://owner@127.0.0.1:{self.port}/postgres", password=PASSWORD, autocommit=True, connect_timeout=5
        )

    @property
    def url(self) -> str:
        return f"postgresql://owner@127.0.0.1:{self.port}/postgres"


@pytest.fixture(scope="session")
def server():
    programs = binaries()
    if programs is None:
        reason = "no PostgreSQL server here: apt-get install postgresql"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
    folder = Path(tempfile.mkdtemp(prefix="vflbench-pg-"))  # not below tmp_path, where another user may not go
    made = Server(folder, programs)
    try:
        made.start()
        yield made
    finally:
        made.stop(signal.SIGQUIT)
        shutil.rmtree(folder, ignore_errors=True)
