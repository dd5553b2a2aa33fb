"""Bringing the rows of several files together, as tabular_files.py describes it."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from vflbench.data.columns import inspection, judging
from vflbench.data.matching import DIGEST, PLACE
from vflbench.data.readers import identifiers
from vflbench.data.readers.cells import Wrong
from vflbench.data.readers.table_sources import ReadTable
from vflbench.data.tabular import positions
from vflbench.types import DataError

Sent = tuple[int, int, str, int]  # a message: part of the sender, of the receiver, tag, bytes
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Alignment:
    """How the files' rows belong together."""

    rows: list[np.ndarray | slice]  # per file, in an order in which row i is the same sample in all
    note: str
    messages: tuple[Sent, ...]  # for DataSource
    #: per file the columns that showed that the order is right: they name rows, and are no features
    named: tuple[frozenset[str], ...]


def align(
    ids: Sequence[Sequence[str]],
    how: str,
    tables: Sequence[ReadTable],
    looked_at: Sequence[Sequence[str]],
) -> Alignment:
    """How the files' rows are brought together.

    Parameters
    ----------
    ids : per file the columns whose values together identify a sample; none: row i of all files is the same sample.
    how : ``dataset.alignment``.
    looked_at : per file the names of columns that may show how rows belong together.

    Raises
    ------
    DataError : the rows or the IDs do not match.
    """
    if not any(ids):
        return _by_position(tables, looked_at)
    none = tuple(frozenset[str]() for _ in tables)
    files = Files(ids, tables, looked_at)
    every = [_checked(*own, files) for own in zip(tables, ids, strict=True)]
    if len(tables) == 1:
        return Alignment([slice(None)], "", (), none)
    column = " and ".join(dict.fromkeys(_listed(own) for own in ids))
    first, places = every[0], [own.of for own in every]
    for table, other in zip(tables[1:], every[1:], strict=True):
        for told in near(tables[0], first, table, other):
            log.warning("%s", told)
        _refuse_apart(tables[0], first, table, other, column)
    messages: list[Sent] = []
    if how != "given":
        match, name = (_intersect, "private set intersection") if how == "psi" else (_hash, "hashed IDs")
        kept, messages = match([list(own) for own in places])
        if not kept:
            raise DataError(f"no ID in column {column} is in all of {', '.join(map(str, tables))}")
        had = ", ".join(str(len(own)) for own in places)
        note = f"{name} kept {len(kept)} IDs of {had}, with {sum(size for *_, size in messages)} bytes before the run"
    else:
        kept, note = list(first.of), f"aligned by {column}"
        for table, other in zip(tables[1:], every[1:], strict=True):
            _refuse_unlike(tables[0], first, table, other)
    rows: list[np.ndarray | slice] = [np.array([own[name] for name in kept]) for own in places]
    return Alignment(rows, note, tuple(messages), none)


def _by_position(tables: Sequence[ReadTable], looked_at: Sequence[Sequence[str]]) -> Alignment:
    none = tuple(frozenset[str]() for _ in tables)
    if len(tables) == 1:
        return Alignment([slice(None)], "", (), none)
    first, shared = tables[0], positions.shared(tables, looked_at)
    for table in tables[1:]:
        if table.rows != first.rows:
            advice = "without dataset.id row i of all files must be the same sample; name the column of the IDs"
            advice += "".join(f", perhaps {positions.key(pair, tables)}" for pair in shared[:1])
            raise DataError(f"{first} has {first.rows} rows and {table} has {table.rows}: {advice}")
    named: list[set[str]] = [set() for _ in tables]
    for pair in shared:
        if pair.row is not None:
            raise DataError(positions.disproof(pair, tables))
        for file, columns in zip(pair.files, pair.columns, strict=True):
            if pair.names:
                named[file].update(columns)
    proved = {file for pair in shared if pair.proves for file in pair.files}
    for file, (table, names) in enumerate(zip(tables, looked_at, strict=True)):
        if file not in proved and (found := positions.shuffled(table.columns, names)) is not None:
            raise DataError(positions.of_shuffled(table, *found))
    note = "aligned by the order of their rows"
    if any(named):
        note += f", which {positions.called(sorted(set().union(*named)))} confirms"
    return Alignment([slice(None)] * len(tables), note, (), tuple(map(frozenset, named)))


def _refuse_apart(table: ReadTable, rows: Rows, other: ReadTable, others: Rows, column: str) -> None:
    """Refuse files that have no ID in common."""
    if rows.of.keys().isdisjoint(others.of):
        ends = " and ".join(identifiers.quoted_pair(*(own.written(next(iter(own.of))) for own in (rows, others))))
        raise DataError(f"{table} and {other} have no ID in common in column {column}, whose first ones are {ends}")


def _refuse_unlike(table: ReadTable, rows: Rows, other: ReadTable, others: Rows) -> None:
    """Refuse files of which one has IDs that the other lacks."""
    for (has, held), (lacks, there) in itertools.permutations(((table, rows), (other, others))):
        if only := [name for name in held.of if name not in there.of]:
            advice = "use dataset.alignment=psi or hashed, which keep the samples that all have"
            found = f"{len(only)} IDs of {has}, the first of them {only[0]!r}"
            raise DataError(f"{found}, are not in {lacks}; {advice}")


