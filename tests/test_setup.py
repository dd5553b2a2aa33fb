"""What `make run`, `make test` and `make test-oldest` install, and what is said of it."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]


def pins(name: str) -> dict[str, str]:
    """The packages of a lock, with their versions: whatever system they are for, and this Python."""
    found: dict[str, str] = {}
    for line in (REPOSITORY / name).read_text().splitlines():
        if not line.startswith("#"):
            requirement = Requirement(line)
            (pin,) = requirement.specifier
            if "python" in str(requirement.marker) and requirement.marker and not requirement.marker.evaluate():
                continue
            assert pin.operator == "==" and requirement.name == canonicalize_name(requirement.name)
            assert found.setdefault(requirement.name, pin.version) == pin.version
    return found


def wanted(lines: list[str]) -> dict[str, SpecifierSet]:
    """What those lines of pyproject.toml ask for, the extras that they name included."""
    found: dict[str, SpecifierSet] = {}
    for requirement in map(Requirement, lines):
        if requirement.name == PROJECT["name"]:
            found |= wanted([line for extra in requirement.extras for line in EXTRAS[extra]])
        else:
            found[canonicalize_name(requirement.name)] = requirement.specifier
    return found


RUNS, TESTS = wanted(PROJECT["dependencies"]), wanted(EXTRAS["dev"])


@pytest.mark.parametrize(
    ("lock", "asked"),
    [
        ("requirements.lock", RUNS),
        ("requirements-dev.lock", RUNS | TESTS),
        ("requirements-oldest.lock", RUNS | wanted(EXTRAS["test"])),
    ],
)
def test_a_lock_has_what_pyproject_asks_for(lock: str, asked: dict[str, SpecifierSet]) -> None:
    found = pins(lock)
    assert [
        f"{name}{allowed}"
        for name, allowed in asked.items()
        if found.get(name, "nothing") == "nothing" or found[name] not in allowed
    ] == []
    # torch brings CUDA's packages where it was built with CUDA; a lock that names them would bring them everywhere.
    assert [name for name in found if re.match(r"nvidia|cuda|triton", name)] == []


def test_runs_need_nothing_of_the_tests() -> None:
    runs, tests = pins("requirements.lock"), pins("requirements-dev.lock")
    assert [name for name in runs if name in TESTS] == []
    assert runs.items() <= tests.items() and len(runs) <= len(tests) / 2


def test_the_oldest_versions_are_those_that_pyproject_names() -> None:
    found = pins("requirements-oldest.lock")
    for name, allowed in RUNS.items():
        floor = next(bound.version for bound in allowed if bound.operator == ">=")
        assert found[name] in SpecifierSet(f"=={floor}"), name


@pytest.mark.slow
def test_what_is_installed_goes_together() -> None:
    """`pip check`, of the environment that the tests run in."""
    checked = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_licences_are_listed_of_every_package() -> None:
    """`scripts/licences.py` must run again when a lock has changed."""
    text = (REPOSITORY / "LICENSES-THIRD-PARTY.md").read_text()
    rows = {
        row[0]: row[1]
        for row in re.findall(r"^\| ([a-z0-9-]+) \| (\d\S*) \| [^|]*\w[^|]* \|$", text, flags=re.MULTILINE)
    }
    elsewhere = {"colorama"}  # for Windows
    assert rows == {name: version for name, version in pins("requirements-dev.lock").items() if name not in elsewhere}
