"""Damaged run folders, by every command that reads one: what comes out is right, or the damage is named; never a
traceback."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from vflbench import cli
from vflbench.federation.simulated import SimulatedEngine
from vflbench.results import inventory
from vflbench.runner.evaluate import Observer

RUN = [
    "algorithm=svfl",
    "dataset=digits",
    "rounds=4",
    "eval_every=1",
    "checkpoint_every=1",
    "engine.threads=1",
    "plot=none",
]
FIGURE = ["figures", "glasu/table3", "scale=smoke", "dataset=digits_graph", "model.hidden=4", "out=figures"]
COMMANDS = {
    "show": ["show", "run"],
    "report": ["report", "run", "--out", "page.html", "--csv", "page.csv"],
    "reprice": ["reprice", "run", "network=us_us", "--out", "priced"],
    "figures": FIGURE,
    "resume": [*RUN, "hydra.run.dir=run", "resume=true"],
}
READ = ("summary.json", "manifest.json", "curve.csv", "ledger.parquet", "trace.parquet", ".hydra/overrides.yaml")
ALSO_NAMED = {
    "summary.json": ("has not ended",),
    "manifest.json": ("another configuration",),
    inventory.NAME: ("not what vflbench wrote there", "which kept no list of its files"),
}
FLIPS = 2  # of each file, at different places


class Killed(BaseException):
    """As SIGKILL: nobody catches it."""


# --- the runs, and how they are harmed --------------------------------------------------------------------------------


def train(folder: str, seed: int, last: int | None) -> None:
    """A run in `folder`, killed while round `last` is looked at; None: to its end."""
    on_round = Observer.on_round

    def breaks(self: Observer, round: int, engine: SimulatedEngine) -> bool:
        if round == last:
            raise Killed
        return on_round(self, round, engine)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Observer, "on_round", breaks)
        words = [*RUN, f"seed={seed}", f"hydra.run.dir={folder}"]
        if last is None:
            assert cli.command(words) == 0
        else:
            with pytest.raises(Killed):
                cli.command(words)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with runs: `ended` and `killed`, those of another seed, and those of a figure. Nothing is drawn."""
    place, before = tmp_path_factory.mktemp("runs"), Path.cwd()
    os.chdir(place)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vflbench.plots.curves.draw_run", lambda *_: None)
        patch.setattr("vflbench.papers.figures.draw", lambda *_: None)
        for kind, last in (("ended", None), ("killed", 4)):
            train(kind, 0, last)
            train(f"{kind}_other", 1, last)
        assert cli.command(FIGURE) == 0
        assert cli.command([*FIGURE, "seed=7", "out=figures_other"]) == 0
        yield place
    os.chdir(before)


