"""scripts/validate_timing.py: the pipes of its proxy by hand, what counts as work, and one whole comparison on small
data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vflbench.federation.ledger import COMPUTE, MARK, RECV, SEND
from vflbench.types import LinkConfig

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import validate_timing

    return validate_timing


@pytest.fixture
def pipe(script: Any) -> Any:
    import shaped_links

    return shaped_links.Pipe


class Sink:
    """A socket that takes so many bytes at a time, and none in between."""

    def __init__(self, takes: int) -> None:
        self.takes, self.got, self.full = takes, b"", False

    def send(self, data: memoryview) -> int:
        self.full = not self.full
        if not self.full:
            raise BlockingIOError
        self.got += bytes(data[: self.takes])
        return min(self.takes, len(data))


def test_a_pipe_takes_turns_and_adds_its_latency_once(pipe: Any) -> None:
    """10 bytes a second, 5 s: 20 bytes at t = 0 leave by 2 and come at 7; 10 more at t = 1 wait until 2, leave by 3 and
    come at 8. At t = 9 the pipe has been free for long: 10 bytes come at 15."""
    sink = Sink(1000)
    pipe = pipe(5.0, 0.1, sink)
    pipe.take(b"a" * 20, 0.0)
    pipe.take(b"b" * 10, 1.0)
    pipe.give(6.9)
    assert sink.got == b""
    pipe.give(7.0)
    assert sink.got == b"a" * 20
    pipe.take(b"c" * 10, 9.0)
    assert [when for when, _ in pipe.held] == pytest.approx([8.0, 15.0])
    pipe.give(20.0)
    pipe.give(20.0)
    pipe.give(20.0)
    assert sink.got == b"a" * 20 + b"b" * 10 + b"c" * 10 and not pipe.due
    assert pipe.late == pytest.approx([0.0, 12.0, 5.0])


def test_a_slow_reader_loses_nothing(pipe: Any) -> None:
    sink = Sink(7)
    pipe = pipe(0.0, 0.0, sink)
    sent = bytes(range(100))
    pipe.take(sent[:60], 0.0)
    pipe.take(sent[60:], 0.0)
    for _ in range(40):
        pipe.give(1.0)
    assert sink.got == sent and not pipe.due


def test_all_that_a_party_does_between_messages_is_work(script: Any) -> None:
    """It works from 0 to 1, of which 0.4 s in `me.compute`; sends; works until 1.5; waits until 4; reads at 4.1; is
    through at 5."""
    trace = np.array(
        [(COMPUTE, 0, 0, 0.4, 0.8), (SEND, 1, 0, 0, 1.0), (RECV, 1, 0, 0, 4.1), (MARK, 0, 0, 1, 5.0)], dtype=np.float64
    )
    rows = script.busy(trace, [(1.5, 4.0)])
    assert rows[:, 0].tolist() == [COMPUTE, SEND, COMPUTE, COMPUTE, RECV, COMPUTE, MARK]
    work = rows[rows[:, 0] == COMPUTE]
    assert work[:, 3] == pytest.approx([1.0, 0.5, 0.1, 0.9])
    assert work[:, 4] == pytest.approx([1.0, 1.5, 4.1, 5.0])


def test_the_exit_code_says_whether_all_are_within_ten_percent(
    script: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def row(communication: float, total: float) -> Any:
        return script.Row("x", "lan", 2, 7, 4, 5, 0.01, communication, 1.0, total, 1.0, 0.0, 0.0, 1.0)

    near = [row(1.09, 1.0), row(0.91, 1.0), row(1.0, 1.11)]
    assert not any(one.off for one in near) and row(1.11, 1.0).off and row(0.89, 1.0).off

    def stand_in(words: list[str], rounds: int, other: dict[str, LinkConfig] | None) -> Any:
        assert words[-2:] == ["network=lan", "seed=3"] and rounds == 7
        return near.pop()

    monkeypatch.setattr(script, "validate", stand_in)
    near[0] = row(0.89, 1.0)
    assert script.main(["--network", "lan", "--rounds", "7", "seed=3"]) == 1
    with pytest.raises(SystemExit):
        script.main(["--rounds", "0"])
    table = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert len(table) == 2 + 3 and len({line.count("|") for line in table}) == 1


@pytest.mark.slow
def test_processes_send_and_train_what_the_simulation_does_and_are_not_quicker_than_their_links(script: Any) -> None:
    """That messages, bytes and parameters are equal is checked inside. Links of 30 and of 10 ms; the time they take is
    a lower bound."""
    small = ["dataset=ridge", "dataset.samples=40", "dataset.features=24"]
    words = ["algorithm=mtcd", "algorithm.parties=3", "algorithm.tokens=1", "algorithm.hops=2", *small, "topology=path"]
    links = [f"network.{kind}.latency_ms=30" for kind in ("client_server", "client_client")]
    other = dict.fromkeys(("client_server", "client_client"), LinkConfig(10.0, 0.1))
    row = script.validate([*words, *links], 3, other)
    assert row.parties == 4 and row.messages > 0 and row.nbytes > 0 and row.framing > 0
    assert 3 * 2 * 0.01 < row.simulated_communication <= row.total
    assert row.communication + row.beside <= row.total


@pytest.mark.slow
def test_what_a_party_fails_on_is_told_and_nobody_is_left(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import multiprocessing

    from vflbench import config, registry

    small = [
        "algorithm=stcd",
        "algorithm.parties=3",
        "dataset=ridge",
        "dataset.samples=40",
        "dataset.features=24",
        "topology=path",
    ]
    small.append("engine.threads=1")  # as `validate` has it
    with config.session(small) as hydra:
        run_config = config.plan(hydra, [*small, "rounds=2"]).config
    assert run_config is not None
    pairs = {("client_0", "client_9"): (0.0, 0.0), ("client_9", "client_0"): (0.0, 0.0)}  # there is no client_9
    with pytest.raises(SystemExit, match="client_9"):
        script.measure(run_config, registry.algorithms()["stcd"], 9, pairs)
    assert not multiprocessing.active_children()
