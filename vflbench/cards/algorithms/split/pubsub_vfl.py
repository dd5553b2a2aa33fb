"""PubSub-VFL."""

from typing import Literal

from vflbench.cards.algorithms.split import embedding_messages, split_methods
from vflbench.cards.algorithms.split.split_methods import Keys
from vflbench.defaults import from_conf
from vflbench.types import AlgorithmInfo, Count, Interval, Positive, Problem, RunConfig, Sent, Tolerates

ALGORITHM = AlgorithmInfo(
    name="pubsub_vfl",
    summary="asynchronous split learning: batches by publish/subscribe between two or more parties' workers",
    paper="Liu et al. 2025, arXiv 2510.12494 (Algorithm 1)",
    label="PubSub-VFL",
    place=0,
    **split_methods.FAMILY,
    attacks=("none", "embedding_inversion", "label_inference"),
    published=("embedding", "gradient"),
    time_dependent=True,
    # unless deadline=null; workers are replaced, as long as their organisation has others
    tolerates=Tolerates(late="retries", absent="replaces"),
    # any codec: rounded embeddings and gradients are stale ones with noise; replicas stay inside an organisation
    assumes=("aligned_rows",),
)
EXPOSES = (
    *embedding_messages.EXPOSES,
    *embedding_messages.REPLICAS,
    # of an epoch's batches: between hubs, and inside an organisation
    Sent("notice", "passive", "active", "ids", "all"),
    Sent("notice", "active", "passive", "ids", "all"),
    Sent("epoch", "passive", "active", "timing", "passive"),
    Sent("epoch", "active", "passive", "timing", "active"),
    Sent("task", "active", "active_worker", "embeddings", "passive"),
    Sent("worker", "active_worker", "active", "gradients", "active"),
    Sent("task", "passive", "passive_worker", "gradients", "active"),
    Sent("worker", "passive_worker", "passive", "embeddings", "passive"),
)
SEARCH = {
    **split_methods.PAIRS,
    "algorithm.passive_workers": Interval(1, 20, log=True, int=True),
    "algorithm.aggregation": ("semi_async", "every_epoch"),
    "algorithm.outstanding": Interval(1, 8, log=True, int=True),
    "algorithm.average_every": split_methods.AVERAGE_EVERY,
}


@from_conf()
class Config(Keys):
    """Keys of PubSub-VFL."""

    workers: int
    passive_workers: Count | None
    outstanding: Count
    deadline: Positive | None
    aggregation: Literal["semi_async", "every_epoch", "never"]
    interval: Count
    average_every: Count | None
    failure_rate: float
    planner: Literal["none", "epoch", "paper"]
    batch_sizes: list[int]
    memory: list[list[float]]


def check(config: RunConfig[Config]) -> list[Problem]:
    """Rules across keys, before any data is loaded."""
    cfg = config.algorithm
    problems = split_methods.check_asynchronous(config)
    if cfg.deadline is not None and cfg.deadline <= 2e-3 * config.network.client_server.latency_ms:
        there_and_back = (
            f"a message takes {2 * config.network.client_server.latency_ms:g} ms there and back on this network"
        )
        problems.append(Problem("algorithm.deadline", cfg.deadline, f"{there_and_back}: every batch would be dropped"))
    problems += check_planner(config)
    if not 0 <= cfg.failure_rate < 0.9:
        problems.append(Problem("algorithm.failure_rate", cfg.failure_rate, "must be at least 0 and below 0.9"))
    elif cfg.failure_rate and cfg.deadline is None and cfg.parties > 2:
        wait = (
            "without a deadline passive parties would wait for one another for ever: must be 0, or set "
            "algorithm.deadline"
        )
        problems.append(Problem("algorithm.failure_rate", cfg.failure_rate, wait))
    return problems


def check_planner(config: RunConfig[Config]) -> list[Problem]:
    """What is wrong with the planner's keys, and which other options the planner cannot plan for."""
    cfg, network, problems = config.algorithm, config.network, []
    if not cfg.batch_sizes or min(cfg.batch_sizes) < 1:
        problems.append(Problem("algorithm.batch_sizes", cfg.batch_sizes, "must be a list of numbers from 1"))
    if any(len(numbers) != 4 or min(numbers) < 0 or min(numbers[2:]) == 0 for numbers in cfg.memory):
        allowed = "must be a list of [Mem_max, Mem_0, rho, chi], rho and chi above 0"
        problems.append(Problem("algorithm.memory", cfg.memory, allowed))
    elif len(cfg.memory) not in (0, cfg.parties):
        allowed = f"must have an entry for each of the {cfg.parties} parties, or be empty"
        problems.append(Problem("algorithm.memory", cfg.memory, allowed))
    if cfg.planner == "none":
        return problems
    if config.engine.name == "ray":
        allowed = "plans for the delay model and links of the simulation; here both are real: none"
        problems.append(Problem("algorithm.planner", cfg.planner, allowed))
    if cfg.average_every is not None:
        allowed = "the planner plans for averages at the ends of epochs: null, or algorithm.planner=none"
        problems.append(Problem("algorithm.average_every", cfg.average_every, allowed))
    if config.compute.counts_work:
        allowed = "the planner plans with the delays of each part: compute=paper_table8 or compute=measured"
        problems.append(Problem("compute", config.compute.name, allowed))
    if network.links or network.server_bandwidth_gbps is not None:
        key = "links" if network.links else "server_bandwidth_gbps"
        allowed = "the planner knows links that are alike and not shared: algorithm.planner=none"
        problems.append(Problem(f"network.{key}", getattr(network, key), allowed))
    if config.model.dtype != "float32":
        allowed = "the planner counts 4 bytes a number: float32, or algorithm.planner=none"
        problems.append(Problem("model.dtype", config.model.dtype, allowed))
    if config.engine.compute_clock not in ("auto", "modelled"):
        allowed = "the planner plans for the delay model: modelled, or algorithm.planner=none"
        problems.append(Problem("engine.compute_clock", config.engine.compute_clock, allowed))
    return problems
