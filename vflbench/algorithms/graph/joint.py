"""A graph network split between parties: how representations are aggregated, and passes through one party's share.

Nothing here knows of messages. A pass takes an `exchange`: a function that is awaited with a representation (or a
gradient), and returns what the aggregation gives back.

References
----------
Zhang, Hong, Chen: GLASU, arXiv 2303.09531: Agg and Extract (section 2, Algorithms 3 and 4); server back-propagation
(section 2.1).
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vflbench.models.gnn import Adjacency, Backbone, Inputs

Merge = Callable[[int, Tensor], Tensor]  # (segment, own H^+) -> what enters the next segment
Exchange = Callable[[int, Tensor], Awaitable[Tensor]]  # (segment, own tensor) -> what comes back


def aggregation_layers(layers: int, aggregations: int, chosen: Sequence[int] | None = None) -> tuple[int, ...]:
    """The set I: `chosen`, or the last layers of `aggregations` equal blocks of `layers`."""
    if chosen is not None:
        return tuple(chosen)
    block = layers // aggregations
    return tuple(range(block - 1, layers, block))


@dataclass(frozen=True)
class Aggregation:
    """Agg without parameters: the mean (avg) of the parties' parts, or the parts side by side in their order (cat)."""

    how: str
    parties: int

    def columns(self, hidden: int, party: int) -> tuple[int, int]:
        """The hidden columns, first and past the last, that party number `party` hands in."""
        share = hidden // self.parties
        return (party * share, (party + 1) * share) if self.how == "cat" else (0, hidden)

    def combine(self, parts: Sequence[Tensor]) -> Tensor:
        """Agg: (rows, hidden) from every party's (rows, its columns)."""
        return sum(parts[1:], start=parts[0]) / self.parties if self.how == "avg" else torch.cat(list(parts), dim=1)

    def extract(self, total: Tensor, own: Tensor, party: int) -> Tensor:
        """H_{-m}: what the other parties contributed to an aggregate."""
        if self.how == "avg":
            return total - own / self.parties
        first, last = self.columns(total.shape[1], party)
        return torch.cat([total[:, :first], total[:, last:]], dim=1)

    def insert(self, others: Tensor, own: Tensor, party: int) -> Tensor:
        """Agg(H_{-m}, H_m^+): the inverse of `extract`; differentiable in `own`."""
        if self.how == "avg":
            return others + own / self.parties
        first = party * own.shape[1]
        return torch.cat([others[:, :first], own, others[:, first:]], dim=1)

    def without(self, total: Tensor, noise: Tensor, party: int) -> Tensor:
        """An aggregate without the noise (rows, its columns) in the party's own part."""
        if self.how == "avg":
            return total - noise / self.parties
        first, last = self.columns(total.shape[1], party)
        return torch.cat([total[:, :first], total[:, first:last] - noise, total[:, last:]], dim=1)

    def gradients(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """The gradient of the summed loss with respect to each party's own part.

        Parameters
        ----------
        parts : every party's d loss_m / d aggregate.
        """
        total = sum(parts[1:], start=parts[0])
        if self.how == "avg":
            return [total / self.parties] * self.parties
        return [part.contiguous() for part in total.chunk(self.parties, dim=1)]


def forward(
    model: Backbone,
    x: Inputs,
    blocks: Sequence[Adjacency],
    generator: torch.Generator | None = None,
    merge: Merge | None = None,
) -> Tensor:
    """Logits of one pass through one party's network.

    Parameters
    ----------
    merge : gives what enters the next segment, from (segment, H^+). In Algorithm 4 that is the others' stale part with
        the own fresh one in it. None: the network is not split, or the party trains alone.
    """
    h = h0 = model.start(x, generator)
    for segment in range(len(model.ends)):
        h, h0 = model.segment(segment, blocks, h, h0, generator)
        if merge is not None:
            h = merge(segment, h)
    return model.classify(h, generator)


def local_loss(model: Backbone, x: Inputs, blocks: Sequence[Adjacency], labels: Tensor, *rest: Any) -> Tensor:
    """Cross-entropy of the logits that `forward` gives, with the `rest` of its arguments."""
    return F.cross_entropy(forward(model, x, blocks, *rest), labels)


async def joint_inference(model: Backbone, x: Inputs, blocks: Sequence[Adjacency], exchange: Exchange | None) -> Tensor:
    """Logits by Algorithm 3, without gradients and dropout.

    Parameters
    ----------
    exchange : returns the aggregate. None: the network is not split.
    """
    training = model.training
    model.eval()
    start, classify = torch.no_grad()(model.start), torch.no_grad()(model.classify)
    # no single block around everything: while this party waits, others compute with gradients
    run = torch.no_grad()(model.segment)
    h = h0 = start(x)
    for segment in range(len(model.ends)):
        h, h0 = run(segment, blocks, h, h0)
        if exchange is not None:
            h = await exchange(segment, h)
    logits: Tensor = classify(h)
    model.train(training)
    return logits


async def exact_gradients(
    model: Backbone,
    x: Inputs,
    blocks: Sequence[Adjacency],
    labels: Tensor,
    exchange: Exchange,
    exchange_gradient: Exchange,
    generator: torch.Generator | None = None,
    clip: Callable[[Tensor], Tensor] = lambda rows: rows,
) -> Tensor:
    """Server back-propagation: write this party's gradient of the **sum** of all parties' losses into `.grad`.

    Parameters
    ----------
    exchange_gradient : awaited with d loss / d aggregate of a segment, last segment first; returns d (sum of losses) /
        d own H^+.
    clip : what becomes of an own H^+ in the aggregate; `exchange` gets it as it was before.

    Returns
    -------
    The party's own loss.
    """
    projected = model.start(x, generator)
    h = h0 = start = projected.detach().requires_grad_()
    # per segment: its leaf h0, its own H^+, and the aggregate that follows; at both this party's graph starts anew
    segments = []
    for segment in range(len(model.ends)):
        own, after = model.segment(segment, blocks, h, h0, generator)
        h = (await exchange(segment, own.detach())).requires_grad_()
        segments.append((h0, clip(own), h))
        h0 = after.detach().requires_grad_() if model.keeps_start else start
    loss = F.cross_entropy(model.classify(h, generator), labels)
    loss.backward()
    later: Tensor | None = None  # d (sum of losses) / d h0, through the segments above
    for segment, (h0, own, aggregate) in reversed(list(enumerate(segments))):
        assert aggregate.grad is not None
        own.backward(await exchange_gradient(segment, aggregate.grad))
        if later is not None:
            assert h0.grad is not None
            h0.grad.index_add_(0, model.kept(segment, blocks), later)
        later = h0.grad if model.keeps_start else None
    projected.backward(start.grad)
    return loss.detach()


def predictions(logits: Tensor, splits: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    """The logits of the validation and test nodes, in the order of their splits."""
    return {name: logits[torch.tensor(splits[name])] for name in ("val", "test") if name in splits}
