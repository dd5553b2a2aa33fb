"""`pyg`: a convolution of torch_geometric as the layers of a graph network.

A layer is relu(conv(h)). Its convolution works on a block: the edges from the nodes of one level (sources) to those of
the next (targets).

- A convolution that takes sources and targets apart has both. Self-loops are among the edges where the convolution
  would add them (`add_self_loops`).
- GCNConv and APPNP normalise by degrees. They have the block's own weights, those of the whole graph in expectation
  (data/graph/sampling.py). What they give for sources is dropped.
- A convolution without widths of its own (APPNP) follows a linear layer. GINConv has a network of two linear layers.
- Sums and degrees within a convolution are those of the sampled neighbours, as with torch_geometric's NeighborLoader.

`check_convolution` tries one first: at the targets of a small block it must give what torch_geometric gives there on
the whole graph, without random numbers, and the same in training. So batch normalisation is refused: a batch's
statistics are one party's, no message brings them to others, and they mix the rows that privacy keeps apart.
"""

from __future__ import annotations

import functools
import inspect
import random
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vflbench.cards.models.gnn import width_problems
from vflbench.cards.models.pyg import Config
from vflbench.models import DTYPES
from vflbench.models.gnn import Adjacency, Backbone, Projection, dropout
from vflbench.types import Problem, closest

MISSING = "needs torch_geometric: pip install torch-geometric"
DEFAULTS: dict[str, dict[str, Any]] = {
    "APPNP": {"K": 1, "alpha": 0.1},  # a layer is one step
    "GENConv": {"norm": "layer"},  # its own is batch normalisation
}
OURS = {  # keys of convolutions that are not the user's
    "in_channels": "is model.hidden",
    "out_channels": "is model.hidden",
    "nn": "is two linear layers of width model.hidden",
    "edge_dim": "edges have no features here",
    "dropout": "use model.dropout, whose masks come from the run's own streams",
    "cached": "every block is another graph",
    "deg": "is no plain value",
}


def check_convolution(config: Config) -> list[Problem]:
    """What is wrong with the convolution and its keys."""
    try:
        names = _names()
    except ImportError:
        return [Problem("model", config.name, MISSING)]
    if config.conv not in names:
        return [_refused(config.conv, "is no convolution of torch_geometric", closest(config.conv, names))]
    if problems := _option_problems(config):
        return problems
    options = config.conv_options or {}
    if config.hidden % heads(config.conv, options):
        return []  # told by check_width
    reason = failure(config.conv, options, config.hidden)
    if not reason:
        return []
    if options and not failure(config.conv, {}, config.hidden):
        return [Problem("model.conv_options", options, f"with these {config.conv} {reason}")]
    return [_refused(config.conv, reason)]


def check_width(config: Config, parties: int = 1, aggregate: str = "avg") -> list[Problem]:
    """As that of cards/models/gnn.py."""
    try:
        if config.conv not in _names():
            return []  # told by check_convolution
        side_by_side = heads(config.conv, config.conv_options or {})
    except ImportError:
        return []  # likewise
    return width_problems(config.hidden, side_by_side, parties if aggregate == "cat" else 1)


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
    """The network of `config`, as `gnn.build`."""
    network = ConvNet(config, inputs, classes, layers, ends, columns, generator)
    return network.to(device, DTYPES[config.dtype])


class ConvNet(Backbone):
    """The network `pyg`."""

    def _make_projection(self, inputs: int, generator: torch.Generator) -> Projection:
        return Projection(inputs, self.hidden, self.drop, generator, plain=True)

    def _make_layers(self, config: Config, generator: torch.Generator) -> None:
        with torch.random.fork_rng(devices=[]):  # torch_geometric draws from the global generator
            torch.default_generator.manual_seed(int(torch.randint(2**62, (), generator=generator)))
            self.convs = nn.ModuleList(
                Layer(config.conv, config.conv_options or {}, self.hidden, width) for width in self.widths
            )

    def _layer(self, layer: int, a: Adjacency, h: Tensor, h0: Tensor, generator: torch.Generator | None) -> Tensor:
        return torch.relu(self.convs[layer](dropout(h, self.drop, generator), a))


