"""300 seeded cases of the fuzzer, of every kind; `python -m tests.fuzz.fuzzer` carries out more. And that it would see
a fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import fuzzer
from vflbench import cli


@pytest.mark.parametrize(
    "cases", [range(4), pytest.param(range(4, 104), marks=[pytest.mark.slow, pytest.mark.minutes])], ids=len
)
def test_nothing_that_is_typed_or_held_ends_in_a_traceback_a_hang_or_a_wrong_completion(cases: range) -> None:
    told: list[str] = []
    assert not fuzzer.fuzz(0, cases, told.append), "\n".join(told)


def test_every_kind_of_fault_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(_: object) -> int:
        Path("summary.json").write_text('{"status": "completed", "metric": {"name": "accuracy", "final": NaN}}')
        return 0

    def hang(_: object) -> int:
        while True:
            pass

    with fuzzer.prepared(tmp_path):
        fuzzer.templates()  # by the command as it is, also where no test before this one made them
    monkeypatch.setattr(fuzzer, "HANG", 1)
    for command, fault in (
        (wrong, "wrong completion"),
        (hang, "hang"),
        (lambda _: 1 / 0, "traceback"),
        (lambda _: 1, None),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(cli, "command", command)
            told: list[str] = []
            faults = fuzzer.fuzz(0, range(2, 3), told.append)
        assert faults == ({fault: 1} if fault else {}) and (not fault or "--seed 0 --case 2" in told[0])


def test_a_case_depends_on_its_seed_and_number_alone(tmp_path: Path) -> None:
    with fuzzer.prepared(tmp_path):
        first = {number: fuzzer.carry_out(3, number)[0].args for number in (0, 1, 2)}
        assert {number: fuzzer.carry_out(3, number)[0].args for number in (2, 1, 0)} == first
