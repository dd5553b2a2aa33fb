"""The table mapping as messages, and the view of the join that the server works with.

Xu et al.: TablePuppet, arXiv 2403.15839, section 4. Once, before training, clients send (hashed key, row id) of their
rows, and the label owner's clients send their labels. The server unites horizontal parts, joins the keys, and tells
every client which of its rows join, and how often (G). Two messages are not the paper's: the kind of each key
(`kinds`), and the number of rows of the join (`joined`). From then on "a row" is one that joins; rows that do not join
have weight 0 and get no message.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vflbench.cards.algorithms.joins import rfl_sgd, rfl_sgd_v
from vflbench.cards.privacy.keys import trains_privately
from vflbench.data.tasks import RelationalPart, RelationalPublic
from vflbench.data.tasks.join import Keys, hand_over, join, unite
from vflbench.federation.party import SERVER, Party
from vflbench.privacy import tables
from vflbench.privacy.gradients import NoisyGradients, poisson, rehearsed
from vflbench.types import DataError, RunConfig

Batched = rfl_sgd.Config | rfl_sgd_v.Config
FEW = 0.1  # where a smaller share of a table's rows joins, the join is probably wrong
log = logging.getLogger(__name__)
MOST_KEPT = 50_000_000  # numbers in the gathered batches of one client: 200 MB of float32
KINDS = ("number", "text", "date", "empty")


# --- client -----------------------------------------------------------------------------------------------------------


async def send_keys(me: Party, data: RelationalPart, public: RelationalPublic, labels: np.ndarray | None) -> None:
    """Hand over keys, and labels if there are any, and keep the answer in `me.state`: `rows`, `counts`, `joined`.

    Parameters
    ----------
    labels : of the same rows; None: not this client's.
    """
    keys = hand_over(data.keys, data.rows, "sha256", data.table)
    columns = public.key_columns(data.table)
    for column in columns:
        if column not in keys.columns:
            raise DataError(f"table {data.table} has no key column {column!r}; it has {', '.join(keys.columns)}")
    await me.send(SERVER, (keys.rows, keys.ids, *(keys.columns[column] for column in columns)), tag="keys")
    await me.send(SERVER, tuple(KINDS.index(keys.kinds[column]) for column in columns), tag="kinds")
    if labels is not None:
        await me.send(SERVER, labels, tag="labels")
    me.state.rows, me.state.counts = await me.recv(SERVER, tag="mapping")  # which rows join, ascending, and G of each
    me.state.joined = await me.recv(SERVER, tag="joined")  # N


# --- server -----------------------------------------------------------------------------------------------------------


async def map_tables(me: Party, public: RelationalPublic) -> dict[str, Any]:
    """Collect keys, join them, and answer every client.

    Returns
    -------
    The mapping as plain arrays, to be kept in `me.state`.

    Raises
    ------
    DataError : as `join`.
    """
    received = await me.recv_all(me.clients, tag="keys")
    kinds = await me.recv_all(me.clients, tag="kinds")
    parts = []
    for client, ((count, ids, *numbers), kind) in enumerate(zip(received, kinds, strict=True)):
        columns = public.key_columns(public.tables[public.table_of(client)])
        named = {column: KINDS[k] for column, k in zip(columns, kind, strict=True)}
        parts.append(Keys(count, ids, dict(zip(columns, numbers, strict=True)), named))
    owners = public.parts[public.tables.index(public.label_table)]
    labels = np.concatenate(await me.recv_all([me.clients[c] for c in owners], tag="labels"))

    tables = {
        table: unite([parts[c] for c in clients], table)
        for table, clients in zip(public.tables, public.parts, strict=True)
    }
    behind = join(tables, public.joins, public.label_table)
    joined = {name: len(np.unique(behind[name])) for name in tables}
    shares = ", ".join(f"{joined[name]} of {keys.rows} of {name}" for name, keys in tables.items())
    log.info("the join has %d rows, from %s", len(behind[public.label_table]), shares)
    for name, keys in tables.items():
        if joined[name] < FEW * keys.rows:
            log.warning(
                "only %d of the %d rows of table %s join: are the predicates right?", joined[name], keys.rows, name
            )
    y = labels[behind[public.label_table]]
    rows, held = [], []
    for table, clients in zip(public.tables, public.parts, strict=True):
        counts = np.bincount(behind[table], minlength=tables[table].rows)
        ids = np.flatnonzero(counts)  # rows of the table that join
        renumbered = np.cumsum(counts > 0) - 1
        rows.append(renumbered[behind[table]])
        starts = np.cumsum([0, *(parts[c].rows for c in clients)])
        bounds = np.searchsorted(ids, starts)
        held.append(np.diff(bounds))
        for at, c in enumerate(clients):
            own = ids[bounds[at] : bounds[at + 1]]
            await me.send(me.clients[c], (own - starts[at], counts[own]), tag="mapping")
            await me.send(me.clients[c], len(y), tag="joined")
    return {"rows": rows, "held": held, "labels": y}


@dataclass(frozen=True)
class Join:
    """What the server knows of the join, or of some of its rows: p_i and G_i, without features."""

    rows: tuple[Tensor, ...]  # per table (N,) int64: p_i, into the table's rows that join
    held: tuple[tuple[int, ...], ...]  # per table and client: how many of these rows it holds, in order

    @classmethod
    def from_mapping(cls, mapping: dict[str, Any], device: str) -> Join:
        """The whole join, from what `map_tables` returns."""
        rows = tuple(torch.from_numpy(r).to(device) for r in mapping["rows"])
        return cls(rows, tuple(tuple(int(n) for n in held) for held in mapping["held"]))

    def batch(self, chosen: np.ndarray | slice) -> tuple[Join, tuple[np.ndarray, ...]]:
        """The join restricted to the joined rows `chosen`, and per table its rows behind them, ascending (alpha_i)."""
        needed, inside, held = [], [], []
        for rows, sizes in zip(self.rows, self.held, strict=True):
            distinct, inverse = np.unique(rows[chosen].cpu().numpy(), return_inverse=True)
            needed.append(distinct)
            inside.append(torch.from_numpy(inverse).to(rows.device))
            bounds = np.searchsorted(distinct, np.cumsum([0, *sizes]))
            held.append(tuple(int(n) for n in np.diff(bounds)))
        return Join(tuple(inside), tuple(held)), tuple(needed)

    def held_of(self, batch: Join, needed: Sequence[np.ndarray]) -> Iterator[np.ndarray]:
        """Per client, the rows behind a batch, counted among its own rows that join.

        Parameters
        ----------
        batch, needed : as the method `batch` returns them.
        """
        for distinct, sizes, held in zip(needed, batch.held, self.held, strict=True):
            starts = np.cumsum([0, *held])
            for number, rows in enumerate(np.split(distinct, np.cumsum(sizes)[:-1])):
                yield rows - starts[number]

    def expand(self, table: int, values: Tensor) -> Tensor:
        """(N, d_c): for every joined row the value of the row of `table` behind it."""
        if values.shape[1] == 1:  # torch takes ten times as long for a matrix of one column as for a vector
            return values.flatten().index_select(0, self.rows[table]).unsqueeze(1)
        return values.index_select(0, self.rows[table])

    def collapse(self, table: int, values: Tensor) -> Tensor:
        """(n_i, d_c): for every row of `table` the sum of `values` (N, d_c) over the joined rows that it is behind."""
        size = sum(self.held[table])
        if values.shape[1] == 1:
            return values.new_zeros(size).index_add_(0, self.rows[table], values.flatten()).unsqueeze(1)
        return values.new_zeros(size, values.shape[1]).index_add_(0, self.rows[table], values)

    def total(self, values: Sequence[Tensor]) -> Tensor:
        """(N, d_c): the sum over tables of `values` (n_i, d_c)."""
        total = self.expand(0, values[0])
        for table in range(1, len(values)):
            total += self.expand(table, values[table])
        return total

    def divide(self, table: int, values: Tensor) -> tuple[Tensor, ...]:
        """`values` (n_i, ...) divided as the clients of `table` hold its rows."""
        if len(self.held[table]) == 1:
            return (values,)
        parts: tuple[Tensor, ...] = values.split_with_sizes(self.held[table])
        return parts


# --- batches of joined rows -------------------------------------------------------------------------------------------


class ServerBatches:
    """The batches of every epoch: contiguous in the join and named once, or with DP-SGD drawn and named one by one."""

    def __init__(self, me: Party, config: RunConfig[Batched]) -> None:
        self.me, self.config, self.size = me, config, config.algorithm.batch_size
        self.drawn = trains_privately(config.privacy)
        self.kept: list[Join] = []  # those that are the same in every epoch

    async def name(self, join: Join) -> None:
        """Tell every client once which of its rows are behind each batch, so that no epoch needs to name them."""
        if self.drawn:
            await self._plan(join)
            return
        named: list[list[np.ndarray]] = [[] for _ in self.me.clients]
        for at in range(0, len(join.rows[0]), self.size):
            batch, needed = join.batch(slice(at, at + self.size))
            self.kept.append(batch)
            for rows, own in zip(named, join.held_of(batch, needed), strict=True):
                rows.append(own)
        sizes = np.array([len(batch.rows[0]) for batch in self.kept])
        for name, rows in zip(self.me.clients, named, strict=True):
            lengths = np.array([len(r) for r in rows])
            await self.me.send(name, (np.concatenate(rows), lengths, sizes), tag="batches")

    async def _plan(self, join: Join) -> None:
        """With privacy.split tell every client how often the run will ask for its most asked row."""
        if not tables.shares_budget(self.config.privacy):
            return
        rows, rounds = [rows.cpu().numpy() for rows in join.rows], self.config.rounds
        assert rounds is not None  # decided by the runner
        joined = len(rows[0])
        count, rate = rounds * -(-joined // self.size), min(1.0, self.size / joined)
        asked = [np.zeros(sum(held), np.int64) for held in join.held]
        for chosen in rehearsed(count, joined, rate, self.me.secret_rng("batches")):
            for own, behind in zip(asked, rows, strict=True):
                own[np.unique(behind[chosen])] += 1
        most = [
            int(part.max(initial=0))
            for own, held in zip(asked, join.held, strict=True)
            for part in np.split(own, np.cumsum(held)[:-1])
        ]
        for name, releases in zip(self.me.clients, most, strict=True):
            await self.me.send(name, releases, tag="releases")

    async def epoch(self, join: Join, y: Tensor) -> AsyncIterator[tuple[Join, Tensor]]:
        """Yield each batch's join and labels."""
        starts = range(0, len(y), self.size)
        if not self.drawn:
            self.kept = self.kept or [join.batch(slice(at, at + self.size))[0] for at in starts]
            for batch, labels in zip(self.kept, y.split(self.size), strict=True):
                yield batch, labels
            return
        for _ in starts:
            chosen = poisson(len(y), min(1.0, self.size / len(y)), self.me.secret_rng("batches"))
            batch, needed = join.batch(chosen)
            for name, own in zip(self.me.clients, join.held_of(batch, needed), strict=True):
                await self.me.send(name, own, tag="rows")
            yield batch, y[chosen]


