"""The Ray engine with small programs: equal to the simulated one, and every failure ends the run with a name and in
time."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.federation import ray_toys as toys
from tests.federation.toys import plain_bytes, read_back
from vflbench.federation.ledger import COLUMN, sort_ledger
from vflbench.federation.party import PartySpec
from vflbench.federation.ray.driver import RayEngine
from vflbench.federation.simulated import SimulatedEngine
from vflbench.federation.snapshot import Cut
from vflbench.types import FederationError

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_pool")]
TIMES = [COLUMN["sent"], COLUMN["delivered"]]


class Seen:
    """What the driver of a run is told."""

    def __init__(self) -> None:
        self.reports: list[tuple[str, int, dict[str, Any]]] = []
        self.ended: list[int] = []
        self.cuts: list[Cut] = []
        self.stop: int | None = None

    def on_report(self, name: str, round: int, values: dict[str, Any]) -> None:
        self.reports.append((name, round, values))

    def on_round(self, round: int, engine: Any) -> bool:
        self.ended.append(round)
        return round == self.stop

    def by_party(self) -> dict[tuple[str, int], list[Any]]:
        found: dict[tuple[str, int], list[Any]] = {}
        for name, round, values in self.reports:
            plain = {
                key: {k: v.tolist() for k, v in value.items()} if key == "predictions" else value
                for key, value in values.items()
            }
            found.setdefault((name, round), []).append(plain)
        return found


def apart(
    cluster: Any,
    programs: dict[str, Any],
    seen: Seen,
    *,
    timeout: float = 60.0,
    resume_from: Cut | None = None,
    **options: Any,
) -> RayEngine:
    make = partial(toys.build, programs, options)
    driver = {key: value for key, value in options.items() if key in ("rounds", "checkpoint_every")}
    told = {"on_report": seen.on_report, "on_round": seen.on_round, "on_cut": seen.cuts.append}
    return RayEngine(cluster, list(programs), make, timeout=timeout, resume_from=resume_from, **driver, **told)


def together(programs: dict[str, Any], seen: Seen, **options: Any) -> SimulatedEngine:
    specs = {
        name: PartySpec(program, role="server" if name == "server" else "client") for name, program in programs.items()
    }
    return SimulatedEngine(specs, on_report=seen.on_report, on_round=seen.on_round, batch_compute=False, **options)


def rows(engine: Any) -> tuple[np.ndarray, list[str]]:
    """The ledger without its times, tags by name."""
    ledger, tags = sort_ledger(engine.ledger.take(engine.finished_round)), list(engine.ledger.tags)
    names = [tags[int(code)] for code in ledger[:, COLUMN["tag"]]]
    return np.delete(ledger, [*TIMES, COLUMN["tag"]], axis=1), names


def same(one: Any, other: Any) -> None:
    (a, tags), (b, others) = rows(one), rows(other)
    np.testing.assert_array_equal(a, b)
    assert tags == others and one.bytes_sent == other.bytes_sent and one.finished_round == other.finished_round


@pytest.mark.parametrize(("window", "stop"), [(1, None), (1, 3), (3, None)])
def test_a_star_is_what_it_is_in_the_simulation(ray_cluster: Any, window: int, stop: int | None) -> None:
    options = {"rounds": 6, "eval_every": 2, "seed": 5, "window": window}
    simulated, real = Seen(), Seen()
    simulated.stop = real.stop = stop
    one = together(toys.STAR, simulated, **options)
    one.run()
    other = apart(ray_cluster, toys.STAR, real, **options)
    other.run()
    assert simulated.by_party() == real.by_party()
    assert simulated.ended == real.ended == list(range(1, (stop or 6) + 1))
    same(one, other)
    for name, trace in other.take_trace().items():
        assert trace.shape[1] == 5 and (np.diff(trace[:, 4]) >= 0).all(), name


def test_who_waits_for_a_slower_party_is_let_go_where_that_one_waits_for_it(ray_cluster: Any) -> None:
    programs = {"early": toys.early, "late": toys.late}
    simulated, real = Seen(), Seen()
    together(programs, simulated, rounds=4).run()
    apart(ray_cluster, programs, real, rounds=4).run()
    assert simulated.by_party() == real.by_party()
    assert [values["train_loss"] for _, _, values in real.reports] == [20.0, 30.0, 40.0]


def test_what_depends_on_time_runs_in_real_time(ray_cluster: Any) -> None:
    seen = Seen()
    apart(ray_cluster, {"hub": toys.hub, "quick": toys.quick, "slow": toys.slow}, seen, rounds=1).run()
    facts = seen.reports[0][2]["facts"]
    assert (facts["first"], facts["second"]) == ("quick", "slow")
    assert facts["waited"] >= 0.4  # slow sleeps for 0.3 s, then 0.2 s in vain; the clock began a little before


def test_wall_clocks_that_are_set_back_make_no_negative_times(
    ray_cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A party's in every round, and the driver's: between one machine's processes times are of a clock that nobody
    sets."""
    seen, wall, began = Seen(), time.time, time.monotonic()
    monkeypatch.setattr(time, "time", lambda: wall() - 3600.0 * len(seen.ended))
    engine = apart(ray_cluster, {**toys.STAR, "client_1": toys.set_back}, seen, rounds=3)
    engine.run()
    ledger, passed = engine.ledger.take(engine.finished_round), time.monotonic() - began
    sent, delivered = ledger[:, TIMES[0]], ledger[:, TIMES[1]]
    assert (
        (sent >= 0).all()
        and (sent <= delivered).all()
        and (delivered < passed).all()
        and 0.6 < engine.boundary_clock < passed
    )
    waited = [values["facts"]["waited"] for _, _, values in seen.reports if "facts" in values]
    assert len(waited) == 3 and (np.diff([0.0, *waited]) >= 0.2).all()


