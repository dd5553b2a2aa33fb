"""The command `vflbench`: a file for each verb, and `train` for a line without one."""

import gc
import importlib
import io
import os
import signal
import sys
import textwrap
from collections.abc import Sequence
from itertools import pairwise

from vflbench.cli import crash
from vflbench.cli.words import complain, for_user, say
from vflbench.runner import interrupts
from vflbench.types import ConfigError, VflbenchError, closest
from vflbench.version import __version__

VERBS = ("choose", "tune", "list", "explain", "privacy", "data", "figures", "reprice", "report", "show", "plot")


def main() -> None:
    """Entry point of the console script; SIGTERM ends it as Ctrl-C does, but with exit code 143, not 130."""
    interrupts.heed_sigterm()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that lacks a character is no reason to fail
    code = command(sys.argv[1:])
    interrupts.heed_nothing()
    sys.exit(128 + signal.SIGTERM if code == 130 and signal.SIGTERM in interrupts.received else code)


def command(args: Sequence[str]) -> int:
    """Carry out a command line and return its exit code: 0, 1, 70 after an internal error, 130 where interrupted."""
    try:
        return _dispatch([*args])  # `list` is a verb of this package
    except ConfigError as error:
        count = len(error.problems)
        complain(
            f"{count} problem{'s' if count > 1 else ''} in the configuration:\n" + textwrap.indent(str(error), "  ")
        )
    except KeyboardInterrupt:
        complain("interrupted")
        return 130
    except BrokenPipeError:  # the reader of our output has left, e.g. `vflbench list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        if (known := for_user(error)) is None:
            complain(crash.crash_line(error))
            return crash.CODE
        complain(f"error: {known}")
        return crash.code(str(known))
    return 1


def _dispatch(args: list[str]) -> int:
    verb = args[0] if args else ""
    if verb == "list":
        return _uncollected(verb, args[1:])
    if verb in VERBS:
        return _command_of(verb, args[1:])
    if {"-h", "--help"} & set(args):
        from vflbench.cli.help import help_text

        say(help_text())
        return 0
    if "--version" in args:
        say(f"vflbench {__version__}")
        return 0
    if verb and not verb.startswith(("-", "~")) and "=" not in verb:
        hint = closest(verb, VERBS)
        raise VflbenchError(
            f"{verb!r} is no command and no key=value."
            + (f" Did you mean {hint!r}?" if hint else "")
            + " See vflbench --help"
        )
    if late := [word for before, word in pairwise(args) if word in VERBS and before != "--config-dir"]:
        raise VflbenchError(f"{late[0]!r} is a command, and comes first: vflbench {late[0]} ...")
    return _uncollected("train", args)


def _uncollected(verb: str, args: list[str]) -> int:
    """As `_command_of`; until a job trains, nothing is collected.

    What is imported stays, and to look at it again and again costs a fifth of it.
    """
    gc.disable()
    try:
        return _command_of(verb, args)
    finally:
        gc.enable()


def _command_of(verb: str, args: list[str]) -> int:
    """Carry out one verb; no other verb's file is imported."""
    code: int = importlib.import_module(f"vflbench.cli.{verb}").command(args)
    return code
