"""What a shell offers behind a command line that is being typed: `vflbench -sc query=bash`.

Hydra's own answer knows no verbs, no `--config-dir` and no options of other packages. It also fails aloud, into the
line that the user is typing. What the shell itself should offer, as the names of files, has no answer here.
"""

import contextlib
import glob
import io
import itertools
import os
import re
from argparse import Namespace
from collections.abc import Callable, Iterator
from typing import Any, get_args, get_origin

from vflbench import config
from vflbench.choosing import question
from vflbench.choosing.remote_executors import LAUNCHERS
from vflbench.cli import VERBS
from vflbench.cli.words import say
from vflbench.config import overrides as words
from vflbench.config.hydra import Session
from vflbench.config.typed import CHOICES, fields_of
from vflbench.plots import demands
from vflbench.types import VflbenchError

SEPARATORS = {"bash": " ", "zsh": " ", "fish": "\n"}  # shell -> what stands between two candidates
FOLDERS = ("--config-dir", "--out", "--csv", "--markdown")  # flags whose value the shell completes
FLAGS = {
    "": ("--multirun", "--config-dir", "--cfg", "--info", "--hydra-help", "--help", "--version"),
    "choose": ("--config-dir", "--help"),
    "tune": ("--config-dir", "--out", "--help"),
    "list": ("--config-dir", "--help"),
    "privacy": ("--config-dir", "--json", "--help"),
    "reprice": ("--config-dir", "--out", "--help"),
    "report": (*FOLDERS[1:], "--rerun", "--predictions", "--without", "--noise", "--overwrite", "--help"),
}
QUIET = re.compile(r"[\w./=,@:+~-]+")  # what a shell leaves as it is: it expands candidates
QUESTION = (*question.GROUPS, *question.KEYS, "algorithm")
#: verb -> whether it takes a key; the others take all, or none
TAKES: dict[str, Callable[[str], bool]] = {
    "choose": lambda key: key in QUESTION or key.split(".")[0] in question.GROUPS or key in question.DIVISION,
    "tune": lambda key: key in question.KEYS or key.split(".")[0] in (*question.GROUPS, *question.METHODS),
    "list": lambda key: key.split(".")[0] == "dataset" or key == "data_root",
    "reprice": lambda key: key.split(".")[0] in ("network", "accounting"),
    **dict.fromkeys(("data", "report", "show", "plot"), lambda key: False),
}


def is_query(flags: Namespace) -> bool:
    """Whether a shell asks for words; else completion is turned on or off, which Hydra does.

    Raises
    ------
    VflbenchError : neither, or for a shell that is not known.
    """
    verb, _, shell = "".join(flags.overrides[:1]).partition("=")
    if verb not in ("install", "uninstall", "query") or shell not in SEPARATORS:
        raise VflbenchError(
            f"-sc (--shell-completion) takes install=SHELL or uninstall=SHELL, of {', '.join(SEPARATORS)}: "
            'eval "$(vflbench -sc install=bash)"'
        )
    return verb == "query"


def query(flags: Namespace) -> int:
    """Print what may stand at the end of the line that a shell has in COMP_LINE; nothing where that fails.

    Raises
    ------
    VflbenchError : no shell asks.
    """
    shell = flags.overrides[0].removeprefix("query=")
    if "COMP_LINE" not in os.environ:
        raise VflbenchError(
            f"-sc query={shell}: a shell asks this, and says in COMP_LINE what was typed; to have it ask: "
            f'eval "$(vflbench -sc install={shell})"'
        )
    line, point = os.environ["COMP_LINE"].encode(errors="surrogateescape"), os.environ.get("COMP_POINT") or 1 << 20
    found: list[str] = []
    with contextlib.suppress(Exception), contextlib.redirect_stderr(io.StringIO()):
        found = candidates(line[: int(point)].decode(errors="ignore"))
    say(SEPARATORS[shell].join(found))
    return 0


def candidates(line: str) -> list[str]:
    """The words that may stand where the line ends, the name of the command being its first word."""
    before = line.split()[1:]
    word = "" if line[-1:].isspace() or not before else before.pop()
    verb = before[0] if before and before[0] in VERBS else ""
    found: list[str] = []
    if before[-1:] and before[-1] in FOLDERS:
        return []
    if word.startswith("-"):
        found = [*FLAGS.get(verb, ())]
    else:
        found += VERBS if not before and "=" not in word else ()
        found += _own_words(verb, before, word)
        found += _overrides(before, word, TAKES.get(verb, lambda key: True))
    return sorted({one for one in found if one.startswith(word) and QUIET.fullmatch(one)})


