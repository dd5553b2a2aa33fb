"""Checkpoints on disk: the last complete cut, and the ledger and trace of the rounds before it, in parts.

A part is written before the checkpoint that counts on it, and both by renaming a whole file: a run killed at any moment finds the
last checkpoint and exactly the rows before it.
"""

from __future__ import annotations

import io
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vflbench.federation.ledger import LEDGER_FIELDS, TRACE_FIELDS
from vflbench.federation.snapshot import Cut
from vflbench.results.folder import atomic_write, write_parquet
from vflbench.types import VflbenchError


class Checkpoints:
    """The folder `checkpoint/` of a run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, cut: Cut, observer: dict[str, Any], ledger: np.ndarray, traces: dict[str, np.ndarray]) -> None:
        """Write the rows up to the cut, then the cut; then drop the cut before it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_parquet(self.folder / f"ledger_{cut.round:08d}.parquet", _columns(ledger, LEDGER_FIELDS))
        events = np.concatenate(list(traces.values()))
        party = np.repeat(np.arange(len(traces)), [len(rows) for rows in traces.values()])
        write_parquet(self.folder / f"trace_{cut.round:08d}.parquet", {"party": party, **_columns(events, TRACE_FIELDS)})
        before = sorted(self.folder.glob("round_*.pt"))
        buffer = io.BytesIO()  # not to the file itself: torch tells of a full disk by a RuntimeError
        torch.save({"cut": asdict(cut), "observer": observer}, buffer)
        atomic_write(self.folder / f"round_{cut.round:08d}.pt", buffer.getvalue())
        for path in before:
            path.unlink()

    def load(self) -> tuple[Cut, dict[str, Any]] | None:
        """The last cut and the observer's state at it; None if there is none. Rows of later parts are dropped.

        Raises
        ------
        VflbenchError : the checkpoint is damaged.
        """
        files = sorted(self.folder.glob("round_*.pt"))
        cut = None
        if files:
            try:
                saved = torch.load(files[-1], weights_only=True, map_location="cpu")
                cut = Cut(**saved["cut"])
            except Exception as error:
                raise VflbenchError(
                    f"{files[-1]}: not a readable checkpoint ({type(error).__name__}); start anew with overwrite=true"
                ) from error
        for path in self.folder.glob("*_*.parquet"):
            if cut is None or int(path.stem.split("_")[1]) > cut.round:
                path.unlink()
        return None if cut is None else (cut, saved["observer"])

    @property
    def last_round(self) -> int:
        """The round of the last complete cut, 0 before the first."""
        return max((int(path.stem.split("_")[1]) for path in self.folder.glob("round_*.pt")), default=0)

    def _parts(self, kind: str) -> list[Path]:
        """Those up to the last complete cut: a later one is of a cut that could not be written."""
        return [path for path in sorted(self.folder.glob(f"{kind}_*.parquet")) if int(path.stem.split("_")[1]) <= self.last_round]

    def ledger(self) -> list[np.ndarray]:
        """The saved parts of the ledger, (n, 10) each."""
        return [_matrix(path, LEDGER_FIELDS) for path in self._parts("ledger")]

    def traces(self, parties: list[str]) -> dict[str, list[np.ndarray]]:
        """The saved parts of each party's trace, (n, 5) each."""
        found: dict[str, list[np.ndarray]] = {name: [] for name in parties}
        for path in self._parts("trace"):
            rows = _matrix(path, ("party", *TRACE_FIELDS))
            for code, name in enumerate(parties):
                found[name].append(rows[rows[:, 0] == code, 1:])
        return found

    def drop_parts(self) -> None:
        """Remove the parts once the whole ledger and trace are written."""
        for path in self.folder.glob("*_*.parquet"):
            path.unlink()


def _columns(rows: np.ndarray, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Rows as columns; all but times are whole numbers."""
    times = ("sent", "delivered", "value", "time")
    return {name: rows[:, i] if name in times else rows[:, i].astype(np.int64) for i, name in enumerate(names)}


def _matrix(path: Path, columns: tuple[str, ...]) -> np.ndarray:
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    return np.stack([table[name].to_numpy().astype(np.float64) for name in columns], axis=1)
