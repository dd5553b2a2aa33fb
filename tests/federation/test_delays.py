"""The delay model of split learning and its keys."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vflbench import config
from vflbench.federation.delays import PARTS, Delays
from vflbench.types import ComputeConfig, ConfigError, Delay, Problem


def compute(*overrides: str) -> ComputeConfig:
    words = ["algorithm=glasu", "dataset=cora", *overrides]
    with config.session(words) as hydra:
        made = config.plan(hydra, words).config
    assert made is not None
    return made.compute


def problems(*overrides: str) -> dict[str, Problem]:
    with pytest.raises(ConfigError) as caught:
        compute(*overrides)
    return {problem.key: problem for problem in caught.value.problems}


def test_seconds_by_hand() -> None:
    delays = Delays(ComputeConfig(delays={"active_forward": Delay(0.5, -0.5)}, cores=[6, 2], core_cap=2.0))
    assert delays.cores(0, 2) == 2.0  # three each, but a worker uses two at most
    assert delays.cores(0, 4) == 1.5
    assert delays.cores(1, 4) == delays.cores(3, 4) == 0.5  # the last entry repeats
    assert delays.seconds("active_forward", 16, 0, 4) == pytest.approx(0.5 * 4 / 1.5)
    assert delays.seconds("active_forward", 16, 0, 1) == pytest.approx(0.5 * 4 / 2)
    assert (delays.total_cores(1), delays.total_cores(2), delays.total_cores(4)) == (6, 8, 12)
    with pytest.raises(KeyError):
        delays.seconds("top_forward", 16, 0, 1)


def test_without_delays_a_batch_costs_what_the_clock_says() -> None:
    delays = Delays(ComputeConfig(base_seconds=0.5, seconds_per_unit=0.1))
    assert {delays.seconds(part, 8, 1, 3) for part in PARTS} == {0.5 + 8 * 0.1}


def test_table_8_per_batch_core_seconds() -> None:
    """Active .38 / .92 / 1.46, passive .042 / .038 / .036 at B = 16 / 256 / 1024."""
    delays = Delays(compute("compute=paper_table8"))
    active = [
        sum(delays.seconds(part, b, 0, 32) for part in PARTS if not part.startswith("passive")) for b in (16, 256, 1024)
    ]
    passive = [
        sum(delays.seconds(part, b, 1, 32) for part in PARTS if part.startswith("passive")) for b in (16, 256, 1024)
    ]
    assert active == pytest.approx([0.38, 0.92, 1.46], abs=0.005)
    assert passive == pytest.approx([0.042, 0.038, 0.036], abs=0.0005)


def test_the_default_has_no_delays_and_no_cost_beside_its_two_constants() -> None:
    default = compute()
    assert default == ComputeConfig()
    assert (default.delays, default.batch_latency, default.server_seconds, default.penalty_batch) == (
        {},
        0.0,
        0.0,
        None,
    )


def test_bad_keys_are_told_together() -> None:
    found = problems(
        *(
            "compute.batch_latency=-1",
            "compute.server_seconds=-0.1",
            "compute.core_cap=0",
            "compute.penalty_batch=0",
            "compute.cores=8",
        ),
        "+compute.delays.active_forward={scale: fast, exponent: 0}",
    )
    assert set(found) == {
        f"compute.{key}" for key in ("batch_latency", "server_seconds", "core_cap", "penalty_batch", "cores")
    } | {"compute.delays.active_forward.scale"}
    paper = "compute=paper_table8"
    found = problems(
        paper, "compute.delays.top_forward.scale=0", "compute.delays.top_backward.exponent=2", "compute.cores=[8,0]"
    )
    assert set(found) == {"compute.delays.top_forward.scale", "compute.delays.top_backward.exponent", "compute.cores"}
    found = problems(paper, "+compute.delays.activ_forward={scale: 1, exponent: 0}")
    assert found["compute.delays.activ_forward"].closest == "active_forward"
    found = problems("+compute.delays.active_forward={scale: 1, exponent: 0}")
    assert "lacks active_backward, passive_forward" in found["compute.delays"].allowed
    assert "at least one" in problems(paper, "compute.cores=[]")["compute.cores"].allowed


def test_measured_constants_come_from_the_file_and_what_is_typed_wins(tmp_path: Path) -> None:
    profile = tmp_path / "compute.json"
    delays = {part: {"scale": 0.1 * (i + 1), "exponent": -0.1 * i} for i, part in enumerate(PARTS)}
    values = {"delays": delays, "core_cap": 1.75, "batch_latency": 0.002, "server_seconds": 0.03}
    profile.write_text(json.dumps(values))
    found = compute("compute=measured", f"compute.file={profile}", "compute.batch_latency=0.5", "compute.cores=[4,2]")
    assert found.delays["passive_forward"] == Delay(*delays["passive_forward"].values())
    assert (found.core_cap, found.batch_latency, found.server_seconds, found.cores) == (1.75, 0.5, 0.03, [4, 2])
    del values["core_cap"]
    profile.write_text(json.dumps(values))
    assert (
        "is no profile (KeyError: 'core_cap')"
        in problems("compute=measured", f"compute.file={profile}")["compute.file"].allowed
    )
    profile.write_text("not json")
    assert "vflbench data profile" in problems("compute=measured", f"compute.file={profile}")["compute.file"].allowed
    missing = problems("compute=measured", f"compute.file={tmp_path / 'none.json'}")
    assert set(missing) == {"compute.file"}
    assert missing["compute.file"].allowed == "there is no such file; make one with: vflbench data profile"
    assert (
        "compute=measured does" in problems("compute=paper_table8", f"compute.file={profile}")["compute.file"].allowed
    )
