"""What is no algorithm or data set is refused when it is loaded, and what an algorithm does not declare when it does
it."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from vflbench import contract_checks, contracts, registry
from vflbench.federation.party import PartySpec
from vflbench.federation.simulated import SimulatedEngine
from vflbench.types import FederationError, Sent, VflbenchError

VFLBENCH = Path(contracts.__file__).parent
GOOD = """
from __future__ import annotations
from dataclasses import dataclass
from vflbench.types import AlgorithmInfo, Sent, Tolerates

ALGORITHM = AlgorithmInfo(
    name="mine", summary="", paper="", label="Mine", family="mine", place=0,
    layouts=("sharded",), divided_by="workers", reports=("parameters",),
)
EXPOSES = (Sent("model", "worker", "worker", "parameters", "worker"),)

@dataclass
class Config:
    name: str = "mine"
    workers: int = 5
    default_rounds: int = 3

def check(config): return []
def parties(task, config): return {}
"""
DATA = """
from __future__ import annotations
from dataclasses import dataclass
from vflbench.types import DatasetInfo

DATASETS = (DatasetInfo("mine", "", ("aligned",)),)

@dataclass
class Config:
    name: str = "mine"

def load(config, layout, parties, seed, root): ...
"""


def module(tmp_path: Path, text: str) -> ModuleType:
    path = tmp_path / "mine.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("mine", path)
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules["mine"] = found
    spec.loader.exec_module(found)
    return found


SEARCHED = """from vflbench.types import Interval
SEARCH = {{'algorithm.workers': Interval({})}}
EXPOSES = """
HELPERS = """
from functools import partial

class Set:
    def load(self, config, layout, parties, seed, root): ...

load = Set().load
check = partial(lambda config, layout, parties, least: [], least=1)
def load_row(path): ...
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ""),
        (
            "@dataclass\nclass Config:",
            "@dataclass\nclass Keys:\n    lr: float = 1.0\n\n@dataclass\nclass Config(Keys):",
        ),
        ("    workers: int = 5", "    workers: int = field(default_factory=lambda: 5)"),
        ("def check(config): return []", "check = lambda config: []\ndef decided(task): ..."),
        ('("sharded",)', '("sequence",)'),  # a layout of another package's
        (
            "@dataclass\nclass Config:",
            "from vflbench.types import Interval\n"
            "SEARCH = {'algorithm.workers': (2, 4), 'codec': ['none'] * 2, 'model.depth': Interval(1, 4, int=True)}\n"
            "@dataclass\nclass Config:",
        ),
    ],
)
def test_an_algorithm_that_keeps_the_contract_is_taken(tmp_path: Path, before: str, after: str) -> None:
    text = GOOD.replace(before, after).replace("import dataclass\n", "import dataclass, field\n")
    text = text if "sequence" not in after else text.replace('"parameters",)', '"predictions",)')
    contract_checks.check_algorithm(module(tmp_path, text))


def test_a_card_of_its_own_has_the_check(tmp_path: Path) -> None:
    card = module(tmp_path, GOOD.replace("def parties(task, config): return {}", ""))
    programs = ModuleType("programs")
    vars(programs).update(__file__="programs.py", parties=lambda task, config: {})
    contract_checks.check_algorithm(card, programs)
    programs.check = card.check  # type: ignore[attr-defined]
    with pytest.raises(VflbenchError, match=r"programs\.py: check is never called: it must be in the card, mine"):
        contract_checks.check_algorithm(card, programs)
    del programs.check  # type: ignore[attr-defined]
    card.check = "math:sqrt"  # type: ignore[attr-defined]
    contract_checks.check_algorithm(card, programs)
    card.check = "math:pow"  # type: ignore[attr-defined]
    with pytest.raises(VflbenchError, match=r"check takes \(x, y\), and is called as check\(config\)"):
        contract_checks.check_algorithm(card, programs)


