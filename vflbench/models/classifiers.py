"""Whole models for workers with rows of their own: a 3-layer MLP, a 3-layer CNN, logistic regression.

They are plain `nn.Sequential`s. `Network` takes one's parameters as one vector theta (what workers exchange), and
computes losses, gradients, and sums of clipped per-example gradients. All are pure functions that a cohort runs in one
vmap call.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.grad import conv2d_weight

from vflbench.cards.models.classifiers import Config
from vflbench.models import DTYPES
from vflbench.types import ConfigError, Problem

if TYPE_CHECKING:
    from vflbench.data.tasks import ShardedPublic


def check_fits(config: Config, public: ShardedPublic) -> None:
    """Check that the model can take rows of the data's shape.

    Raises
    ------
    ConfigError : it cannot.
    """
    if config.name != "cnn3":
        return
    halvings = len(config.channels)
    if len(public.shape) != 3 or min(public.shape[1:]) < 2**halvings:
        needs = f"needs images of at least {2**halvings} pixels a side ({halvings} halvings)"
        allowed = f"{needs}; a row of this data has shape {public.shape}: use mlp3 or logistic"
        raise ConfigError([Problem("model", config.name, allowed)])


def build(config: Config, shape: tuple[int, ...], outputs: int, generator: torch.Generator) -> nn.Sequential:
    """The model for rows of `shape`, with `outputs` values.

    Parameters
    ----------
    generator : on the CPU; draws weights and biases uniformly within 1 / sqrt(inputs), which is torch's own default.
    """
    dtype, width = DTYPES[config.dtype], math.prod(shape)
    layers: list[nn.Module] = []
    if config.name == "cnn3":
        for before, after in zip([shape[0], *config.channels], config.channels, strict=False):
            layers.append(
                nn.utils.skip_init(nn.Conv2d, before, after, config.kernel, padding=config.kernel // 2, dtype=dtype)
            )
            layers += [nn.ReLU(), nn.MaxPool2d(2)]
        width = config.channels[-1] * math.prod(side >> len(config.channels) for side in shape[1:])
    layers.append(nn.Flatten())
    hidden = config.widths if config.name == "mlp3" else []
    for before, after in zip([width, *hidden], [*hidden, outputs], strict=True):
        layers += [nn.utils.skip_init(nn.Linear, before, after, dtype=dtype), nn.ReLU()]
    model = nn.Sequential(*layers[:-1])
    with torch.no_grad():
        for layer in model:
            if isinstance(layer, (nn.Linear, nn.Conv2d)):
                bound = 1 / math.sqrt(layer.weight[0].numel())
                for parameter in layer.parameters():
                    parameter.uniform_(-bound, bound, generator=generator)
    return model.requires_grad_(False)


def flat(model: nn.Module) -> Tensor:
    """The model's parameters one after the other, as a new vector (D,)."""
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


def network(config: Config, public: ShardedPublic) -> Network:
    """The one `Network` of this configuration.

    Equal configurations share one object, so that workers' computations run as one.
    """
    widths, channels = tuple(config.widths), tuple(config.channels)
    return _network(config.name, widths, channels, config.kernel, config.dtype, public.shape, public.classes)


@functools.lru_cache(maxsize=32)
def _network(
    name: str,
    widths: tuple[int, ...],
    channels: tuple[int, ...],
    kernel: int,
    dtype: Literal["float32", "float64"],
    shape: tuple[int, ...],
    classes: int,
) -> Network:
    config = Config(name=name, widths=list(widths), channels=list(channels), kernel=kernel, dtype=dtype)
    return Network(build(config, shape, classes or 1, torch.Generator()), regression=not classes)


