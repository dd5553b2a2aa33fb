"""What is wrong with a configuration is told before torch is imported, and what runs on data is listed without it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.every import few_fast

REPOSITORY = Path(__file__).resolve().parents[1]
# What is typed -> what is said of it, each of its words.
MISTYPED = {
    "algoritm=glasu": ["Did you mean 'algorithm'?"],
    "algorithm=glasu datset=cora seed=1": ["Did you mean 'dataset'?"],
    "algorithm=glassu": ["unknown algorithm", "Did you mean 'glasu'?"],
    "dataset=corra privacy=none": ["Did you mean 'cora'?"],
    "model=gcnn algorithm.lr=fast": ["Did you mean 'gcn'?", "algorithm.lr=fast: must be a number"],
    "algorithm.lrr=1 rounds=0": ["Did you mean 'algorithm.lr'?", "rounds=0: must be at least 1"],
    "model.dropuot=0.1 dataset=bank": ["Did you mean 'model.dropout'?", "dataset=bank: glasu runs on graph data"],
    "algorithm=leasgd dataset=digits model=cnn3 privacy=dp_sgd model.kernl=3": ["Did you mean 'model.kernel'?"],
    "algorithm=rfl_sgd_v dataset=mimic3 dataset.varant=full": ["Did you mean 'dataset.variant'?"],
    "-m algorithm=glasu,standalone_gnn sed=0,1": ["Did you mean 'seed'?"],
    "algorithm=mtcd dataset=ridge algorithm.tokens=2 algorithm.walk=sweep": ["all tokens would make the same steps"],
    "algorithm=leasgd dataset=digits privacy=dp_sgd privacy.delta=1e-5 privacy.epsilon=0.1": ["must be above 0.1029"],
    "algorithm=glasu dataset=digits_graph algorithm.aggregate=cat model.hidden=64": ["nearest: 63 or 66"],
    "hydra.run.dri=x": ["Did you mean 'hydra.run.dir'?"],
    "lst": ["Did you mean 'list'?"],
}


def python(code: str, *args: str, cwd: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, env=environment, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("typed", few_fast([[*MISTYPED][:3], [*MISTYPED][3:]]))
def test_a_typo_is_told_without_torch(typed: list[str], tmp_path: Path) -> None:
    code = """if True:
        import sys
        sys.stderr = sys.stdout
        from vflbench import cli
        for line in sys.argv[1:]:
            assert cli.command(line.split()) == 1
            print("torch" in sys.modules, "\\f")
    """
    answers = python(code, *typed, cwd=tmp_path).split("\f")
    for line, answer in zip(typed, answers, strict=False):
        assert all(word in answer for word in MISTYPED[line]) and answer.split()[-1] == "False", f"{line}: {answer}"


@pytest.mark.slow
def test_what_runs_on_data_is_listed_without_torch(tmp_path: Path) -> None:
    code = """if True:
        import sys
        from vflbench import cli
        for dataset in ("bank", "ridge", "digits_graph"):
            assert cli.command(["list", f"dataset={dataset}"]) == 0
        assert cli.command(["explain", "algorithm.hops", "algorithm=mtcd", "dataset=ridge"]) == 0
        print("torch" in sys.modules)
    """
    assert python(code, cwd=tmp_path).split()[-1] == "False"


def test_no_card_imports_what_is_heavy(tmp_path: Path) -> None:
    code = """if True:
        import importlib, pkgutil, sys
        from vflbench import cards
        names = [found.name for found in pkgutil.walk_packages(cards.__path__, "vflbench.cards.")]
        for name in names:
            importlib.import_module(name)
        heavy = {"torch", "numpy", "pandas", "scipy", "sklearn", "hydra", "omegaconf"} & set(sys.modules)
        print(len(names), *heavy)
    """
    count, *heavy = python(code, cwd=tmp_path).split()
    assert int(count) > 100 and not heavy


@pytest.mark.slow
def test_neither_dry_run_nor_training_imports_torchs_compiler(tmp_path: Path) -> None:
    code = """if True:
        import sys
        from vflbench import cli
        words = ["algorithm=glasu", "dataset=digits_graph", "rounds=2", "plot=none", "floor=none"]
        assert cli.command([*words, "dry_run=true"]) == cli.command(words) == 0
        assert not hasattr(sys.modules["torch._dynamo"], "__file__") and "torch._dynamo.utils" not in sys.modules
    """
    assert "test_accuracy" in python(code, cwd=tmp_path)


@pytest.mark.slow
def test_what_asks_for_the_compiler_gets_it(tmp_path: Path) -> None:
    """By an attribute or by a submodule, and each module once."""
    code = """if True:
        import sys
        from vflbench import compiler
        compiler.put_off()
        import torch
        weight = torch.nn.Parameter(torch.ones(1))
        optimiser = torch.optim.Adam([weight])
        weight.grad = torch.ones(1)
        optimiser.step()
        assert not hasattr(torch._dynamo, "__file__")
        if sys.argv[1] == "attribute":
            assert not torch._dynamo.is_compiling()
        import torch._dynamo.utils as utils
        assert utils is torch._dynamo.utils is sys.modules["torch._dynamo.utils"] and utils.__spec__.origin
        assert torch._dynamo.__file__ and not [f for f in sys.meta_path if "vflbench" in type(f).__module__]
        optimiser.step()
        assert torch.compile(lambda x: x + 1, backend="eager")(weight) == weight + 1
        compiler.put_off()
        assert torch._dynamo.__file__
    """
    for way in ("attribute", "submodule"):
        python(code, way, cwd=tmp_path)
