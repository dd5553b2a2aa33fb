"""The manifest's surroundings: complete, and silent about people."""

import datetime
import getpass
import json
import subprocess
import sys
from pathlib import Path

import numpy

from vflbench.runner import provenance


def test_collect():
    home = str(Path.home())
    found = provenance.collect(f"vflbench dataset.path={home}/graphs algorithm=glasu", threads=2, device="cpu")
    assert found["versions"]["numpy"] == numpy.__version__ and "python" in found["versions"]
    assert found["command"] == "vflbench dataset.path=~/graphs algorithm=glasu"
    assert found["threads"] == 2 and found["hardware"]["cores"] >= 1 and found["hardware"]["gpu"] is None
    assert datetime.datetime.fromisoformat(found["started"]).utcoffset() == datetime.timedelta(0)
    assert found["git"] is None or len(found["git"]["commit"]) == 40
    text = json.dumps(found)
    assert home + "/" not in text
    assert getpass.getuser() == "root" or f"/{getpass.getuser()}" not in text


def test_homes_are_hidden(monkeypatch):
    monkeypatch.setattr(Path, "home", lambda: Path("/root"))
    assert provenance.without_home("a=/root/x b=/rooted c=/home/ann/y '/Users/bob'") == "a=~/x b=/rooted c=~/y '~'"


def test_git_is_the_packages_own(tmp_path):
    """An installed package inside somebody else's checkout has no commit to show."""
    assert provenance._git(tmp_path) is None
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "__init__.py").touch()
    assert provenance._git(tmp_path) is None
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "x"], check=True)
    found = provenance._git(tmp_path)
    assert found is not None and len(found["commit"]) == 40 and not found["dirty"]
    (tmp_path / "__init__.py").write_text("changed")
    changed = provenance._git(tmp_path)
    assert changed is not None and changed["dirty"]


def test_cpu_run_imports_no_torch():
    code = (
        "import sys; from vflbench.runner import provenance; provenance.collect('x', 1, 'cpu'); print('torch' in "
        "sys.modules)"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
        == "False"
    )


def test_a_run_ends_after_its_start_by_any_clock() -> None:
    assert provenance.later("2026-01-01T23:59:50+00:00", 15.4) == "2026-01-02T00:00:05+00:00"
