"""The one vertical model: scores = top(aggregate_k bottom_k(x_k)), which every family of methods trains.

| model                | bottom, party k                     | aggregate   | top                        |
|----------------------|-------------------------------------|-------------|----------------------------|
| linear, mlp          | a share of the scores (`Share`)     | sum         | none                       |
| mlp10, residual_mlp  | an embedding, many layers (`Deep`)  | sum, concat | two layers (`Top`)         |
| split_mlp            | an embedding, of two layers         | sum, concat | a layer                    |
| mvcnn, resnet        | an embedding of an image (image.py) | sum, concat | a layer, on the mean or all|
| vertical             | as its key `bottom` says (`Deep`)   | `aggregate` | `top`: none, one or two    |

Where the model does not name an aggregate, split learning puts embeddings side by side, and methods with tokens follow
algorithm.aggregation. A `Network` is a function of one vector theta, its parameters. This vector is exchanged and
averaged, and late gradients are computed at it.

All methods start with the same initial values: they are drawn from the stream init/<number of the party> (mlp10 and
residual_mlp in split learning: init/<name of the party>).
"""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vflbench import seeding
from vflbench.cards.models.model_facts import COMPOSED, IMAGES, SHARES
from vflbench.models import DTYPES

DEEP = ("mlp10", "residual_mlp")
KEPT_BYTES = 2**31  # of activations that wait for gradients, of all parties together; beyond it they are computed again
Views = tuple[Tensor | None, Tensor | None, Tensor, Tensor | None]


class Network(Protocol):
    """A function of its parameters theta, (size,), and of rows, (B, ...); differentiable in both."""

    @property
    def size(self) -> int:
        """The number of parameters."""

    def initial(self, generator: Any) -> Tensor:
        """Initial parameters, (size,)."""

    def __call__(self, theta: Tensor, x: Tensor) -> Tensor:
        """The output for rows x."""


def intercept(config: Any, labelled: bool) -> bool:
    """Whether a party's share has an intercept; `labelled`: the party has the labels."""
    return config.intercept == "tables" or (config.intercept == "label" and labelled)


# --- bottoms ----------------------------------------------------------------------------------------------------------


