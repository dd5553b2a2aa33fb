import gzip
import json
import logging
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.every import few_fast
from vflbench.cards.data.relational.yelp import Config
from vflbench.config import convert
from vflbench.data import sources
from vflbench.data.divide.splits import split_rows
from vflbench.data.relational import yelp, yelp_lines
from vflbench.data.relational.yelp import load
from vflbench.types import ConfigError, DataError

WORDS = ["awful", "bad", "fine", "good", "great"]
COMPLIMENTS = [name for name in yelp._USER_NUMBERS if name.startswith("compliment_")]


def made(reviews: int = 120) -> dict[str, list[dict]]:
    """Businesses b0 to b5, of which b3 is closed and b4 sells shoes; users u0 to u9; reviews, some of an unknown user,
    in any order."""
    rng = np.random.default_rng(0)
    business = [
        {
            "business_id": f"b{i}",
            "name": "N",
            "city": "Zürich",
            "stars": 2.5 + i / 2,
            "review_count": 10 * i,
            "is_open": int(i != 3),
            "attributes": None if i == 2 else {"WiFi": "u'free'", "Parking": "{'garage': False}"},
            "categories": "Shoes, Shopping" if i == 4 else "Pizza, Restaurants",
            "hours": None,
        }
        for i in range(6)
    ]
    user = [
        {
            "user_id": f"u{i}",
            "name": "N",
            "review_count": i,
            "yelping_since": f"{2005 + i}-05-23 01:02:03",
            "useful": i,
            "funny": 0,
            "cool": 2 * i,
            "elite": "2012,2013",
            "friends": "None" if i == 0 else ", ".join(f"f{k}" for k in range(i)),
            "fans": i % 3,
            "average_stars": 1 + i / 3,
            **dict.fromkeys(COMPLIMENTS, i),
        }
        for i in range(10)
    ]
    review = []
    for row in range(reviews):
        stars = int(rng.integers(1, 6))
        review.append(
            {
                "review_id": f"r{row}",
                "user_id": f"u{rng.integers(0, 11)}",  # u10 is nobody
                "business_id": f"b{rng.integers(0, 6)}",
                "stars": float(stars),
                "useful": int(rng.integers(0, 9)),
                "funny": 0,
                "cool": int(rng.integers(0, 3)),
                "text": f"{WORDS[stars - 1]} food, é\nnumber{row}",
                "date": "2015-01-02 03:04:05",
            }
        )
    return {"business": business, "user": user, "review": review}


def path_of(root: Path, name: str) -> Path:
    return root / "yelp" / f"yelp_academic_dataset_{name}.json"


def write(root: Path, content: dict[str, list[dict]]) -> None:
    (root / "yelp").mkdir(parents=True, exist_ok=True)
    for name, rows in content.items():
        path_of(root, name).write_text(
            "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8"
        )


@pytest.fixture
def root(tmp_path) -> Path:
    write(tmp_path / "root", made())
    return tmp_path / "root"


@pytest.fixture(params=few_fast([1 << 25, 700]), ids=["one block", "many blocks"])
def block(request, monkeypatch):
    monkeypatch.setattr(yelp_lines, "_BLOCK", request.param)


def frames(content: dict[str, list[dict]]) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Reviews that count, in the file's order, and the restaurants and users they are of."""
    business, user, review = (pd.DataFrame(content[name]) for name in ("business", "user", "review"))
    business = business[(business.is_open == 1) & business.categories.str.contains("Restaurants")]
    review = review[review.business_id.isin(business.business_id) & review.user_id.isin(user.user_id)]
    return review, business[business.business_id.isin(review.business_id)], user[user.user_id.isin(review.user_id)]


def standard(values, fitted=None) -> np.ndarray:
    fitted = values if fitted is None else fitted
    spread = np.std(fitted, axis=0)
    return (values - np.mean(fitted, axis=0)) / np.where(spread > 0, spread, np.inf)


