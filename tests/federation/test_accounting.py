"""The rules of accounting: strict sums, and TablePuppet's re-pricing on a ledger made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from vflbench.federation.accounting import Payload, Totals
from vflbench.federation.accountings import strict, tablepuppet
from vflbench.federation.ledger import COLUMN
from vflbench.types import LinkConfig, NetworkConfig

TAGS = ["mapping", "prediction", "residual", "parameters", "keys", "batches", "rows"]
PAYLOAD = Payload(TAGS, 4, 1)


def ledger(*messages: tuple[int, int, int, str, int]) -> np.ndarray:
    """Rows of (round, source, destination, tag, bytes), client-server."""
    rows = np.zeros((len(messages), len(COLUMN)))
    for row, (round, src, dst, tag, nbytes) in zip(rows, messages, strict=True):
        row[[COLUMN[key] for key in ("round", "src", "dst", "tag", "bytes", "vectors")]] = (
            round,
            src,
            dst,
            TAGS.index(tag),
            nbytes,
            1,
        )
    return rows


# Client 1 has 10 rows that join. In round 1 two batches ask for 6 and 7 of them: 13 float32 predictions of one number,
# and back.
JOINS = ledger(
    (0, 1, 0, "keys", 999), (0, 0, 1, "mapping", 160),
    (1, 1, 0, "prediction", 24), (1, 0, 1, "residual", 24), (1, 1, 0, "prediction", 28), (1, 0, 1, "residual", 28),
    (1, 1, 0, "parameters", 12), (2, 1, 0, "prediction", 24),
)  # fmt: skip


def test_strict_is_what_was_sent() -> None:
    totals = Totals(strict.price(JOINS, PAYLOAD), JOINS, cost_ratio=2.0)
    assert totals.until(0).tolist() == [1159, 2, 2, 2318]
    assert totals.until(2).tolist() == [1159 + 104 + 12 + 24, 8, 8, 2 * 1299]
    assert totals.until(1)[0] == 1159 + 116


def test_the_figures_charge_a_row_once_an_epoch_at_8_bytes_and_inner_exchanges_by_their_latency() -> None:
    totals = Totals(tablepuppet.price(JOINS, PAYLOAD), JOINS, cost_ratio=1.0)
    assert totals.until(0)[0] == 0
    assert totals.until(1)[0] == pytest.approx(2 * 10 * 8)  # 13 rows were sent, 10 exist
    assert totals.until(2)[0] == pytest.approx(2 * 10 * 8 + 6 * 8)  # fewer than exist: as they are
    network = NetworkConfig(client_server=LinkConfig(latency_ms=100.0, bandwidth_gbps=1.0))
    seconds = tablepuppet.seconds(JOINS, PAYLOAD, network)
    assert seconds[1] == pytest.approx(3 * 0.1 + 160 * 8 / 2**30)  # two exchanges, and one within a table
    assert seconds[2] == pytest.approx(0.1 + 48 * 8 / 2**30)


def test_the_figures_do_not_charge_messages_that_only_name_rows() -> None:
    """With DP-SGD the server names every batch's rows; the figures' rule has predictions and residuals alone, strict
    has all."""
    named = ledger((0, 0, 1, "batches", 500), (1, 0, 1, "rows", 48), (1, 0, 1, "rows", 56), (2, 0, 1, "rows", 48))
    both = np.concatenate([JOINS, named])
    network = NetworkConfig(client_server=LinkConfig(latency_ms=100.0, bandwidth_gbps=1.0))
    assert tablepuppet.price(both, PAYLOAD).tolist() == [*tablepuppet.price(JOINS, PAYLOAD), 0, 0, 0, 0]
    assert tablepuppet.seconds(both, PAYLOAD, network) == tablepuppet.seconds(JOINS, PAYLOAD, network)
    assert strict.price(both, PAYLOAD).sum() == strict.price(JOINS, PAYLOAD).sum() + 500 + 48 + 56 + 48


def test_without_a_mapping_every_row_is_charged() -> None:
    assert tablepuppet.price(ledger((1, 1, 0, "prediction", 240)), Payload(TAGS, 8, 3))[0] == 240
