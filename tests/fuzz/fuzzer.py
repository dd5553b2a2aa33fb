"""A seeded fuzzer of the command, in process.

All of it: `python -m tests.fuzz.fuzzer --cases 5000 --seed 0`; one case again, with its files: `--seed 0 --case 17
--keep DIR`.

A case is a command line and the files in its folder. It fails on a traceback, a hang, or a run that says it completed
whose metric is not a finite number. Every case depends on the seed and its own number alone.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import io
import json
import logging
import math
import os
import resource
import shlex
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.fuzz import cases
from vflbench import cli, config
from vflbench.cli import crash
from vflbench.runner import progress
from vflbench.types import ENDED_WELL

HANG = 30  # s
MEMORY = 12 * 2**30  # bytes of address space: an absurd size is refused, not swapped

_templates: list[Path] = []


def templates() -> list[Path]:
    """A run that has ended, one that was interrupted and one that was killed, made once in a process; copies are
    damaged."""
    if not _templates:
        cases.write_table(Path("mine.csv"))
        store = Path(tempfile.mkdtemp(prefix="vflbench-fuzz-runs-"))
        atexit.register(shutil.rmtree, store, ignore_errors=True)
        update = progress.Progress.update

        def interrupt(self: Any, round: int, *rest: Any, **more: Any) -> None:
            update(self, round, *rest, **more)
            if round == 3:
                raise KeyboardInterrupt

        for name, expected in (("ended", 0), ("interrupted", 130)):
            progress.Progress.update = update if expected == 0 else interrupt  # type: ignore[method-assign]
            code, _, err = silently(lambda name=name: cli.command([*cases.FINISHED, f"hydra.run.dir={store / name}"]))
            progress.Progress.update = update  # type: ignore[method-assign]
            assert code == expected, err
        shutil.copytree(store / "interrupted", store / "killed")
        (store / "killed" / "summary.json").unlink()
        _templates.extend(sorted(store.iterdir()))
    return _templates


# --- carrying out -----------------------------------------------------------------------------------------------------


class Hang(BaseException):
    """The case took longer than it may."""


def silently(do: Callable[[], Any]) -> tuple[Any, str, str]:
    """What it returns, and what it printed."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code = do()
    return code, out.getvalue(), err.getvalue()


@contextlib.contextmanager
def prepared(work: Path) -> Iterator[None]:
    """The process as cases want it: in `work`, without pictures or network, in one Hydra for speed; all as before
    afterwards."""
    from vflbench.data import sources
    from vflbench.plots import curves

    def none(*_: Any, **__: Any) -> Any:
        raise sources.Unreachable("the fuzzer has no network")

    names = ("VFLBENCH_DATA", "XDG_CACHE_HOME", "HOME")
    kept = {name: os.environ.get(name) for name in names}
    before, root, limit = os.getcwd(), logging.getLogger(), resource.getrlimit(resource.RLIMIT_AS)
    handlers, level = root.handlers[:], root.level
    old = curves.draw_run, curves.draw_runs, sources._connect, config.session, signal.getsignal(signal.SIGALRM)

    def stop(*_: Any) -> None:
        raise Hang

    try:
        os.environ.pop("VFLBENCH_DATA", None)
        os.environ["HOME"] = os.environ["XDG_CACHE_HOME"] = str(work / "home")
        stand = work / "a" / "b"  # a value of `../..` is still inside
        stand.mkdir(parents=True)
        os.chdir(stand)
        curves.draw_run = lambda folder, *_: (folder / "curve.png").touch()
        curves.draw_runs = lambda _, folder: (folder / "curve.png").touch()
        sources._connect = none
        signal.signal(signal.SIGALRM, stop)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, limit[1]))
        with config.session() as hydra:
            session = config.session

            def shared(overrides: Any = (), user_dir: Any = None) -> Any:
                return session(overrides, user_dir) if user_dir is not None else contextlib.nullcontext(hydra)

            config.session = shared  # type: ignore[assignment]
            yield
    finally:
        curves.draw_run, curves.draw_runs, sources._connect, config.session = old[:4]
        signal.signal(signal.SIGALRM, old[4])
        resource.setrlimit(resource.RLIMIT_AS, limit)
        os.chdir(before)
        for name, value in kept.items():
            os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)
        root.handlers[:], root.level = handlers, level


