"""Whatever is done in a folder, in whatever order and wherever it is killed: the user's files stay, byte for byte."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.every import few_fast
from vflbench import cli
from vflbench.papers import jobs
from vflbench.plots import curves
from vflbench.results.folder import atomic_write

RUN = ["algorithm=vfl", "dataset=tabular_files", "dataset.id=id", "dataset.label=y", "rounds=3", "checkpoint_every=1"]
RUN += ["algorithm.batch_size=16", "model.width=4", "model.depth=2", "engine.threads=1", "plot=none"]
# Where a user's file may turn up; `{n}` is a number, so that some names are those of files yet to come.
PLACES = (
    *(
        "notes.txt",
        "curve.csv",
        "ledger.parquet",
        "summary.json",
        "manifest.json",
        "curve.png",
        "files.jsonl",
        ".hydra/config.yaml",
    ),
    *(
        "model/precious.bin",
        "model/active.safetensors",
        "checkpoint/round_0000000{n}.pt",
        "checkpoint/ledger_0000000{n}_0.parquet",
    ),
    *(
        "multirun.yaml",
        "{n}/notes.txt",
        "{n}/curve.csv",
        "report.html",
        "table.csv",
        "page.html",
        "index.html",
        "glasu/table3/figure.png",
    ),
    *("run_us_us/notes.txt", "run_us_us/curve.csv", ".run_us_us.tmp/trace.parquet", ".curve.csv.00000000.tmp"),
)
ACTIONS: dict[str, list[str]] = {
    "start": [*RUN, "hydra.run.dir=place"],
    "fail": [*RUN, "hydra.run.dir=place", "dataset.label=nope"],
    "overwrite": [*RUN, "hydra.run.dir=place", "overwrite=true", "seed=1"],
    "resume": [*RUN, "hydra.run.dir=place", "resume=true"],
    "sweep": ["-m", *RUN, "seed=0,1", "hydra.sweep.dir=place"],
    "sweep that overwrites": ["-m", *RUN, "seed=2,3", "hydra.sweep.dir=place", "overwrite=true"],
    "reprice": ["reprice", "run", "network=us_us", "--out", "place"],
    "reprice anew": ["reprice", "run", "network=us_us", "--out", "place", "overwrite=true"],
    "report": ["report", "run", "--out", "place/report.html", "--csv", "place/table.csv"],
    "figure": ["figures", "glasu/table3", "scale=smoke", "out=place"],
}
STEPS = st.one_of(
    st.tuples(st.sampled_from(sorted(ACTIONS)), st.none()),
    st.tuples(st.sampled_from(sorted(ACTIONS)), st.integers(1, 40)),  # killed before so many changes of the disk
    st.tuples(st.just("plant"), st.tuples(st.sampled_from(PLACES), st.integers(0, 4))),
    st.tuples(st.just("replace"), st.integers(0, 2**16)),
)


def killed(words: list[str], steps: int) -> None:
    """The command in a process that ends, as by SIGKILL, before its `steps`th renaming or removal of a file."""
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return
    count = 0

    def step(change: Callable[..., Any]) -> Callable[..., Any]:
        def changed(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            if count >= steps:
                os._exit(137)
            return change(*args, **kwargs)

        return changed

    try:
        for name in ("replace", "unlink", "rmdir", "rename"):
            setattr(os, name, step(getattr(os, name)))
        cli.command(words)
    finally:
        os._exit(1)


def plant(theirs: dict[Path, bytes], where: tuple[str, int]) -> None:
    path = Path("place", where[0].format(n=where[1]))
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(theirs.setdefault(path, f"mine: {path}".encode()))


def replace(theirs: dict[Path, bytes], seed: int) -> None:
    """A file that stands there is edited; of checkpoints a run keeps aside what is not as it wrote it."""
    found = sorted(
        path
        for path in Path("place").rglob("*")
        if path.is_file() and "checkpoint" not in path.parts and path.name != "files.jsonl"
    )
    if found:
        path = random.Random(seed).choice(found)
        path.write_bytes(theirs.setdefault(path, f"edited: {path}".encode()))


def check(steps: list[tuple[str, Any]]) -> None:
    theirs: dict[Path, bytes] = {}
    for action, how in steps:
        if action == "plant":
            plant(theirs, how)
        elif action == "replace":
            replace(theirs, how)
        elif how is None:
            cli.command(ACTIONS[action])
        else:
            killed(ACTIONS[action], how)
        assert {path: path.read_bytes() if path.is_file() else b"gone" for path in theirs} == theirs, (action, steps)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A folder with a table and a finished run; pictures are drawn by nobody, and figures find no runs."""
    patch = pytest.MonkeyPatch()
    folder = tmp_path_factory.mktemp("desk")
    patch.chdir(folder)
    patch.setattr(curves, "draw_run", lambda folder, *_: atomic_write(folder / "curve.png", "picture"))
    patch.setattr(curves, "draw_runs", lambda _, folder, *more: atomic_write(folder / "curve.png", "picture"))
    patch.setattr(jobs, "carry_out", lambda jobs, *_: [setattr(job, "failure", "not tried") for job in jobs])
    rng = random.Random(0)
    rows = [f"{n},{rng.random()},{rng.random()},{rng.random()},{n % 2}" for n in range(80)]
    Path("table.csv").write_text("\n".join(["id,a,b,c,y", *rows]) + "\n")
    for name, words in ACTIONS.items():
        if RUN[0] in words:
            ACTIONS[name] = [*words, f"dataset.files=[{folder / 'table.csv'}]"]
    assert cli.command([*ACTIONS["start"], "hydra.run.dir=run"]) == 0
    yield folder
    patch.undo()


def anywhere(desk: Path, steps: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory(dir=desk) as place:
        os.symlink(desk / "run", Path(place, "run"))
        os.chdir(place)
        try:
            check(steps)
        finally:
            os.chdir(desk)


slow_starts = settings(deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


@pytest.mark.slow
@given(st.lists(STEPS, min_size=2, max_size=6))
@settings(slow_starts, max_examples=3)
def test_the_users_files_stay(desk: Path, steps: list[tuple[str, Any]]) -> None:
    anywhere(desk, steps)


@pytest.mark.slow
@given(st.lists(STEPS, min_size=3, max_size=10))
@settings(slow_starts, max_examples=25)
def test_the_users_files_stay_in_longer_stories(desk: Path, steps: list[tuple[str, Any]]) -> None:
    anywhere(desk, steps)


@pytest.mark.parametrize("action", few_fast(sorted(ACTIONS)))
def test_every_action_does_something_where_it_may(desk: Path, action: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What is refused everywhere would lose nothing either."""
    with tempfile.TemporaryDirectory(dir=desk) as place:
        os.symlink(desk / "run", Path(place, "run"))
        os.chdir(place)
        Path("place").mkdir()
        code = cli.command(ACTIONS[action])
        os.chdir(desk)
        text = capsys.readouterr()
        wanted = {"fail": "has no such column", "figure": "not tried"}
        assert wanted[action] in text.err if action in wanted else code == 0, text
        assert (action == "fail") != any(Path(place, "place").rglob("*")) if action != "fail" else True
