"""engine=ray through the real command: who holds which data, what is killed and goes on, what listens and what is left
running."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.conftest import REPOSITORY, absent
from vflbench.types import ConfigError, FederationError, VflbenchError

RUN = ["algorithm=glasu", "dataset=digits_graph", "model.hidden=8", "algorithm.local_steps=1", "engine=ray"]
PLANTED = np.array([1234.567, 2345.678, 3456.789, 4567.891], np.float32)  # client_1's features of node 5

# Looks at all processes at the end of a run, before they end: arrays, tensors and messages that hold a planted value,
# and the driver's raw memory.
LOOK = """
import gc, json, struct, sys
import numpy as np, torch
from vflbench.cli import main
from vflbench.federation.ray.driver import RayEngine

halves = [float(number) for number in sys.argv.pop(1).split(",")]

def holders(_, values):
    needle, rest = struct.pack("<2f", *values[:2]), struct.pack("<2f", *values[2:])
    stack, seen, found = list(gc.get_objects()), set(), 0
    while stack:
        one = stack.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        kind = type(one)
        if issubclass(kind, np.ndarray):
            if one.base is not None:
                stack.append(one.base)
            found += bool(one.dtype.kind == "f" and np.isin(one, np.array(values, np.float32).astype(one.dtype)).any())
        elif issubclass(kind, torch.Tensor):
            whole = one.detach().untyped_storage()
            if one.is_floating_point() and one.layout is torch.strided:
                known = one.dtype in (torch.float32, torch.float64)
                flat = torch.empty(0, dtype=one.dtype).set_(whole).numpy() if known else np.zeros(0)
                found += bool(np.isin(flat, np.array(values, np.float32).astype(flat.dtype)).any())
            stack.extend(gc.get_referents(one))
        elif kind in (bytes, bytearray, memoryview):
            data = bytes(one)
            at = data.find(needle)
            found += at >= 0 and data[at + 8 : at + 16] == rest
        else:
            stack.extend(gc.get_referents(one))
    return found

def in_memory(_, values):
    # two halves, which lie side by side in no code
    needle, rest = struct.pack("<2f", *values[:2]), struct.pack("<2f", *values[2:])
    count = 0
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
        for line in maps.read().splitlines():
            span, rights = line.split()[:2]
            start, end = (int(part, 16) for part in span.split("-"))
            if not rights.startswith("rw") or end - start > 600_000_000:
                continue
            try:
                memory.seek(start)
                data = memory.read(end - start)
            except OSError:
                continue
            at = data.find(needle)
            while at >= 0:
                count += data[at + 8 : at + 16] == rest
                at = data.find(needle, at + 1)
    return count

heard_last = RayEngine._heard_last

def look(engine, words):
    import ray

    # `holders` lays the values side by side, so it comes second
    found = {"driver's memory": in_memory(None, halves), "driver": holders(None, halves)}
    found["its owner's memory"] = ray.get(engine._actors["client_1"].__ray_call__.remote(in_memory, halves))
    found |= {name: ray.get(actor.__ray_call__.remote(holders, halves)) for name, actor in engine._actors.items()}
    print("FOUND", json.dumps(found), flush=True)
    heard_last(engine, words)

