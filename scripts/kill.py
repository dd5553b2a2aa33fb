"""Kills the command at random moments and resumes it: `python scripts/kill.py [--kills 100] [--seed 0] [--scenario NAME
...] [--jobs 1]`.

Every trial starts a real command, kills it with SIGKILL at a random moment, and resumes it as the documentation says; a
third of the resumed commands are killed as well. Half of the moments are drawn from the whole length of an undisturbed
command, which for short ones is mostly that of imports, half from its time after the run's first file. Half of the
kills hit the command alone, as a machine that is out of memory does, half its whole process group. What comes of it
must be what the undisturbed command made: curve, ledger, trace, models and pictures byte for byte, and the summary but
for the time on the wall. Of real processes (engine=ray) times are measured: there the parameters, metrics and messages
must be the same, and with a broker, where the order of messages depends on time, all batches be trained. Nothing may be
left of the command: no process, no temporary file; and files that are not its own stay as they are.

Prints a table and, last, how many kills were survived; exit code 0 if all were.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from vflbench.results import reader

REPOSITORY = Path(__file__).resolve().parent.parent
TIMES = ["virtual_seconds", "communication_seconds", "idle_seconds", "compute_seconds"]
PHASES = ("before the first checkpoint", "in training", "in writing", "at the end")
MARK = "VFLBENCH_KILLED"  # in the environment of a trial's processes, by which they are found
FOREIGN = b"not of a run\n"
LINGER = 60.0  # s that processes may take to end after the command was killed or has ended
LONGEST = 900.0  # s that a command may take


@dataclass(frozen=True)
class Scenario:
    """A command; its result lies in the folder `out`, which `where` says."""

    words: tuple[str, ...]
    differs: Callable[[Path, Path], list[str]]  # (undisturbed folder, the other): what differs
    where: str = "hydra.run.dir=out"
    again: str = "resume=true"


@dataclass
class Trial:
    """A command that was killed, perhaps more than once, and resumed to its end."""

    scenario: str
    number: int
    phases: list[str] = field(default_factory=list)  # how far it was, at each kill
    halves: int = 0  # kills that met a file half written
    problems: list[str] = field(default_factory=list)


# --- what must be the same --------------------------------------------------------------------------------------------


def results(folder: Path) -> dict[str, Path]:
    """The files that a result consists of, by their path in `folder`: neither what says when and how it was made, nor
    checkpoints."""
    own = ("manifest.json", "summary.json", "files.jsonl", "multirun.yaml", "notes.txt")
    found = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {
        name: path
        for name, path in found.items()
        if path.name not in own and not {"checkpoint", ".hydra"} & set(Path(name).parts)
    }


def summary(run: Path) -> dict[str, object]:
    content: dict[str, object] = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    return {key: value for key, value in content.items() if key != "wall_seconds"}


def all_differs(whole: Path, other: Path) -> list[str]:
    """Every file byte for byte, and the summaries."""
    ours, theirs = results(other), results(whole)
    found = [
        f"{name}: {'missing' if name in theirs else 'of no undisturbed run'}"
        for name in sorted(set(ours) ^ set(theirs))
    ]
    found += [
        f"{name}: differs"
        for name in ours.keys() & theirs.keys()
        if ours[name].read_bytes() != theirs[name].read_bytes()
    ]
    for run in reader.find(whole):
        place = run.folder.relative_to(whole)
        found += [
            f"{place}/summary.json: {key} differs"
            for key, value in summary(run.folder).items()
            if summary(other / place)[key] != value
        ]
    return found


def figure_differs(whole: Path, other: Path) -> list[str]:
    """As `all_differs`, but for what says when it was made, how long its runs took and how many of them were found."""
    made = {f"{FIGURE}/{name}" for name in ("page.html", "page.md", "table.csv", "result.json")} | {"index.html"}
    found = [line for line in all_differs(whole, other) if line.partition(":")[0] not in made]
    tables = [pd.read_csv(folder / FIGURE / "table.csv") for folder in (whole, other)]
    columns = [column for column in tables[0] if "wall" not in column]
    return found + ([] if tables[0][columns].equals(tables[1][columns]) else [f"{FIGURE}/table.csv: differs"])


def live_differs(whole: Path, other: Path, trained: bool = False) -> list[str]:
    """Curve, parameters and messages where times are measured; `trained`: with time deciding who is first, the batches
    alone."""
    ours, theirs = reader.load(other), reader.load(whole)
    found = []
    try:
        ours.check_curve()
    except Exception as error:
        found.append(f"curve against ledger: {error}")
    if set(results(other)) != set(results(whole)):
        found.append(f"files: {sorted(set(results(other)) ^ set(results(whole)))}")
    if trained:
        counts = [run.summary["batches"]["trained"] for run in (theirs, ours)]  # type: ignore[index]
        return found + ([f"batches trained: {counts[1]} of {counts[0]}"] if counts[0] != counts[1] else [])
    if not ours.curve.drop(columns=TIMES).equals(theirs.curve.drop(columns=TIMES)):
        found.append("curve.csv differs")
    messages = [
        run.ledger.groupby(["round", "src", "dst", "tag", "bytes"], observed=True).size().to_dict()
        for run in (ours, theirs)
    ]
    if messages[0] != messages[1]:
        found.append("ledger.parquet: other messages")
    found += [
        f"{n}: differs"
        for n, p in results(whole).items()
        if p.suffix == ".safetensors" and p.read_bytes() != (other / n).read_bytes()
    ]
    return found


# --- the commands -----------------------------------------------------------------------------------------------------

FIGURE = "mtcd/fig2"
BARE = ("plot=none", "floor=none")  # pictures and trees are those of the other commands
GRAPH = (
    "algorithm=glasu",
    "dataset=digits_graph",
    "model.hidden=8",
    "algorithm.local_steps=1",
    "rounds=8",
    "eval_every=2",
    "checkpoint_every=1",
)
TABLES = ("algorithm=rfl_admm_v", "dataset=star_schema", "rounds=8", "checkpoint_every=1")
TOKENS = (
    "dataset=ridge",
    "dataset.samples=40",
    "dataset.features=24",
    "algorithm.parties=4",
    "eval_every=5",
    "checkpoint_every=2",
    *BARE,
)
WORKERS = ("dataset=digits", "model.widths=[16]", "algorithm.workers=3", "rounds=4", "checkpoint_every=1", *BARE)
COLUMNS = (
    "dataset=synthetic",
    "dataset.features=12",
    "dataset.informative=6",
    "dataset.redundant=0",
    "dataset.samples=1000",
    "epochs=6",
)
COLUMNS += (
    "model.depth=2",
    "model.width=8",
    "model.embedding=4",
    "checkpoint_every=1",
    "algorithm.batch_size=50",
    *BARE,
)
PUBLISHED = (
    "algorithm=pubsub_vfl",
    *COLUMNS,
    "model.top_width=4",
    "algorithm.workers=2",
    "algorithm.passive_workers=2",
)
SWEEP = ("-m", "algorithm=stcd", *TOKENS, "topology=path", "rounds=30", "seed=0,1,2")
SWEPT = {"where": "hydra.sweep.dir=out", "again": ""}

# Those with real processes take a minute each.
SCENARIOS = {
    "graph: glasu": Scenario(GRAPH, all_differs),
    "joins: rfl_admm_v": Scenario(TABLES, all_differs),
    "tokens: mtcd": Scenario(("algorithm=mtcd", *TOKENS, "topology=ring", "rounds=60"), all_differs),
    "gossip: leasgd": Scenario(("algorithm=leasgd", *WORKERS), all_differs),
    "split: pubsub_vfl": Scenario(PUBLISHED, all_differs),
    "privacy: leasgd": Scenario(("algorithm=leasgd", "privacy=dp_sgd", *WORKERS), all_differs),
    "sweep, joblib": Scenario((*SWEEP, "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"), all_differs, **SWEPT),
    "figures": Scenario(
        ("figures", FIGURE, "scale=smoke", "checkpoint_every=1"), figure_differs, where="out=out", again=""
    ),
    "engine=ray: glasu": Scenario((*GRAPH, "engine=ray"), live_differs),
    "NATS: pubsub_vfl": Scenario(
        (*PUBLISHED, "engine=ray", "broker=nats", "algorithm.deadline=60"), partial(live_differs, trained=True)
    ),
    "gossip: d_psgd": Scenario(("algorithm=d_psgd", *WORKERS), all_differs),
    "split: vfl": Scenario(("algorithm=vfl", *COLUMNS), all_differs),
    "privacy: rfl_admm_v": Scenario((*TABLES, "privacy=dp_sgd"), all_differs),
    "sweep": Scenario(SWEEP, all_differs, **SWEPT),
}


def marked(mark: str) -> dict[int, str]:
    """The processes that have `mark` in their environment, with their command lines; zombies are none."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found[int(folder.name)] = (
                    (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:100]
                )
    return found


