"""Spaces: each method has one, its keys compose, its defaults lie inside; points are the same whenever asked for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.every import few_fast
from vflbench import config, registry
from vflbench.choosing import question, spaces
from vflbench.types import ConfigError, RunConfig, VflbenchError

ALGORITHMS = sorted(
    (name for name, entry in registry.algorithm_entries().items() if not entry.plugin),
    key=lambda name: (name not in ("mtcd", "send_once", "glasu"), name),  # three ways to search
)
CONVEX = ("dcpa", "stcd")
DATA = {
    "graph": ["dataset=digits_graph"],
    "aligned": ["dataset=breast_cancer", "dataset.problem=learning"],
    "relational": ["dataset=star_schema"],
    "sharded": ["dataset=digits"],
}


@pytest.fixture(scope="module")
def hydra() -> Iterator[Any]:
    with config.session() as hydra:
        yield hydra


def planned(hydra: Any, algorithm: str, *words: str) -> RunConfig:
    data = ["dataset=ridge"] if algorithm in ("tree_cg", "extra") else DATA[registry.algorithms()[algorithm].layouts[0]]
    typed = [f"algorithm={algorithm}", *data, *words]
    typed += ["dataset.problem=sparse_logistic"] if algorithm in CONVEX else []
    run = config.plan(hydra, typed).config
    assert run is not None
    return run


@pytest.mark.parametrize("algorithm", few_fast(ALGORITHMS, 3))
def test_every_space_has_the_defaults_inside_and_composes_at_its_ends(algorithm: str, hydra: Any) -> None:
    run, space = planned(hydra, algorithm), spaces.read(algorithm)
    assert space, "its card says what is searched"
    values = {**{key: spaces.value_at(given, 0.0) for key, given in space.items()}, **spaces.defaults(run, space)}
    for key in space.keys() & spaces.counting(values, space).keys():
        given = space[key]
        assert spaces.has(run, key), key
        default = spaces.default(run, key)
        if isinstance(given, list):
            assert default in given, (key, default)
        else:
            assert given["low"] <= default <= given["high"], (key, default)
    for share in (0.0, 1.0):
        values = spaces.counting({key: spaces.value_at(given, share) for key, given in space.items()}, space)
        run = planned(hydra, algorithm, *spaces.in_words(values))
        assert {key: spaces.default(run, key) for key in values} == values


def test_a_users_own_file_takes_precedence(tmp_path: Path, hydra: Any) -> None:
    (tmp_path / "search").mkdir()
    for name, text in {"vfl": "codec: [none, int8]", "privacy": "privacy.mu: {low: 0.1, high: 1}"}.items():
        (tmp_path / "search" / f"{name}.yaml").write_text(text)
    asked = question.parse(["algorithm=vfl", *DATA["aligned"], "trials=1"], "tune", str(tmp_path))
    run = planned(hydra, "vfl", "privacy=gdp_embedding", "privacy.mu=1")
    assert spaces.applicable("vfl", run, asked) == {"codec": ["none", "int8"], "privacy.mu": {"low": 0.1, "high": 1}}
    (tmp_path / "search" / "privacy.yaml").write_text("")  # nothing of mechanisms is searched
    assert spaces.applicable("vfl", run, asked) == {"codec": ["none", "int8"]}
    assert spaces.read("mine", str(tmp_path), "vfl") == {"codec": ["none", "int8"]}
    assert spaces.read("vfl_ps", str(tmp_path)) == spaces.read("vfl_ps") != {}


@pytest.mark.parametrize(
    ("words", "clipped"),
    few_fast(
        [
            ([], False),
            (["privacy=label_rr"], False),
            (["privacy=gdp_embedding"], True),
            (["privacy=gaussian_gradient"], True),
        ]
    ),
)
def test_the_clip_of_a_mechanism_is_searched_unless_it_is_typed(words: list[str], clipped: bool, hydra: Any) -> None:
    run = planned(hydra, "vfl", *words)
    asked = question.parse(["algorithm=vfl", *DATA["aligned"], *words, "trials=1"], "tune")
    assert ("privacy.clip" in spaces.applicable("vfl", run, asked)) == clipped
    rows = planned(hydra, "glasu", "privacy=edge_rr")
    both = planned(hydra, "glasu", "privacy=edge_rr", "privacy.row_epsilon=4")
    assert ["privacy.clip" in spaces.applicable("glasu", one, asked) for one in (rows, both)] == [False, True]
    asked.words.append("privacy.clip=2")
    assert "privacy.clip" not in spaces.applicable("vfl", run, asked)


@pytest.mark.slow
def test_keys_of_an_option_count_where_it_is_chosen(hydra: Any) -> None:
    asked = question.parse(["algorithm=vfl", *DATA["aligned"], "trials=1"], "tune")
    space = spaces.applicable("vfl", planned(hydra, "vfl"), asked)
    assert {"codec.fraction", "codec.feedback"} <= space.keys()
    points = [spaces.point(space, 0, number) for number in range(1, 17)]
    chosen = {point["codec"]: "codec.fraction" in point and "codec.feedback" in point for point in points}
    assert chosen == {"none": False, "fp16": False, "int8": False, "topk": True}
    for codec, kept in (("int8", False), ("topk", True)):
        asked.words = [*asked.words[:3], f"codec={codec}"]
        typed = spaces.applicable("vfl", planned(hydra, "vfl", f"codec={codec}"), asked)
        assert {"codec.fraction" in typed, "codec.feedback" in typed} == {kept} and "codec" not in typed
    assert "codec.feedback" not in spaces.defaults(planned(hydra, "vfl"), space)
    asked.words = ["codec.fraction=0.1"]
    assert "codec.fraction" not in spaces.applicable("vfl", planned(hydra, "vfl", "codec=topk"), asked)


def test_a_choice_counts_where_it_goes_with_another_one(hydra: Any) -> None:
    """Shipped are bins, which take no codec; raw columns do. Randomised bins go with nothing else."""
    for words, forms, codec in (([], 3, True), (["privacy=rr_bins"], 0, False)):
        asked = question.parse(["algorithm=send_once", *DATA["aligned"], *words, "trials=1"], "tune")
        space = spaces.applicable("send_once", planned(hydra, "send_once", *words), asked)
        assert (len(space.get("algorithm.form", [])), "codec" in space) == (forms, codec)


def test_a_range_counts_where_it_says(hydra: Any) -> None:
    """Columns in bins have no components, and a linear learner no leaves; a key that is typed is no part of a point."""
    asked = question.parse(["algorithm=send_once", *DATA["aligned"], "trials=1"], "tune")
    space = spaces.applicable("send_once", planned(hydra, "send_once"), asked)
    for number in range(1, 17):
        found = spaces.point(space, 0, number)
        assert ("algorithm.bins" in found) == (found["algorithm.form"] == "bins")
        assert ("algorithm.components" in found) == (found["algorithm.form"] == "pca")
        assert ("algorithm.leaves" in found) == (found["algorithm.learner"] == "trees")
    assert "algorithm.components" not in spaces.defaults(planned(hydra, "send_once"), space)
    asked.words.append("algorithm.form=pca")
    typed = spaces.applicable("send_once", planned(hydra, "send_once", "algorithm.form=pca"), asked)
    assert "algorithm.components" in spaces.point(typed, 0, 1)


SPACE: dict[str, Any] = {
    "algorithm.lr": {"low": 0.01, "high": 1.0, "log": True},
    "algorithm.local_steps": {"low": 1, "high": 16, "log": True, "int": True, "most": 20},
    "codec": ["none", "int8"],
}


def test_a_point_depends_on_space_seed_and_number_alone() -> None:
    points = [spaces.point(SPACE, 0, number) for number in (1, 2, 3)]
    assert [spaces.point(SPACE, 0, number) for number in (3, 1)] == [points[2], points[0]]
    assert len({str(point) for point in points}) == 3
    assert spaces.point(SPACE, 1, 1) != points[0]
    # a wider range moves its own axis alone
    wider = {**SPACE, "algorithm.lr": {"low": 0.01, "high": 10.0, "log": True}}
    moved = spaces.point(wider, 0, 2)
    assert moved.pop("algorithm.lr") > points[1].pop("algorithm.lr") and moved == points[1]


def test_the_points_of_a_seed_stay_what_they_are() -> None:
    """A search of an older version goes on with them. Of the first four points one is in each quarter of every axis."""
    (point, *_) = points = [spaces.point(SPACE, 0, number) for number in (1, 2, 3, 4)]
    assert point == {"algorithm.lr": 0.729, "algorithm.local_steps": 11, "codec": "none"}
    quarters = [int(4 * spaces.share_of(SPACE["algorithm.lr"], point["algorithm.lr"])) for point in points]
    assert sorted(quarters) == [0, 1, 2, 3] and [point["codec"] for point in points].count("int8") == 2


def test_shares_of_a_range_are_values_and_back() -> None:
    lr = SPACE["algorithm.lr"]
    assert [spaces.value_at(lr, share) for share in (0.0, 0.5, 1.0)] == [0.01, 0.1, 1.0]  # 10^-2, 10^-1, 10^0
    assert spaces.share_of(lr, 0.1) == pytest.approx(0.5)
    assert [spaces.value_at(["a", "b"], share) for share in (0.0, 0.49, 0.5, 1.0)] == ["a", "a", "b", "b"]
    even = {"low": 1, "high": 4, "int": True}
    assert [spaces.value_at(even, share) for share in (0.0, 0.24, 0.26, 0.99, 1.0)] == [1, 1, 2, 4, 4]


def test_a_value_at_an_edge_widens_its_range_as_far_as_it_may() -> None:
    assert spaces.edges(SPACE, {"algorithm.lr": 0.011, "algorithm.local_steps": 4, "codec": "none"}) == {
        "algorithm.lr": "low"
    }
    assert spaces.widened(SPACE["algorithm.lr"], "low") == {"low": 0.001, "high": 1.0, "log": True}
    wider = spaces.widened(SPACE["algorithm.local_steps"], "high")  # 16 * sqrt(16 / 1) = 64, at most 20
    assert wider is not None and wider["high"] == 20
    assert spaces.widened(wider, "high") is None
    assert spaces.widened(SPACE["algorithm.local_steps"], "low") is None  # there is no half step


def test_no_value_is_larger_than_the_data_allow(hydra: Any) -> None:
    """Breast cancer has 341 training rows; the batch of VFL goes to 1024, and its default is 256."""
    space = spaces.limited(spaces.read("vfl"), {"algorithm.batch_size": 341})
    assert space["algorithm.batch_size"]["high"] == 341 and spaces.value_at(space["algorithm.batch_size"], 1.0) == 341
    assert spaces.widened(space["algorithm.batch_size"], "high") is None
    few = spaces.limited(spaces.read("vfl"), {"algorithm.batch_size": 200})
    assert spaces.defaults(planned(hydra, "vfl"), few)["algorithm.batch_size"] == 200
    assert "algorithm.batch_size" not in spaces.limited(spaces.read("vfl"), {"algorithm.batch_size": 20})


@pytest.mark.parametrize("given", ["{low: 2, high: 1}", "{low: 0, high: 1, log: true}", "[1]", "{low: 1, hgh: 2}", "3"])
def test_a_range_that_is_none_is_refused_by_name(given: str, tmp_path: Path) -> None:
    (tmp_path / "search").mkdir()
    (tmp_path / "search" / "mine.yaml").write_text(f"algorithm.lr: {given}\n")
    with pytest.raises(ConfigError, match=r"mine.yaml algorithm.lr="):
        spaces.read("mine", str(tmp_path))


def test_numbers_are_read_as_in_hydras_files(tmp_path: Path) -> None:
    """PyYAML alone reads 3e-05 as a text."""
    (tmp_path / "search").mkdir()
    file = tmp_path / "search" / "mine.yaml"
    file.write_text("algorithm.lr: {low: 3e-05, high: 1e-3, log: true}\ncodec: [none, fp16]\n")
    assert spaces.read("mine", str(tmp_path)) == {
        "algorithm.lr": {"low": 3e-05, "high": 1e-3, "log": True},
        "codec": ["none", "fp16"],
    }
    for text in ("3", "- a", "a: [", "a: ${b", "~: [1, 2]", "a: !!set {x}", "true: [1, 2]"):
        file.write_text(text)
        with pytest.raises(VflbenchError, match=r"mine\.yaml"):
            spaces.read("mine", str(tmp_path))