def test_a_data_set_that_keeps_the_contract_is_taken(tmp_path: Path) -> None:
    contract_checks.check_dataset(module(tmp_path, DATA))
    contract_checks.check_dataset(
        module(tmp_path, DATA.replace("def load(config, layout, parties, seed, root): ...", HELPERS))
    )


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (
            "    workers: int",
            "    n_clients: int",
            "divided_by='workers', and Config has none of parties, workers, parts: all data",
        ),
        ('divided_by="workers"', "divided_by=None", "divided_by=None, and Config has workers"),
        ("    default_rounds: int = 3", "", "Config must have the key default_rounds, of type int"),
        (
            "default_rounds: int = 3",
            'default_rounds: str = "3"',
            "Config must have the key default_rounds, of type int",
        ),
        ('    name: str = "mine"', "    name: str", "Config must have a default for every key; name has none"),
        ("@dataclass\n", "", "Config must be a dataclass: add @dataclass"),
        (
            "@dataclass\nclass Config:",
            "@dataclass\nclass Keys:\n    name: str = ''\n\nclass Config(Keys):",
            "Config must be a dataclass: add @dataclass",
        ),
        ('name: str = "mine"', 'name: str = "other"', "Config has name='other' by default: it must be mine"),
        ("workers: int = 5", 'workers: str = "5"', "Config must have the key workers, of type int"),
        (
            "def parties(task, config)",
            "def parties(config, task)",
            "parties takes (config, task), and is called as parties(task, config)",
        ),
        ("def parties(task, config)", "async def parties(task, config)", "and is called as parties(task, config)"),
        ("def check(config): return []", "check = dict", "check takes other arguments"),
        ("ALGORITHM = AlgorithmInfo(", "ALGORITHM = dict(", "ALGORITHM must be an AlgorithmInfo(...)"),
        (
            "def parties(task, config)",
            "def parties(task)",
            "parties takes (task), and is called as parties(task, config)",
        ),
        ("def parties(task, config): return {}", "parties = 3", "parties is no function"),
        ("def parties", "def party", "parties(task, config) is missing: The parties by name, in their order"),
        ("def check(config)", "def checks(config)", "checks is never called. Did you mean 'check'?"),
        ("def check(config)", "def max_release(config, rounds)", "Did you mean 'max_releases'?"),
        ("def check(config)", "def decide(config)", "decide takes (config), and is called as decide(task, config)"),
        ("EXPOSES = ", "EXPOSED = ", "EXPOSES is missing"),
        (
            '"parameters", "worker"),',
            '"weights", "worker"),',
            "EXPOSES model: kind is 'weights'; there are features, embeddings",
        ),
        ('"parameters", "worker"),)', '"parameters", "worker"))', "EXPOSES must be a tuple of Sent"),
        (
            '"parameters", "worker"),',
            '"parameters", "worker", unit="row"),',
            "EXPOSES model unit has 'row': there are feature_row, label, edge",
        ),
        (
            '"parameters", "worker"),',
            '"parameters", "worker", unit="example"),',
            "EXPOSES model: unit='example' is that of parameters: leave it out",
        ),
        (
            'divided_by="workers",',
            'divided_by="workers", time_dependent=True, tolerates=Tolerates(late="ignores"),',
            "ALGORITHM tolerates late has 'ignores': there are waits, goes_on, retries",
        ),
        (
            'divided_by="workers",',
            'divided_by="workers", tolerates=Tolerates(late="goes_on"),',
            "ALGORITHM tolerates late='goes_on', which depends on time: time_dependent=True",
        ),
        ('("sharded",)', '("sharded", "rows")', "layouts has 'rows': there are aligned, graph, relational, sharded"),
        ('("parameters",)', '("params",)', "reports has 'params': there are predictions, partial, parameters"),
        ('("parameters",)', "()", "reports is empty"),
        ('("sharded",)', '("aligned",)', "whole models are scored only on sharded data"),
        (
            'divided_by="workers",',
            'divided_by="workers", remembered=("models",),',
            "remembered has 'models': there are model",
        ),
        ("EXPOSES = ", "SEARCH = 3\nEXPOSES = ", "SEARCH must be a dict of keys"),
        (
            "EXPOSES = ",
            "SEARCH = {'algorithm.lr': (1, 2)}\nEXPOSES = ",
            "SEARCH has 'algorithm.lr': there are algorithm.name, algorithm.workers",
        ),
        ("EXPOSES = ", "SEARCH = {'depth': (1, 2)}\nEXPOSES = ", "SEARCH has 'depth': there are algorithm.name"),
        ("EXPOSES = ", "SEARCH = {'codec': ('none',)}\nEXPOSES = ", "must be a tuple of at least two choices, or"),
        ("EXPOSES = ", SEARCHED.format("1, 1"), "SEARCH algorithm.workers is Interval(low=1, high=1, log=False"),
        ("EXPOSES = ", SEARCHED.format("0, 1, log=True"), "SEARCH algorithm.workers is Interval(low=0"),
        ("EXPOSES = ", SEARCHED.format("1, 2, where={'codec': 'none'}"), "workers where has 'codec': there are algo"),
    ],
)
def test_an_algorithm_that_breaks_it_is_told_what_is_expected(
    tmp_path: Path, before: str, after: str, told: str
) -> None:
    assert before in GOOD
    with pytest.raises(VflbenchError) as refused:
        contract_checks.check_algorithm(module(tmp_path, GOOD.replace(before, after)))
    assert told in str(refused.value) and str(tmp_path / "mine.py") in str(refused.value)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (
            "seed, root",
            "root",
            "load takes (config, layout, parties, root), and is called as load(config, layout, parties, seed, root)",
        ),
        (
            "def load(",
            "def loads(",
            "load(config, layout, parties, seed, root) is missing: The task in one of the layouts",
        ),
        ('("aligned",)', '("aligned", "alligned")', "layouts has 'alligned'"),
        ("DATASETS = ", "DATASET = ", "DATASETS is missing"),
        (
            '(DatasetInfo("mine", "", ("aligned",)),)',
            'DatasetInfo("mine", "", ("aligned",))',
            "DATASETS must be a tuple of DatasetInfo(...), at",
        ),
        ('(DatasetInfo("mine", "", ("aligned",)),)', "()", "DATASETS must be a tuple of DatasetInfo(...), at"),
        (
            "def load(",
            "def check(config): ...\ndef load(",
            "check takes (config), and is called as check(config, layout, parties)",
        ),
    ],
)
def test_a_data_set_that_breaks_it_is_told_what_is_expected(tmp_path: Path, before: str, after: str, told: str) -> None:
    assert before in DATA
    with pytest.raises(VflbenchError) as refused:
        contract_checks.check_dataset(module(tmp_path, DATA.replace(before, after)))
    assert told in str(refused.value)


