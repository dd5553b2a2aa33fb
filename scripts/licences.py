"""Writes LICENSES-THIRD-PARTY.md: the licence of each package of the locks, from the metadata of what is installed.

make setup-dev && .venv/bin/python scripts/licences.py
"""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).resolve().parent.parent
TARGET = REPOSITORY / "LICENSES-THIRD-PARTY.md"
HEAD = """# Licences of what is installed

vflbench itself is under Apache-2.0 (`LICENSE`). It carries no code of others: `make run` and `make test` fetch these
packages from your package index. The licences are those that each package states of itself; nearly all bring the text
along, in their `*.dist-info` folder below `.venv`. `scripts/licences.py` makes this file from the locks.

A torch that was built with CUDA brings NVIDIA's packages besides: `nvidia-*`, proprietary, under NVIDIA's own licences;
`cuda-*`; and `triton` (MIT). torch without CUDA brings none of them.
"""


def pinned(lock: Path) -> dict[str, str]:
    """Each package that `lock` installs here, by its canonical name, with its version."""
    lines = (line for line in lock.read_text().splitlines() if line and not line.startswith("#"))
    found = [Requirement(line) for line in lines]
    return {
        canonicalize_name(r.name): str(r.specifier).removeprefix("==")
        for r in found
        if r.marker is None or r.marker.evaluate()
    }


def licence(package: str) -> str:
    """What the metadata of `package` says: an SPDX expression, else the classifiers, else the licence field where it is
    a line."""
    about = metadata.metadata(package)
    classifiers = [c.rpartition(" :: ")[2] for c in about.get_all("Classifier", []) if c.startswith("License :: ")]
    named = ", ".join(c for c in classifiers if c != "OSI Approved")
    stated = str(about.get("License") or "").strip().splitlines()
    return str(
        about.get("License-Expression")
        or named
        or (stated[0] if len(stated) == 1 else f"a text of its own: {package}-*.dist-info")
    )


def table(packages: dict[str, str]) -> str:
    """A Markdown table of `packages`. Raises ValueError where one is not installed in that version."""
    rows = ["| package | version | licence |", "| --- | --- | --- |"]
    for package, version in sorted(packages.items()):
        if metadata.version(package).partition("+")[0] != version:
            raise ValueError(
                f"{package} {metadata.version(package)} is installed, and the lock has {version}: make setup-dev"
            )
        rows.append(f"| {package} | {version} | {licence(package)} |")
    return "\n".join(rows) + "\n"


def main() -> None:
    runs, all_of_it = pinned(REPOSITORY / "requirements.lock"), pinned(REPOSITORY / "requirements-dev.lock")
    rest = {package: version for package, version in all_of_it.items() if package not in runs}
    TARGET.write_text(
        f"{HEAD}\n## What runs need (`make run`)\n\n{table(runs)}\n## What tests and lint add (`make "
        f"test`)\n\n{table(rest)}"
    )


if __name__ == "__main__":
    main()
