"""Gram once: least squares over a join in one exchange, exact, whatever the join's size.

Schleich, Olteanu, Ciucanu, "Learning Linear Regression Models over Factorized Joins", SIGMOD 2016; Kumar, Naughton,
Patel, SIGMOD 2015. Least squares needs the Gram matrix of the joined columns alone, and that is a sum over tables.

    X_i (n_i, d_i)   table i's rows that join       c_i   how many joined rows each is behind (G, of the mapping)
    C_ij             how many joined rows have row p of i and row q of j behind them       s_i   sums of labels by row
    table 0          has the labels; the keeper is the largest of the others

    before: keys and labels to the server, as in rfl_admm_v (joins/mapping.py)
    round 1  table 0 -> server:  X_0' c_0 X_0, X_0' c_0, X_0' s_0                                       tag `gram`
                                 for each other table, sums of c_0 X_0 by key                           tag `sums`
             server -> others:   whether to send the rows                                               tag `ask`
             others -> server:   X_i, all but the keeper (cross=rows: the keeper, too)                  tag `rows`
             server -> keeper:   B = [s_k | C_k0 X_0 | C_ki X_i of every other table i]                 tag `moments`
             keeper -> server:   X_k' c_k X_k, X_k' c_k, X_k' B                                         tag `gram`
             server: (G - N x x' + penalty N I) w = b - N x y', x and y the means;  w_i to table i      tag `weights`

    bytes in round 1, z bytes a feature, f outputs, others' widths d = d_0 + sum of d_i shipped:
    8 (d_0 (d_0 + 1) / 2 + d_0 + d_0 f) + 8 d_0 (keys) + z n_i d_i each that ships
    + z n_k (f + d) + 8 (d_k (d_k + 1) / 2 + d_k + d_k (f + d)) + 8 f (sum of all widths) + 1 for each other table

Rounds after the first send nothing: w is the minimum.

Departures from the papers
1. Every table must join the one with the labels, a star: then rows of table 0 with one key are alike, and their sums by
   key are enough. Its rows never leave.
2. Classes are learnt by least squares on one-hot labels.
3. Without a penalty the minimum of least norm is taken: one-hot columns make G singular.
4. The keeper learns s_k: the mean label behind each of its rows. cross=rows tells it nothing, and sends its rows.
"""

from functools import partial
from typing import Any

import numpy as np
import torch

from vflbench.algorithms.joins import mapping, table_parties
from vflbench.cards.algorithms.oneshot.gram_once import Config
from vflbench.data.tasks import RelationalPart, RelationalPublic, RelationalTask
from vflbench.data.tasks.join import hand_over
from vflbench.federation.party import SERVER, Party, PartySpec
from vflbench.types import ConfigError, Problem, RunConfig


def devices(task: RelationalTask, config: RunConfig[Config]) -> tuple[str, ...]:
    """What it computes on: sums in doubles are NumPy's."""
    return ("cpu",)


def parties(task: RelationalTask, config: RunConfig[Config]) -> dict[str, PartySpec]:
    """The server, and one client per part of each table.

    Raises
    ------
    ConfigError : a table joins another one than that with the labels.
    """
    for equality in task.joins:
        if task.label_table not in (equality.left[0], equality.right[0]):
            allowed = f"needs every table to join {task.label_table}, and {equality.left[0]} joins {equality.right[0]}"
            raise ConfigError([Problem("algorithm", "gram_once", f"{allowed}: use rfl_admm_v")])
    public = task.public
    widths = [task.clients[clients[0]].features.shape[1] for clients in public.parts]
    return table_parties.parties(partial(server, widths=widths), client, task.clients)


# --- sums -------------------------------------------------------------------------------------------------------------


