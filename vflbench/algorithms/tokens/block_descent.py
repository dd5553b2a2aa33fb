"""What methods of block coordinate descent share beside messages: blocks, batches, averages, scores.

A token is a shared estimate of the model. `Glm` and `SplitClient` have one interface: theta, represent, visit. So have
`GlmServer` and `SplitServer`: token, update.
"""

import functools
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from vflbench.cards.algorithms.tokens.token_methods import NetworkKeys
from vflbench.data.tasks import AlignedPart, AlignedPublic, AlignedTask, JoinedPart
from vflbench.federation.party import SERVER, Party, PartySpec, Program, party_names
from vflbench.models.glm import Glm
from vflbench.models.split_network import SplitClient, SplitServer
from vflbench.privacy import serving
from vflbench.seeding import stream
from vflbench.types import (
    PrivacyConfig,
    RunConfig,
)

log = logging.getLogger(__name__)


class GlmServer(torch.nn.Module):
    """The server where there is no fusion model: it sums up."""

    def start(self, samples: int, parties: int) -> list[np.ndarray]:
        """The representations at theta = 0, which no client needs to send."""
        return [np.zeros(samples)] * parties

    def token(self, representations: Sequence[np.ndarray]) -> np.ndarray:
        """The sum u = sum_k X_k theta_k."""
        return sum(representations[1:], start=representations[0].copy())

    def update(self, token: np.ndarray, rows: np.ndarray | None, steps: int, lr: float) -> None:
        """Do nothing: there is no theta_0."""


def parties(
    task: AlignedTask, server: Program, client: Program, planned: Sequence[np.ndarray | None], **known: Any
) -> dict[str, PartySpec]:
    """The server, which has the labels for networks, and one client per block of features, with all labels.

    Parameters
    ----------
    planned : each client's, as `published.planned` gives it.
    known : arguments that all programs get.
    """
    labels = JoinedPart((), task.labels) if task.objective is None else None
    specs = {SERVER: PartySpec(partial(server, **known), labels, role="server")}
    for k, name in enumerate(party_names("client", task.parties)):
        specs[name] = PartySpec(partial(client, planned=planned[k], **known), task.part(k, share_labels=True))
    return specs


def make_client(
    me: Party, data: AlignedPart, public: AlignedPublic, config: RunConfig[NetworkKeys], model: Any = None
) -> Any:
    """A client's block; `model` is what `split_network.resolve` returns."""
    if public.objective is not None:
        return convex_client(data, public)
    return SplitClient(me.clients.index(me.name), data, public, config, model, me.device)


def convex_client(data: AlignedPart, public: AlignedPublic) -> Glm:
    """A client's block of a convex problem."""
    assert data.labels is not None and public.objective is not None
    return Glm(data.features, data.labels, public.objective)


def make_server(
    data: JoinedPart | None, public: AlignedPublic, config: RunConfig[NetworkKeys], model: Any, device: str
) -> Any:
    """The server's part; `data` has the labels where there is a fusion model."""
    return GlmServer() if data is None else SplitServer(data.labels, public, config, model, device)


# --- batches ----------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=8)
def batch(seed: int, round: int, samples: int, size: int | None) -> np.ndarray | None:
    """The samples of `round`, (B,) int64; None: all of them.

    They are drawn without replacement, from a seed that all parties share.
    """
    if size is None or size >= samples:
        return None
    return np.sort(stream(seed, f"batches/{round}").choice(samples, size, replace=False))


def epoch(round: int, samples: int, size: int | None) -> float:
    """How often each sample was seen after `round`, on average."""
    return round * min(size or samples, samples) / samples


# --- averages ---------------------------------------------------------------------------------------------------------


def synchronised(theta: Any, copies: Mapping[int, Any], tokens: int, weights: str) -> Any:
    """The value of theta_k after a sync, given its value at the last one and the copies that tokens left behind.

    Parameters
    ----------
    weights : `cluster`: take the copy of the one token that may come here. `average`: the mean over all tokens, where
        those that did not come count with `theta`. `visitors`: the mean over those that came.
    """
    first, *others = (copies[token] for token in sorted(copies))
    total = sum(others, start=first)
    if weights == "average":
        return (total + (tokens - len(copies)) * theta) / tokens
    return total if len(copies) == 1 else total / len(copies)


# --- scores -----------------------------------------------------------------------------------------------------------


async def score(me: Party, part: Any, t: int, privacy: PrivacyConfig) -> None:
    """At the end of round t, report what is scored: a convex block's own part, or a network's predictions.

    For networks, clients send held-out representations, and the server's fusion model predicts.
    """
    if not me.evaluates(t):
        return
    if isinstance(part, Glm):
        me.report(**part.score())
        return
    for way in serving.ways(privacy):
        async with me.evaluating(priced=way.chosen):
            if isinstance(part, SplitClient):
                held_out = serving.served(me, part.held_out_representations(), way.noisy)
                await me.send(SERVER, held_out, tag="representation")
            elif isinstance(part, SplitServer):
                way.report(me, part.predict(await me.recv_all(me.clients, tag="representation")))