class Layer(nn.Module):
    """One convolution on blocks.

    Parameters
    ----------
    name : a class of torch_geometric.nn.
    options : its keys; the others have its defaults.
    """

    def __init__(self, name: str, options: Mapping[str, Any], inputs: int, outputs: int) -> None:
        super().__init__()
        own = _signature(name)
        given = _arguments(name, options, inputs, outputs)
        self.linear = None if _has_widths(name) else nn.Linear(inputs, outputs)
        self.weighted = _weighted(name)
        self.loops = "add_self_loops" in own and _value(own, given, "add_self_loops")
        if "add_self_loops" in own:
            given["add_self_loops"] = False  # a block has them, at the targets' places
        if self.weighted:
            given["normalize"] = False
        self.conv = _class(name)(**given)

    def forward(self, h: Tensor, a: Adjacency) -> Tensor:
        """The convolution at the rows of `a`; `h` is at its columns."""
        if self.linear is not None:
            h = self.linear(h)
        out: Tensor
        if self.weighted:
            edges = torch.stack([a.columns, a.own[_rows(a, a.start.diff(), len(a.columns))]])
            out = self.conv(h, edges, a.weights)
            return out[a.own]
        if self.loops:
            edges = torch.stack([a.columns, _rows(a, a.start.diff(), len(a.columns))])
        else:  # a row's self-loop is its last entry
            count = len(a.columns) - len(a.own)
            rows = _rows(a, a.start.diff() - 1, count)
            edges = torch.stack([a.columns[torch.arange(count, device=rows.device) + rows], rows])
        out = self.conv((h, h[a.own]), edges)
        return out


def _rows(a: Adjacency, counts: Tensor, total: int) -> Tensor:
    """The row of each entry of a block, where row i has counts[i] of all `total` entries."""
    return torch.repeat_interleave(torch.arange(len(a.own), device=counts.device), counts, output_size=total)


# --- what a convolution takes -----------------------------------------------------------------------------------------


def _class(name: str) -> Any:
    import torch_geometric.nn

    return getattr(torch_geometric.nn, name)


@functools.cache
def _names() -> tuple[str, ...]:
    """All convolutions of torch_geometric."""
    import torch_geometric.nn.conv as convolutions

    return tuple(sorted(name for name in convolutions.__all__ if name != "MessagePassing"))


@functools.cache
def _signature(name: str) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(_class(name)).parameters


def _has_widths(name: str) -> bool:
    return "in_channels" in _signature(name) or "nn" in _signature(name)


def _weighted(name: str) -> bool:
    """Whether it can take the weights of GCN's normalised adjacency instead of making them."""
    return {"normalize", "add_self_loops"} <= _signature(name).keys() and (
        "edge_weight" in inspect.signature(_class(name).forward).parameters
    )


def _value(own: Mapping[str, inspect.Parameter], given: Mapping[str, Any], key: str) -> Any:
    """The value of `key`: as given, else the default."""
    return given.get(key, own[key].default)


def heads(name: str, options: Mapping[str, Any]) -> int:
    """How many heads stand side by side in the width."""
    own = _signature(name)
    side_by_side = {"heads", "concat"} <= own.keys() and _value(own, options, "concat")
    count = _value(own, options, "heads") if side_by_side else 1
    return count if isinstance(count, int) and count > 0 else 1


def _options(name: str) -> list[str]:
    """The keys that a user may give."""
    own = _signature(name)
    fixed = {*OURS, *(("normalize", "add_self_loops") if _weighted(name) else ())}
    keys = [key for key, parameter in own.items() if key not in fixed and parameter.kind is not parameter.VAR_KEYWORD]
    passes_on = any(parameter.kind is parameter.VAR_KEYWORD for parameter in own.values())
    return keys + ["aggr"] * (passes_on and "aggr" not in keys)


def _arguments(name: str, options: Mapping[str, Any], inputs: int, outputs: int) -> dict[str, Any]:
    """What the convolution is made with."""
    own, given = _signature(name), {**DEFAULTS.get(name, {}), **options}
    if "in_channels" in own:
        given["in_channels"] = inputs
    if "out_channels" in own:
        given["out_channels"] = outputs // heads(name, options)
    if "nn" in own and own["nn"].default is inspect.Parameter.empty:
        given["nn"] = nn.Sequential(nn.Linear(inputs, outputs), nn.ReLU(), nn.Linear(outputs, outputs))
    return given


