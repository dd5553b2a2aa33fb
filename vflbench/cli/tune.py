"""`vflbench tune`."""

from __future__ import annotations

import csv
import io
import os
import time
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from vflbench import registry
from vflbench.choosing import question, trial_ranking
from vflbench.choosing.commands import written
from vflbench.choosing.record import Method, Record, Trial
from vflbench.cli.choose import search
from vflbench.cli.words import RUNS, relative_path, say
from vflbench.config import tuned
from vflbench.results.folder import atomic_write
from vflbench.results.texts import align
from vflbench.types import ConfigError, VflbenchError, refuse

PLACE = RUNS / "tune"
#: columns of a file of trials
TRIALS = (
    "dataset",
    "privacy",
    "trial",
    "best",
    "settings",
    "metric",
    "value",
    "bytes",
    "seconds",
    "status",
    "seeds",
    "with",
    "space",
)
#: how much noise is the run's own, and the mechanism is in the entry's name
BUDGET = ("privacy=", *(f"privacy.{key}=" for key in ("epsilon", "delta", "mu", "noise_multiplier", "label_epsilon")))
USAGE = (
    "vflbench tune algorithm=A dataset=D [trials=N] [budget=30m] [target=T] [cost=bytes|seconds|weighted] [jobs=N] "
    "[seed=0] [seeds=1] [prune=false] [overwrite=true] [resume=true] [privacy=...] [topology=...] "
    "[dataset.KEY=VALUE ...] [network.KEY=VALUE ...] [algorithm.KEY=VALUE ...] [model.KEY=VALUE ...] [codec=...] "
    "[--out DIR] [--config-dir DIR]"
)


def command(args: list[str]) -> int:
    """`vflbench tune algorithm=A dataset=D words ...`: search a method's settings for a data set."""
    parser = ArgumentParser(
        prog="vflbench tune",
        usage=USAGE,
        description="Tune a method: search for the best validation metric, or with target= for the least cost to it.",
    )
    parser.add_argument("words", nargs="*", help="what to tune")
    parser.add_argument(
        "--out", metavar="DIR", help="a folder of options: the values go into DIR/tuned/A.yaml, the trials beside them"
    )
    parser.add_argument("--config-dir", metavar="DIR", help="a folder with options of your own")
    flags = parser.parse_intermixed_args(args)
    asked, place = ask(flags.words, flags.out, flags.config_dir)
    folder, record = search(asked, PLACE)
    say(align([*_table(record, record.methods[0])]))
    for note in [*record.notes, *_edges(record.methods[0])]:
        say(f"note: {note}")
    best = keep(folder, record, place, asked.overwrite)
    say(f"runs: {relative_path(folder)}")
    say(f"trials: {relative_path(place.trials)}")
    beside = _beside(record.methods[0], best)
    say(f"tuned values: {relative_path(place.file)}" + (f"; use them with {' '.join(beside)}" if beside else ""))
    return 0


@dataclass(frozen=True)
class Place:
    """Where tuned values go."""

    file: Path  # of the algorithm
    dataset: str
    privacy: str  # the mechanism whose noise they are for; empty: for none
    trials: Path  # a CSV file

    @property
    def entry(self) -> str:
        """The name of the entry in the file."""
        return f"{self.dataset}/{self.privacy}" if self.privacy else self.dataset

    def check(self, overwrite: bool) -> None:
        """Raise VflbenchError where a file cannot take the values or, without `overwrite`, has some already."""
        tuned.written(self.file, self.entry, "", {})
        has_rows = self.lines()[1]
        if overwrite:
            return
        folder = self.file.parent.joinpath("private", self.privacy) if self.privacy else self.file.parent
        older = folder / self.file.stem / f"{self.dataset}.yaml"
        held = self.file if self.file.exists() and self.entry in tuned.read(self.file) else older
        held = self.trials if has_rows else held
        if held.exists():
            raise VflbenchError(
                f"{held}: {self.entry} already exists: replace it with overwrite=true, or choose another --out DIR"
            )

    def lines(self) -> tuple[list[str], bool]:
        """The lines of the file of trials, as they are, without the rows of this entry; and whether it has such rows.

        Raises
        ------
        VflbenchError : the file cannot be read, or has other columns than ours, so that our rows would spoil it.
        """
        heading, kept, last = ",".join(TRIALS), list[str](), 0
        if not self.trials.exists():
            return [f"{heading}\n"], False
        try:
            with self.trials.open(encoding="utf-8", newline="") as file:
                lines = file.readlines()
            reader = csv.reader(lines, strict=True)
            for row in reader:
                kept += [] if row[:2] == [self.dataset, self.privacy] else lines[last : reader.line_num]
                last = reader.line_num
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise VflbenchError(f"{self.trials}: cannot be read: {error}") from None
        if "".join(lines[:1]).strip("\ufeff\r\n") != heading:  # Excel writes the mark at the start
            raise VflbenchError(f"{self.trials}: its first line is not {heading}: move the file away")
        kept[-1] += "" if kept[-1].endswith("\n") else "\n"
        return kept, len(kept) < len(lines)