def _own_words(verb: str, before: list[str], word: str) -> Iterator[str]:
    """The words of a verb that are no overrides."""
    if verb in ("choose", "tune") and "=" in word:
        listed = {"cost": question.COSTS, "demand": [key for key, *_ in demands.LADDER], "launcher": LAUNCHERS}
        yield from (f"{key}={value}" for key, values in listed.items() for value in values)
    elif verb in ("choose", "tune"):
        yield from (f"{key}=" for key in question.own_words(verb))
    elif verb == "data":
        yield from ("check", "status", "get", "profile") if before == ["data"] else ()
    elif verb == "figures":
        from vflbench.papers import definition

        yield from ("all", *definition.names(), "scale=", "jobs=", "out=")


def _overrides(before: list[str], word: str, takes: Callable[[str], bool]) -> list[str]:
    """The groups, keys and values that may follow, those of `--config-dir` too."""
    typed = [one for one in before if "=" in one and not one.startswith("-")]
    folders = [after for flag, after in itertools.pairwise(before) if flag == "--config-dir"]
    folders += [one.partition("=")[2] for one in before if one.startswith("--config-dir=")]
    with config.session([*typed, "algorithm=*"], next(iter(folders[-1:]), None)) as hydra:  # options of all packages
        key, equals, value = word.partition("=")
        if equals and not takes(key):
            return []
        if key.startswith("hydra"):
            return _hydras(hydra, key) if equals else [f"{one}=" for one in (*words.HYDRA_KEYS, *words.HYDRA_GROUPS)]
        if equals and key in hydra.groups():
            given = value.rpartition(",")  # of a sweep
            return [f"{key}={given[0]}{given[1]}{option}" for option in words.options(hydra, key)]
        if equals and value.startswith((".", "/", "~")):
            places = glob.glob(os.path.expanduser(glob.escape(value)) + "*")
            return [f"{key}={place}{'/' if os.path.isdir(place) else ''}" for place in places]
        values = _composed(hydra, [one for one in typed if takes(one.partition("=")[0])])
        if equals:
            return [f"{key}={one}" for one in _values(values, key)]
        groups = [f"{group}=" for group in hydra.groups() if takes(group)]
        return [*groups, *(one for one in _keys(values, word) if takes(one.rstrip("=.")))]


def _hydras(hydra: Session, key: str) -> list[str]:
    """The options of a group of Hydra's own."""
    return [f"{key}={option}" for option in words.options(hydra, key)] if key in words.HYDRA_GROUPS else []


def _composed(hydra: Session, typed: list[str]) -> dict[str, Any]:
    """The configuration of what was typed; where that is wrong, of nothing."""
    with contextlib.suppress(Exception):
        return config.plain(config.compose(hydra, config.for_all_links(hydra, typed), sweep=True))
    return config.plain(config.compose(hydra, []))


def _keys(values: dict[str, Any], word: str) -> Iterator[str]:
    """The keys that `word` begins, up to the next dot; a key with keys ends in a dot."""
    inside: Any = values
    above, _, _ = word.rpartition(".")
    for part in above.split(".") if above else ():
        inside = inside.get(part) if isinstance(inside, dict) else None
    for key, value in inside.items() if isinstance(inside, dict) else ():
        if key != "name":
            yield f"{above}.{key}".lstrip(".") + ("." if isinstance(value, dict) else "=")


def _values(values: dict[str, Any], key: str) -> list[str]:
    """The values that a key may have, where they can be listed; else the one that it has."""
    kind: Any = None
    inside: Any = values
    for depth, part in enumerate(key.split(".")):
        kind = (config.kinds_of(values) if not depth else fields_of(kind)).get(part)
        inside = inside[part]
    if found := CHOICES.get(key):
        return [*found]
    kinds = [one for one in (kind, *get_args(kind)) if str(get_origin(one)) == "typing.Literal"]
    if kinds:
        return [str(one) for one in get_args(kinds[0])]
    if isinstance(inside, bool):
        return ["true", "false"]
    return [] if inside is None or isinstance(inside, dict | list) else [str(inside)]
