"""Split networks: a local network per client, h_k = local(X_k), a fusion network, and the token between them.

Valdeira, Chi, Soares, Xavier: arXiv 2309.09977. The token is Z = (A, theta_0): A aggregates all h_k, as their sum
(B, E) or concatenation (B, K E), and theta_0 is the fusion network's parameters. A party with the token, its own
samples and the labels has the exact partial gradient.

`auto` takes what fits the data: the convex objective where the task has one (models/glm.py), `mvcnn` for image views,
else `split_mlp`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from vflbench.cards.models.model_facts import COMPOSED, SHARES
from vflbench.cards.models.mvcnn import Config as ViewConfig
from vflbench.cards.models.split_network import MODEL_NAMES, Config
from vflbench.defaults import filled
from vflbench.models import DTYPES, vertical
from vflbench.models.vertical import DEEP, criterion
from vflbench.types import ConfigError, Problem

if TYPE_CHECKING:
    from vflbench.cards.algorithms.tokens.token_methods import NetworkKeys
    from vflbench.data.tasks import AlignedPart, AlignedPublic, AlignedTask
    from vflbench.types import RunConfig

COLUMNS = (*MODEL_NAMES, *SHARES, *DEEP, COMPOSED)  # these take feature columns; the others image views
EVALUATED = 256  # rows of a forward pass in evaluation

Token = tuple[Tensor, Tensor]  # A, theta_0 flat


def targets(labels: np.ndarray, classes: int, model: Any, device: str) -> tuple[Tensor, float, float]:
    """Labels (N,) as `criterion` takes them; of a regression, what was subtracted and what the rest was divided by.

    As in split learning, a regression's targets get mean 0, and variance 1 unless `vertical.centred`.
    """
    mean, scale = vertical.scaling(model, labels, classes)
    values = np.asarray(labels) if classes else (np.asarray(labels, np.float64) - mean) / scale
    return torch.tensor(values, dtype=torch.int64 if classes else DTYPES[model.dtype], device=device), mean, scale


def resolve(config: Any, task: AlignedTask) -> Any:
    """The configuration of the networks for `task`; None for a convex objective, where `config` may be None too.

    Raises
    ------
    ConfigError : a network for a convex objective, `split_mlp` on image views or its `hidden` for them, or a network
        for images on feature columns.
    """
    if task.objective is not None:
        if config is not None and config.name != "auto":
            allowed = f"{task.name} is a convex problem, without networks: use model=auto, or dataset.problem=learning"
            raise ConfigError([Problem("model", config.name, allowed)])
        return None
    images = task.features[0].ndim > 2
    if images and config.name == "auto":
        if config.hidden != filled(Config).hidden:
            allowed = "is split_mlp's, and these are image views: see model=mvcnn"
            raise ConfigError([Problem("model.hidden", config.hidden, allowed)])
        return filled(ViewConfig, embedding=config.embedding, dtype=config.dtype)
    if images == (config.name in COLUMNS):
        columns, views = "feature columns", "image views"
        taken, given = (columns, views) if images else (views, columns)
        raise ConfigError([Problem("model", config.name, f"takes {taken}, and these are {given}: use model=auto")])
    return config


def descend(parameters: list[nn.Parameter], loss: Tensor, lr: float, decay: float = 0.0) -> None:
    """Take one step down the gradient of `loss`, plus that of decay / 2 ||theta||^2."""
    gradients = torch.autograd.grad(loss, parameters)
    with torch.no_grad():
        for parameter, gradient in zip(parameters, gradients, strict=True):
            (parameter.mul_(1 - lr * decay) if decay else parameter).sub_(gradient, alpha=lr)


class SplitClient(nn.Module):
    """Client k's network with its samples, and a fusion network that takes its parameters from the token.

    The interface is that of models.glm.Glm.
    """

    def __init__(
        self, k: int, data: AlignedPart, public: AlignedPublic, config: RunConfig[NetworkKeys], model: Any, device: str
    ) -> None:
        super().__init__()
        dtype = DTYPES[model.dtype]
        self.k, self.decay = k, config.algorithm.weight_decay
        self.classes = public.classes
        self.aggregation = vertical.aggregation(model, public.parties, config.algorithm.aggregation)
        generator = vertical.generator(model, config.seed, k, k)
        network = vertical.bottom(model, data.features.shape[1:], public.outputs, k == public.owner)
        self.local = vertical.module(network, generator).to(device, dtype)
        # Not a submodule: its parameters are the server's, and come with every token.
        top = vertical.top(model, self.aggregation, public.outputs)
        self._fusion = [vertical.module(top, generator).to(device, dtype)]
        # Views stay bytes, a quarter of float32: their networks take any type.
        kept = dtype if data.features.ndim == 2 else None
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # nobody writes to them
            self.x = torch.as_tensor(np.asarray(data.features), dtype=kept, device=device)
        self.y = targets(data.labels, public.classes, model, device)[0] if data.labels is not None else None
        self.held_out = data.held_out
        self.kept_rows: float | None = None  # whose graph it may keep until a token comes
        self._taken: tuple[np.ndarray | None, Tensor, Tensor] = (None, self.x, self.x)  # the round's batch: its rows

    @property
    def theta(self) -> Tensor:
        """The network's parameters, as one vector."""
        return parameters_to_vector(self.local.parameters()).detach()

    def move(self, theta: Tensor) -> None:
        """Set the parameters."""
        vector_to_parameters(theta, self.local.parameters())

    def _batch(self, rows: np.ndarray | None) -> tuple[Tensor, Tensor]:
        assert self.y is not None
        if rows is None:
            return self.x, self.y
        if self._taken[0] is not rows:
            at = torch.from_numpy(rows).to(self.x.device)
            self._taken = rows, self.x[at], self.y[at]
        return self._taken[1:]

    def represent(self, rows: np.ndarray | None = None, theta: Tensor | None = None) -> Tensor:
        """The representation h_k of all samples, (N, E), or of `rows`, (B, E).

        It has its graph, for `visit`, where memory allows; at another `theta` than the block's it has none.
        """
        x, _ = self._batch(rows)
        if theta is not None:
            with self._at(theta), torch.no_grad():
                return self.local(x)  # type: ignore[no-any-return]
        if self.kept_rows is None:
            self.eval()  # statistics of batches are not to count these rows
            self.kept_rows = vertical.kept_rows(self.local, x, self.aggregation.parties)
            self.train()
        with torch.set_grad_enabled(len(x) <= self.kept_rows):
            h: Tensor = self.local(x)
        return h

    def visit(
        self,
        theta: Tensor,
        token: Token,
        rows: np.ndarray | None,
        steps: int,
        lr: float,
        h: Tensor | None = None,
        onward: bool = True,
    ) -> tuple[Tensor, Token]:
        """Take gradient steps on theta_k from `theta`, and keep A in accordance.

        Parameters
        ----------
        h : what `represent` returned for `rows` at `theta`; None: it is computed.
        onward : whether the token is needed afterwards; else it stays as it came.

        Returns
        -------
        The new theta_k and the new token; the client's own `theta` stays.
        """
        a, theta_0 = token
        x, y = self._batch(rows)
        fusion = self._fusion[0]
        vector_to_parameters(theta_0, fusion.parameters())
        with self._at(theta) as own:
            retains = h is not None and h.requires_grad  # another token may start from the same graph
            h = self.local(x) if h is None or not h.requires_grad else h
            others = self.aggregation.without(a, h.detach())
            for place in range(1, steps + 1):
                loss = criterion(fusion(self.aggregation.put(others, h, self.k)), y, self.classes)
                gradient = torch.autograd.grad(loss, own, retain_graph=retains and place == 1)
                kept = theta * (1 - lr * self.decay) if self.decay else theta
                theta = kept - lr * torch.cat([g.reshape(-1) for g in gradient])
                vector_to_parameters(theta, own)
                if place < steps:
                    h = self.local(x)
            if onward:
                with torch.no_grad():
                    a = self.aggregation.put(others, self.local(x), self.k)
        return theta, (a, theta_0)

    @contextmanager
    def _at(self, theta: Tensor) -> Iterator[list[nn.Parameter]]:
        """The network's parameters, which are `theta` inside the block, and afterwards what they were."""
        own = list(self.local.parameters())
        kept = [parameter.data for parameter in own]
        vector_to_parameters(theta, own)
        try:
            yield own
        finally:
            for parameter, data in zip(own, kept, strict=True):  # another token's copy starts from these
                parameter.data = data

    def added(self, token: Token, change: Tensor) -> Token:
        """The token with `change` (B, E) added to this block's part of it."""
        a, theta_0 = token
        return self.aggregation.added(a, change, self.k), theta_0

    def held_out_representations(self) -> dict[str, Tensor]:
        """The representations h_k of the held-out samples, split -> (N_s, E), in evaluation mode."""
        by_split = {}
        self.eval()
        with torch.no_grad():
            for split, features in self.held_out.items():
                pieces = [
                    torch.as_tensor(np.asarray(features[at : at + EVALUATED]))
                    for at in range(0, len(features), EVALUATED)
                ]
                by_split[split] = torch.cat([self.local(piece.to(self.x.device, self.x.dtype)) for piece in pieces])
        self.train()
        return by_split


