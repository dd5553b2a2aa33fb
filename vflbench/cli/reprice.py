"""`vflbench reprice`."""

from __future__ import annotations

import shlex
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vflbench import config
from vflbench.cli.words import RUNS, complain, relative_path, say
from vflbench.results import reader, sweep_table
from vflbench.results.texts import align, result_line
from vflbench.types import VflbenchError

if TYPE_CHECKING:
    from vflbench.runner.reprice import Result


def command(args: list[str]) -> int:
    """`vflbench reprice RUN [RUN ...] network=... [network.key=...] [accounting=...] [overwrite=true] [--out DIR]`."""
    usage = (
        "vflbench reprice RUN [RUN ...] network=NAME[,NAME] [network.key=value] [accounting=...] [overwrite=true] "
        "[--out DIR]"
    )
    parser = ArgumentParser(
        prog="vflbench reprice", usage=usage, description="Price finished runs for another network, without training."
    )
    parser.add_argument("words", nargs="*", help="folders of runs or of sweeps, and the network or accounting")
    parser.add_argument("--out", type=Path, default=RUNS / "reprice", help="where the results go (outputs/reprice)")
    parser.add_argument("--config-dir", help="a folder with networks of your own")
    flags = parser.parse_intermixed_args(args)
    runs = [word for word in flags.words if "=" not in word or Path(word).is_dir()]
    overrides = [word for word in flags.words if word not in runs]
    overwrite = [word for word in overrides if word.startswith("overwrite=")]
    if unknown := [word for word in overwrite if word not in ("overwrite=true", "overwrite=false")]:
        raise VflbenchError(f"{unknown[0]}: overwrite is true or false")
    overrides = [word for word in overrides if word not in overwrite]
    if not runs:
        raise VflbenchError(f"name a run. usage: {usage}")

    refused: list[str] = []

    def leave_out(reason: str) -> None:
        refused.append(reason)
        complain(f"not re-priced: {reason}")

    how: dict[str, Any] = {
        "command": shlex.join(["vflbench", "reprice", *args]),
        "overwrite": overwrite[-1:] == ["overwrite=true"],
        "config_dir": flags.config_dir,
    }
    done = priced(runs, overrides, flags.out, refused=leave_out, **how)
    if len(done) == 1:
        summary = reader.load(done[0].folder).summary
        kept = "it existed already, and was kept" if done[0].kept else f"{done[0].source} under {done[0].profile}"
        say("\n".join([result_line(summary), kept, f"run folder: {relative_path(done[0].folder)}"]))
    elif done:
        rows = [["run", "priced by", "status", "metric", "selected", "final", "sent", "communication", "folder"]]
        rows += [
            [str(r.source), r.profile, *sweep_table.results(reader.load(r.folder)), f"{r.folder}{' (kept)' * r.kept}"]
            for r in done
        ]
        say(align(rows))
    return 1 if refused else 0


def priced(
    runs: Sequence[str],
    overrides: Sequence[str],
    out: Path,
    *,
    command: str,
    refused: Callable[[str], None],
    overwrite: bool = False,
    config_dir: str | Path | None = None,
) -> list[Result]:
    """The runs at or below the folders `runs`, under each network that the overrides name.

    Parameters
    ----------
    command, refused, overwrite : as of `runner.reprice.reprice`.

    Raises
    ------
    ConfigError : the problems of the overrides.
    VflbenchError : as `runner.reprice.reprice`.
    """
    with config.session(overrides, config_dir) as hydra:
        found = config.profiles(hydra, config.for_all_links(hydra, overrides))

    from vflbench.plots.curves import draw_run
    from vflbench.runner import reprice

    profiles = [reprice.Profile(typed, network) for typed, network in found]
    how: dict[str, Any] = {"command": command, "overwrite": overwrite, "draw": draw_run, "refused": refused}
    return reprice.reprice(runs, profiles, out, **how)
