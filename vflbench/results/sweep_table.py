"""The table at the end of a sweep: one line per setting, with mean and spread over its seeds."""

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from vflbench.results import experiment
from vflbench.results.reader import Run, natural
from vflbench.results.texts import align, human_bytes
from vflbench.types import ENDED_WELL, TRAINING_METRIC, VflbenchError

LEFT_OUT = "left out"  # a key that the method of this line does not have


def table(folder: str | Path) -> str:
    """A plain-text table of the sweep in `folder`, one line per setting: jobs whose overrides differ only in the seed.

    It has their jobs, the keys that differ between settings, the number of seeds, and how the jobs ended. Then come the
    metric, what was sent and the seconds of communication: the mean and, after ±, the standard deviation (n - 1) over
    the jobs that ended well. A job that left nothing readable is counted by what is known of it. Jobs of different
    experiments (results/experiment.py) are in lines of their own, and a last line says in what they differ. The text is
    empty if there are no jobs.
    """
    alike: dict[tuple[str, ...], list[Run]] = {}
    found = jobs(folder)
    for run in found:
        typed = (word.lstrip("+") for word in _overrides(run))
        alike.setdefault(tuple(word for word in typed if not word.startswith("seed=")), []).append(run)
    settings, notes = dict[tuple[str, ...], list[Run]](), dict[str, None]()
    for words, runs in alike.items():
        for run, facts in zip(runs, experiment.split(runs), strict=True):
            settings.setdefault((*words, *facts), []).append(run)
        notes[experiment.mixed(runs)] = None
    common = set.intersection(*(set(words) for words in settings if words or len(settings) == 1)) if settings else set()
    # A column for each key that differs, so that its values are below each other.
    keys = list(dict.fromkeys(word.split("=", 1)[0] for words in settings for word in words if word not in common))
    rows = [["jobs", *keys, "seeds", "status", "metric", "selected", "final", "sent", "communication"]]
    for setting, runs in settings.items():
        given = dict(word.split("=", 1) for word in setting if "=" in word)
        without = LEFT_OUT if setting else ""
        rows.append([_numbers(runs), *(given.get(key, without) for key in keys), *_results(runs)])
    return "\n".join([align(rows), *filter(None, [*notes, experiment.from_before(found)])]) if settings else ""


def jobs(folder: str | Path) -> list[Run]:
    """The sweep's runs in the order of job numbers, also those that failed before they wrote anything."""
    signs = ("manifest.json", "summary.json", ".hydra")
    inside = [path for path in Path(folder).iterdir() if any((path / sign).exists() for sign in signs)]
    return [Run(path) for path in sorted(inside, key=lambda path: natural(path.name))]


def _overrides(run: Run) -> list[str]:
    try:
        return run.overrides or []
    except VflbenchError:  # one damaged folder does not end a table of many jobs; the status column shows it
        return []


def _numbers(runs: Sequence[Run]) -> str:
    """The names of the jobs' folders: 0-2,5; of names that are no numbers the first three."""
    names = [run.folder.name for run in runs]
    if not all(name.isdecimal() for name in names):
        return ",".join([*names[:3], *([f"{len(names) - 3} more"] if names[3:] else [])])
    groups = itertools.groupby(enumerate(map(int, names)), key=lambda place: place[1] - place[0])
    parts = [[number for _, number in group] for _, group in groups]
    return ",".join(f"{own[0]}-{own[-1]}" if own[1:] else str(own[0]) for own in parts)


def _results(runs: Sequence[Run]) -> list[str]:
    """Number of seeds, statuses, metric, selected, final, bytes and communication seconds of one setting as text."""
    states = [_status(run) for run in runs]
    count = Counter(states)
    status = states[0] if len(runs) == 1 else ", ".join(f"{number} {state}" for state, number in count.items())
    ended = [run.summary for run, state in zip(runs, states, strict=True) if state not in ("no result", "unreadable")]
    well = [summary for summary in ended if summary["status"] in ENDED_WELL] or ended
    well = list({summary["seed"]: summary for summary in reversed(well)}.values())[::-1]  # a seed counts once
    seeds = str(len({summary["seed"] for summary in ended}) + len(runs) - len(ended))
    if not well:
        return [seeds, status, "", "", "", "", ""]
    name = next((s["metric"]["name"] for s in well if s["metric"]["name"]), "")  # none where data were never reached
    form = ".2e" if name == TRAINING_METRIC else ".4f"  # a gap, of many decades
    scores = [spread([s["metric"][key] for s in well], f"{{:{form}}}".format) for key in ("selected", "final")]
    sent = spread([s["bytes"]["total"] for s in well], human_bytes)
    seconds = spread([s["communication_seconds"] for s in well], "{:.4g} s".format)
    return [seeds, status, name, *scores, sent, seconds]


def results(run: Run) -> list[str]:
    """Status, metric, selected, final, bytes and communication seconds of one run as text."""
    return _results([run])[1:]


def _status(run: Run) -> str:
    """How the job ended, or why that is not known."""
    try:
        return run.status or "no result"
    except VflbenchError:
        return "unreadable"


def spread(values: Sequence[float | None], shown: Callable[[float], str]) -> str:
    """Mean ± standard deviation (n - 1) of the finite values; `-` without one, and no spread of equal values."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known:
        return "-"
    spread = statistics.stdev(known) if known[1:] else 0.0
    return shown(statistics.fmean(known)) + (f" ± {shown(spread)}" if spread else "")