class SplitServer(nn.Module):
    """The server's fusion network, with the labels."""

    shift: Tensor
    scale: Tensor

    def __init__(
        self, labels: np.ndarray, public: AlignedPublic, config: RunConfig[NetworkKeys], model: Any, device: str
    ) -> None:
        super().__init__()
        dtype = DTYPES[model.dtype]
        self.classes, self.decay = public.classes, config.algorithm.weight_decay
        self.aggregation = vertical.aggregation(model, public.parties, config.algorithm.aggregation)
        generator = vertical.generator(model, config.seed, "fusion", "fusion")
        top = vertical.top(model, self.aggregation, public.outputs)
        self.fusion = vertical.module(top, generator).to(device, dtype)
        self.y, mean, scale = targets(labels, public.classes, model, device)
        self.register_buffer("shift", torch.tensor(mean, dtype=dtype, device=device))
        self.register_buffer("scale", torch.tensor(scale, dtype=dtype, device=device))

    def token(self, representations: list[Tensor]) -> Token:
        """The token Z = (A, theta_0)."""
        own = list(self.fusion.parameters())
        theta_0 = parameters_to_vector(own).detach() if own else representations[0].new_empty(0)
        return self.aggregation.aggregate(representations), theta_0

    def update(self, token: Token, rows: np.ndarray | None, steps: int, lr: float) -> float:
        """Take gradient steps on theta_0 with A frozen, and return the loss before them."""
        a, own = token[0], list(self.fusion.parameters())
        y = self.y if rows is None else self.y[torch.from_numpy(rows).to(self.y.device)]
        first = 0.0
        for step in range(steps):
            loss = criterion(self.fusion(a), y, self.classes)
            first = loss.item() if step == 0 else first
            if not own:
                break
            descend(own, loss, lr, self.decay)
        return first

    def predict(self, representations: list[dict[str, Tensor]]) -> dict[str, Tensor]:
        """Scores by split, (N_s, outputs), from all clients' held-out representations, in the clients' order."""
        self.eval()
        splits = representations[0]
        with torch.no_grad():
            scores = {
                split: self.fusion(self.aggregation.aggregate([h[split] for h in representations])) * self.scale
                + self.shift
                for split in splits
            }
        self.train()
        return scores
