"""A disk that really fills up: one line says which file could not be written, nothing is lost, and the run goes on when
there is room."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import absent
from vflbench import cli

pytestmark = pytest.mark.slow
SMALL = [
    "algorithm=stcd",
    "algorithm.parties=3",
    "dataset=ridge",
    "dataset.samples=40",
    "dataset.features=24",
    "topology=path",
]
RUN = [*SMALL, "rounds=12", "eval_every=2", "checkpoint_every=4"]
PAGE = 4096  # bytes; of a small file a whole one is taken


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)], capture_output=True, text=True
    )
    if mounted.returncode:
        absent(f"this user cannot mount a small disk: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def content(folder: Path) -> dict[str, bytes]:
    """The results below a folder: neither when and how they were made, nor checkpoints."""
    found = {path.relative_to(folder): path for path in sorted(folder.rglob("*")) if path.is_file()}
    own = {"manifest.json", "summary.json", "files.jsonl", ".hydra", "checkpoint"}
    return {str(name): path.read_bytes() for name, path in found.items() if not own & set(name.parts)}


def fills_up(disk: Path, room: int, whole: dict[str, bytes], capsys: pytest.CaptureFixture[str]) -> Path | None:
    """A run on the disk with `room` bytes left fails in one line, and goes on to `whole` when there is more; the file
    that it names.

    None where there is room enough.
    """
    run, filler, before = disk / "run", disk / "filler", content(disk / "before")
    free = shutil.disk_usage(disk).free
    filler.write_bytes(bytes(free - room))
    words = [*RUN, f"hydra.run.dir={run}"]
    code, error = cli.command(words), capsys.readouterr().err
    if code == 0:
        return None
    named = re.match(
        rf"error: cannot write (?:to the run folder )?{re.escape(str(run))}([^:]*): No space left on device", error
    )
    assert code == 1 and named and len(error.splitlines()) == 1, error
    assert not [path for path in disk.rglob("*") if path.suffix == ".tmp"]
    filler.unlink()
    assert cli.command([*words, "resume=true"]) == 0, capsys.readouterr().err
    assert content(run) == whole and content(disk / "before") == before
    shutil.rmtree(run)
    return Path(named[1].lstrip("/"))


def test_wherever_the_disk_fills_up_the_run_goes_on_when_there_is_room(
    disk: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # drawing takes longer than these runs
    monkeypatch.setattr("vflbench.plots.curves.draw_run", lambda folder, summary: None)
    whole, _ = made(disk)
    rooms = itertools.count(0, 2 * PAGE)
    named = list(iter(lambda: fills_up(disk, next(rooms), whole, capsys), None))
    assert {".hydra", "manifest.json", "checkpoint", "ledger.parquet"} <= {
        name.parts[0] for name in named if name.parts
    }


def test_a_disk_that_fills_up_with_pictures(disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole, need = made(disk)
    named = {str(fills_up(disk, need - room * PAGE, whole, capsys)) for room in (3, 20, 30)}
    assert named <= {f"{name}.{kind}" for name in ("curve", "bytes", "rounds") for kind in ("png", "svg")}


def made(disk: Path) -> tuple[dict[str, bytes], int]:
    """What an undisturbed run is, and the bytes that it takes of the disk; it stays there as `before`."""
    free = shutil.disk_usage(disk).free
    assert cli.command([*RUN, f"hydra.run.dir={disk / 'before'}"]) == 0
    return content(disk / "before"), free - shutil.disk_usage(disk).free
