"""Whose a file is: what vflbench wrote, unchanged, and nothing else."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

import pytest

from vflbench.results import inventory
from vflbench.results.folder import atomic, atomic_write, prepare
from vflbench.types import VflbenchError


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run's folder with two files, one of them below."""
    folder = tmp_path / "run"
    prepare(folder)
    (folder / "model").mkdir()
    atomic_write(folder / "summary.json", "{}")
    atomic_write(folder / "model" / "a.safetensors", b"weights")
    return folder


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_clearing_leaves_what_is_not_ours(run: Path) -> None:
    (run / "model" / "precious.bin").write_bytes(b"mine")
    (run / "summary.json.bak").touch()
    assert inventory.foreign(run) == ["model/precious.bin", "summary.json.bak"]
    inventory.clear(run)
    assert names(run) == {"model/precious.bin", "summary.json.bak", inventory.NAME}


def test_a_file_that_was_changed_is_the_users(run: Path) -> None:
    (run / "summary.json").write_text("[]")  # as many bytes
    assert inventory.foreign(run) == ["summary.json"]
    with pytest.raises(VflbenchError, match=r"summary.json is damaged or was changed"):
        inventory.check(run / "summary.json")
    inventory.remove(run / "summary.json")
    inventory.clear(run)
    assert names(run) == {"summary.json", inventory.NAME}


def test_every_version_that_was_written_is_ours(run: Path) -> None:
    """A kill between a line and the file that it tells of leaves the version before it."""
    atomic_write(run / "summary.json", '{"new": 1}')
    assert inventory.foreign(run) == []
    (run / "summary.json").write_text("{}")
    assert inventory.foreign(run) == []


