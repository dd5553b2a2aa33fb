"""What choosing has found so far, as plain data: the search writes it, the answer and its page read it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from vflbench.results import experiment
from vflbench.results.folder import write_json
from vflbench.types import VflbenchError

FILE = "record.json"
SCHEMA = 1
DELTA = "privacy.delta="  # so begins the note that it is no guarantee for so few rows
CUT = "the budget"  # so begin the notes about what it cut, which may follow with a larger one


@dataclass
class Trial:
    """One setting of a method, trained on the tuning seed until the target, a bound or the halving ended it."""

    number: int  #: from 0, which is the shipped setting
    values: dict[str, Any]  #: key -> value of the search space
    folder: str  #: of the run, relative to the record's
    status: str  #: the run's own (`target_reached`, `completed`, `budget`, `diverged`, `failed`), or `pruned`
    reached: bool  #: the target, on validation rows
    metric: float | None  #: the best on validation rows
    bytes: float | None  #: to the target, or spent without reaching it
    seconds: float | None  #: the same on the federation's clock; None where there is none
    began: float  #: seconds after choosing began
    wall_seconds: float  #: that the trial took here
    reason: str | None = None
    weighted: float | None = None  #: the weighted cost to the target, or spent without reaching it
    sent: float | None = None  #: bytes of training, which the trial really sent: what tuning costs
    shows: list[str] = field(default_factory=list)  #: others see, of `types.SHOWN`; with `~` before it: with noise
    seed: int | None = None  #: of a repeat; None: the question's

    def cost(self, kind: str) -> float | None:
        """What it took, in bytes, seconds or weighted."""
        return {"bytes": self.bytes, "seconds": self.seconds, "weighted": self.weighted}[kind]


@dataclass
class Method:
    """An algorithm with a mechanism: what enters, is tuned and answers as one."""

    algorithm: str  #: the option: a file of the user's may be called anything, `registered` is the name
    privacy: str  #: the mechanism, or `none`
    words: list[str]  #: the overrides that make its job, without those of a trial
    space: dict[str, Any]  #: key -> its range as in a search/*.yaml, widened where that happened
    trials: list[Trial] = field(default_factory=list)
    repeats: list[Trial] = field(default_factory=list)  #: of the most promising trials, with further seeds
    best: int | None = None  #: number of the trial whose setting goes to the final
    edges: list[str] = field(default_factory=list)  #: keys whose best value is at the edge of the widened space
    finals: list[str] = field(default_factory=list)  #: folders of the final's runs, relative to the record's
    out: str | None = None  #: why it does not come to the final
    expected: float | None = None  #: bytes, or seconds where these count, until the first evaluation; by a dry run
    wall_seconds: float | None = None  #: here, until the first evaluation; by a dry run
    widened: list[str] = field(default_factory=list)  #: keys whose range was widened
    kind: str | None = None  #: the algorithm in the registry; None in records of older versions

    @property
    def registered(self) -> str:
        """The algorithm's name in the registry."""
        return self.kind or self.algorithm

    @property
    def name(self) -> str:
        """The algorithm, and the mechanism where there is one."""
        return self.algorithm if self.privacy == "none" else f"{self.algorithm} · {self.privacy}"


@dataclass
class Excluded:
    """An algorithm, or one with a mechanism, that does not enter."""

    algorithm: str
    privacy: str | None  #: None: with any
    reason: str


@dataclass
class Record:
    """All that choosing knows; `question` is what was asked.

    `question` has `words` (the overrides), `dataset`, `target`, `metric`, `goal` (max | min), `cost` (bytes | seconds |
    weighted), `demand` (what may be seen, or None), `epsilon`, `budget_seconds` and `trials` (None where not given),
    `seed`, `seeds` (those of the finals) and `repeats` (the further seeds of the most promising trials).
    """

    question: dict[str, Any]
    status: Literal["searching", "finals", "complete", "interrupted", "out of budget"] = "searching"
    methods: list[Method] = field(default_factory=list)
    excluded: list[Excluded] = field(default_factory=list)
    floor: dict[str, Any] = field(default_factory=dict)  #: ship_it, alone, centralised; as in a run's summary
    trials_each: int = 0  #: trials that every method had
    spent_seconds: float = 0.0
    notes: list[str] = field(default_factory=list)  #: e.g. that the budget was too small for the trials
    #: folder of each run that has begun and not ended -> its overrides, and `late` where time ended it
    running: dict[str, dict[str, Any]] = field(default_factory=dict)
    experiment: dict[str, str] = field(default_factory=dict)  #: facts of its runs (results/experiment.py)

    @property
    def repeats(self) -> list[int]:
        """The further seeds of the most promising trials."""
        return list(self.question.get("repeats", []))  # records of older versions lack them

    def check_experiment(self, manifest: Mapping[str, Any]) -> None:
        """Refuse a run of other data, another plug-in's code or another semantics version than the runs before.

        Raises
        ------
        VflbenchError : names what changed.
        """
        facts = experiment.facts(manifest)
        before = {key: value for key, value in self.experiment.items() if key in facts}
        if changed := experiment.differences(before, {key: facts[key] for key in before}):
            raise VflbenchError(f"changed since this search began ({changed}): begin another with out=FOLDER")
        self.experiment |= facts

    def write(self, folder: Path) -> None:
        """Write it into `folder`, in one step."""
        write_json(folder / FILE, {"schema": SCHEMA, **asdict(self)})

    def missing(self) -> list[str]:
        """What a search that has not ended lacks, in words."""
        asked, seeds = self.question["trials"], self.question["seeds"]
        lacking = [
            (method.name, [seed for seed in seeds if final_folder(method, seed) not in method.finals])
            for method in self.methods
            if method.out is None and method.best is not None
        ]
        finals = [
            f"confirmation runs of {name} with seed {', '.join(map(str, left))}" for name, left in lacking if left
        ]
        if self.status == "complete" or any(method.finals for method in self.methods):
            return [] if self.status == "complete" else finals
        untried = ", ".join(method.name for method in self.methods if not method.trials)
        said = [f"any trial of {untried}"] if untried else []
        if asked is None or self.trials_each < asked:
            said.append(f"trials of each method after {self.trials_each}" + (f", up to {asked}" if asked else ""))
        return [*said, *(["all confirmation runs"] if seeds else [])]

    @classmethod
    def read(cls, folder: Path) -> Record:
        """The record in `folder`.

        Raises
        ------
        OSError, ValueError, KeyError, TypeError : there is none, or it is damaged.
        """
        values = json.loads((folder / FILE).read_text(encoding="utf-8"))
        if values.pop("schema") != SCHEMA:
            raise ValueError(f"{folder / FILE}: of another version")
        values["methods"] = [
            Method(
                **{**method, **{key: [Trial(**one) for one in method.get(key, [])] for key in ("trials", "repeats")}}
            )
            for method in values["methods"]
        ]
        values["excluded"] = [Excluded(**one) for one in values["excluded"]]
        if "files" in values:  # of before there were versions
            values["experiment"] = experiment.facts({"data": {"files": values.pop("files")}})
        return cls(**values)


def slug(method: Method) -> str:
    """The name of a method's folder."""
    return method.algorithm if method.privacy == "none" else f"{method.algorithm}-{method.privacy}"


def final_folder(method: Method, seed: int) -> str:
    """The folder of a final's run, relative to the record's."""
    return f"finals/{slug(method)}/seed{seed}"
