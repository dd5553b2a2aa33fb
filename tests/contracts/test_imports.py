"""Who may import whom (ARCHITECTURE.md, section 3), by walking the source: left may import right, imports inside
functions included."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from vflbench import registry

ROOT = Path(__file__).resolve().parents[2] / "vflbench"
BASE = {"types", "defaults", "seeding", "version", "compiler"}
PIECES = {"data", "models", "federation", "privacy"}
# room -> rooms it may import besides itself and BASE
ALLOWED: dict[str, set[str]] = {
    "types": set(),
    "defaults": set(),
    "seeding": set(),
    "compiler": set(),
    "contracts": set(),
    "cards": set(),
    "registry": {"cards", "contracts"},
    **{piece: {"cards"} for piece in PIECES},
    "algorithms": {"cards"} | PIECES,
    "attacks": {"cards"} | PIECES,
    "results": {"registry"},
    "plots": {"exposure", "results", "registry"},
    "adapt": {"registry"},
    "exposure": {"registry"},
    "runner": {"cards", "adapt", "exposure", "algorithms", "attacks", "results", "registry", "contracts"} | PIECES,
    "papers": {
        "cards",
        "adapt",
        "config",
        "contracts",
        "runner",
        "algorithms",
        "attacks",
        "results",
        "plots",
        "registry",
    }
    | PIECES,
    "version": set(),
    "config": {"cards", "adapt", "registry", "contracts"} | PIECES,
}
ALLOWED["choosing"] = {"exposure", "config", *ALLOWED["papers"]}
ALLOWED["cli"] = {"choosing", "exposure", "papers", "config", *ALLOWED["papers"]}
ALLOWED["python"] = {"cli", *ALLOWED["cli"]}
ALLOWED["__main__"] = {"cli"}
# packages that a room must not touch, at any depth of its code
FORBIDDEN = {
    "results": {"torch", "torch_geometric", "opacus", "hydra", "omegaconf"},
    "plots": {"torch", "torch_geometric", "opacus", "hydra", "omegaconf"},
    "data": {"torch", "torch_geometric", "opacus", "hydra", "omegaconf"},
    "types": {"torch", "numpy", "hydra", "omegaconf"},
    "defaults": {"torch", "numpy", "hydra", "omegaconf"},
    "cards": {"torch", "numpy", "pandas", "hydra", "omegaconf"},
    "registry": {"torch", "numpy", "hydra", "omegaconf"},
    "exposure": {"torch", "numpy", "hydra", "omegaconf"},
    **{room: {"hydra", "omegaconf"} for room in ("algorithms", "models", "federation", "privacy", "runner")},
}
# room of data -> rooms of data that it may import; a set may import them all, but no other kind of set
DATA = {
    "readers": set(),
    "tasks": set(),
    "divide": {"tasks"},
    "columns": {"readers", "divide"},
}
SETS = ("tabular", "relational", "graph", "images", "shapes")
DATA |= {kind: set(DATA) for kind in SETS}
TORCH_FILES = {"data/graph/pyg_file.py": {"torch"}}  # what torch.save wrote is read by torch
SOURCES = sorted(ROOT.rglob("*.py"))


def imported(tree: ast.AST) -> set[str]:
    """Dotted names of every module imported; `from a import b` may name a module too, so it gives a.b."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide who imports whom"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def executed(path: Path) -> ast.AST:
    """The module without what only a type checker reads."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    tree.body = [
        node for node in tree.body if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
    ]
    return tree


def room(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").parts[0]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_import_arrows(path: Path) -> None:
    if path == ROOT / "__init__.py":  # the functions of vflbench.python are imported when they are used
        assert {n for n in imported(executed(path)) if n.startswith("vflbench.")} == {"vflbench.version.__version__"}
        return
    here = room(path)
    assert here in ALLOWED, f"a new room: say in {Path(__file__).name} whom it may import"
    names = imported(executed(path))
    rooms = {name.split(".")[1] for name in names if name.startswith("vflbench.")}
    assert rooms <= ALLOWED[here] | BASE | {here}
    packages = {name.split(".")[0] for name in names}
    assert not packages & FORBIDDEN.get(here, set()) - TORCH_FILES.get(path.relative_to(ROOT).as_posix(), set())


@pytest.mark.parametrize(
    "path",
    sorted((ROOT / "algorithms").rglob("*.py")),
    ids=lambda path: path.relative_to(ROOT / "algorithms").as_posix(),
)
def test_algorithms_never_import_each_other(path: Path) -> None:
    """They meet only in what their family shares, which is in files that are no algorithm's.

    Methods of one exchange rival those of other families, and use what those share.
    """
    families = path.parents[1].iterdir() if path.parent.name == "oneshot" else [path.parent]
    pieces = {
        f"vflbench.algorithms.{other.parent.name}.{other.stem}"
        for family in families
        for other in family.glob("*.py")
        if not is_algorithm(other)
    }
    names = {name for name in imported(executed(path)) if name.startswith("vflbench.algorithms.")}
    assert all(any(name == piece or name.startswith(f"{piece}.") for piece in pieces) for name in names), names


@pytest.mark.parametrize("here", DATA)
def test_arrows_within_data(here: str) -> None:
    """Readers, tasks, divide, columns, then the sets, of which no kind knows another."""
    folders = {path.name for path in (ROOT / "data").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == DATA.keys()
    for path in sorted((ROOT / "data" / here).rglob("*.py")):
        names = [name.split(".") for name in imported(executed(path)) if name.startswith("vflbench.data.")]
        rooms = {name[2] for name in names} & folders
        assert rooms <= DATA[here] | {here}, path


def is_algorithm(path: Path) -> bool:
    return path.stem in registry.algorithms()


def module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """One way round for each circle that a walk from every node meets."""
    found: list[list[str]] = []
    done: set[str] = set()

    def walk(name: str, way: list[str]) -> None:
        if name in way:
            found.append([*way[way.index(name) :], name])
        elif name not in done:
            for other in sorted(graph[name]):
                walk(other, [*way, name])
            done.add(name)

    for name in graph:
        walk(name, [])
    return found


def test_no_module_imports_itself_in_a_circle() -> None:
    """Imports inside functions included: what needs them to break a circle has two things in one file."""
    modules = {module(path): path for path in SOURCES}
    graph = {}
    for name, path in modules.items():
        named = {full if full in modules else full.rpartition(".")[0] for full in imported(executed(path))}
        graph[name] = {other for other in named if other in modules} - {name}
    assert graph["vflbench"] and circles(graph) == []
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}}) == [["a", "b", "c", "a"]]


def test_only_the_command_prints() -> None:
    printing = {
        path.relative_to(ROOT).as_posix()
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    }
    assert printing <= {"cli/words.py"}
