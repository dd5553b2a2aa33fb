"""Every data set whose columns are divided can order them first, and no other has the key."""

import dataclasses

import pytest

from tests.every import few_fast
from tests.options import card_of
from vflbench import registry

KEYS = {n: {f.name for f in dataclasses.fields(registry.option_config("dataset", n))} for n in registry.datasets()}
DIVIDED = [name for name, keys in KEYS.items() if "columns" in keys]
SMALL = {"criteo": {"samples": 60}, "synthetic": {"samples": 60, "features": 20, "informative": 5, "redundant": 3}}


def test_it_stands_beside_columns():
    assert {"bank", "criteo", "ridge", "tabular_files"} <= set(DIVIDED)
    for name, keys in KEYS.items():
        assert ("order" in keys) == (name in DIVIDED), name


@pytest.mark.parametrize(
    "name",
    few_fast(
        [
            pytest.param(name, marks=[pytest.mark.slow] if name in ("blog", "gisette") else [])  # hundreds of columns
            for name in DIVIDED
            if name != "tabular_files"
        ],
        3,
    ),
)
def test_a_division_keeps_every_column_and_changes_who_has_it(name):
    module = registry.load_dataset(name)
    kept = {"source": "auto"} if name in ("ridge", "synthetic") else {"source": "synthetic"}
    if name in ("digits", "breast_cancer"):
        kept = {}
    keys = {"name": name, **kept, **SMALL.get(name, {"samples": 60})}
    tasks = {
        order: module.load(card_of(module).Config(**keys, order=order), "aligned", 2, 0, None)
        for order in ("file", "interleaved", "shuffled")
    }
    widths = {order: [block.shape[1] for block in task.features] for order, task in tasks.items()}
    if name != "criteo":  # there, categories of a party share its hashed columns
        assert len({sum(width) for width in widths.values()}) == 1
        columns = {o: sorted(c.tobytes() for b in task.features for c in b.T) for o, task in tasks.items()}
        assert columns["file"] == columns["interleaved"] == columns["shuffled"]
    first = {order: task.features[0].tobytes() for order, task in tasks.items()}
    assert len(set(first.values())) == 3
