"""PubSub-VFL's bookkeeping of one epoch: who has which batch, which attempt counts, who waits until when."""

from vflbench.types import Sent

EXPOSES = (  # between hubs, and inside an organisation
    Sent("notice", "passive", "active", "ids", "all"),
    Sent("notice", "active", "passive", "ids", "all"),
    Sent("epoch", "passive", "active", "timing", "passive"),
    Sent("epoch", "active", "passive", "timing", "active"),
    Sent("task", "active", "active_worker", "embeddings", "passive"),
    Sent("worker", "active_worker", "active", "gradients", "active"),
    Sent("task", "passive", "passive_worker", "gradients", "active"),
    Sent("worker", "passive_worker", "passive", "embeddings", "passive"),
)
