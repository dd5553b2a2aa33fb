"""`vflbench tune`."""

from __future__ import annotations

import os
import time
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml
from omegaconf import OmegaConf

from vflbench import registry
from vflbench.choosing import question, trial_ranking
from vflbench.choosing.commands import written
from vflbench.choosing.halving import PRUNED
from vflbench.choosing.record import Method, Record, Trial
from vflbench.cli.choose import search
from vflbench.cli.words import RUNS, say, shown
from vflbench.results.folder import atomic_write
from vflbench.results.texts import align
from vflbench.types import ConfigError, VflbenchError, refuse

PLACE = RUNS / "tune"
#: how much noise is the run's own, and the mechanism is in the file's place
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
        description="Search a method's settings: the best validation metric, or with target= the least cost to it.",
    )
    parser.add_argument("words", nargs="*", help="what to tune")
    parser.add_argument(
        "--out", metavar="DIR", help="a folder of options: the values go into DIR/tuned/[private/MECHANISM/]A/D.yaml"
    )
    parser.add_argument("--config-dir", metavar="DIR", help="a folder with options of your own")
    flags = parser.parse_intermixed_args(args)
    asked, file = ask(flags.words, flags.out, flags.config_dir)
    folder, record = search(asked, PLACE)
    say(align([*_table(record, record.methods[0])]))
    for note in [*record.notes, *_edges(record.methods[0])]:
        say(f"note: {note}")
    best = keep(folder, record, file, asked.overwrite)
    say(f"runs: {shown(folder)}")
    beside = _beside(record.methods[0], best)
    say(f"tuned values: {shown(file)}" + (f"; use them with {' '.join(beside)}" if beside else ""))
    return 0


def ask(words: Sequence[str], out: str | None, config_dir: str | None) -> tuple[question.Question, Path]:
    """What is to be tuned, and the file for its values.

    Raises
    ------
    ConfigError : the problems of the words.
    VflbenchError : there is no place for the file, or it already exists.
    """
    own = question.check_tune(words)
    try:
        asked = question.parse(words, "tune", config_dir)
    except ConfigError as error:
        raise ConfigError(question.told_once([*error.problems, *own])) from None
    refuse(own)
    file = _file(asked, out)
    if file.exists() and not asked.overwrite:
        raise VflbenchError(f"{file} already exists: replace it with overwrite=true, or choose another --out DIR")
    return asked, file


def keep(folder: Path, record: Record, file: Path, overwrite: bool) -> Trial:
    """Write the values of the best trial, and return it. Raises VflbenchError if no trial has a value."""
    method = record.methods[0]
    best = next((trial for trial in method.trials if trial.number == method.best), None)
    if best is None:
        why = next((f" ({trial.reason})" for trial in method.trials if trial.reason), "")
        raise VflbenchError(f"no trial has a value{why}; the runs are in {shown(folder)}")
    file.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(file, text(record, method, best), overwrite)
    return best


def _file(asked: question.Question, out: str | None) -> Path:
    """The file for the values, of a mechanism's noise its own: below --out, else below the options of a checkout.

    Raises
    ------
    VflbenchError : there is neither.
    """
    conf = registry.config_dir()
    if out is None and not os.access(conf, os.W_OK):
        raise VflbenchError("say where the values go with --out DIR; later runs use them with --config-dir DIR")
    folder = Path(out) if out is not None else conf
    if folder.exists() and not folder.is_dir():
        raise VflbenchError(f"--out {out}: is a file, not a folder")
    assert asked.algorithms is not None
    place = folder / "tuned" if asked.mechanism in (None, "none") else folder / "tuned" / "private" / asked.mechanism
    return place / asked.algorithms[0] / f"{asked.dataset}.yaml"


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


def text(record: Record, method: Method, best: Trial) -> str:
    """The best values, and those that were typed, as an option file; its comments have space, trials, seed and date."""
    asked = record.question
    objective = "best validation " + str(asked["metric"])
    if asked["target"] is not None:
        objective = f"least {asked['cost']} to {asked['metric']} {asked['target']} on validation rows"
    whole = "" if any(run.status == PRUNED for run in [*method.trials, *method.repeats]) else "none was pruned; "
    repeated = sum(len(trial_ranking.runs_of(record, method, trial)) > 1 for trial in method.trials)
    more = f"; {repeated} of them also with {', '.join(map(str, record.repeats))}, which decide" if repeated else ""
    hidden = ("algorithm=", "dataset=", question.SHIPPED, question.SHIPPED_PRIVATE)
    words = [word for word in method.words if not word.startswith(hidden)]
    beside = _beside(method, best)
    lines = [
        "# @package _global_",
        f"# Chosen by `vflbench tune` on {time.strftime('%Y-%m-%d')}: {objective}.",
        f"# {record.trials_each} trials, seed {asked['seed']}{more}; {whole}test rows were not read.",
        *([f"# With {' '.join(words)}."] if words else []),
        *([f"# Use these values with {' '.join(beside)}."] if beside else []),
        *(f"# {note}." for note in _edges(method)),
        "# Space:",
        *(f"#   {key}: {given}" for key, given in method.space.items()),
        "# Trials:",
        *(f"#   {line}" for line in align([*_table(record, method)]).splitlines()),
    ]
    kept = [word for word in _settings(method, best) if word not in beside]
    tree = OmegaConf.to_container(OmegaConf.from_dotlist(kept))
    return "\n".join(lines) + "\n" + yaml.safe_dump(tree, sort_keys=False)


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