def packed(x: np.ndarray, counts: np.ndarray, by: np.ndarray) -> tuple[np.ndarray, ...]:
    """A table's part of the Gram matrix: the upper triangle of X' c X, X' c, and X' `by`, all in doubles.

    Parameters
    ----------
    x, counts, by : (n, d) rows, (n,) their joined rows, and (n, k) sums over those.
    """
    wide = x.astype(np.float64)
    return (wide.T @ (wide * counts[:, None]))[np.triu_indices(x.shape[1])], wide.T @ counts, wide.T @ by


def unpacked(triangle: np.ndarray, width: int) -> np.ndarray:
    """The symmetric matrix, (width, width), of an upper triangle."""
    whole = np.zeros((width, width))
    whole[np.triu_indices(width)] = triangle
    return whole + np.triu(whole, 1).T


def by_first(values: np.ndarray) -> np.ndarray:
    """The number of each value, (n,), in the order in which values first appear; of a matrix (k, n), of columns."""
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True, axis=-1)
    rank = np.argsort(np.argsort(first))
    numbers: np.ndarray = rank[inverse.reshape(-1)]
    return numbers


def summed(values: np.ndarray, groups: np.ndarray, count: int) -> np.ndarray:
    """Sums of the rows of `values` (n, k) by group, (count, k)."""
    total = np.zeros((count, values.shape[1]))
    np.add.at(total, groups, values)
    return total


def outputs_of(labels: np.ndarray, classes: int) -> np.ndarray:
    """Targets (n, f): one-hot classes, or the labels."""
    return np.eye(classes)[labels] if classes else labels[:, None].astype(np.float64)


# --- clients ----------------------------------------------------------------------------------------------------------


async def client(me: Party, data: RelationalPart, public: RelationalPublic, config: RunConfig[Config]) -> None:
    """Send sums, or rows, once, and predict with the weights that come back."""
    x = np.asarray(data.features)
    me.state.model = model = torch.nn.Linear(x.shape[1], public.outputs, bias=False, dtype=torch.float64)
    if me.fresh:
        await mapping.send_keys(me, data, public, data.labels)

    async for t in me.rounds():
        if t == 1:
            rows, counts = me.state.rows, me.state.counts
            joining = x[rows]
            if data.labels is not None:
                targets = outputs_of(data.labels[rows], public.classes) * counts[:, None]
                await me.send(SERVER, await me.compute(packed, joining, counts, targets, cost=len(rows)), tag="gram")
                weighted = joining.astype(np.float64) * counts[:, None]
                groups = [_key_groups(data, public, table, rows) for table in public.tables if table != data.table]
                sums = tuple(summed(weighted, own, int(own.max(initial=-1)) + 1) for own in groups)
                if sums:
                    await me.send(SERVER, sums, tag="sums")
            elif await me.recv(SERVER, tag="ask"):
                await me.send(SERVER, joining, tag="rows")
            else:
                moments = await me.recv(SERVER, tag="moments")
                await me.send(SERVER, await me.compute(packed, joining, counts, moments, cost=len(rows)), tag="gram")
            weights = await me.recv(SERVER, tag="weights")
            with torch.no_grad():
                model.weight.copy_(torch.from_numpy(weights.T))
        if me.evaluates(t):
            w = model.weight.detach().numpy().T
            held_out = {split: own.astype(np.float64) @ w for split, own in data.held_out.items()}
            me.report(partial=held_out or {"rows": x.astype(np.float64) @ w})


def _key_groups(data: RelationalPart, public: RelationalPublic, table: str, rows: np.ndarray) -> np.ndarray:
    """The number of the key with which each of `rows`, which join, joins `table`."""
    sides = [side for one in public.joins for side in (one.left, one.right) if table in (one.left[0], one.right[0])]
    own = {column: data.keys[column] for name, column in sides if name == data.table}
    keys = hand_over(own, data.rows, "none", data.table)
    return by_first(np.stack([column[np.searchsorted(keys.ids, rows)] for column in keys.columns.values()]))


# --- server -----------------------------------------------------------------------------------------------------------