def test_a_killed_party_is_named_and_the_run_goes_on_from_its_cut(ray_cluster: Any, tmp_path: Path) -> None:
    mark = tmp_path / "killed"
    programs = {**toys.STAR, "client_1": toys.doomed}
    options = {"rounds": 8, "eval_every": 4, "checkpoint_every": 2, "config": str(mark)}
    broken, rest, whole = Seen(), Seen(), Seen()
    with pytest.raises(FederationError, match=r"the process of client_1 has died in round 4"):
        apart(ray_cluster, programs, broken, **options).run()
    assert broken.ended == [1, 2, 3] and [cut.round for cut in broken.cuts] == [2]
    cut = Cut(**read_back(plain_bytes(dataclasses.asdict(broken.cuts[0]))))
    again = apart(ray_cluster, programs, rest, resume_from=cut, **options)
    again.run()
    assert rest.ended == [3, 4, 5, 6, 7, 8]
    never = apart(ray_cluster, programs, whole, **options)
    never.run()
    assert {key: value for key, value in whole.by_party().items() if key[1] > 2} == rest.by_party()
    (after, _), (all_rows, _) = rows(again), rows(never)
    np.testing.assert_array_equal(after, all_rows[all_rows[:, 0] > 2])
    assert again.bytes_sent == never.bytes_sent and again.boundary_clock > cut.totals["boundary_clock"]


def fails(cluster: Any, what: str, timeout: float = 60.0, checkpoint_every: int | None = None, **programs: Any) -> None:
    """A star in which one client has another program ends with this message, soon after it has started."""
    engine = apart(
        cluster, {**toys.STAR, **programs}, Seen(), rounds=3, timeout=timeout, checkpoint_every=checkpoint_every
    )
    with pytest.raises(FederationError) as error:
        engine.run()
    assert re.fullmatch(what, str(error.value)), error.value
    assert time.time() - engine.began < timeout + 60.0  # polls and last words, on a busy machine


def test_what_arrives_in_the_wrong_shape_or_form_names_its_sender(ray_cluster: Any) -> None:
    fails(
        ray_cluster,
        r"the program of server failed in round 1: .*just read 'up' from client_0, float32 \(3,\); 'up' from client_1, "
        r"float32 \(2,\)",
        client_1=toys.misshapen,
    )
    fails(ray_cluster, "client_1 sent server something malformed: not a message: .*", client_1=toys.malformed)
    fails(ray_cluster, "server received message 1 of client_1, but 0 came before: one is lost", client_1=toys.lost)


