"""`vflbench list`."""

import shutil
import textwrap

from vflbench import registry
from vflbench.cli.words import say
from vflbench.results.texts import shown_to
from vflbench.types import VflbenchError


def command(args: list[str]) -> int:
    """`vflbench list`: the algorithms, with the options that fit each."""
    if args:
        raise VflbenchError(f"vflbench list takes no arguments, not {' '.join(args)}")
    data, codecs = registry.datasets(), registry.option_entries("codec")
    algorithms, indent = registry.algorithms(), " " * 24
    width = max(80, min(shutil.get_terminal_size().columns, 160))
    for name, info in algorithms.items():
        fitting = " ".join(n for n, other in data.items() if registry.fit(info, other))
        attacks = " ".join(registry.options("attack", info, info.attacks))
        private = " ".join(registry.options("privacy", info, info.privacy))
        fits = {"data": fitting, "privacy": private, "models": " ".join(info.models), "attacks": attacks}
        fits["codecs"] = (
            f"none ({info.exact})"
            if info.exact
            else " ".join(("none", *codecs)) + " (feedback)" * bool(info.remembered)
        )
        fits["discloses"] = shown_to(registry.discloses(name))
        say(f"{name:23} {info.summary}")
        for what, names in fits.items():
            fact = f"{what} {names or '-'}"
            say(
                textwrap.fill(
                    fact, width, initial_indent=indent, subsequent_indent=indent + "  ", break_on_hyphens=False
                )
            )
    say(
        f"\n{len(algorithms)} algorithms, {len(data)} data sets: vflbench algorithm=... dataset=... [privacy=...] "
        "[model=...] [attack=...]"
    )
    say(
        "\nBeside them, in every picture and table: ship it (the data sent once), label owner alone (its own columns), "
        "centralised (all columns)"
    )
    return 0
