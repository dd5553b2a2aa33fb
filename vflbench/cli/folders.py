"""Folders of runs and sweeps: which may be written to, which are continued, and what a run that never began leaves."""

import contextlib
import itertools
import time
from pathlib import Path
from typing import Any, Literal

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from vflbench import config
from vflbench.cli.words import complain, relative_path
from vflbench.defaults import filled
from vflbench.results import folder as files
from vflbench.results import identity, inventory, lock, reader
from vflbench.results.identity import config_hash
from vflbench.runner import provenance
from vflbench.types import ENDED, ConfigError, EngineConfig, NetworkConfig, Problem, VflbenchError


def state(folder: Path) -> tuple[str | None, str | None]:
    """(status, config hash) of the run in `folder`; the status is `unfinished` after a kill, None without a run."""
    if not any((folder / name).is_file() for name in ("manifest.json", "summary.json")):
        return None, None
    found = reader.load(folder)
    identity = found.manifest.get("config_hash") if (folder / "manifest.json").is_file() else None
    return found.status or "unfinished", identity


def admit(folder: Path, cfg: DictConfig, sweep: bool = False) -> None:
    """Refuse a folder in which a run, or anything else of the user's, would be lost; nothing is written before."""
    try:
        _admit(folder, cfg, sweep)
    except VflbenchError:
        if inventory.kept(folder):
            with lock.held(folder):  # where a run is going on, that comes first
                raise
        raise


def _admit(folder: Path, cfg: DictConfig, sweep: bool) -> None:
    status, identity = state(folder)
    places = (folder.absolute(), *folder.absolute().parents)
    inside = next(
        (p for p in places if p.name in ("checkpoint", "model", "transcript", "logs", ".hydra") and state(p.parent)[0]),
        None,
    )
    if inside is not None:
        raise VflbenchError(
            f"{folder} is where the run in {relative_path(inside.parent)} has its files: choose another hydra.run.dir"
        )
    others = inventory.own(folder) if status is None and inventory.kept(folder) else []
    # Files left by a run that never began count as nothing.
    if others := [name for name in others if Path(name).parts[0] != ".hydra" and not name.endswith(".tmp")]:
        run_file = next((name for name in others if Path(name).parts[0] in files.FILES - files.SWEEP_FILES), None)
        if run_file is None:
            raise VflbenchError(
                f"{folder} holds {others[0]} of a sweep or figure: choose another folder with hydra.run.dir=..."
            )
        if not cfg.overwrite:
            lost = f"{folder} holds {run_file} of a run whose manifest.json is gone"
            raise VflbenchError(
                f"{lost}: choose another folder with hydra.run.dir=..., or replace it with overwrite=true"
            )
    if status is None or cfg.overwrite or _is_nothing(folder, status):
        _admit_foreign(folder)
        return
    same = identity == config_hash(config.plain(cfg))
    if (cfg.resume or sweep) and not same:
        raise VflbenchError(
            f"{folder} holds a run of another configuration ({_difference(folder, cfg)}): choose another folder"
        )
    if sweep or cfg.resume:  # a repeated sweep keeps runs that have ended and continues the rest
        if changed := _changed(folder, config.plain(cfg)):
            key = "hydra.sweep.dir" if sweep else "hydra.run.dir"
            raise VflbenchError(
                f"{folder} holds a run of another experiment, which cannot go on or be averaged with new runs "
                f"({changed}): choose another folder with {key}=..., or train it again with overwrite=true"
            )
        if status not in ENDED:
            _admit_foreign(folder, goes_on=True)
        return
    if status in ENDED:
        raise VflbenchError(
            f"{folder} holds a run that has ended ({status}): choose another folder, or replace it with overwrite=true"
        )
    raise VflbenchError(
        f"{folder} holds a run that has not ended ({status}): continue it with resume=true, or replace it with "
        "overwrite=true"
    )


def _admit_foreign(folder: Path, goes_on: bool = False) -> None:
    """Refuse a folder with anything in it that no run wrote; where a run `goes_on`, only what is in its way."""
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not there.is_dir():
        raise ConfigError([Problem("hydra.run.dir", str(folder), f"cannot be a folder: {there} is a file")])
    if there != folder:
        return
    hydra: Any = OmegaConf.to_container(HydraConfig.get())  # unresolved: the run's folder may not be known yet
    handlers = (hydra["job_logging"].get("handlers") or {}).values()
    names = [str(one["filename"]) for one in handlers if "filename" in one]
    logs = {Path(name.replace("${hydra.job.name}", hydra["job"]["name"])).name for name in names}  # open by now
    found = [name for name in inventory.foreign(folder) if name not in logs]
    if not inventory.kept(folder) and state(folder)[0] is not None:
        older = "a run of an older vflbench, which kept no list of its files"
        raise VflbenchError(f"{folder} holds {older}: choose another folder with hydra.run.dir=..., or move it")
    if goes_on:  # damaged checkpoints are dealt with when they are needed
        # what is in a logger's way, it says itself
        found = [name for name in found if Path(name).parts[0] in files.FILES - {"logs"} or name == "logs"]
        found = [
            name
            for name in found
            if Path(name).parts[0] not in ("checkpoint", "transcript") or not inventory.damaged(folder, name)
        ]
    inventory.refuse(folder, found, "Choose another folder with hydra.run.dir=...")