async def server(me: Party, data: None, public: RelationalPublic, config: RunConfig[Config], widths: list[int]) -> None:
    """Put the Gram matrix together, and solve.

    Parameters
    ----------
    widths : columns of each table.
    """
    if me.fresh:
        me.state.mapping = await mapping.map_tables(me, public)
    me.state.offset, me.state.loss = np.zeros((1, public.outputs)), 0.0

    async for t in me.rounds():
        if t == 1:
            gram = await _collect(me, public, config.algorithm, widths)
            weights, me.state.offset, me.state.loss = await me.compute(gram.solve, config.algorithm.penalty)
            starts = np.cumsum([0, *widths])
            for table, clients in enumerate(public.parts):
                for c in clients:
                    await me.send(me.clients[c], weights[starts[table] : starts[table + 1]], tag="weights")
        me.report(train_loss=me.state.loss, offset=me.state.offset)


class Gram:
    """The sums over the joined rows that least squares needs, block by block.

    Parameters
    ----------
    widths : columns of each table.
    y : targets of the joined rows, (N, f).
    """

    def __init__(self, widths: list[int], y: np.ndarray) -> None:
        self.starts, self.rows = np.cumsum([0, *widths]), len(y)
        self.g = np.zeros((sum(widths), sum(widths)))
        self.means, self.b = np.zeros(sum(widths)), np.zeros((sum(widths), y.shape[1]))
        self.y_mean, self.y_squares = y.mean(axis=0), float((y**2).sum())

    def place(self, table: int) -> slice:
        """Where the columns of `table` stand."""
        return slice(int(self.starts[table]), int(self.starts[table + 1]))

    def add(self, table: int, block: np.ndarray, sums: np.ndarray, targets: np.ndarray) -> None:
        """Add a part of X_i' c X_i, X_i' c and X_i' s."""
        own = self.place(table)
        self.g[own, own] += block
        self.means[own] += sums / self.rows
        self.b[own] += targets

    def cross(self, table: int, other: int, block: np.ndarray) -> None:
        """Add a part of X_i' C X_j."""
        self.g[self.place(table), self.place(other)] += block
        self.g[self.place(other), self.place(table)] += block.T

    def solve(self, penalty: float) -> tuple[np.ndarray, np.ndarray, float]:
        """Weights (d, f), intercepts (1, f), and half the mean squared error of the training rows."""
        n, x = self.rows, self.means
        centred = self.g - n * np.outer(x, x)
        right = self.b - n * np.outer(x, self.y_mean)
        w = np.linalg.lstsq(centred + penalty * n * np.eye(len(x)), right, rcond=1e-12)[0]
        spread = self.y_squares - n * float(self.y_mean @ self.y_mean)
        squares = spread - 2 * float((w * right).sum()) + float((w * (centred @ w)).sum())
        return w, (self.y_mean - x @ w)[None], squares / (2 * n)


async def _collect(me: Party, public: RelationalPublic, cfg: Config, widths: list[int]) -> Gram:
    """The Gram matrix, from one exchange with every client."""
    behind, held = me.state.mapping["rows"], me.state.mapping["held"]
    sizes = [int(sum(own)) for own in held]
    y = outputs_of(me.state.mapping["labels"], public.classes)
    gram, label = Gram(widths, y), public.owner
    others = [table for table in range(len(widths)) if table != label]
    keeper = max(others, key=lambda table: sizes[table] * widths[table], default=None)
    ships = [table for table in others if table != keeper or cfg.cross == "rows"]
    for table in others:
        await me.send_many([me.clients[c] for c in public.parts[table]], table in ships, tag="ask")

    owners = [me.clients[c] for c in public.parts[label]]
    for triangle, sums, targets in await me.recv_all(owners, tag="gram"):
        gram.add(label, unpacked(triangle, widths[label]), sums, targets)
    by_key = await me.recv_all(owners, tag="sums") if others else []
    spread = {
        table: _spread(behind[label], behind[table], held[label], sizes[table], [own[at] for own in by_key])
        for at, table in enumerate(others)
    }
    x, kind = dict[int, np.ndarray](), np.dtype(np.float64)
    for table in ships:
        rows = np.concatenate(await me.recv_all([me.clients[c] for c in public.parts[table]], tag="rows"))
        x[table], kind = rows.astype(np.float64), rows.dtype
        counts = np.bincount(behind[table], minlength=sizes[table])
        gram.add(table, (x[table].T * counts) @ x[table], x[table].T @ counts, x[table].T @ _sums(behind[table], y))
        gram.cross(table, label, x[table].T @ spread[table])
    for at, table in enumerate(ships):
        for other in ships[at + 1 :]:
            gram.cross(table, other, x[table].T @ (_together(behind[table], behind[other]) @ x[other]))
    if keeper is not None and keeper not in ships:
        parts = [_sums(behind[keeper], y), spread[keeper]]
        parts += [_together(behind[keeper], behind[table]) @ x[table] for table in ships]
        await _ask_keeper(me, public, gram, keeper, ships, [part.astype(kind) for part in parts])
    return gram