class Share:
    """A party's share of the scores, (B, d) -> (B, outputs): x W + b, or relu(x W1 + b1) W2 + b2 with `hidden` units.

    Parameters
    ----------
    config : `partial.Config`.
    labelled : whether the party has the labels, and so with intercept=label the intercept of the sum.
    """

    def __init__(self, config: Any, width: int, outputs: int, labelled: bool) -> None:
        self.width, self.outputs, self.bias = width, outputs, intercept(config, labelled)
        self.hidden = config.hidden if config.name == "mlp" else 0
        self.relu_output, self.dtype = config.relu_output, DTYPES[config.dtype]
        self.size = (width + 1 + outputs) * self.hidden + width * outputs * (not self.hidden) + outputs * self.bias

    def initial(self, generator: np.random.Generator) -> Tensor:
        """Initial parameters: a linear model starts at 0, where a relu on its output would pass no gradient.

        What is drawn is drawn as torch does, uniformly within 1 / sqrt(inputs).
        """
        bound, weights = 1 / np.sqrt(max(self.width, 1)), self.width * self.outputs
        values = []
        if self.hidden:
            values += [generator.uniform(-bound, bound, (self.width + 1) * self.hidden)]
            values += [generator.uniform(-1, 1, self.hidden * self.outputs) / np.sqrt(self.hidden)]
        elif self.relu_output:
            values += [generator.uniform(-bound, bound, weights)]
        else:
            values += [np.zeros(weights)]
        return torch.from_numpy(np.concatenate([*values, np.zeros(self.outputs * self.bias)])).to(self.dtype)

    def views(self, theta: Tensor) -> Views:
        """W1 (d, hidden), b1, W2 (hidden or d, outputs), b2 as views into `theta`."""
        at, first, shift = 0, None, None
        if self.hidden:
            at = self.width * self.hidden
            first, shift = theta[:at].view(self.width, self.hidden), theta[at : at + self.hidden]
            at += self.hidden
        rows = self.hidden or self.width
        last = theta[at : at + rows * self.outputs].view(rows, self.outputs)
        return first, shift, last, theta[at + rows * self.outputs :] if self.bias else None

    def inside(self, theta: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """The output, and the input of the last layer."""
        return self.passed(self.views(theta), x)

    def passed(self, views: Views, x: Tensor) -> tuple[Tensor, Tensor]:
        """As `inside`, of parameters as `views` gives them."""
        first, shift, last, bias = views
        inside = x if first is None or shift is None else torch.addmm(shift, x, first).relu_()
        out = inside @ last if bias is None else torch.addmm(bias, inside, last)
        return (out.relu_() if self.relu_output else out), inside

    def __call__(self, theta: Tensor, x: Tensor) -> Tensor:
        """The share of the scores, (B, outputs)."""
        return self.inside(theta, x)[0]


class _Layers:
    """Linear layers between `widths`, one after the other in theta."""

    def __init__(self, config: Any, widths: Sequence[int]) -> None:
        self.config = config
        self.shapes: list[tuple[int, ...]] = [shape for i, o in itertools.pairwise(widths) for shape in ((o, i), (o,))]
        self.sizes = [math.prod(shape) for shape in self.shapes]
        self.size = sum(self.sizes)

    def initial(self, generator: torch.Generator) -> Tensor:
        """Initial parameters after He et al.: weights are normal with variance 2 / inputs, biases 0."""
        parts = []
        for shape in self.shapes:
            if len(shape) == 2:
                weight = torch.randn(shape, generator=generator, dtype=torch.float64)
                parts.append(weight.mul_(math.sqrt(2 / shape[1])).flatten())
            else:
                parts.append(torch.zeros(shape, dtype=torch.float64))
        return torch.cat(parts).to(DTYPES[self.config.dtype])

    def layers(self, theta: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Weight and bias of each layer."""
        parts = [part.view(shape) for part, shape in zip(theta.split(self.sizes), self.shapes, strict=True)]
        return list(zip(parts[::2], parts[1::2], strict=True))


class Deep(_Layers):
    """An embedding, (B, features) -> (B, embedding), of `depth` linear layers.

    A residual network has blocks of two layers between the first layer and the last.
    """

    def __init__(self, config: Any, features: int, embedding: int, kind: str) -> None:
        super().__init__(config, [features, *[config.width] * (config.depth - 1 if kind != "linear" else 0), embedding])
        self.residual = kind == "residual_mlp"

    def __call__(self, theta: Tensor, x: Tensor) -> Tensor:
        """The embedding, (B, embedding)."""
        layers = self.layers(theta)
        x = F.linear(x, *layers[0])
        if not self.residual:
            for layer in layers[1:]:
                x = F.linear(F.relu(x), *layer)
            return x
        for first, second in zip(layers[1:-1:2], layers[2:-1:2], strict=True):
            x = x + F.linear(F.relu(F.linear(F.relu(F.layer_norm(x, x.shape[1:])), *first)), *second)
        return F.linear(F.relu(F.layer_norm(x, x.shape[1:])), *layers[-1])


class Modular:
    """A torch module as a function of its parameters, one after the other.

    Parameters
    ----------
    make : makes the module; it draws initial values from a generator.
    """

    def __init__(self, make: Callable[[torch.Generator], nn.Module]) -> None:
        self.make, self.module = make, make(torch.Generator()).requires_grad_(False)
        self.shapes = {name: parameter.shape for name, parameter in self.module.named_parameters()}
        self.sizes = [math.prod(shape) for shape in self.shapes.values()]
        self.size = sum(self.sizes)

    def initial(self, generator: torch.Generator) -> Tensor:
        """Initial parameters, as `make` draws them."""
        return nn.utils.parameters_to_vector(self.make(generator).parameters()).detach()

    def __call__(self, theta: Tensor, x: Tensor) -> Tensor:
        """The module's output."""
        parts = {
            name: part.view(shape)
            for (name, shape), part in zip(self.shapes.items(), theta.split(self.sizes), strict=True)
        }
        out: Tensor = torch.func.functional_call(self.module, parts, (x,))
        return out


def embedder(config: Any, shape: Sequence[int], generator: torch.Generator) -> nn.Module:
    """The module of split_mlp, mvcnn or resnet, from rows of `shape`, columns or (C, H, W), to (B, E)."""
    from vflbench.models import image

    if config.name in IMAGES:
        return image.make_client(config, shape[0], generator)
    with torch.device("meta"):
        network = nn.Sequential(
            nn.Linear(shape[0], config.hidden), nn.ReLU(), nn.Linear(config.hidden, config.embedding), nn.ReLU()
        )
    return image.initialise(network, torch.float32, generator).to(DTYPES[config.dtype])


def bottom(config: Any, shape: Sequence[int], outputs: int, labelled: bool) -> Network:
    """A party's bottom network for rows of `shape`; `labelled`: the party has the labels."""
    if config.name in SHARES:
        return Share(config, math.prod(shape), outputs, labelled)
    if config.name in (*DEEP, COMPOSED):
        kind = config.bottom if config.name == COMPOSED else config.name
        return Deep(config, math.prod(shape), embedding(config, outputs), kind)
    return Modular(functools.partial(embedder, config, shape))


def embedding(config: Any, outputs: int) -> int:
    """The width of a bottom network's output; for a share of the scores, the width of the scores."""
    shares = config.name in SHARES or (config.name == COMPOSED and config.top == "none")
    return outputs if shares else int(config.embedding)


def centred(config: Any) -> bool:
    """Whether a regression's targets are only centred, not scaled, and its loss is half the squared error."""
    return config.name in (*SHARES, COMPOSED)


def scaling(config: Any, labels: np.ndarray, classes: int) -> tuple[float, float]:
    """What is subtracted from a regression's targets, and what the rest is divided by; of classes 0 and 1."""
    if classes:
        return 0.0, 1.0
    exact = np.asarray(labels, np.float64)
    return float(exact.mean()), 1.0 if centred(config) else float(exact.std()) or 1.0


def generator(config: Any, seed: int, number: int | str, name: str | int) -> Any:
    """The generator that draws the initial values of party `number`, or of the `fusion`; deep networks go by `name`."""
    if config.name in SHARES:
        return seeding.stream(seed, f"init/{number}")
    return seeding.torch_stream(seed, f"init/{name if config.name in DEEP else number}")


class Held(nn.Module):
    """A network with its parameters."""

    def __init__(self, network: Network, theta: Tensor) -> None:
        super().__init__()
        self.network = network
        self.theta = nn.Parameter(theta, requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """The network's output for rows x."""
        return self.network(self.theta, x)


def kept_rows(network: Callable[[Tensor], Tensor], x: Tensor, sharing: int) -> float:
    """How many rows' activations one of `sharing` parties may keep; `network` is differentiable.

    A row takes what the backward pass of two rows of `x` needs more than that of one.
    """
    taken = []
    for rows in (x[:1].clone(), x[:2].clone()):  # copies: a batch's rows are kept too
        sizes: dict[int, int] = {}

        def note(saved: Tensor, sizes: dict[int, int] = sizes) -> Tensor:
            sizes[saved.untyped_storage().data_ptr()] = saved.untyped_storage().nbytes()
            return saved

        with torch.autograd.graph.saved_tensors_hooks(note, lambda saved: saved):
            graph = network(rows)  # while it lives, no two tensors have one address
        taken.append(sum(sizes.values()))
        del graph
    return KEPT_BYTES / sharing / max(taken[1] - taken[0], 1)


def module(network: Network, generator: Any) -> nn.Module:
    """The network as a module that autograd trains, with its own parameters, drawn from `generator`."""
    if isinstance(network, Modular):
        return network.make(generator)
    return Held(network, network.initial(generator)).requires_grad_() if network.size else nn.Identity()


# --- aggregate and top ------------------------------------------------------------------------------------------------


class Aggregation:
    """The aggregate A of K representations (n, E): their `sum`, or `concat` in the order of the parties."""

    def __init__(self, kind: Literal["sum", "concat"], parties: int) -> None:
        self.concat = kind == "concat"
        self.parties = parties

    def aggregate(self, representations: Sequence[Tensor]) -> Tensor:
        """The aggregate A."""
        if self.concat:
            return torch.cat(list(representations), dim=1)
        return sum(representations[1:], start=representations[0])

    def without(self, a: Tensor, h: Tensor) -> Tensor:
        """The other parties' part of A, where h is the own representation in it."""
        return a if self.concat else a - h

    def put(self, others: Tensor, h: Tensor, k: int) -> Tensor:
        """A with party k's representation h, given what `without` returned; differentiable in h."""
        if not self.concat:
            return others + h
        width = h.shape[1]
        return torch.cat([others[:, : k * width], h, others[:, (k + 1) * width :]], dim=1)

    def added(self, a: Tensor, change: Tensor, k: int) -> Tensor:
        """A with `change` (n, E) added to party k's representation in it."""
        if not self.concat:
            return a + change
        width = change.shape[1]
        return self.put(a, a[:, k * width : (k + 1) * width] + change, k)

    def width(self, embedding: int) -> int:
        """The width of A, given that of a representation."""
        return embedding * (self.parties if self.concat else 1)


def aggregation(config: Any, parties: int, otherwise: Literal["sum", "concat"]) -> Aggregation:
    """A model's aggregation, or `otherwise` where the model names none; a mean travels as a sum."""
    if config.name == COMPOSED:
        return Aggregation("concat" if config.aggregate == "concat" else "sum", parties)
    return Aggregation("sum" if config.name in SHARES else otherwise, parties)


class Top(_Layers):
    """One layer or two on the aggregate, (B, joint) -> (B, outputs); `scale` turns a sum into a mean."""

    def __init__(self, config: Any, joint: int, outputs: int, layers: int = 2, scale: float = 1.0) -> None:
        super().__init__(config, [joint, *[config.top_width] * (layers - 1), outputs])
        self.scale = scale

    def __call__(self, theta: Tensor, x: Tensor) -> Tensor:
        """The scores, (B, outputs)."""
        x = x * self.scale
        for layer in self.layers(theta):
            x = F.linear(F.relu(x), *layer)
        return x


class NoTop:
    """A top network without layers: the aggregate is the scores."""

    size = 0

    def initial(self, generator: Any) -> Tensor:
        """No parameters, (0,)."""
        return torch.zeros(0)

    def __call__(self, theta: Tensor, x: Tensor) -> Tensor:
        """The aggregate itself."""
        return x


def fusion(config: Any, aggregation: Aggregation, outputs: int, generator: torch.Generator) -> nn.Module:
    """The module on top of `embedder`'s: one linear layer, A (B, E or K E) -> scores (B, outputs)."""
    from vflbench.models import image

    width, dtype = aggregation.width(config.embedding), DTYPES[config.dtype]
    with torch.device("meta"):
        if config.name in IMAGES:
            network: nn.Module = image.Fusion(width, outputs, 1.0 if aggregation.concat else 1 / aggregation.parties)
        else:
            network = nn.Linear(width, outputs)
    return image.initialise(network, dtype if config.name in IMAGES else torch.float32, generator).to(dtype)


def top(config: Any, aggregation: Aggregation, outputs: int) -> Network:
    """The top network: A -> scores (B, outputs)."""
    if config.name in SHARES or (config.name == COMPOSED and config.top == "none"):
        return NoTop()
    if config.name == COMPOSED:
        scale = 1 / aggregation.parties if config.aggregate == "mean" else 1.0
        return Top(config, aggregation.width(config.embedding), outputs, 2 if config.top == "mlp" else 1, scale)
    if config.name in DEEP:
        return Top(config, aggregation.width(config.embedding), outputs)
    return Modular(functools.partial(fusion, config, aggregation, outputs))


def criterion(scores: Tensor, y: Tensor, classes: int, reduction: str = "mean") -> Tensor:
    """Mean cross-entropy, or for regression (classes 0) half the mean squared error; reduction=none: each row's."""
    if classes:
        return F.cross_entropy(scores, y, reduction=reduction)
    return F.mse_loss(scores[:, 0], y, reduction=reduction) / 2
