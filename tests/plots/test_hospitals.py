"""Two hospitals' tables: six methods in one command, ranked at 50 ms, on a local network and across the ocean."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest

from vflbench import cli
from vflbench.results import reader

ROOT = Path(__file__).resolve().parents[2]
PRESET = ["--config-dir", "examples", "experiment=hospitals", "rounds=2", "plot=none", "engine.threads=1"]
NETWORKS = {"us_uk": (136, 420)}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ranking(table: Path) -> list[tuple[str, float, float]]:
    """Methods with bytes and seconds to the target, the one that needs the fewest seconds first."""
    rows = pd.read_csv(table)
    assert len(rows) == 6 and (rows.runs == 3).all() and (rows.reached == 3).any()
    columns = ["algorithm", "bytes_to_target", "communication_seconds_to_target", "selected"]
    return list(rows[columns].sort_values(columns[2:0:-1]).fillna(-1).itertuples(index=False, name=None))


@pytest.mark.slow
def test_the_ranking_on_another_network_is_that_of_fresh_runs(place: Path) -> None:
    assert cli.command(PRESET) == 0
    runs = reader.find(place / "outputs/hospitals")
    assert len(list(runs)) == 18
    for network, (latency, bandwidth) in NETWORKS.items():
        moved = ["report", "outputs/hospitals", "--rerun", network, "--out", f"{network}.html"]
        assert cli.command([*moved, "--csv", f"{network}.csv"]) == 0
        links = [f"network={network}", f"network.latency_ms={latency}", f"network.bandwidth_mbps={bandwidth}"]
        assert cli.command([*PRESET, *links, f"hydra.sweep.dir=fresh_{network}"]) == 0
        fresh = ["report", f"fresh_{network}", "--out", f"fresh_{network}.html", "--csv", f"fresh_{network}.csv"]
        assert cli.command(fresh) == 0
        assert ranking(Path(f"{network}.csv")) == ranking(Path(f"fresh_{network}.csv"))
        names = [f"outputs/rerun/{run.folder.name}" for run in reader.find(place / "outputs/rerun")]
        assert len(names) >= 18


def test_a_broken_copy_is_told_whole(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A label is gone, an ID is there twice, a column of IDs has another name, and a number is infinite."""
    city, clinic = (place / f"examples/data/{name}.csv" for name in ("city", "clinic"))
    lines = city.read_text(encoding="utf-8").splitlines()
    lines[3] = lines[3].rpartition(",")[0] + ","
    lines[7] = lines[6]
    city.write_text("\n".join(lines), encoding="utf-8")
    head, *lines = clinic.read_text(encoding="utf-8").splitlines()
    lines[1] = ",".join([lines[1].partition(",")[0], "inf", "clear", "4"])
    clinic.write_text("\n".join([head.replace("patient", "person"), *lines]), encoding="utf-8")
    words = ["--config-dir", "examples", "algorithm=vfl", "dataset=hospitals", "dry_run=true"]
    assert cli.command(words) == 1
    told = capsys.readouterr().err
    assert "4 problems in your files" in told
    for text in (
        "dataset.id=patient: examples/data/clinic.csv has no such column",
        "examples/data/city.csv, line 4, column readmitted: no label",
        "examples/data/city.csv, line 8, column patient: the ID",
        "examples/data/clinic.csv, column sugar: inf in line 3 is not finite",
    ):
        assert text in told


@pytest.mark.slow
def test_a_preset_that_sweeps_may_name_all_links_at_once(place: Path) -> None:
    """And one run of it is started alone, as `report --rerun` does."""
    from vflbench import config

    words = ["experiment=hospitals"]
    with config.session(words, place / "examples") as hydra:
        plan = config.plan(hydra, words)
        assert plan.jobs is not None and len(plan.jobs) == 18
        values = next(config.configurations(hydra, plan.jobs))[1]
    for kind in ("client_server", "client_client"):
        assert values["network"][kind] == {"latency_ms": 50, "bandwidth_gbps": 0.1}
