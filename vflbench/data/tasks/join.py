"""Table mapping: which row of each table belongs to each row of the join, from keys alone.

Xu et al.: TablePuppet, arXiv 2403.15839, section 4 ("table mapping"). Clients hand over (hashed key, row id). The
joining party sees no features, and the joined table is never stored. These are inner joins on equalities, with SQL's
semantics: NULL equals nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vflbench.types import DataError

if TYPE_CHECKING:
    from vflbench.data.tasks import Equality

# --- at a client ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Keys:
    """The keys that a client hands over, of its rows that have no NULL among the keys."""

    rows: int  # of the part, with and without NULLs
    ids: np.ndarray  # (k,) int64: which rows of the part
    columns: dict[str, np.ndarray]  # key column -> (k,) int64: the hash, or the integer itself
    kinds: dict[str, str]  # key column -> number | text | date | empty (only NULLs: fits all)


def hand_over(keys: Mapping[str, np.ndarray], rows: int, how: str, table: str = "table") -> Keys:
    """Turn the keys of a part into numbers that can be compared.

    Parameters
    ----------
    keys : per key column (rows,) integers, floats (NaN: NULL), text as objects or numpy text (None or NaN: NULL), or
        datetime64.
    how : `sha256`: the first 8 bytes of the digest. Two of a million keys collide with probability 3e-8. A digest hides
        no key that can be guessed. `none`: integers as they are, and digests of all else.

    Raises
    ------
    DataError : a key column of another type, or of another length.
    """
    numbers, kinds = {}, {}
    known = np.ones(rows, dtype=bool)
    for column, values in keys.items():
        if len(values) != rows:
            raise DataError(f"table {table}, key column {column}: {len(values)} keys for {rows} rows")
        kinds[column], comparable, null = _comparable(values, f"table {table}, key column {column}")
        if null.all():
            kinds[column] = "empty"
        known &= ~null
        numbers[column] = comparable
    ids = np.flatnonzero(known)
    columns = {}
    for column, values in numbers.items():
        chosen = values if known.all() else values[ids]
        plain = how == "none" and kinds[column] == "number"
        columns[column] = _numbered(chosen) if plain else _digests(chosen, kinds[column])
    return Keys(rows, ids, columns, kinds)


def _comparable(values: np.ndarray, where: str) -> tuple[str, np.ndarray, np.ndarray]:
    """Keys in a form in which equal keys are equal values: int32, int64 and 3.0 may be the same key.

    Returns
    -------
    kind, values, and where they are NULL.
    """
    kind = values.dtype.kind
    if kind in "iub":
        return "number", values.astype(np.int64), np.zeros(len(values), dtype=bool)
    if kind == "f":
        null = np.isnan(values)
        filled = np.where(null, 0.0, values)
        whole = filled.astype(np.int64) if np.abs(filled).max(initial=0.0) < 2.0**63 else None
        exact = whole is not None and bool((whole == filled).all())
        return "number", whole if exact and whole is not None else filled.astype(np.float64), null
    if kind == "M":
        null = np.isnat(values)
        return "date", np.where(null, np.datetime64(0, "ns"), values.astype("datetime64[ns]")).astype(np.int64), null
    if kind == "U":
        return "text", values.astype(object), np.zeros(len(values), dtype=bool)
    if kind == "O":
        import pandas as pd

        null = pd.isna(values)
        present = values[~null]
        types = {type(value) for value in present.tolist()}
        if types <= {str}:
            return "text", values, null
        if all(issubclass(found, (int, float, np.integer, np.floating)) for found in types):
            filled = np.where(null, 0, values)
            if all(issubclass(found, (int, np.integer)) for found in types):
                return "number", filled.astype(np.int64), null
            return "number", _comparable(filled.astype(np.float64), where)[1], null
        names = ", ".join(sorted(found.__name__ for found in types))
        raise DataError(f"{where}: a key is a number, text or a date, and one column holds one kind; found {names}")
    raise DataError(f"{where}: a key cannot be of type {values.dtype}")


def _numbered(values: np.ndarray) -> np.ndarray:
    """Integers as they are; floats that are no integers as their digests."""
    if values.dtype == np.int64:
        return values
    whole = (values == np.floor(values)) & (np.abs(values) < 2.0**63)
    return np.where(whole, np.where(whole, values, 0).astype(np.int64), _digests(values, "number"))


def _digests(values: np.ndarray, kind: str) -> np.ndarray:
    """The first 8 bytes of SHA-256 of the kind and each value's text, (n,) int64; a value is hashed once."""
    import pandas as pd

    codes, distinct = pd.factorize(values)
    # 3.0 and 3 are one key
    texts = [str(int(v)) if isinstance(v, float) and v.is_integer() else str(v) for v in np.asarray(distinct).tolist()]
    raw = b"".join(hashlib.sha256(f"{kind}:{text}".encode()).digest()[:8] for text in texts)
    return np.frombuffer(raw, dtype=np.int64)[codes] if len(texts) else np.zeros(len(values), dtype=np.int64)


