import gzip
import logging
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.conftest import absent
from vflbench.cards.data.relational.movielens import Config
from vflbench.config import convert
from vflbench.data import sources
from vflbench.data.divide.splits import split_rows
from vflbench.data.relational import movielens, movielens_files
from vflbench.data.relational.movielens import GENRES, load
from vflbench.types import ConfigError, DataError

USERS = ["1::F::1::10::48067", "2::M::56::16::70072", "3::M::25::0::55117", "9::F::35::20::02460"]
MOVIES = [
    "1::Toy Story (1995)::Animation|Children's|Comedy",
    "4::2001: A Space Odyssey (1968)::Drama|Sci-Fi",
    "6::Mis\xe9rables, Les (1995)::Drama",
    "8::M (1931)::Crime",
]


def made_ratings(count: int = 60) -> np.ndarray:
    """(count, 4): user, movie, rating, time; all but movie 8 are rated."""
    rng = np.random.default_rng(0)
    return np.stack(
        [
            rng.choice([1, 2, 3, 9], count),
            rng.choice([1, 4, 6], count),
            rng.integers(1, 6, count),
            10**9 + rng.integers(0, 10**7, count),
        ],
        1,
    )


def write(folder: Path, names: dict[str, list[str]], encoding: str = "latin-1") -> Path:
    folder.mkdir(parents=True)
    for name, lines in names.items():
        (folder / name).write_bytes("".join(f"{line}\n" for line in lines).encode(encoding))
    return folder


@pytest.fixture
def root(tmp_path) -> Path:
    """ml-1m/ in the original format."""
    ratings = ["::".join(map(str, row)) for row in made_ratings().tolist()]
    write(tmp_path / "root" / "ml-1m", {"users.dat": USERS, "movies.dat": MOVIES, "ratings.dat": ratings})
    return tmp_path / "root"


def write_recbole(root: Path) -> Path:
    """The same in RecBole's format of ML-100K."""
    lines = {
        "ml-100k.user": [
            "user_id:token\tage:token\tgender:token\toccupation:token\tzip_code:token",
            *(
                "1\t1\tF\tlawyer\t48067",
                "2\t56\tM\tscientist\t70072",
                "3\t25\tM\tadministrator\t55117",
                "9\t35\tF\twriter\t02460",
            ),
        ],
        "ml-100k.item": [
            "item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq",
            *("1\tToy Story\t1995\tAnimation Children's Comedy", "4\t2001: A Space Odyssey\t1968\tDrama Sci-Fi"),
            *("6\tMis\xe9rables, Les\t1995\tDrama", "8\tunkonwn\tunkonwn\tunknown"),
        ],
        "ml-100k.inter": [
            "user_id:token\titem_id:token\trating:float\ttimestamp:float",
            *("\t".join(map(str, row)) for row in made_ratings().tolist()),
        ],
    }
    return write(root / "ml-100k-recbole", lines, "utf-8")


def write_original(root: Path) -> Path:
    """The same in ML-100K's original format."""

    def flags(*names: str) -> str:
        return "|".join(str(int(genre in names)) for genre in ("unknown", *GENRES))

    lines = {
        "u.user": ["1|1|F|lawyer|48067", "2|56|M|scientist|70072", "3|25|M|administrator|55117", "9|35|F|writer|02460"],
        "u.item": [
            f"1|Toy Story (1995)|01-Jan-1995||http://x|{flags(*GENRES[2:5])}",
            f"4|2001: A Space Odyssey|22-Apr-1968||http://x|{flags('Drama', 'Sci-Fi')}",
            f"6|Mis\xe9rables, Les (1995)|01-Jan-1995||http://x|{flags('Drama')}",
            f"8|unknown||||{flags('unknown')}",
        ],
        "u.data": ["\t".join(map(str, row)) for row in made_ratings().tolist()],
    }
    return write(root / "ml-100k", lines)


def raw_of(root: Path, variant: str):
    """The tables before they are standardised, and the group of files they come from."""
    found = sources.locate(movielens._file_set(variant), root, "real", verify=False)
    group = next(g for g in movielens._GROUPS[variant] if all(file in found for file in g))
    content = movielens_files.read(found, group)
    return movielens._tables(content, np.zeros((len(content.title), 2), np.float32)), content