class ClientBatches:
    """What a client knows of the batches.

    Attributes
    ----------
    noisy : its noisy gradients, from the first round on; None without DP-SGD.
    """

    def __init__(self, me: Party, config: RunConfig[Batched]) -> None:
        self.me, self.config, self.size = me, config, config.algorithm.batch_size
        self.drawn = trains_privately(config.privacy)
        self.noisy: NoisyGradients | None = None
        self.count = 0
        self.kept: list[tuple[Tensor, Tensor, int]] = []  # batches that are the same in every epoch, as `epoch` yields

    async def receive(self) -> None:
        """Keep in `me.state.batches` which own rows each batch needs, and how many joined rows the batch has.

        With privacy.split, keep in `me.state.releases` how often the run will ask for the client's most asked row.
        """
        if tables.shares_budget(self.config.privacy):
            self.me.state.releases = await self.me.recv(SERVER, tag="releases")
        if not self.drawn:
            state = self.me.state
            named, lengths, sizes = await self.me.recv(SERVER, tag="batches")
            # rows of the part, not of those that join
            state.batches = {"rows": state.rows[named], "lengths": lengths, "sizes": sizes}

    async def epoch(self, features: Tensor) -> AsyncIterator[tuple[Tensor, Tensor, int]]:
        """Yield for each batch the client's rows, ascending, their `features`, and the divisor of the sum of gradients.

        Rows that are the same in every epoch are gathered once, as far as memory allows.
        """
        state, device = self.me.state, self.me.device
        expected = min(self.size, state.joined)
        if not self.count:
            self.count = -(-state.joined // self.size)
            rate = tables.part_of_a_batch(state.counts, expected / state.joined)
            releases = state.releases if tables.shares_budget(self.config.privacy) else None
            self.noisy = tables.noisy_steps(
                self.me, self.config, rate, self.count, drawn_by_server=True, releases=releases
            )
        if not self.drawn:
            if not self.kept:
                rows = torch.from_numpy(state.batches["rows"]).to(device).split(state.batches["lengths"].tolist())
                sizes = state.batches["sizes"].tolist()
                batches = ((own, gathered(features, own), size) for own, size in zip(rows, sizes, strict=True))
                if len(state.batches["rows"]) * features.shape[1] > MOST_KEPT:
                    for batch in batches:
                        yield batch
                    return
                self.kept = list(batches)
            for batch in self.kept:
                yield batch
            return
        for _ in range(self.count):
            drawn = torch.from_numpy(state.rows[await self.me.recv(SERVER, tag="rows")]).to(device)
            yield drawn, gathered(features, drawn), expected


def gathered(features: Tensor, rows: Tensor) -> Tensor:
    """`features[rows]`; indexing takes several times as long."""
    return features.index_select(0, rows)


def union(public: RelationalPublic, parts: Sequence[Tensor]) -> list[Tensor]:
    """LoU, gather: per table its clients' rows, one below the other; `parts` are the clients', in their order."""
    return [
        parts[clients[0]] if len(clients) == 1 else torch.cat([parts[c] for c in clients]) for clients in public.parts
    ]
