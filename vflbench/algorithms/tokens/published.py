"""Privacy of tokens (privacy=gaussian_embedding): a client's part of a token is what it has published.

Client k publishes p_k = clip(h_k) + noise, by rows. A token is always the sum (or concatenation) of the p_k that the
clients published last. Where a client sends a token on, its new p_k replaces the old one, noise and all. So the noise
in a token is that of K parts, however far it has come. For its own steps a client has h_k itself in the place of p_k.

A client keeps p_k - h_k, which is all that it needs: theta_k stands still until p_k is replaced. What it sends is
token - p_k + p_k', but for rounding, which is not treated. Without noise every bit is that of a run without privacy.

A row is released where its representation goes to the server, and where a token goes to another client. A hop that
stays releases nothing. Walks and batches come from a seed that all share. So each row's releases are known before the
run, and the noise is for as many.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from vflbench.algorithms.tokens.block_descent import batch
from vflbench.cards.algorithms.tokens.token_methods import Keys
from vflbench.data.tasks import AlignedTask
from vflbench.federation.party import Party
from vflbench.models import split_network, vertical
from vflbench.privacy import gaussian
from vflbench.types import RunConfig, batch_size

# of what epsilon says nothing
NOT_COVERED = (
    "labels",
    "evaluation exchanges",
    "the final model",
    "a record, which also trains the model that all rows are sent by",
)


def planned(
    config: RunConfig[Keys], task: AlignedTask, releases: Callable[[], np.ndarray]
) -> Sequence[np.ndarray | None]:
    """By client how often each of its rows will be released, (N,), or (1,) where that is the same for all.

    Without privacy that is None for each.

    Parameters
    ----------
    releases : what gives a client's releases of the rows of a round's batch, (rounds, K).
    """
    if config.privacy.name == "none":
        return [None] * task.parties
    made = releases()
    samples, size = len(task.labels), batch_size(config.algorithm)
    counts = made.sum(axis=0)[:, None]
    if size is not None and size < samples:
        counts = np.zeros((task.parties, samples), np.int64)
        for t, of_round in enumerate(made, start=1):
            counts[:, batch(config.seed, t, samples, size)] += of_round[:, None]
    if counts.any():
        model = split_network.resolve(config.model, task)
        width = 1 if model is None else vertical.embedding(model, task.public.outputs)
        gaussian.warn_of_noise(config.privacy, int(counts.max()), width)
    return list(counts)


def plan(me: Party, planned: np.ndarray | None) -> None:
    """Calibrate the noise to the releases that will happen, and say what epsilon leaves out."""
    if planned is not None:
        me.privacy.plan(planned)
        me.privacy.not_covered = NOT_COVERED


def publish(me: Party, h: Any, rows: np.ndarray | None) -> tuple[Any, Any]:
    """What is sent of the representation `h` (n,) or (n, E) of `rows` (None: all); and that less `h`.

    Without privacy that is `h` itself, and None.
    """
    if me.privacy is None:
        return h, None
    ids, noise = np.arange(len(h)) if rows is None else rows, me.secret_torch_rng("noise")
    if isinstance(h, np.ndarray):  # a convex objective's: a row is one number
        sent = me.privacy.protect(torch.from_numpy(h)[:, None], ids, noise)[:, 0].numpy()
    else:
        h = h.detach()
        sent = me.privacy.protect(h, ids, noise)
    return sent, sent - h


def clean(block: Any, token: Any, noise: Any) -> Any:
    """The token with the client's own representation in it, without the `noise` with which that was published."""
    return token if noise is None else block.added(token, -noise)


async def renewed(me: Party, block: Any, token: Any, theta: Any, rows: np.ndarray | None) -> tuple[Any, Any]:
    """A clean token with the own part published anew, at `theta`; and the noise of that part.

    Without privacy that is the token as it is, and None.
    """
    if me.privacy is None:
        return token, None
    h = await me.compute(block.represent, rows, theta, cost=len(block.x) if rows is None else len(rows))
    _, noise = publish(me, h, rows)
    return block.added(token, noise), noise
