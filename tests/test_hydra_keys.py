"""Hydra's own keys: what a command line may set, that all else is refused in one line by its name, and that nothing of
it is run."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.every import few_fast
from vflbench import cli, config
from vflbench.cli import job
from vflbench.results.folder import atomic_write

TOY = ("algorithm=toy", "dataset=toy_graph")

# What is refused -> a part of what is said, beside the key.
REFUSED = {
    "hydra.job_logging.version=2": "not supported",
    "hydra.job_logging=null": "not supported",
    "hydra.job_logging.root=null": "not supported",
    "hydra.job_logging.root.level=NOPE": "must be one of DEBUG",
    "hydra.job_logging.handlers.console.class=os.system": "not supported",
    "+hydra.job_logging.handlers.file.filename=mine.csv": "not supported",
    "+hydra.job_logging.handlers.file.()=os.system": "cannot be read",
    "hydra.hydra_logging.version=2": "not supported",
    "hydra.hydra_logging=null": "not supported",
    "hydra.hydra_logging.root.level=7": "must be one of DEBUG",
    "+hydra.callbacks.x._target_=foo": "not supported",
    "+hydra.callbacks.x._target_=os.getcwd": "not supported",
    "+hydra.callbacks={x:{_target_:os.getcwd}}": "not supported",
    "hydra/callbacks=nope": "hydra/callbacks",
    "hydra.sweeper.params={a:b}": "not supported",
    "+hydra.sweeper.params.seed=x": "not supported",
    "hydra.sweeper=null": "not supported",
    "hydra.sweeper._target_=os.system": "not supported",
    "hydra.sweeper.max_batch_size=0": "at least 1",
    "hydra.sweeper.max_batch_size=-1": "at least 1",
    "hydra.sweeper.max_batch_size=x": "at least 1",
    "hydra.sweeper.max_batch_size=1.5": "at least 1",
    "hydra.sweeper.max_batch_size=true": "at least 1",
    "hydra.sweeper.n_trials=3": "not supported",
    "hydra/sweeper=optuna": "unknown sweeper; there are: basic",
    "hydra/sweeper=": "hydra/sweeper",
    "hydra.launcher=null": "not supported",
    "hydra.launcher._target_=os.system": "not supported",
    "+hydra.launcher._partial_=true": "not supported",
    "hydra.launcher.n_jobs=2": "hydra.launcher.n_jobs",
    "hydra/launcher=jobli": "hydra/launcher",
    "hydra/launcher=": "hydra/launcher",
    "hydra/launcher@x=basic": "hydra/launcher",
    "hydra.run.dir=${nope}": "cannot be resolved",
    "hydra.run.dir=${oc.env:VFLBENCH_NOPE}": "cannot be resolved",
    "hydra.run.dir=${nope:1}": "cannot be resolved",
    "hydra.run.dir=${": "cannot be read",
    "hydra.run.dir=": "must name a folder",
    "hydra.run.dir=null": "must name a folder",
    "hydra.run.dir=[a,b]": "must name a folder",
    "hydra.run.dir={a:b}": "must name a folder",
    "hydra.run.dr=x": "'hydra.run.dir'",
    "hydra.run=x": "not supported",
    "hydra.sweep.subdir=null": "must name a folder",
    "hydra.sweep.dir=null": "must name a folder",
    "hydra.output_subdir=": "not supported",
    "hydra.output_subdir=../x": "not supported",
    "hydra.job.name=": "not supported",
    "hydra.job.num=1": "not supported",
    "hydra.job.chdir=true": "not supported",
    "+hydra.job.env_set.PATH=x": "not supported",
    "hydra.job.config.override_dirname.kv_sep=:": "not supported",
    "hydra.mode=": "RUN or MULTIRUN",
    "hydra.mode=run": "RUN or MULTIRUN",
    "hydra.verbose={a:b}": "true, false",
    "hydra.verbose=null": "true, false",
    "hydra.verbose=[1,2]": "true, false",
    "hydra.searchpath=[nope]": "not supported",
    "hydra.searchpath=[pkg://nope]": "not supported",
    "hydra.runtime.output_dir=x": "not supported",
    "hydra.runtime.choices={}": "not supported",
    "hydra.overrides.task=['a=b']": "not supported",
    "hydra.help.template=${nope}": "not supported",
    "hydra/help=default": "not supported",
    "hydra/job_logging=default": "files of its own",
    "hydra/job_logging=nope": "hydra/job_logging",
    "hydra/env=default": "not supported",
    "hydra.nope=3": "not supported",
    "++hydra.nope=3": "not supported",
    "hydra=3": "unknown key",
    "~hydra.run": "cannot be removed",
    f"seed={'9' * 5000}": "cannot be read",
    "seed=${seed}": "Recursive",
    "seed=${nope}": "nope",
    "seed=${idiv:1,0}": "ZeroDivisionError",
}
REFUSED_SWEEPS = {
    "seed=range(0,10,0)": "step that is not 0",
    "seed=range(0,1,nan)": "finite",
    "seed=range(0,inf)": "finite",
    "seed=range(0,1e18)": "at most",
    "seed=shuffle(range(0,1000000000000))": "at most",
    f"seed=range(0,{10**400})": "finite",
    "seed=range(3,3)": "at least one",
    "seed=interval(0,1)": "lists its values",
    "seed=choice()": "cannot be read",
    "seed=range(0,3),5": "stand alone",
    "seed=choice(choice(0,1),2)": "stand alone",
    "seed=interval(0,1),3": "stand alone",
    "network=glob(*),lan": "stand alone",
    "dataset.files=[glob(*.csv)]": "stand alone",
    "tags={a:range(0,3)}": "stand alone",
    "seed=glob(x*)": "matches no option",
    "network=glob(x*)": "matches no option",
    "dry_run=true,false": "whole sweep",
    "hydra.verbose=true,false": "cannot be swept",
    "hydra/launcher=basic,joblib": "cannot be swept",
    "hydra.sweep.subdir=${nope}": "cannot be resolved",
    "hydra.sweep.dir=${nope}": "cannot be resolved",
    "hydra.sweep.dir=a/${hydra.job.num}": "cannot be resolved",
    "hydra.sweeper.params={seed:[1,2]}": "not supported",
    "hydra.job_logging.version=2": "not supported",
}
TAKEN = (
    "hydra.run.dir=mine",
    "hydra.run.dir=3",
    "hydra.run.dir=${hydra:runtime.choices.algorithm}/${now:%H}",
    "hydra.mode=RUN",
    "hydra.verbose=[a,b]",
    "hydra.job_logging.root.level=DEBUG",
    "hydra.hydra_logging.root.level=ERROR",
    "hydra/job_logging=none",
    "hydra/job_logging=disabled",
    "hydra/hydra_logging=none",
)
TAKEN_SWEEPS = (
    ("seed=1,2", "hydra.sweep.dir=there", "hydra.sweep.subdir=${algorithm.name}_${seed}"),
    ("seed=range(0,3)", "hydra.sweeper.max_batch_size=2"),
    ("seed=1,2", "hydra/launcher=basic", "hydra/sweeper=basic"),
)


@pytest.fixture
def vfl(toy: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., int]]:
    """`vflbench` in an empty folder, whose jobs end where they would load data; the exit code."""

    def ended(cfg: Any, folder: Path, label: str, command: str, quiet: bool, draw: Any) -> job.Outcome:
        atomic_write(folder / "ran", "")
        return job.Outcome(0, folder, line="ran", status="completed")

    monkeypatch.setattr(job, "_outcome_of", ended)
    monkeypatch.chdir(tmp_path)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    heard = [one for one in root.manager.loggerDict.values() if isinstance(one, logging.Logger) and not one.disabled]
    yield lambda *args: cli.command([*args])
    root.handlers[:], root.level = handlers, level
    for logger in heard:  # logging that cannot be set up has silenced all before it fails
        logger.disabled = False


@pytest.fixture
def one_session(toy: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """All commands of a test in one Hydra, which composes what they share once."""
    with config.session(TOY) as hydra:
        monkeypatch.setattr(config, "session", lambda *_: contextlib.nullcontext(hydra))
        yield


@pytest.mark.usefixtures("one_session")
@pytest.mark.parametrize("sweep", few_fast([True, False]), ids=["sweep", "run"])
def test_what_is_refused_is_named_in_one_line(
    vfl: Callable[..., int], capsys: pytest.CaptureFixture[str], sweep: bool
) -> None:
    flags = ("-m",) if sweep else ()
    for typed, said in (REFUSED_SWEEPS if sweep else REFUSED).items():
        assert vfl(*flags, *TOY, typed) == 1, typed
        out, err = capsys.readouterr()
        first, *lines = err.splitlines()
        assert out == "" and said in err and "Traceback" not in err, f"{typed}: {out}{err}"
        if "${" not in typed or "hydra" in typed:
            assert (
                first == "1 problem in the configuration:"
                and len(lines) == 1
                and typed.lstrip("+~").split("@")[0][:5] in err
            ), err
    assert not list(Path().iterdir()), "nothing was written"


@pytest.mark.slow
@pytest.mark.usefixtures("one_session")
def test_what_is_supported_is_taken(vfl: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    for typed in TAKEN:
        assert vfl(*TOY, typed) == 0, f"{typed}: {capsys.readouterr().err}"
    for words in TAKEN_SWEEPS:
        assert vfl("-m", *TOY, *words) == 0, f"{words}: {capsys.readouterr().err}"
    assert {"mine", "3", "there"} <= {path.name for path in Path().iterdir()}
    assert {path.name for path in Path("there").iterdir()} == {"files.jsonl", "multirun.yaml", "toy_1", "toy_2"}


def test_a_sweep_of_too_many_jobs_is_refused_before_they_are_listed(
    vfl: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        vfl(
            "-m", *TOY, *(f"{key}=range(1,9000)" for key in ("seed", "rounds", "algorithm.layers", "algorithm.parties"))
        )
        == 1
    )
    err = capsys.readouterr().err
    assert str(8999**4) in err and "at most 10000" in err


@pytest.mark.parametrize(
    ("file", "text", "said"),
    few_fast(
        [
            ("hydra/job_logging/mine.yaml", "version: 2\nroot: {}\n", "Unsupported version: 2"),
            ("hydra/job_logging/mine.yaml", "version: 1\nroot: {level: INFO, handlers: [nope]}\n", "nope"),
        ]
    ),
)
def test_a_file_of_the_users_that_hydra_cannot_use(
    vfl: Callable[..., int], capsys: pytest.CaptureFixture[str], file: str, text: str, said: str
) -> None:
    path = Path("options", file)
    path.parent.mkdir(parents=True)
    path.write_text(text)
    for flags in ((), ("-m", "seed=1,2")):
        assert (
            vfl("--config-dir", "options", *TOY, f"{path.parent.relative_to('options').as_posix()}=mine", *flags) == 1
        )
        out, err = capsys.readouterr()
        assert "ran" not in out and "Traceback" not in err
        assert err.splitlines()[-1].startswith("error: Hydra cannot do that: ") and said in err.splitlines()[-1]


@pytest.mark.parametrize(
    "args",
    [
        ("--cfg", "job", "hydra.job_logging.version=2"),
        ("--cfg", "hydra", "--resolve", "hydra.run.dir=${nope}"),
        ("--hydra-help", "hydra.hydra_logging.version=2"),
        ("--shell-completion",),
        ("-sc", "query=bash"),
        ("-sc", "install=nope"),
    ],
)
def test_hydras_own_flags(vfl: Callable[..., int], capsys: pytest.CaptureFixture[str], args: tuple[str, ...]) -> None:
    assert vfl(*args) == 1
    said = ("error: Hydra cannot do that: ", "1 problem in the configuration:", "error: -sc")
    assert capsys.readouterr().err.startswith(said)
