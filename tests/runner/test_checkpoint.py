"""Checkpoints as files: few of them however long the run, a whole one at every moment, and no damaged one goes
unnoticed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.every import few_fast
from vflbench.federation.ledger import LEDGER_FIELDS, TRACE_FIELDS
from vflbench.federation.snapshot import Cut
from vflbench.results import folder as files
from vflbench.results import parquet
from vflbench.runner import checkpoint
from vflbench.runner.checkpoint import Checkpoints, Part
from vflbench.types import VflbenchError


class Killed(BaseException):
    """As SIGKILL: nothing after it is carried out."""


def begun(folder: Path) -> Checkpoints:
    files.prepare(folder)
    checkpoints = Checkpoints(folder / "checkpoint", "same")
    checkpoints.begin()
    return checkpoints


def save(checkpoints: Checkpoints, round: int, count: int = 2) -> None:
    """A cut after `round`, whose rows hold its number."""
    traces = {
        "server": np.full((count, len(TRACE_FIELDS)), round, float),
        "client": np.full((1, len(TRACE_FIELDS)), -round, float),
    }
    checkpoints.save(Cut(round), {"round": round}, np.full((count, len(LEDGER_FIELDS)), round, float), traces)


def rounds(checkpoints: Checkpoints) -> list[int]:
    """Of the saved rows; those of the trace are the same."""
    ledger = np.concatenate([np.empty((0, len(LEDGER_FIELDS))), *checkpoints.rows("ledger")])
    trace = np.concatenate([np.empty((0, 1 + len(TRACE_FIELDS))), *checkpoints.rows("trace")])
    assert (ledger == ledger[:, :1]).all()
    assert (trace[trace[:, 0] == 0, 1:] == ledger[:, : len(TRACE_FIELDS)]).all()
    found: list[int] = ledger[:, 0].astype(int).tolist()
    assert (trace[trace[:, 0] == 1, 1] == [-round for round in found[::2]]).all()
    return found[::2]


def loaded(folder: Path) -> tuple[int, list[int]]:
    """(round, rounds of its rows) of the cut that a new process finds."""
    checkpoints = Checkpoints(folder / "checkpoint", "same")
    saved = checkpoints.load()
    round = saved[0].round if saved else 0
    assert saved is None or saved[1] == {"round": round}
    return round, rounds(checkpoints)


def names(folder: Path) -> set[str]:
    """Of the files in `checkpoint/`, but for those that a kill left half written."""
    return {path.name for path in (folder / "checkpoint").iterdir() if path.suffix != ".tmp"}


@pytest.mark.slow
def test_a_long_run_has_few_files_and_all_rows_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files.os, "fsync", lambda _: None)
    monkeypatch.setattr(checkpoint, "MERGED", 4)
    checkpoints, most, last = begun(tmp_path), 0, 140
    for round in range(1, last + 1):
        save(checkpoints, round)
        most = max(most, len(list((tmp_path / "checkpoint").iterdir())))
    assert most <= 2 * (4 * 4 + 1) + 4  # of either kind four of each of four levels; the two cuts
    assert loaded(tmp_path) == (last, list(range(1, last + 1)))
    assert max(part.level for part in checkpoints.index.ledger) == 3
    checkpoints.drop()
    assert not list((tmp_path / "checkpoint").iterdir())


def test_merging_keeps_every_value_and_a_part_of_the_rows_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow.parquet as pq

    monkeypatch.setattr(parquet, "ROW_GROUP", 100)
    sources = [tmp_path / f"{number}.parquet" for number in range(5)]
    values = np.random.default_rng(0).normal(size=(5, 130))
    for path, own in zip(sources, values, strict=True):
        parquet.write_parquet(path, {"seq": np.arange(130), "value": own})
    parquet.merge_parquet(tmp_path / "all.parquet", sources)
    merged = pq.ParquetFile(tmp_path / "all.parquet")
    assert merged.read()["value"].to_numpy().tolist() == values.ravel().tolist()
    assert merged.schema_arrow.metadata[b"vflbench_schema"] == b"1"
    groups = [merged.metadata.row_group(i).num_rows for i in range(merged.num_row_groups)]
    assert max(groups) < 200 and len(groups) < 10


@pytest.mark.slow
@pytest.mark.parametrize("apart", [7, 1])
def test_a_kill_at_any_moment_leaves_a_whole_cut(apart: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every seventh step, or every step, of four cuts, two of which merge: between any two changes of the disk."""
    monkeypatch.setattr(checkpoint, "MERGED", 2)
    monkeypatch.setattr(files.os, "fsync", lambda _: None)
    replace, remove = files.os.replace, checkpoint.inventory.remove
    steps, limit = 0, 10**9

    def step(change: Callable[..., None]) -> Callable[..., None]:
        def changed(*where: Any) -> None:
            nonlocal steps
            steps += 1
            if steps == limit:
                raise Killed
            change(*where)

        return changed

    monkeypatch.setattr(files.os, "replace", step(replace))
    monkeypatch.setattr(checkpoint.inventory, "remove", step(remove))
    first = 3
    checkpoints = begun(tmp_path / "before")
    for round in range(1, first + 1):
        save(checkpoints, round)
    shutil.copytree(tmp_path / "before", tmp_path / "start")
    before, after = steps, first + 4
    for round in range(first + 1, after + 1):
        save(checkpoints, round)
    total = steps - before
    assert total > 20
    whole = names(tmp_path / "before")
    for kill in range(1, total + 1, apart):
        place = tmp_path / str(kill)
        limit = 10**9
        shutil.copytree(tmp_path / "start", place)
        checkpoints = Checkpoints(place / "checkpoint", "same")
        checkpoints.load()
        limit = steps + kill
        with pytest.raises(Killed):
            for round in range(first + 1, after + 1):
                save(checkpoints, round)
        done = checkpoints.index.round
        limit = 10**9
        found, rows = loaded(place)
        assert found in (done, done + 1) and rows == list(range(1, found + 1)), kill
        again = Checkpoints(place / "checkpoint", "same")
        again.load()
        for round in range(found + 1, after + 1):
            save(again, round)
        assert rounds(again) == list(range(1, after + 1)), kill
        assert found == after or names(place) == whole, kill  # what the kill left is gone with the next cut
        again.drop()
        assert not names(place), kill
        shutil.rmtree(place)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "removed": lambda path: path.unlink(),
    "emptied": lambda path: path.write_bytes(b""),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-2]),
    "flipped": lambda path: path.write_bytes(flipped(path.read_bytes(), len(path.read_bytes()) // 2)),
    "zeroed": lambda path: path.write_bytes(path.read_bytes()[:40] + bytes(64) + path.read_bytes()[104:]),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\n"),
}


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize("damage", few_fast(DAMAGES, 2))
def test_what_is_damaged_is_named_and_the_cut_before_it_taken(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoints = begun(tmp_path / "whole")
    for round in (1, 2, 3):
        save(checkpoints, round)
    # which cut 2 and 3 count on
    both = {f"{kind}_0000000{round}_0.parquet" for kind in ("ledger", "trace") for round in (1, 2)}
    last = {"ledger_00000003_0.parquet", "trace_00000003_0.parquet", "round_00000003.pt", "round_00000003.json"}
    every = names(tmp_path / "whole")
    assert every == both | last | {"round_00000002.pt", "round_00000002.json"}
    for name in sorted(every):
        if damage == "longer" and name.endswith(".json"):  # an empty line more is no change of what a list says
            continue
        shutil.copytree(tmp_path / "whole", tmp_path / "copy")
        DAMAGES[damage](tmp_path / "copy" / "checkpoint" / name)
        caplog.clear()
        if name in both:
            with pytest.raises(
                VflbenchError, match=rf"{name} .*No checkpoint before it is whole: start anew in another folder"
            ):
                loaded(tmp_path / "copy")
        else:
            assert loaded(tmp_path / "copy") == ((2, [1, 2]) if name in last else (3, [1, 2, 3])), name
            unlisted = damage == "removed" and name.endswith(".json")  # as after a kill just before it was written
            told = f"{name} " in caplog.text and "Going on from the checkpoint before it, of round 2" in caplog.text
            assert told == (name in last and not unlisted), name
            aside = [*(tmp_path / "copy" / "checkpoint").glob(f"{name}.*.damaged")]
            assert len(aside) == (told and damage != "removed"), name
        shutil.rmtree(tmp_path / "copy")


def test_a_list_is_protected_itself_and_belongs_to_one_run(tmp_path: Path) -> None:
    checkpoints = begun(tmp_path)
    save(checkpoints, 1)
    path = tmp_path / "checkpoint" / "round_00000001.json"
    content = json.loads(path.read_text())
    content["ledger"] = []
    path.write_text(json.dumps(content))
    (tmp_path / "checkpoint" / "round_00000000.json").unlink()
    with pytest.raises(
        VflbenchError, match=r"round_00000001.json is damaged or was changed: its SHA-256 is not the one in it"
    ):
        loaded(tmp_path)
    path.unlink()
    save(begun(tmp_path), 1)
    with pytest.raises(VflbenchError, match=r"round_00000001.json is another run's"):
        Checkpoints(tmp_path / "checkpoint", "another").load()


def test_a_list_that_names_a_file_elsewhere_is_refused_and_nothing_removed(tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("mine")
    checkpoints = begun(tmp_path)
    content = json.loads((tmp_path / "checkpoint" / "round_00000000.json").read_text())
    del content["sha256"]
    content |= {"round": 7, "ledger": [vars(Part("../precious.txt", 4, "0"))]}
    files.write_json(
        tmp_path / "checkpoint" / "round_00000007.json", {**content, "sha256": checkpoint._digest(content)}
    )
    with pytest.raises(VflbenchError, match="names a file elsewhere"):
        checkpoints._read(tmp_path / "checkpoint" / "round_00000007.json")
    save(checkpoints, 1)
    checkpoints.drop()
    assert (tmp_path / "precious.txt").read_text() == "mine"


def test_files_in_the_folder_that_no_list_names_stay(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    checkpoints = begun(tmp_path)
    mine = ("ledger_mine.parquet", "trace_00000009_0.parquet", "round_mine.json", "notes.txt")
    for name in mine:
        (folder / name).write_text("mine")
    for round in (1, 2, 3):
        save(checkpoints, round)
    checkpoints.drop()
    assert {path.name: path.read_text() for path in folder.iterdir()} == dict.fromkeys(mine, "mine")


def test_the_cut_of_an_older_vflbench_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    torch.save({}, tmp_path / "checkpoint" / "round_00000002.pt")
    with pytest.raises(
        VflbenchError,
        match=r"round_00000002.pt has no list .* an older vflbench wrote it. Start anew in another folder",
    ):
        loaded(tmp_path)


def test_a_cut_that_is_whole_and_no_cut_is_a_named_refusal(tmp_path: Path) -> None:
    checkpoints = begun(tmp_path)
    path = tmp_path / "checkpoint" / "round_00000001.pt"
    path.write_bytes(b"no cut")
    checkpoints._write(checkpoint.Index(1, (Part.of_file(path),)))
    (tmp_path / "checkpoint" / "round_00000000.json").unlink()
    with pytest.raises(VflbenchError, match=r"round_00000001.pt is no checkpoint that this vflbench can read"):
        loaded(tmp_path)