def ask(words: Sequence[str], out: str | None, config_dir: str | None) -> tuple[question.Question, Place]:
    """What is to be tuned, and where its values go.

    Raises
    ------
    ConfigError : the problems of the words.
    VflbenchError : there is no place for the values, a file there cannot take them, or some already exist there.
    """
    own = question.check_tune(words)
    try:
        asked = question.parse(words, "tune", config_dir)
    except ConfigError as error:
        raise ConfigError(question.told_once([*error.problems, *own])) from None
    refuse(own)
    place = _place(asked, out)
    place.check(asked.overwrite)
    return asked, place


def keep(folder: Path, record: Record, place: Place, overwrite: bool) -> Trial:
    """Write the values of the best trial and all trials, and return the best one.

    Raises
    ------
    VflbenchError : no trial has a value, or somebody has changed the files meanwhile.
    """
    method = record.methods[0]
    best = next((trial for trial in method.trials if trial.number == method.best), None)
    if best is None:
        why = next((f" ({trial.reason})" for trial in method.trials if trial.reason), "")
        raise VflbenchError(f"no trial has a value{why}; the runs are in {relative_path(folder)}")
    place.check(overwrite)
    text = tuned.written(place.file, place.entry, found(record, method, best), values(method, best))
    for link, content in ((place.trials, _with_trials(place, record, method)), (place.file, text)):
        file = link.resolve()  # a link stays one
        file.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(file, content, replace=True)
    return best


def _place(asked: question.Question, out: str | None) -> Place:
    """Where the values go: below --out, else below the options of a checkout.

    Raises
    ------
    VflbenchError : there is neither.
    """
    conf = registry.config_dir()
    if out is None and not os.access(conf, os.W_OK):
        raise VflbenchError("say where the values go with --out DIR; later runs use them with --config-dir DIR")
    folder = Path(out) if out is not None else conf
    assert asked.algorithms is not None
    algorithm, docs = asked.algorithms[0], conf.parent / "docs" / "results" / "tuning"
    file = folder / "tuned" / f"{algorithm}.yaml"
    trials = docs / f"{algorithm}.csv" if out is None and docs.is_dir() else file.with_suffix(".csv")
    for path in (file, trials):
        nearest = next(one for one in path.resolve().parents if one.exists())
        if not nearest.is_dir():
            raise VflbenchError(f"{nearest}: is a file, not a folder")
        if not os.access(nearest, os.W_OK | os.X_OK):
            raise VflbenchError(f"{nearest}: cannot be written to: choose another --out DIR")
    privacy = "" if asked.mechanism in (None, "none") else str(asked.mechanism)
    return Place(file, str(asked.dataset), privacy, trials)


def _table(record: Record, method: Method) -> Iterator[list[str]]:
    """The rows of a table of the trials, with the values of the searched keys."""
    keys = list(method.space)
    yield ["", "trial", *(key.removeprefix("algorithm.") for key in keys), *_heads(record)]
    for trial in method.trials:
        values = [str(trial.values.get(key, "")) for key in keys]
        yield [
            "best" if trial.number == method.best else "",
            str(trial.number),
            *values,
            *_scores(record, method, trial),
        ]


def _edges(method: Method) -> list[str]:
    """What may lie beyond the space, in words."""
    return [f"The best {key} is at the edge of its range: a better one may lie beyond" for key in method.edges]


def _heads(record: Record) -> list[str]:
    return [str(record.question["metric"]), "bytes", "seconds", "status", *(["mean of"] if record.repeats else [])]