def test_every_algorithm_of_ours_stands_in_the_room_it_names() -> None:
    for name, entry in registry.algorithm_entries().items():
        assert entry.module == f"vflbench.algorithms.{entry.info.family}.{name}"
        registry.load_algorithm(name)
    places = [(entry.info.family, entry.info.place) for entry in registry.algorithm_entries().values()]
    assert len(set(places)) == len(places)
    for name in registry.datasets():
        assert set(registry.datasets()[name].layouts) <= set(contracts.LAYOUTS) and registry.load_dataset(name)


def test_no_key_has_a_default_beside_its_declaration() -> None:
    """What a key means where an option lacks it is said in types.py alone, and of data sets in their room."""
    found = []
    for path in sorted(VFLBENCH.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if path.name == "types.py" or path.is_relative_to(VFLBENCH / "data") or "getattr(" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "getattr" and len(node.args) == 3:
                owner = ast.unparse(node.args[0]).split(".")[-1]
                found += (
                    [f"{path}:{node.lineno}"]
                    if owner in ("config", "cfg", "algorithm", "dataset", "model", "privacy", "info")
                    else []
                )
    assert found == []


# --- while it runs ----------------------------------------------------------------------------------------------------


def engine(program: Callable[..., Any], **how: Any) -> SimulatedEngine:
    async def silent(me: Any, data: Any, public: Any, config: Any) -> None:
        async for _ in me.rounds():
            pass

    return SimulatedEngine({"a": PartySpec(program), "b": PartySpec(silent)}, **how)


@pytest.mark.parametrize("evaluation", [False, True])
def test_a_tag_that_is_not_declared_is_refused(evaluation: bool) -> None:
    async def program(me: Any, data: Any, public: Any, config: Any) -> None:
        async for _ in me.rounds():
            if evaluation:
                async with me.evaluating():
                    await me.send("b", 1.0, tag="embeding")
            else:
                await me.send("b", 1.0, tag="embeding")

    exposes = (Sent("embedding", "a", "b", "embeddings", "a"), Sent("rows", "b", "a", "ids", "all"))
    with pytest.raises(
        FederationError, match=r"a sends 'embeding', which .*there are: embedding, rows. Did you mean 'embedding'"
    ):
        engine(program, exposes=exposes).run()


def test_a_tag_on_a_way_that_is_not_declared_is_refused() -> None:
    async def program(me: Any, data: Any, public: Any, config: Any) -> None:
        async for _ in me.rounds():
            await me.send("b", 1.0, tag="rows")

    exposes = (Sent("embedding", "a", "b", "embeddings", "a"), Sent("rows", "b", "a", "ids", "all"))
    with pytest.raises(FederationError, match="a sends 'rows' to b, and EXPOSES declares rows as b -> a"):
        engine(program, exposes=exposes).run()


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (
            {"predictions": {"testing": np.zeros((3, 2))}},
            "predictions of type dict: it must be a dict of arrays, by split: test, val",
        ),
        (
            {"partial": {"test": None}},
            "partial of type dict: it must be a dict of arrays, by split: rows, test, train, val",
        ),
        (
            {"params": 1.0},
            "a reports 'params' in round 1; what can be reported is train_loss, .*Did you mean 'parameters'",
        ),
        (
            {"predictions": np.zeros((3, 2))},
            "a reports predictions of type ndarray: it must be a dict of arrays, by split",
        ),
        ({"facts": 3.0}, "a reports facts of type float: it must be a dict with names as keys"),
        ({"train_loss": "low"}, "a reports train_loss of type str: it must be a number"),
        ({"offset": [1.0]}, "a reports offset of type list: it must be an array"),
        (
            {"parameters": np.zeros(3)},
            "a reports 'parameters'; its ALGORITHM says that it reports predictions, partial",
        ),
    ],
)
def test_a_report_that_nobody_asks_for_is_refused(values: dict[str, Any], told: str) -> None:
    async def program(me: Any, data: Any, public: Any, config: Any) -> None:
        async for _ in me.rounds():
            me.report(**values)

    with pytest.raises(FederationError, match=told):
        engine(program, reports=("predictions", "partial")).run()