def _option_problems(config: Config) -> list[Problem]:
    known, problems = _options(config.conv), []
    for key, value in (config.conv_options or {}).items():
        where = f"model.conv_options.{key}"
        if key in known:
            continue
        if key in OURS or (key in ("normalize", "add_self_loops") and _weighted(config.conv)):
            problems.append(Problem(where, value, OURS.get(key, "the block's weights are normalised, with self-loops")))
        else:
            has = f"{config.conv} has: {', '.join(known)}" if known else f"{config.conv} has no keys"
            problems.append(Problem(where, value, f"unknown key; {has}", closest(str(key), known)))
    return problems


def _refused(name: str, reason: str, hint: str | None = None) -> Problem:
    return Problem("model.conv", name, f"{reason}; these can be used: {', '.join(usable())}", hint)


# --- trying one -------------------------------------------------------------------------------------------------------


@functools.cache
def usable() -> tuple[str, ...]:
    """The convolutions that need nothing but a block and a width."""
    return tuple(name for name in _names() if not failure(name, {}, 8))


def failure(name: str, options: Mapping[str, Any], width: int) -> str:
    """Why a convolution cannot be a layer; empty where it can."""
    own, given = _signature(name), _arguments(name, options, width, width)
    required = [key for key, one in own.items() if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD]
    if lacking := [key for key in required if key not in given]:
        return f"needs {', '.join(lacking)}, which the network does not give"
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.default_generator.manual_seed(0)
        try:
            return _compare(_class(name)(**given).double().eval(), name, options, width)
        except Exception as error:  # another package's code
            text = str(error).partition("\n")[0].rstrip(".") or type(error).__name__
            return f"does not work on nodes and edges alone ({text[:120]})"


def _compare(whole: nn.Module, name: str, options: Mapping[str, Any], width: int) -> str:
    """As `failure`, where nothing is lacking: a block against the whole graph, a ring of eight nodes and two chords."""
    layer = Layer(name, options, width, width).double().eval()
    layer.conv.load_state_dict(whole.state_dict())
    x = torch.randn(8, width, dtype=torch.float64)
    joined = torch.eye(8, dtype=torch.float64)
    for a, b in (*((node, (node + 1) % 8) for node in range(8)), (0, 4), (2, 5)):
        joined[a, b] = joined[b, a] = 1
    scale = joined.sum(1).rsqrt()
    edges = (joined - torch.eye(8)).nonzero().T
    want = whole(x if layer.linear is None else layer.linear(x), edges)
    targets = torch.tensor([2, 6])
    near = [[*(joined[t] - torch.eye(8)[t]).nonzero().flatten().tolist(), t] for t in targets.tolist()]
    sources = torch.tensor(sorted({node for row in near for node in row}))
    columns = torch.tensor([node for row in near for node in row])
    block = Adjacency(
        torch.tensor([0, len(near[0]), len(columns)]),
        torch.searchsorted(sources, columns),
        (scale[targets].repeat_interleave(torch.tensor(list(map(len, near)))) * scale[columns]),
        torch.searchsorted(sources, targets),
    )
    try:
        got = layer(x[sources], block)
    except Exception:  # what it says of a tuple of two matrices helps nobody
        return "does not take the sources and the targets of a block apart"
    if not isinstance(got, Tensor) or got.shape != (2, width):
        return "gives no representation of the width asked for"
    if not torch.allclose(got, want[targets], rtol=1e-9, atol=1e-9):
        return "gives another result on a block than on the whole graph: it needs more than a node's neighbours"
    layer.train()
    before = (torch.get_rng_state(), random.getstate(), repr(np.random.get_state()))
    trained = layer(x[sources], block)
    after = (torch.get_rng_state(), random.getstate(), repr(np.random.get_state()))
    if not torch.equal(before[0], after[0]) or before[1:] != after[1:]:
        return "draws random numbers that no seed of a run controls"
    if not torch.allclose(trained, got, rtol=1e-9, atol=1e-9):
        return "gives another result in training: it normalises by the rows of a batch, whose statistics no party sends"
    return ""
