"""The commands that train a method as it was chosen, and that ask a question again."""

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from vflbench.choosing.record import Method, Trial
from vflbench.results.reader import Run

BARE = re.compile(r"[\w.+/:-]+")  # a text that Hydra reads as it is


def training_command(
    method: Method, trial: Trial | None, runs: Sequence[Run], target: float, config_dir: str | None
) -> str:
    """What to type: the method's overrides, the trial's values, the target, and the first seed of its runs.

    It makes the first of its final runs again. `config_dir` is where the user's own options are.
    """
    values = [f"{key}={written(value)}" for key, value in (trial.values if trial else {}).items()]
    more = [f"target={target:.12g}", *([f"seed={runs[0].summary['seed']}"] if runs else [])]
    given = [word.partition("=")[0] for word in values + more]
    words = [word for word in method.words if word.partition("=")[0].lstrip("+") not in given]
    own = [] if config_dir is None else ["--config-dir", config_dir]
    return shlex.join(["vflbench", *own, *words, *values, *more])


def choose_command(question: Mapping[str, Any]) -> str:
    """The command that asks a question."""
    own = {key: question.get(key) for key in ("target", "cost", "demand", "seed", "trials")}
    own["algorithm"] = ",".join(question.get("algorithms") or []) or None
    own["budget"] = None if question.get("budget_seconds") is None else f"{question['budget_seconds']:g}s"
    place = [] if question.get("config_dir") is None else ["--config-dir", question["config_dir"]]
    words = [f"{key}={value}" for key, value in own.items() if value is not None]
    return shlex.join(["vflbench", "choose", *place, *question["words"], *words])


def written(value: Any) -> str:
    """A value as Hydra's grammar writes it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list | tuple):
        return f"[{','.join(map(written, value))}]"
    text = str(value)
    if not isinstance(value, str) or (BARE.fullmatch(text) and not _else(text)):
        return text
    escaped = text.replace("\\'", "\\\\'").replace("'", "\\'")
    return f"'{escaped}'"


def _else(text: str) -> bool:
    """Whether Hydra would read a bare text as something else: a number, a truth value, nothing."""
    try:
        float(text)
    except ValueError:
        return text.lower() in ("null", "true", "false")
    return True
