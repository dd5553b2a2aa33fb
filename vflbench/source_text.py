"""What a module defines, read from its source: importing it would also import torch."""

import ast
import functools
import hashlib
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from vflbench.types import AlgorithmInfo, DatasetInfo, OptionInfo, VflbenchError

_LITERALS = {kind.__name__: kind for kind in (AlgorithmInfo, DatasetInfo, OptionInfo)}


def literal(path: Path, variable: str) -> Any:
    """The value that the module at `path` assigns to `variable`; None if it assigns none.

    Literals are numbers, texts, tuples, and calls of AlgorithmInfo, DatasetInfo and OptionInfo. There `**shared.FAMILY`
    stands for what the shared.py beside the module says of a whole family.

    Raises
    ------
    VflbenchError : the value is not a literal.
    """
    text = path.read_text(encoding="utf-8")
    # Only the lines of the assignment: parsing every whole file takes a tenth of a second.
    found = re.search(rf"^{variable}\b[^=\n]*=.*\n?(?:[ \t)\]}}#].*\n?|\n)*", text, re.MULTILINE)
    if found is None:
        return None
    try:
        body, above = ast.parse(found[0]).body, text.count("\n", 0, found.start())
    except SyntaxError:
        body, above = ast.parse(text, str(path)).body, 0
    for node in body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value and variable in _assigned(node):
            try:
                return _evaluate(node.value, path)
            except (ValueError, TypeError) as error:
                raise VflbenchError(
                    f"{path} line {above + node.lineno}: {variable} must be a literal: {error}"
                ) from error
    return None


def _assigned(node: ast.Assign | ast.AnnAssign) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [inner.id for target in targets for inner in ast.walk(target) if isinstance(inner, ast.Name)]


def _evaluate(node: ast.expr, path: Path) -> Any:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _LITERALS:
        named: dict[str, Any] = {}
        for keyword in node.keywords:
            named |= {keyword.arg: _evaluate(keyword.value, path)} if keyword.arg else _spread(keyword.value, path)
        return _LITERALS[node.func.id](*(_evaluate(argument, path) for argument in node.args), **named)
    if isinstance(node, ast.Tuple | ast.List):
        return tuple(_evaluate(element, path) for element in node.elts)
    return ast.literal_eval(node)


def _spread(node: ast.expr, path: Path) -> dict[str, Any]:
    """What `**shared.FAMILY` adds, or `**{**shared.FAMILY, "models": ...}`."""
    if not isinstance(node, ast.Dict):
        return dict(_family(path.with_name("shared.py")))
    named: dict[str, Any] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        named |= _spread(value, path) if key is None else {ast.literal_eval(key): _evaluate(value, path)}
    return named


@functools.cache
def _family(path: Path) -> Any:
    return literal(path, "FAMILY")


def path_of(module: str) -> Path:
    """The file of a module; our packages are not imported for it, as they may import torch.

    Raises
    ------
    ImportError : there is no such module.
    """
    if module.startswith("vflbench."):
        place = Path(__file__).parent.joinpath(*module.split(".")[1:])
        return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ImportError("there is no such module")
    return Path(spec.origin)


@functools.cache  # the code that a process runs is what it has imported, whatever changes later
def sha256_of(module: str) -> str:
    """The SHA-256 of a module's source, with all of the package that it is in."""
    path = path_of(module)
    whole = path.parent if path.name == "__init__.py" else path
    if depth := module.count("."):
        whole = whole.parents[depth - 1]
    content = hashlib.sha256()
    for file in sorted(whole.rglob("*.py")) if whole.is_dir() else [whole]:
        content.update(file.relative_to(whole).as_posix().encode() + b"\0" + file.read_bytes())
    return content.hexdigest()


class Excerpt:
    """Names of a module, each made from its own statement, and the statements that this one needs, when asked for."""

    def __init__(self, module: str) -> None:
        self.made = ModuleType(module)
        self.statements: dict[str, ast.stmt] = {}
        for node in ast.parse(path_of(module).read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ImportFrom | ast.Import):
                self.statements |= {alias.asname or alias.name.partition(".")[0]: node for alias in node.names}
            elif isinstance(node, ast.ClassDef | ast.FunctionDef):
                self.statements[node.name] = node
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                self.statements |= dict.fromkeys(_assigned(node), node)

    def __getattr__(self, name: str) -> Any:
        """As `make`: for a name in another excerpt, as in `partition.Division`."""
        return self.make(name)

    def make(self, name: str) -> Any:
        """What `name` is in the module.

        Raises
        ------
        KeyError : the module has no such name. Beside that, whatever a statement raises.
        """
        names, node = vars(self.made), self.statements[name]
        if name in names:
            return names[name]
        if (
            isinstance(node, ast.ImportFrom)
            and f"{node.module}.".startswith("vflbench.")
            and node.module not in sys.modules
        ):
            original = next(alias.name for alias in node.names if (alias.asname or alias.name) == name)
            place = excerpt(str(node.module))
            inside = original in place.statements
            names[name] = place.make(original) if inside else excerpt(f"{node.module}.{original}")
            return names[name]
        if not isinstance(node, ast.ImportFrom | ast.Import):
            for inner in ast.walk(node):
                if (
                    isinstance(inner, ast.Name)
                    and isinstance(inner.ctx, ast.Load)
                    and inner.id in self.statements
                    and inner.id != name
                ):
                    self.make(inner.id)
        exec(compile(ast.Module([node], []), str(self.made), "exec", dont_inherit=True), names)
        return names[name]


excerpt = functools.cache(Excerpt)
