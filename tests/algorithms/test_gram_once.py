"""Gram once: it is least squares on the joined table, for any tables, parts and duplicates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import vflbench
from tests.algorithms import small_joins
from vflbench.algorithms.joins import rfl_admm_v
from vflbench.algorithms.oneshot import gram_once
from vflbench.cards.data.relational.star_schema import Config as StarConfig
from vflbench.data.relational.star_schema import load
from vflbench.data.tasks import Equality, RelationalTask
from vflbench.types import ConfigError


def joined(task: RelationalTask, aligned: Any) -> tuple[np.ndarray, np.ndarray]:
    """Columns and targets of the materialised join."""
    y = np.eye(task.classes)[aligned.labels] if task.classes else aligned.labels[:, None]
    return np.concatenate(aligned.features, axis=1).astype(np.float64), y


def least_squares(x: np.ndarray, y: np.ndarray, penalty: float) -> tuple[np.ndarray, np.ndarray]:
    """Weights (d, f) and intercepts of the minimum of mean squares + penalty ||w||^2, by the augmented system."""
    centred, n = x - x.mean(axis=0), len(x)
    tall = np.concatenate([centred, np.sqrt(penalty * n) * np.eye(x.shape[1])])
    targets = np.concatenate([y - y.mean(axis=0), np.zeros((x.shape[1], y.shape[1]))])
    w = np.linalg.lstsq(tall, targets, rcond=None)[0]
    return w, y.mean(axis=0) - x.mean(axis=0) @ w


def weights(result: small_joins.Result, task: RelationalTask) -> np.ndarray:
    """Weights of all tables; clients of one table have the same."""
    names, found = [name for name in result.engine.parties if name != "server"], []
    for clients in task.public.parts:
        own = [result.engine.parties[names[c]].state.model.weight.detach().numpy().T for c in clients]
        assert all((one == own[0]).all() for one in own)
        found.append(own[0])
    return np.concatenate(found)


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("classes", [0, 3])
@pytest.mark.parametrize(("cross", "exact"), [("rows", 1e-9), ("moments", 1e-5)])  # moments have the rows' float32
def test_it_is_least_squares_on_the_materialised_join(cross: str, exact: float, classes: int, parts: int) -> None:
    task, aligned = small_joins.tables(parts, classes=classes), small_joins.aligned(classes=classes)
    cfg = small_joins.config(gram_once, 1, parts=parts, cross=cross, penalty=1e-3)
    result = small_joins.run(gram_once, task, cfg)
    x, y = joined(task, aligned)
    w, intercepts = least_squares(x, y, 1e-3)
    np.testing.assert_allclose(weights(result, task), w, rtol=exact, atol=exact)
    state = result.engine.parties["server"].state
    np.testing.assert_allclose(state.offset[0], intercepts, rtol=exact, atol=exact)
    np.testing.assert_allclose(state.loss, ((x @ w + intercepts - y) ** 2).sum() / len(x) / 2, rtol=10 * exact)
    partial = [values["partial"] for _, _, values in result.reports if "partial" in values]
    for split, rows in aligned.held_out_features.items():
        predicted = task.combine(split, partial) + state.offset
        expected = np.concatenate(rows, axis=1).astype(np.float64) @ w + intercepts
        np.testing.assert_allclose(np.sort(predicted, axis=0), np.sort(expected, axis=0), rtol=exact, atol=10 * exact)


@pytest.mark.parametrize("duplication", [1, 3])
@pytest.mark.parametrize("cross", ["rows", "moments"])
def test_duplicates_of_a_dimension_count_as_often_as_they_join(duplication: int, cross: str) -> None:
    how = StarConfig(rows=200, dimension_rows=30, width=3, duplication=duplication)
    task, aligned = load(how, "relational", 1, 0, None), load(how, "aligned", 2, 0, None)
    assert isinstance(task, RelationalTask)
    result = small_joins.run(gram_once, task, small_joins.config(gram_once, 1, cross=cross, penalty=1e-3))
    x, y = joined(task, aligned)
    assert len(y) == duplication * task.clients[0].rows
    np.testing.assert_allclose(weights(result, task), least_squares(x, y, 1e-3)[0], rtol=1e-4, atol=1e-5)


def test_one_table_is_ridge_in_closed_form() -> None:
    task = small_joins.tables()
    task = replace(task, tables=("ratings",), joins=(), clients=task.clients[:1])
    result = small_joins.run(gram_once, task, small_joins.config(gram_once, 1, penalty=0.01))
    x, y = np.asarray(task.clients[0].features, dtype=np.float64), task.clients[0].labels[:, None]
    np.testing.assert_allclose(weights(result, task), least_squares(x, y, 0.01)[0], rtol=1e-9)
    assert {tag for _, tag in result.sent()} == {"keys", "kinds", "labels", "mapping", "joined", "gram", "weights"}


def test_it_is_what_admm_tends_to() -> None:
    task = small_joins.tables()
    once = small_joins.run(gram_once, task, small_joins.config(gram_once, 1, cross="rows", penalty=1e-5))
    keys = {"solver": "exact", "proximal": True, "rho": 0.5, "weight_decay": 1e-5}
    many = small_joins.run(rfl_admm_v, task, small_joins.config(rfl_admm_v, 400, **keys))
    assert many.losses[-1] >= once.losses[-1] - 1e-9
    assert many.losses[-1] == pytest.approx(once.losses[-1], rel=1e-3)


@pytest.mark.parametrize("cross", ["moments", "rows"])
def test_bytes_by_the_formula(cross: str) -> None:
    task = small_joins.tables()
    result = small_joins.run(gram_once, task, small_joins.config(gram_once, 3, cross=cross))
    everything = result.sent()
    sent = {tag: size for (round, tag), size in everything.items() if round}
    assert {round for round, _ in everything} == {0, 1}
    joins = result.engine.parties["server"].state.mapping["rows"]
    n_movies, n_users = (int(rows.max()) + 1 for rows in joins[1:])
    keys = len(np.unique(task.clients[0].keys["movie"])) + len(np.unique(task.clients[0].keys["user"]))
    assert sent["ask"] == 2 and sent["weights"] == 8 * 7 and sent["sums"] == 8 * 2 * keys
    own = 8 * (3 + 2 + 2)  # ratings: 2 columns
    if cross == "rows":
        assert sent["rows"] == 4 * (3 * n_movies + 2 * n_users) and sent["gram"] == own
    else:  # movies have most numbers: they keep their rows
        assert sent["rows"] == 4 * 2 * n_users and sent["moments"] == 4 * n_movies * (1 + 2 + 2)
        assert sent["gram"] == own + 8 * (6 + 3 + 3 * (1 + 2 + 2))


def test_what_it_cannot_do_is_refused() -> None:
    task = small_joins.tables()
    chain = replace(task, joins=(task.joins[0], Equality(("movies", "id"), ("users", "id"))))
    with pytest.raises(ConfigError, match="needs every table to join ratings, and movies joins users: use rfl_admm_v"):
        gram_once.parties(chain, small_joins.config(gram_once))
    refused = {
        "model.relu_output=true": "no closed form",
        "codec=int8": "the very sums",
        "model.intercept=none": "use label",
    }
    for word, told in refused.items():
        with pytest.raises(ConfigError, match=told):
            vflbench.run(["algorithm=gram_once", "dataset=star_schema", word])
