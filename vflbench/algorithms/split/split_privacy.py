"""Privacy of split learning: what organisations do to what they send, in one place.

Passive parties clip and noise their embeddings (`gdp_embedding`). The active one randomises its labels before it trains
(`label_rr`), or noises the gradient rows that it sends back (`gaussian_gradient`). What replicas of one organisation
exchange stays inside it, and is no release. A row is sent once an epoch, whichever worker does it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from vflbench.cards.algorithms.split.split_methods import Keys
from vflbench.privacy.gaussian_gradient import GaussianGradient
from vflbench.privacy.label_rr import RandomisedLabels
from vflbench.types import RunConfig


def max_releases(config: RunConfig[Keys], rounds: int) -> int:
    """How often a row is sent: once an epoch, as a further attempt sends the same noisy row again."""
    return rounds


def embeddings(me: Any, z: Tensor, rows: np.ndarray, epoch: int | None = None) -> Tensor:
    """Passive: what is sent of the embeddings z (B, d_e) of `rows`.

    Parameters
    ----------
    epoch : where a row may be sent more than once an epoch: then it is sent as it was.
    """
    if me.privacy is None:
        return z
    sent: Tensor = me.privacy.protect(z, rows, me.secret_torch_rng("noise"), release=epoch)
    return sent


def gradients(me: Any, dzs: Sequence[Tensor], rows: np.ndarray, samples: int, epoch: int | None = None) -> list[Tensor]:
    """Active: what is sent of the gradients of `rows`, (B, d_e) for each passive party.

    Parameters
    ----------
    samples : training rows, which are numbered anew for each passive party.
    epoch : as in `embeddings`.
    """
    if not isinstance(me.privacy, GaussianGradient):
        return list(dzs)
    noise, norm = me.secret_torch_rng("noise"), me.privacy.norm / max(len(rows), 1)  # the loss is a mean over the batch
    return [
        me.privacy.protect(dz, place * samples + rows, noise, release=epoch, norm=norm) for place, dz in enumerate(dzs)
    ]


def forget(me: Any) -> None:
    """Drop the noisy rows that were kept for further attempts: the epoch is over."""
    if me.privacy is not None and not isinstance(me.privacy, RandomisedLabels):
        me.privacy.forget()


async def settle_labels(
    me: Any, labels: np.ndarray | None, workers: Sequence[str] = (), hub: str | None = None
) -> None:
    """Active, before the first round: keep the labels to train on in `me.state.labels`, if they are randomised.

    The organisation's own party does that, once, and hands them to its workers.

    Parameters
    ----------
    labels : the true ones, (N,); None: a passive party has none.
    workers : of the organisation's own party.
    hub : of a worker: the organisation's own party.
    """
    if labels is None or not isinstance(me.privacy, RandomisedLabels):
        return
    me.state.labels = np.zeros_like(labels)
    if not me.fresh:
        return
    if hub is not None:
        me.state.labels = await me.recv(hub, tag="labels")
        return
    me.state.labels = me.privacy.respond(labels, me.secret_rng("labels"))
    await me.send_many(workers, me.state.labels, tag="labels")


def trained_on(me: Any, labels: np.ndarray) -> np.ndarray:
    """Active: the labels to train on, (N,), given the true ones."""
    randomised: np.ndarray = me.state.labels if isinstance(me.privacy, RandomisedLabels) else labels
    return randomised


def loss_of(me: Any) -> Any:
    """Active: the loss (scores, classes) -> mean over rows."""
    return me.privacy.loss if isinstance(me.privacy, RandomisedLabels) else F.cross_entropy