@contextlib.contextmanager
def started(place: Path, words: tuple[str, ...]) -> Iterator[subprocess.Popen[str]]:
    """The command in `place`, in a process group of its own, with temporary files in a folder of its own."""
    temporary = place / "t"
    temporary.mkdir(exist_ok=True)
    hidden = ("VFLBENCH_DATA",)
    path = os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {key: value for key, value in os.environ.items() if key not in hidden}
    environment |= {
        "PYTHONPATH": path,
        "OMP_NUM_THREADS": "1",
        "TMPDIR": str(temporary),
        MARK: str(place),
        "XDG_CACHE_HOME": str(place / "c"),
    }
    caches = {"MPLCONFIGDIR": str(place.parent / "mpl"), "TORCHINDUCTOR_CACHE_DIR": str(place.parent / "inductor")}
    environment |= {"JOBLIB_TEMP_FOLDER": str(temporary), **caches}
    with (place / "said.txt").open("a", encoding="utf-8") as said:
        said.write(f"$ vflbench {' '.join(words)}\n")
        said.flush()
        command = [sys.executable, "-m", "vflbench", *words]
        process = subprocess.Popen(
            command, cwd=place, env=environment, stdout=said, stderr=said, text=True, start_new_session=True
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def left(place: Path) -> list[str]:
    """What is still there of commands that ran in `place` and have ended: processes."""
    deadline = time.monotonic() + LINGER
    while (running := marked(str(place))) and time.monotonic() < deadline:
        time.sleep(0.2)
    found = [f"still running: {line}" for line in running.values()]
    for pid in running:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    return found


def litter(place: Path) -> list[str]:
    """Temporary files in `place`, and what was set aside as damaged."""
    files = [path for path in (place / "out").rglob("*") if path.suffix in (".tmp", ".damaged")]
    return [f"left: {path.relative_to(place)}" for path in (*files, *(place / "t").iterdir())]


def phase(out: Path) -> str:
    """How far a command was, by the files in its folder."""
    runs = {
        path.parent
        for name in ("manifest.json", "curve.csv", "checkpoint")
        for path in out.rglob(name)
        if path.parent.name != "checkpoint"
    }
    writing = [run for run in runs if (run / "ledger.parquet").exists() and not (run / "summary.json").exists()]
    if not any(any(path.iterdir()) for path in out.rglob("checkpoint")):
        return PHASES[0]
    if writing:
        return PHASES[2]
    return PHASES[3] if all((run / "summary.json").exists() for run in runs) else PHASES[1]


def ended(place: Path) -> list[str]:
    """What is wrong with the last command that ran in `place`, by what it said and what there is."""
    said = (place / "said.txt").read_text(encoding="utf-8")
    found = [f"{word} in what it said" for word in ("Traceback", "Exception ignored") if word in said]
    found += [
        f"{run.folder.relative_to(place)}: {run.status}"
        for run in reader.find(place / "out")
        if run.status != "completed"
    ]
    return found + left(place) + litter(place)


# --- trials -----------------------------------------------------------------------------------------------------------


class Whole:
    """The undisturbed commands, each run when it is first needed: its folder, when it wrote a manifest and when it
    ended, in seconds."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.lock = threading.Lock()
        self.known: dict[str, tuple[Path, float, float]] = {}

    def of(self, name: str) -> tuple[Path, float, float]:
        with self.lock:
            if name not in self.known:
                scenario, place = SCENARIOS[name], self.place / f"w{len(self.known)}"
                place.mkdir(exist_ok=True)
                began, first = time.monotonic(), 0.0
                with started(place, (*scenario.words, scenario.where)) as process:
                    while (code := process.poll()) is None and (seconds := time.monotonic() - began) < LONGEST:
                        first = first or (seconds if any((place / "out").rglob("manifest.json")) else 0.0)
                        time.sleep(0.02)
                if code != 0 or (problems := ended(place)):
                    raise SystemExit(
                        f"{name}: the undisturbed command: {code or problems}\n{(place / 'said.txt').read_text()}"
                    )
                self.known[name] = place / "out", first, seconds
            return self.known[name]


def strike(process: subprocess.Popen[str], seconds: float, group: bool) -> bool:
    """Kill the command, or its group, after so many seconds; False if it ended before."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
        return False
    (os.killpg if group else os.kill)(process.pid, signal.SIGKILL)
    process.wait()
    return True


def plant(place: Path) -> dict[Path, bytes]:
    """Files that are nobody's, beside the result and in the folders of runs that have begun; by path with their
    content."""
    folders = [place, *(manifest.parent for manifest in (place / "out").rglob("manifest.json"))]
    for folder in folders:
        (folder / "notes.txt").write_bytes(FOREIGN)
    return {folder / "notes.txt": FOREIGN for folder in folders}


def trial(name: str, number: int, kills: int, seed: int, whole: Whole) -> Trial:
    """Kill and resume the command `name`, at most `kills` times (at least once), to its end."""
    scenario, chance, made = SCENARIOS[name], random.Random(f"{seed} {number}"), Trial(name, number)
    folder, first, length = whole.of(name)
    place = whole.place / f"t{number}"
    planted: dict[Path, bytes] = {}
    place.mkdir()
    try:
        while True:
            words = (*scenario.words, scenario.where, *([scenario.again] if made.phases and scenario.again else []))
            strikes = not made.phases or (len(made.phases) < kills and chance.random() < 1 / 3)
            with started(place, words) as process:
                if not strikes:
                    code = process.wait(LONGEST)
                elif strike(
                    process, chance.uniform(first * (chance.random() < 0.5), length), group=chance.random() < 0.5
                ):
                    made.phases.append(phase(place / "out"))
                    made.halves += any((place / "out").rglob("*.tmp"))
                    made.problems += left(place)
                    planted = planted or plant(place)
                    continue
                elif made.phases:
                    code = process.returncode
                else:  # quicker than the undisturbed one: once more, from the start
                    shutil.rmtree(place / "out")
                    continue
            break
        if code:
            made.problems.append(f"exit code {code}")
        made.problems += ended(place)
        made.problems += [
            f"{path.relative_to(place)}: changed" for path, content in planted.items() if path.read_bytes() != content
        ]
        made.problems += scenario.differs(folder, place / "out")
    except Exception as error:
        # a result that cannot be read, or a command that does not end, is a problem of this trial
        made.problems.append(f"{type(error).__name__}: {error}")
    if not made.problems:
        shutil.rmtree(place)
    return made


def table(trials: list[Trial]) -> str:
    """Kills of each scenario, and how far it was."""
    rows = [["scenario", "kills", *PHASES, "file half written", "survived"]]
    for name in SCENARIOS:
        own = [one for one in trials if one.scenario == name]
        phases = Counter(where for one in own for where in one.phases)
        survived = sum(len(one.phases) for one in own if not one.problems)
        counts = [phases.total(), *(phases[where] for where in PHASES), sum(one.halves for one in own), survived]
        if own:
            rows.append([name, *map(str, counts)])
    rows.append(["all", *(str(sum(int(row[column]) for row in rows[1:])) for column in range(1, len(rows[0])))])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scenario", nargs="+", choices=list(SCENARIOS), default=list(SCENARIOS), metavar="NAME")
    parser.add_argument("--jobs", type=int, default=1, help="trials side by side")
    parser.add_argument("--once", action="store_true", help="a kill for each trial, so that more commands are met")
    given = parser.parse_args(arguments)
    # Ray's sockets lie below it, and may not have long names.
    place = Path(tempfile.mkdtemp(prefix="k", dir="/tmp"))
    whole, trials, lock = Whole(place), list[Trial](), threading.Lock()
    numbers = iter(range(given.kills))

    def work() -> None:
        while True:
            with lock:
                missing = given.kills - sum(len(one.phases) for one in trials) - (given.jobs - 1)
                number = next(numbers, None)
                if number is None or missing <= 0:
                    return
            one = trial(
                given.scenario[number % len(given.scenario)], number, 1 if given.once else missing, given.seed, whole
            )
            with lock:
                trials.append(one)
                verdict = "; ".join(one.problems) or "survived"
                print(
                    f"{number}: {one.scenario}: killed {', '.join(one.phases)}: {verdict}", file=sys.stderr, flush=True
                )

    with ThreadPoolExecutor(given.jobs) as pool:
        for future in [pool.submit(work) for _ in range(given.jobs)]:
            future.result()
    kills, survived = (sum(len(one.phases) for one in trials if not (one.problems and bad)) for bad in (False, True))
    print(f"{table(trials)}\n{survived} of {kills}")
    if survived == kills:
        shutil.rmtree(place)
        return 0
    print(f"what failed lies in {place}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
