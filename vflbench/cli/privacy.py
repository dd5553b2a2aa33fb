"""`vflbench privacy`."""

import json
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from vflbench import exposure, registry
from vflbench.cli.words import say
from vflbench.results.texts import align
from vflbench.types import ConfigError, Problem, VflbenchError, closest, refuse

COLUMNS = (
    *("observer", "subject", "kind", "form", "how", "phase"),
    *("tags", "times", "exact", "covered_by", "proof", "note"),
)

EVALUATIONS = "To score held-out rows (in no total, and not in the epsilon of training):"
JUDGED = ("privacy", "privacy.serving", "codec", "protection")  # keys whose fit with the algorithm is told


def command(args: list[str]) -> int:
    """`vflbench privacy [algorithm=NAME[,NAME]] [key=value] [--json]`: who learns what, without data."""
    parser = ArgumentParser(
        prog="vflbench privacy", description="Who learns what under an algorithm, or under each; no data are read."
    )
    parser.add_argument("words", nargs="*", metavar="key=value", help="algorithm=NAME[,NAME], and any options and keys")
    parser.add_argument("--json", action="store_true", help="for programs: an object, or a list of them for several")
    parser.add_argument("--config-dir", metavar="DIR", help="a folder with options of your own")
    flags = parser.parse_intermixed_args(args)
    tables = [*(_composed(flags.words, flags.config_dir) if flags.words else _defaults())]
    if flags.json:
        say(json.dumps(tables[0] if len(tables) == 1 else tables, indent=2))
        return 0
    say("\n\n".join(exposure_text(one) for one in tables))
    return 0


def exposure_text(table: dict[str, Any]) -> str:
    """A table for the terminal."""
    head = " ".join(filter(None, [f"{table['algorithm']}:", table["note"]]))
    if not table["entries"]:
        return f"{head} sends nothing, and nothing is there without messages"
    rows = [[_cell(entry[column]) for column in COLUMNS] for entry in table["entries"]]
    heads, *lines = align([[column.replace("_", " ") for column in COLUMNS], *rows]).splitlines()
    apart = [entry["phase"] == "evaluation" for entry in table["entries"]]
    run, scoring = ([line for line, other in zip(lines, apart, strict=True) if other == which] for which in (0, 1))
    return "\n".join([head, heads, *run, *([EVALUATIONS] if scoring else []), *scoring])


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(value) if isinstance(value, list) else "-" if value in (None, "") else str(value)


def _defaults() -> Iterator[dict[str, Any]]:
    """Every algorithm's table with its defaults; Hydra is not needed."""
    for name in registry.algorithms():
        keys = {**vars(registry.option_config("algorithm", name)()), "protection": "none"}
        yield exposure.table(name, keys, {}) | {"config_hash": None}


def _composed(typed: list[str], config_dir: str | None) -> Iterator[dict[str, Any]]:
    """The table of each algorithm that is named, as the overrides `typed` configure it."""
    from vflbench import config
    from vflbench.results.identity import config_hash

    if loose := [word for word in typed if "=" not in word]:
        near = closest(loose[0], registry.algorithms())
        hint = f" Did you mean 'algorithm={near}'?" if near else ""
        raise VflbenchError(f"{loose[0]!r} is no key=value. A run's own table is in its summary.json.{hint}")
    named = [word.partition("=")[2] for word in typed if word.startswith("algorithm=")]
    if not named:
        raise VflbenchError(f"name the algorithm that {' '.join(typed)} is for: vflbench privacy algorithm=NAME ...")
    others = [word for word in typed if not word.startswith("algorithm=")]
    with config.session(typed, config_dir) as hydra:
        for name in named[-1].split(","):
            words = config.for_all_links(hydra, [f"algorithm={name}", *others])
            try:
                values = config.plain(config.compose(hydra, words))
            except VflbenchError:
                try:
                    config.plan(hydra, words, loading=False)  # says what is wrong, all of it
                except ConfigError as error:
                    refuse([*_of_tables(error.problems, typed)])
                raise
            run, problems = config.convert_run(values, config.kinds_of(values))
            refuse(problems)
            assert run is not None
            refuse([one for one in config.check(run, whole=False) if one.key in JUDGED])
            keys = exposure.keys_of(run)
            if not any(word.startswith("dataset") for word in others):
                del keys["convex"]  # nobody chose these data
            privacy, model = vars(run.privacy), vars(run.model) if run.model else None
            found = exposure.table(run.algorithm.name, keys, privacy, run.codec.name, model)
            yield found | {"config_hash": config_hash(values)}


def _of_tables(problems: Iterable[Problem], typed: Iterable[str]) -> Iterator[Problem]:
    """The problems as they are told here: a data set is not needed, and of sweeps there are those of algorithms."""
    given = {word.partition("=")[0] for word in typed}
    for one in problems:
        if "add -m" in one.allowed:
            yield replace(one, allowed="is one value here: only algorithm can be several, as in algorithm=vfl,avfl")
        elif one.key != "dataset" or "dataset" in given:
            yield one
