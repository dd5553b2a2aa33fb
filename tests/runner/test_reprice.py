"""`vflbench reprice`: where results go, what is refused and in which words. That they equal fresh runs:
tests/contracts/test_reprice.py."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import vflbench
from tests.every import few_fast
from vflbench import cli
from vflbench.results import inventory
from vflbench.results.folder import atomic_write
from vflbench.results.reader import Run, load

SMALL = [
    "algorithm=glasu",
    "dataset=digits_graph",
    "model.hidden=8",
    "rounds=6",
    "eval_every=1",
    "checkpoint_every=null",
    "engine.threads=1",
]
SHARED = ["network=us_us", "network.server_bandwidth_gbps=0.01"]


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vflbench.plots.curves.draw_run", lambda folder, *_: atomic_write(folder / "curve.png", ""))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Run]:
    """Runs, each made once, that tests copy."""

    @functools.cache
    def make(*more: str) -> Run:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("vflbench.plots.curves.draw_run", lambda folder, *_: atomic_write(folder / "curve.png", ""))
            return vflbench.run([*SMALL, *more, f"hydra.run.dir={tmp_path_factory.mktemp('trained') / 'run'}"])

    return make


@pytest.fixture
def a(trained: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a finished run at ./a."""
    monkeypatch.chdir(tmp_path)
    return copied(trained(), "a")


def copied(run: Run, name: str) -> Path:
    """As an older vflbench would have left it, without a list: what tests break is found by what it breaks."""
    shutil.copytree(run.folder, name, ignore=shutil.ignore_patterns(inventory.NAME))
    return Path(name)


def same_but_wall(made: Path, fresh: Run) -> None:
    assert (made / "curve.csv").read_text() == (fresh.folder / "curve.csv").read_text()
    assert {**load(made).summary, "wall_seconds": 0} == {**fresh.summary, "wall_seconds": 0}
    assert load(made).manifest["config_hash"] == fresh.manifest["config_hash"]


def edit(path: Path, *without: str, **changes: Any) -> None:
    """Change and remove entries of a JSON file."""
    values = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in values.items() if key not in without}))


