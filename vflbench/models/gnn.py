"""Graph networks that run layer by layer on sampled blocks, since GLASU aggregates between layers.

A network has a projection of the features (`start`), L layers in segments that end where representations are aggregated
(`segment`), and a linear classifier (`classify`). It knows nothing of parties. At the end of a segment it hands out the
columns `columns` of the hidden width: all of them for a mean, an own share for a concatenation. It takes any
representation of the full width back in.

- `gcn`: relu(A H W + b); the first layer's W is the projection, so H[0] = X. Kipf and Welling, ICLR 2017.
- `gcnii`: relu(((1 - alpha) A H + alpha H0) ((1 - beta) I + beta W)), H0 = relu(X W + b), beta = log(lambda / l + 1),
  l from 1. Chen et al., ICML 2020. A layer that hands out a share takes only those columns of I and of W.
- `gat`: attention with heads, LeakyReLU 0.2, a linear skip connection, ELU. Velickovic et al., ICLR 2018.
- `residual_gcn`: the network of GLASU's released code: relu(A H W + b), batch normalisation and dropout of a layer's
  output only, self-loops of weight 2, and mu_b out + (1 - mu_b) in over segment b, mu_b = mu / (b + 1).

Dropout happens only if a generator is given; batch normalisation follows `train()` and `eval()`. No global generator is
used.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vflbench.cards.models.gnn import Config
from vflbench.models import DTYPES

if TYPE_CHECKING:
    from vflbench.data.graph.sampling import Block

SPARSE_BELOW = 0.25  # share of nonzero features under which rows are kept as bags of (column, value)


# --- inputs -----------------------------------------------------------------------------------------------------------


class Bags(NamedTuple):
    """Rows of a sparse matrix: row i has values[start[i]:start[i + 1]] in those columns."""

    columns: Tensor  # (entries,) int64
    start: Tensor  # (rows + 1,) int64
    values: Tensor  # (entries,)


Inputs = Tensor | Bags


class Features:
    """A feature matrix (nodes, width) to take rows of; one with few nonzeros is kept as bags, several times faster."""

    def __init__(self, matrix: np.ndarray, device: str, dtype: torch.dtype) -> None:
        self.width = matrix.shape[1]
        self.device = device
        at = np.flatnonzero(matrix)  # several times faster than nonzero by row and column
        self.sparse = len(at) < SPARSE_BELOW * matrix.size
        if self.sparse:
            rows, columns = np.divmod(at, max(self.width, 1))
            self.start = np.zeros(len(matrix) + 1, np.int64)
            np.cumsum(np.bincount(rows, minlength=len(matrix)), out=self.start[1:])
            self.columns = torch.from_numpy(columns).to(device)
            self.values = torch.from_numpy(matrix.reshape(-1)[at]).to(device, dtype)
        else:
            self.dense = torch.tensor(matrix, device=device, dtype=dtype)

    def rows(self, nodes: np.ndarray) -> Inputs:
        """The rows of `nodes` (n,) int64."""
        if not self.sparse:
            return self.dense[torch.from_numpy(nodes).to(self.device)]
        first, counts = self.start[nodes], self.start[nodes + 1] - self.start[nodes]
        start = np.zeros(len(nodes) + 1, np.int64)
        np.cumsum(counts, out=start[1:])
        at = torch.from_numpy(np.repeat(first - start[:-1], counts) + np.arange(start[-1])).to(self.device)
        return Bags(self.columns[at], torch.from_numpy(start).to(self.device), self.values[at])


class Adjacency(NamedTuple):
    """A block of the normalised adjacency as tensors (`data.graph.sampling.Block`).

    Its rows are the level above, its columns the level below.
    """

    start: Tensor  # (rows + 1,) int64
    columns: Tensor  # (entries,) int64
    weights: Tensor  # (entries,)
    own: Tensor  # (rows,) int64: the rows' own places among the columns

    def product(self, h: Tensor) -> Tensor:
        """The product A h, (rows, width).

        It is faster than torch's sparse product on blocks of this size, above all backward.
        """
        return F.embedding_bag(
            self.columns, h, self.start, mode="sum", per_sample_weights=self.weights, include_last_offset=True
        )


def adjacency(block: Block, device: str, dtype: torch.dtype) -> Adjacency:
    """A block as tensors on a device."""
    start, columns, own = (torch.from_numpy(a).to(device) for a in (block.start, block.columns, block.own))
    return Adjacency(start, columns, torch.from_numpy(block.weights).to(device, dtype), own)


def dropout(x: Tensor, share: float, generator: torch.Generator | None) -> Tensor:
    """Inverted dropout from an explicit generator; `x` itself without one.

    `share` is rounded to a multiple of 2^-16: four masks come out of one 64-bit draw, several times faster than uniform
    numbers.
    """
    drop = round(share * 65536)
    if generator is None or drop == 0:
        return x
    draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64, device=generator.device)
    draws = draws.random_(-(2**63), None, generator=generator).to(x.device)
    keep = draws.view(torch.int16)[: x.numel()].view(x.shape) >= drop - 32768
    return x * keep.to(x.dtype).mul_(65536 / (65536 - drop))


def parameter(shape: tuple[int, ...], bound: float, generator: torch.Generator) -> nn.Parameter:
    """A parameter, drawn uniformly from (-bound, bound)."""
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound, generator=generator))


def glorot(rows: int, columns: int, generator: torch.Generator) -> nn.Parameter:
    """A matrix after Glorot and Bengio 2010."""
    return parameter((rows, columns), math.sqrt(6 / (rows + columns)), generator)


def he(rows: int, columns: int, generator: torch.Generator) -> nn.Parameter:
    """A matrix after He et al. 2015, by the number of outputs.

    By the number of inputs signals would vanish: a row has nonzeros in only a few of hundreds of columns.
    """
    return parameter((rows, columns), math.sqrt(6 / columns), generator)


class Projection(nn.Module):
    """Features times a matrix, with dropout on the features; relu(x W + b), or x W alone."""

    def __init__(self, inputs: int, width: int, drop: float, generator: torch.Generator, plain: bool = False) -> None:
        super().__init__()
        self.drop = drop
        bound = 1 / math.sqrt(max(inputs, 1))
        self.weight = he(inputs, width, generator) if plain else parameter((inputs, width), bound, generator)
        self.bias = None if plain else parameter((width,), bound, generator)

    def forward(self, x: Inputs, generator: torch.Generator | None) -> Tensor:
        """The projected rows, (rows, width)."""
        if isinstance(x, Bags):
            values = dropout(x.values, self.drop, generator)
            h = F.embedding_bag(
                x.columns, self.weight, x.start, mode="sum", per_sample_weights=values, include_last_offset=True
            )
        else:
            h = dropout(x, self.drop, generator) @ self.weight
        return h if self.bias is None else torch.relu(h + self.bias)


# --- backbones --------------------------------------------------------------------------------------------------------


class Backbone(nn.Module, ABC):
    """What the networks share.

    Parameters
    ----------
    config : its keys hidden and dropout; subclasses have others.
    inputs, classes, layers : d_m, C and L.
    ends : the layers, ascending, after which representations are aggregated; the last is layers - 1.
    columns : (first, last + 1) of the hidden columns that those layers hand out; None: all.
    """

    self_weight = 1.0  # of the self-loop in the adjacency
    keeps_start = False  # whether layers also take the projection
    drops_ends = True  # whether dropout also acts on the features and on the classifier's input

    def __init__(
        self,
        config: Any,
        inputs: int,
        classes: int,
        layers: int,
        ends: Sequence[int],
        columns: tuple[int, int] | None,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.ends = tuple(ends)
        self.drop: float = config.dropout
        self.hidden: int = config.hidden
        kept: tuple[int, int] = columns or (0, self.hidden)
        self.first, self.last = kept
        # of the layers' outputs
        self.widths = [self.last - self.first if layer in self.ends else config.hidden for layer in range(layers)]
        self.projection = self._make_projection(inputs, generator)
        self._make_layers(config, generator)
        bound = 1 / math.sqrt(config.hidden)
        self.head = parameter((config.hidden, classes), bound, generator)
        self.head_bias = parameter((classes,), bound, generator)

    def _make_projection(self, inputs: int, generator: torch.Generator) -> Projection:
        return Projection(inputs, self.hidden, self.drop if self.drops_ends else 0.0, generator)

    @abstractmethod
    def _make_layers(self, config: Any, generator: torch.Generator) -> None:
        """The parameters of all layers."""

    @abstractmethod
    def _layer(self, layer: int, a: Adjacency, h: Tensor, h0: Tensor, generator: torch.Generator | None) -> Tensor:
        """The output of one layer, (rows of a, widths[layer]).

        Parameters
        ----------
        h : the layer's input, (columns of a, hidden).
        h0 : the projection at the rows of a.
        """

    def start(self, x: Inputs, generator: torch.Generator | None = None) -> Tensor:
        """The projection of the rows x of features."""
        projected: Tensor = self.projection(x, generator)
        return projected

    def segment(
        self, segment: int, blocks: Sequence[Adjacency], h: Tensor, h0: Tensor, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Run the layers after the last aggregation up to layer `ends[segment]`.

        Parameters
        ----------
        blocks : the adjacencies of all layers.

        Returns
        -------
        H^+, and h0 at its rows.
        """
        for layer in self._layers_of(segment):
            if self.keeps_start:
                h0 = h0.index_select(0, blocks[layer].own)
            h = self._layer(layer, blocks[layer], h, h0, generator)
        return h, h0

    def kept(self, segment: int, blocks: Sequence[Adjacency]) -> Tensor:
        """The rows of a segment's h0 that it hands on, int64."""
        first, *rest = self._layers_of(segment)
        rows = blocks[first].own
        for layer in rest:
            rows = rows[blocks[layer].own]
        return rows

    def _layers_of(self, segment: int) -> range:
        return range(self.ends[segment - 1] + 1 if segment else 0, self.ends[segment] + 1)

    def classify(self, h: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Logits, (rows, classes)."""
        return torch.addmm(self.head_bias, dropout(h, self.drop if self.drops_ends else 0.0, generator), self.head)


class GCN(Backbone):
    """The network `gcn`."""

    def _make_projection(self, inputs: int, generator: torch.Generator) -> Projection:
        return Projection(inputs, self.widths[0], self.drop, generator, plain=True)

    def _make_layers(self, config: Config, generator: torch.Generator) -> None:
        self.weights = nn.ParameterList(he(self.hidden, width, generator) for width in self.widths[1:])
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(width)) for width in self.widths)

    def _layer(self, layer: int, a: Adjacency, h: Tensor, h0: Tensor, generator: torch.Generator | None) -> Tensor:
        if layer == 0:  # its weights are the projection
            return torch.relu(a.product(h) + self.biases[0])
        return torch.relu(
            torch.addmm(self.biases[layer], a.product(dropout(h, self.drop, generator)), self.weights[layer - 1])
        )


class GCNII(Backbone):
    """The network `gcnii`."""

    keeps_start = True

    def _make_layers(self, config: Config, generator: torch.Generator) -> None:
        self.alpha = config.alpha
        self.betas = [math.log(config.lambda_ / (layer + 1) + 1) for layer in range(len(self.widths))]
        self.weights = nn.ParameterList(
            parameter((self.hidden, width), 1 / math.sqrt(self.hidden), generator) for width in self.widths
        )

    def _layer(self, layer: int, a: Adjacency, h: Tensor, h0: Tensor, generator: torch.Generator | None) -> Tensor:
        mixed = torch.lerp(a.product(dropout(h, self.drop, generator)), h0, self.alpha)
        kept = mixed if self.widths[layer] == self.hidden else mixed[:, self.first : self.last]
        beta = self.betas[layer]
        return torch.relu(torch.addmm(kept, mixed, self.weights[layer], beta=1 - beta, alpha=beta))


class GAT(Backbone):
    """The network `gat`."""

    def _make_layers(self, config: Config, generator: torch.Generator) -> None:
        self.heads = config.heads
        self.weights = nn.ParameterList(glorot(self.hidden, width, generator) for width in self.widths)
        self.sources = nn.ParameterList(glorot(self.heads, width // self.heads, generator) for width in self.widths)
        self.targets = nn.ParameterList(glorot(self.heads, width // self.heads, generator) for width in self.widths)
        self.skips = nn.ParameterList(glorot(self.hidden, width, generator) for width in self.widths)
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(width)) for width in self.widths)

    def _layer(self, layer: int, a: Adjacency, h: Tensor, h0: Tensor, generator: torch.Generator | None) -> Tensor:
        h = dropout(h, self.drop, generator)
        values = (h @ self.weights[layer]).view(len(h), self.heads, -1)
        rows = torch.repeat_interleave(
            torch.arange(len(a.own), device=h.device), a.start.diff(), output_size=len(a.columns)
        )
        towards = (values * self.sources[layer]).sum(-1)[a.columns]
        scores = F.leaky_relu(towards + (values * self.targets[layer]).sum(-1)[a.own][rows], 0.2)  # (entries, heads)
        top = scores.detach().new_full((len(a.own), self.heads), -math.inf)
        # subtracted so that exp does not overflow
        top = top.scatter_reduce(0, rows[:, None].expand_as(scores), scores.detach(), "amax")
        shares = (scores - top[rows]).exp()
        total = shares.new_zeros(len(a.own), self.heads).index_add(0, rows, shares)
        messages = values[a.columns] * (shares / total[rows])[:, :, None]
        out = values.new_zeros(len(a.own), *values.shape[1:]).index_add(0, rows, messages).flatten(1)
        return F.elu(out + self.biases[layer] + h[a.own] @ self.skips[layer])


class ResidualGCN(Backbone):
    """The network `residual_gcn`."""

    self_weight = 2.0
    drops_ends = False

    def _make_layers(self, config: Config, generator: torch.Generator) -> None:
        self.mu = config.mu
        bound = 1 / math.sqrt(self.hidden)
        self.weights = nn.ParameterList(parameter((self.hidden, width), bound, generator) for width in self.widths)
        self.biases = nn.ParameterList(parameter((width,), bound, generator) for width in self.widths)
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for width in self.widths)

    def _layer(self, layer: int, a: Adjacency, h: Tensor, h0: Tensor, generator: torch.Generator | None) -> Tensor:
        h = torch.relu(torch.addmm(self.biases[layer], a.product(h), self.weights[layer]))
        return dropout(self.norms[layer](h), self.drop, generator)

    def segment(
        self, segment: int, blocks: Sequence[Adjacency], h: Tensor, h0: Tensor, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """As `Backbone.segment`, with the segment's input mixed in."""
        out, h0 = super().segment(segment, blocks, h, h0, generator)
        kept = h.index_select(0, self.kept(segment, blocks))
        mu = self.mu / (segment + 1)
        return mu * out + (1 - mu) * kept[:, self.first : self.last], h0


BACKBONES: dict[str, type[Backbone]] = {"gcn": GCN, "gat": GAT, "gcnii": GCNII, "residual_gcn": ResidualGCN}


def build(
    config: Config,
    inputs: int,
    classes: int,
    layers: int,
    ends: Sequence[int],
    generator: torch.Generator,
    device: str = "cpu",
    columns: tuple[int, int] | None = None,
) -> Backbone:
    """The network of `config` (see `Backbone`); it is drawn on the CPU, so that it is the same on every device."""
    network = BACKBONES[config.name](config, inputs, classes, layers, ends, columns, generator)
    return network.to(device, DTYPES[config.dtype])
