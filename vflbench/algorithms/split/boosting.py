"""What SecureBoost's active party knows beside messages: the trees, and the derivatives of the loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

FRACTION = 20  # bits after the point of g and h
LEAF = -1  # in place of a split's owner
MOST = np.iinfo(np.int32).max  # of a derivative in multiples of 2^-FRACTION


@dataclass
class Trees:
    """Trees as heaps: of every node who owns its split, which of the owner's splits it is, and a leaf's value."""

    owner: np.ndarray  # (trees, nodes) int16; LEAF: none
    split: np.ndarray  # (trees, nodes) int32: place in the owner's list of splits
    value: np.ndarray  # (trees, nodes)

    @classmethod
    def none(cls, depth: int) -> Trees:
        """No tree, of that depth."""
        shape = 0, 2 ** (depth + 1) - 1
        return cls(np.empty(shape, np.int16), np.empty(shape, np.int32), np.empty(shape))

    def add(self, owner: np.ndarray, split: np.ndarray, value: np.ndarray) -> None:
        """One tree more."""
        for name, new in (("owner", owner), ("split", split), ("value", value)):
            known = getattr(self, name)
            setattr(self, name, np.concatenate([known, new[None].astype(known.dtype)]))

    def scores(self, below: Sequence[np.ndarray], outputs: int, start: np.ndarray) -> np.ndarray:
        """Scores (n, outputs) of rows; `below` are each party's splits, (s, n)."""
        rows = np.arange(below[0].shape[1])
        total = np.repeat(start[None], len(rows), axis=0)
        for tree, (owner, split, value) in enumerate(zip(self.owner, self.split, self.value, strict=True)):
            position = np.zeros(len(rows), np.int64)
            for _ in range(int(np.log2(owner.size + 1)) - 1):
                left = np.ones(len(rows), bool)
                for party, own in enumerate(below):
                    mine = owner[position] == party
                    left[mine] = own[split[position[mine]], rows[mine]]
                inner = owner[position] != LEAF
                position = np.where(inner, 2 * position + np.where(left, 1, 2), position)
            total[:, tree % outputs] += value[position]
        return total


def sampled(gradient: np.ndarray, top: float, other: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Sample rows by gradient (GOSS; Ke et al., NeurIPS 2017, algorithm 2).

    Kept are the share `top` of the rows with the largest |g|, and the share `other` of all rows, drawn from the rest.
    Those count (1 - top) / other times.

    Parameters
    ----------
    gradient : g and h, (n, 2), as `Labels.gradient`.

    Returns
    -------
    Whether each row is kept, (n,); g and h, (n, 2), which are 0 for rows that are not.
    """
    count = len(gradient)
    order = np.argsort(-np.abs(gradient[:, 0]), kind="stable")
    first, rest = np.split(order, [round(top * count)])
    drawn = rng.choice(rest, min(round(other * count), len(rest)), replace=False)
    weighted = np.zeros_like(gradient)
    weighted[first] = gradient[first]
    if len(drawn):
        weighted[drawn] = np.clip(np.rint(gradient[drawn] * ((1 - top) / other)), -MOST, MOST)
    kept = np.zeros(count, bool)
    kept[first] = kept[drawn] = True
    return kept, weighted


class Labels:
    """The loss at the active party; scores (n, outputs), of two classes one."""

    def __init__(self, labels: np.ndarray, classes: int) -> None:
        self.labels, self.classes = labels, classes
        self.outputs = classes if classes > 2 else 1
        self.shift = 0.0 if classes else float(labels.mean())
        self.scale = 1.0 if classes else float(labels.std()) or 1.0
        self.start = np.zeros(self.outputs)

    def loss(self, scores: np.ndarray) -> float:
        """Mean cross-entropy, or half the mean squared error of the standardised targets."""
        if not self.classes:
            return float(np.square(scores[:, 0] - (self.labels - self.shift) / self.scale).mean() / 2)
        logits = self.outcome(scores)
        top = logits.max(axis=1, keepdims=True)
        logsum = np.log(np.exp(logits - top).sum(axis=1)) + top[:, 0]
        return float((logsum - logits[np.arange(len(logits)), self.labels]).mean())

    def gradient(self, scores: np.ndarray, output: int) -> np.ndarray:
        """First and second derivatives of each row's loss by one output, (n, 2), in multiples of 2^-FRACTION.

        Whole numbers of 32 bits: a derivative beyond 2048 is cut there.
        """
        if not self.classes:
            g = scores[:, 0] - (self.labels - self.shift) / self.scale
            h = np.ones_like(g)
        else:
            logits = self.outcome(scores)
            p = np.exp(logits - logits.max(axis=1, keepdims=True))
            of = output if self.classes > 2 else 1
            share = p[:, of] / p.sum(axis=1)
            g, h = share - (self.labels == of), share * (1 - share)
        whole: np.ndarray = np.rint(np.clip(np.stack([g, h], axis=1) * 2**FRACTION, -MOST, MOST)).astype(np.int64)
        return whole

    def outcome(self, scores: np.ndarray) -> np.ndarray:
        """What is scored, (n, classes) or (n, 1)."""
        if self.classes == 2:
            return np.concatenate([np.zeros_like(scores), scores], axis=1)
        return scores * self.scale + self.shift
