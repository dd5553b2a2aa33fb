"""`vflbench data check`: what files of the user's own are taken for, before anything trains."""

import json
import re
import shlex
from argparse import ArgumentParser
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vflbench.cards.data.tabular.tabular_files import Config as TabularFiles
from vflbench.cli.words import say
from vflbench.results.texts import align
from vflbench.types import VflbenchError

if TYPE_CHECKING:
    from vflbench.data.tabular.checking import Checked

HEADS = ("column", "taken for", "why", "missing", "distinct", "odd", "becomes")
WIDEST = 44  # characters of a cell; JSON has all


def command(args: list[str]) -> int:
    """`vflbench data check FILE... [dataset.KEY=VALUE ...] [--json]`; exit code 1 where a run would be refused."""
    parser = ArgumentParser(
        prog="vflbench data check",
        description="What each column of your files is taken for and why, and what becomes of it; nothing is trained. "
        "Exit code 1 where a run would be refused.",
    )
    parser.add_argument(
        "words", nargs="+", metavar="FILE", help="files, the labels' owner first; and dataset.KEY=VALUE"
    )
    parser.add_argument("--json", action="store_true", help="for programs: an object with all that is known")
    parser.add_argument("--config-dir", metavar="DIR", help="a folder with options of your own, for dataset=NAME")
    flags = parser.parse_intermixed_args(args)
    checked = _checked(flags.words, flags.config_dir)
    say(json.dumps(checked.as_dict(), indent=2, ensure_ascii=False) if flags.json else report_text(checked))
    return 1 if checked.problems else 0


def _checked(words: list[str], config_dir: str | None) -> "Checked":
    from vflbench import config
    from vflbench.data import sources
    from vflbench.data.tabular import checking

    keys = [word for word in words if word.startswith(("dataset=", "dataset.", "data_root="))]
    files = [word for word in words if word not in keys]
    if others := [word for word in files if "=" in word and not Path(word).exists()]:
        raise VflbenchError(f"vflbench data check takes files, dataset.KEY=VALUE and data_root=DIR, not {others[0]}")
    if not any(word.startswith("dataset=") for word in keys):
        keys = ["dataset=tabular_files", *keys]
    with config.session(keys, config_dir) as hydra:
        given = config.of_dataset(hydra, ["algorithm=vfl", *keys])
    if not isinstance(given, TabularFiles):
        raise VflbenchError("vflbench data check is for dataset=tabular_files, and for options of yours that extend it")
    named = [word.removeprefix("data_root=") for word in keys if word.startswith("data_root=")]
    root = sources.data_root(named[-1] if named else None)
    checked = checking.check(replace(given, files=[*files]) if files else given, root)
    if given.label is not None and not checked.problems:
        checked.advice.append(_next(files, keys, config_dir, given.task))
    return checked


def _next(files: list[str], keys: list[str], config_dir: str | None, task: str) -> str:
    """The command that compares methods on the files."""
    from vflbench import config

    bare = all(re.fullmatch(r"[\w./-]+", file, re.ASCII) for file in files)
    named = f"dataset.files=[{','.join(files)}]" if bare else config.quoted("dataset.files", files)
    typed = shlex.join([*keys, *([named] if files else []), *(["--config-dir", config_dir] if config_dir else [])])
    goal = "target=0.8 budget=20m" if task == "classes" else "target=VALUE budget=20m, where VALUE is an RMSE"
    return f"Which method reaches a target: vflbench choose {typed} {goal}"


def report_text(checked: "Checked") -> str:
    """The tables and sentences for a terminal."""
    parts = []
    for file in checked.files:
        lines = [f"{file.name}: {file.rows} rows, {len(file.columns)} columns"]
        lines[0] += f"; {file.form.words}" if file.form else ""
        rows = [[*map(_cell, _row(column))] for column in file.columns]
        lines += [align([[*HEADS], *rows])] if rows else []
        lines += [f"  {severity}: {text}" for severity, text in file.remarks()]
        parts.append("\n".join(lines))
    parts += ["\n".join(checked.matching)] if checked.matching else []
    count = len(checked.problems)
    if count:
        head = f"A run would be refused: {count} problem{'s' if count > 1 else ''}"
        parts.append("\n  ".join([head, *checked.problems]))
    else:
        parts.append("No problem was found.")
    parts += ["\n".join(checked.advice)] if checked.advice else []
    return "\n\n".join(parts)


def _row(column: Any) -> list[object]:
    odd = f"{column.odd}: {column.odd_at}" if column.odd else 0
    name = column.column or "(no name)"
    return [name, column.taken_for, column.why, column.missing, column.distinct, odd, column.becomes]


def _cell(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"
