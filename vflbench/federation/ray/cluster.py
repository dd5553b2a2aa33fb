"""Ray for one run: starting it, and its processes."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vflbench.federation import guardian
from vflbench.federation.guardian import Guardian
from vflbench.federation.ray.calls import STARTING
from vflbench.types import VflbenchError

AT_ONCE = 256  # processes that Ray may be starting
ANSWER = 5.0  # s that a running cluster has to accept a connection
STARTS = 3  # times that starting Ray is tried
# arguments of ray.init
QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": False}
OBJECT_STORE = 200_000_000  # bytes; only messages over 100 kB pass through it


def _own_environment() -> dict[str, str]:
    """The environment that Ray must find when it is imported to start a cluster of the run's own."""
    return {
        "RAY_USAGE_STATS_ENABLED": "0",
        # the node's address is 127.0.0.1, on Linux too: nothing listens elsewhere
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # actors that reserve no GPU see the GPUs all the same
        "RAY_AUTH_MODE": "token",  # other users of the machine do not know the token and cannot connect
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        # Parties reserve no cores: Ray would start one process after the other, with warnings.
        "RAY_worker_maximum_startup_concurrency": str(AT_ONCE),
        "RAY_worker_niceness": "0",  # by default others go first: parties would starve on a busy machine
        "RAY_worker_register_timeout_seconds": f"{STARTING:.0f}",
    }


class Cluster:
    """Ray for one run: a cluster of its own on the loopback interface (address=local), or the running one (auto).

    For a search of `choose`, too, whose runs are tasks; then the address may be HOST:PORT of a running cluster.

    Raises
    ------
    VflbenchError
        On entering: no cluster runs, or an own one cannot be started.
    """

    def __init__(self, address: str = "local") -> None:
        self.address, self.own = address, address == "local"
        self.actors: list[Any] = []
        self.folder: str | None = None  # of Ray's sockets and logs, where the cluster is our own
        self.guardian: Guardian | None = None

    def __enter__(self) -> Cluster:
        if "ray" not in sys.modules:  # it reads its environment when it is imported
            os.environ["RAY_DISABLE_FAILURE_SIGNAL_HANDLER"] = "1"  # a SIGTERM is no failure
            if self.own:
                os.environ.update(_own_environment())
            elif (Path.home() / ".ray" / "auth_token").is_file():  # what `ray start` wrote, and asks for
                os.environ.setdefault("RAY_AUTH_MODE", "token")
        import ray

        # Ray would install a handler of its own, which ends this process at once
        if signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
            ray._private.utils.set_sigterm_handler = lambda handler: None
        if ray.is_initialized():
            if self.own:
                raise VflbenchError("this process is connected to a Ray cluster already: engine.address=auto uses it")
            return self
        if not self.own:
            self._join()
            return self
        try:
            self._start()
        except BaseException:
            ray.shutdown()
            self._tidy()
            raise
        return self

    def _join(self) -> None:
        import ray

        try:
            found = _answering(ray._private.services.canonicalize_bootstrap_address(self.address))
        except OSError as error:
            where = "here" if self.address == "auto" else f"at {self.address}"
            raise VflbenchError(
                f"no Ray cluster runs {where} ({error}): start one with `ray start --head`, or use engine.address=local"
            ) from error
        try:
            ray.init(address=found, **QUIET)
        except Exception as error:  # another version of Ray, another token
            raise VflbenchError(
                f"the Ray cluster at {found} cannot be used: {error}. One that asks for a token needs "
                "RAY_AUTH_MODE=token in the environment"
            ) from error

    def _start(self) -> None:
        import ray

        self.folder = _private_folder()  # Ray lets everybody write to the folder it is given, which is below this one
        self.guardian = Guardian(guardian.USERS, self.folder)
        options: dict[str, Any] = {
            "include_dashboard": False,
            "num_cpus": 0,
            "num_gpus": 0,
            "object_store_memory": OBJECT_STORE,
        }
        for attempt in range(STARTS):
            try:
                ray.init(
                    address="local", _node_ip_address="127.0.0.1", _temp_dir=f"{self.folder}/ray", **options, **QUIET
                )
                break
            except Exception as error:  # what Ray raises where it does not start in 30 s, as on a busy machine
                ray.shutdown()
                if attempt == STARTS - 1:
                    raise VflbenchError(f"Ray does not start: {error}") from error
        util: Any = ray.util  # its functions have no types
        if util.get_node_ip_address() != "127.0.0.1":  # imported before, with another environment
            raise VflbenchError(
                "Ray was imported before vflbench could keep it on the loopback interface: use engine.address=auto"
            )

    def hire(self, kind: type) -> Any:
        """An actor of class `kind`. It reserves no cores: parties may outnumber them."""
        import ray

        actor: Any = ray.remote(num_cpus=0, max_restarts=0)(kind).remote()
        self.actors.append(actor)
        return actor

    def dismiss(self, actors: Sequence[Any]) -> None:
        """End these processes."""
        import ray

        for actor in list(actors):
            self.actors.remove(actor)
            with contextlib.suppress(Exception):  # dead already
                ray.kill(actor)

    def __exit__(self, *_: object) -> None:
        import ray

        self.dismiss(self.actors)
        if self.own:
            ray.shutdown()
            self._tidy()

    def _tidy(self) -> None:
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None
        if self.guardian is not None:
            self.guardian.dismiss()
            self.guardian = None


def _answering(address: str | None) -> str:
    """The address, HOST:PORT. Raises OSError if nobody answers there: Ray would try it for minutes."""
    if address is None:
        raise OSError("none was found")
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER).close()
    return address


def _private_folder() -> str:
    """A new folder that nobody else can enter.

    Its name is short enough for Ray's sockets below it (107 characters in all).
    """
    folder = tempfile.mkdtemp(prefix="vfl-ray-")
    if len(folder) > 36:
        os.rmdir(folder)
        folder = tempfile.mkdtemp(prefix="vfl-ray-", dir="/tmp")
    return folder