def test_reads_the_dat_format(root):
    raw, content = raw_of(root, "1m")
    ratings, movies, users = raw.tables
    assert [table.name for table in raw.tables] == ["ratings", "movies", "users"] and raw.label_table == "ratings"
    given = made_ratings()
    np.testing.assert_array_equal(ratings.keys["userid"], given[:, 0])
    np.testing.assert_array_equal(ratings.keys["movieid"], given[:, 1])
    np.testing.assert_array_equal(raw.labels, given[:, 2])
    np.testing.assert_array_equal(ratings.features[:, 0], given[:, 3].astype(np.float32))
    assert content.title == ["Toy Story", "2001: A Space Odyssey", "Misérables, Les", "M"]
    # a row per genre, with that genre alone
    assert movies.keys["movieid"].tolist() == [1, 1, 1, 4, 4, 6, 8]
    assert [GENRES[i] for i in movies.features[:, :18].argmax(axis=1)] == [
        "Animation",
        "Children's",
        "Comedy",
        "Drama",
        "Sci-Fi",
        "Drama",
        "Crime",
    ]
    assert (movies.features[:, :18].sum(axis=1) == 1).all()
    assert movies.features[:, 18].tolist() == [1995, 1995, 1995, 1968, 1968, 1995, 1931]
    assert users.keys["userid"].tolist() == [1, 2, 3, 9]
    assert users.features[:, 0].tolist() == [1, 0, 0, 1] and users.features[:, 1].tolist() == [1, 56, 25, 35]
    assert users.features[:, 2:].argmax(axis=1).tolist() == [10, 16, 0, 20] and users.features.shape == (4, 23)
    assert all(
        table.features.shape[1] == len(table.columns) and table.features.dtype == np.float32 for table in raw.tables
    )


@pytest.mark.parametrize("make", [write_recbole, write_original])
def test_reads_both_formats_of_100k(root, make):
    make(root)
    (raw, content), (dat, _) = raw_of(root, "100k"), raw_of(root, "1m")
    np.testing.assert_array_equal(raw.labels, dat.labels)
    for table, other in zip(raw.tables, dat.tables, strict=True):
        for key in table.keys:
            np.testing.assert_array_equal(table.keys[key], other.keys[key])
    assert content.title[:3] == ["Toy Story", "2001: A Space Odyssey", "Misérables, Les"]
    known = raw.tables[1].keys["movieid"] < 8
    np.testing.assert_array_equal(raw.tables[1].features[known], dat.tables[1].features[known])
    # a movie without a known genre has one row without any, and no year
    assert (
        not raw.tables[1].features[~known, :18].any()
        and np.isnan(raw.tables[1].features[~known, 18]).all()
        and (~known).sum() == 1
    )
    np.testing.assert_array_equal(raw.tables[2].features[:, :2], dat.tables[2].features[:, :2])
    # occupations by name have their place in the alphabet
    assert raw.tables[2].features[:, 2:].argmax(axis=1).tolist() == [9, 17, 0, 20]


def test_the_task_is_the_join_of_the_tables(root):
    config = Config(verify=False, validation=0.2, test=0.2)
    task = load(config, "relational", 2, 3, root)
    assert task.source.kind == "partial" and task.source.variant == "1m" and "hashed TF-IDF" in task.source.note
    assert "60 of 1,000,209 ratings" in task.source.lacks
    assert [name for name, _ in task.source.files] == ["ml-1m/users.dat", "ml-1m/movies.dat", "ml-1m/ratings.dat"]
    assert (task.metric.name, task.metric.goal, task.classes, task.public.outputs) == ("rmse", "min", 0, 1)
    assert [(c.table, c.features.shape) for c in task.clients] == [
        ("ratings", (18, 1)), ("ratings", (18, 1)), ("movies", (4, 51)), ("movies", (3, 51)), ("users", (2, 23)),
        ("users", (2, 23)),
    ]  # fmt: skip
    splits = split_rows(60, 0.2, 0.2, 3)
    given, genres = made_ratings(), {1: 3, 4: 2, 6: 1}
    np.testing.assert_array_equal(np.concatenate([c.labels for c in task.clients[:2]]), given[splits["train"], 2])
    for split in ("val", "test"):
        times = [genres[movie] for movie in given[splits[split], 1]]
        np.testing.assert_array_equal(task.truth(split), np.repeat(given[splits[split], 2], times))
    aligned = load(config, "aligned", 1, 3, root)
    assert [block.shape[1] for block in aligned.features] == [1, 51, 23]
    np.testing.assert_array_equal(
        aligned.labels, np.repeat(given[splits["train"], 2], [genres[m] for m in given[splits["train"], 1]])
    )


