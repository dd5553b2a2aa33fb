"""Every command of the README and of the tutorial runs, in their order, where a reader would type it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from vflbench import cli

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TUTORIAL = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
pytestmark = [pytest.mark.slow, pytest.mark.minutes]


def typed(place: Path, *words: str, code: Path = ROOT) -> str:
    """What the command prints; it must end with 0."""
    environment = {name: value for name, value in os.environ.items() if name != "VFLBENCH_DATA"}
    environment |= {"PYTHONPATH": str(code), "XDG_CACHE_HOME": str(place / "cache")}
    done = subprocess.run([sys.executable, *words], cwd=place, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder as a fresh clone is, so far as the commands need it."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    return tmp_path


@pytest.fixture
def here(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """As `typed`, but in this process, which has torch already: to import it anew takes longer than most commands."""
    monkeypatch.chdir(place)
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "cache"))

    def command(*words: str) -> str:
        code, printed = cli.command(words), capsys.readouterr()
        assert code == 0, f"{shlex.join(words)}\n{printed.out}\n{printed.err}"
        return printed.out

    return command


def test_the_tutorial(place: Path, here: Callable[..., str]) -> None:
    """The first run is a real command, with its pictures."""
    commands = [shlex.split(command) for command in re.findall(r"^    vflbench (.*)$", TUTORIAL, re.MULTILINE)]
    checked = [here(*words) for words in commands if words[:2] == ["data", "check"]]
    assert len(checked) == 2 and all("No problem was found." in text for text in checked)
    assert re.findall(r"^    (klinik\.csv: .*)$", TUTORIAL, re.MULTILINE) == checked[1].splitlines()[:1]
    commands = [words for words in commands if words[:2] != ["data", "check"]]
    assert len(commands) == 9
    printed = [
        typed(place, "-m", "vflbench", *words) if number == 1 else here(*words) for number, words in enumerate(commands)
    ]
    assert "messages of one round" in printed[0] and "curve:" in printed[1]
    assert printed[2].count("3 completed") == 4 and (place / "patients.html").is_file()
    assert "us_uk" in printed[4] and "epsilon" in printed[5]
    assert "1500 of them in all files; 300 rows have no match in the other files" in printed[6]
    assert printed[7].count("3 completed") == 6 and (place / "hospitals.html").is_file()


def test_two_files_are_three_commands_from_a_comparison() -> None:
    """The examples' page has the tutorial's commands, which are run above, and no others on the way."""
    page = (ROOT / "examples/README.md").read_text(encoding="utf-8")
    section = page.split("## Two hospitals")[1].split("\n## ")[0]
    commands = re.findall(r"^    (vflbench .*)$", section, re.MULTILINE)
    assert len(commands) <= 3 and commands[-1].startswith("vflbench report ")
    assert "\n".join(f"    {command}" for command in commands) in TUTORIAL


def test_the_readme(place: Path, here: Callable[..., str]) -> None:
    """Runs are cut to two rounds (scale=smoke), and sweeps behind the first one to a seed; Ray gets a process of its
    own."""
    commands = re.findall(r"`vflbench (.*?)`", README)
    assert len(commands) >= 11
    sweep = next(command for command in commands if command.startswith("-m"))
    here(*shlex.split(sweep), "scale=smoke", "hydra.sweep.dir=outputs/multirun/SWEEP")
    for command in commands:
        words = shlex.split(command)
        trains = ("=" in words[0] or words[0] in ("-m", "figures")) and "dry_run=true" not in words
        start = partial(typed, place, "-m", "vflbench") if "engine=ray" in words else here
        if words[0] == "choose":  # the shipped setting of one method, to a target that two rounds reach
            words = ["choose", words[1], "target=0.05", "trials=1", "algorithm=graph_once", "scale=smoke"]
        if command != sweep:
            start(*(word.replace("seed=0,1,2", "seed=0") for word in words), *(["scale=smoke"] if trains else []))
    assert (place / "report.html").is_file() and list((place / "outputs/figures").rglob("table3/page.html"))


def test_the_readme_from_python(place: Path) -> None:
    block = re.search(r"From Python:\n\n((?:    .*\n)+)", README)
    assert block
    lines = re.sub(r"^    ", "", block[1], flags=re.MULTILINE).replace('"seed=1"', '"seed=1", "rounds=2"')
    assert "accuracy" in typed(place, "-c", lines + "print(run.summary['metric'], len(run.curve))")


def test_the_figure_of_the_how_to(place: Path) -> None:
    """Its file, in a copy of the repository's conf/."""
    for room in ("vflbench", "conf"):
        shutil.copytree(ROOT / room, place / "clone" / room)
    page = (ROOT / "docs/how-to/add-a-figure.md").read_text(encoding="utf-8")
    for name, text in re.findall(r"```yaml\n# conf/(\S+)\n(.*?)```", page, re.DOTALL):
        (place / "clone/conf" / name).parent.mkdir(exist_ok=True)
        (place / "clone/conf" / name).write_text(text)
    commands = re.findall(r"^    vflbench (.*)$", page, re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        typed(place, "-m", "vflbench", *shlex.split(command, comments=True), "floor=none", code=place / "clone")
    (made,) = (place / "outputs/figures").rglob("page.md")
    assert "four numbers send fewer bytes than sixteen" in made.read_text(encoding="utf-8")