def admit_sweep(folder: Path) -> None:
    """Refuse the folder of a new sweep that is not empty, and that of a continued sweep where a file is in the way."""
    if state(folder)[0] is not None:
        raise VflbenchError(f"{folder} holds a run: choose another folder with hydra.sweep.dir=...")
    found = inventory.foreign(folder) if folder.is_dir() else []
    if inventory.kept(folder):
        found = [name for name in found if name in files.SWEEP_FILES]
    inventory.refuse(folder, found, "Choose another folder with hydra.sweep.dir=...")


def _is_nothing(folder: Path, status: str) -> bool:
    """Whether the run failed or was skipped before it had anything to lose."""
    return status in ("failed", "skipped") and not any((folder / name).exists() for name in ("curve.csv", "checkpoint"))


def clear(folder: Path, overwrite: bool, cfg: DictConfig) -> None:
    """Remove the files of the run that is replaced, and write `.hydra`.

    The summary goes first, so that half a run is no result. Call this when the new run has its data and parties: a run
    that cannot start then leaves the old one.
    """
    status, _ = state(folder)
    if status is not None and (overwrite or _is_nothing(folder, status)):
        inventory.clear(folder, first="summary.json")
    _write_hydra(folder, cfg)


def _write_hydra(folder: Path, cfg: DictConfig) -> None:
    """Write config.yaml, hydra.yaml and overrides.yaml, as Hydra itself does before a job that may not start."""
    hydra = HydraConfig.get()
    parts = {"config": cfg, "hydra": OmegaConf.create({"hydra": hydra}), "overrides": hydra.overrides.task}
    place = folder / ".hydra"
    place.mkdir(mode=0o700, exist_ok=True)
    try:
        for name, part in parts.items():
            files.atomic_write(place / f"{name}.yaml", OmegaConf.to_yaml(part))
    except BaseException:  # interrupted: without a file in it, it would be taken for the user's
        with contextlib.suppress(OSError):
            place.rmdir()
        raise


def _difference(folder: Path, cfg: DictConfig) -> str:
    """The keys in which a folder's run differs from `cfg`."""
    if not (folder / "manifest.json").is_file():
        return "it has no manifest.json"
    written = (config.without_secrets(cfg), reader.load(folder).manifest.get("config", {}))
    ours, theirs = (identity.flat(identity.identifying(values)) for values in written)
    keys = [key for key in {**theirs, **ours} if ours.get(key) != theirs.get(key)]
    return (
        ", ".join(f"{key}={theirs.get(key)} there, {ours.get(key)} here" for key in keys[:5])
        or "another vflbench or environment"
    )


def _changed(folder: Path, values: dict[str, Any]) -> str:
    """In what the experiment of a folder's run differs from the same configuration today; empty if in nothing."""
    if not (folder / "manifest.json").is_file():
        return ""
    return provenance.changed_since(reader.load(folder).manifest, values)


def dated(cfg: DictConfig, kind: Literal["run", "sweep"], overrides: list[str]) -> bool:
    """Whether the folder's name has the time in it, and was not typed: then it is a new folder."""
    unresolved: Any = OmegaConf.to_container(cfg.hydra[kind])
    return "${now:" in str(unresolved["dir"]) and not any(text.startswith(f"hydra.{kind}.dir=") for text in overrides)


def make_new(folder: Path) -> Path:
    """Make the folder, with a number where it exists: two may start in one microsecond, and clocks are set back."""
    for number in itertools.count(1):
        new = folder if number == 1 else folder.with_name(f"{folder.name}_{number}")
        with contextlib.suppress(FileExistsError):
            new.mkdir(mode=0o700, parents=True)
            return new
    raise AssertionError


def to_continue(root: Path, values: dict[str, Any]) -> Path | None:
    """The newest run of this configuration below `root` that has a list of its files; unended runs come first."""
    wanted = config_hash(values)
    found = {}
    for candidate in reader.find(root) if root.is_dir() else []:
        try:
            status, identity = state(candidate.folder)
        except VflbenchError as damaged:
            complain(f"not considered: {damaged}")
            continue
        if identity == wanted and inventory.kept(candidate.folder):
            if changed := _changed(candidate.folder, values):
                complain(f"not considered: {candidate.folder} is another experiment ({changed})")
                continue
            found[candidate.folder] = status not in ENDED
    begun = {folder: (folder / "manifest.json").stat().st_mtime for folder in found}
    # A run that began in the future began before the clock was set back.
    return max(found, key=lambda folder: (found[folder], begun[folder] <= time.time(), begun[folder]), default=None)


def ended(folder: Path) -> str | None:
    """Status of the run in `folder` if it has ended: a resumed sweep keeps it; else None."""
    status, _ = state(folder)
    return status if status in ENDED else None


def write_unrun(
    folder: Path, status: Literal["failed", "skipped"], reason: str, values: dict[str, Any], cfg: DictConfig
) -> None:
    """Write the summary of a run that never ended; files that the runner itself has written stay."""
    before, _ = state(folder)
    if before is not None and not _is_nothing(folder, before):
        return
    reason = identity.hide(reason, config.from_environment(cfg))
    how = {group: values[group]["name"] for group in ("algorithm", "dataset")}
    how |= {key: values[key] for key in ("seed", "accounting", "device")}
    # a user's option may leave keys out
    how["compute_clock"] = values["engine"].get("compute_clock", filled(EngineConfig).compute_clock)
    how["timing"] = values["network"].get("timing", filled(NetworkConfig).timing)
    summary = files.summarise_unrun(status=status, reason=reason, **how)
    # the disk may be what failed; the user sees the reason all the same
    with contextlib.suppress(VflbenchError, OSError):
        _write_hydra(folder, cfg)
        files.write_summary(folder, summary)