def empty(folder: Path) -> None:
    """Nothing is left in it but the way to the current folder."""
    for path in folder.iterdir():
        if Path.cwd().is_relative_to(path.resolve()):
            continue
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def carry_out(seed: int, number: int) -> tuple[cases.Case, str, str]:
    """One case in the current folder, which is emptied first: it, its fault (traceback, hang, wrong completion, or
    nothing), details."""
    for folder in (Path(), Path(".."), Path("../..")):
        empty(folder)
    runs = templates()
    case = cases.Maker(seed, number, runs).case()
    before = {path: path.stat().st_mtime_ns for path in Path().rglob("summary.json")}
    signal.alarm(HANG)
    try:
        code, out, err = silently(lambda: cli.command(case.args))
    except SystemExit as ended:  # argparse
        if ended.code in (0, 2):
            return case, "", ""
        return case, "traceback", f"SystemExit({ended.code})"
    except Hang:
        return case, "hang", "".join(traceback.format_exc().splitlines(keepends=True)[-12:])
    except Exception:
        return case, "traceback", "".join(traceback.format_exc().splitlines(keepends=True)[-14:])
    finally:
        signal.alarm(0)
    if code == crash.CODE or crash.BEGIN in err or "Traceback" in err:
        logs = [path.read_text()[-3000:] for path in Path().rglob("*.log")]
        return case, "traceback", "\n".join([err[-1000:], *logs])
    for path in Path().rglob("summary.json"):
        if before.get(path) != path.stat().st_mtime_ns:
            summary = json.loads(path.read_text(encoding="utf-8"))
            final = summary["metric"]["final"]
            if summary["status"] in ENDED_WELL and not (isinstance(final, int | float) and math.isfinite(final)):
                return (
                    case,
                    "wrong completion",
                    f"{path}: {summary['status']}, metric {summary['metric']}\n{out[-500:]}",
                )
    return case, "", ""


def fuzz(seed: int, numbers: range, tell: Callable[[str], None]) -> Counter[str]:
    """Carry out the cases; `tell` is given each failure: its number, command line and what happened. How many of each
    fault."""
    faults: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="vflbench-fuzz-") as work, prepared(Path(work)):
        for number in numbers:
            case, fault, details = carry_out(seed, number)
            if fault:
                faults[fault] += 1
                again = f"python -m tests.fuzz.fuzzer --seed {seed} --case {number}"
                tell(f"{fault} ({case.kind}): {again}\n  vflbench {shlex.join(case.args)}\n{details}")
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--case", type=int, help="this one alone")
    parser.add_argument("--keep", type=Path, help="with --case: a folder for its files, which stay")
    flags = parser.parse_args()
    if flags.case is not None and flags.keep is not None:
        flags.keep.mkdir(parents=True)
        with prepared(flags.keep.absolute()):
            case, fault, details = carry_out(flags.seed, flags.case)
        print(f"{fault or 'fine'}: vflbench {shlex.join(case.args)}\n{details}")
        return bool(fault)
    numbers = range(flags.first, flags.first + flags.cases) if flags.case is None else range(flags.case, flags.case + 1)
    began = time.monotonic()
    faults = fuzz(flags.seed, numbers, lambda text: print(text, flush=True))
    print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)
    print(
        f"{len(numbers)} cases: "
        f"{', '.join(f'{faults[kind]} {kind}s' for kind in ('traceback', 'hang', 'wrong completion'))}"
    )
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
