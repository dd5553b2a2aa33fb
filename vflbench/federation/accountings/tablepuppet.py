"""The rule that reproduces TablePuppet's figures (Xu et al., arXiv 2403.15839).

Its constants were found by trying. A number costs 8 bytes, both ways. Every row of a table that joins is charged once
an epoch, however many batches need it. The inner exchanges of a table's horizontal parts cost no bytes. An exchange
costs one latency, a gigabit is 2^30 bits, and an epoch's exchanges follow each other. The table mapping, before the
first epoch, is free.

Messages that only name rows are free too: `batches`, sent once, and `rows`, with which DP-SGD names every batch that it
draws. The paper's table of messages lists only predictions and residuals, and its figures hold no others. They are no
exchange of their own either: a batch's rows go out with the residual before it. `accounting=strict` charges them like
any message.
"""

import numpy as np

from vflbench.federation.accounting import Payload
from vflbench.federation.ledger import COLUMN
from vflbench.types import NetworkConfig

OUTER = ("prediction", "residual")
GATHERS = ("prediction", "parameters", "gradient")  # an exchange each
GIGABIT = 2.0**30  # bits


def price(rows: np.ndarray, payload: Payload) -> np.ndarray:
    """The bytes of each message by the paper's rule, (n,)."""
    nbytes = rows[:, COLUMN["bytes"]]
    mapping = _tagged(rows, payload, "mapping")  # 16 bytes for every row that joins: its id and how often
    joining = dict(zip(rows[mapping, COLUMN["dst"]].astype(int), nbytes[mapping] / 16, strict=True))
    found = np.zeros(len(rows))
    for name, end in zip(OUTER, ("src", "dst"), strict=True):
        chosen = np.flatnonzero(_tagged(rows, payload, name))
        client, round = rows[chosen, COLUMN[end]].astype(np.int64), rows[chosen, COLUMN["round"]].astype(np.int64)
        full = nbytes[chosen] * 8 / payload.value_bytes
        _, group = np.unique(client + round * (int(client.max(initial=0)) + 1), return_inverse=True)
        together = np.bincount(group, weights=full)[group] if len(chosen) else full
        once = np.array([joining.get(c, np.inf) for c in client.tolist()]) * payload.outputs * 8
        found[chosen] = full * np.minimum(1.0, once / np.maximum(together, 1.0))
    return found


def seconds(rows: np.ndarray, payload: Payload, network: NetworkConfig) -> dict[int, float]:
    """The seconds of each round that has messages, by round."""
    link, charged = network.client_server, price(rows, payload)
    rounds = rows[:, COLUMN["round"]].astype(np.int64)
    found = {}
    for round in np.unique(rounds[rounds > 0]).tolist():
        here = rounds == round
        exchanges = 0
        for name in GATHERS:
            sent = rows[here & _tagged(rows, payload, name), COLUMN["src"]].astype(np.int64)
            exchanges += int(np.bincount(sent).max(initial=0))
        transfer = charged[here].sum() * 8 / (link.bandwidth_gbps * GIGABIT) if link.bandwidth_gbps else 0.0
        found[round] = exchanges * link.latency_ms / 1e3 + float(transfer)
    return found


def _tagged(rows: np.ndarray, payload: Payload, name: str) -> np.ndarray:
    codes = [code for code, tag in enumerate(payload.tags) if tag == name]
    return np.isin(rows[:, COLUMN["tag"]].astype(np.int64), codes)
