"""The phases of a model's life, and exchanges outside training: alignment, what a method assumes, predictions.

Their names are in results/folder.py.

align    rows are matched; before the run (data sets say which messages that took)
setup    what is sent before the first round: keys, the table mapping, bounds, labels
train    what is sent in rounds
predict  the exchange of the last evaluation: what held-out predictions cost

Setup and training are one program, with one ledger and trace. The other phases are exchanges of their own, timed from
0. Imports no torch: runs are re-priced with it.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from vflbench.federation.ledger import COLUMN, LEDGER_FIELDS, RECV, SEND, TRACE_COLUMN, TRACE_FIELDS
from vflbench.federation.replay import Program
from vflbench.types import NetworkConfig

Sending = tuple[str, str, int, int]  # receiver, tag, bytes, vectors
Reading = tuple[str, str]  # sender, tag
Event = Sending | Reading
Served = tuple[int, Sequence[Event]]  # the round of an evaluation, and what a party sent and read in it
Tapes = Mapping[str, Sequence[Event]]  # party -> what it sent and read, in its program's order
Sized = tuple[str, str, str, int]  # a message: sender, receiver, tag, bytes


@dataclass(frozen=True)
class Exchange:
    """Messages with their program, as a ledger and traces of their own."""

    rows: np.ndarray  # (messages, 10) of a ledger
    traces: Mapping[str, np.ndarray]  # party -> (events, 5); parties without events may be missing

    def sent(self, network: NetworkConfig, roles: Mapping[str, str], times: float = 1.0) -> "Exchange":
        """The exchange with the times of its messages, whose bytes are multiplied by `times`."""
        if not len(self.rows):
            return self
        rows = self.rows.copy()
        rows[:, COLUMN["bytes"]] *= times
        program = Program(rows, {name: self.traces.get(name, _no_events()) for name in roles}, roles)
        done = program.retime(network)
        rows = program.rows.copy()
        rows[:, COLUMN["sent"]], rows[:, COLUMN["delivered"]] = done.sent, done.delivered
        return replace(self, rows=rows)

    def seconds(self, network: NetworkConfig, roles: Mapping[str, str], times: float = 1.0) -> float:
        """When the last message is delivered; arguments as of `sent`."""
        return float(self.sent(network, roles, times).rows[:, COLUMN["delivered"]].max(initial=0.0))


def _no_events() -> np.ndarray:
    return np.empty((0, len(TRACE_FIELDS)))


NOTHING = Exchange(np.empty((0, len(LEDGER_FIELDS))), {})


def exchange(
    tapes: Tapes, parties: Sequence[str], kind: Callable[[str, str], int], tag: Callable[[str], int], round: int = 0
) -> Exchange:
    """The exchange that parties have recorded.

    Parameters
    ----------
    parties : in their order.
    kind : (sender, receiver) -> code of the link's kind.
    tag : name -> the ledger's code of a tag.
    round : of its rows.

    Raises
    ------
    ValueError : a party has read what nobody sent.
    """
    index = {name: place for place, name in enumerate(parties)}
    rows: list[tuple[float, ...]] = []
    numbers: dict[tuple[str, str], int] = defaultdict(int)
    unread: dict[tuple[str, str, str], list[int]] = defaultdict(list)  # sender, receiver, tag -> messages
    events: dict[str, list[tuple[float, ...]]] = {name: [] for name in tapes}
    for name, tape in tapes.items():
        for event in tape:
            if len(event) == 4:
                peer, label, nbytes, vectors = event
                number = numbers[name, peer]
                numbers[name, peer] += 1
                unread[name, peer, label].append(number)
                rows.append(
                    (round, index[name], index[peer], kind(name, peer), tag(label), nbytes, vectors, 0, 0, number)
                )
    sent: dict[tuple[str, str], int] = defaultdict(int)
    for name, tape in tapes.items():
        for event in tape:
            peer, label = event[:2]
            if len(event) == 4:
                events[name].append((SEND, index[peer], sent[name, peer], 0.0, 0.0))
                sent[name, peer] += 1
            elif not (waiting := unread[peer, name, label]):
                raise ValueError(f"{name} has read a message {label!r} of {peer}, who sent none")
            else:
                events[name].append((RECV, index[peer], waiting.pop(0), 0.0, 0.0))
    return Exchange(
        np.array(rows, dtype=np.float64).reshape(-1, len(LEDGER_FIELDS)),
        {name: np.array(own, dtype=np.float64).reshape(-1, len(TRACE_FIELDS)) for name, own in events.items()},
    )


def one_by_one(messages: Iterable[Sized]) -> dict[str, list[Event]]:
    """The tapes of messages that are sent, and read at once, in this order."""
    tapes: dict[str, list[Event]] = defaultdict(list)
    for src, dst, tag, nbytes in messages:
        tapes[src].append((dst, tag, nbytes, 1))
        tapes[dst].append((src, tag))
    return tapes


def setup(ledger: np.ndarray, traces: Mapping[str, np.ndarray], parties: Sequence[str]) -> Exchange:
    """What a run sent before its first round, without computing.

    A pair's messages of round 0 are its first ones.
    """
    rows = ledger[ledger[:, COLUMN["round"]] == 0]
    if not len(rows):
        return NOTHING
    count = len(parties)
    first = np.zeros((count, count), dtype=np.int64)
    np.add.at(first, (rows[:, COLUMN["src"]].astype(int), rows[:, COLUMN["dst"]].astype(int)), 1)
    found = {}
    for place, name in enumerate(parties):
        trace = traces[name]
        kind, peer, seq = (trace[:, TRACE_COLUMN[key]] for key in ("kind", "peer", "seq"))
        other = np.where((kind == SEND) | (kind == RECV), peer, 0).astype(int)
        early = np.where(kind == SEND, first[place, other], first[other, place])
        found[name] = trace[((kind == SEND) | (kind == RECV)) & (seq < early)]
    return Exchange(rows, found)
