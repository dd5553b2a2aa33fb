"""engine=ray broker=nats through the real command: the same messages as without, and what happens when a worker or the
broker dies."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.runner.test_ray_run import family, finish, gone, start
from vflbench.federation.ray.nats_broker import Server
from vflbench.types import FederationError

pytestmark = [pytest.mark.slow, pytest.mark.minutes]
MODEL = ["model.depth=2", "model.width=8", "model.embedding=4", "model.top_width=4"]
ROWS = ["dataset=synthetic", "dataset.features=12", "dataset.informative=6", "dataset.redundant=0"]
WORKERS = ["algorithm.workers=2", "algorithm.passive_workers=2", "algorithm.batch_size=50", "algorithm.deadline=60"]
RUN = ["algorithm=pubsub_vfl", "tuned@_global_=none", "engine=ray", *MODEL, *ROWS, *WORKERS, "plot=none"]
# 12 and 48 batches an epoch, of 2 s and more
SMALL, LONG = ["dataset.samples=1000", "epochs=3"], ["dataset.samples=4000", "epochs=4"]
LONG_BATCHES = 48
SINGLE = ["algorithm.workers=1", "algorithm.passive_workers=1"]  # a process for each organisation
# Tells which process is whose.
COMMAND = """
import json
from vflbench.cli import main
from vflbench.federation.ray.driver import RayEngine
began = RayEngine._start
RayEngine._start = lambda engine: (began(engine), print("PIDS", json.dumps(engine.pids), flush=True))
main()
"""


def summary(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return found


def trained(folder: Path) -> pd.DataFrame:
    """The ledger without the exchange of predictions."""
    ledger = pd.read_parquet(folder / "ledger.parquet")
    return ledger[ledger["phase"] != "predict"]


def messages(folder: Path) -> dict[tuple[Any, ...], int]:
    """How many messages there were, by epoch, ends, tag and bytes."""
    ledger = trained(folder)
    return dict(ledger.groupby(["round", "src", "dst", "tag", "bytes"]).size())


def wait_for(condition: Callable[[], Any], process: Any, seconds: float = 300.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.05)
    return found


def servers(pid: int) -> list[int]:
    return [child for child, name in family(pid).items() if Path(name.split(" ")[0]).name == "nats-server"]


def in_epoch(folder: Path, epoch: int) -> bool:
    """Whether the one before it has ended, and been saved."""
    return any(int(path.stem.split("_")[1]) >= epoch - 1 for path in (folder / "checkpoint").glob("round_*.json"))


@pytest.mark.usefixtures("ray_pool")
def test_over_a_broker_pass_the_messages_that_pass_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import vflbench

    server = Server()
    monkeypatch.setenv("BROKER_PASSWORD", server.password)
    named = [
        "broker=nats",
        f"broker.address={server.url}",
        "broker.user=vflbench",
        "broker.password_env=BROKER_PASSWORD",
    ]
    try:
        for name, words in {
            "embedded": [],
            "own": ["broker=nats"],
            "named": [*named, "resume=true", "checkpoint_every=1"],
        }.items():
            vflbench.run([*RUN, *SMALL, "engine.address=auto", f"hydra.run.dir={tmp_path / name}", *words])
    finally:
        server.stop()
    plain = messages(tmp_path / "embedded")
    published = {key: count for key, count in plain.items() if key[3] in ("embedding", "gradient")}
    assert sum(published.values()) == 3 * 2 * 12 and {key[0] for key in published} == {1, 2, 3}
    for name in ("own", "named"):
        found = summary(tmp_path / name)
        assert found["status"] == "completed"
        assert found["batches"] == {"trained": 36, "repeated": 0, "discarded": 0, "dropped": 0}
        assert found["dropped_by_broker"] == {"embedding": 0, "gradient": 0}
        assert {
            key: count for key, count in messages(tmp_path / name).items() if key[3] in ("embedding", "gradient")
        } == published
        assert found["bytes"] == summary(tmp_path / "embedded")["bytes"]
        manifest = json.loads((tmp_path / name / "manifest.json").read_text())
        assert manifest["broker"] == {
            "kind": "nats",
            "server_version": manifest["broker"]["server_version"],
            "own_server": name == "own",
        }
        assert not [
            path
            for path in (tmp_path / name).rglob("*")
            if path.is_file() and server.password.encode() in path.read_bytes()
        ]


@pytest.mark.usefixtures("ray_pool")
def test_a_run_whose_broker_is_gone_for_good_fails_by_name_within_the_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import vflbench

    server, folder = Server(), tmp_path / "run"
    monkeypatch.setenv("BROKER_PASSWORD", server.password)
    named = [
        "broker=nats",
        f"broker.address={server.url}",
        "broker.user=vflbench",
        "broker.password_env=BROKER_PASSWORD",
    ]
    ended: list[float] = []

    def stop() -> None:
        while not in_epoch(folder, 2):
            time.sleep(0.05)
        server.stop()
        ended.append(time.monotonic())

    thread = threading.Thread(target=stop)
    thread.start()
    words = [
        *LONG,
        "epochs=100",
        "checkpoint_every=1",
        "engine.timeout=5",
        "engine.address=auto",
        f"hydra.run.dir={folder}",
    ]
    with pytest.raises(FederationError, match=r"broker at nats://127.0.0.1:\d+ .*\(engine.timeout\)"):
        vflbench.run([*RUN, *words, *named])
    assert time.monotonic() - ended[0] < 60.0  # 5 s, and the time to notice and to write on a busy machine
    assert summary(folder)["status"] == "failed"
    thread.join()


def test_a_broker_that_is_killed_starts_again_and_every_batch_is_trained_once(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    words = ["broker=nats", "checkpoint_every=1", f"hydra.run.dir={folder}"]
    process = start(COMMAND, *RUN, *LONG, *words, where=tmp_path)
    for epoch in (2, 3):
        wait_for(lambda epoch=epoch: in_epoch(folder, epoch), process)
        time.sleep(0.5)
        [server] = servers(process.pid)
        os.kill(server, signal.SIGKILL)
    left = list(family(process.pid))
    output = finish(process)
    assert output.count("nats-server has ended (exit status -9): it is started again") == 2, output
    found = summary(folder)
    assert found["status"] == "completed" and found["batches"]["trained"] == 4 * LONG_BATCHES
    assert gone(left, 120.0)


def test_a_worker_that_is_killed_costs_its_tasks_and_every_batch_is_trained_once(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    words = ["broker=nats", "checkpoint_every=1", f"hydra.run.dir={folder}"]
    process = start(COMMAND, *RUN, *LONG, *words, where=tmp_path)
    assert process.stdout is not None
    pids = json.loads(next(line for line in process.stdout if line.startswith("PIDS")).removeprefix("PIDS"))
    for epoch, worker in ((2, "passive_1_worker_0"), (3, "active_worker_1")):
        wait_for(lambda epoch=epoch: in_epoch(folder, epoch) or epoch > 2, process)
        time.sleep(0.5)
        os.kill(pids[worker], signal.SIGKILL)
    output = finish(process)
    found = summary(folder)
    assert found["status"] == "completed", output
    assert found["batches"]["trained"] == 4 * LONG_BATCHES and found["batches"]["repeated"] >= 1
    assert list(found["lost"]) == ["passive_1_worker_0", "active_worker_1"]
    for worker in found["lost"]:
        assert re.search(
            rf"the process of {worker} has died in round \d \(killed, or out of memory\). The run goes on without it",
            output,
        )
    assert not (folder / "model" / "active_worker_1.safetensors").exists()
    counts = trained(folder).groupby(["round", "tag"]).size().unstack()
    assert (counts["gradient"] >= LONG_BATCHES).all() and counts["embedding"].sum() <= 4 * LONG_BATCHES + found[
        "batches"
    ]["repeated"]


def test_nothing_is_left_of_a_command_that_is_ended_and_it_goes_on(tmp_path: Path) -> None:
    """By SIGTERM in its second epoch, and by SIGKILL in the third, in which it went on."""
    folder = tmp_path / "run"
    words = [*RUN, *LONG, *SINGLE, "broker=nats", "checkpoint_every=1", "resume=true", f"hydra.run.dir={folder}"]
    for epoch, ending in ((2, signal.SIGTERM), (3, signal.SIGKILL)):
        process = start(COMMAND, *words, where=tmp_path)
        wait_for(lambda epoch=epoch: in_epoch(folder, epoch), process)
        left = list(family(process.pid)) if ending == signal.SIGTERM else servers(process.pid)
        assert len(servers(process.pid)) == 1
        process.send_signal(ending)
        process.communicate(timeout=120)
        assert gone(left, 60.0)  # of what is left of Ray after a SIGKILL see test_ray_run.py
    assert summary(folder)["status"] == "interrupted"  # the first one's: killed, the second wrote none
    finish(start(COMMAND, *words, where=tmp_path))
    found = summary(folder)
    assert found["status"] == "completed" and found["batches"]["trained"] == 4 * LONG_BATCHES
    counts = trained(folder).groupby(["round", "tag"]).size().unstack()
    assert list(counts.index) == [1, 2, 3, 4] and (counts["embedding"] >= LONG_BATCHES).all()
