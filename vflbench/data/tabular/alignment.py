"""Bringing the rows of several files together, as tabular_files.py describes it."""

import contextlib
import hashlib
import itertools
import logging
from collections.abc import Collection, Iterator, Sequence

import numpy as np

from vflbench.data.matching import DIGEST, PLACE
from vflbench.data.relational import sql_sources
from vflbench.data.relational.cells import Column
from vflbench.data.relational.sql_sources import Source
from vflbench.data.tabular import inspection
from vflbench.types import DataError

Sent = tuple[int, int, str, int]  # a message: part of the sender, of the receiver, tag, bytes
log = logging.getLogger(__name__)


def align(
    column: str | None,
    how: str,
    sources: Sequence[Source],
    held: Sequence[dict[str, Column]],
    features: Sequence[Sequence[str]],
) -> tuple[list[np.ndarray | slice], str, list[Sent]]:
    """How the files' rows are brought together.

    Parameters
    ----------
    column : of the IDs; None: row i of all files is the same sample.
    how : ``dataset.alignment``.
    held, features : per file its columns, and the names of those to learn from.

    Returns
    -------
    per file its rows, in an order in which row i is the same sample in all; a note and messages for DataSource.

    Raises
    ------
    DataError : the rows or the IDs do not match.
    """
    if column is None:
        counts = [len(columns[own[0]].values) for columns, own in zip(held, features, strict=True)]
        for source, count in zip(sources[1:], counts[1:], strict=True):
            if count != counts[0]:
                advice = "without dataset.id row i of all files must be the same sample; name the column of the IDs"
                raise DataError(f"{sources[0]} has {counts[0]} rows and {source} has {count}: {advice}")
        return [slice(None)] * len(sources), "aligned by the order of their rows" if len(sources) > 1 else "", []
    places = [_row_of(source, columns[column], column) for source, columns in zip(sources, held, strict=True)]
    if len(sources) == 1:
        return [slice(None)], "", []
    first = places[0]
    for source, other in zip(sources[1:], places[1:], strict=True):
        _warn_of_near(sources[0], first, source, other)
        if first.keys().isdisjoint(other):
            raise DataError(
                f"{sources[0]} and {source} have no ID in common in column {column}, "
                f"whose first ones are {next(iter(first))!r} and {next(iter(other))!r}"
            )
    messages: list[Sent] = []
    if how != "given":
        match, name = (_intersect, "private set intersection") if how == "psi" else (_hash, "hashed IDs")
        kept, messages = match([list(own) for own in places])
        if not kept:
            raise DataError(f"no ID in column {column} is in all of {', '.join(map(str, sources))}")
        had = ", ".join(str(len(own)) for own in places)
        note = f"{name} kept {len(kept)} IDs of {had}, with {sum(size for *_, size in messages)} bytes before the run"
    else:
        kept, note = list(first), f"aligned by {column}"
        for source, other in zip(sources[1:], places[1:], strict=True):
            for (has, held_ids), (lacks, others) in itertools.permutations(((sources[0], first), (source, other))):
                if only := [name for name in held_ids if name not in others]:
                    advice = "use dataset.alignment=psi or hashed, which keep the samples that all have"
                    found = f"{len(only)} IDs of {has}, the first of them {only[0]!r}"
                    raise DataError(f"{found}, are not in {lacks}; {advice}")
    return [np.array([own[name] for name in kept]) for own in places], note, messages


def _warn_of_near(source: Source, ids: Collection[str], other: Source, others: Collection[str]) -> None:
    """Warn of IDs of two files that differ only in how they are written."""
    lacking, there = ([name for name in own if name not in more] for own, more in ((ids, others), (others, ids)))
    known = {_plain(name): name for name in there}
    if near := [(name, known[_plain(name)]) for name in lacking if _plain(name) in known]:
        differ = "differ only in blanks, capitals, leading zeros or a final .0"
        log.warning("%d IDs of %s and %s %s, as %r and %r", len(near), source, other, differ, *near[0])


def _plain(name: str) -> str:
    return name.strip().casefold().removesuffix(".0").lstrip("0")


def _row_of(source: Source, ids: Column, column: str) -> dict[str, int]:
    places, wrong = rows_of(source, ids, column)
    if wrong:
        raise DataError(wrong[0])
    return places


def rows_of(source: Source, ids: Column, column: str) -> tuple[dict[str, int], list[str]]:
    """ID -> row, in the order of the rows; and what is wrong: rows without an ID, and IDs that are there twice."""
    places: dict[str, int] = {}
    none, again = np.flatnonzero(ids.null).tolist(), []
    for row in np.flatnonzero(~ids.null).tolist():
        if places.setdefault(ids.values[row], row) != row:
            again.append(row)
    wrong = []
    for rows, what in ((none, "no ID"), (again, again and f"the ID {ids.values[again[0]]!r} is there twice")):
        if rows:
            where = f"{sql_sources.place(source, rows[0])}, column {column}"
            wrong.append(f"{where}: {what}{inspection.others(source, rows)}")
    return places, wrong


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Let nothing be said of how rows are matched, where that is only tried."""
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


def _hash(parties: Sequence[Sequence[str]]) -> tuple[list[str], list[Sent]]:
    """As `_intersect`, by the SHA-256 of the IDs."""
    log.warning(
        "dataset.alignment=hashed: who can guess an ID can find it by trying hashes (names, dates of birth, numbers of "
        "few digits); dataset.alignment=psi tells nothing of the others' IDs"
    )
    owner, *others = ({hashlib.sha256(name.encode()).digest(): name for name in own} for own in parties)
    kept = [name for digest, name in owner.items() if all(digest in other for other in others)]
    sent = [(k, 0, "hashes", DIGEST * len(other)) for k, other in enumerate(others, start=1)]
    return kept, sent + [(0, k, "kept", PLACE * len(kept)) for k in range(1, len(parties))]


def _intersect(parties: Sequence[Sequence[str]]) -> tuple[list[str], list[Sent]]:
    """The IDs of the first party that all others have, in its order, and the messages that it took."""
    try:
        import private_set_intersection.python as psi
    except ImportError as error:
        raise DataError(f"dataset.alignment=psi cannot be used here ({error}): pip install 'vflbench[psi]'") from None
    owner, *others = parties
    sent, common = dict[str, list[Sent]](), np.full(len(owner), len(others))
    for k, other in enumerate(others, start=1):
        log.info("private set intersection of %d and %d IDs", len(owner), len(other))
        client, server = psi.client.CreateWithNewKey(True), psi.server.CreateWithNewKey(True)
        # RAW: the encrypted IDs themselves, so there are no false positives; the rate is for the other structures.
        setup = server.CreateSetupMessage(1e-9, len(owner), list(other), psi.DataStructure.RAW)
        request = client.CreateRequest(list(owner))
        response = server.ProcessRequest(request)
        common[client.GetIntersection(setup, response)] -= 1
        for tag, message in (("psi_setup", setup), ("psi_request", request), ("psi_response", response)):
            ends = (0, k) if message is request else (k, 0)
            sent.setdefault(tag, []).append((*ends, tag, len(message.SerializeToString())))
    kept = [name for name, missing in zip(owner, common, strict=True) if not missing]
    every = [message for messages in sent.values() for message in messages]  # all setups, then all requests, ...
    return kept, every + [(0, k, "kept", DIGEST * len(kept)) for k in range(1, len(parties))]
