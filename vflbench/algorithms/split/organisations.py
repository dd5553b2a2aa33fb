"""The organisations of split learning: their parties and workers, and checks that they can train on the data."""

import logging
import math
from typing import Any

from vflbench.cards.algorithms.split.split_methods import HELD_OUT, Keys
from vflbench.cards.models.model_facts import IMAGES
from vflbench.data.tasks import AlignedTask
from vflbench.federation.delays import Delays
from vflbench.federation.party import PartySpec, Program, party_names
from vflbench.models.vertical import DEEP
from vflbench.types import ConfigError, Problem, RunConfig

log = logging.getLogger(__name__)

ACTIVE = "active"  # the organisation that has the labels, and that organisation's own party


def check_task(config: RunConfig[Keys], task: AlignedTask) -> None:
    """Check that split learning can train on the data.

    Raises
    ------
    ConfigError : a batch is larger than the training rows; the problem is convex, so that nothing is held out; or a CNN
        gets feature columns.
    """
    public, problems = task.public, []
    if config.model.name in IMAGES and task.features[0].ndim == 2:
        problems.append(
            Problem("model", config.model.name, "takes image views, and these are feature columns: use split_mlp")
        )
    if config.algorithm.batch_size > public.samples:
        allowed = f"there are {public.samples} training rows: at most that many in a batch"
        problems.append(Problem("algorithm.batch_size", config.algorithm.batch_size, allowed))
    if public.objective is not None:
        problems.append(Problem("dataset.problem", public.objective.kind, HELD_OUT))
    if problems:
        raise ConfigError(problems)
    if config.compute.name == "paper_table8" and config.model.name not in DEEP:
        log.warning(
            "computing is charged as PubSub-VFL's Table 8 measured it, on ten layers, and not as model=%s takes",
            config.model.name,
        )


def most(task: AlignedTask, config: RunConfig[Keys]) -> dict[str, int]:
    """The rows of a batch and the workers of a party, at most: there are no more rows, and no more batches."""
    cfg, samples = config.algorithm, task.public.samples
    count = math.ceil(samples / min(cfg.batch_size, samples))
    return {"algorithm.batch_size": samples, "algorithm.workers": count, "algorithm.passive_workers": count}


def check_batches(config: RunConfig[Keys], samples: int, **workers: int) -> None:
    """Check that an epoch has a batch for every worker.

    Parameters
    ----------
    workers : key of the configuration -> number of workers.

    Raises
    ------
    ConfigError : one of the numbers is larger than the number of batches.
    """
    count = math.ceil(samples / config.algorithm.batch_size)
    allowed = f"an epoch has {count} batches: at most that many workers, or a smaller batch_size"
    if problems := [Problem(f"algorithm.{key}", number, allowed) for key, number in workers.items() if number > count]:
        raise ConfigError(problems)


Sides = tuple[Program, Program]  # the active organisation's program, and that of every passive one


def parties(task: AlignedTask, config: RunConfig[Keys], programs: Sides) -> dict[str, PartySpec]:
    """One party per organisation: `active`, `passive_1` ...

    Raises
    ------
    ConfigError : as `check_task`.
    """
    check_task(config, task)
    delays, specs = Delays(config.compute), {}
    for number, name in enumerate(organisations(task)):
        role = "server" if number == 0 else "client"
        specs[name] = PartySpec(programs[number > 0], task.part(number), role, cores=delays.cores(number, 1))
    return specs


def teams(
    task: AlignedTask,
    config: RunConfig[Keys],
    hubs: Sides,
    workers: Sides,
    counts: tuple[int, int],
    expendable: bool = False,
) -> dict[str, PartySpec]:
    """A hub or parameter server and workers per organisation: `active`, `active_worker_0` ...

    Parameters
    ----------
    hubs, workers : their programs.
    counts : workers of the active organisation, and of each passive one.
    expendable : whether the run goes on when the process of a worker dies.

    Raises
    ------
    ConfigError : as `check_task`.
    """
    check_task(config, task)
    delays, specs = Delays(config.compute), {}
    for number, organisation in enumerate(organisations(task)):
        passive = number > 0
        role, data = "client" if passive else "server", task.part(number)
        specs[organisation] = PartySpec(hubs[passive], data, role, organisation, cores=1.0)
        cores = delays.cores(number, counts[passive])
        for name in workers_of(organisation, counts[passive]):
            specs[name] = PartySpec(workers[passive], data, role, organisation, cores=cores, expendable=expendable)
    return specs


def organisations(task: AlignedTask) -> list[str]:
    """The names of the organisations' own parties: `active`, `passive_1` ..."""
    return [ACTIVE, *party_names("passive", task.parties)[1:]]


def workers_of(organisation: str, count: int) -> list[str]:
    """The names of an organisation's `count` workers."""
    return party_names(f"{organisation}_worker", count)


def passive_parties(me: Any) -> list[str]:
    """The passive organisations' own parties, without their workers."""
    return [name for name in me.clients if "_worker_" not in name]
