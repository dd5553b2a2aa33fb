import numpy as np
import pytest
from scipy import sparse

from vflbench.cards.data.graph import reddit as reddit_card
from vflbench.data.graph import reddit
from vflbench.types import DataError

NODES = 820


@pytest.fixture
def made_reddit(tmp_path):
    rng = np.random.default_rng(0)
    features = rng.normal(size=(NODES, 12))
    labels = np.arange(NODES) % 41
    types = rng.choice([1, 2, 3], NODES, p=[0.6, 0.2, 0.2])
    ends = rng.integers(0, NODES, (2, 4000))
    matrix = sparse.coo_matrix((np.ones(8000), np.concatenate([ends, ends[::-1]], axis=1)), shape=(NODES, NODES))
    folder = tmp_path / "reddit"
    folder.mkdir()

    def write(features=features, labels=labels, types=types, matrix=matrix):
        np.savez(
            folder / "reddit_data.npz", feature=features, label=labels, node_types=types, node_ids=np.arange(NODES)
        )
        sparse.save_npz(folder / "reddit_graph.npz", matrix)

    write()
    return {
        "root": tmp_path,
        "folder": folder,
        "write": write,
        "features": features,
        "labels": labels,
        "types": types,
        "ends": ends,
    }


def test_reads_the_npz_format(made_reddit):
    task = reddit.load(reddit_card.Config(), "graph", 3, 0, made_reddit["root"])
    np.testing.assert_allclose(task.joined().features, made_reddit["features"], rtol=1e-6)
    np.testing.assert_array_equal(task.labels, made_reddit["labels"])
    a, b = made_reddit["ends"]
    assert task.all_edges.shape[1] == 2 * len(
        {(min(p), max(p)) for p in zip(a.tolist(), b.tolist(), strict=True) if p[0] != p[1]}
    )
    assert (
        task.source.kind == "partial"
        and "of 232,965 posts" in task.source.lacks
        and task.classes == 41
        and len(task.source.files) == 2
    )


def test_public_split_is_by_node_type(made_reddit):
    splits = reddit.load(reddit_card.Config(split="public"), "graph", 3, 0, made_reddit["root"]).splits
    for name, kind in (("train", 1), ("val", 2), ("test", 3)):
        np.testing.assert_array_equal(splits[name], np.flatnonzero(made_reddit["types"] == kind))


def test_random_split_follows_the_paper():
    # 232,965 nodes: int(0.66 * 232965 / 41) = 3750 a class at most, 41 * 150 = 6150 for testing
    counts = np.full(41, 5000)
    counts[:2] = 232_965 - 39 * 5000 - 1000, 1000
    labels = np.repeat(np.arange(41), counts)
    splits = reddit.random_split(labels, 0.66, seed=0)
    train = np.bincount(labels[splits["train"]])
    assert train[0] == 3750 and train[1] == 660 and (train[2:] == 3300).all()  # no class gives more than 66 %
    assert len(splits["test"]) == len(splits["val"]) == 6150
    assert len(np.unique(np.concatenate(list(splits.values())))) == sum(map(len, splits.values()))


def test_small_sizes_leave_half_of_the_rest_for_each(made_reddit):
    splits = reddit.load(reddit_card.Config(), "graph", 3, 0, made_reddit["root"]).splits
    assert len(splits["train"]) == 41 * 13  # int(0.66 * 820 / 41) = 13 of 20
    assert len(splits["val"]) == len(splits["test"]) == (820 - 41 * 13) // 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": np.full(NODES, 41)}, r"reddit_data\.npz: label 41 of row 0; labels are 0 to 40"),
        ({"labels": np.zeros(5)}, r"reddit_data\.npz: 820 rows of features, but labels \(5,\)"),
        ({"features": np.full((NODES, 3), np.nan)}, r"reddit_data\.npz: row 0 of `feature`"),
        ({"matrix": sparse.coo_matrix((4, 4))}, r"reddit_graph\.npz: a \(4, 4\) matrix, but"),
        ({"labels": np.array([object()] * NODES)}, r"reddit_data\.npz, array label: holds Python objects"),
    ],
)
def test_malformed_content_is_named(made_reddit, change, message):
    made_reddit["write"](**change)
    with pytest.raises(DataError, match=message):
        reddit.load(reddit_card.Config(), "graph", 3, 0, made_reddit["root"])


@pytest.mark.parametrize("name", ["reddit_data.npz", "reddit_graph.npz"])
def test_a_truncated_file_is_named(made_reddit, name):
    path = made_reddit["folder"] / name
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(DataError, match=rf"reddit/{name}: cut short"):
        reddit.load(reddit_card.Config(), "graph", 3, 0, made_reddit["root"])


def test_a_matrix_that_points_outside_is_refused(made_reddit):
    np.savez(
        made_reddit["folder"] / "reddit_graph.npz",
        format=b"coo", shape=(NODES, NODES), row=np.array([NODES]), col=np.array([0]), data=np.ones(1),
    )  # fmt: skip
    with pytest.raises(DataError, match=r"reddit_graph\.npz: .*not a valid sparse matrix"):
        reddit.load(reddit_card.Config(), "graph", 3, 0, made_reddit["root"])
