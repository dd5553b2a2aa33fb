"""Writes the tables of a run folder that have a row for each message or event."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vflbench.results.folder import atomic
from vflbench.results.run_schema import PHASES, SCHEMA

if TYPE_CHECKING:
    import pyarrow as pa

EVENT_KINDS = ("compute", "send", "recv", "mark")  # the trace's `kind`, by code
ROW_GROUP = 2**17  # rows in memory at a time while parts are merged
# dtype of each column; texts are given as integer codes
PARQUET = {
    "ledger": {
        "round": "int32",
        "src": "text",
        "dst": "text",
        "link": "text",
        "tag": "text",
        "bytes": "int64",
        "vectors": "int32",
        "sent": "float64",
        "delivered": "float64",
        "seq": "int64",
        "phase": "text",
    },
    "trace": {"party": "text", "kind": "text", "peer": "text", "seq": "int64", "value": "float64", "phase": "text"},
}


def write_parquet(path: Path, columns: Mapping[str, np.ndarray | pa.Array]) -> None:
    """Write columns, name -> (rows,), as parquet: zstd, with the schema version in the file's metadata."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrays = {name: _arrow(column) if isinstance(column, np.ndarray) else column for name, column in columns.items()}
    table = pa.table(arrays)
    with atomic(path) as temporary:
        pq.write_table(
            table.replace_schema_metadata({"vflbench_schema": str(SCHEMA)}), temporary, **_encoding(list(columns))
        )


def _arrow(column: np.ndarray, valid: np.ndarray | None = None) -> pa.Array:
    """The column as it lies in memory, null where it is not `valid`; `pyarrow.array` would import pandas for it."""
    import pyarrow as pa

    bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    values = pa.py_buffer(np.ascontiguousarray(column))
    return pa.Array.from_buffers(pa.from_numpy_dtype(column.dtype), len(column), [bits, values])


def _texts(texts: Sequence[str]) -> pa.Array:
    """The texts as a column, without `pyarrow.array`, as in `_arrow`."""
    import pyarrow as pa

    coded = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, coded)], dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), len(coded), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(coded))])


def merge_parquet(path: Path, sources: Sequence[Path]) -> None:
    """Write the rows of `sources`, which have the same columns, one after the other; memory holds only a part."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pq.read_schema(sources[0])
    with atomic(path) as temporary, pq.ParquetWriter(temporary, schema, **_encoding(schema.names)) as writer:
        batches: list[pa.RecordBatch] = []
        for source in sources:
            for batch in pq.ParquetFile(source).iter_batches(ROW_GROUP):
                batches.append(batch)
                if sum(map(len, batches)) >= ROW_GROUP:
                    writer.write_table(pa.Table.from_batches(batches, schema))
                    batches.clear()
        writer.write_table(pa.Table.from_batches(batches, schema))


def _encoding(names: Sequence[str]) -> dict[str, Any]:
    """How the columns `names` are written.

    Times and running numbers hardly repeat: a dictionary of them would be as large as they are.
    """
    distinct = {
        "seq": "DELTA_BINARY_PACKED",
        "sent": "BYTE_STREAM_SPLIT",
        "delivered": "BYTE_STREAM_SPLIT",
        "value": "BYTE_STREAM_SPLIT",
    }
    encoding = {name: kind for name, kind in distinct.items() if name in names}
    repeating = [name for name in names if name not in encoding]
    return {"compression": "zstd", "use_dictionary": repeating, "column_encoding": encoding or None}


def ledger_parquet(
    path: Path,
    columns: Iterable[np.ndarray],
    parties: Sequence[str],
    tags: Sequence[str],
    links: Sequence[str],
    others: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Write the ledger, one row per message.

    `columns` are those of PARQUET but `phase`, each (messages,). Values of src and dst are codes into `parties`, of
    link into `links`, of tag into `tags`. The phase of a message before the first round is `setup`, else `train`.
    `others`: rows of other phases, (messages, 10) each.
    """
    more = others or {}
    first, *rest = columns
    phases = np.where(np.asarray(first) > 0, PHASES.index("train"), PHASES.index("setup"))
    phases = np.concatenate([phases, *(np.full(len(rows), PHASES.index(name)) for name, rows in more.items())])
    own = zip(range(len(PARQUET["ledger"]) - 1), (first, *rest), strict=True)
    whole = (np.concatenate([column, *(rows[:, at] for rows in more.values())]) for at, column in own)
    names = {"src": parties, "dst": parties, "link": links, "tag": tags, "phase": PHASES}
    _write_coded(path, PARQUET["ledger"], itertools.chain(whole, [phases]), names)


def trace_parquet(
    path: Path,
    traces: Mapping[str, np.ndarray],
    others: Mapping[str, Mapping[str, np.ndarray]] | None = None,
) -> None:
    """Write what the parties did: party -> (events, 4 or 5).

    The columns are kind (code into `EVENT_KINDS`), peer (place of a party; -1: none), seq, value. `others`: traces of
    the phases that are not of the run's own program.
    """
    parties = list(traces)
    every = [("train", traces), *(others or {}).items()]
    rows = [
        (phase, place, own[name][:, :4]) for phase, own in every for place, name in enumerate(parties) if name in own
    ]
    kind, peer, seq, value = np.concatenate([one for _, _, one in rows]).T
    sizes = [len(one) for _, _, one in rows]
    party = np.repeat([place for _, place, _ in rows], sizes)
    phase = np.repeat([PHASES.index(name) for name, _, _ in rows], sizes)
    _write_coded(
        path,
        PARQUET["trace"],
        (party, kind, peer, seq, value, phase),
        {"party": parties, "kind": EVENT_KINDS, "peer": parties, "phase": PHASES},
    )


def _write_coded(
    path: Path, types: Mapping[str, str], columns: Iterable[np.ndarray], names: Mapping[str, Sequence[str]]
) -> None:
    import pyarrow as pa

    found: dict[str, np.ndarray | pa.Array] = {}
    for (name, kind), column in zip(types.items(), columns, strict=True):
        if kind == "text":
            codes = column.astype(np.int32)
            indices = _arrow(codes, codes >= 0)  # a negative code is a null
            found[name] = pa.DictionaryArray.from_arrays(indices, _texts(names[name]))
        else:
            found[name] = np.ascontiguousarray(column, kind)
    write_parquet(path, found)
