"""The ledger (one row per message) and the trace (what each party did, in program order), as flat column buffers.

A row is a stretch of doubles in one `array`. There is no object per message: garbage collection would cost more than
the message. `struct` packs a row, twice as fast as `array.extend`. All values are exact in a double: counts and codes
stay below 2^53.
"""

from __future__ import annotations

import struct
from array import array

import numpy as np

# One ledger row. `kind` indexes links.LINK_KINDS, `tag` the ledger's tag names, `src` and `dst` the parties' order.
LEDGER_FIELDS = ("round", "src", "dst", "kind", "tag", "bytes", "vectors", "sent", "delivered", "seq")
# One trace row of a party. peer: the other party of a message; seq: the message's number, or 1 for a computation that
# keeps no core busy; value: seconds computed (compute) or round finished (mark); time: the party's clock after it.
TRACE_FIELDS = ("kind", "peer", "seq", "value", "time")
TRACE_KINDS = ("compute", "send", "recv", "mark")
COMPUTE, SEND, RECV, MARK = (float(i) for i in range(4))

ledger_row = struct.Struct(f"{len(LEDGER_FIELDS)}d").pack  # values in the order of LEDGER_FIELDS -> one row's bytes
trace_row = struct.Struct(f"{len(TRACE_FIELDS)}d").pack

COLUMN = {name: i for i, name in enumerate(LEDGER_FIELDS)}
TRACE_COLUMN = {name: i for i, name in enumerate(TRACE_FIELDS)}


def _as_rows(buffer: array[float], width: int) -> np.ndarray:
    """A copy of the buffer's rows, (n, width) float64."""
    return np.frombuffer(buffer, dtype=np.float64).reshape(-1, width).copy() if buffer else np.empty((0, width))


class Ledger:
    """Rows since the last checkpoint; `take` hands over those of finished rounds."""

    def __init__(self) -> None:
        self.rows = array("d")
        # rows that are taken with a later round than their own; each follows that round's number
        self.deferred = array("d")
        self.tags: dict[str, int] = {}

    def tag(self, name: str) -> int:
        """The code of a tag."""
        return self.tags.setdefault(name, len(self.tags))

    def defer(self, part: int, row: bytes) -> None:
        """Add a row that the receiver decides (timing=round), in its round `part`.

        A run resumed before that round decides it again.
        """
        self.deferred.append(part)
        self.deferred.frombytes(row)

    def take(self, last_round: int | None = None) -> np.ndarray:
        """Remove and return the rows of rounds up to `last_round` (None: all), (n, 10) float64."""
        rows = _as_rows(self.rows, len(LEDGER_FIELDS))
        deferred = _as_rows(self.deferred, len(LEDGER_FIELDS) + 1)
        limit = np.inf if last_round is None else last_round
        done, settled = rows[:, 0] <= limit, deferred[:, 0] <= limit
        self.rows[:] = array("d", rows[~done].tobytes())
        self.deferred[:] = array("d", deferred[~settled].tobytes())
        return np.concatenate([rows[done], deferred[settled, 1:]])


def sort_ledger(rows: np.ndarray) -> np.ndarray:
    """Rows by (src, dst, seq): the order that does not depend on scheduling."""
    order = np.lexsort((rows[:, COLUMN["seq"]], rows[:, COLUMN["dst"]], rows[:, COLUMN["src"]]))
    return rows[order]


def take_trace(trace: array[float], last_round: int | None = None) -> np.ndarray:
    """Remove and return a party's trace rows, (n, 5) float64; with `last_round`, those up to its boundary."""
    rows = _as_rows(trace, len(TRACE_FIELDS))
    end = len(rows)
    if last_round is not None:
        marks = np.flatnonzero((rows[:, 0] == MARK) & (rows[:, 3] <= last_round))
        end = int(marks[-1]) + 1 if len(marks) else 0
    trace[:] = array("d", rows[end:].tobytes())
    return rows[:end]