def test_one_profile(a: Path, trained: Callable[..., Run], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.command(["reprice", "a", "network=us_us"]) == 0
    made, fresh = Path("outputs/reprice/a_us_us"), trained("network=us_us")
    out = capsys.readouterr().out
    assert f"{fresh.summary['communication_seconds']:.4g} s communication" in out and f"run folder: {made}" in out
    same_but_wall(made, fresh)
    assert {path.name for path in made.iterdir()} == {
        *("curve.csv", "curve.png", "ledger.parquet", "trace.parquet", "manifest.json", "summary.json", inventory.NAME)
    }
    manifest = load(made).manifest
    assert manifest["choices"]["network"] == "us_us" and manifest["command"] == "vflbench reprice a network=us_us"
    assert manifest["repriced_from"]["run"] == "a" and manifest["repriced_from"]["network"] == "us_uk"
    assert manifest["repriced_from"]["config_hash"] == load(a).manifest["config_hash"]
    again = made / "summary.json"
    before = again.stat().st_mtime_ns
    assert cli.command(["reprice", "a", "network=us_us"]) == 0 and "kept" in capsys.readouterr().out
    assert again.stat().st_mtime_ns == before
    assert cli.command(["reprice", str(made), "network=us_uk", "--out", "back"]) == 0, (
        "what was re-priced can be re-priced"
    )
    same_but_wall(Path("back/a_us_us_us_uk"), trained())


@pytest.mark.slow
def test_several_profiles_and_the_runs_own_network(
    a: Path, trained: Callable[..., Run], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.command(["reprice", "a", "network=us_us,lan", "network.timing=round,causal", "--out", "x"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert table[0].split()[:2] == ["run", "priced"] and len(table) == 5
    assert {path.name for path in Path("x").iterdir()} == {
        f"a_{n}_timing-{t}" for n in ("us_us", "lan") for t in ("round", "causal")
    }
    assert cli.command(["reprice", "x/a_us_us_timing-causal", "network.ratio=3", "--out", "y"]) == 0
    made = load(next(Path("y").iterdir()))
    assert made.manifest["config"]["network"] == {**trained("network=us_us").manifest["config"]["network"], "ratio": 3}
    assert made.summary["cost"] == 3 * trained().summary["cost"]


def test_a_damaged_run_is_named_once(a: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = (a / "curve.csv").read_text().splitlines(keepends=True)
    (a / "curve.csv").write_text("".join(lines[:-1]))
    assert cli.command(["reprice", "a", "network=us_us,lan"]) == 1
    assert (err := capsys.readouterr().err).count("not re-priced") == 1 and "curve.csv is truncated" in err
    (a / "curve.csv").write_text("".join(lines))
    (a / "ledger.parquet").write_bytes((a / "ledger.parquet").read_bytes()[:-100])
    assert cli.command(["reprice", "a", "network=us_us,lan"]) == 1
    assert capsys.readouterr().err.count("ledger.parquet is truncated") == 1


def test_a_run_that_failed_says_why(a: Path, capsys: pytest.CaptureFixture[str]) -> None:
    summary = json.loads((a / "summary.json").read_text())
    (a / "summary.json").write_text(json.dumps(summary | {"status": "failed", "reason": "out of memory"}))
    (a / "manifest.json").unlink()
    assert cli.command(["reprice", "a", "network=us_us"]) == 1
    assert "the run is failed (out of memory)" in capsys.readouterr().err


def test_a_sweeps_jobs(a: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for job in (0, 1):
        shutil.copytree(a, f"s/{job}")
    (Path("s/1") / "summary.json").unlink()
    assert cli.command(["reprice", "s", "network=us_us"]) == 1, "one of the two was not"
    err = capsys.readouterr().err
    assert f"not re-priced: {Path('s/1')}: the run has not ended" in err
    assert Path("outputs/reprice/s/0_us_us/summary.json").exists() and not Path("outputs/reprice/s/1_us_us").exists()
    assert cli.command(["reprice", "s/0", "network=us_us"]) == 0 and "kept" in capsys.readouterr().out


def test_two_runs_for_one_folder_are_refused_before_any_work(a: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(a, "b/a")
    assert cli.command(["reprice", "a", "b/a", "network=us_us"]) == 1
    assert "would both be re-priced to" in capsys.readouterr().err and not Path("outputs").exists()


def test_all_mistakes_are_told_before_any_work(a: Path, capsys: pytest.CaptureFixture[str]) -> None:
    typed = [
        "network=us_ukk",
        "network.timing=causl",
        "network.ration=2",
        "seed=1",
        "accounting=strct",
        "network.ratio=0",
    ]
    assert cli.command(["reprice", "a", *typed]) == 1
    err = capsys.readouterr().err
    assert "Did you mean 'us_uk'" in err and "re-pricing changes network" in err
    assert cli.command(["reprice", "a", *typed[1:]]) == 1
    err = capsys.readouterr().err
    assert err.startswith("5 problems") and "Did you mean 'causal'" in err and "Did you mean 'network.ratio'" in err
    assert "must be greater than 0" in err and "Did you mean 'strict'" in err
    for words, said in (
        (["reprice", "a"], "network=us_us"),
        (["reprice", "network=us_us"], "name a run"),
        (["reprice", "nowhere", "network=us_us"], "nowhere: there is no such folder"),
        (["reprice", "a", "network=us_us", "overwrite=maybe"], "overwrite is true or false"),
    ):
        assert cli.command(words) == 1 and said in capsys.readouterr().err
    Path("empty").mkdir()
    assert (
        cli.command(["reprice", "empty", "network=us_us"]) == 1
        and "there are no runs at or below it" in capsys.readouterr().err
    )
    assert not Path("outputs").exists()


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "unfinished": (lambda run: (run / "summary.json").unlink(), "the run has not ended"),
    "failed": (lambda run: edit(run / "summary.json", status="failed", reason="a disk"), "the run is failed"),
    "no ledger": (lambda run: (run / "ledger.parquet").unlink(), "ledger.parquet is missing"),
    "no trace": (lambda run: (run / "trace.parquet").unlink(), "trace.parquet is missing"),
    "half a ledger": (lambda run: truncate(run / "ledger.parquet"), "ledger.parquet is truncated"),
    "half a curve": (lambda run: truncate(run / "curve.csv"), "the file is truncated"),
    "half a manifest": (lambda run: truncate(run / "manifest.json"), "manifest.json is truncated"),
    "another schema": (lambda run: edit(run / "summary.json", schema=2), "has schema version 2"),
    "another's trace": (
        lambda run: edit(run / "summary.json", rounds=5),
        "its trace ends with round 6, its summary with round 5",
    ),
    "no configuration": (
        lambda run: edit(run / "manifest.json", config={}),
        "manifest.json is malformed: config.algorithm: missing",
    ),
    "wrong parties": (
        lambda run: edit(run / "manifest.json", parties={"server": {"role": "server"}}),
        "none of server",
    ),
    "malformed parties": (
        lambda run: edit(run / "manifest.json", parties={"server": {"rank": 1}}),
        "malformed: parties",
    ),
}


@pytest.mark.parametrize("what", few_fast(BROKEN, 3))
def test_broken_runs_are_refused_by_name(a: Path, capsys: pytest.CaptureFixture[str], what: str) -> None:
    harm, said = BROKEN[what]
    harm(a)
    assert cli.command(["reprice", "a", "network=us_us"]) == 1
    assert said in capsys.readouterr().err and not list(Path().glob("outputs/reprice/*"))


@pytest.mark.parametrize("algorithm", few_fast(["leasgd_async", "fedbuff", "pubsub_vfl", "avfl", "avfl_ps"]))
def test_what_depends_on_time_is_refused(a: Path, capsys: pytest.CaptureFixture[str], algorithm: str) -> None:
    config = load(a).manifest["config"]
    edit(a / "manifest.json", config={**config, "algorithm": {**config["algorithm"], "name": algorithm}})
    assert cli.command(["reprice", "a", "network=us_us"]) == 1
    assert f"{algorithm} depends on time: which message comes first" in capsys.readouterr().err


def test_a_shared_machine_is_refused(a: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Who waits for a core depends on when messages come."""
    config = json.loads((a / "manifest.json").read_text())["config"]
    edit(a / "manifest.json", config={**config, "compute": {**config["compute"], "sharing": "machine"}})
    edit(a / "summary.json", compute_clock="modelled")
    assert cli.command(["reprice", "a", "network=us_us"]) == 1
    assert "its parties share one machine's cores" in capsys.readouterr().err


@pytest.mark.slow
def test_what_does_not_go_with_the_run(a: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = Path("mine/network")
    options.mkdir(parents=True)
    text = (
        "name: us_uk\nclient_server: {latency_ms: 136.0, bandwidth_gbps: 0.42}\nlinks: {'%s': {latency_ms: 300.0, "
        "bandwidth_gbps: 0.42}}\n"
    )
    for name, pair in (("slow", "client_0->server"), ("typo", "client_0->srver"), ("gap", "client_0->client_1")):
        (options / f"{name}.yaml").write_text(text % pair)
    mine = ["--config-dir", "mine"]
    assert cli.command(["reprice", "a", "network=slow,typo,gap", *mine]) == 1
    err = capsys.readouterr().err
    assert (
        "Did you mean 'client_0->server'" in err
        and "the topology has no edge between the two" in err
        and err.count("not re-priced") == 2
    )
    fresh = vflbench.run([*SMALL, "network=slow", "hydra.run.dir=fresh"], config_dir="mine")
    same_but_wall(Path("outputs/reprice/a_slow"), fresh)
    assert cli.command(["reprice", "a", "accounting=tablepuppet"]) == 1
    assert "accounting=tablepuppet: glasu can have: strict" in capsys.readouterr().err


def test_a_place_that_is_taken(a: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = Path("outputs/reprice/a_us_us")
    assert cli.command(["reprice", "a", "network=us_us"]) == 0
    edit(a / "summary.json", wall_seconds=1e6)  # trained again
    assert cli.command(["reprice", "a", "network=us_us"]) == 1
    assert "holds another run" in capsys.readouterr().err
    assert cli.command(["reprice", "a", "network=us_us", "overwrite=true"]) == 0
    assert load(place).summary["wall_seconds"] == 1e6
    (place / "notes.txt").touch()
    assert cli.command(["reprice", "a", "network=us_us", "overwrite=true"]) == 1
    assert "holds notes.txt" in capsys.readouterr().err and (place / "summary.json").exists()


@pytest.mark.parametrize("what", few_fast([".DS_Store", "mine/", "model/.DS_Store", "below"]))
def test_what_stands_in_a_place_that_is_replaced_stays(a: Path, what: str) -> None:
    """A file of the file manager's, an empty folder, a run of the user's."""
    place = Path("outputs/reprice/a_us_us")
    assert cli.command(["reprice", "a", "network=us_us"]) == 0
    if what == "below":
        (place / "below").mkdir()
        inventory.start(place / "below")
        (place / "below/mine.csv").write_text("mine")
    elif what.endswith("/"):
        (place / what).mkdir()
    else:
        (place / what).parent.mkdir(exist_ok=True)
        (place / what).touch()
    below = contents(place / "below") if what == "below" else {}
    edit(a / "summary.json", wall_seconds=1e6)
    assert cli.command(["reprice", "a", "network=us_us", "overwrite=true"]) == 0
    assert load(place).summary["wall_seconds"] == 1e6
    assert any((folder / what).exists() for folder in (place, place.with_name(".a_us_us.old"))) and below == (
        contents(place / "below") if below else {}
    )


@pytest.mark.slow
def test_a_swap_that_fails_leaves_what_was_there(a: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = Path("outputs/reprice/a_us_us")
    assert cli.command(["reprice", "a", "network=us_us"]) == 0
    before, rename = contents(place), Path.rename
    for stop in (OSError(28, "No space left on device"), KeyboardInterrupt()):

        def fails(self: Path, target: Path, stop: BaseException = stop) -> Path:
            if self.name.endswith(".tmp"):
                raise stop
            return rename(self, target)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Path, "rename", fails)
            assert cli.command(["reprice", "a", "network=us_us", "overwrite=true"]) in (1, 130)
        assert contents(place) == before and [path.name for path in place.parent.iterdir()] == [place.name]
    place.rename(place.with_name(".a_us_us.old"))  # a kill between the two
    assert cli.command(["reprice", "a", "network=us_us"]) == 0
    assert contents(place)[Path("curve.csv")] == before[Path("curve.csv")]
    assert [path.name for path in place.parent.iterdir()] == [place.name]
    before = contents(place)
    place.rename("elsewhere")
    place.symlink_to(Path("elsewhere").absolute())
    capsys.readouterr()
    assert cli.command(["reprice", "a", "network=us_us", "overwrite=true"]) == 1
    assert "is a link" in capsys.readouterr().err and contents(Path("elsewhere")) == before


def contents(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_whole_or_not_at_all(a: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("vflbench.plots.curves.draw_run", stop)
    assert cli.command(["reprice", "a", "network=us_us"]) == 130
    assert list(Path("outputs/reprice").iterdir()) == []


def test_an_older_run(a: Path, trained: Callable[..., Run], capsys: pytest.CaptureFixture[str]) -> None:
    """Its manifest does not say who the parties are: links of their own need to know no more than the trace has."""
    edit(a / "manifest.json", "parties", "payload", "cores")
    assert cli.command(["reprice", "a", "network=us_us"]) == 0
    same_but_wall(Path("outputs/reprice/a_us_us"), trained("network=us_us"))
    assert cli.command(["reprice", "a", *SHARED]) == 1
    assert "an older vflbench made it: its manifest.json lacks `parties`" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_that_stopped_at_its_target(
    trained: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fresh run stops in the same round; under a shared bandwidth too, where nobody is ahead when the last message
    arrives."""
    monkeypatch.chdir(tmp_path)
    best = trained().curve["val_accuracy"].tolist()
    target = f"target={max(best[:3])!r}"
    stopped = trained(target)
    assert stopped.summary["status"] == "target_reached" and stopped.summary["rounds"] < 6
    copied(stopped, "t")
    assert cli.command(["reprice", "t", *SHARED]) == 0
    same_but_wall(next(Path("outputs/reprice").iterdir()), trained(target, *SHARED))


@pytest.mark.slow
def test_time_budgets(
    trained: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where a fresh run would end in the same round it is that run, its status too; elsewhere it is refused."""
    monkeypatch.chdir(tmp_path)
    slow = trained().curve["virtual_seconds"].tolist()
    never, third = f"max_virtual_seconds={2 * slow[5]!r}", f"max_virtual_seconds={slow[2]!r}"
    assert trained(third).summary["rounds"] == 3
    copied(trained(never), "never")
    copied(trained(third), "third")
    assert cli.command(["reprice", "never", "network=us_us", "--out", "x"]) == 0
    same_but_wall(Path("x/never_us_us"), trained(never, "network=us_us"))
    assert cli.command(["reprice", "third", "network=us_us", "--out", "x"]) == 1
    assert "a fresh run would not have stopped" in capsys.readouterr().err
    assert cli.command(["reprice", "third", "network.ratio=2", "--out", "x"]) == 0, (
        "the profile does not affect its time"
    )
    assert load(next(Path("x").glob("third*"))).summary["status"] == "budget"
    assert cli.command(["reprice", "never", "network.client_server.latency_ms=5000", "--out", "x"]) == 1
    assert "a fresh run would have ended after round" in capsys.readouterr().err
    only = f"max_virtual_seconds={slow[5]!r}"
    copied(trained(only, "network=us_us"), "only")
    assert load("only").summary["status"] == "completed" and trained(only).summary["status"] == "budget"
    assert cli.command(["reprice", "only", "network=us_uk", "--out", "y"]) == 0
    same_but_wall(Path("y/only_us_uk"), trained(only))
    assert cli.command(["reprice", "y/only_us_uk", "network=us_us", "--out", "y"]) == 0, (
        "the last round was reached all the same"
    )
    same_but_wall(Path("y/only_us_uk_us_us"), trained(only, "network=us_us"))