def test_reads_the_official_json_lines(root, block):
    task = load(Config(validation=0.2, test=0.2, star_averages=True), "relational", 1, 5, root)
    review, business, user = frames(made())
    assert task.tables == ("review", "restaurant", "user") and task.label_table == "review"
    assert (task.metric.name, task.classes) == ("accuracy", 5)
    assert [part.features.shape[1] for part in task.clients] == [771, 2, 19]
    assert task.source.kind == "partial" and "of 6,990,280 reviews" in task.source.lacks
    assert "hashed TF-IDF" in task.source.note and len(task.source.files) == 3

    splits = split_rows(len(review), 0.2, 0.2, 0)  # by split_seed, not by the run's seed 5
    train = review.iloc[splits["train"]]
    own, restaurants, users = task.clients
    assert (
        own.keys["business_id"].tolist() == train.business_id.tolist()
        and own.keys["user_id"].tolist() == train.user_id.tolist()
    )
    np.testing.assert_array_equal(own.labels, train.stars - 1)
    votes = review[["useful", "funny", "cool"]].to_numpy()
    np.testing.assert_allclose(own.features[:, :3], standard(votes, votes[splits["train"]])[splits["train"]], atol=1e-5)
    for split in ("val", "test"):
        np.testing.assert_allclose(
            own.held_out[split][:, :3], standard(votes, votes[splits["train"]])[splits[split]], atol=1e-5
        )
        np.testing.assert_array_equal(task.truth(split), review.iloc[splits[split]].stars - 1)  # every row joins once

    assert restaurants.keys["business_id"].tolist() == ["b0", "b1", "b2", "b5"] == business.business_id.tolist()
    np.testing.assert_allclose(
        restaurants.features, standard(business[["stars", "review_count"]].to_numpy()), atol=1e-5
    )
    assert users.keys["user_id"].tolist() == user.user_id.tolist()
    number = user.user_id.str[1:].astype(int).to_numpy()
    # friends, yelping_since
    expected = np.column_stack([user[list(yelp._USER_NUMBERS)].to_numpy(), number, 2005 + number])
    np.testing.assert_allclose(users.features, standard(expected), atol=1e-5)


def test_the_text_decides_the_features(root):
    """Reviews of equal stars share a word: their text features are nearer to one another than to those of other
    stars."""
    task = load(Config(), "relational", 1, 0, root)
    text = task.clients[0].features[:, 3:]
    assert np.isfinite(text).all() and text.any(axis=1).all()
    labels = task.clients[0].labels
    centre = np.stack([text[labels == c].mean(axis=0) for c in range(5)])
    nearest = ((text[:, None] - centre) ** 2).sum(axis=2).argmin(axis=1)
    assert (nearest == labels).mean() > 0.9


def test_averages_of_the_labels_are_no_features_by_default(root):
    _, restaurants, users = load(Config(), "relational", 1, 0, root).clients
    _, all_restaurants, all_users = load(Config(star_averages=True), "relational", 1, 0, root).clients
    np.testing.assert_array_equal(restaurants.features, all_restaurants.features[:, 1:])
    np.testing.assert_array_equal(users.features, all_users.features[:, 1:])


def test_the_join_equals_pandas_merge(root):
    task = load(Config(star_averages=True), "aligned", 1, 0, root)
    review, business, user = frames(made())
    splits = split_rows(len(review), 0.15, 0.15, 0)
    joined = review.merge(business, on="business_id", suffixes=("", "_b"), how="left").merge(
        user, on="user_id", suffixes=("", "_u"), how="left"
    )
    np.testing.assert_array_equal(task.labels, joined.stars.iloc[splits["train"]] - 1)
    for column, table, feature in (("stars_b", 1, 0), ("average_stars", 2, 0)):
        got, given = task.features[table][:, feature], joined[column].iloc[splits["train"]]
        assert np.corrcoef(got, given)[0, 1] == pytest.approx(1, abs=1e-6)


def test_the_split_follows_split_seed(root):
    def keys(seed, **changes):
        return load(Config(**changes), "relational", 1, seed, root).clients[0].keys["user_id"].tolist()

    assert keys(0) == keys(1) != keys(0, split_seed=3)
    assert keys(3, split_seed=None) == keys(0, split_seed=3)


def test_lists_and_gzip_are_read(root):
    plain = load(Config(), "relational", 1, 0, root)
    content = made()
    for row in content["business"]:
        row["categories"] = row["categories"].split(", ")
    for row in content["user"]:
        row["friends"] = [] if row["friends"] == "None" else row["friends"].split(", ")
    write(root, content)
    for name in content:
        path = path_of(root, name)
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    for part, other in zip(plain.clients, load(Config(), "relational", 1, 0, root).clients, strict=True):
        np.testing.assert_array_equal(part.features, other.features)