def test_ratings_as_classes(root):
    task = load(Config(verify=False, task="classes"), "aligned", 1, 0, root)
    assert (task.metric.name, task.classes, task.public.outputs) == ("accuracy", 5, 5)
    regression = load(Config(verify=False), "aligned", 1, 0, root)
    np.testing.assert_array_equal(task.labels, regression.labels - 1)
    assert task.labels.dtype == np.int64


def test_auto_takes_the_fullest_variant_and_names_it(root):
    write_recbole(root)
    assert load(Config(verify=False), "relational", 1, 0, root).source.variant == "1m"
    assert load(Config(verify=False, variant="100k"), "relational", 1, 0, root).source.variant == "100k"
    (root / "ml-1m").rename(root / "ml-1m-sample100k")
    task = load(Config(verify=False), "relational", 1, 0, root)
    assert task.source.variant == "1m_sample" and task.source.kind == "partial"
    assert all(name.startswith("ml-1m-sample100k/") for name, _ in task.source.files)
    with pytest.raises(DataError, match=r"ml-1m-sample100k/users\.dat: wrong checksum"):
        load(Config(), "relational", 1, 0, root)
    (root / "ml-1m-sample100k" / "ratings.dat").unlink()
    assert load(Config(verify=False), "relational", 1, 0, root).source.variant == "100k"


def test_a_variant_that_is_not_there_is_an_error(root):
    with pytest.raises(DataError, match=r"ml-100k/u\.user, u\.item, u\.data.*no network in tests"):
        load(Config(variant="100k"), "relational", 1, 0, root)
    with pytest.raises(DataError, match=r"missing ml-1m-sample100k/users\.dat, movies\.dat, ratings\.dat"):
        # it has no twin, so there is none even without a data_root
        load(Config(variant="1m_sample"), "relational", 1, 0, None)
    (root / "ml-1m" / "ratings.dat").unlink()
    with pytest.raises(DataError, match=r"missing ml-1m/ratings\.dat.*dataset\.source=synthetic"):
        load(Config(), "relational", 1, 0, root)


def test_downloads_the_official_archive(tmp_path, root, monkeypatch):
    import io
    import zipfile
    from email.message import Message

    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as zipped:
        for name in ("users.dat", "movies.dat", "ratings.dat"):
            zipped.write(root / "ml-1m" / name, f"ml-1m/{name}")
    asked = []

    def answer(url, seconds):
        asked.append(url)
        reply = io.BytesIO(archive.getvalue())
        reply.headers = Message()
        return reply

    monkeypatch.setattr(sources, "_connect", answer)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"ml-1m/users\.dat: wrong checksum of what https://files.*\.zip sent"):
        load(Config(), "relational", 1, 0, tmp_path / "empty")
    assert not list((tmp_path / "empty").rglob("*.dat"))
    asked.clear()
    monkeypatch.setattr(movielens, "_GROUPS", {"1m": (movielens._files("ml-1m", movielens._DAT, "ml-1m.zip", {}),)})
    task = load(Config(), "relational", 1, 0, tmp_path / "empty")
    assert asked == ["https://files.grouplens.org/datasets/movielens/ml-1m.zip"] and task.source.variant == "1m"


