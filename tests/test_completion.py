"""What a shell offers behind a command line that is being typed."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from vflbench import cli, registry
from vflbench.cli.completion import FLAGS, candidates

BASH = shutil.which("bash")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("dataset/patients.yaml", "algorithm/mine.yaml", "dataset/$(touch x).yaml"):
        (tmp_path / "own" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "own" / name).write_text("name: x\n")
    return tmp_path


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("vflbench algorithm=gl", ["algorithm=glasu", "algorithm=glasu_exact"]),
        ("vflbench ch", ["checkpoint_every=", "choose"]),
        ("vflbench seed=1 ch", ["checkpoint_every="]),
        ("vflbench choose --config-dir own dataset=p", ["dataset=patients", "dataset=pubmed"]),
        ("vflbench --config-dir=own -m algorithm=vfl,mi", ["algorithm=vfl,mine"]),
        ("vflbench --config-dir own dataset=$", []),  # the shell would carry it out
        ("vflbench --config-dir ", []),  # the shell knows folders
        ("vflbench report ", []),
        ("vflbench choose targ", ["target="]),
        ("vflbench choose cost=b", ["cost=bytes"]),
        ("vflbench choose model", []),
        ("vflbench tune model", ["model.", "model="]),
        ("vflbench tune algorithm=vfl algorithm.lo", ["algorithm.local_steps="]),
        ("vflbench choose objective=", []),
        ("vflbench objective=", ["objective=bytes_to_target", "objective=metric", "objective=seconds_to_target"]),
        ("vflbench algorithm=nothing ={ dry_run=", ["dry_run=false", "dry_run=true"]),
        ("vflbench algorithm=glasu algorithm.layers=", ["algorithm.layers=4"]),
        ("vflbench nothing.", []),
        ("vflbench data_root=./o", ["data_root=./own/"]),
        ("vflbench hydra/launcher=b", ["hydra/launcher=basic"]),
        ("vflbench hydra.run", ["hydra.run.dir="]),
        ("vflbench reprice x network=us", ["network=us_uk", "network=us_us"]),
        ("vflbench reprice x algorithm=gl", []),
        ("vflbench list dataset=ci", ["dataset=cifar10", "dataset=citeseer"]),
        ("vflbench figures glasu/table", ["glasu/table2", "glasu/table3", "glasu/table4"]),
        ("vflbench data ", ["check", "get", "profile", "status"]),
        ("vflbench tune --o", ["--out"]),
    ],
)
def test_what_may_follow(line: str, found: list[str], own: Path) -> None:
    assert candidates(line) == found


def test_every_option_and_verb_is_offered(own: Path) -> None:
    offered = {*candidates("vflbench choose algorithm=")}
    assert offered >= {f"algorithm={name}" for name in registry.algorithms()}
    assert all(word.startswith("algorithm=") for word in offered)
    first = candidates("vflbench ")
    assert {*cli.VERBS, "algorithm=", "dataset=", "seed="} <= {*first}
    assert not {"tuned=", "search=", "figure="} & {*first}


@pytest.mark.parametrize("verb", FLAGS)
def test_the_flags_are_those_of_the_verb(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.suppress(SystemExit):
        cli.command([*([verb] if verb else []), "--help"])
    said = capsys.readouterr().out
    assert all(flag in said for flag in FLAGS[verb])


@pytest.mark.parametrize(("shell", "between"), [("bash", " "), ("zsh", " "), ("fish", "\n")])
def test_a_query_answers_up_to_the_cursor(
    shell: str, between: str, own: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COMP_LINE", "vflbench dataset=p seed=1")
    monkeypatch.setenv("COMP_POINT", "18")
    assert cli.command(["-sc", f"query={shell}"]) == 0
    assert capsys.readouterr().out == f"dataset=pubmed{between}".strip() + "\n"
    monkeypatch.setenv("COMP_LINE", "vflbench algorithm=gl")
    monkeypatch.delenv("COMP_POINT")
    assert cli.command(["-sc", f"query={shell}"]) == 0
    assert capsys.readouterr().out == f"algorithm=glasu{between}algorithm=glasu_exact\n"


def test_a_query_that_fails_says_nothing(
    own: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COMP_LINE", "vflbench --config-dir nowhere dataset=")
    assert cli.command(["-sc", "query=bash"]) == 0
    assert capsys.readouterr() == ("\n", "")
    monkeypatch.setenv("COMP_POINT", "no number")
    assert cli.command(["-sc", "query=bash"]) == 0
    assert capsys.readouterr() == ("\n", "")


@pytest.mark.parametrize("words", [(), ("install",), ("install=tcsh",), ("query=tcsh",), ("nope=bash",)])
def test_only_known_shells_are_served(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.command(["-sc", *words]) == 1
    assert "install=SHELL or uninstall=SHELL, of bash, zsh, fish" in capsys.readouterr().err


def test_python_itself_is_not_completed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["x/__main__.py", "-sc"])
    for shell, last in (("bash", "-F hydra_bash_completion vflbench"), ("fish", "complete -c vflbench -x")):
        assert cli.command(["-sc", f"install={shell}"]) == 0
        assert last in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.skipif(BASH is None, reason="no bash")
def test_bash_completes(own: Path) -> None:
    (own / "bin").mkdir()
    command = own / "bin" / "vflbench"
    command.write_text(f"#!{sys.executable}\nfrom vflbench.cli import main\nmain()\n")
    command.chmod(0o755)
    script = """
        eval "$(vflbench -sc install=bash)"
        ask() {
            COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_LINE="$*" COMP_POINT=${#COMP_LINE}
            hydra_bash_completion
            echo "${COMPREPLY[@]}"
        }
        complete -p vflbench > /dev/null || exit 1
        ask vflbench algorithm=gl
        ask vflbench choose --config-dir own dataset=pat
        ask vflbench report ow
    """
    env = {**os.environ, "PATH": f"{own / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(registry.ROOT.parent)}
    assert BASH is not None
    done = subprocess.run([BASH, "--norc", "-c", script], env=env, capture_output=True, text=True, timeout=120)
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["algorithm=glasu algorithm=glasu_exact", "dataset=patients", "own"]
