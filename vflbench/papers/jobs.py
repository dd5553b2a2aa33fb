"""The runs that figures need: finds those that are there, and trains the others."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vflbench import config, registry
from vflbench.papers.definition import Definition
from vflbench.results import reader
from vflbench.results.identity import config_hash
from vflbench.runner import provenance
from vflbench.runner.launchers import hide_new_workers
from vflbench.types import ENDED, VflbenchError

SMOKE = 2  # algorithms of a sweep that run at scale=smoke, with the first value of every other key


@dataclass
class Job:
    """One run that is needed, with its configuration."""

    words: list[str]  # Hydra's overrides
    identity: str  # hash of the configuration
    values: dict[str, Any]  # the configuration, as plain data
    run: reader.Run | None = None  # once it is there
    failure: str = ""  # why it is not there
    note: str = ""  # another line for the progress report
    fresh: bool = False  # it was trained now

    @property
    def label(self) -> str:
        """A name of the run for readers."""
        names = [self.values[group]["name"] for group in ("algorithm", "dataset", "network")]
        return " ".join([*names, f"seed={self.values['seed']}"])


def wanted(
    definition: Definition, scale: str, overrides: Sequence[str] = (), config_dir: str | None = None
) -> list[Job]:
    """The runs that a figure needs.

    Parameters
    ----------
    scale : smoke (two rounds, one seed, two algorithms, one value of every other swept key), small or full.
    overrides : the user's, on top of the figure's. Unless they set dataset.source, only scale=smoke may use a made-up
        twin of a data set that exists.
    config_dir : a folder with options of the user's.

    Raises
    ------
    ConfigError : every problem of the overrides.
    """
    jobs: dict[str, Job] = {}
    insist = scale != "smoke" and not any(text.startswith("dataset.source=") for text in overrides)
    for runs in definition.runs:
        for network in definition.networks or [""]:
            words = [*runs.words(scale), *([f"network={network}"] if network else []), *overrides]
            words += ["scale=smoke"] if scale == "smoke" else []
            with config.session(words, config_dir) as hydra:
                words = config.for_all_links(hydra, words)
                plan = config.plan(hydra, words, multirun=True, algorithms=SMOKE if scale == "smoke" else None)
                for job, values in config.configurations(hydra, plan.jobs or [words]):
                    if insist and _exists(values["dataset"]):
                        job, values["dataset"]["source"] = [*job, "dataset.source=real"], "real"
                    found = Job(job, config_hash(values), values)
                    jobs.setdefault(found.identity, found)
    return list(jobs.values())


def _exists(dataset: dict[str, Any]) -> bool:
    """Whether a data set exists that would be made up if its files were not found."""
    return dataset.get("source") == "auto" and "real" in registry.datasets()[dataset["name"]].sources


def find(jobs: Iterable[Job], roots: Iterable[Path]) -> None:
    """Give each job its ended run below `roots`.

    A run that is damaged, of other data or another version, or whose files contradict each other, is not used, and
    the job's note says why. Without a
    readable manifest a run belongs to no job.
    """
    needed = {job.identity: job for job in jobs}
    for root in roots:
        for run in reader.find(root) if root.is_dir() else []:
            job = None
            try:
                job = needed.get(run.manifest["config_hash"])
                if job is not None and job.run is None and run.status in ENDED:
                    if changed := provenance.changed_since(run.manifest, job.values):
                        job.note = f"{run.folder} is left out, as it is another experiment ({changed})"
                        continue
                    run.check_curve()
                    job.run, job.note = run, ""
            except VflbenchError as broken:
                if job is not None:
                    job.note = f"a run that is there is left out: {broken}"


def shape(job: Job) -> str:
    """The hash of what a job trains: its configuration without the network, which only prices what is sent.

    The network counts for methods whose course depends on time.
    """
    if registry.algorithms()[job.values["algorithm"]["name"]].time_dependent or job.values.get("max_virtual_seconds"):
        return job.identity
    return config_hash({key: value for key, value in job.values.items() if key not in ("network", "accounting")})


# (overrides, folder) -> why it failed, or an empty text; called in other processes
Train = Callable[[list[str], str], str]
# (run, configuration, folder); raises VflbenchError where it would not be exact
Reprice = Callable[[reader.Run, dict[str, Any], Path], reader.Run]


def carry_out(
    jobs: Sequence[Job],
    folder: Path,
    roots: Sequence[Path],
    train: Train,
    reprice: Reprice,
    workers: int,
    report: Callable[[int, int, Job], None],
) -> None:
    """Find or train every job's run; a run that differs from another only in its network is re-priced.

    Parameters
    ----------
    folder : each new run goes into `folder`/<hash>.
    roots : folders with runs that may be reused.
    workers : processes that train at the same time.
    report : called with (done, number of missing runs, job) after each job whose run was missing.
    """
    find(jobs, [*roots, *([] if any(root in folder.parents for root in roots) else [folder])])  # each run read once
    missing = [job for job in jobs if job.run is None]
    leaders: dict[str, Job] = {shape(job): job for job in jobs if job.run is not None}
    training = [job for job in missing if leaders.setdefault(shape(job), job) is job]
    done = 0
    for job, failure in _trained(training, folder, train, workers):
        _end(job, failure, folder)
        report(done := done + 1, len(missing), job)
    place = {job.identity: number for number, job in enumerate(jobs)}
    # all prices of a run in a row, so that it is read once
    for job in sorted(missing, key=lambda job: place[leaders[shape(job)].identity]):
        leader = leaders[shape(job)]
        if leader is job:
            continue
        if leader.run is None:
            job.failure = leader.failure
        else:
            try:
                job.run = reprice(leader.run, job.values, folder / job.identity)
            except VflbenchError as refused:  # train it instead
                job.note = f"trained, as re-pricing is refused: {refused}"
                _end(job, train(job.words, str(folder / job.identity)), folder)
        report(done := done + 1, len(missing), job)


def _end(job: Job, failure: str, folder: Path) -> None:
    """Note how a job's training ended; resume=true keeps a broken run, which then is a failure too."""
    job.failure, job.fresh = failure, True
    if failure:
        return
    run = reader.load(folder / job.identity)
    try:
        run.check_curve()
        job.run = run
    except VflbenchError as broken:
        job.failure = f"{broken}; delete its folder to train it again"


def _trained(jobs: Sequence[Job], folder: Path, train: Train, workers: int) -> Iterable[tuple[Job, str]]:
    """Each job when it ends, with why it failed."""
    if workers == 1 or len(jobs) < 2:
        for job in jobs:
            yield job, train(job.words, str(folder / job.identity))
        return
    import joblib

    hide_new_workers()
    calls = (
        joblib.delayed(_placed)(train, place, job.words, str(folder / job.identity)) for place, job in enumerate(jobs)
    )
    # It would be better to start with the longest, but these are not known.
    for place, failure in joblib.Parallel(n_jobs=workers, return_as="generator_unordered")(calls):
        yield jobs[place], failure


def _placed(train: Train, place: int, words: list[str], folder: str) -> tuple[int, str]:
    return place, train(words, folder)