# --- where the keys meet ----------------------------------------------------------------------------------------------


def unite(parts: Sequence[Keys], table: str) -> Keys:
    """The keys of a table's horizontal parts together; row ids are counted through all parts."""
    kinds = {}
    for column in parts[0].kinds:
        found = sorted({part.kinds[column] for part in parts} - {"empty"})
        if len(found) > 1:
            reason = f"its horizontal parts hold unlike types: {', '.join(found)}"
            raise DataError(f"table {table}, key column {column}: {reason}; convert one")
        kinds[column] = found[0] if found else "empty"
    starts = np.cumsum([0, *(part.rows for part in parts)])
    ids = np.concatenate([part.ids + start for part, start in zip(parts, starts, strict=False)])
    columns = {column: np.concatenate([part.columns[column] for part in parts]) for column in parts[0].columns}
    return Keys(int(starts[-1]), ids, columns, kinds)


def join(tables: Mapping[str, Keys], joins: Sequence[Equality], first: str) -> dict[str, np.ndarray]:
    """p_i of every table, (N,) int64: which of its rows belongs to each joined row.

    They are sorted by the row of `first`, then by those of the other tables in the order in which these join.

    Raises
    ------
    DataError : an unknown table or column; different types on the two sides of a predicate; a table that no predicate
        connects; an empty join.
    """
    _check(tables, joins)
    rows = {first: np.arange(len(tables[first].ids))}  # joined so far: places in `ids`, not yet row ids
    while len(rows) < len(tables):
        table, pairs = _next(tables, joins, rows)
        left = [tables[name].columns[column][rows[name]] for (name, column), _ in pairs]
        right = [tables[table].columns[column] for _, column in pairs]
        kept, matched = match(left, right)
        rows = {name: places[kept] for name, places in rows.items()} | {table: matched}
        if not len(matched):
            conditions = " and ".join(f"{name}.{column} = {table}.{other}" for (name, column), other in pairs)
            question = "Are these the right columns, and of one coding?"
            raise DataError(f"the join is empty: no rows fulfil {conditions}. {question}")
    return {name: tables[name].ids[rows[name]] for name in tables}


def _check(tables: Mapping[str, Keys], joins: Sequence[Equality]) -> None:
    for equality in joins:
        for name, column in (equality.left, equality.right):
            if name not in tables:
                raise DataError(f"a join names table {name!r}; there are {', '.join(tables)}")
            if column not in tables[name].columns:
                raise DataError(f"table {name} has no key column {column!r}; it has {', '.join(tables[name].columns)}")
        kinds = [tables[name].kinds[column] for name, column in (equality.left, equality.right)]
        if kinds[0] != kinds[1] and "empty" not in kinds:
            left, right = (f"{name}.{column}" for name, column in (equality.left, equality.right))
            found = f"{left} is a {kinds[0]} column and {right} a {kinds[1]} column"
            raise DataError(f"{found}: they cannot be joined; convert one")


def _next(
    tables: Mapping[str, Keys], joins: Sequence[Equality], joined: Mapping[str, np.ndarray]
) -> tuple[str, list[tuple[tuple[str, str], str]]]:
    """The next table that predicates connect with those joined so far, and these predicates.

    Returns
    -------
    table, and per predicate ((joined table, column), own column).
    """
    for table in tables:
        if table in joined:
            continue
        pairs = [(e.left, e.right[1]) for e in joins if e.right[0] == table and e.left[0] in joined]
        pairs += [(e.right, e.left[1]) for e in joins if e.left[0] == table and e.right[0] in joined]
        if pairs:
            return table, pairs
    missing = ", ".join(name for name in tables if name not in joined)
    raise DataError(f"no join predicate connects {missing} with {', '.join(joined)}: a cross product is not joined")


def match(left: Sequence[np.ndarray], right: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of equal keys, in the order of `left`, then `right`.

    Parameters
    ----------
    left, right : per column of a composite key its numbers.

    Returns
    -------
    places in `left` and places in `right`, each (pairs,) int64.
    """
    import pandas as pd

    names = [str(place) for place in range(len(left))]
    rows = [pd.DataFrame(dict(zip(names, columns, strict=True))) for columns in (left, right)]
    # keeps the order of the left keys
    pairs = rows[0].reset_index(names="left").merge(rows[1].reset_index(names="right"), on=names)
    return pairs["left"].to_numpy(), pairs["right"].to_numpy()