def test_a_deadlock_and_an_early_end_are_named_as_in_the_simulation(ray_cluster: Any) -> None:
    for program, what in ((toys.deaf, "deadlock"), (toys.quits, "client_1's program ended in round 1")):
        with pytest.raises(FederationError, match=what) as simulated:
            together({**toys.STAR, "client_1": program}, Seen(), rounds=3).run()
        fails(ray_cluster, re.escape(str(simulated.value)), client_1=program)


def test_who_does_not_answer_ends_the_run_in_time(ray_cluster: Any) -> None:
    fails(ray_cluster, r"no answer from client_1 within 5 s \(engine.timeout\)", client_1=toys.stopped, timeout=5.0)


def test_what_does_not_arrive_ends_the_run_in_time(ray_cluster: Any) -> None:
    waits = r"1 of client_1 to server. server \(round 1\) waits for a message 'up' from client_1; .*"
    fails(
        ray_cluster,
        rf"messages have not arrived within 5 s \(engine.timeout\): {waits}",
        client_1=toys.in_flight,
        timeout=5.0,
    )
    fails(ray_cluster, "client_1 could not hand a message over to server: OSError: no route", client_1=toys.cut_off)
    fails(
        ray_cluster,
        "client_1 could not hand a message over to server: OSError: no route",
        client_1=toys.cut_off_at_the_end,
    )


def test_a_part_of_a_cut_that_cannot_be_had_is_named(ray_cluster: Any) -> None:
    fails(
        ray_cluster,
        "client_1 could not do what it was asked: FederationError: dict cannot cross .*",
        client_1=toys.hoarder,
        checkpoint_every=1,
    )


def test_the_clusters_files_are_its_owners_alone(ray_cluster: Any) -> None:
    folder = Path(ray_cluster.folder)
    assert folder.stat().st_mode & 0o777 == 0o700 and any(folder.glob("ray/session_*/logs/raylet.out"))


STRANGER = """
import sys
import ray
try:
    ray.init(address=sys.argv[1], log_to_driver=False, configure_logging=False)
except Exception as error:
    print("REFUSED", type(error).__name__, error)
else:
    print("TAKEN", ray.nodes())
"""


JOINING = """
import os
from vflbench.federation.ray.cluster import Cluster
try:
    Cluster("127.0.0.1:1").__enter__()
except Exception as error:
    print(os.environ.get("RAY_AUTH_MODE"), error)
"""


@pytest.mark.parametrize(
    ("token", "typed", "mode"),
    [(True, {}, "token"), (True, {"RAY_AUTH_MODE": "disabled"}, "disabled"), (False, {}, "None")],
)
def test_a_token_that_ray_start_wrote_is_shown(tmp_path: Path, token: bool, typed: dict[str, str], mode: str) -> None:
    if token:
        (tmp_path / ".ray").mkdir()
        (tmp_path / ".ray/auth_token").write_text("0" * 64)
    known = {key: value for key, value in os.environ.items() if not key.startswith("RAY_AUTH")}
    environment = {**known, "HOME": str(tmp_path), **typed}
    done = subprocess.run([sys.executable, "-c", JOINING], env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.startswith(f"{mode} no Ray cluster runs at 127.0.0.1:1 "), (done.stdout, done.stderr)


@pytest.mark.minutes
def test_nobody_joins_the_cluster_without_its_token(ray_cluster: Any) -> None:
    """The address alone, which another user of the machine can find, is not enough; with the token it is."""
    import ray

    address = ray.get_runtime_context().gcs_address
    known = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
    without = {key: value for key, value in known.items() if not key.startswith("RAY_AUTH")}
    guessed = {**known, "RAY_AUTH_TOKEN": "0" * 64}
    command = [sys.executable, "-c", STRANGER, address]
    told: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    strangers = [subprocess.Popen(command, env=environment, **told) for environment in (without, guessed, known)]
    for stranger, answer in zip(strangers, ("REFUSED", "REFUSED", "TAKEN"), strict=True):
        out, err = stranger.communicate(timeout=300)
        assert answer in out, (out, err)