def test_missing_numbers_become_the_mean(root):
    content = made()
    content["user"][4]["fans"] = None
    del content["review"][7]["useful"]
    content["business"][5]["categories"] = None  # no restaurant then
    write(root, content)
    task = load(Config(star_averages=True), "relational", 1, 0, root)
    assert "b5" not in task.clients[1].keys["business_id"]
    users = task.clients[2]
    row = users.keys["user_id"].tolist().index("u4")
    assert users.features[row, yelp._USER_COLUMNS.index("fans")] == 0
    assert all(np.isfinite(part.features).all() for part in task.clients)


# --- a file of features -----------------------------------------------------------------------------------------------


def test_large_features_are_mapped_computed_once_and_equal(root, monkeypatch):
    small = load(Config(), "relational", 2, 0, root)
    monkeypatch.setattr(yelp, "MEMORY", 0)
    large = load(Config(), "relational", 2, 0, root)
    for part, other in zip(small.clients, large.clients, strict=True):
        np.testing.assert_array_equal(part.features, other.features)
    for part in large.clients[:2]:  # views, also of held-out rows
        assert all(isinstance(values, np.memmap) for values in (part.features, *part.held_out.values()))
    folder = sources.cache_folder() / "features"
    (file,) = folder.iterdir()
    stamp = file.stat().st_mtime_ns

    monkeypatch.setattr(yelp, "_fill", None)  # would be a TypeError
    again = load(Config(), "relational", 2, 7, root)  # another seed of the run, the same split
    np.testing.assert_array_equal(again.clients[0].features, small.clients[0].features)
    assert [path.stat().st_mtime_ns for path in folder.iterdir()] == [stamp]
    with pytest.raises(TypeError):
        load(Config(test=0.2), "relational", 2, 0, root)
    assert len(list(folder.iterdir())) == 1  # nothing half written stays


def test_a_mapped_file_is_made_anew_when_the_data_differs(root, monkeypatch):
    monkeypatch.setattr(yelp, "MEMORY", 0)
    load(Config(), "relational", 1, 0, root)
    content = made()
    content["review"][0]["text"] = "other words"
    write(root, content)
    load(Config(), "relational", 1, 0, root)
    assert len(list((sources.cache_folder() / "features").iterdir())) == 2


