"""Witnesses of a redesign: what must not change while rooms move. Made before it, and compared after each step.

    python scripts/witnesses.py before.jsonl                # half an hour; goes on where it stopped
    python scripts/witnesses.py after.jsonl --against before.jsonl
    python scripts/witnesses.py after.jsonl --only runs/glasu configurations

- configurations: of every algorithm with every data set and of every preset, or why it is refused.
- runs: curve, ledger, summary and model of every method on a small task, without privacy and with each mechanism.
- errors: every error text of the tests of configurations.

A witness is a hash; texts of refusals are kept whole, so that a difference can be read. Paths, times and versions are
left out.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "VFLBENCH_DATA": "/nonexistent"}  # made up where a data set is not there
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
CONFIGURATION = ("config", "refusals", "own_options", "hydra_keys")  # files of tests
PASSING = re.compile(r"/tmp/[^ ,;:]*|\d\d:\d\d:\d\d")  # paths and times
KINDS = ("configurations", "runs", "errors")
Witness = tuple[str, Callable[[], str]]


def digest(*parts: bytes | str) -> str:
    content = hashlib.sha256()
    for part in parts:
        content.update(part.encode() if isinstance(part, str) else part)
    return content.hexdigest()[:16]


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


# --- configurations ---------------------------------------------------------------------------------------------------


def configurations() -> Iterator[Witness]:
    from vflbench import config, registry
    from vflbench.papers import definition

    for algorithm in registry.algorithms():
        for dataset in registry.datasets():
            words = [f"algorithm={algorithm}", f"dataset={dataset}"]
            yield f"configurations/{algorithm}/{dataset}", lambda words=words: composed(words)
    with config.session() as hydra:
        presets = hydra.options("experiment")
    for name in presets:
        yield f"configurations/preset/{name}", lambda name=name: composed([f"experiment={name}"])
    for name in definition.names():
        yield f"configurations/figure/{name}", lambda name=name: figure(name)


def composed(words: list[str]) -> str:
    """The configuration of each job, or why there is none."""
    from omegaconf import OmegaConf

    from vflbench import config
    from vflbench.types import VflbenchError

    try:
        with config.session(words) as hydra:
            plan = config.plan(hydra, words)
            held = OmegaConf.to_container(plan.cfg, resolve=False)
            assert isinstance(held, dict)
            held.pop("hydra", None)
            typed = [] if plan.config is None else asdict(replace(plan.config, untyped=frozenset()))
            return digest(*map(canonical, (held, plan.jobs, sorted(plan.swept), typed)))
    except VflbenchError as error:
        return f"refused: {error}"


def figure(name: str) -> str:
    from vflbench.papers import definition

    return digest(repr(definition.load(name)))


# --- runs -------------------------------------------------------------------------------------------------------------


def runs() -> Iterator[Witness]:
    from tests.contracts.test_algorithms import CASES
    from tests.contracts.test_algorithms import run as plain
    from tests.privacy.test_every_algorithm import SMALL
    from vflbench import registry

    for algorithm, layout in CASES:
        yield (
            f"runs/{algorithm}/{layout}",
            lambda given=(algorithm, layout): of_run(lambda folder: plain(folder, *given, "floor=none")),
        )
    for algorithm, info in registry.algorithms().items():
        for mechanism in info.privacy:
            words = [f"algorithm={algorithm}", *SMALL[algorithm], f"privacy={mechanism}", "floor=none"]
            words += ["privacy.epsilon=8"] * (mechanism != "none")
            yield f"runs/{algorithm}/{mechanism}", lambda words=words: of_run(lambda folder: started(words, folder))


def started(words: list[str], folder: Path) -> Any:
    import vflbench

    return vflbench.run([*words, "plot=none", "engine.threads=1", "seed=3", f"hydra.run.dir={folder}"])


def of_run(start: Callable[[Path], Any]) -> str:
    """Curve, ledger, summary's results and models of a run."""
    with tempfile.TemporaryDirectory() as place:
        run = start(Path(place) / "run")
        curve = run.curve.drop(columns=[name for name in run.curve.columns if "wall" in name or "compute" in name])
        ledger = run.messages.reset_index(drop=True)
        parts = {
            "curve": curve.to_csv(index=False, float_format="%.12g"),
            "ledger": ledger.to_csv(index=False, float_format="%.12g"),
            "results": canonical(
                {key: run.summary[key] for key in ("metric", "bytes", "phases", "privacy", "exposure")}
            ),
        }
        models = sorted((run.folder / "model").glob("*"))
        held = b"".join(file.name.encode() + file.read_bytes() for file in models)
        return " ".join(f"{name}={digest(text)}" for name, text in [*parts.items(), ("model", held)])


# --- errors -----------------------------------------------------------------------------------------------------------


def errors() -> Iterator[Witness]:
    for name in CONFIGURATION:
        yield f"errors/{name}", lambda name=name: apart(ROOT / "tests" / f"test_{name}.py")


def apart(file: Path) -> str:
    """In a process of its own: plug-ins of one file's tests are not there in another's."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(raised, file).result()


def raised(file: Path) -> str:
    """What each test of the file raises or prints as an error, without paths."""
    import pytest

    told: set[str] = set()
    ends, reads = pytest.RaisesExc.__exit__, pytest.CaptureFixture.readouterr

    def note(text: str) -> None:
        told.add(f"{os.environ['PYTEST_CURRENT_TEST'].split(' ')[0]}: {PASSING.sub('…', text)}")

    def recorded(self: Any, kind: Any, error: Any, trace: Any) -> Any:
        note(str(error))
        return ends(self, kind, error, trace)

    def read(self: Any) -> Any:
        found = reads(self)
        note(str(found.err))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pytest.RaisesExc, "__exit__", recorded)
        patch.setattr(pytest.CaptureFixture, "readouterr", read)
        code = pytest.main(["-q", "--no-summary", "-m", "not slow", "-p", "no:cacheprovider", str(file)])
    return "\n".join([f"pytest ended with {int(code)}", *sorted(told)])


# --- the command ------------------------------------------------------------------------------------------------------


def held(file: Path) -> dict[str, str]:
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return dict(json.loads(line) for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--against", type=Path, help="the witnesses that must be equal")
    parser.add_argument("--only", nargs="+", default=list(KINDS), help="names begin with one of these")
    args = parser.parse_args()
    known = held(args.file)
    for kind in KINDS:
        if not any(name.startswith(kind) or kind.startswith(name) for name in args.only):
            continue
        for name, witness in {"configurations": configurations, "runs": runs, "errors": errors}[kind]():
            if name not in known and any(name.startswith(start) for start in args.only):
                known[name] = witness()
                with args.file.open("a", encoding="utf-8") as file:
                    file.write(json.dumps([name, known[name]]) + "\n")
    print(f"{len(known)} witnesses")
    if args.against is None:
        return 0
    before = {name: one for name, one in held(args.against).items() if any(name.startswith(s) for s in args.only)}
    differ = [name for name, one in before.items() if known.get(name) != one]
    for name in differ:
        print(f"{name}\n  before: {before[name]}\n  now:    {known.get(name, 'there is none')}")
    print(f"{len(before) - len(differ)} of {len(before)} are equal")
    return int(bool(differ))


if __name__ == "__main__":
    sys.exit(main())
