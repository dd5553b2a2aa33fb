"""engine=ray on a user's files: a party builds its own part from its own file, and needs nobody else's. No process is
started here."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from vflbench import config, registry
from vflbench.data.tasks import AlignedTask
from vflbench.runner.costs import core_seconds
from vflbench.runner.distributed import Briefing, Surveyor, party, same
from vflbench.runner.federation import Federation, Known
from vflbench.types import DataError, RunConfig


def composed(words: list[str], folder: Path | None = None) -> RunConfig:
    with config.session(words, folder) as hydra:
        plan = config.plan(hydra, words)
        assert plan.config is not None
        return plan.config


def tables(folder: Path, common: str) -> dict[str, Path]:
    """A file for each of three parties, rows in an order of its own, some of them nobody else's (`common`=some)."""
    rng, names = np.random.default_rng(0), [f"id{i}" for i in range(60)]
    paths = {}
    for k, owner in enumerate(("active", "passive_1", "passive_2")):
        kept = list(rng.permutation(60)[: 60 if common == "all" else 50])
        frame = pd.DataFrame({"id": [names[i] for i in kept]})
        for column in range(k + 1):
            frame[f"x{column}"] = rng.normal(size=len(kept)) * 10.0**column
        frame["colour"] = rng.choice(["red", "green", None], len(kept))
        if k == 0:
            frame["bought"] = [i % 2 for i in kept]
        paths[owner] = folder / f"{owner}.csv"
        frame.to_csv(paths[owner], index=False)
    return paths


def survey(words: list[str], folder: Path | None = None) -> tuple[RunConfig, Federation, Known, dict[str, Briefing]]:
    run_config = composed([*words, "engine=ray"], folder)
    info = registry.algorithms()[run_config.algorithm.name]
    found: Any = Surveyor().survey(run_config, info)
    assert isinstance(found, tuple), found
    return run_config, Federation(run_config, info), *found


def alone(run_config: RunConfig, known: Known, message: Briefing, name: str) -> Any:
    """The data and program that party `name` builds in its process."""
    info = registry.algorithms()[run_config.algorithm.name]
    made = party(
        run_config, info, 1, None, name, known=dataclasses.replace(known, task=message.task), index=message.index
    )
    return made["specs"][name]


def only(owned: dict[str, Path], owner: str | None) -> None:
    """The other parties' files are out of sight."""
    for name, path in owned.items():
        hidden = path.with_suffix(".hidden")
        source, target = (hidden, path) if name == owner else (path, hidden)
        if source.exists():
            source.rename(target)


def each_needs_its_own(words: list[str], owned: dict[str, Path], owner_of: Any) -> dict[str, Briefing]:
    run_config, whole, known, messages = survey(words)
    assert set(messages) == set(whole.specs)
    for name, spec in whole.specs.items():
        only(owned, owner_of(name))
        own = alone(run_config, known, messages[name], name)
        assert same(own.data, spec.data) and same(own.program, spec.program), name
    return messages


@pytest.mark.parametrize(
    ("algorithm", "alignment"),
    [
        pytest.param("vfl", "psi", marks=pytest.mark.slow),
        pytest.param("send_once", "given", marks=pytest.mark.slow),
        pytest.param("vfl", "given", marks=pytest.mark.slow),
        pytest.param("pubsub_vfl", "psi", marks=pytest.mark.slow),
        pytest.param("pubsub_vfl", "given", marks=pytest.mark.slow),
    ],
)
def test_a_party_opens_its_own_table_and_no_other(algorithm: str, alignment: str, tmp_path: Path) -> None:
    paths = tables(tmp_path, "all" if alignment == "given" else "some")
    files = ",".join(map(str, paths.values()))
    words = [
        f"algorithm={algorithm}",
        "algorithm.parties=3",
        "dataset=tabular_files",
        f"dataset.files=[{files}]",
        "dataset.label=bought",
    ]
    words += ["dataset.id=id", f"dataset.alignment={alignment}", "algorithm.batch_size=8"]
    words += ["algorithm.workers=2", "algorithm.passive_workers=2"] if algorithm == "pubsub_vfl" else []
    messages = each_needs_its_own(words, paths, lambda name: name.partition("_worker")[0])
    task = messages["passive_1"].task
    assert isinstance(task, AlignedTask) and task.rows is not None
    # they are the active party's
    assert not task.labels.any() and not any(truth.any() for truth in task.held_out_labels.values())
    assert [len(rows) > 0 for rows in task.rows] == [False, True, False]
    assert messages["active"].task.labels.any()
    only(paths, "passive_1")
    frame = pd.read_csv(paths["passive_1"])
    frame.iloc[::-1].to_csv(paths["passive_1"], index=False)
    run_config, message = composed([*words, "engine=ray"]), messages["passive_1"]
    with pytest.raises(DataError, match=r"passive_1.csv has changed since the files were brought together"):
        load = registry.load_dataset("tabular_files").load_own
        load(run_config.dataset, "aligned", 3, 0, None, message.task, message.index)


