"""Privacy of split learning: reductions to runs without it, what is released and how often, who sees which labels."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from tests.algorithms.small_columns import classes
from tests.algorithms.test_pubsub import SMALL, Run, close, constant, differ, run
from tests.every import few_fast
from tests.options import privacy_config
from vflbench.algorithms.split import avfl, avfl_ps, pubsub_vfl, vfl, vfl_ps, worker_replica
from vflbench.privacy import mechanisms
from vflbench.seeding import batches, derive

METHODS = [vfl, avfl, vfl_ps, avfl_ps, pubsub_vfl]
# The fast tests have the simplest and the one with channels.
FEW = [pytest.param(one, marks=[] if one in (vfl, pubsub_vfl) else [pytest.mark.slow]) for one in METHODS]
NOISED = ("gdp_embedding", "gaussian_gradient", "embedding_and_label")
EPOCHS = 3
OPTIONS = {"model": SMALL, "workers": 2, "passive_workers": 2, "outstanding": 2, "compute": constant(1, 1, 1)}


def spent(result: Run) -> dict[str, dict[str, Any]]:
    return mechanisms.by_organisation(result.engine.order)


@pytest.mark.parametrize("module", few_fast(FEW), ids=lambda module: module.__name__.split(".")[-1])
@pytest.mark.parametrize("name", [*NOISED, "label_rr"])
def test_without_noise_a_run_is_that_without_privacy(module: ModuleType, name: str) -> None:
    """To the last bit with a long clip, at any batch size; a short one changes it."""
    task = classes(samples=60, features=8, parties=3)
    options = {**OPTIONS, "batch_size": 7}  # the last batch has fewer rows
    free = run(module, task, **options)
    keys = {} if name == "label_rr" else {"clip": 1e6}
    found = run(module, task, **options, privacy=privacy_config(name, epsilon=math.inf, **keys))
    close(found.thetas, free.thetas, atol=0)
    assert found.observer.rows[-1] == {**free.observer.rows[-1], "epsilon": math.inf}
    assert found.total == free.total  # what randomised labels cost stays inside the organisation
    if keys:
        differ(
            run(module, task, **options, privacy=privacy_config(name, epsilon=math.inf, clip=1e-3)).thetas, free.thetas
        )


@pytest.mark.parametrize("module", FEW, ids=lambda module: module.__name__.split(".")[-1])
@pytest.mark.parametrize("name", NOISED)
def test_every_row_is_released_once_an_epoch_by_its_organisation(module: ModuleType, name: str) -> None:
    """What crosses between organisations is what was counted, and 8 is spent."""
    task = classes(samples=60, features=8, parties=3)
    size, samples = 7, task.public.samples
    crossed: dict[tuple[str, str], np.ndarray] = {}  # organisations -> rows' numbers of messages
    tag = "gradient" if name == "gaussian_gradient" else "embedding"

    def on_read(src: str, dst: str, sent_tag: str, epoch: int, payload: Any) -> None:
        ends = src.partition("_worker_")[0], dst.partition("_worker_")[0]
        if sent_tag != tag or ends[0] == ends[1] or isinstance(payload, dict):
            return
        rows = batches(0, epoch, samples, size)[payload[0]]
        if "_worker_" in src and module is vfl_ps:
            rows = vfl_ps.part(rows, 2, int(src[-1]))
        assert len(rows) == len(payload[3])
        np.add.at(crossed.setdefault(ends, np.zeros(samples, int)), rows, 1)

    privacy = privacy_config(name, epsilon=8.0)
    result = run(module, task, EPOCHS, **OPTIONS, batch_size=size, privacy=privacy, on_read=on_read)
    assert len(crossed) == 2 and all((times == EPOCHS).all() for times in crossed.values())
    found = spent(result)
    owners = ["active"] if tag == "gradient" else ["passive_1", "passive_2"]
    for owner in owners:
        one = found[owner]
        sent = [times for ends, times in crossed.items() if ends[0] == owner]
        assert one["counts"].tolist() == np.concatenate(sent).tolist()
        assert one["releases"] == {"planned": EPOCHS, "done": EPOCHS}
        assert 7.99 <= one["epsilon"] <= 8
    assert set(found) == {*owners, *(["active"] if name == "embedding_and_label" else [])}


@pytest.mark.parametrize("module", METHODS, ids=lambda module: module.__name__.split(".")[-1])
def test_all_workers_train_on_the_same_randomised_labels(module: ModuleType) -> None:
    """They are randomised once, whatever the workers; passive parties never get them, and validation has true ones."""
    task = classes(samples=60, features=8, parties=2)
    read: list[tuple[str, str]] = []

    def on_read(src: str, dst: str, tag: str, epoch: int, payload: Any) -> None:
        if tag == "labels":
            read.append((src, dst))

    before = task.labels.copy()
    result = run(module, task, **OPTIONS, privacy=privacy_config("label_rr", epsilon=0.5), on_read=on_read)
    active = [party for party in result.engine.order if party.organisation == "active"]
    kept = [party.state.labels for party in active]
    assert all((labels == kept[0]).all() for labels in kept) and 0.1 < np.mean(kept[0] != task.labels) < 0.7
    assert read == [("active", party.name) for party in active[1:]]
    assert (task.labels == before).all()
    assert [party.privacy.count for party in active] == [len(before)] + [0] * (len(active) - 1)
    assert {name: one["epsilon"] for name, one in spent(result).items()} == {"active": 0.5}
    again = run(module, task, **OPTIONS, privacy=privacy_config("label_rr", epsilon=0.5))
    assert (again.engine.parties["active"].state.labels == kept[0]).all()
    # the run that has these labels from the start differs in nothing
    task.labels[:] = kept[0]
    close(result.thetas, run(module, task, **OPTIONS).thetas, atol=0)


@pytest.mark.parametrize("seed", range(3))
def test_a_gradient_that_is_sent_again_has_the_noise_that_it_had(seed: int) -> None:
    task = classes(samples=44, features=8, parties=3)
    read: dict[tuple[str, int, int], list[torch.Tensor]] = {}

    def on_read(src: str, dst: str, tag: str, epoch: int, payload: Any) -> None:
        if tag == "gradient" and src == "active":
            sent = worker_replica.Gradient(*payload)
            read.setdefault((dst, epoch, sent.batch), []).append(sent.dz.clone())

    more = {"deadline": 30.0, "failure_rate": 0.3, "batch_size": 4, "seed": seed}
    privacy = privacy_config("gaussian_gradient", mu=1.0)
    result = run(pubsub_vfl, task, EPOCHS, **OPTIONS, **more, privacy=privacy, on_read=on_read)
    assert result.observer.extra["batches"]["repeated"] > 0 and max(map(len, read.values())) > 1
    assert all(torch.equal(dz, sent[0]) for sent in read.values() for dz in sent)
    found = spent(result)["active"]
    assert found["releases"] == {"planned": EPOCHS, "done": EPOCHS} and found["mu"] == pytest.approx(1.0, rel=1e-12)


def test_two_units_have_an_epsilon_each() -> None:
    task = classes(samples=60, features=8, parties=2)
    keys = {"epsilon": 4.0, "label_epsilon": 1.0}
    result = run(vfl, task, EPOCHS, **OPTIONS, privacy=privacy_config("embedding_and_label", **keys))
    found = mechanisms.together(spent(result))
    assert found is not None and found["unit"].startswith("one embedding row") and found["target"] == {"epsilon": 4.0}
    assert 3.99 <= found["epsilon"] <= 4 and found["label_epsilon"] == 1.0
    assert found["label_unit"] == "the label of one training row"
    assert found["epsilon_by_party"] == {"active": 1.0, "passive_1": found["epsilon"]}
    said = "; ".join(found["not_covered"])
    assert "which tell labels" not in said and "which tell features" not in said  # each half covers them
    # what only the labels' half says, and both at once
    assert "may stop by them" in said and "features of the party with the labels" in said and "bottom model" in said
    assert len(set(found["not_covered"])) == len(found["not_covered"]) and mechanisms.TIMES in found["not_covered"]
    assert result.observer.rows[-1]["epsilon"] == found["epsilon"]
    # with noise that is given, labels have 8
    given = run(vfl, task, **OPTIONS, privacy=privacy_config("embedding_and_label", noise_multiplier=2.0))
    assert spent(given)["active"]["epsilon"] == 8.0


def test_debias_changes_the_loss_alone() -> None:
    task = classes(samples=60, features=8, parties=2)
    plain, debiased = (
        run(vfl, task, **OPTIONS, privacy=privacy_config("label_rr", epsilon=1.0, debias=debias))
        for debias in (False, True)
    )
    labels = [one.engine.parties["active"].state.labels for one in (plain, debiased)]
    assert (labels[0] == labels[1]).all()
    differ(plain.thetas, debiased.thetas)


def test_noise_of_a_gradient_is_that_of_a_rows_own_loss() -> None:
    """A batch's loss is a mean: rows and noise are both divided by its size."""
    private = mechanisms.make(
        privacy_config("gaussian_gradient", noise_multiplier=3.0, clip=2.0), mechanisms.Facts(max_releases=5), True
    )
    rows = torch.zeros(1000, 8, dtype=torch.float64)
    rows[0] = 1.0  # of norm sqrt(8) for a limit of 2 / 1000
    generator = torch.Generator().manual_seed(derive(0, "test"))
    sent = private.protect(rows, np.arange(1000), generator, norm=private.norm / 1000)
    assert float(sent[1:].std()) == pytest.approx(3.0 * 2.0 / 1000, rel=0.03)
    private.noise_multiplier = 0.0
    clipped = private.protect(rows, np.arange(1000), generator, norm=private.norm / 1000)
    assert float(clipped[0].norm()) == pytest.approx(2.0 / 1000)
    assert private.spent()["clip"] == 2.0