def test_a_full_disk_is_an_error_before_anything_is_written(root, monkeypatch):
    from types import SimpleNamespace

    monkeypatch.setattr(yelp, "MEMORY", 0)
    monkeypatch.setattr(sources.shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    with pytest.raises(DataError, match=r"GB are needed and 0\.0 GB are free"):
        load(Config(), "relational", 1, 0, root)
    assert not list((sources.cache_folder() / "features").iterdir())


def test_features_are_standardised_exactly_over_many_blocks():
    rng = np.random.default_rng(0)
    values = rng.normal(1000, 3, (9000, 5)).astype(np.float32)
    values[:, 3] = 7.25  # constant
    values[rng.random(9000) < 0.1, 4] = np.nan
    order = rng.permutation(9000)
    out = np.empty((9000, 5), np.float32)
    yelp._fill(out, ((order[i : i + 700], values[order[i : i + 700]]) for i in range(0, 9000, 700)), 6000)
    with np.errstate(invalid="ignore"):
        expected = (values - np.nanmean(values[:6000], 0, dtype=np.float64)) / np.nanstd(
            values[:6000], 0, dtype=np.float64
        )
    np.testing.assert_allclose(out[:, :3], expected[:, :3], atol=1e-4)
    np.testing.assert_allclose(out[:, 4], np.nan_to_num(expected[:, 4]), atol=1e-4)
    assert not out[:, 3].any()


def test_an_infinite_value_is_refused():
    values = np.ones((10, 3), np.float32)
    values[4, 1] = np.inf
    with pytest.raises(DataError, match="table review, column funny, row 4: inf is not a finite number"):
        yelp._fill(np.empty((10, 3), np.float32), [(np.arange(10), values)], 8)


# --- bad files --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "line", "text", "message"),
    [
        ("review", 5, '{"review_id": "r", "stars": 5', "JSON parse error"),
        ("review", 120, '{"review_id": "r", "text": "cut sho', "JSON parse error"),
        ("review", 5, "[1, 2]", "JSON parse error"),
        ("review", 1, "hello", "not a JSON object"),
        (
            "review",
            5,
            '{"user_id": 7, "business_id": "b0", "stars": 5, "text": "a"}',
            r"/user_id\) changed from string to number",
        ),
        (
            "review",
            5,
            '{"user_id": "u0", "business_id": "b0", "stars": "5", "text": "a"}',
            r"/stars\) changed from number to string",
        ),
        (
            "review",
            5,
            '{"user_id": "u0", "business_id": "b0", "stars": 6, "text": "a"}',
            "stars are not 1, 2, 3, 4 or 5",
        ),
        (
            "review",
            5,
            '{"user_id": "u0", "business_id": "b0", "stars": 4.5, "text": "a"}',
            "stars are not 1, 2, 3, 4 or 5",
        ),
        ("review", 5, '{"user_id": "u0", "business_id": "b0", "text": "a"}', "stars are not|has no stars"),
        ("review", 5, '{"user_id": "u0", "stars": 4, "text": "a"}', "has no business_id"),
        ("review", 5, '{"user_id": "u0"} {"user_id": "u1"}', "2 JSON objects"),
        (
            "review",
            1,
            '{"business_id": "b0", "stars": 4}',
            "has no field user_id; it has business_id, stars. Is this the right file",
        ),
        ("user", 3, '{"user_id": null}', "has no id"),
        ("user", 3, json.dumps({**made()["user"][2], "user_id": "u0"}), "'u0' is there twice"),
        ("user", 3, json.dumps({**made()["user"][2], "yelping_since": "May 2010"}), "yelping_since is not a date"),
        (
            "user",
            3,
            json.dumps({**made()["user"][2], "friends": ["a"]}),
            r"Column\(/friends\) changed from string to array",
        ),
        (
            "business",
            2,
            json.dumps({**made()["business"][1], "is_open": "yes"}),
            r"Column\(/is_open\) changed from number to string",
        ),
    ],
)
def test_a_malformed_line_is_named(root, block, name, line, text, message):
    path = path_of(root, name)
    lines = path.read_text("utf-8").split("\n")
    lines[line - 1] = text
    path.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(DataError, match=rf"^yelp/yelp_academic_dataset_{name}\.json, line {line}: .*{message}"):
        load(Config(), "relational", 1, 0, root)


def test_empty_lines_are_skipped_but_counted(root, block):
    plain = load(Config(), "relational", 1, 0, root)
    path = path_of(root, "review")
    lines = path.read_text("utf-8").split("\n")
    path.write_text("\n".join([*lines[:4], "", "", *lines[4:]]), encoding="utf-8")
    np.testing.assert_array_equal(load(Config(), "relational", 1, 0, root).clients[0].labels, plain.clients[0].labels)
    path.write_text(
        "\n".join([*lines[:4], "", "", *lines[4:9], '{"user_id": "u0", "business_id": "b0", "stars": 9}']),
        encoding="utf-8",
    )
    with pytest.raises(DataError, match=r"review\.json, line 12: stars"):
        load(Config(), "relational", 1, 0, root)


def test_bytes_that_are_no_text_are_named(root, block):
    path = path_of(root, "review")
    lines = path.read_bytes().split(b"\n")
    lines[6] = lines[6].replace("é".encode(), b"\xe9")
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(DataError, match=r"review\.json, line 7: .*UTF8"):
        load(Config(), "relational", 1, 0, root)


@pytest.mark.parametrize("name", ["review", "business", "user"])
def test_an_empty_file_and_a_cut_archive_are_named(root, name):
    path = path_of(root, name)
    data = path.read_bytes()
    path.write_bytes(b"")
    with pytest.raises(DataError, match=rf"{name}\.json: holds no lines"):
        load(Config(), "relational", 1, 0, root)
    path.unlink()
    path.with_name(path.name + ".gz").write_bytes(gzip.compress(data)[:-20])
    with pytest.raises(DataError, match=rf"{name}\.json\.gz: cannot be read"):
        load(Config(), "relational", 1, 0, root)


