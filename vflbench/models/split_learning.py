"""Split learning: a bottom network per party, a top network at the party with the labels.

Liu et al., "PubSub-VFL", arXiv 2510.12494: z = bottom(x), scores = top(z_active, z_passive ...). The paper has ten
layers for the bottom ("small") or a ResNet ("large"), and two layers for the top, but no widths. Widths, He et al.'s
initialisation and layer normalisation in the residual blocks are ours. Batch normalisation would couple the rows of a
batch: an embedding would no longer be a function of its row.

A party's parameters are one flat vector theta. Workers and parameter servers exchange it, and late gradients are
computed at it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vflbench.models import vertical
from vflbench.models.vertical import Held

if TYPE_CHECKING:
    from vflbench.data.tasks import AlignedPublic


# --- parties ----------------------------------------------------------------------------------------------------------


class Embedded(NamedTuple):
    """A passive party's forward pass, whose gradient is yet to come."""

    theta: Tensor  # the parameters that it was made with, (size,): later steps do not reach them
    z: Tensor  # the embeddings, (B, d_e), with their graph where it is kept


class Passive(Held):
    """The model of a party without labels: its bottom network.

    Parameters
    ----------
    shape : shape of a row.
    generator : on the CPU; draws the initial parameters.
    outputs : width of the scores, for a model whose parties give shares of them.
    """

    def __init__(self, config: Any, shape: Sequence[int], generator: Any, outputs: int = 0) -> None:
        network = vertical.bottom(config, shape, outputs, labelled=False)
        super().__init__(network, network.initial(generator))

    def kept_rows(self, x: Tensor, sharing: int) -> float:
        """How many rows' graphs one of `sharing` parties may keep (`vertical.kept_rows`)."""
        theta = self.theta.detach().clone().requires_grad_()
        return vertical.kept_rows(lambda rows: self.network(theta, rows), x, sharing)

    def embed(self, x: Tensor, keeps: bool = True) -> Embedded:
        """The embeddings of rows x; `keeps`: with their graph."""
        theta = self.theta.detach().clone().requires_grad_(keeps)
        return Embedded(theta, self.network(theta, x))

    def gradient(self, made: Embedded, x: Callable[[], Tensor], dz: Tensor, privacy: Any = None) -> Tensor:
        """The gradient d loss / d theta, (size,).

        Parameters
        ----------
        made : the forward pass; it is computed again where its graph was not kept.
        x : returns its rows.
        dz : d loss / d z.
        privacy : if given, it clipped the embedding.
        """
        theta, z = made
        if not z.requires_grad:
            theta = theta.detach().requires_grad_()
            z = self.network(theta, x())
        return torch.autograd.grad(z if privacy is None else privacy.clip(z), theta, dz)[0]


class Active(nn.Module):
    """The model of the party with the labels: its bottom network and the top network, one after the other in theta.

    A regression's targets are learnt with mean 0 and variance 1; `shift` and `scale` are those of the party's training
    labels. If `vertical.centred`, only the mean is made 0, and the loss is half the squared error, as in all other
    families.

    Parameters
    ----------
    generator, above : draw the initial values of the bottom and of the top; without `above`, `generator` draws both.
    """

    scale: Tensor
    shift: Tensor

    def __init__(
        self,
        config: Any,
        shape: Sequence[int],
        public: AlignedPublic,
        labels: np.ndarray,
        generator: Any,
        above: Any = None,
    ) -> None:
        super().__init__()
        self.centred = vertical.centred(config)
        self.bottom = vertical.bottom(config, shape, public.outputs, labelled=True)
        self.aggregation = vertical.aggregation(config, public.parties, "concat")
        self.top = vertical.top(config, self.aggregation, public.outputs)
        self.classes = public.classes
        initial = torch.cat([self.bottom.initial(generator), self.top.initial(above or generator)])
        self.theta = nn.Parameter(initial, requires_grad=False)
        dtype = self.theta.dtype
        shift, scale = vertical.scaling(config, labels, self.classes)
        self.register_buffer("shift", torch.tensor(shift, dtype=dtype))
        self.register_buffer("scale", torch.tensor(scale, dtype=dtype))

    def outputs(self, theta: Tensor, x: Tensor, zs: Sequence[Tensor]) -> Tensor:
        """The top network's output, (B, outputs)."""
        bottom, top = theta.split([self.bottom.size, self.top.size])
        return self.top(top, self.aggregation.aggregate([self.bottom(bottom, x), *zs]))

    def forward(self, x: Tensor, zs: Sequence[Tensor]) -> Tensor:
        """Scores, or predicted targets of a regression, (B, outputs).

        Parameters
        ----------
        x : own rows, (B, d_a).
        zs : the passive parties' embeddings, (B, d_e) each.
        """
        return self.outputs(self.theta, x, zs) * self.scale + self.shift

    def gradients(
        self, x: Tensor, y: Tensor, zs: Sequence[Tensor], loss_of: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy
    ) -> tuple[float, Tensor, list[Tensor]]:
        """The mean loss of a batch, d loss / d theta, and d loss / d z of each passive party.

        Parameters
        ----------
        loss_of : (scores, classes) -> the loss; a regression's is the squared error.
        """
        theta = self.theta.detach().requires_grad_()
        zs = [z.detach().requires_grad_() for z in zs]
        out = self.outputs(theta, x, zs)
        if self.classes:
            loss = loss_of(out, y)
        else:
            targets = (y - self.shift) / self.scale
            loss = F.mse_loss(out[:, 0].to(targets.dtype), targets)  # one type: torch 2.8 has no gradient for two
            loss = loss / 2 if self.centred else loss
        gradient, *dz = torch.autograd.grad(loss, [theta, *zs])
        return float(loss.detach()), gradient, dz
