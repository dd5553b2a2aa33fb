"""A file holds one idea: its classes and functions are short enough to be read at once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2] / "vflbench"
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
METHODS, LINES = 20, 60


def lines(function: FUNCTIONS) -> int:
    """The lines of a function without its docstring, which may list many parameters."""
    whole, first = (function.end_lineno or 0) - function.lineno + 1, function.body[0]
    if ast.get_docstring(function, clean=False) is None:
        return whole
    return whole - ((first.end_lineno or 0) - first.lineno + 1)


def large(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, FUNCTIONS) and lines(node) > LINES:
            yield f"{node.name}: {lines(node)} lines"
        elif isinstance(node, ast.ClassDef):
            methods = sum(isinstance(each, FUNCTIONS) for each in node.body)
            if methods > METHODS:
                yield f"{node.name}: {methods} methods"


def test_no_class_has_more_than_20_methods_and_no_function_more_than_60_lines() -> None:
    found = {
        path.relative_to(ROOT).as_posix(): names
        for path in sorted(ROOT.rglob("*.py"))
        if (names := [*large(path.read_text(encoding="utf-8"))])
    }
    assert found == {}
    body = "    x = 1\n" * LINES
    assert [*large(f"def short():\n{body[10:]}"), *large(f"def long():\n{body}")] == ["long: 61 lines"]
