"""Synchronous split learning in a few lines: what an algorithm with `gdp_embedding` and attacks on its embeddings and
gradients needs.

One active party, passive parties with one worker each. A passive hub publishes; its worker only computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from vflbench.data.tasks import AlignedPart, AlignedPublic, AlignedTask
from vflbench.federation.party import Party, PartySpec
from vflbench.models import split_learning
from vflbench.seeding import batches
from vflbench.types import AlgorithmInfo, RunConfig, Sent

ALGORITHM = AlgorithmInfo(
    name="small_split",
    summary="",
    paper="",
    layouts=("aligned",),
    divided_by="parties",
    reports=("predictions",),
    privacy=("none", "gdp_embedding"),
    attacks=("none", "embedding_inversion", "label_inference"),
    models=("mlp10",),
    epochs=True,
)
EXPOSES = (
    Sent("embedding", "passive", "active", "embeddings", "passive"),
    Sent("gradient", "active", "passive", "gradients", "active"),
    Sent("work", "passive", "passive_worker", "features", "passive"),
    Sent("work", "passive_worker", "passive", "embeddings", "passive"),
)


@dataclass
class Config:
    name: str = "small_split"
    parties: int = 2
    batch_size: int = 32
    lr: float = 0.05
    default_rounds: int = 3


def max_releases(config: RunConfig, rounds: int) -> int:
    """Once per epoch."""
    return rounds


def parties(task: AlignedTask, config: RunConfig) -> dict[str, PartySpec]:
    specs = {"active": PartySpec(active, task.part(0))}
    for p in range(1, task.parties):
        specs[f"passive_{p}"] = PartySpec(hub, task.part(p), organisation=f"passive_{p}")
        specs[f"passive_{p}_worker_00"] = PartySpec(worker, None, organisation=f"passive_{p}")
    return specs


def drawn(public: AlignedPublic, config: RunConfig, epoch: int) -> list[np.ndarray]:
    return batches(config.seed, epoch, public.samples, config.algorithm.batch_size)


def descend(model: Any, gradient: torch.Tensor, config: RunConfig) -> None:
    model.theta.sub_(config.algorithm.lr * gradient)


async def active(me: Party, data: AlignedPart, public: AlignedPublic, config: RunConfig) -> None:
    features = torch.from_numpy(data.features)
    labels = torch.from_numpy(data.labels)
    hubs = [name for name in me.clients if name.startswith("passive") and "worker" not in name]
    model = split_learning.Active(config.model, features.shape[1:], public, data.labels, me.torch_rng("init"))  # type: ignore[arg-type]
    me.state.model = model
    async for t in me.rounds():
        losses = []
        for batch, rows in enumerate(drawn(public, config, t)):
            received = await me.recv_all(hubs, tag="embedding")
            loss, gradient, dz = model.gradients(features[rows], labels[rows], [payload[3] for payload in received])
            descend(model, gradient, config)
            losses.append(loss)
            for name, back in zip(hubs, dz, strict=True):
                await me.send(name, (batch, 0, float(me.clock), back), tag="gradient")
        reported: dict[str, Any] = {}
        async with me.evaluating():
            for split in ("val", "test"):
                zs = [await me.recv(name, tag="embedding") for name in hubs]
                reported[split] = model(torch.from_numpy(data.held_out[split]), zs).detach()
        me.report(train_loss=float(np.mean(losses)), epoch=t, predictions=reported)


async def hub(me: Party, data: AlignedPart, public: AlignedPublic, config: RunConfig) -> None:
    """Publishes what its worker computes, clips and noises it."""
    other = f"{me.name}_worker_00"
    features = torch.from_numpy(data.features)
    model = split_learning.Passive(config.model, features.shape[1:], me.torch_rng("init"))
    me.state.model = model
    async for t in me.rounds():
        for batch, rows in enumerate(drawn(public, config, t)):
            made = model.embed(features[rows])
            await me.send(other, made.z.detach(), tag="work")
            z = await me.recv(other, tag="work")
            if me.privacy is not None:
                z = me.privacy.protect(z, rows, me.torch_rng("noise"), release=t)
            await me.send("active", (batch, 0, float(me.clock), z), tag="embedding")
            *_, back = await me.recv("active", tag="gradient")
            gradient = model.gradient(made, lambda rows=rows: features[rows], back, me.privacy)
            descend(model, gradient, config)
        async with me.evaluating():
            for split in ("val", "test"):
                z = model(torch.from_numpy(data.held_out[split]))
                await me.send("active", z if me.privacy is None else me.privacy.clip(z), tag="embedding")


async def worker(me: Party, data: None, public: AlignedPublic, config: RunConfig) -> None:
    """Clips."""
    other = me.name.removesuffix("_worker_00")
    async for t in me.rounds():
        for _ in drawn(public, config, t):
            z = await me.recv(other, tag="work")
            await me.send(other, z if me.privacy is None else me.privacy.clip(z), tag="work")