class Network:
    """An `nn.Sequential` as functions of theta, (D,): its parameters one after the other.

    It takes Linear, Conv2d (stride 1), ReLU, MaxPool2d and Flatten layers. Rows x are (n, *shape), targets y (n,):
    int64 classes (cross-entropy), or numbers (half the squared error).
    """

    def __init__(self, model: nn.Sequential, regression: bool = False) -> None:
        self.layers = list(model)
        self.regression = regression
        self.sizes = [parameter.numel() for parameter in model.parameters()]

    def _parameters(self, theta: Tensor) -> list[tuple[Tensor, Tensor] | None]:
        """Weight and bias of each layer as views into theta, (D,) or (m, D); None for layers without."""
        pieces, models = iter(theta.split(self.sizes, dim=-1)), theta.shape[:-1]
        pairs: list[tuple[Tensor, Tensor] | None] = []
        for layer in self.layers:
            if isinstance(layer, (nn.Linear, nn.Conv2d)):
                pairs.append((next(pieces).view(models + layer.weight.shape), next(pieces)))
            else:
                pairs.append(None)
        return pairs

    def _forward(self, parameters: list[tuple[Tensor, Tensor] | None], x: Tensor) -> list[Tensor]:
        """The input of every layer, and the output of the last."""
        passed = [x]
        for layer, own in zip(self.layers, parameters, strict=True):
            passed.append(_apply(layer, own, passed[-1]))
        return passed

    def predict(self, theta: Tensor, x: Tensor) -> Tensor:
        """The predictions for rows x, (n, outputs)."""
        return self._forward(self._parameters(theta), x)[-1]

    def losses(self, z: Tensor, y: Tensor) -> Tensor:
        """The loss of every row, (n,), given predictions z (n, outputs)."""
        return (z[:, 0] - y).square() / 2 if self.regression else F.cross_entropy(z, y, reduction="none")

    def _slopes(self, z: Tensor, y: Tensor) -> Tensor:
        """The derivative of every row's loss with respect to its prediction, (n, outputs)."""
        if self.regression:
            return z - y[:, None]
        return torch.softmax(z, dim=1) - F.one_hot(y, z.shape[1]).to(z.dtype)

    def _backward(
        self, parameters: list[tuple[Tensor, Tensor] | None], passed: list[Tensor], slopes: Tensor
    ) -> list[Tensor | None]:
        """Every row's derivative of the loss with respect to each layer's output; None for those without parameters."""
        first = next(place for place, own in enumerate(parameters) if own is not None)
        by_layer: list[Tensor | None] = [None] * len(self.layers)
        for place in range(len(self.layers) - 1, first - 1, -1):
            own = parameters[place]
            by_layer[place] = None if own is None else slopes
            if place > first:
                slopes = _pull(self.layers[place], own, passed[place], slopes)
        return by_layer

    def _sums(self, passed: list[Tensor], slopes: list[Tensor | None]) -> list[Tensor]:
        """The gradient, summed over rows: one flat tensor per weight and bias."""
        parts = []
        for layer, x, g in zip(self.layers, passed, slopes, strict=False):
            if g is None:
                continue
            if isinstance(layer, nn.Linear):
                parts += [(g.transpose(0, 1) @ x).reshape(-1), g.sum(dim=0)]
            else:
                assert isinstance(layer, nn.Conv2d)
                kernels = conv2d_weight(x, layer.weight.shape, g, padding=layer.padding)
                parts += [kernels.reshape(-1), g.sum(dim=(0, 2, 3))]
        return parts

    def gradient(self, theta: Tensor, x: Tensor, y: Tensor, scale: float = 1.0) -> tuple[Tensor, Tensor]:
        """The mean loss, (), and its gradient times `scale`, (D,): scaling here saves a pass over D numbers."""
        parameters = self._parameters(theta)
        passed = self._forward(parameters, x)
        slopes = self._backward(parameters, passed, self._slopes(passed[-1], y) * (scale / len(x)))
        return self.losses(passed[-1], y).mean(), torch.cat(self._sums(passed, slopes))

    @property
    def dense(self) -> bool:
        """Whether `descend` and `gradients` can be used: there are no convolutions."""
        return all(isinstance(layer, (nn.Linear, nn.ReLU, nn.Flatten)) for layer in self.layers)

    def gradients(self, theta: Tensor, x: Tensor, y: Tensor, scale: float = 1.0) -> tuple[Tensor, Tensor]:
        """As `gradient`, of m models (m, D) and their rows (m, n, *shape) at once; `dense` networks only.

        It gives the very numbers of vmap, without the pass that puts the gradients of all layers together.
        """
        own, change = self._parameters(theta), torch.empty_like(theta)
        parts, passed = self._parameters(change), [x]
        for layer, pair in zip(self.layers, own, strict=True):
            if pair is not None:  # not baddbmm, which rounds in another way
                passed.append(torch.bmm(passed[-1], pair[0].transpose(1, 2)).add_(pair[1].unsqueeze(1)))
            else:
                passed.append(passed[-1].flatten(2) if isinstance(layer, nn.Flatten) else passed[-1].relu())
        losses, slopes = self._losses_and_slopes(passed[-1], y, scale)
        first = next(place for place, pair in enumerate(own) if pair is not None)
        for place in range(len(self.layers) - 1, first - 1, -1):
            pair, part = own[place], parts[place]
            if pair is None or part is None:
                slopes = slopes * (passed[place] > 0)
                continue
            torch.bmm(slopes.transpose(1, 2), passed[place], out=part[0])
            part[1].copy_(slopes.sum(dim=1))
            if place > first:
                slopes = slopes @ pair[0]
        return losses, change

    def _losses_and_slopes(self, z: Tensor, y: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        """The mean losses (m,) of predictions (m, n, outputs), and their derivatives times `scale`."""
        scores, targets = z.flatten(0, 1), y.flatten()
        losses = self.losses(scores, targets).view(y.shape).mean(dim=1)
        return losses, (self._slopes(scores, targets) * (scale / y.shape[1])).view(z.shape)

    def descend(self, theta: Tensor, x: Tensor, y: Tensor, keep: float, lr: float) -> Tensor:
        """Set theta to keep * theta - lr * gradient of the mean loss, in place, for m models at once.

        It takes Linear, ReLU and Flatten layers only (`dense`). A step of many models costs the memory that it passes
        over. In place, and without a vector of gradients, that is half of what vmap takes.

        Parameters
        ----------
        theta : (m, D).
        x : (m, n, *shape).
        y : (m, n).

        Returns
        -------
        The losses, (m,).
        """
        own = self._parameters(theta)
        passed = [x]
        for layer, pair in zip(self.layers, own, strict=True):
            if pair is not None:
                passed.append(torch.baddbmm(pair[1].unsqueeze(1), passed[-1], pair[0].transpose(1, 2)))
            else:
                passed.append(passed[-1].flatten(2) if isinstance(layer, nn.Flatten) else passed[-1].relu())
        losses, slopes = self._losses_and_slopes(passed[-1], y, 1.0)
        first = next(place for place, pair in enumerate(own) if pair is not None)
        for place in range(len(self.layers) - 1, first - 1, -1):
            pair, before = own[place], slopes
            if pair is None:
                slopes = slopes * (passed[place] > 0)
                continue
            if place > first:
                slopes = before @ pair[0]
            pair[0].baddbmm_(before.transpose(1, 2), passed[place], beta=keep, alpha=-lr)
            pair[1].mul_(keep).add_(before.sum(dim=1), alpha=-lr)
        return losses

    def clipped_gradient(
        self, theta: Tensor, x: Tensor, y: Tensor, counts: Tensor, clip: float
    ) -> tuple[Tensor, Tensor]:
        """The rows' losses, (n,), and the sum of their gradients, (D,), each scaled down to L2 norm `clip`.

        It is exact, without a gradient per row in memory. A linear layer's gradient is the outer product of g and x, so
        its norm is a product of two norms (Goodfellow, arXiv 1510.01799), and the sum is taken with scaled g (Li,
        Tramer, Liang, Hashimoto, arXiv 2110.05679). A convolution's is small, and is computed by torch.func.vmap.

        Parameters
        ----------
        counts : (n,), 1 for rows and 0 for padding.
        """
        parameters = self._parameters(theta)
        passed = self._forward(parameters, x)
        slopes = self._backward(parameters, passed, self._slopes(passed[-1], y))
        squares, kernels = torch.zeros_like(counts), {}
        for place, (layer, g) in enumerate(zip(self.layers, slopes, strict=True)):
            if g is None:
                continue
            if isinstance(layer, nn.Linear):
                squares = squares + g.square().sum(dim=1) * (passed[place].square().sum(dim=1) + 1)
            else:
                assert isinstance(layer, nn.Conv2d)
                kernels[place] = torch.func.vmap(functools.partial(_kernel_gradient, layer))(passed[place], g)
                squares = squares + kernels[place].square().sum(dim=(1, 2, 3, 4))
                squares = squares + g.sum(dim=(2, 3)).square().sum(dim=1)
        factors = counts * clipping_factors(squares.sqrt(), clip)
        parts: list[Tensor] = []
        for place, (layer, g) in enumerate(zip(self.layers, slopes, strict=True)):
            if g is None:
                continue
            if isinstance(layer, nn.Linear):
                scaled = g * factors[:, None]
                parts += [(scaled.transpose(0, 1) @ passed[place]).reshape(-1), scaled.sum(dim=0)]
            else:
                parts.append(torch.tensordot(factors, kernels[place], 1).reshape(-1))
                parts.append(torch.tensordot(factors, g.sum(dim=(2, 3)), 1))
        return self.losses(passed[-1], y), torch.cat(parts)


def clipping_factors(norms: Tensor, clip: float) -> Tensor:
    """The factors 1 / max(1, norm / clip)."""
    return 1 / (norms / clip).clamp_min(1)


def _apply(layer: nn.Module, own: tuple[Tensor, Tensor] | None, x: Tensor) -> Tensor:
    if own is None:
        out: Tensor = layer(x)
        return out
    if isinstance(layer, nn.Linear):
        return F.linear(x, *own)
    assert isinstance(layer, nn.Conv2d)
    return F.conv2d(x, *own, padding=layer.padding)


def _pull(layer: nn.Module, own: tuple[Tensor, Tensor] | None, x: Tensor, g: Tensor) -> Tensor:
    """Every row's derivative with respect to the layer's input x, given g, that with respect to its output."""
    if isinstance(layer, nn.Linear):
        assert own is not None
        return g @ own[0]
    if isinstance(layer, nn.ReLU):
        return g * (x > 0)
    if isinstance(layer, nn.Flatten):
        return g.reshape(x.shape)
    pull = torch.func.vjp(lambda inside: _apply(layer, own, inside), x)[1]
    pulled: Tensor = pull(g)[0]
    return pulled


def _kernel_gradient(layer: nn.Conv2d, x: Tensor, g: Tensor) -> Tensor:
    """One row's gradient with respect to the convolution's kernel."""
    gradient: Tensor = conv2d_weight(x[None], layer.weight.shape, g[None], padding=layer.padding)
    return gradient
