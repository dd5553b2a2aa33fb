"""What a ledger costs: the sums behind every x-axis.

`strict` charges what was sent. A named re-pricing charges the same ledger by the rule of a paper's figures, so that its numbers can be
compared; summaries and curves say by which rule they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vflbench.federation.ledger import COLUMN
from vflbench.federation.links import CLIENT_SERVER, LINK_KINDS, LOCAL
from vflbench.types import NetworkConfig

GIGABIT = 2.0**30  # bits, as TablePuppet's figures count


@dataclass(frozen=True)
class Payload:
    """What a re-pricing must know of a run beside its ledger."""

    tags: Sequence[str]  # by the ledger's tag code
    value_bytes: int  # of one number in a prediction
    outputs: int  # numbers in one prediction (d_c)


class Strict:
    """Every message costs its payload; framing is not charged. Times are the engine's."""

    def __init__(self, payload: Payload) -> None:
        pass

    def price(self, rows: np.ndarray) -> np.ndarray:
        """Bytes charged per message, (n,), of a whole ledger (n, 10)."""
        return rows[:, COLUMN["bytes"]]

    def seconds(self, rows: np.ndarray, network: NetworkConfig) -> dict[int, float] | None:
        """Communication time charged per round; None: as it was."""
        return None


class TablePuppet(Strict):
    """The rule that reproduces TablePuppet's figures (papers: section 3, "Constants that reproduce the figures").

    A number costs 8 bytes, both ways. Of a table every row that joins is charged once an epoch however many batches need it. The inner
    exchanges of a table's horizontal parts cost no bytes. An exchange costs one latency, a gigabit is 2^30 bits, and an epoch's exchanges
    follow each other. The table mapping, before the first epoch, is free.

    So are messages that only name rows: `batches`, sent once, and `rows`, with which DP-SGD names every batch that it draws. The paper's
    table of messages has predictions and residuals alone, its figures have no others in them. They are no
    exchange of their own either: a batch's rows go out with the residual before it. `accounting=strict` charges them as any message.
    """

    OUTER = ("prediction", "residual")
    GATHERS = ("prediction", "parameters", "gradient")  # an exchange each

    def __init__(self, payload: Payload) -> None:
        self.payload = payload

    def _tagged(self, rows: np.ndarray, *names: str) -> np.ndarray:
        codes = [code for code, name in enumerate(self.payload.tags) if name in names]
        return np.isin(rows[:, COLUMN["tag"]].astype(np.int64), codes)

    def price(self, rows: np.ndarray) -> np.ndarray:
        nbytes = rows[:, COLUMN["bytes"]]
        mapping = self._tagged(rows, "mapping")  # 16 bytes for every row that joins: its id and how often
        joining = dict(zip(rows[mapping, COLUMN["dst"]].astype(int), nbytes[mapping] / 16, strict=True))
        price = np.zeros(len(rows))
        for name, end in zip(self.OUTER, ("src", "dst"), strict=True):
            chosen = np.flatnonzero(self._tagged(rows, name))
            client, round = rows[chosen, COLUMN[end]].astype(np.int64), rows[chosen, COLUMN["round"]].astype(np.int64)
            full = nbytes[chosen] * 8 / self.payload.value_bytes
            _, group = np.unique(client + round * (int(client.max(initial=0)) + 1), return_inverse=True)
            together = np.bincount(group, weights=full)[group] if len(chosen) else full
            once = np.array([joining.get(c, np.inf) for c in client.tolist()]) * self.payload.outputs * 8
            price[chosen] = full * np.minimum(1.0, once / np.maximum(together, 1.0))
        return price

    def seconds(self, rows: np.ndarray, network: NetworkConfig) -> dict[int, float]:
        link, price = network.client_server, self.price(rows)
        rounds = rows[:, COLUMN["round"]].astype(np.int64)
        found = {}
        for round in np.unique(rounds[rounds > 0]).tolist():
            here = rounds == round
            exchanges = 0
            for name in self.GATHERS:
                sent = rows[here & self._tagged(rows, name), COLUMN["src"]].astype(np.int64)
                exchanges += int(np.bincount(sent).max(initial=0))
            transfer = price[here].sum() * 8 / (link.bandwidth_gbps * GIGABIT) if link.bandwidth_gbps else 0.0
            found[round] = exchanges * link.latency_ms / 1e3 + float(transfer)
        return found


RULES: dict[str, type[Strict]] = {"strict": Strict, "tablepuppet": TablePuppet}


class Totals:
    """Sums over a ledger (n, 10), by round, tag and link kind. Messages of kind `local` are counted in `by_link` alone."""

    def __init__(self, rule: Strict, rows: np.ndarray, cost_ratio: float) -> None:
        self.by_tag: dict[int, int] = {}
        self.by_link: dict[str, int] = {}
        nbytes = rule.price(rows)
        kind = rows[:, COLUMN["kind"]].astype(np.int64)
        for code, name in enumerate(LINK_KINDS):
            if (kind == code).any():
                self.by_link[name] = round(nbytes[kind == code].sum())
        charged = kind != LINK_KINDS.index(LOCAL)
        nbytes, kind = nbytes[charged], kind[charged]
        weight = np.where(kind == LINK_KINDS.index(CLIENT_SERVER), cost_ratio, 1.0)
        rounds, tags, vectors = (rows[charged, COLUMN[key]].astype(np.int64) for key in ("round", "tag", "vectors"))
        for tag in np.unique(tags):
            self.by_tag[int(tag)] = round(nbytes[tags == tag].sum())
        self.rounds, index = np.unique(rounds, return_inverse=True)
        columns = (nbytes, np.ones(len(nbytes)), vectors, nbytes * weight)
        sums = [np.bincount(index, weights=column, minlength=len(self.rounds)) for column in columns]
        self.sums = np.vstack([np.zeros((1, 4)), np.cumsum(np.stack(sums, axis=1), axis=0)])  # of the rounds before each

    def until(self, round: int) -> np.ndarray:
        """[bytes, messages, vectors, cost] of all rounds up to `round`."""
        found: np.ndarray = self.sums[np.searchsorted(self.rounds, round, side="right")]
        return found