def test_gzipped_files_and_windows_lines_are_read(root):
    plain = load(Config(verify=False), "aligned", 1, 0, root)
    for path in list((root / "ml-1m").iterdir()):
        path.with_name(path.name + ".gz").write_bytes(
            gzip.compress(path.read_bytes().replace(b"\n", b"\r\n") + b"\r\n")
        )
        path.unlink()
    again = load(Config(verify=False), "aligned", 1, 0, root)
    for a, b in zip(plain.features, again.features, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("name", "line", "text", "message"),
    [
        ("ratings.dat", 7, "1::4::5", "Expected 4 columns, got 3"),
        ("ratings.dat", 7, "1::4::5::978300760::1", "Expected 4 columns, got 5"),
        ("ratings.dat", 1, "1::4::6::978300760", "'6.0' is not a rating from 1 to 5"),
        ("ratings.dat", 60, "1::4::0::978300760", "a rating from 1 to 5"),
        ("ratings.dat", 2, "1::4::x::978300760", "column rating: .*invalid value 'x'"),
        ("ratings.dat", 30, "", "user is empty"),
        ("ratings.dat", 3, "1::99999999999999999999::5::978300760", "column movie: .*invalid value"),
        ("users.dat", 2, "2::X::56::16::70072", "genders F and M"),
        ("users.dat", 2, "2::M::56::21::70072", "is none of the occupations .*0 to 20"),
        ("users.dat", 4, "1::M::56::16::70072", "'1' is there twice as a user"),
        ("movies.dat", 3, "6::Heat (1995)", "Expected 3 columns, got 2"),
        ("movies.dat", 3, "6::Heat (1995)::Drama|Dramma", r"'Drama\|Dramma' names a genre that is none of Action, "),
        ("movies.dat", 3, "4::Heat (1995)::Drama", "'4' is there twice as a movie"),
    ],
)
def test_a_malformed_line_of_a_dat_file_is_named(root, name, line, text, message):
    path = root / "ml-1m" / name
    lines = path.read_bytes().decode("latin-1").split("\n")
    lines[line - 1] = text
    path.write_bytes("\n".join(lines).encode("latin-1"))
    with pytest.raises(DataError, match=rf"^ml-1m/{name.replace('.', chr(92) + '.')}, line {line}[:,] .*{message}"):
        load(Config(verify=False), "relational", 1, 0, root)


@pytest.mark.parametrize(
    ("make", "name", "line", "text", "message"),
    [
        (write_recbole, "ml-100k.inter", 1, "user\titem\trating\ttime", "header"),
        (write_recbole, "ml-100k.inter", 9, "1\t4\t5", "Expected 4 columns"),
        (write_recbole, "ml-100k.inter", 9, "1\t4\t4.5\t978300760", "a rating from 1 to 5"),
        (
            write_recbole,
            "ml-100k.user",
            3,
            "2\t56\tM\tpilot\t70072",
            "'pilot' is none of the occupations administrator",
        ),
        (write_recbole, "ml-100k.item", 2, "1\tToy Story\t1995", "Expected 4 columns, got 3"),
        (write_original, "u.data", 4, "1 4 5 978300760", "Expected 4 columns"),
        (write_original, "u.user", 4, "9|x|F|writer|02460", "column age: .*'x'"),
        (write_original, "u.item", 2, "4|A|||http://x|0|1", "Expected 24 columns, got 7"),
    ],
)
def test_a_malformed_line_of_100k_is_named(root, make, name, line, text, message):
    path = make(root) / name
    encoding = "latin-1" if make is write_original else "utf-8"
    lines = path.read_bytes().decode(encoding).split("\n")
    lines[line - 1] = text
    path.write_bytes("\n".join(lines).encode(encoding))
    with pytest.raises(
        DataError, match=rf"^{path.parent.name}/{name.replace('.', chr(92) + '.')}, line {line}[:,] .*{message}"
    ):
        load(Config(verify=False, variant="100k"), "relational", 1, 0, root)


def test_every_line_with_a_field_too_many_is_refused(root):
    path = root / "ml-1m" / "ratings.dat"
    path.write_text(path.read_text().replace("\n", "::1\n"))
    with pytest.raises(DataError, match=r"ratings\.dat, line 1: "):
        load(Config(verify=False), "relational", 1, 0, root)


@pytest.mark.parametrize("content", [b"", b"\n\n"])
def test_an_empty_file_is_named(root, content):
    for name in ("users.dat", "movies.dat", "ratings.dat"):
        path = root / "ml-1m" / name
        before = path.read_bytes()
        path.write_bytes(content)
        with pytest.raises(DataError, match=rf"ml-1m/{name}, line 1: (user|movie) is empty"):
            load(Config(verify=False), "relational", 1, 0, root)
        path.write_bytes(before)


def test_text_of_another_encoding_is_named(root):
    path = write_recbole(root) / "ml-100k.item"
    path.write_bytes(path.read_text("utf-8").encode("latin-1"))
    with pytest.raises(DataError, match=r"ml-100k\.item, line 4, column title: .*UTF8"):
        load(Config(verify=False, variant="100k"), "relational", 1, 0, root)