def test_files_that_do_not_belong_together_are_named(root):
    content = made()
    write(root, {"user": [{**row, "user_id": row["user_id"] + "x"} for row in content["user"]]})
    with pytest.raises(
        DataError, match=r"no review is of an open restaurant and by a user in yelp/yelp_academic_dataset_user\.json"
    ):
        load(Config(), "relational", 1, 0, root)
    write(root, {"business": [{**row, "is_open": 0} for row in content["business"]]})
    with pytest.raises(DataError, match=r"business\.json: holds no open restaurants"):
        load(Config(), "relational", 1, 0, root)


def test_a_missing_file_is_an_error_that_suggests_the_twin(root):
    path_of(root, "user").unlink()
    with pytest.raises(
        DataError, match=r"missing yelp/yelp_academic_dataset_user\.json.*no public address.*dataset\.source=synthetic"
    ):
        load(Config(), "relational", 1, 0, root)


def test_all_wrong_values_are_reported_together():
    with pytest.raises(ConfigError) as error:
        load(Config(validation=-1, text_encoder="nowhere"), "relational", 1, 0, None)
    assert [problem.key for problem in error.value.problems] == [
        "dataset.validation, dataset.test",
        "dataset.text_encoder",
    ]
    _, problems = convert(Config, {"source": "reel", "variant": "big", "width": 0})
    assert [problem.key for problem in problems] == ["source", "variant", "width"]


# --- the twin ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_twin_has_the_papers_sizes(caplog):
    with caplog.at_level(logging.WARNING):
        task = load(Config(source="synthetic", width=1), "relational", 2, 9, None)
    assert (
        "SYNTHETIC TWIN: dataset yelp" in caplog.text
        and task.source.kind == "synthetic"
        and "split of its own" in task.source.note
    )
    assert [part.rows for part in task.clients] == [1_603_848, 1_603_848, 17_494, 17_493, 579_053, 579_053]
    assert [len(task.truth(split)) for split in ("val", "test")] == [283_032, 283_032]
    for key, of, most in (("business_id", 2, 8_000), ("user_id", 4, 2_000)):
        used, count = np.unique(np.concatenate([part.keys[key] for part in task.clients[:2]]), return_counts=True)
        held = np.concatenate([part.keys[key] for part in task.clients[of : of + 2]])
        np.testing.assert_array_equal(used, np.sort(held))  # every row of the table joins, every review joins once
        assert count.max() > 20 * count.mean() and count.max() < most  # skewed


def small_twin(monkeypatch) -> None:
    for name, value in {"_TRAIN": 20_000, "_HELD_OUT": 4_000, "_RESTAURANTS": 300, "_USERS": 6_000}.items():
        monkeypatch.setattr(yelp, name, value)


@pytest.mark.slow
def test_the_twin_is_learnable(monkeypatch):
    from sklearn.linear_model import LogisticRegression

    small_twin(monkeypatch)
    task = load(Config(source="synthetic"), "aligned", 1, 0, None)
    assert [block.shape for block in task.features] == [(20_000, 16), (20_000, 2), (20_000, 16)]
    fitted = LogisticRegression(max_iter=1000).fit(np.hstack(task.features), task.labels)
    reached = fitted.score(np.hstack(task.held_out_features["test"]), task.held_out_labels["test"])
    assert 0.58 < reached < 0.75 and np.bincount(task.held_out_labels["test"]).max() / 2000 < 0.42


@pytest.mark.slow
def test_width_only_narrows_the_twin_and_memory_does_not_change_it(monkeypatch):
    small_twin(monkeypatch)
    wide, narrow = (
        load(Config(source="synthetic", width=width), "relational", 1, seed, None)
        for width, seed in ((None, 0), (5, 1))
    )
    monkeypatch.setattr(yelp, "MEMORY", 0)
    mapped = load(Config(source="synthetic", width=5), "relational", 1, 0, None)
    assert [part.features.shape[1] for part in wide.clients] == [771, 2, 19] and [
        p.features.shape[1] for p in narrow.clients
    ] == [5, 2, 5]
    for part, other, same in zip(wide.clients, narrow.clients, mapped.clients, strict=True):
        np.testing.assert_allclose(part.features[:, :5], other.features, atol=1e-6)
        np.testing.assert_array_equal(other.features, same.features)
        for key in part.keys:
            np.testing.assert_array_equal(part.keys[key], other.keys[key])
    assert isinstance(mapped.clients[0].features, np.memmap) and "at most 5 features" in narrow.source.note
