"""What a run's experiment is beside its configuration: the data that it read, the code of plug-ins, what numbers mean.

All that puts runs together asks here: a sweep or a search that goes on, tables, reports, pictures, re-pricing, figures.
Runs of different experiments are never averaged, and the reader learns in which file or version they differ.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from vflbench.results.reader import Run
from vflbench.types import VflbenchError

#: The version of what a run's numbers mean. Raise it whenever splits, bytes or accounting change
#: (tests/results/test_semantics.py has witnesses).
SEMANTICS = 3
OF_DATA = "plugin.dataset "  # so begins the fact about a plug-in that gives the data
UNKNOWN = "unknown"  # of runs from before there was a version
DIGITS = 12  # of a SHA-256, for readers and for keys


def facts(manifest: Mapping[str, Any]) -> dict[str, str]:
    """What the experiment is, by dotted name: `data.<file>`, `source`, `plugin.<name>` and `semantics`.

    The values are the beginnings of SHA-256s, where the data are from, and a version.
    """
    data, found = manifest.get("data") or {}, dict[str, str]()
    for name, stamp in data.get("files") or []:
        key, number = f"data.{name}", 1
        while key in found:  # files of one name from two folders
            number += 1
            key = f"data.{name} ({number})"
        found[key] = stamp[:DIGITS]
    if data.get("kind"):
        found["source"] = " ".join(filter(None, [data["kind"], data.get("variant")]))
    found |= {f"plugin.{name}": stamp[:DIGITS] for name, stamp in (manifest.get("plugins") or {}).items()}
    return {**found, "semantics": str(manifest.get("semantics", UNKNOWN))}


def facts_of(run: Run) -> dict[str, str] | None:
    """The facts of a run; None where it has no readable manifest, as it ended before it had data."""
    try:
        return facts(run.manifest) if (run.folder / "manifest.json").is_file() else None
    except VflbenchError:
        return None


def identity(config_hash: str, run: Run) -> str:
    """16 hex digits that name an experiment: this configuration, with the data and the code of `run`."""
    return hashlib.sha256(json.dumps([config_hash, facts_of(run)], sort_keys=True).encode()).hexdigest()[:16]


def comparable(found: Mapping[str, str] | None) -> str:
    """Equal texts for runs that may share a picture or a table: methods may have plug-ins of their own, data not."""
    of_method = [key for key in found or {} if key.startswith("plugin.") and not key.startswith(OF_DATA)]
    kept = {key: value for key, value in (found or {}).items() if key not in of_method}
    return json.dumps(kept, sort_keys=True)


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """In what two experiments differ, in words; empty where they are the same."""
    keys = [key for key in {**before, **now} if before.get(key) != now.get(key)]
    said = [f"{in_words(key)}: {before.get(key, 'none')} there, {now.get(key, 'none')} here" for key in keys]
    return "; ".join([*said[:3], *([f"{len(said) - 3} more"] if said[3:] else [])])


def in_words(key: str) -> str:
    """A fact's name for a reader."""
    kind, _, name = key.partition(".")
    words = {"data": f"file {name}", "source": "data source", "plugin": f"plug-in {name}"}
    return words.get(kind, "semantics version")


def split(runs: Sequence[Run]) -> list[list[str]]:
    """For each run the facts in which these runs differ, as `key=value`; of a run without data those of the first one.

    Runs with equal configurations and equal lists may be averaged. A plug-in is a difference where both have it.
    """
    found = [facts_of(run) for run in runs]
    there = [own for own in found if own is not None]
    keys = [key for key in dict.fromkeys(key for own in there for key in own) if _differs(key, there)]
    rest = there[0] if there else {}
    return [[f"{key}={(rest if own is None else own).get(key, '')}" for key in keys] for own in found]


def mixed(runs: Sequence[Run]) -> str:
    """A note on runs of different experiments; empty where all are of one."""
    keys = dict.fromkeys(word.partition("=")[0] for words in split(runs) for word in words)
    return f"Not averaged together, as runs differ in {', '.join(map(in_words, keys))}." if keys else ""


def _differs(key: str, there: Sequence[Mapping[str, str]]) -> bool:
    values = {own.get(key) for own in there}
    return len(values - {None} if key.startswith("plugin.") else values) > 1


def from_before(runs: Sequence[Run]) -> str:
    """A note on the runs that an older vflbench wrote; empty without any."""
    count = sum((facts_of(run) or {}).get("semantics") == UNKNOWN for run in runs)
    if not count:
        return ""
    runs_of = "1 run of an older vflbench has" if count == 1 else f"{count} runs of an older vflbench have"
    return f"{runs_of} no semantics version: such runs are averaged only among themselves"
