"""A single run, in its folder."""

from __future__ import annotations

import contextlib
from functools import partial

from omegaconf import DictConfig

from vflbench import config
from vflbench.cli import folders
from vflbench.cli.job import Outcome, job
from vflbench.cli.words import RUNS, complain
from vflbench.config import hydra_keys
from vflbench.hydra_internals import Session
from vflbench.results import inventory, lock
from vflbench.types import VflbenchError


def start(hydra: Session, cfg: DictConfig, overrides: list[str], command: str, quiet: bool = False) -> Outcome:
    """Run one checked configuration in its folder."""
    folder, found = hydra_keys.folder(cfg, "hydra.run.dir"), None
    dated = folders.dated(cfg, "run", overrides)
    try:
        if not dated:
            folders.admit(folder, cfg)
    except VflbenchError:
        if inventory.kept(folder):
            with lock.alone(folder):  # that it is running comes before what could be done with it
                raise
        raise
    if cfg.resume and not any(text.startswith("hydra.run.dir=") for text in overrides):
        found = folders.to_continue(RUNS, config.plain(cfg))
        if found is not None:
            overrides = [*overrides, config.quoted("hydra.run.dir", str(found))]
        if not quiet and (found is None or folders.ended(found) is None):
            complain(f"continuing {found}" if found else f"no run of this configuration below {RUNS}/: starting a new one")
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    if dated and found is None:
        made[:1] = [folders.make_new(folder)]
        overrides = [*overrides, config.quoted("hydra.run.dir", str(made[0]))]
    elif found is None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # before Hydra does, who lets others read it
    task = partial(job, command=command, quiet=quiet)
    try:
        with hydra_keys.refusing():
            outcome: Outcome = hydra.start(task, overrides, log=not quiet)
    finally:
        for place in made:  # a run that could not start leaves nothing behind
            with contextlib.suppress(OSError):
                place.rmdir()
    if outcome.bug is not None:
        raise outcome.bug
    return outcome
