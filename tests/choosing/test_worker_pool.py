"""Where a search has its runs trained: as jobs of submitit and as tasks of Ray, which give what this process would."""

from __future__ import annotations

import operator
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from vflbench.choosing import remote_executors
from vflbench.choosing.remote_executors import DiedError, RemoteExecutor
from vflbench.choosing.worker_pool import Task, WorkerPool
from vflbench.types import VflbenchError

pytestmark = pytest.mark.slow


@pytest.fixture(params=["submitit_local", "ray"])
def executor(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RemoteExecutor:
    keys: dict[str, Any] = {}
    if request.param == "ray":
        request.getfixturevalue("ray_cluster")
        keys["num_cpus"] = 0  # the tests' cluster has none
    else:
        core = pytest.importorskip("submitit.core.core")
        monkeypatch.setattr(core.Job, "_results_timeout_s", 0)  # it waits for slow file systems
    return remote_executors.make_executor(request.param, keys, "auto", tmp_path / "search", jobs=2)


def test_pieces_of_work_are_done_side_by_side_each_once(executor: RemoteExecutor) -> None:
    tasks = [Task((number, 10), about=number) for number in range(5)]
    with WorkerPool(2, executor) as workers:
        found = {task.about: result for task, result in workers.carry_out(iter(tasks), operator.mul)}
    assert found == {number: 10 * number for number in range(5)}


def test_what_dies_and_what_is_cancelled_is_told(executor: RemoteExecutor) -> None:
    with WorkerPool(1, executor) as workers, pytest.raises(VflbenchError, match="a process that trains has died"):
        list(workers.carry_out(iter([Task((9,))]), os._exit))
    with executor:
        began = time.monotonic()
        threading.Timer(3.0, executor.cancel).start()
        with pytest.raises(DiedError):
            executor.do(lambda: [time.sleep(0.05) for _ in range(1200)])
        assert time.monotonic() - began < 40
