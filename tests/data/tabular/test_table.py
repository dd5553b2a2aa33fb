"""Encoders, splits and the division of the columns; text that is read, or refused by file and line."""

import io
import zipfile
from dataclasses import dataclass

import numpy as np
import pytest

from vflbench.cards.data.tabular import blog as blog_card
from vflbench.cards.data.tabular import synthetic as synthetic_card
from vflbench.cards.data.tabular.table import ClassKeys, Keys, RegressionKeys
from vflbench.config import convert
from vflbench.data.tabular import sets, synthetic, table
from vflbench.data.tabular.table import Layout, Table, divide, read_text
from vflbench.types import ConfigError, DataError, DataSource, Metric

SOURCE, METRIC = DataSource("real", note="made"), Metric("rmse", "min")


@dataclass
class Both(Keys):
    name: str = "made"
    regression = True

    @property
    def weight(self):
        return {"ridge": 0.5, "sparse_logistic": 0.1}[self.problem]


def small(rows: int = 20) -> Table:
    """A number, a category of three levels of which `c` is that of row 7 only, a constant, a number."""
    rng = np.random.default_rng(0)
    levels = rng.integers(0, 2, rows).astype(float)
    levels[7] = 2
    values = np.column_stack([rng.normal(5, 3, rows), levels, np.full(rows, 0.1), rng.normal(-1, 0.1, rows)])
    return Table(
        values, ("age", "job", "one", "size"), {"job": ("a", "b", "c")}, values[:, 0] + rng.normal(0, 1, rows), 0
    )


