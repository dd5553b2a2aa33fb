"""Every notebook of the examples runs from its first cell to its last, as it would in Jupyter, and is kept without
results."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
# As a kernel does: one namespace, an event loop that is running, and the value of a cell's last line is shown.
KERNEL = """if True:
    import ast
    import asyncio
    import json
    import sys

    def show(value):
        if value is not None:
            print(value._repr_html_() if hasattr(value, "_repr_html_") else repr(value))

    async def kernel(cells):
        names = {"__name__": "__main__"}
        for cell in cells:
            tree = ast.parse(cell)
            last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, "cell", "exec"), names)
            if last is not None:
                show(eval(compile(ast.Expression(last.value), "cell", "eval"), names))
        axes = names["axes"]
        axes.figure.savefig("picture.png")
        left, right = axes.get_xlim()
        assert all(left <= x <= right for line in axes.get_legend_handles_labels()[0] for x in line.get_xdata())

    asyncio.run(kernel(json.load(sys.stdin)))
"""


def cells(notebook: Path) -> list[str]:
    content = json.loads(notebook.read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in content["cells"] if cell["cell_type"] == "code"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_results(notebook: Path) -> None:
    content = json.loads(notebook.read_text(encoding="utf-8"))
    found = [cell for cell in content["cells"] if cell["cell_type"] == "code"]
    assert found and not any(cell["outputs"] or cell["execution_count"] is not None for cell in found)


@pytest.mark.slow
@pytest.mark.minutes
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    environment = {name: value for name, value in os.environ.items() if name != "VFLBENCH_DATA"}
    environment |= {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path / "cache"), "MPLBACKEND": "Agg"}
    done = subprocess.run(
        [sys.executable, "-c", KERNEL],
        input=json.dumps(cells(notebook)),
        cwd=tmp_path / "examples",
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    for said in ("hospital: 2000 rows; 2000 of them in all files", "Run of vfl on tabular_files", "<td>vfl_sgd</td>"):
        assert said in done.stdout
    assert "SYNTHETIC" not in done.stdout
    assert (tmp_path / "examples/picture.png").stat().st_size > 5000
    assert not list((tmp_path / "cache/vflbench/tables").iterdir()), "the copies are removed in the end"
