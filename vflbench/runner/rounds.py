"""What a run keeps and tells of its rounds: scores, logs, progress, the attack's transcript, checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vflbench import registry
from vflbench.attacks import transcript
from vflbench.federation.codec import Encoder
from vflbench.federation.engine import Engine
from vflbench.federation.snapshot import Cut
from vflbench.results import folder as files
from vflbench.runner import interrupts
from vflbench.runner.checkpoint import Checkpoints, Recorder, Saved
from vflbench.runner.evaluate import Observer
from vflbench.runner.federation import Federation
from vflbench.runner.logs import Log
from vflbench.runner.progress import Progress
from vflbench.runner.transcript_writer import TranscriptWriter
from vflbench.seeding import stream


class Rounds:
    """Follows a run from round to round; `engine` is set once it is built."""

    engine: Engine

    def __init__(
        self,
        federation: Federation,
        folder: Path,
        observer: Observer,
        checkpoints: Checkpoints,
        saved: Saved | None,
        logs: Log,
        bar: Progress,
    ) -> None:
        self.seed, self.observer, self.logs, self.bar = federation.config.seed, observer, logs, bar
        self.watch = _watch(federation)
        self.writer = _writer(folder, self.watch, lambda name: self.engine.parties[name].state.model.theta, saved)
        self.recorder = Recorder(checkpoints, self.writer)

    def on_round(self, round: int, engine: Engine) -> bool:
        """All parties have finished `round`; whether it is the last one."""
        stops = self.observer.on_round(round, engine)
        self.logs.row(self.observer.rows, round)
        if self.watch is not None and self.writer is not None:  # before the round's cut
            _write_transcript(self.writer, self.watch, engine, round, self.seed)
        self.bar.update(round, **_news(self.observer, round), bytes=engine.bytes_sent)
        return stops

    def on_cut(self, cut: Cut) -> None:
        """A cut is complete: save a checkpoint."""
        with interrupts.held_back():
            self.recorder.cut(self.engine, self.observer, cut)


def _watch(federation: Federation) -> transcript.Watch | None:
    """What the configured attack needs of the run. None where there is no attack."""
    config = federation.config
    if config.attack.name == "none":
        return None
    watch: transcript.Watch = registry.load_option("attack", config.attack.name).watch(
        federation.task, config, federation.attacked
    )
    return watch


def _writer(
    folder: Path, watch: transcript.Watch | None, theta: Callable[[str], Any], saved: Saved | None
) -> TranscriptWriter | None:
    """The writer of what the attack needs. None where there is no attack."""
    if watch is None:
        return None
    released = theta if watch.released else None
    return TranscriptWriter(
        folder / "transcript", watch.party, watch.sent, released, saved[2] if saved else (), watch.received, watch.also
    )


def _write_transcript(writer: TranscriptWriter, watch: transcript.Watch, engine: Engine, round: int, seed: int) -> None:
    """Write what the adversary read in `round`, and the parties' answers to its questions after it."""
    for name, rows in watch.questions.items():
        answer = _answer(engine.parties[name], rows, stream(seed, f"attack/{name}/{round}"), engine.codec)
        writer.add(transcript.Message(round, name, watch.party, transcript.ANSWER, (answer,)))
    writer.write(round)


def _answer(party: Any, inputs: np.ndarray, rng: np.random.Generator, codec: Any) -> np.ndarray:
    """What would arrive if `party` published `inputs` now, with noise of its own; nobody counts it."""
    model = party.state.model
    like = next(model.parameters())
    with torch.no_grad():
        rows = model(torch.as_tensor(inputs, dtype=like.dtype, device=like.device))
        if party.privacy is not None:
            generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
            rows = party.privacy.noised(rows, generator)
    if codec is not None:
        rows = Encoder(codec, rng).encode(rows).value
    return np.asarray(rows.cpu())


def _news(observer: Observer, round: int) -> dict[str, float | None]:
    """The metric and the training loss after `round`, for the progress bar."""
    row = observer.rows[-1] if observer.rows and observer.rows[-1]["round"] == round else {}
    metric = observer.task.metric.name
    return {
        "metric": row.get(f"{files.splits(metric)[-1]}_{metric}"),
        "loss": observer.losses[-1] if observer.losses else row.get("train_loss"),
    }