RayEngine._heard_last = look
main()
"""
COMMAND = "from vflbench.cli import main\nmain()"
# A round takes longer, so that a signal meets it.
SLOWLY = """
import time
from vflbench.runner.evaluate import Observer
on_round = Observer.on_round
Observer.on_round = lambda *args: (time.sleep(0.1), on_round(*args))[1]
"""


@pytest.fixture(autouse=True)
def ray_is_installed() -> None:
    if importlib.util.find_spec("ray") is None:
        absent("Ray is not installed: pip install 'vflbench[ray]'")


def start(code: str, *words: str, where: Path) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    command = [sys.executable, "-c", code, *words]
    return subprocess.Popen(
        command, env=environment, cwd=where, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def finish(process: subprocess.Popen[str], code: int = 0) -> str:
    output, _ = process.communicate(timeout=600)
    assert process.returncode == code, output
    return output


def family(pid: int) -> dict[int, str]:
    """The processes below `pid`, with their command lines."""
    parents, names = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            names[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (OSError, ProcessLookupError):
            continue
    found, front = {}, {pid}
    while front:
        front = {child for child, parent in parents.items() if parent in front}
        found |= {child: names[child] for child in front}
    return found


def gone(pids: Iterable[int], seconds: float = 30.0) -> bool:
    """Whether these processes end (a zombie has)."""
    deadline = time.monotonic() + seconds
    left = set(pids)
    while left and time.monotonic() < deadline:
        left = {
            pid
            for pid in left
            if Path(f"/proc/{pid}/stat").exists()
            and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        }
        time.sleep(0.1)
    return not left


def listening(pids: list[int]) -> set[str]:
    """Addresses on which these processes listen."""
    inodes = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                inodes.update(re.findall(r"socket:\[(\d+)\]", os.readlink(link)))
            except OSError:
                continue
    found = set()
    for table, size in (("tcp", 4), ("tcp6", 16)):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                raw = bytes.fromhex(fields[1].split(":")[0])
                words = b"".join(struct.pack(">I", word) for word in struct.unpack(f"<{size // 4}I", raw))
                found.add(socket.inet_ntop(socket.AF_INET if size == 4 else socket.AF_INET6, words))
    return found


@pytest.mark.slow
def test_nobody_but_its_owner_holds_a_partys_features(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(60, 12)).astype(np.float32)
    features[5, 4:8] = PLANTED
    np.save(tmp_path / "x.npy", features)
    np.save(tmp_path / "y.npy", rng.integers(0, 2, 60))
    np.save(tmp_path / "e.npy", rng.integers(0, 60, (200, 2)))
    files = ["dataset=graph_files", "dataset.features=x.npy", "dataset.labels=y.npy", "dataset.edges=e.npy"]
    blocks = "dataset.blocks=[['0:4'],['4:8'],['8:12']]"
    run = ["rounds=3", "eval_every=1", "checkpoint_every=1", "hydra.run.dir=run", blocks]
    process = start(LOOK, ",".join(map(str, PLANTED.tolist())), *RUN, *files, *run, where=tmp_path)
    left: set[int] = set()
    while process.poll() is None:
        left |= set(family(process.pid))
        time.sleep(0.3)
    found = json.loads(re.findall(r"FOUND (.*)", finish(process))[0])
    assert found.pop("client_1") > 0 and found.pop("its owner's memory") > 0  # both ways of looking find what is there
    assert found == {"server": 0, "client_0": 0, "client_2": 0, "driver": 0, "driver's memory": 0}
    assert len(left) >= 6 and gone(left)  # Ray's own and four parties


@pytest.mark.slow
def test_all_of_ray_listens_on_the_loopback_interface_and_ends_with_a_party_that_is_killed(tmp_path: Path) -> None:
    process = start(SLOWLY + COMMAND, *RUN, "rounds=400", "checkpoint_every=2", "hydra.run.dir=run", where=tmp_path)
    heard: set[str] = set()
    seen: dict[int, str] = {}
    while not list((tmp_path / "run" / "checkpoint").glob("round_*.pt")):
        assert process.poll() is None, process.communicate()[0]
        now = family(process.pid)
        heard |= listening([process.pid, *now])
        seen |= now
        time.sleep(0.3)
    assert {"raylet", "gcs_server"} <= {Path(name.split()[0]).name for name in seen.values() if name}
    assert heard and heard <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}
    assert all("--disable-frontend" in name for name in seen.values() if "dashboard.py" in name)
    parties = sorted(pid for pid, name in family(process.pid).items() if name.startswith("ray::PartyProcess"))
    assert len(parties) == 4
    services = [
        pid for pid, name in family(process.pid).items() if Path(name.split(" ")[0]).name in ("raylet", "gcs_server")
    ]
    assert len(services) == 2  # nothing is reported to Ray's makers
    assert all(b"RAY_USAGE_STATS_ENABLED=0\0" in Path(f"/proc/{pid}/environ").read_bytes() for pid in services)
    os.kill(parties[1], signal.SIGKILL)
    output = finish(process, 1)
    assert re.search(r"error: the process of (server|client_\d) has died in round \d+", output), output
    assert "Traceback" not in output
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "failed"
    assert gone(seen)
    folders = {found[0] for name in seen.values() if (found := re.findall(r"/\S*vfl-ray-\w+", name))}
    assert len(folders) == 1 and not Path(folders.pop()).exists()


@pytest.mark.slow
@pytest.mark.parametrize(("ending", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 143)])
def test_nothing_is_left_of_a_command_that_is_ended(ending: signal.Signals, code: int, tmp_path: Path) -> None:
    """Neither processes nor the folder of Ray's sockets and logs."""
    process = start(SLOWLY + COMMAND, *RUN, "rounds=400", "checkpoint_every=2", "hydra.run.dir=run", where=tmp_path)
    while not list((tmp_path / "run" / "checkpoint").glob("round_*.pt")):
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.1)
    left = family(process.pid)
    folders = {Path(found[0]) for name in left.values() if (found := re.findall(r"/\S*vfl-ray-\w+", name))}
    assert len(left) >= 6 and len(folders) == 1
    process.send_signal(ending)
    output = finish(process, code)
    assert gone(left, 60.0) and not any(folder.exists() for folder in folders)
    if ending == signal.SIGTERM:
        assert "resume=true continues it" in output and "Traceback" not in output
        assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "interrupted"