def near(table: ReadTable, rows: Rows, other: ReadTable, others: Rows) -> Iterator[str]:
    """Name IDs of two files that differ only in how they are written, a sentence for each kind of difference."""
    for kind, pairs in identifiers.near(rows.of, others.of):
        pair = " and ".join(identifiers.quoted_pair(rows.written(pairs[0][0]), others.written(pairs[0][1])))
        yield f"{len(pairs)} IDs of {table} and {other} differ only in {kind}, as {pair}; they are not matched"


def _checked(table: ReadTable, columns: Sequence[str], files: Files) -> Rows:
    rows = rows_of(table, columns, files)
    if rows.wrong:
        raise DataError(rows.wrong[0])
    for note in rows.notes:
        log.info("%s", note)
    return rows


@dataclass(frozen=True)
class Files:
    """All files, each with the columns of its IDs, and those that may show how rows belong together."""

    ids: Sequence[Sequence[str]]
    tables: Sequence[ReadTable]
    looked_at: Sequence[Sequence[str]]

    def told_apart(self) -> str:
        """The end of a message about an ID of several rows: how these can be told apart."""
        if len(self.tables) == 1:
            whose = self.ids[0][0]
            return f"; each ID must be there once. If {whose} says whose rows they are, {ENTITY.format(whose)}"
        for name in self.looked_at[0]:
            if not any(name in own for own in self.ids) and self._tells_apart(name):
                alike = all([*own] == [*self.ids[0]] for own in self.ids)
                how = f"type {positions.typed('id', [*self.ids[0], name])}" if alike else f"add it to {EACH}"
                return f"; column {name} tells such rows apart: {how}"
        return "; each ID must be there once in each file"

    def _tells_apart(self, name: str) -> bool:
        """Whether the column, which all files have, names their rows together with the IDs."""
        held = [table.columns for table in self.tables]
        known = zip(self.looked_at, held, strict=True)
        if not all(name in own and positions.may_identify(cells[name]) for own, cells in known):
            return False
        one, *others = ([cells[column] for column in (*own, name)] for own, cells in zip(self.ids, held, strict=True))
        for other in others:
            parts = [positions.coded(*pair) for pair in zip(one, other, strict=True)]
            known_parts = [part for part in parts if part is not None]
            if len(known_parts) < len(parts) or positions.together(known_parts, len(one[0].values), least=0) is None:
                return False
        return True


EACH = "the id of each file in dataset.files"
ENTITY = "type dataset.entity={0} in place of dataset.id: no {0} is then in two parts"


@dataclass(frozen=True)
class Rows:
    """The rows of a file by their IDs."""

    of: dict[str, int]  # ID -> row, in the order of the rows
    parts: Sequence[identifiers.Ids]  # per column
    wrong: list[str]  # rows without an ID, IDs that are there twice, and rounded ones
    notes: list[str]  # what was ignored in all IDs

    def written(self, name: str) -> str:
        """An ID as its file has it."""
        return one([str(part.raw[self.of[name]]) for part in self.parts])


def rows_of(table: ReadTable, columns: Sequence[str], files: Files | None = None) -> Rows:
    """The rows of a file by their IDs, which the `columns` have together, and what is wrong with them."""
    parts, notes, named = list[identifiers.Ids](), list[str](), f"column {_listed(columns)}"
    for column in columns:
        try:
            parts.append(identifiers.ids(table.columns[column]))
        except Wrong as error:
            return Rows(
                {},
                parts,
                [f"{table.place(error.row)}, column {judging.named(column)}: {error.reason}"],
                [],
            )
        notes += [f"{table}, column {column}: {parts[-1].note}"] if parts[-1].note else []
    places: dict[str, int] = {}
    none, again = list[int](), list[int]()
    for row, cells in enumerate(zip(*(part.values for part in parts), strict=True)):
        if None in cells:
            none.append(row)
        elif places.setdefault(one(cells), row) != row:
            again.append(row)
    wrong = []
    if none:
        wrong.append(f"{table.place(none[0])}, {named}: no ID{inspection.others(table.source, none)}")
    if again:
        name = one([part.values[again[0]] for part in parts])
        before, now = (one([str(part.raw[row]) for part in parts]) for row in (places[name], again[0]))
        told = f"the ID {name!r} is there twice"
        if before != now:
            told += f": {identifiers.alike(before, now)}"
        advice = files.told_apart() if files and before == now else ""
        wrong.append(f"{table.place(again[0])}, {named}: {told}{inspection.others(table.source, again)}{advice}")
    return Rows(places, parts, wrong, notes)


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(map(judging.named, columns))


def one(cells: Sequence[str]) -> str:
    """The cells of several columns as one ID, a list in JSON, so that no two IDs are one text."""
    return cells[0] if len(cells) == 1 else json.dumps(list(cells), ensure_ascii=False)


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
