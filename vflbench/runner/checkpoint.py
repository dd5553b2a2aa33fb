"""Checkpoints on disk: the last two complete cuts, and the ledger and trace of the rounds before them, in parts.

A cut is its state, `round_<round>.pt`, and its index, `round_<round>.json`. The index lists every file that the cut
needs, with size, rows and SHA-256, and has the SHA-256 of itself. It is written last, so a run killed at any moment
finds a whole cut. All that it lists is checked before the run goes on. Parts are merged as the run goes on: their
number grows with the logarithm of its length.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from vflbench.federation.engine import Engine
from vflbench.federation.ledger import COLUMN, LEDGER_FIELDS, TRACE_FIELDS, sort_ledger
from vflbench.federation.links import LINK_KINDS, LOCAL
from vflbench.federation.snapshot import Cut
from vflbench.results import inventory
from vflbench.results.folder import atomic_write, write_json
from vflbench.results.parquet import merge_parquet, write_parquet
from vflbench.results.run_schema import SCHEMA
from vflbench.types import VflbenchError

if TYPE_CHECKING:
    from vflbench.runner.evaluate import Observer
    from vflbench.runner.transcript_writer import TranscriptWriter

MERGED = 16  # so many parts become one
INDEX = re.compile(r"round_(\d{8})\.json")
COLUMNS = {"ledger": LEDGER_FIELDS, "trace": ("party", *TRACE_FIELDS)}
TIMES = ("sent", "delivered", "value", "time")  # all other columns are whole numbers
log = logging.getLogger(__name__)

Saved = tuple[Cut, dict[str, Any], tuple["Part", ...]]  # a cut, the observer's state at it, the files of its transcript


@dataclass(frozen=True)
class Part:
    """A file as it was written."""

    name: str
    bytes: int
    sha256: str
    rows: int = 0
    level: int = 0  # of a part of the ledger or trace: how often it was merged

    @staticmethod
    def of_file(path: Path, rows: int = 0, level: int = 0) -> Part:
        """The file at `path`, which has just been written."""
        return Part(path.name, *inventory.contents(path), rows, level)

    def check(self, folder: Path) -> Path:
        """Where the file lies in `folder`.

        Raises
        ------
        VflbenchError
            The file is not as it was written.
        """
        path = folder / self.name
        try:
            found = Part.of_file(path)
        except FileNotFoundError:
            raise VflbenchError(f"{path} is missing") from None
        except OSError as error:
            raise VflbenchError(f"{path} cannot be read: {error.strerror}") from error
        if found.bytes != self.bytes:
            what = "is truncated" if found.bytes < self.bytes else "was changed"
            raise VflbenchError(f"{path} {what}: {found.bytes} bytes, {self.bytes} were written")
        if found.sha256 != self.sha256:
            raise VflbenchError(f"{path} is damaged or was changed: its SHA-256 is not what it was when it was written")
        return path


@dataclass(frozen=True)
class Index:
    """What the cut after `round` needs. Round 0, before the first cut, needs nothing."""

    round: int
    state: tuple[Part, ...] = ()
    ledger: tuple[Part, ...] = ()
    trace: tuple[Part, ...] = ()
    transcript: tuple[Part, ...] = ()  # in the run's `transcript/`

    @property
    def name(self) -> str:
        """Its file name."""
        return f"round_{self.round:08d}.json"

    @property
    def files(self) -> tuple[Part, ...]:
        """The files in `checkpoint/`."""
        return (*self.state, *self.ledger, *self.trace)


@dataclass
class Checkpoints:
    """The folder `checkpoint/` of a run."""

    folder: Path
    identity: str  # the hash of the run's configuration
    index: Index = Index(0)  # of the last complete cut

    # --- writing ------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Make an empty folder for a run that starts."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self._retire(())
        self._write(Index(0))

    def save(
        self,
        cut: Cut,
        observer: dict[str, Any],
        ledger: np.ndarray,
        traces: dict[str, np.ndarray],
        transcript: Iterable[Part] = (),
    ) -> None:
        """Write the rows up to the cut, then the cut, then its index; then drop cuts before the last two.

        Raises
        ------
        VflbenchError
            A file cannot be written, or one to be merged is damaged.
        """
        party = np.repeat(np.arange(len(traces)), [len(rows) for rows in traces.values()])
        events = np.column_stack([party, np.concatenate(list(traces.values()))])
        last, parts = self.index, {}
        for kind, rows in (("ledger", ledger), ("trace", events)):
            path = self._place(kind, cut.round, 0)
            write_parquet(
                path,
                {
                    name: rows[:, i] if name in TIMES else rows[:, i].astype(np.int64)
                    for i, name in enumerate(COLUMNS[kind])
                },
            )
            parts[kind] = (*self._merged(kind, getattr(last, kind)), Part.of_file(path, len(rows)))
        buffer = io.BytesIO()  # not the file itself: on a full disk torch raises a RuntimeError
        torch.save({"cut": asdict(cut), "observer": observer}, buffer)
        state = self.folder / f"round_{cut.round:08d}.pt"
        atomic_write(state, buffer.getvalue())
        index = Index(cut.round, (Part.of_file(state),), parts["ledger"], parts["trace"], tuple(transcript))
        self._write(index)
        self.index = index
        self._retire((last, index))

    def _place(self, kind: str, round: int, level: int) -> Path:
        return self.folder / f"{kind}_{round:08d}_{level}.parquet"

    def _merged(self, kind: str, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        """`parts`, with those of one level merged into one where there are enough.

        They are in the order of rounds, so the highest level is first.
        """
        for level in {part.level for part in parts}:
            same = [part for part in parts if part.level == level]
            if len(same) >= MERGED:
                path = self._place(kind, int(same[-1].name.split("_")[1]), level + 1)
                # without a check, damaged rows would get a valid hash
                merge_parquet(path, [part.check(self.folder) for part in same])
                one = Part.of_file(path, sum(part.rows for part in same), level + 1)
                return (
                    *(part for part in parts if part.level > level),
                    one,
                    *(part for part in parts if part.level < level),
                )
        return parts

    def _write(self, index: Index) -> None:
        content = {"schema": SCHEMA, "run": self.identity, **asdict(index)}
        write_json(self.folder / index.name, {**content, "sha256": _digest(content)})

    def _retire(self, kept: Sequence[Index]) -> None:
        """Drop all cuts but `kept`: first what only they need, last their indices.

        So no index forgets its files.
        """
        needed = {part.name for index in kept for part in index.files}
        for path in self._indices():
            if path.name in {index.name for index in kept}:
                continue
            try:
                files = self._read(path).files
            except VflbenchError:  # damaged: its files are unknown, and will be written anew
                files = ()
            for part in files:
                if part.name not in needed:
                    inventory.remove(self.folder / part.name)
            inventory.remove(path)

    def drop(self) -> None:
        """Remove all cuts and parts once the whole ledger and trace are written."""
        self._retire(())

    # --- reading ------------------------------------------------------------------------------------------------------

    def _indices(self) -> list[Path]:
        """The indices on disk, the last first."""
        return sorted((path for path in self.folder.glob("round_*.json") if INDEX.fullmatch(path.name)), reverse=True)

    def _read(self, path: Path) -> Index:
        """An index whose own hash is right.

        Raises
        ------
        VflbenchError
            The index is damaged, or of another run or version.
        """
        try:
            content = json.loads(path.read_bytes())
            digest = content.pop("sha256")
            if digest != _digest(content):
                raise VflbenchError(f"{path} is damaged or was changed: its SHA-256 is not the one in it")
            if (schema := content.pop("schema")) != SCHEMA:
                raise VflbenchError(f"{path} has schema version {schema}; this vflbench reads version {SCHEMA}")
            if content["run"] != self.identity or content["round"] != int(path.stem.split("_")[1]):
                raise VflbenchError(f"{path} is another run's or another round's")
            lists = (
                tuple(Part(**part) for part in content[kind]) for kind in ("state", "ledger", "trace", "transcript")
            )
            index = Index(content["round"], *lists)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise VflbenchError(f"{path} is truncated or malformed ({type(error).__name__})") from error
        if any(Path(part.name).name != part.name for part in (*index.files, *index.transcript)):
            raise VflbenchError(f"{path} names a file elsewhere")
        return index

    def load(self) -> Saved | None:
        """The last whole cut, the observer's state at it and the files of its transcript; None if the run starts anew.

        Where a cut is damaged, a warning says so and the cut before it is taken: from there the run comes to the same
        result.

        Raises
        ------
        VflbenchError
            No cut is whole.
        """
        found, damages = self._indices(), dict[str, None]()
        if not found and (states := sorted(self.folder.glob("round_*.pt"))):
            raise VflbenchError(
                f"{states[-1]} has no list of the files that belong to it: an older vflbench wrote it. Start anew in "
                "another folder"
            )
        for path in found:
            try:
                index = self._read(path)
                saved = self._checked(index)
            except VflbenchError as damage:
                damages[str(damage)] = None
                continue
            if damages:
                where = (
                    f"from the checkpoint before it, of round {index.round}"
                    if index.round
                    else "from the start: that was the first"
                )
                log.warning("%s. Going on %s; what is damaged is set aside", "; ".join(damages), where)
                inventory.set_aside(self.folder.parent, ("checkpoint", "transcript"))
            self.index = index
            return saved
        if damages:
            raise VflbenchError(f"{'; '.join(damages)}. No checkpoint before it is whole: start anew in another folder")
        return None

    def _checked(self, index: Index) -> Saved | None:
        """The cut of `index`, after a check of all that it lists; None for the index of round 0."""
        for part in (*index.ledger, *index.trace):
            part.check(self.folder)
        for part in index.transcript:
            part.check(self.folder.parent / "transcript")
        for part in index.state:
            path = part.check(self.folder)
            try:
                saved = torch.load(io.BytesIO(path.read_bytes()), weights_only=True, map_location="cpu")
                return Cut(**saved["cut"]), saved["observer"], index.transcript
            except Exception as error:  # torch's parsers raise errors of many kinds
                raise VflbenchError(
                    f"{path} is no checkpoint that this vflbench can read ({type(error).__name__})"
                ) from error
        return None

    def rows(self, kind: str) -> Iterator[np.ndarray]:
        """The saved parts of the `ledger`, (n, 10) each, or of the `trace`, (n, 6), with the party's number first.

        They are checked as they are read.
        """
        import pyarrow.parquet as pq

        for part in getattr(self.index, kind):
            table = pq.read_table(part.check(self.folder))
            yield np.stack([table[name].to_numpy().astype(np.float64) for name in COLUMNS[kind]], axis=1)


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@dataclass
class Recorder:
    """What a run has produced so far.

    The ledger and trace since the last checkpoint are in memory, those before it in parts.
    """

    checkpoints: Checkpoints
    writer: TranscriptWriter | None
    # (round, ledger, traces) of a cut while it is written
    unsaved: tuple[int, np.ndarray, dict[str, np.ndarray]] | None = None

    def cut(self, engine: Engine, observer: Observer, cut: Cut) -> None:
        """Save a checkpoint at `cut`."""
        ledger, traces = engine.ledger.take(cut.round), engine.take_trace(cut.round)
        self.unsaved = cut.round, ledger, traces
        self.checkpoints.save(
            cut, observer.state_dict(), ledger, traces, self.writer.files.values() if self.writer else ()
        )
        self.unsaved = None

    def collect(self, engine: Engine) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """The whole ledger, sorted, and the traces, of finished rounds.

        Raises
        ------
        VflbenchError
            Saved rows are damaged, or the ledger does not add up to the bytes that the engine has counted.
        """
        rest, last = engine.ledger.take(engine.finished_round), engine.take_trace(engine.finished_round)
        ledger, traces = [*self.checkpoints.rows("ledger")], {name: list[np.ndarray]() for name in engine.parties}
        for rows in self.checkpoints.rows("trace"):
            for code, parts in enumerate(traces.values()):
                parts.append(rows[rows[:, 0] == code, 1:])
        # writing the cut failed, or Ctrl-C interrupted it
        if self.unsaved is not None and self.unsaved[0] > self.checkpoints.index.round:
            ledger.append(self.unsaved[1])
            traces = {name: [*parts, self.unsaved[2][name]] for name, parts in traces.items()}
        whole = sort_ledger(np.concatenate([*ledger, rest]))
        charged = whole[whole[:, COLUMN["kind"]] != LINK_KINDS.index(LOCAL), COLUMN["bytes"]].sum()
        if charged != engine.bytes_sent:
            raise VflbenchError(
                f"the ledger has {charged:.0f} bytes in {engine.finished_round} rounds, but {engine.bytes_sent} were "
                "sent"
            )
        return whole, {name: np.concatenate([*traces[name], rows]) for name, rows in last.items()}