def test_all_wrong_values_are_reported_together(tmp_path):
    with pytest.raises(ConfigError) as error:
        load(Config(test=1.5, text_encoder=str(tmp_path)), "relational", 1, 0, None)
    assert [problem.key for problem in error.value.problems] == [
        "dataset.validation, dataset.test",
        "dataset.text_encoder",
    ]
    _, problems = convert(Config, {"source": "reel", "variant": "10m", "width": 0})
    assert [problem.key for problem in problems] == ["source", "variant", "width"]
    with pytest.raises(ConfigError, match=r"dataset\.variant=100k: the synthetic twin is that of 1m"):
        load(Config(source="synthetic", variant="100k"), "relational", 1, 0, None)


# --- the twin ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def twin():
    return movielens.twin()


@pytest.mark.slow
def test_the_twin_has_the_papers_sizes(twin):
    raw, splits = twin
    ratings, movies, users = raw.tables
    assert [len(table.features) for table in raw.tables] == [1_000_209, 6_408, 6_040]
    assert [table.features.shape[1] for table in raw.tables] == [1, 51, 23]
    train = splits["train"]
    assert [len(splits[name]) for name in ("train", "val", "test")] == [850_177, 75_016, 75_016]
    np.testing.assert_array_equal(np.sort(np.concatenate(list(splits.values()))), np.arange(1_000_209))
    rows = pd.Series(movies.keys["movieid"]).value_counts()  # of a movie: as many as it has genres
    assert rows.loc[ratings.keys["movieid"][train]].sum() == 1_786_513
    assert np.isin(movies.keys["movieid"], ratings.keys["movieid"][train]).sum() == 6_170
    assert np.isin(users.keys["userid"], ratings.keys["userid"][train]).all()
    assert rows.max() == 6 and len(rows) == 3_883
    assert set(np.unique(raw.labels)) == {1, 2, 3, 4, 5}


@pytest.mark.slow
def test_the_twins_keys_are_skewed_as_the_real_ones_and_no_pair_stands_twice(twin):
    ratings = twin[0].tables[0]
    user, movie = ratings.keys["userid"], ratings.keys["movieid"]
    assert len(np.unique(user * 10_000 + movie)) == len(user) and (np.diff(user) >= 0).all()
    per_movie, per_user = (np.unique(key, return_counts=True)[1] for key in (movie, user))
    np.testing.assert_allclose(np.quantile(per_movie, [0.25, 0.5, 0.75, 0.95]), [33, 123.5, 350, 1051], rtol=0.1)
    np.testing.assert_allclose(np.quantile(per_user, [0.25, 0.5, 0.75, 0.95]), [44, 96, 208, 556], rtol=0.1)
    assert per_movie.max() > 2500 and per_user.max() > 1500 and per_movie.min() >= 1


@pytest.mark.slow
def test_the_twin_is_learnable_about_as_the_real_data(caplog):
    with caplog.at_level(logging.WARNING):
        task = load(Config(source="synthetic"), "aligned", 1, 0, None)
    assert "SYNTHETIC TWIN: dataset movielens" in caplog.text
    assert task.source.kind == "synthetic" and task.source.variant == "1m" and "split of its own" in task.source.note
    assert len(task.labels) == 1_786_513
    every = slice(None, None, 7)
    blocks = np.column_stack([*(block[every] for block in task.features), np.ones(len(task.labels[every]))]).astype(
        np.float64
    )
    solution = np.linalg.lstsq(blocks, task.labels[every], rcond=None)[0]
    held = np.column_stack([*task.held_out_features["test"], np.ones(len(task.held_out_labels["test"]))])
    truth = task.held_out_labels["test"]
    fitted, constant = (np.sqrt(np.mean((guess - truth) ** 2)) for guess in (held @ solution, task.labels.mean()))
    assert 1.05 < constant < 1.15 and 0.025 < constant - fitted < 0.05


@pytest.mark.slow
def test_the_twin_is_the_same_for_every_seed_and_width_only_narrows_it(twin):
    a, b = (load(Config(source="synthetic", width=2), "relational", 2, seed, None) for seed in (0, 1))
    assert [part.features.shape[1] for part in a.clients] == [1, 1, 2, 2, 2, 2]
    for part, other in zip(a.clients, b.clients, strict=True):
        np.testing.assert_array_equal(part.features, other.features)
        for key in part.keys:
            np.testing.assert_array_equal(part.keys[key], other.keys[key])
    raw, splits = twin
    np.testing.assert_array_equal(
        np.concatenate([c.keys["userid"] for c in a.clients[:2]]), raw.tables[0].keys["userid"][splits["train"]]
    )
    assert "at most 2 features" in a.source.note


