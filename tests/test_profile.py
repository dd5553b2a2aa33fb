"""`vflbench data profile`: the fits, the files, and what `compute=measured` makes of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from vflbench import cli, config
from vflbench.federation.delays import PARTS, Delays
from vflbench.runner import profile
from vflbench.types import ConfigError, Delay

TINY = ("features=3,5", "depth=2", "width=4", "embedding=2", "top_width=2", "repetitions=2")


def test_the_fit_recovers_power_laws_and_tells_what_it_misses() -> None:
    laws = {part: Delay(0.01 * (i + 1), -0.2 * i) for i, part in enumerate(PARTS)}
    rows = [
        (part, batch, repetition, factor * law.scale * batch ** (1 + law.exponent))
        for part, law in laws.items()
        for batch in profile.BATCHES
        for repetition, factor in enumerate((1.5, 1.0, 40.0))  # the least is the law
    ]
    timings = pd.DataFrame(rows, columns=["part", "batch", "repetition", "seconds"])
    for part, found in profile.fit(timings).items():
        assert (found.delay.scale, found.delay.exponent) == pytest.approx((laws[part].scale, laws[part].exponent))
        assert found.residuals == pytest.approx([0] * 10, abs=1e-9)
    timings.loc[timings["batch"] == 2, "seconds"] *= 8
    off = profile.fit(timings)["active_forward"].residuals
    assert 0.3 < off[0] == max(off) < np.log(8) and sum(off) == pytest.approx(0)


def test_every_part_is_timed_at_every_size_and_the_parameters_move(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "BATCHES", (2, 8))
    timings = profile.measure(profile.parse(TINY))
    assert timings.groupby(["part", "batch"]).size().to_dict() == {
        (part, batch): 2 for part in PARTS for batch in (2, 8)
    }
    assert (timings["seconds"] > 0).all()
    work = profile._Work(profile.parse(TINY), 4)
    before = work.bottom.clone(), work.passive.theta.clone(), work.top.clone()
    work.seconds()
    # an update each
    assert all(not torch.equal(a, b) for a, b in zip(before, (work.bottom, work.passive.theta, work.top), strict=True))
    assert work.rows[0].shape == (4, 3) and work.rows[1].shape == (4, 5)


def test_the_second_process_sends_back_what_it_gets() -> None:
    with profile._echo(5) as exchange:
        assert exchange(b"12345") == b"12345" and exchange(b"abcde") == b"abcde"
    assert 0 < profile.latency(1) < 1
    assert 0 < profile.server_seconds(4000, 2) < 1


@pytest.mark.slow
def test_the_command_writes_what_compute_measured_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    assert cli.command(["data", "profile", *TINY, "name=tiny"]) == 0
    assert torch.get_num_threads() == threads
    said = capsys.readouterr().out
    assert "top_backward" in said and "compute=measured compute.file=outputs/profile/tiny.json" in said
    folder = Path("outputs/profile")
    assert {path.name for path in folder.iterdir()} == {
        "files.jsonl",
        *(f"tiny.{kind}" for kind in ("json", "csv", "png", "svg")),
    }
    values = json.loads((folder / "tiny.json").read_text())
    assert values["options"]["features"] == [3, 5] and values["core_cap"] >= 1
    text = (folder / "tiny.json").read_text()
    assert str(Path.home()) not in text and str(tmp_path) not in text
    words = [
        "algorithm=glasu",
        "dataset=cora",
        "compute=measured",
        "compute.file=outputs/profile/tiny.json",
        "compute.cores=[1]",
    ]
    with config.session(words) as hydra:
        run = config.plan(hydra, words).config
    assert run is not None
    least = pd.read_csv(folder / "tiny.csv").groupby(["part", "batch"])["seconds"].min()
    for part in PARTS:
        fitted = Delays(run.compute).seconds(part, 64, 0, 1)
        assert fitted == pytest.approx(values["delays"][part]["scale"] * 64 ** (1 + values["delays"][part]["exponent"]))
        assert 0.02 < fitted / least[part, 64] < 50  # the law is that of the timings


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("featurs=1,2",), "Did you mean 'features'?"),
        (("features=50",), "must be two numbers"),
        (("features=50,x",), "must be two numbers"),
        (("model=mlp1",), "Did you mean 'mlp10'?"),
        (("depth=1",), "depth=1: must be at least 2"),
        (("model=residual_mlp", "depth=7"), "depth=7: must be even"),
        (("repetitions=0",), "at least 1"),
        (("name=../x",), "without a folder"),
    ],
)
def test_bad_options_are_told(words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        profile.parse(["embedding=0", *words])
    assert cli.command(["data", "profile", *words]) == 1
    assert said in capsys.readouterr().err
