"""Writes `transcript/`: what the adversary saw of a run, one file per finished round."""

import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vflbench.attacks.transcript import RELEASED, Message, file_name, flatten, pack
from vflbench.results import inventory
from vflbench.results.folder import atomic_write
from vflbench.runner.checkpoint import Part


@dataclass
class TranscriptWriter:
    """Collects messages as they are read, and writes them once their round is over.

    `files` are those that are written, by name.
    """

    folder: Path  # of the transcript
    party: str  # whose
    sent: frozenset[str]  # tags of its own messages that are kept as well
    # name -> a client's parameters now, where they are public with every prediction
    released: Callable[[str], Any] | None = None
    kept: Iterable[Part] = ()  # files up to the checkpoint that the run goes on from
    received: frozenset[str] | None = None  # tags of messages to it that are kept; None: all
    also: tuple[str, ...] = ()  # parties of which the same messages are kept

    def __post_init__(self) -> None:
        self.messages: dict[int, list[Message]] = {}
        self.files = {part.name: part for part in self.kept}
        self.folder.mkdir(mode=0o700, exist_ok=True)
        for path in sorted(self.folder.glob("round_*.npz")):
            if path.name not in self.files:  # of a later round, left by a run that was stopped
                inventory.remove(path)

    def on_read(self, src: str, dst: str, tag: str, round: int, payload: Any) -> None:
        """Keep a message that `dst` reads in its `round`."""
        wanted = (
            self.received is None or tag in self.received
            if dst == self.party or dst in self.also
            else (src == self.party or src in self.also) and tag in self.sent
        )
        if not wanted:
            return
        # who predicts waits for an answer: its parameters have not changed since
        if tag == "prediction" and self.released is not None:
            self.add(Message(round, src, dst, RELEASED, tuple(flatten(self.released(src)))))
        self.add(Message(round, src, dst, tag, tuple(flatten(payload))))

    def add(self, message: Message) -> None:
        """Keep what the adversary learns without a message."""
        self.messages.setdefault(message.round, []).append(message)

    def write(self, round: int) -> None:
        """Write the messages up to `round`, which all parties have finished."""
        for done in sorted(r for r in self.messages if r <= round):
            buffer = io.BytesIO()
            arrays: dict[str, Any] = pack(self.messages.pop(done))
            np.savez(buffer, **arrays)
            path = self.folder / file_name(done)
            atomic_write(path, buffer.getvalue())
            self.files[path.name] = Part.of_file(path)

    def check(self) -> None:
        """Refuse a file that is no longer as it was written.

        Raises
        ------
        VflbenchError
            A file was changed.
        """
        for part in self.files.values():
            part.check(self.folder)