async def _ask_keeper(
    me: Party, public: RelationalPublic, gram: Gram, keeper: int, ships: list[int], parts: list[np.ndarray]
) -> None:
    """Send the keeper `parts`, which its rows are to be multiplied by, and add the products.

    Parameters
    ----------
    parts : (n_k, k) each: of the labels, of the label table, and of each table that ships.
    """
    clients, held = [me.clients[c] for c in public.parts[keeper]], me.state.mapping["held"][keeper]
    for name, own in zip(clients, np.split(np.concatenate(parts, axis=1), np.cumsum(held)[:-1]), strict=True):
        await me.send(name, own, tag="moments")
    ends, place = np.cumsum([part.shape[1] for part in parts])[:-1], gram.place(keeper)
    for triangle, sums, products in await me.recv_all(clients, tag="gram"):
        targets, labelled, *crossed = np.split(products, ends, axis=1)
        gram.add(keeper, unpacked(triangle, place.stop - place.start), sums, targets)
        gram.cross(keeper, public.owner, labelled)
        for table, block in zip(ships, crossed, strict=True):
            gram.cross(keeper, table, block)


def _sums(rows: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Sums of `values` (N, k) over the joined rows behind which each row of a table is, (n, k)."""
    return summed(values, rows, int(rows.max(initial=-1)) + 1)


def _together(rows: np.ndarray, others: np.ndarray) -> Any:
    """C_ij: how many joined rows have both rows behind them; sparse, (n_i, n_j)."""
    from scipy.sparse import csr_array

    shape = (int(rows.max(initial=-1)) + 1, int(others.max(initial=-1)) + 1)
    return csr_array((np.ones(len(rows)), (rows, others)), shape=shape)


def _spread(own: np.ndarray, rows: np.ndarray, held: np.ndarray, size: int, by_key: list[np.ndarray]) -> np.ndarray:
    """C_j0 X_0, (n_j, d_0), from the label table's sums by key.

    The server knows a key by the first row of table j that has it. Rows with one key share the sum equally.

    Parameters
    ----------
    own, rows : the rows of the label table, and of table j, behind each joined row.
    held : how many rows each client of the label table has.
    size : n_j.
    by_key : each client's sums, (keys, d_0), in the order in which its rows have the keys.
    """
    first = np.full(int(sum(held)), size)
    np.minimum.at(first, own, rows)
    total = np.zeros((size, by_key[0].shape[1]))
    for part, sums in zip(np.split(first, np.cumsum(held)[:-1]), by_key, strict=True):
        _, at = np.unique(part, return_index=True)
        np.add.at(total, part[np.sort(at)], sums)
    key = np.full(size, size)
    np.minimum.at(key, rows, first[own])
    shared_by = np.bincount(key, minlength=size)
    spread: np.ndarray = total[key] / shared_by[key][:, None]
    return spread
