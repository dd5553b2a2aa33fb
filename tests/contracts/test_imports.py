"""Who may import whom, where import-linter cannot say it: its contracts are in pyproject.toml, run by `make lint`."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

from vflbench import registry

ROOT = Path(__file__).resolve().parents[2] / "vflbench"


def module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module(path): path for path in ROOT.rglob("*.py")}


@functools.cache
def imported(path: Path) -> frozenset[str]:
    """The modules of ours that a module imports, also in its functions, but for what only a type checker reads."""
    names: set[str] = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    tree.body = [node for node in tree.body if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node))]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide who imports whom"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    places = (name if name in MODULES else name.rpartition(".")[0] for name in names)
    return frozenset(place for place in places if place in MODULES)


def test_algorithms_never_import_each_other() -> None:
    """They meet only in what their family shares, which is in files that are no algorithm's."""
    algorithms = {entry.module for entry in registry.algorithm_entries().values() if not entry.plugin}
    assert algorithms <= MODULES.keys()
    within = {name: imported(path) for name, path in MODULES.items() if name.startswith("vflbench.algorithms.")}
    assert {name: found for name, others in within.items() if (found := others & algorithms)} == {}


def test_no_package_imports_itself_through_its_modules() -> None:
    """Circles of modules side by side are import-linter's."""
    imports = {name: imported(path) for name, path in MODULES.items()}

    def reached(name: str) -> set[str]:
        found, ahead = set(), {name}
        while ahead:
            found |= ahead
            ahead = set().union(*(imports[one] for one in ahead)) - found
        return found

    inner = {(name, other) for name, others in imports.items() for other in others if name.startswith(f"{other}.")}
    assert inner
    assert [pair for pair in sorted(inner) if pair[0] in reached(pair[1])] == []