def damages(data: bytes, other: bytes | None, chance: random.Random) -> Iterator[tuple[str, bytes | None]]:
    """What may become of a file's contents `data`; None: it is gone. `other` is the same file of another run."""
    yield "removed", None
    yield from (
        (f"cut to {size}", data[:size])
        for size in {0, len(data) // 3, len(data) // 2, len(data) - 8}
        if 0 <= size < len(data)
    )
    for place in sorted(chance.sample(range(8 * len(data)), FLIPS)):
        yield (
            f"bit {place} flipped",
            data[: place // 8] + bytes([data[place // 8] ^ 1 << place % 8]) + data[place // 8 + 1 :],
        )
    for place in (0, chance.randrange(len(data))):
        yield f"zeros from {place}", data[:place] + bytes(len(data[place : place + 64])) + data[place + 64 :]
    if other is not None and other != data:
        yield "another run's", other


def cases(runs: Path, command: str) -> list[tuple[str, str, str, bytes | None]]:
    """(kind of run, file, what was done to it, its new contents) of every folder that `command` is tried on."""
    chance, found = random.Random(command), []
    for kind in ("figures",) if command == "figures" else ("ended", "killed"):
        (own, other) = (
            next((runs / name / "runs").iterdir()) if command == "figures" else runs / name
            for name in (kind, f"{kind}_other")
        )
        for path in sorted(path for path in own.rglob("*") if path.is_file()):
            name = path.relative_to(own).as_posix()
            twin = other / name
            harmed = list(damages(path.read_bytes(), twin.read_bytes() if twin.exists() else None, chance))
            # others are not looked into: one of each is enough
            if not (name in READ if kind != "killed" else command == "resume"):
                harmed = chance.sample(harmed, 1)
            elif command == "resume":  # it trains in every case; the other commands have all damages of these files
                harmed = random.Random(name).sample(harmed, min(2, len(harmed)))
            found += [(kind, name, what, data) for what, data in harmed]
    return found


# --- what comes out ---------------------------------------------------------------------------------------------------


def content(path: Path) -> Any:
    """What of a file is the same whenever it is made."""
    if path.name == "manifest.json":
        keys = ("command", "started", "ended", "repriced_from")
        manifest = {key: value for key, value in json.loads(path.read_text()).items() if key not in keys}
        return manifest | {"config": manifest["config"] | {"resume": None}}
    if path.name == "table.csv":
        return pd.read_csv(path).drop(columns=["wall_seconds"], errors="ignore").to_dict()
    if path.name == "summary.json":
        return {key: value for key, value in json.loads(path.read_text()).items() if key != "wall_seconds"}
    return path.read_bytes()


def result(command: str, out: str) -> dict[str, Any]:
    """What a command has made in the working folder, and what it has said."""
    places = {
        "show": [],
        "report": ["page.html", "page.csv"],
        "reprice": ["priced"],
        "figures": ["figures/glasu"],
        "resume": ["run"],
    }
    paths = [file for place in places[command] for file in (Path(place), *Path(place).rglob("*")) if file.is_file()]
    kinds = (".csv", ".html", ".json", ".parquet", ".safetensors")
    told = ("result.json", "page.html") if command == "figures" else ()  # they have times in them
    made = {
        str(path): content(path)
        for path in paths
        if path.suffix in kinds and path.name not in told and "checkpoint" not in path.parts
    }
    return made | {"said": "" if command in ("resume", "figures") else out}


def untouched(folder: Path) -> dict[str, bytes]:
    """Its files, but for the list, which notes who was there."""
    return {
        str(path): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != inventory.NAME
    }


def faults(runs: Path, place: Path, command: str, chosen: list[Any], capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What went wrong in the `chosen` cases of `command`, a line each."""
    found = []
    os.chdir(place)
    whole: dict[str, tuple[int, dict[str, Any]]] = {}

    def laid(kind: str) -> Path:
        for path in place.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(runs / kind, place / (kind if kind == "figures" else "run"))
        return next((place / kind / "runs").iterdir()) if kind == "figures" else place / "run"

    for kind, name, what, data in [*((kind, "", "", b"") for kind in sorted({case[0] for case in chosen})), *chosen]:
        harmed = laid(kind)
        if data is None:
            (harmed / name).unlink()
        elif name:
            (harmed / name).write_bytes(data)
        before = untouched(harmed)
        inventory._known.clear()  # every command is a process of its own
        capsys.readouterr()
        try:
            code = cli.command(COMMANDS[command])
        except Exception as bug:
            found.append(f"{kind}/{name} {what}: {type(bug).__name__}: {bug}")
            continue
        out, err = capsys.readouterr()
        try:
            made = result(command, out)
        except ValueError:  # a damaged file that nobody has touched
            made = {}
        if not name:
            whole[kind] = code, made
            continue
        right = made == whole[kind][1] and code in (0, whole[kind][0])
        named = any(words in err for words in (Path(name).name, *ALSO_NAMED.get(name, ())))
        refused = named and (code == 1 or command in ("show", "report"))  # these show what is left
        kept = command == "resume" and "has ended" in out + err and untouched(harmed) == before
        if "Traceback" in err or not (right or refused or kept):
            differing = [key for key in made.keys() | whole[kind][1].keys() if made.get(key) != whole[kind][1].get(key)]
            found.append(f"{kind}/{name} {what}: exit code {code}, {err.strip()[:300]!r}; differs in {differing}")
    os.chdir(runs)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_every_damaged_folder(command: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = cases(runs, command)
    assert len(chosen) > 50
    found = faults(runs, tmp_path, command, chosen, capsys)
    assert not found, "\n".join(found)


# --- checkpoints, through whole runs ----------------------------------------------------------------------------------


def same(one: Path, other: Path) -> bool:
    """Whether two run folders hold the same result, to the last bit."""
    names = [
        path.relative_to(one) for path in sorted(one.rglob("*")) if path.suffix in (".csv", ".parquet", ".safetensors")
    ]
    assert len(names) > 4 and "checkpoint" not in {name.parts[0] for name in names}
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in names)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "round_00000003.json",
        *(name for name in ("round_00000003.pt", "ledger_00000003_0.parquet", "trace_00000003_0.parquet")),
    ],
)
def test_from_the_checkpoint_before_a_damaged_one_the_result_is_the_same(
    runs: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(runs / "killed", tmp_path / "run")
    path = tmp_path / "run" / "checkpoint" / name
    data = path.read_bytes()
    path.write_bytes(data[:100] + bytes([data[100] ^ 4]) + data[101:])
    assert cli.command([*RUN, f"hydra.run.dir={tmp_path / 'run'}", "resume=true"]) == 0
    assert re.search(
        rf"{name} is (damaged|truncated).*Going on from the checkpoint before it, of round 2", capsys.readouterr().err
    )
    assert same(runs / "ended", tmp_path / "run")
    (aside,) = (tmp_path / "run" / "checkpoint").iterdir()
    assert aside.name.startswith(name) and aside.suffix == ".damaged"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ledger", "trace"])
def test_a_part_that_is_damaged_while_the_run_goes_on_fails_it_by_name(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    on_round, part = Observer.on_round, tmp_path / "run" / "checkpoint" / f"{kind}_00000002_0.parquet"

    def harms(self: Observer, round: int, engine: SimulatedEngine) -> bool:
        if round == 4:
            part.write_bytes(part.read_bytes()[:-1] + b"2")
        return on_round(self, round, engine)

    monkeypatch.setattr(Observer, "on_round", harms)
    assert cli.command([*RUN, f"hydra.run.dir={tmp_path / 'run'}"]) == 1
    assert f"{part} is damaged or was changed" in capsys.readouterr().err
    assert not (tmp_path / "run" / "summary.json").exists()


@pytest.mark.slow
def test_a_run_with_an_attack_goes_on_with_a_whole_transcript_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*RUN[1:], "algorithm=vfl", "attack=label_inference"]
    monkeypatch.setattr("vflbench.plots.curves.draw_run", lambda *_: None)
    on_round = Observer.on_round

    def breaks(self: Observer, round: int, engine: SimulatedEngine) -> bool:
        if round == 4:
            raise Killed
        return on_round(self, round, engine)

    assert cli.command([*words, f"hydra.run.dir={tmp_path / 'whole'}"]) == 0
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Observer, "on_round", breaks)
        cli.command([*words, f"hydra.run.dir={tmp_path / 'run'}"])
    transcript = tmp_path / "run" / "transcript"
    (transcript / "round_00000003.npz").write_bytes(b"another's")
    assert cli.command([*words, f"hydra.run.dir={tmp_path / 'run'}", "resume=true"]) == 0
    told = capsys.readouterr().err
    assert "round_00000003.npz is truncated" in told and "Going on from the checkpoint before it, of round 2" in told
    assert same(tmp_path / "whole", tmp_path / "run")
    summaries = [json.loads((tmp_path / name / "summary.json").read_text()) for name in ("whole", "run")]
    whole, again = ({**one["attack"], "seconds": None} for one in summaries)
    assert whole == again
