"""Cards of ours: where they are, what is in them, and that what they say of units and of late parties is complete."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from types import ModuleType

from tests.every import for_each
from vflbench import registry
from vflbench.types import UNITS, Sent, module_name, unit_of

FACTS = {"algorithm": "ALGORITHM", "dataset": "DATASETS", "model": "MODEL_NAMES"}
PLACES = [
    *((group, name) for group in ("algorithm", "dataset", *registry.GROUPS) for name in registry.entries(group)),
    *(("model", name) for name in registry.model_entries()),
]
# what cards of a room share: it need not have a module
SHARED = ("_methods", "_messages", "model_facts", "extras", "codecs")
CARDS = [path for path in sorted(registry.CARDS.rglob("*.py")) if path.stem != "__init__"]
ENTRIES = [(name, entry) for name in registry.algorithms() for entry in registry.exposed(name)]


def defined(path: Path) -> set[str]:
    """The names that a module defines at its top, without those that it imports."""
    names: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {leaf.id for target in targets for leaf in ast.walk(target) if isinstance(leaf, ast.Name)}
    return names


def program(card: Path) -> Path:
    """Where the module is whose card it is."""
    return registry.ROOT / card.relative_to(registry.CARDS)


@for_each("card", CARDS)
def test_a_card_mirrors_a_module_and_has_no_program(card: Path) -> None:
    of_an_option = defined(card) & {*FACTS.values(), "OPTIONS"}
    module = program(card)
    assert module.is_file() or (not of_an_option and (module.with_suffix("").is_dir() or card.stem.endswith(SHARED)))
    assert not [node for node in ast.walk(ast.parse(card.read_text())) if isinstance(node, ast.AsyncFunctionDef)]
    if of_an_option:  # each fact is said once
        assert not defined(module) & {*FACTS.values(), "OPTIONS", "EXPOSES", "Config"}
        assert FACTS["dataset"] in of_an_option or "check" not in defined(module)  # it would never be called


@for_each(("group", "name"), PLACES)
def test_an_option_is_found_by_its_card(group: str, name: str) -> None:
    found = {**registry.model_entries(), **({} if group == "model" else registry.entries(group))}[name]
    card: ModuleType = registry.card(group, name)
    assert not found.plugin and found.card == card.__name__ and FACTS.get(group, "OPTIONS") in vars(card)
    if group != "accounting":  # it has no keys
        assert module_name(card.Config.__module__) == found.module  # types.module_of
    assert inspect.getdoc(card)


@for_each(("algorithm", "entry"), ENTRIES)
def test_all_that_carries_data_has_a_unit_and_what_is_noised_is_protected(algorithm: str, entry: Sent) -> None:
    assert (unit_of(entry) is None) == (entry.kind in ("ids", "sizes", "timing"))
    assert entry.unit is None or entry.unit != UNITS[entry.kind]
    if not isinstance(entry, Sent):
        return  # noise on a message leaves less of what follows from it, whatever the unit
    for mechanism in {name.partition(".")[0] for name in entry.noised}:
        units = registry.option_entries("privacy")[mechanism].info.units
        assert unit_of(entry) in units or "example" in units  # of which all that is sent of a row is part


def test_every_mechanism_says_what_it_protects() -> None:
    assert all(entry.info.units for entry in registry.option_entries("privacy").values())


@for_each("algorithm", registry.algorithms())
def test_a_method_tolerates_what_its_programs_do(algorithm: str) -> None:
    info, entry = registry.algorithms()[algorithm], registry.algorithm_entries()[algorithm]
    assert (info.tolerates.late != "waits") == info.time_dependent
    source = registry.ROOT.parent.joinpath(*entry.module.split(".")).with_suffix(".py").read_text()
    assert (info.tolerates.absent == "replaces") == ("expendable=True" in source)  # PartySpec
