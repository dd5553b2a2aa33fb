"""Prepared data: made once, read-only, made again where they are damaged, in memory where they cannot be kept."""

from __future__ import annotations

import dataclasses
import logging
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from vflbench.cards.data.tabular import synthetic as synthetic_card
from vflbench.data import prepared, sources
from vflbench.data.tabular import synthetic
from vflbench.types import DataError

REPOSITORY = Path(__file__).resolve().parents[2]
DRAWN = {"first": np.arange(12.0).reshape(3, 4), "second": np.array([3, 1, 2], np.int64)}


class Maker:
    """Makes DRAWN, and counts how often."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> dict[str, np.ndarray]:
        self.calls += 1
        return {name: array.copy() for name, array in DRAWN.items()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "some"


def check(held: dict[str, np.ndarray]) -> None:
    assert held.keys() == DRAWN.keys()
    for name, array in DRAWN.items():
        np.testing.assert_array_equal(held[name], array, strict=True)


def test_they_are_made_once_and_nobody_can_change_or_read_them(folder: Path) -> None:
    maker = Maker()
    for _ in range(2):
        held = prepared.arrays(folder, maker)
        check(held)
        with pytest.raises(ValueError, match="read-only"):
            held["first"][0, 0] = 7
    assert maker.calls == 1
    assert [path.name for path in folder.parent.iterdir()] == ["some"], "nothing else is left"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.glob("*.npy")} == {0o600}


def flip(path: Path) -> None:
    """Change the last byte, and let size and time of change be as before."""
    about, content = path.stat(), bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))


DAMAGES = {
    "another byte": lambda folder: flip(folder / "first.npy"),
    "cut short": lambda folder: os.truncate(folder / "second.npy", 100),
    "empty": lambda folder: os.truncate(folder / "first.npy", 0),
    "missing": lambda folder: (folder / "second.npy").unlink(),
    "a list that is no list": lambda folder: (folder / prepared.LIST).write_text("[1]"),
    "no list": lambda folder: (folder / prepared.LIST).unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_damaged_is_made_again(damage: str, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    maker = Maker()
    prepared.arrays(folder, maker)
    DAMAGES[damage](folder)
    check(prepared.arrays(folder, maker))
    assert maker.calls == 2 and "is damaged: it is made again" in caplog.text
    check(prepared.arrays(folder, maker))
    assert maker.calls == 2 and len(list(folder.parent.iterdir())) == 1


def test_a_large_file_is_known_by_its_size_and_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "HASHED", 10)
    maker = Maker()
    prepared.arrays(folder, maker)
    prepared.arrays(folder, maker)
    assert maker.calls == 1
    os.utime(folder / "first.npy", ns=(0, 0))
    prepared.arrays(folder, maker)
    assert maker.calls == 2


def test_without_room_they_are_made_in_memory_with_a_word(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(prepared.shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    maker = Maker()
    for calls in (1, 2):
        check(prepared.arrays(folder, maker))
        assert maker.calls == calls, "once for each job"
    assert "cannot be kept (0.0 GB are needed and 0.0 GB are free)" in caplog.text
    assert not list(folder.parent.iterdir())
    with pytest.raises(DataError, match="XDG_CACHE_HOME"):
        prepared.memory_map(folder, (2, 2), lambda out: None)


def test_a_cache_that_cannot_be_written_is_no_reason_to_fail(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "cache").touch()  # a file, where a folder is to be
    maker = Maker()
    check(prepared.arrays(tmp_path / "cache" / "some", maker))
    assert maker.calls == 1 and "cannot be kept" in caplog.text


def test_an_error_while_they_are_made_leaves_nothing(folder: Path) -> None:
    def fails() -> dict[str, np.ndarray]:
        raise DataError("line 7")

    with pytest.raises(DataError, match="line 7"):
        prepared.arrays(folder, fails)
    assert not list(folder.parent.iterdir())


SLOWLY = """
import sys, time
from pathlib import Path
import numpy as np
from vflbench.data import prepared
def make():
    print("made", flush=True)
    time.sleep(float(sys.argv[2]))
    return {"first": np.arange(3)}
print(prepared.arrays(Path(sys.argv[1]), make)["first"].tolist())
"""


def process(folder: Path, seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SLOWLY, str(folder), str(seconds)]
    return subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_of_two_processes_one_makes_them_and_the_other_waits(folder: Path) -> None:
    both = [process(folder, 1) for _ in range(2)]
    said = sorted(one.communicate(timeout=100)[0] for one in both)
    assert said == ["[0, 1, 2]\n", "made\n[0, 1, 2]\n"]
    assert [path.name for path in folder.parent.iterdir()] == ["some"]


def test_what_a_killed_process_leaves_is_removed(folder: Path) -> None:
    first = process(folder, 100)
    assert first.stdout is not None and first.stdout.readline() == "made\n"
    first.kill()
    first.communicate()
    assert len(list(folder.parent.iterdir())) == 2, "its lock, and half a folder"
    check(prepared.arrays(folder, Maker()))
    assert [path.name for path in folder.parent.iterdir()] == ["some"]


def test_a_name_depends_on_all_that_the_data_are_made_of(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [prepared.key(1, "a"), prepared.key(1, "b"), prepared.key(2, "a"), prepared.key(1, "a")]
    assert len(set(names)) == 3 and names[0] == names[3]
    monkeypatch.setattr(prepared, "_makers", lambda: ("other code",))
    assert prepared.key(1, "a") != names[0]


def test_a_table_is_drawn_once_for_all_seeds_and_again_for_other_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    caplog.set_level(logging.WARNING)
    drawn, draw = [], synthetic._drawn
    monkeypatch.setattr(synthetic, "_drawn", lambda config, samples: (drawn.append(config), draw(config, samples))[1])
    config = synthetic_card.Config(samples=60, features=30, informative=5, redundant=5)
    first, again = (synthetic.load(config, "aligned", 2, 0, None) for _ in range(2))
    synthetic.load(config, "sharded", 3, 1, None)
    assert len(drawn) == 1
    for one, other in zip((*first.features, first.labels), (*again.features, again.labels), strict=True):
        np.testing.assert_array_equal(one, other, strict=True)
        one[0] = 7  # the task's own copy
    for key, value in (("samples", 61), ("features", 31), ("informative", 6), ("redundant", 6)):
        before = len(drawn)
        synthetic.load(dataclasses.replace(config, **{key: value}), "aligned", 2, 0, None)
        assert len(drawn) == before + 1, key
    table, _ = synthetic._make(config, None)
    np.testing.assert_array_equal(table.values, draw(config, 60).values, strict=True)
    assert not caplog.text
