import numpy as np

from vflbench.cards.data.graph.digits_graph import Config
from vflbench.config import convert
from vflbench.data.graph.digits_graph import load, nearest_neighbours


def test_digits_are_real_data_on_any_machine():
    task = load(Config(), "graph", 3, 0, None)
    assert task.source.kind == "real" and task.labels.shape == (1797,) and task.classes == 10
    assert [block.shape[1] for block in task.features] == [22, 22, 20] and task.joined().features.max() == 1
    assert [len(task.splits[name]) for name in ("train", "val", "test")] == [200, 300, 500]
    assert (task.labels[task.all_edges[0]] == task.labels[task.all_edges[1]]).mean() > 0.95


def test_neighbours_by_hand():
    # On a line at 0, 1, 3, 7: nearest of 0 is 1, of 1 is 0, of 3 is 1, of 7 is 3. So 0-1, 1-2, 2-3 by position.
    edges = nearest_neighbours(np.array([[0], [1], [3], [7]]), 1)
    assert edges.T.tolist() == [[0, 1], [1, 0], [1, 2], [2, 1], [2, 3], [3, 2]]


def test_each_image_has_at_least_as_many_neighbours_as_asked_for():
    few, many = (load(Config(neighbours=count), "graph", 3, 0, None).all_edges for count in (1, 9))
    assert np.bincount(few[0]).min() == 1 and np.bincount(many[0]).min() == 9


def test_wrong_values_are_configuration_errors():
    _, problems = convert(Config, {"keep_edges": 2, "source": "synthetic", "neighbours": 0, "validation": 1798})
    assert [problem.key for problem in problems] == ["keep_edges", "source", "neighbours", "validation"]