def test_what_is_fitted_is_fitted_on_training_rows():
    given = small()
    given.values[3, 0] = 1e6  # a held-out row
    splits = {"train": np.array([0, 1, 2, 4, 5, 6, 8, 9]), "test": np.array([3, 7])}
    own = table.encode(given, slice(0, 4), splits, "standard", np.float64)
    train, test = own["train"], own["test"]
    assert train.shape == (8, 5) and test.shape == (2, 5)  # age, job=a, job=b, one, size: level c is not in training
    np.testing.assert_allclose(train[:, [0, 4]].mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(train[:, [0, 4]].std(axis=0), 1)
    fitted = given.values[splits["train"], 0]
    assert test[0, 0] == pytest.approx((1e6 - fitted.mean()) / fitted.std())
    np.testing.assert_array_equal(train[:, 1:3], np.eye(2)[given.values[splits["train"], 1].astype(int)])
    assert test[1, 1:3].tolist() == [0, 0]
    assert not train[:, 3].any()


def test_a_held_out_number_that_overflows_is_named():
    given = small()
    given.values[:, 3] *= 1e-12
    given.values[[3, 7], 3] = 5, 1e30
    splits = {"train": np.arange(3), "test": np.array([3, 7])}
    with pytest.raises(DataError, match=r"column size: 1e\+30 is too far from the numbers of the training rows"):
        table.encode(given, slice(1, 4), splits, "standard", np.float32)


def test_scaled_numbers_are_cut_at_the_largest_and_a_missing_one_stays_the_mean():
    given = small()
    given.values[3, 0], given.values[7, 0] = 1e6, np.nan
    splits = {"train": np.arange(3), "test": np.array([3, 7])}
    whole, cut = (table.encode(given, slice(0, 4), splits, "standard", np.float32, largest=b) for b in (np.inf, 0.5))
    numbers, rest = [0, whole["train"].shape[1] - 1], slice(1, -1)
    for split in splits:
        np.testing.assert_array_equal(cut[split][:, numbers], whole[split][:, numbers].clip(-0.5, 0.5))
        np.testing.assert_array_equal(cut[split][:, rest], whole[split][:, rest])  # categories are 0 or 1
    assert cut["test"][0, 0] == 0.5 < whole["test"][0, 0] and cut["test"][1, 0] == 0


@pytest.mark.parametrize("layout", ["aligned", "sharded", "relational"])
def test_every_layout_is_cut(layout):
    """As one table, in blocks of columns, or as shards of rows."""
    given, how = small(200), {"layout": layout, "parties": 2, "seed": 0}
    given.values[:, 0] = np.arange(200) == 5  # 14 deviations from its mean, or nowhere in training
    largest = []
    for clip in (None, 2.0):
        task = divide(blog_card.Config(clip=clip, test=0.1), given, SOURCE, METRIC, **how)
        held = {"aligned": "features", "sharded": "shards", "relational": "clients"}[layout]
        parts = [part if layout == "aligned" else part.features for part in getattr(task, held)]
        largest.append(max(float(np.abs(part).max()) for part in parts))
    assert largest[0] > 10 and largest[1] == 2.0


def test_range_scaling_keeps_zeros():
    given = Table(np.array([[0.0, 2.0], [5.0, 2.0], [10.0, 2.0]]), ("x", "y"), {}, np.zeros(3), 0)
    own = table.encode(given, slice(0, 2), {"train": np.arange(3)}, "range", np.float64)
    assert own["train"].tolist() == [[0, 0], [0.5, 0], [1, 0]]


@pytest.mark.parametrize("parties", [1, 2, 3, 4])
def test_columns_are_divided_evenly_and_in_order(parties):
    given = small()
    given.values[13, 1] = 2  # so that the level c is in training
    task, whole = (
        divide(Both(validation=0.2, test=0.2), given, SOURCE, METRIC, layout="aligned", parties=k, seed=3)
        for k in (parties, 1)
    )
    assert [block.shape[1] for block in task.features] == {1: [6], 2: [4, 2], 3: [4, 1, 1], 4: [1, 3, 1, 1]}[parties]
    np.testing.assert_array_equal(np.concatenate(task.features, axis=1), whole.features[0])
    for split in ("val", "test"):
        np.testing.assert_array_equal(
            np.concatenate(task.held_out_features[split], axis=1), whole.held_out_features[split][0]
        )
    assert (
        task.features[0].dtype == np.float32
        and task.objective is None
        and task.optimum is None
        and task.metric == METRIC
    )


def test_columns_are_divided_as_given():
    """Counted before categories become several columns; the same numbers as one party with all columns has."""
    given = small()
    given.values[13, 1] = 2  # so that the level c is in training
    made = {k: Both(validation=0.2, test=0.2, columns=k and list(k)) for k in (None, (3, 1), (1, 1, 2), (4,))}
    tasks = {
        k: divide(how, given, SOURCE, METRIC, layout="aligned", parties=len(k or "x"), seed=3)
        for k, how in made.items()
    }
    assert {k: [block.shape[1] for block in task.features] for k, task in tasks.items()} == {
        None: [6], (3, 1): [5, 1], (1, 1, 2): [1, 3, 2], (4,): [6],
    }  # fmt: skip
    for task in tasks.values():
        np.testing.assert_array_equal(np.concatenate(task.features, axis=1), tasks[None].features[0])
    ridge = divide(Both(problem="ridge", columns=[3, 1]), given, SOURCE, METRIC, layout="aligned", parties=2, seed=0)
    assert [block.shape[1] for block in ridge.features] == [5, 1]


@pytest.mark.parametrize(
    ("columns", "parties", "message"),
    [
        ([50, 440], 2, "dataset.columns=[50, 440]: adds up to 490, but there are 500 columns to divide."),
        (
            [50, 450],
            3,
            "dataset.columns=[50, 450]: has 2 numbers, but there are 3 parties: one for each, the labels' owner first.",
        ),
        ([0, 500], 2, "dataset.columns=[0, 500]: every party needs at least 1 column."),
        ([], 2, "dataset.columns=[]: has 0 numbers, but there are 2 parties"),
        ([501], 501, "algorithm.parties=501: must lie between 1 and 500"),
    ],
)
def test_columns_that_do_not_add_up_are_named_before_anything_is_loaded(columns, parties, message):
    config = synthetic_card.Config(columns=columns)
    assert [str(problem)[: len(message)] for problem in synthetic.check(config, "aligned", parties)] == [message]
    assert not synthetic.check(synthetic_card.Config(columns=[50, 450]), "aligned", 2)


@pytest.mark.parametrize(
    ("order", "given", "parties", "owned"),
    [
        ("interleaved", None, 2, [[0, 2, 4, 6], [1, 3, 5]]),
        ("interleaved", None, 3, [[0, 3, 6], [1, 4], [2, 5]]),
        # dealt 0, 1 | then party 0 has its one column, and party 1 gets the others
        ("interleaved", [1, 6], 2, [[0], [1, 2, 3, 4, 5, 6]]),
        ("interleaved", [4, 2, 1], 3, [[0, 3, 5, 6], [1, 4], [2]]),
        ("file", [4, 2, 1], 3, [[0, 1, 2, 3], [4, 5], [6]]),
    ],
)
def test_the_order_of_columns_before_they_are_divided(order, given, parties, owned):
    found = table.party_columns(given, parties, 7, order)
    assert [np.arange(7)[own].tolist() for own in found] == owned


def test_shuffled_columns_are_divided_by_the_seed():
    divisions = [table.party_columns([3, 4], 2, 7, "shuffled", seed) for seed in (0, 0, 1)]
    named = [[own.tolist() for own in division] for division in divisions]
    assert named[0] == named[1] != named[2]
    for division in named:
        assert [len(own) for own in division] == [3, 4] and sorted(division[0] + division[1]) == list(range(7))
        assert division == [sorted(own) for own in division]


@pytest.mark.parametrize("layout", ["aligned", "relational"])
def test_parties_get_the_columns_of_their_order_encoded_as_ever(layout):
    """The columns of `small` are age, job, one and size; the category job becomes three."""
    given = small()
    given.values[13, 1] = 2
    one = divide(Both(validation=0.2, test=0.2), given, SOURCE, METRIC, layout="aligned", parties=1, seed=3)
    dealt = Both(validation=0.2, test=0.2, order="interleaved", columns=[2, 2])
    task = divide(dealt, given, SOURCE, METRIC, layout=layout, parties=2 if layout == "aligned" else 1, seed=3)
    blocks = task.features if layout == "aligned" else [part.features for part in task.clients]
    kept = [[0, 4], [1, 2, 3, 5]]  # of the six encoded columns
    if layout == "aligned":
        for own, block in zip(kept, blocks, strict=True):
            np.testing.assert_array_equal(block, one.features[0][:, own])
    assert [block.shape[1] for block in blocks] == [2, 4]


def test_columns_that_are_not_divided_have_no_order():
    (problem,) = table.check(Both(order="shuffled"), "sharded", 2, 4)
    assert problem.key == "dataset.order" and problem.allowed.endswith("which are not divided: use file")
    assert not table.check(Both(order="shuffled"), "aligned", 2, 4)


def test_columns_are_of_aligned_data_only():
    (problem,) = table.check(Both(columns=[2, 2]), "sharded", 2, 4)
    assert problem.key == "dataset.columns" and "workers with rows of their own have all columns" in problem.allowed
    with pytest.raises(ConfigError, match=r"dataset\.columns=\[2, 3\]: adds up to 5, but there are 4 columns"):
        divide(Both(columns=[2, 3]), small(), SOURCE, METRIC, layout="aligned", parties=2, seed=0)


@pytest.mark.parametrize(("scaling", "dtype"), [("standard", np.float32), ("range", np.float64)])
def test_a_missing_number_becomes_0_and_fits_nothing(scaling, dtype):
    nan = np.nan
    values = np.array([[1.0, 5, nan, 2], [nan, 5, nan, 2], [3.0, nan, nan, 2], [5.0, 5, 1, nan]])
    given = Table(values, tuple("abcd"), {}, np.zeros(4), 0)
    own = table.encode(given, slice(0, 4), {"train": np.arange(3), "test": np.array([3])}, scaling, dtype)
    train, test = own["train"], own["test"]
    assert train.dtype == dtype and not train[:, 1:].any() and not test[:, 1:].any()
    assert train[:, 0].tolist() == ([-1, 0, 1] if scaling == "standard" else [0, 0, 1]) and test[0, 0] == (
        3 if scaling == "standard" else 2
    )


def test_learning_holds_out_rows_by_the_seed():
    given = small(200)
    task, same, other = (
        divide(Both(), given, SOURCE, METRIC, layout="aligned", parties=2, seed=seed) for seed in (0, 0, 1)
    )
    assert [len(task.labels), len(task.truth("val")), len(task.truth("test"))] == [120, 20, 60]
    everything = np.concatenate([task.labels, task.truth("val"), task.truth("test")])
    np.testing.assert_array_equal(np.sort(everything), np.sort(given.labels))
    np.testing.assert_array_equal(task.labels, same.labels)
    assert not np.array_equal(task.labels, other.labels)
    assert divide(Both(validation=0), given, SOURCE, METRIC, layout="aligned", parties=2, seed=0).truth("val") is None


def test_fewer_samples_are_the_same_for_every_seed():
    given = small(200)
    tasks = [
        divide(Both(samples=50, problem="ridge"), given, SOURCE, METRIC, layout="aligned", parties=2, seed=seed)
        for seed in (0, 1)
    ]
    assert len(tasks[0].labels) == 50 and tasks[0].source.note == "made; 50 of its 200 rows"
    np.testing.assert_array_equal(tasks[0].labels, tasks[1].labels)


def test_ridge_form():
    """All rows train; at theta = 0 f is 1/2, the variance of the standardised target; the minimum does not depend on
    the rows' number."""
    given = small(100)
    task = divide(Both(problem="ridge"), given, SOURCE, METRIC, layout="aligned", parties=3, seed=0)
    assert (task.metric.name, task.metric.goal) == ("suboptimality", "min") and task.truth("test") is None
    assert task.public.objective.kind == "ridge" and task.public.objective.weight == 0.5 and task.public.samples == 100
    features, labels = np.concatenate(task.features, axis=1), task.labels
    assert features.dtype == np.float64 and (labels**2).sum() / 2 == pytest.approx(0.5)
    np.testing.assert_allclose((features[:, 0] ** 2).sum(), 1)
    theta = np.linalg.solve(features.T @ features + 0.5 * np.eye(6), features.T @ labels)
    assert task.optimum == pytest.approx(
        ((features @ theta - labels) ** 2).sum() / 2 + 0.25 * (theta**2).sum(), rel=1e-12
    )
    assert 0 < task.optimum < 0.5
    twice = Table(np.tile(given.values, (2, 1)), given.columns, given.levels, np.tile(given.labels, 2), 0)
    assert divide(
        Both(problem="ridge"), twice, SOURCE, METRIC, layout="aligned", parties=3, seed=0
    ).optimum == pytest.approx(task.optimum, rel=1e-12)
    flat = Table(given.values, given.columns, given.levels, np.full(100, 3.0), 0)
    with pytest.raises(DataError, match="the target is the same in all 100 rows"):
        divide(Both(problem="ridge"), flat, SOURCE, METRIC, layout="aligned", parties=3, seed=0)


def test_sparse_logistic_form():
    given = small(100)
    given = Table(given.values, given.columns, given.levels, (given.labels > 5).astype(np.int64), 2)
    task = divide(Both(problem="sparse_logistic"), given, SOURCE, METRIC, layout="aligned", parties=2, seed=0)
    assert task.objective.kind == "sparse_logistic" and task.objective.weight == 0.1 and task.classes == 2
    assert set(task.labels.tolist()) == {0, 1} and task.labels.dtype == np.int64 and 0 < task.optimum < np.log(2)


def test_every_wrong_key_is_named():
    problems = table.check(Both(validation=0.5, test=0.6), "aligned", 9, 4)
    assert [problem.key for problem in problems] == ["dataset.validation, dataset.test", "algorithm.parties"]
    assert "between 1 and 4" in problems[-1].allowed
    _, problems = convert(
        RegressionKeys, {"source": "rela", "variant": "x", "problem": "rigde", "samples": 3, "alpha": 0}
    )
    assert [problem.key for problem in problems] == ["source", "variant", "problem", "samples", "alpha"]
    assert problems[2].closest == "ridge" and "learning, ridge" in problems[2].allowed
    assert [problem.key for problem in convert(ClassKeys, {"problem": "ridge", "beta": -1})[1]] == ["problem", "beta"]
    assert not table.check(Both(problem="ridge"), "aligned", 4, 4)
    with pytest.raises(ConfigError, match=r"algorithm\.parties=5"):
        divide(Both(), small(), SOURCE, METRIC, layout="aligned", parties=5, seed=0)


@pytest.mark.parametrize("sharding", ["iid", "dirichlet"])
def test_whole_rows_are_dealt_to_workers(sharding):
    """The same splits and the same numbers as one party with all columns has, each row once."""
    given = small(200)
    given.values[:, 3] = np.arange(200)  # what tells rows apart
    given = Table(given.values, given.columns, given.levels, (given.labels > 5).astype(np.int64), 2)
    metric, how = Metric("auroc", "max"), {"parties": 7, "seed": 3}
    task = divide(ClassKeys(sharding=sharding), given, SOURCE, metric, layout="sharded", **how)
    whole = divide(ClassKeys(), given, SOURCE, metric, layout="aligned", parties=1, seed=3)
    # more workers than columns
    assert len(task.shards) == 7 and task.public.shape == whole.features[0].shape[1:] and task.metric == metric
    dealt = task.joined()
    order = np.argsort(dealt.features[:, -1])
    np.testing.assert_array_equal(dealt.features[order], whole.features[0][np.argsort(whole.features[0][:, -1])])
    np.testing.assert_array_equal(dealt.labels[order], whole.labels[np.argsort(whole.features[0][:, -1])])
    for split in ("val", "test"):
        np.testing.assert_array_equal(task.held_out[split].features, whole.held_out_features[split][0])
        np.testing.assert_array_equal(task.truth(split), whole.truth(split))
    assert dealt.features.dtype == np.float32 and dealt.labels.dtype == np.int64


def test_what_cannot_be_dealt_to_workers_is_named():
    def keys(config, workers=9):
        return [problem.key for problem in table.check(config, "sharded", workers, 4)]

    assert keys(Both()) == [] and keys(Both(problem="ridge")) == ["dataset.problem"]
    assert keys(Both(sharding="dirichlet")) == ["dataset.sharding"] and keys(ClassKeys(sharding="dirichlet")) == []
    with pytest.raises(ConfigError, match=r"dataset\.sharding=dirichlet: deals classes, and a regression has none"):
        divide(Both(sharding="dirichlet"), small(), SOURCE, METRIC, layout="sharded", parties=2, seed=0)
    dealt = divide(Both(), small(), SOURCE, METRIC, layout="sharded", parties=2, seed=0)
    assert dealt.classes == 0 and dealt.shards[0].labels.dtype == np.float32


LAYOUT = Layout(("id", "x", "job", "y"), {"job": ("a", "b")}, ";", skipped=("id",))
GOOD = b'"id";"x";"job";"y"\n1;" 2.5";"b";-1\n\xc3\xa4;3;a;1e2\n'


def test_reads_text():
    expected = [[2.5, 1, -1], [3, 0, 100]]
    assert read_text(GOOD, "f", LAYOUT).tolist() == expected
    assert read_text(GOOD.replace(b"\n", b"\r\n"), "f", LAYOUT).tolist() == expected
    assert read_text(b"\xef\xbb\xbf" + GOOD, "f", LAYOUT).tolist() == expected
    assert (
        read_text(GOOD.split(b"\n", 1)[1], "f", Layout(LAYOUT.columns, LAYOUT.levels, ";", 0, ("id",))).tolist()
        == expected
    )
    assert (
        read_text(b"X1;X2\n" + GOOD, "f", Layout(LAYOUT.columns, LAYOUT.levels, ";", 2, ("id",))).tolist() == expected
    )


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("id;x;job;y\n1;2;a;3\n1;2;a\n1;2;a;3", "file.csv, line 3: Expected 4 columns, got 3"),
        ("id;x;job;y\n1;2;a;3;4\n1;2;a;3;4", "file.csv, line 2: Expected 4 columns, got 5"),
        ("id;x;job;y\n1;2;a;3\n1;2;a;3;4", "file.csv, line 3: Expected 4 columns, got 5"),
        (
            "id;x;job;y\n1;2;a;3\n1;two;a;3",
            "file.csv, line 3, column x: CSV conversion error to double: invalid value 'two'",
        ),
        ("id;x;job;y\n1;2;a;3\n1;;a;3", "file.csv, line 3: x is empty"),
        ("id;x;job;y\n1;nan;a;3", "file.csv, line 2: 'nan' is not a number (x)"),
        ("id;x;job;y\n1;inf;a;3", "file.csv, line 2: 'inf' is not a number (x)"),
        ("id;x;job;y\n1;2;c;3", "file.csv, line 2: 'c' is not one of a, b (job)"),
        ("id;x;job;y\n1;2;a;3\n\n1;2;a;3", "file.csv, line 3: x is empty"),
        ("id;x;job;y", "file.csv: holds no rows"),
        ("id;x;jobs;y\n1;2;a;3", "file.csv, line 1: column 3 of the header is 'jobs', not 'job'"),
        ("id;x;job\n1;2;a", "file.csv, line 1: column 4 of the header is None, not 'y'"),
        ("", "file.csv, line 1: column 1 of the header is None, not 'id'"),
    ],
)
def test_a_malformed_line_is_named(lines, message):
    with pytest.raises(DataError) as error:
        read_text(lines.encode(), "file.csv", LAYOUT)
    assert message in str(error.value)


