"""How the rows of the user's own tables are divided: what of the labels' file decides it, and what came of it."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vflbench.cards.data.tabular.tabular_files import OwnKeys
from vflbench.data.columns import judging, row_facts
from vflbench.data.divide import splits
from vflbench.data.readers.table_sources import ReadTable
from vflbench.data.tabular import table
from vflbench.data.tabular.table import Table

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RowFacts:
    """Of each row of the labels' file, what its split depends on beside its label."""

    times: np.ndarray | None  #: (n,) later is larger
    entities: np.ndarray | None  #: (n,) int64, equal for rows of one entity

    def of_rows(self, rows: np.ndarray | slice) -> "RowFacts":
        """Those of some rows."""
        return RowFacts(*(None if known is None else known[rows] for known in (self.times, self.entities)))


def facts(config: OwnKeys, file: ReadTable, used: np.ndarray) -> RowFacts:
    """The times and the entities of the labels' file, as far as the split needs them.

    Parameters
    ----------
    used : rows that are divided, or train.

    Raises
    ------
    DataError : one of these rows has no time, or no entity. Names file and line.
    """
    words, sign = config.missing_words, file.decimal
    named = filter(None, (config.time, config.entity))
    known = {name: judging.without_words(file.columns[name], words, sign) for name in named}
    return RowFacts(
        row_facts.times(known[config.time], config.time, file.place, used, config.dates) if config.time else None,
        row_facts.entities(known[config.entity], config.entity, file.place, used) if config.entity else None,
    )


def divided(
    config: OwnKeys,
    whole: Table,
    file: ReadTable,
    rows: np.ndarray,
    more: np.ndarray,
    seed: int,
) -> tuple[Table, np.ndarray]:
    """The table with its splits, and which of further rows may train.

    Parameters
    ----------
    whole : `rows` of the labels' `file`, in this order.
    more : (m,) rows of the file that only the labels' owner has, with labels, and that are to train, too.

    Returns
    -------
    the table; (m,) bool, and a warning says how many cannot train.

    Raises
    ------
    DataError : see `facts` and `splits.draw`.
    """
    every = facts(config, file, np.union1d(rows, more))
    known, own = every.of_rows(rows), every.of_rows(more)
    whole = replace(whole, times=known.times, entities=known.entities)
    drawn = table.drawn(config, whole, seed)
    allowed = _may_train(len(more), own, known, drawn)
    if lost := int((~allowed).sum()):
        reason = "they are later than the training rows, or of entities that are held out"
        log.warning("%d labelled rows without a match in every file do not train: %s", lost, reason)
    return replace(whole, splits=drawn), allowed


def _may_train(count: int, own: RowFacts, known: RowFacts, drawn: Mapping[str, np.ndarray]) -> np.ndarray:
    """Which of `count` rows may train, too: none later than these, none of a held-out entity."""
    allowed = np.full(count, True)
    if own.times is not None and known.times is not None:
        allowed &= own.times <= known.times[drawn["train"]].max()
    if own.entities is not None and known.entities is not None:
        apart = [known.entities[rows] for split, rows in drawn.items() if split != "train"]
        allowed &= ~np.isin(own.entities, np.concatenate(apart))
    return allowed


def with_split_sizes(
    config: OwnKeys, about: tuple[dict[str, Any], ...], whole: Table, values: np.ndarray
) -> tuple[dict[str, Any], ...]:
    """What was made of the files, with the rows and classes of each part under the key `splits` of the first one.

    Parameters
    ----------
    values : (n,) the labels as the file has them, of the rows of the table.
    """
    assert whole.splits is not None
    codes, first = np.unique(whole.labels, return_index=True)
    names = {int(code): str(values[row]) for code, row in zip(codes, first, strict=True)} if whole.classes else {}
    made = splits.counts(config.plan, whole.splits, whole.labels, names)
    return ({**about[0], "splits": made}, *about[1:])