@pytest.mark.slow
def test_without_a_data_root_the_twin_is_built(twin, caplog, monkeypatch):
    monkeypatch.setattr(movielens, "twin", lambda width: twin)
    with caplog.at_level(logging.WARNING):
        task = load(Config(), "relational", 1, 0, None)
    assert task.source.kind == "synthetic" and "no network in tests" in caplog.text
    with pytest.raises(DataError, match="missing ml-1m/users"):
        load(Config(source="real", variant="1m"), "relational", 1, 0, None)


# --- real data --------------------------------------------------------------------------------------------------------


def pandas_join(folder: Path) -> pd.DataFrame:
    """The sample's join by pandas: rating, genre, age."""
    read = {"sep": "::", "header": None, "engine": "python", "encoding": "latin-1"}
    users = pd.read_csv(folder / "users.dat", names=["user", "gender", "age", "occupation", "zip"], **read)
    movies = pd.read_csv(folder / "movies.dat", names=["movie", "title", "genres"], **read)
    ratings = pd.read_csv(folder / "ratings.dat", names=["user", "movie", "rating", "time"], **read).reset_index(
        names="row"
    )
    movies = movies.assign(genre=movies.genres.str.split("|")).explode("genre")
    return ratings.merge(movies, on="movie").merge(users, on="user")


@pytest.mark.realdata
@pytest.mark.slow
def test_the_sample_of_ml_1m(shared_data):
    if not (shared_data / "ml-1m-sample100k").is_dir():
        absent("no sample of MovieLens-1M")
    task = load(Config(variant="1m_sample"), "aligned", 1, 0, shared_data)
    assert (task.source.kind, task.source.variant, len(task.source.files)) == ("partial", "1m_sample", 3)
    assert [block.shape[1] for block in task.features] == [1, 51, 23]
    relational = load(Config(variant="1m_sample"), "relational", 1, 0, shared_data)
    assert [part.rows for part in relational.clients] == [70_000, 6_408, 6_040]
    joined = pandas_join(shared_data / "ml-1m-sample100k")
    raw, _ = raw_of(shared_data, "1m_sample")
    users = raw.tables[2].features
    spread, mean = users[:, 1].std(dtype=np.float64), users[:, 1].mean(dtype=np.float64)
    total = 0
    for split, rows in split_rows(100_000, 0.15, 0.15, 0).items():
        expected = joined[joined.row.isin(rows)].sort_values(["row", "genre"])
        blocks, labels = (
            (task.features, task.labels)
            if split == "train"
            else (task.held_out_features[split], task.held_out_labels[split])
        )
        np.testing.assert_array_equal(labels, expected.rating)
        ages, genres = blocks[2][:, 1] * spread + mean, (blocks[1][:, :18] > 0).argmax(axis=1)
        np.testing.assert_allclose(ages, expected.age, atol=1e-3)
        assert [GENRES[i] for i in genres[:500]] == expected.genre.tolist()[:500]
        total += len(labels)
    assert total == len(joined)


@pytest.mark.realdata
def test_ml_100k(shared_data):
    if not (shared_data / "ml-100k-recbole").is_dir():
        absent("no MovieLens-100K")
    task = load(Config(variant="100k", validation=0), "relational", 2, 0, shared_data)
    assert task.source.variant == "100k" and set(task.held_out) == {"test"}
    # 2,893 genre flags, one of them per unknown
    assert [part.rows for part in task.clients] == [42_500, 42_500, 1447, 1446, 472, 471]
    raw, content = raw_of(shared_data, "100k")
    assert np.isnan(content.year).sum() == 1 and (~content.genre.any(axis=1)).sum() == 2  # one film is called "unkonwn"
    assert np.bincount(raw.labels.astype(int)).tolist() == [0, 6110, 11370, 27145, 34174, 21201]


@pytest.mark.realdata
def test_auto_is_the_sample_where_the_whole_is_missing(shared_data):
    found = {name: (shared_data / name).is_dir() for name in ("ml-1m", "ml-1m-sample100k")}
    if found["ml-1m"] or not found["ml-1m-sample100k"]:
        pytest.skip("another variant is here")
    assert load(Config(), "relational", 1, 0, shared_data).source.variant == "1m_sample"
