"""`vflbench list`."""

import shutil
import textwrap

from vflbench import exposure, registry
from vflbench.cli.words import say
from vflbench.results.texts import align
from vflbench.types import DIVISORS, ConfigError, RunConfig, VflbenchError


def command(args: list[str]) -> int:
    """`vflbench list`: the algorithms, with the options that fit each; `list dataset=NAME`: what runs there."""
    if args:
        return _on(args)
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
        fits["discloses"] = exposure.in_words(exposure.disclosed(name, {"protection": "none"}))
        if exposure.unverified(name):
            fits["discloses"] += f" ({exposure.UNVERIFIED})"
        if len(info.protections) > 1:
            fits["protection"] = " ".join(registry.options("protection", info, info.protections))
        if info.own_rows:
            fits["own rows"] = "of the label owner are training rows (dataset.own_rows=train)"
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


def _on(args: list[str]) -> int:
    """`vflbench list dataset=NAME [dataset.KEY=VALUE ...] [--config-dir DIR]`: what runs on the data with defaults."""
    from argparse import ArgumentParser  # the list of algorithms needs none

    parser = ArgumentParser(
        prog="vflbench list", description="The algorithms; with a data set those that run on it, with their defaults."
    )
    parser.add_argument("words", nargs="+", metavar="dataset=NAME", help="the data set, and keys of it")
    parser.add_argument("--config-dir", metavar="DIR", help="a folder with options of your own")
    flags = parser.parse_intermixed_args(args)
    if not all(word.startswith(("dataset=", "dataset.", "data_root=")) for word in flags.words):
        raise VflbenchError(
            f"vflbench list takes dataset=NAME, its keys and --config-dir DIR, not {' '.join(flags.words)}"
        )
    found = runnable(flags.words, flags.config_dir)
    rows = [["algorithm", "model", "divided between", "length"]]
    for name, run in found.items():
        model, own = run.model, run.algorithm
        length = f"{run.rounds} rounds" if run.rounds else f"{run.epochs or own.default_rounds} "
        if not run.rounds:
            length += "epochs" if registry.algorithms()[name].epochs else "rounds"
        rows.append([name, model.name if model is not None else "-", _division(run), length])
    say(align(rows))
    say(f"\n{len(found)} algorithms run on these data with their defaults; dry_run=true says what one would send")
    return 0


def runnable(words: list[str], config_dir: str | None = None) -> dict[str, RunConfig]:
    """Algorithm -> its checked configuration, for each that runs on a data set with defaults; defaults fit the data.

    Parameters
    ----------
    words : overrides of `dataset` and its keys.

    Raises
    ------
    ConfigError : no algorithm runs there.
    """
    from vflbench import adapt, config  # Hydra, which the list of algorithms does not need
    from vflbench.config import overlay

    found: dict[str, RunConfig] = {}
    refused: list[VflbenchError] = []
    with config.session([*words, *registry.algorithms()], config_dir) as hydra:
        dataset = next((word.partition("=")[2] for word in words if word.startswith("dataset=")), "")
        algorithms, info_of = registry.algorithms(), registry.datasets().get(dataset)
        if info_of is not None:
            algorithms = {name: info for name, info in algorithms.items() if registry.fit(info, info_of)}
        if dataset in hydra.options("dataset"):
            overlay.remember(hydra.loader, dataset, [*algorithms])
        for name, info in algorithms.items():
            try:
                run = config.plan(hydra, [f"algorithm={name}", *words]).config
            except VflbenchError as error:
                problems = error.problems if isinstance(error, ConfigError) else []
                if any(problem.allowed.startswith("several values") for problem in problems):
                    raise VflbenchError("vflbench list takes one value of each key: start it once for each") from None
                refused.append(error)
                if any(problem.key == "dataset" and "unknown" in problem.allowed for problem in problems):
                    raise
                continue
            assert run is not None
            found[name] = adapt.parties(run, info)
    if not found:
        # what most methods say is wrong with the data
        raise max(refused, key=lambda error: [str(other) for other in refused].count(str(error)))
    return found


def _division(run: RunConfig) -> str:
    """The number of parties, workers or horizontal parts."""
    found = next(((vars(run.algorithm)[key], key) for key in DIVISORS if key in vars(run.algorithm)), (1, "parties"))
    return "-" if found[0] is None else f"{found[0]} {found[1]}"