TIMES = ["virtual_seconds", "communication_seconds", "idle_seconds", "compute_seconds"]


@pytest.mark.slow
@pytest.mark.usefixtures("ray_pool")
def test_a_party_killed_at_five_random_moments_fails_the_run_by_name_and_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the curve and the parameters of the run that was never stopped, which is the simulated one."""
    import vflbench
    from vflbench.runner.evaluate import Observer

    monkeypatch.setattr("vflbench.plots.curves.draw_run", lambda folder, summary: None)
    kills = 5
    draw, on_round = random.Random(kills), Observer.on_round
    task = [word for word in RUN if word != "engine=ray"]
    task += [
        f"rounds={8 * kills + 8}",
        "eval_every=4",
        "checkpoint_every=2",
        "engine.threads=1",
        "engine.batch_compute=false",
    ]
    whole = vflbench.run([*task, f"hydra.run.dir={tmp_path / 'whole'}"])
    folder = tmp_path / "broken"
    apart = [*task, "engine=ray", "engine.address=auto", "engine.timeout=60", f"hydra.run.dir={folder}", "resume=true"]
    for kill in range(kills):
        last, delay, killed = 8 * kill + draw.randint(0, 7), 0.03 * draw.random(), []

        def strikes(
            self: Observer, round: int, engine: Any, last: int = last, delay: float = delay, killed: list[Any] = killed
        ) -> bool:
            if round >= last and not killed:
                killed.append((name := draw.choice(list(engine.pids)), engine.pids[name], time.monotonic()))
                threading.Timer(delay, os.kill, (engine.pids[name], signal.SIGKILL)).start()
            return on_round(self, round, engine)

        with monkeypatch.context() as patch:
            patch.setattr(Observer, "on_round", strikes)
            with pytest.raises(FederationError) as error:
                vflbench.run(apart)
        (name, pid, when) = killed[0]
        assert re.fullmatch(
            rf"the process of {name} has died in round \d+ \(killed, or out of memory\)", str(error.value)
        )
        # engine.timeout, and writing the folder on a busy machine
        assert time.monotonic() - when < 60 + 20 and gone([pid])
        summary = json.loads((folder / "summary.json").read_text())
        assert summary["status"] == "failed" and name in summary["reason"]
    run = vflbench.run(apart)
    assert run.summary["status"] == "completed"
    pd.testing.assert_frame_equal(whole.curve.drop(columns=TIMES), run.curve.drop(columns=TIMES), check_exact=True)
    for path in (whole.folder / "model").iterdir():
        assert path.read_bytes() == (folder / "model" / path.name).read_bytes()


def refused(*words: str) -> str:
    import vflbench

    with pytest.raises(ConfigError) as error:
        vflbench.run([*RUN, *words])
    return str(error.value)


def test_what_does_not_go_with_it_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wrong = [
        "engine.compute_clock=modelled",
        "engine.batch_compute=true",
        "network.timing=round",
        "network.server_bandwidth_gbps=1",
    ]
    text = refused(*wrong, "engine.address=everywhere", "engine.timeout=0")
    for key in [word.partition("=")[0] for word in wrong] + ["engine.address", "engine.timeout"]:
        assert f"{key}=" in text
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "ray" else find(name, *rest))
    assert "engine=ray: needs Ray, which is not installed: pip install 'vflbench[ray]'" in refused()


@pytest.mark.slow
def test_a_device_for_no_party_and_bad_data_are_told_before_the_run(ray_cluster: Any, tmp_path: Path) -> None:
    import vflbench

    auto = ["engine.address=auto", f"hydra.run.dir={tmp_path / 'run'}", "rounds=1"]
    with pytest.raises(
        ConfigError, match=r"engine.devices.client_7=cpu: there is no such party; there are: server, client_0"
    ):
        vflbench.run([*RUN, *auto, "+engine.devices.client_7=cpu"])
    with pytest.raises(VflbenchError, match="cora"):
        vflbench.run(["algorithm=glasu", "dataset=cora", f"data_root={tmp_path}", "engine=ray", *auto])


@pytest.mark.slow
def test_a_device_that_is_none_is_told_with_its_party(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from vflbench import config, registry
    from vflbench.runner.distributed import party

    assert "engine.devices.client_0=gpu: must be auto, cpu, cuda or cuda:NUMBER" in refused(
        "+engine.devices.client_0=gpu"
    )
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    words = [*RUN, "+engine.devices.client_0=cuda:1"]
    with config.session(words) as hydra:
        plan = config.plan(hydra, words)
    assert plan.config is not None
    with pytest.raises(ConfigError, match=r"engine.devices.client_0=cuda:1: this machine has 0 GPUs"):
        party(plan.config, registry.algorithms()["glasu"], 1, None, "client_0")
    with pytest.raises(ConfigError, match=r"engine.devices.client_0=cuda:1: this algorithm computes on cpu only"):
        party(plan.config, registry.algorithms()["glasu"], 1, None, "client_0", devices=("cpu",))
    found = party(plan.config, registry.algorithms()["glasu"], 1, None, "client_1", source="real")
    assert found["specs"]["client_1"].data is not None
    with pytest.raises(
        VflbenchError,
        match="its data of digits_graph are real, but the process that looked before the run found synthetic",
    ):
        party(plan.config, registry.algorithms()["glasu"], 1, None, "client_1", source="synthetic")


@pytest.mark.slow
@pytest.mark.usefixtures("ray_pool")
@pytest.mark.parametrize("when", ["survey", "score"])
def test_a_surveyor_that_is_killed_fails_the_run_by_name(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    import vflbench
    from vflbench.federation.ray.cluster import Cluster
    from vflbench.runner.distributed import ScoredElsewhere, Surveyor

    hire, score = Cluster.hire, ScoredElsewhere.score

    def killed(self: Cluster, kind: type) -> Any:
        actor = hire(self, kind)
        if kind is Surveyor:
            ray.kill(actor)
        return actor

    def strikes(self: ScoredElsewhere, round: int, models: list[Any]) -> dict[str, float]:
        ray.kill(self.surveyor)
        return score(self, round, models)

    if when == "survey":
        monkeypatch.setattr(Cluster, "hire", killed)
    else:
        monkeypatch.setattr(ScoredElsewhere, "score", strikes)
    words = [
        "algorithm=leasgd",
        "dataset=digits",
        "model.widths=[16]",
        "algorithm.workers=3",
        "rounds=2",
        "eval_every=1",
        "engine=ray",
    ]
    with pytest.raises(
        FederationError, match=r"the process of the surveyor, which .*, has died \(killed, or out of memory\)"
    ):
        vflbench.run([*words, "engine.address=auto", f"hydra.run.dir={tmp_path / 'run'}"])
    if when == "survey":
        assert not (tmp_path / "run").exists()
    else:
        assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "failed"


@pytest.mark.slow
def test_who_does_not_answer_the_driver_is_named_in_time(ray_cluster: Any) -> None:
    from vflbench.federation.ray.process import PartyProcess
    from vflbench.runner.distributed import answer

    actor = ray_cluster.hire(PartyProcess)
    with pytest.raises(FederationError, match=r"no answer from him within 0.5 s \(engine.timeout\)"):
        answer(actor.live.remote(), "him", 0.5)
    ray_cluster.dismiss([actor])


BANK = [
    "dataset=bank",
    "dataset.source=synthetic",
    "dataset.samples=600",
    "algorithm.batch_size=32",
    "model.width=8",
    "model.depth=3",
]
IN_REAL_TIME = {
    "pubsub_vfl": [*BANK, "algorithm.workers=2", "algorithm.passive_workers=2", "algorithm.deadline=100"],
    "avfl": BANK,
    "avfl_ps": [*BANK, "algorithm.workers=2"],
    "leasgd_async": ["dataset=digits", "model.widths=[16]", "algorithm.workers=3", "checkpoint_every=null"],
    "fedbuff": ["dataset=digits", "model.widths=[16]", "algorithm.workers=3"],
}


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", sorted(IN_REAL_TIME))
@pytest.mark.usefixtures("ray_pool")
def test_what_depends_on_time_runs_to_its_end_in_real_time(
    algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every batch of split learning is trained once an epoch, whichever message comes first; times and cores' use are
    measured."""
    import vflbench
    from vflbench.results.run_schema import validate_summary

    monkeypatch.setattr("vflbench.plots.curves.draw_run", lambda folder, summary: None)
    words = [f"algorithm={algorithm}", *IN_REAL_TIME[algorithm], "rounds=3", "eval_every=1", "engine.threads=1"]
    run = vflbench.run([*words, "engine=ray", "engine.address=auto", f"hydra.run.dir={tmp_path / 'run'}"])
    summary = run.summary
    assert (summary["status"], summary["rounds"]) == ("completed", 3) and validate_summary(summary) == []
    assert (summary["engine"], summary["compute_clock"], summary["timing"]) == ("ray", "measured", "measured")
    assert list(run.curve["round"]) == [1, 2, 3] and np.isfinite(run.curve["train_loss"]).all()
    assert 0 < summary["idle_seconds"] < summary["virtual_seconds"] < summary["wall_seconds"]
    if algorithm == "fedbuff":
        assert list(run.curve["iterations"]) == [1, 3, 4]  # three updates a round, two for a step
    if algorithm in ("leasgd_async", "fedbuff"):
        return
    batches = -(-360 // 32)  # of 600 rows 60 % are for training
    assert list(run.curve["iterations"]) == [batches, 2 * batches, 3 * batches]
    assert 0 < summary["utilisation"] <= 1 and 0 < summary["waiting_seconds"] < summary["virtual_seconds"]
    sent = run.ledger.query("tag == 'gradient' and link != 'local'").groupby("round").size()
    counts = summary.get("batches", {})
    assert counts.get("repeated", 0) == counts.get("dropped", 0) == 0  # nothing takes as long as the deadline here
    assert sent.to_dict() == {1: batches, 2: batches, 3: batches}


@pytest.mark.slow
@pytest.mark.usefixtures("ray_pool")
def test_a_file_for_each_party_makes_the_run_that_it_makes_in_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import vflbench
    from tests.runner.test_distributed import tables

    monkeypatch.setattr("vflbench.plots.curves.draw_run", lambda folder, summary: None)
    files = ",".join(map(str, tables(tmp_path, "some").values()))
    words = [
        "algorithm=vfl",
        "algorithm.parties=3",
        "dataset=tabular_files",
        f"dataset.files=[{files}]",
        "dataset.label=bought",
    ]
    words += ["dataset.id=id", "dataset.alignment=psi", "algorithm.batch_size=8", "rounds=2"]
    words += ["engine.threads=1", "engine.batch_compute=false"]
    whole = vflbench.run([*words, f"hydra.run.dir={tmp_path / 'whole'}"])
    apart = vflbench.run([*words, "engine=ray", "engine.address=auto", f"hydra.run.dir={tmp_path / 'apart'}"])
    pd.testing.assert_frame_equal(whole.curve.drop(columns=TIMES), apart.curve.drop(columns=TIMES), check_exact=True)
    for path in (whole.folder / "model").iterdir():
        assert path.read_bytes() == (apart.folder / "model" / path.name).read_bytes()