def _scores(record: Record, method: Method, trial: Trial) -> list[str]:
    """Means over the seeds of a trial, and where some trials have several seeds, how many."""
    runs = trial_ranking.runs_of(record, method, trial)
    means = [trial_ranking.mean([getattr(run, name) for run in runs]) for name in ("metric", "bytes", "seconds")]
    numbers = ["-" if number is None else f"{number:.5g}" for number in means]
    seeds = [str(len(runs)) + (" seeds" if len(runs) > 1 else " seed")] if record.repeats else []
    return [*numbers, ", ".join(dict.fromkeys(run.status for run in runs)), *seeds]


def found(record: Record, method: Method, best: Trial) -> str:
    """Where the best values come from, in one line: objective, trials, seeds, date, and the words beside."""
    asked = record.question
    objective = f"best validation {asked['metric']}"
    if asked["target"] is not None:
        objective = f"least {asked['cost']} to {asked['metric']} {asked['target']} on validation rows,"
    repeated = sum(len(trial_ranking.runs_of(record, method, trial)) > 1 for trial in method.trials)
    more = f" ({repeated} also with {', '.join(map(str, record.repeats))}, which decide)" if repeated else ""
    words, beside = _words(method), _beside(method, best)
    said = f"{objective} of {record.trials_each} trials, seed {asked['seed']}{more}, on {time.strftime('%Y-%m-%d')}"
    said += f", with {' '.join(words)}" if words else ""
    sentences = [said, *([f"Use these values with {' '.join(beside)}"] if beside else []), *_edges(method)]
    return ". ".join(sentences)


def _words(method: Method) -> list[str]:
    """What was typed beside algorithm and data set."""
    hidden = ("algorithm=", "dataset=", question.SHIPPED, question.SHIPPED_PRIVATE)
    return [word for word in method.words if not word.startswith(hidden)]


def values(method: Method, best: Trial) -> dict[str, Any]:
    """The best values, and those that were typed, as nested dicts."""
    beside = _beside(method, best)
    kept = [word for word in _settings(method, best) if word not in beside]
    tree: dict[str, Any] = dict(OmegaConf.to_container(OmegaConf.from_dotlist(kept)))  # type: ignore[arg-type]
    return tree


def _with_trials(place: Place, record: Record, method: Method) -> str:
    """The file of trials with those of this search; the rows of others stay."""
    text = io.StringIO("".join(place.lines()[0]), newline="")  # line ends stay as they are
    text.seek(0, io.SEEK_END)
    writer = csv.DictWriter(text, TRIALS, lineterminator="\n")
    shared = {"dataset": place.dataset, "privacy": place.privacy, "metric": str(record.question["metric"])}
    shared |= {"with": " ".join(_words(method)), "space": "; ".join(starmap(_range, method.space.items()))}
    for trial in method.trials:
        runs = trial_ranking.runs_of(record, method, trial)
        settings = " ".join(f"{key.removeprefix('algorithm.')}={value}" for key, value in trial.values.items())
        own = {"trial": str(trial.number), "best": "yes" if trial.number == method.best else "", "settings": settings}
        own |= dict(zip(("value", "bytes", "seconds", "status"), _scores(record, method, trial), strict=False))
        own["seeds"] = " ".join(str(record.question["seed"] if run.seed is None else run.seed) for run in runs)
        writer.writerow(shared | own)
    return text.getvalue()


def _range(key: str, given: Any) -> str:
    """The range of a key, in words."""
    if not isinstance(given, Mapping):
        said = ", ".join(map(str, given))
    else:
        marks = [word for word in ("log", "int") if given.get(word)]
        ends = [f"at {word} {given[word]}" for word in ("least", "most") if word in given]
        said = ", ".join([f"{given['low']} to {given['high']}", *marks, *ends])
    return f"{key.removeprefix('algorithm.')}: {said}"


def _settings(method: Method, best: Trial) -> list[str]:
    """The words of the method that were typed, but the number of parties, and those of the best values."""
    typed = [word for word in method.words if word.partition("=")[0].split(".")[0] in (*question.METHODS, "privacy")]
    typed = [word for word in typed if not word.startswith(BUDGET)]
    typed = [word for word in typed if not word.startswith(("algorithm=", *question.DIVISION))]
    return [*typed, *(f"{key}={written(value)}" for key, value in best.values.items())]


def _beside(method: Method, best: Trial) -> list[str]:
    """Settings that choose an option, which Hydra allows no tuned values to do, and keys of such an option."""
    keys = {word: word.partition("=")[0] for word in _settings(method, best)}
    options = {key for key in keys.values() if "." not in key}
    return [word for word, key in keys.items() if key.split(".")[0] in options]
