"""Relational: tables, and a join that no party stores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from vflbench.data import shipping
from vflbench.data.tasks.base import Table, Task, no_rows, replace_at, some
from vflbench.data.tasks.join import hand_over, join, unite


@dataclass(frozen=True)
class Equality:
    """A join predicate `left` = `right`, each a (table, key column).

    Several between the same two tables make a composite key.
    """

    left: tuple[str, str]
    right: tuple[str, str]


@dataclass(frozen=True)
class RelationalPublic:
    """What every party of a relational task may know: the schema of the join, but no rows and no sizes."""

    tables: tuple[str, ...]  #: in the order of the organisations: one table each
    label_table: str  #: the one whose owner has the labels
    joins: tuple[Equality, ...]  #: an inner join
    classes: int  #: 0: regression
    #: per table the numbers of the clients that hold its horizontal parts, in the rows' order
    parts: tuple[tuple[int, ...], ...]

    @property
    def outputs(self) -> int:
        """d_c: width of a prediction, the number of classes, or 1 for regression."""
        return self.classes or 1

    @property
    def blocks(self) -> int:
        """M: how many tables share a prediction."""
        return len(self.tables)

    @property
    def owner(self) -> int:
        """The number of the label table."""
        return self.tables.index(self.label_table)

    def key_columns(self, table: str) -> tuple[str, ...]:
        """The join's columns of `table` in alphabetical order, in which its clients hand over keys."""
        sides = {side for equality in self.joins for side in (equality.left, equality.right)}
        return tuple(sorted(column for name, column in sides if name == table))

    def table_of(self, client: int) -> int:
        """The number of the table that client `client` has a part of."""
        return next(i for i, clients in enumerate(self.parts) if client in clients)