def test_text_that_is_not_utf8_is_named():
    with pytest.raises(DataError, match=r"file\.csv, line 3, column job: .*invalid UTF8"):
        read_text(b"id;x;job;y\n1;2;a;3\n1;2;\xff;3\n", "file.csv", LAYOUT)


def test_members_of_archives():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/b.csv", "x" * 1000)
    data = out.getvalue()
    assert sets.member(data, "f.zip", "a/b.csv") == b"x" * 1000
    with pytest.raises(DataError, match=r"f\.zip: this archive holds no file c\.csv"):
        sets.member(data, "f.zip", "c.csv")
    for damaged in (b"", data[:40], data[:-30], data[:45] + bytes(8) + data[53:]):
        with pytest.raises(DataError, match=r"f\.zip: a damaged zip"):
            sets.member(damaged, "f.zip", "a/b.csv")


def test_over_joins_a_partys_columns_are_a_table_that_is_matched_by_row_id():
    keys, given = Both(columns=[1, 2, 1], validation=0.2, test=0.2), small()
    aligned = divide(keys, given, SOURCE, METRIC, layout="aligned", parties=3, seed=3)
    task = divide(keys, given, SOURCE, METRIC, layout="relational", parties=1, seed=3)
    owner, *others = task.clients
    np.testing.assert_array_equal(owner.features, aligned.features[0])
    np.testing.assert_array_equal(owner.labels, aligned.labels)
    for k, part in enumerate(others, 1):
        assert part.labels is None and part.rows == 20
        np.testing.assert_array_equal(
            part.features[np.searchsorted(part.keys["row"], owner.keys["row"])], aligned.features[k]
        )
        for split in ("val", "test"):
            np.testing.assert_array_equal(
                part.features[task.held_out[split].rows[k]], aligned.held_out_features[split][k]
            )
    halves = divide(Both(), given, SOURCE, METRIC, layout="relational", parties=2, seed=3)
    assert halves.public.parts == ((0, 1), (2, 3))  # two tables, in two horizontal parts each
    assert [p.key for p in table.check(Both(problem="ridge", columns=[2, 3]), "relational", 1, 4)] == [
        "dataset.problem",
        "dataset.columns",
    ]
