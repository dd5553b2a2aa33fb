"""`vflbench report --rerun`: the runs of a report on another network."""

import shlex
from pathlib import Path
from typing import Any

from vflbench import config
from vflbench.cli.words import RUNS
from vflbench.plots.report import Report
from vflbench.results import experiment, selection
from vflbench.results.identity import config_hash
from vflbench.results.reader import Run
from vflbench.types import VflbenchError

FOLDER = RUNS / "rerun"


def moved(found: Report, name: str, overwrite: bool) -> tuple[list[Path], list[str]]:
    """Every run of a report, on the network `name`: trained if the method depends on time, else re-priced.

    Returns
    -------
    folders : the runs on that network, each experiment once; a run that is on it already stays as it is.
    notes : why a run is left out.

    Raises
    ------
    VflbenchError : there is no such network, or no run could be moved.
    """
    runs = [run for panel in found.panels for run in panel.runs]
    known = {experiment.identity(run.manifest["config_hash"], run): run.folder for run in runs}
    there: dict[str, Path] = {}
    notes: list[str] = []
    for run in runs:
        try:
            values, words = _composed(run, name)
            identity = experiment.identity(config_hash(values), run)
            if identity in there:
                continue
            place = known.get(identity) or FOLDER / f"{run.summary['algorithm']}_{run.summary['dataset']}_{identity}"
            if identity not in known:
                if run.folder in found.time_dependent:
                    _train(run, words, place)
                else:
                    _reprice(run, values, name, place, overwrite)
            there[identity] = place
        except VflbenchError as error:
            notes.append(f"{run.folder} is left out: on {name}: {error}")
    if not there:
        raise VflbenchError("\n".join([f"no run could be moved to {name}:", *notes]))
    return list(there.values()), notes


def _composed(run: Run, name: str) -> tuple[dict[str, Any], list[str]]:
    """The configuration of the same experiment on the network, and the overrides that give it."""
    words = selection.overrides(run, network=False)
    if words is None:
        raise VflbenchError("its overrides are not known")
    words = [*words, f"seed={run.summary['seed']}"]
    own = selection.config_dir(run)
    with config.session([*words, f"network={name}"], own) as hydra:
        profiles = config.profiles(hydra, [f"network={name}"])
        if len(profiles) != 1 or profiles[0][1] is None:
            raise VflbenchError(f"--rerun {name}: name one network")
        values = config.plain(config.compose(hydra, [*words, f"network={name}"]))
    before = values | {key: run.manifest["config"].get(key) for key in ("network", "accounting")}
    if config_hash(before) != run.manifest["config_hash"] or values["network"] != profiles[0][1]:
        raise VflbenchError("its overrides now give another configuration: options or environment have changed")
    return values | {"accounting": run.manifest["config"]["accounting"]}, [*words, f"network={name}"]


def _train(run: Run, words: list[str], place: Path) -> None:
    from vflbench.cli import train

    own = selection.config_dir(run)
    typed = ["vflbench", *(["--config-dir", own] if own else []), *words]
    how = ["resume=true", "plot=none", "hydra.mode=RUN", config.quoted("hydra.run.dir", str(place))]
    made = train.run([*words, *how], own, shlex.join(typed))
    if changed := experiment.differences(experiment.facts(run.manifest), experiment.facts(made.manifest)):
        raise VflbenchError(f"{place} is another experiment than {run.folder} ({changed}): move that folder away")


def _reprice(run: Run, values: dict[str, Any], name: str, place: Path, overwrite: bool) -> None:
    from vflbench.runner import reprice

    finished = reprice.Finished(run.folder.resolve())
    finished.replacing = "--overwrite"
    finished.check()
    profile = reprice.Profile({"network": name}, values["network"])
    finished.write(profile, place, f"vflbench report --rerun {name}", overwrite=overwrite, draw=None)