@dataclass(frozen=True)
class RelationalPart:
    """One client's horizontal part of one organisation's table: training rows, and held-out rows apart."""

    table: str
    #: key column -> (n,) as stored: integers, floats, text (object), dates; None or NaN: NULL
    keys: Mapping[str, np.ndarray]
    features: np.ndarray  #: (n, d) float32 or float64, imputed and standardised; may be memory-mapped
    labels: np.ndarray | None = None  #: label table: (n,) float64 targets, or int64 classes 0 .. classes - 1
    #: label table: val | test -> features of those rows
    held_out: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Training rows."""
        return len(self.features)


@dataclass(frozen=True)
class HeldOut:
    """The joined rows of a split, for scoring outside the federation."""

    #: per table (N_s,) int64: which row; of the label table: which of the split's rows, all parts together
    rows: tuple[np.ndarray, ...]
    labels: np.ndarray  #: (N_s,)


@dataclass(frozen=True)
class RelationalTask(Task):
    """Tables of organisations, each in horizontal parts at its clients, and how they join.

    The joined table is stored nowhere. A split divides the rows of the label table; the other tables serve all splits.
    """

    tables: tuple[str, ...]
    label_table: str
    joins: tuple[Equality, ...]
    clients: tuple[RelationalPart, ...]  #: table by table, each in the order of its rows
    held_out: Mapping[str, HeldOut]  #: val | test

    @property
    def public(self) -> RelationalPublic:
        """What every party may know."""
        parts = tuple(tuple(c for c, part in enumerate(self.clients) if part.table == table) for table in self.tables)
        return RelationalPublic(self.tables, self.label_table, self.joins, self.classes, parts)

    def block(self, client: int) -> tuple[int, np.ndarray]:
        """The number of the table that client `client` has a part of, and that part's features."""
        return self.public.table_of(client), self.clients[client].features

    def sample(self, rows: int, rng: np.random.Generator) -> list[np.ndarray]:
        """Features of a sample of joined rows, those of about `rows` training rows of the label table.

        Returns
        -------
        per table (k, d_i): row j belongs to joined row j.
        """
        keys, features = {}, []
        for table, clients in zip(self.tables, self.public.parts, strict=True):
            parts = [self.clients[client] for client in clients]
            total = sum(part.rows for part in parts)
            share = min(1.0, rows / total) if table == self.label_table else 1.0
            chosen = [np.sort(rng.choice(part.rows, round(share * part.rows), replace=False)) for part in parts]
            columns = [{c: v[own] for c, v in part.keys.items()} for part, own in zip(parts, chosen, strict=True)]
            keys[table] = unite(
                [hand_over(c, len(own), "none", table) for c, own in zip(columns, chosen, strict=True)], table
            )
            features.append(np.concatenate([part.features[own] for part, own in zip(parts, chosen, strict=True)]))
        behind = join(keys, self.joins, self.label_table)
        return [block[behind[table]] for table, block in zip(self.tables, features, strict=True)]

    def training_labels(self) -> np.ndarray:
        """Labels of the label table's training rows, part by part."""
        return np.concatenate([part.labels for part in self.clients if part.labels is not None])

    @property
    def units(self) -> int:
        """The rows of the largest part of a table."""
        return max(part.rows for part in self.clients)

    def training_features(self) -> dict[str, list[np.ndarray]]:
        """Each table's features, part by part."""
        held: dict[str, list[np.ndarray]] = {}
        for part in self.clients:
            held.setdefault(f"table {part.table}", []).append(part.features)
        return held

    @property
    def divided_among(self) -> tuple[str, ...]:
        """All tables."""
        return tuple(f"table {table}" for table in self.tables)

    def shipped(self) -> dict[str, shipping.Size]:
        """Features and keys of all tables but the label table."""
        return {
            f"client {c}": table_size(part.features, part.keys)
            for c, part in enumerate(self.clients)
            if part.table != self.label_table
        }

    def table(self, split: str, rng: np.random.Generator | None = None, share: float = 1.0) -> Table | None:
        """The joined rows of a split, the tables' columns side by side; None where there are none."""
        if split == "train":
            behind = self.joined_rows()
        elif split in self.held_out:
            behind = dict(zip(self.tables, self.held_out[split].rows, strict=True))
        else:
            return None
        rows = some(len(behind[self.label_table]), rng, share)
        blocks = []
        for table, clients in zip(self.tables, self.public.parts, strict=True):
            parts = [self.clients[client] for client in clients]
            apart = split != "train" and table == self.label_table
            whole = np.concatenate([part.held_out[split] if apart else part.features for part in parts])
            blocks.append(whole[behind[table][rows]])
        labels = self.training_labels()[behind[self.label_table]] if split == "train" else self.held_out[split].labels
        return Table(tuple(blocks), labels[rows], self.public.owner)

    def joined_rows(self) -> dict[str, np.ndarray]:
        """Table -> its row behind every joined training row."""
        keys = {}
        for table, clients in zip(self.tables, self.public.parts, strict=True):
            parts = [self.clients[client] for client in clients]
            keys[table] = unite([hand_over(part.keys, part.rows, "none", table) for part in parts], table)
        return join(keys, self.joins, self.label_table)

    def label_sums(self, client: int) -> np.ndarray:
        """Sums of labels (n, 1), or counts of classes (n, k), of joined training rows behind each row of a client."""
        behind, table = self.joined_rows(), self.clients[client].table
        labels, same = self.training_labels()[behind[self.label_table]], [c for c in self.clients if c.table == table]
        first = sum(part.rows for part in self.clients[:client] if part.table == table)
        weights = np.eye(self.classes)[labels].T if self.classes else labels[None]
        sums = [np.bincount(behind[table], own, sum(part.rows for part in same)) for own in weights]
        return np.stack(sums, axis=1)[first : first + self.clients[client].rows]

    @property
    def label_owners(self) -> tuple[int, ...]:
        """Numbers of the clients that have labels."""
        return self.public.parts[self.public.owner]

    def truth(self, split: str) -> np.ndarray | None:
        """Labels of the split's joined rows, (N_s,)."""
        return self.held_out[split].labels if split in self.held_out else None

    def combine(self, split: str, partial: Sequence[Mapping[str, np.ndarray]]) -> np.ndarray:
        """Predictions of the joined rows of `split`, (N_s, d_c): the sum of each table's, for its row in the join.

        Parameters
        ----------
        partial : per client, in their order: `rows` -> (n, d_c) of all its rows. Clients of the label table have `val`
            and `test` instead, of their held-out rows.
        """
        total = 0.0
        for table, clients, rows in zip(self.tables, self.public.parts, self.held_out[split].rows, strict=True):
            key = split if table == self.label_table else "rows"
            total = total + np.concatenate([partial[client][key] for client in clients])[rows]
        return np.asarray(total)

    def without_features(self) -> Self:
        """What the driver may hold: the join of held-out rows, for `combine`, but no keys."""
        clients = [
            replace(part, keys={}, features=no_rows(part.features), labels=None, held_out={}) for part in self.clients
        ]
        return replace(self, clients=tuple(clients))

    def own_files(self, dataset: Any) -> bool:
        """Every table has sources of its own."""
        return True

    def facts_for(self, index: int | None, labelled: bool) -> Self:
        """No labels, which are in the label table's own source, and no held-out joined rows."""
        return replace(self.without_features(), held_out={})

    def with_part(self, whole: Self, index: int) -> Self:
        """With the part of client `index`."""
        return replace(self, clients=replace_at(self.clients, index, whole.clients[index]))


def table_size(features: np.ndarray, keys: Mapping[str, np.ndarray]) -> shipping.Size:
    """What sending a table takes: its rows and its keys."""
    return shipping.together([shipping.rows(features), *map(shipping.keys, keys.values())])