def test_links_are_followed_by_nobody(run: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.safetensors").write_bytes(b"weights")
    inventory.clear(run)
    (run / "model").symlink_to(tmp_path / "elsewhere")
    assert inventory.foreign(run) == ["model"]
    inventory.clear(run)
    assert names(tmp_path / "elsewhere") == {"a.safetensors"} and (run / "model").is_symlink()


def test_a_file_of_the_lists_name_is_no_list(tmp_path: Path) -> None:
    (tmp_path / inventory.NAME).write_text('{"file": "a"}\n')
    assert not inventory.kept(tmp_path) and inventory.foreign(tmp_path) == [inventory.NAME]
    with pytest.raises(VflbenchError, match="File exists"):
        prepare(tmp_path)
    inventory.leave(tmp_path)
    assert (tmp_path / inventory.NAME).read_text() == '{"file": "a"}\n'


def test_a_list_that_a_kill_left_empty_is_begun_again(tmp_path: Path) -> None:
    (tmp_path / inventory.NAME).touch()
    (tmp_path / "mine.txt").touch()
    assert inventory.foreign(tmp_path) == ["mine.txt"]
    inventory.start(tmp_path)
    assert inventory.kept(tmp_path) and inventory.foreign(tmp_path) == ["mine.txt"]


def test_what_a_killed_write_left_is_removed_at_the_next_start(run: Path) -> None:
    inventory.writing(run, ".curve.csv.0f0f0f0f.tmp")
    (run / ".curve.csv.0f0f0f0f.tmp").write_text("half")
    (run / ".other.csv.0f0f0f0f.tmp").write_text("of another program")
    prepare(run)
    assert names(run) == {"summary.json", "model/a.safetensors", ".other.csv.0f0f0f0f.tmp", inventory.NAME}


def test_a_kill_before_a_whole_file_takes_its_place_leaves_nothing_of_it(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Listed as what it was about to become, and still under its temporary name."""
    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(os, "replace", lambda *_: sys.exit())
        patch.setattr(Path, "unlink", lambda *_, **__: None)
        atomic_write(run / "summary.json", "new")
    assert len(list(run.glob(".summary.json.*.tmp"))) == 1
    inventory._known.clear()  # as the next process finds it
    assert inventory.foreign(run) == []
    prepare(run)
    assert names(run) == {"summary.json", "model/a.safetensors", inventory.NAME} and inventory.owns(
        run, run / "summary.json"
    )


def test_a_line_that_was_cut_short_costs_that_file_alone(run: Path) -> None:
    path = run / inventory.NAME
    path.write_bytes(path.read_bytes()[:-10])
    assert inventory.foreign(run) == ["model/a.safetensors"]
    atomic_write(run / "curve.csv", "round\n")
    assert inventory.foreign(run) == ["model/a.safetensors"]


def test_a_list_that_another_process_goes_on_with_is_read_on(run: Path) -> None:
    assert inventory.foreign(run) == []
    pid = os.fork()
    if not pid:
        atomic_write(run / "curve.csv", "round\n")
        os._exit(0)
    os.waitpid(pid, 0)
    assert inventory.foreign(run) == []


@pytest.mark.parametrize(
    "line",
    [
        '{"writing": "%s"}',
        '{"file": "%s", "bytes": 4, "sha256": "%s"}',
        '{"from": "%s", "bytes": 4, "sha256": "%s", "file": "a"}',
    ],
)
@pytest.mark.parametrize("name", ["../precious.txt", "model/../../precious.txt", "{absolute}"])
def test_a_list_that_names_files_elsewhere_is_not_obeyed(run: Path, line: str, name: str) -> None:
    """It may come with a run of somebody else's."""
    precious = run.parent / "precious.txt"
    precious.write_text("mine")
    named = name.replace("{absolute}", str(precious))
    hostile = line % ((named, hashlib.sha256(b"mine").hexdigest()) if "sha256" in line else named)
    with (run / inventory.NAME).open("a") as file:
        file.write(hostile + "\n")
    inventory.clear(run)
    inventory.tidy(run)
    inventory.set_aside(run, ("..", "model", "/"))
    assert precious.read_text() == "mine" and names(run) == {inventory.NAME}


def test_what_a_file_manager_leaves_is_in_nobodys_way(run: Path) -> None:
    (run / ".DS_Store").touch()
    assert inventory.foreign(run) == []
    inventory.clear(run)
    assert (run / ".DS_Store").exists()


def test_runs_below_are_not_looked_into(run: Path) -> None:
    prepare(run / "0")
    atomic_write(run / "0" / "summary.json", "{}")
    assert inventory.foreign(run) == []
    inventory.clear(run)
    assert names(run) == {inventory.NAME, f"0/{inventory.NAME}", "0/summary.json"}


def test_leaving_removes_what_is_empty_alone(tmp_path: Path, run: Path) -> None:
    inventory.leave(run)
    assert (run / inventory.NAME).exists()
    prepare(tmp_path / "empty")
    inventory.leave(tmp_path / "empty")
    assert not list((tmp_path / "empty").iterdir())
    prepare(tmp_path / "kept")
    (tmp_path / "kept" / "notes.txt").touch()
    inventory.leave(tmp_path / "kept")
    assert names(tmp_path / "kept") == {"notes.txt"}


def test_a_folder_is_claimed_only_where_nothing_is_lost(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("mine")
    with pytest.raises(VflbenchError, match=r"holds page.html: not what vflbench wrote there. Say out=, or move"):
        inventory.claim(tmp_path, "Say out=")
    inventory.claim(tmp_path, "Say out=", ("index.html",))
    with pytest.raises(VflbenchError, match="move it away"), atomic(tmp_path / "page.html") as temporary:
        temporary.write_text("ours")
    assert (tmp_path / "page.html").read_text() == "mine" and len(names(tmp_path)) == 2


@pytest.mark.parametrize("start", [b"\x01", bytes(64)])
def test_a_list_whose_first_line_is_damaged_is_known_by_the_others(run: Path, start: bytes) -> None:
    whole = (run / inventory.NAME).read_bytes()
    (run / inventory.NAME).write_bytes(start + whole[len(start) :])
    inventory._known.clear()
    assert (
        inventory.kept(run)
        and inventory.own(run) == ["model/a.safetensors", "summary.json"]
        and inventory.foreign(run) == []
    )
