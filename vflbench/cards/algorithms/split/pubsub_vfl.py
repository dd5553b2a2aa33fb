"""The card of `pubsub_vfl`."""

from dataclasses import dataclass, field
from typing import Literal

from vflbench.cards.algorithms.split import epoch, exposes, planner, shared
from vflbench.cards.algorithms.split.shared import Keys
from vflbench.types import AlgorithmInfo, Count, Positive, Problem, RunConfig

ALGORITHM = AlgorithmInfo(
    name="pubsub_vfl",
    summary="asynchronous split learning: batches by publish/subscribe between two or more parties' workers",
    paper="Liu et al. 2025, arXiv 2510.12494 (Algorithm 1)",
    label="PubSub-VFL",
    place=0,
    **shared.FAMILY,
    attacks=("none", "embedding_inversion", "label_inference"),
    published=(("embedding", "embedding_capacity"), ("gradient", "gradient_capacity")),
    time_dependent=True,
    # any codec: rounded embeddings and gradients are stale ones with noise; replicas stay inside an organisation
    assumes=("aligned_rows",),
)
EXPOSES = (*exposes.EXPOSES, *exposes.REPLICAS, *epoch.EXPOSES)


@dataclass
class Config(Keys):
    """Keys of PubSub-VFL."""

    name: str = "pubsub_vfl"
    workers: int = 8  # w_a: workers of the active party
    passive_workers: Count | None = 10  # w_p: workers of each passive party; null: as many as the active one has
    embedding_capacity: Count = 5  # p: messages that a batch's embedding channel holds
    gradient_capacity: Count = 5  # q: messages that a batch's gradient channel holds
    outstanding: Count = 5  # batches of a passive worker that wait for their gradient, at most
    deadline: Positive | None = 10.0  # T_ddl: seconds that a subscriber waits; null: for ever
    # of replicas: by equation 5 | every epoch | at the end only
    aggregation: Literal["semi_async", "every_epoch", "never"] = "semi_async"
    interval: Count = 5  # DeltaT_0: semi_async: the interval that equation 5 grows to, epochs
    average_every: Count | None = None  # steps of a party between two averages; null: only at the ends of epochs
    # probability that a worker loses a task, and what it waits for: to see what a crash costs
    failure_rate: float = 0.0
    # of workers and batch: epoch (least time to target) | paper (literal objective)
    planner: Literal["none", "epoch", "paper"] = "none"
    worker_range: list[int] = field(default_factory=lambda: [2, 50])  # planner: of each party
    batch_sizes: list[int] = field(default_factory=lambda: [16, 32, 64, 128, 256, 512, 1024])  # planner
    # planner: of each party Mem_max, Mem_0, rho, chi (equation 13); [] no bound
    memory: list[list[float]] = field(default_factory=list)


def check(config: RunConfig) -> list[Problem]:
    """Rules across keys, before any data is loaded."""
    cfg: Config = config.algorithm
    problems = shared.check_asynchronous(config)
    if cfg.deadline is not None and cfg.deadline <= 2e-3 * config.network.client_server.latency_ms:
        there_and_back = (
            f"a message takes {2 * config.network.client_server.latency_ms:g} ms there and back on this network"
        )
        problems.append(Problem("algorithm.deadline", cfg.deadline, f"{there_and_back}: every batch would be dropped"))
    problems += planner.check(config)
    if not 0 <= cfg.failure_rate < 0.9:
        problems.append(Problem("algorithm.failure_rate", cfg.failure_rate, "must be at least 0 and below 0.9"))
    elif cfg.failure_rate and cfg.deadline is None and cfg.parties > 2:
        wait = (
            "without a deadline passive parties would wait for one another for ever: must be 0, or set "
            "algorithm.deadline"
        )
        problems.append(Problem("algorithm.failure_rate", cfg.failure_rate, wait))
    return problems