@pytest.mark.slow
def test_a_client_of_a_graph_opens_the_shared_features_and_its_own_edges(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", rng.normal(size=(60, 12)).astype(np.float32))
    np.save(tmp_path / "y.npy", rng.integers(0, 2, 60))
    owned = {}
    for m in range(3):
        owned[f"client_{m}"] = tmp_path / f"e{m}.npy"
        np.save(owned[f"client_{m}"], rng.integers(0, 60, (80, 2)))
    words = [
        "algorithm=glasu",
        "dataset=graph_files",
        f"dataset.features={tmp_path / 'x.npy'}",
        f"dataset.labels={tmp_path / 'y.npy'}",
    ]
    words += [f"dataset.client_edges=[{','.join(map(str, owned.values()))}]"]
    run_config, whole, known, messages = survey(words)
    (tmp_path / "y.npy").unlink()  # labels are told
    for name, spec in whole.specs.items():
        only(owned, name)
        own = alone(run_config, known, messages[name], name)
        assert same(own.data, spec.data) and same(own.program, spec.program), name


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["rfl_admm", "rfl_sgd"])
def test_a_client_of_a_join_opens_its_own_table(algorithm: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    users = pd.DataFrame({"user": np.arange(30), "age": rng.normal(size=30), "height": rng.normal(size=30)})
    orders = pd.DataFrame(
        {"order": np.arange(80), "user": rng.integers(0, 30, 80), "sum": rng.normal(size=80), "y": rng.normal(size=80)}
    )
    owned = {"users": tmp_path / "users.csv", "first": tmp_path / "first.csv", "second": tmp_path / "second.csv"}
    users.to_csv(owned["users"], index=False)
    orders[:50].to_csv(owned["first"], index=False)
    orders[50:].to_csv(owned["second"], index=False)
    (tmp_path / "dataset").mkdir()
    (tmp_path / "dataset" / "sql.yaml").write_text(
        f"""
name: sql
tables:
  users: {{url: {owned["users"]}}}
  orders: {{url: [{owned["first"]}, {owned["second"]}], keys: [user, order], label: y}}
joins: [orders.user = users.user]
"""
    )
    run_config, whole, known, messages = survey([f"algorithm={algorithm}", "dataset=sql"], tmp_path)
    assert set(messages) == set(whole.specs) and len(whole.specs) > 3
    parts = {"orders": ("first", "second"), "users": ("users",)}
    for name, spec in whole.specs.items():
        index = messages[name].index
        table = None if index is None else known.task.clients[index].table
        for other, path in owned.items():
            only({other: path}, other if table and other in parts[table] else None)
        own = alone(run_config, known, messages[name], name)
        assert same(own.data, spec.data) and same(own.program, spec.program), name


def test_a_party_that_holds_everything_opens_everything(tmp_path: Path) -> None:
    files = ",".join(map(str, tables(tmp_path, "all").values()))
    words = [
        "algorithm=centralized_gd",
        "algorithm.parties=3",
        "dataset=tabular_files",
        f"dataset.files=[{files}]",
        "model=split_mlp",
    ]
    _, whole, _, messages = survey([*words, "dataset.label=bought", "dataset.id=id"])
    assert len(whole.specs) == 1 and messages == {}


def test_no_more_cores_are_busy_than_there_are() -> None:
    """Computations from 0 to 2 s, 1 to 3 s and 1 to 2 s: one core, then three that are wanted, then one."""
    rows = np.array([[0, 0, 0, 2.0, 2.0], [0, 0, 0, 2.0, 3.0], [0, 0, 0, 1.0, 2.0]])
    assert [core_seconds(rows, cores, 1) for cores in (1, 2, 3)] == [3.0, 4.0, 5.0]
    assert core_seconds(rows, 4, 2) == 2 + 4 + 2
    assert core_seconds(rows[:0], 2, 1) == 0
