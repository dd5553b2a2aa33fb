"""What PubSub-VFL's planner can plan for."""

from vflbench.types import Problem, RunConfig


def check(config: RunConfig) -> list[Problem]:
    """What is wrong with the planner's keys, and which other options the planner cannot plan for."""
    cfg, network, problems = config.algorithm, config.network, []
    if len(cfg.worker_range) != 2 or not 1 <= cfg.worker_range[0] <= cfg.worker_range[1]:
        allowed = "must be the least and the most workers: [2,50]"
        problems.append(Problem("algorithm.worker_range", cfg.worker_range, allowed))
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
