"""MovieLens-1M and MovieLens-100K (Harper and Konstan 2015) as three tables: ratings, movies by genre, users.

The tables are built as in TablePuppet (Xu et al., arXiv 2403.15839): a movie has a row for each of its genres, so a
rating joins as many rows as its movie has genres. Features of ratings: the timestamp. Of movies: 18 one-hot genres, the
year and 32 coordinates of the title. Of users: gender, age and 21 one-hot occupations.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from vflbench.cards.data.relational.movielens import Config
from vflbench.data import sources, twins
from vflbench.data.divide.raw_tables import RawTable, RawTables, divide, kept
from vflbench.data.divide.splits import check_fractions, split_rows
from vflbench.data.published_files import Lines, Rows
from vflbench.data.relational import text
from vflbench.data.relational.movielens_files import GENRES, OCCUPATIONS, Content, read
from vflbench.data.sources import FileSet, Part, RawFile
from vflbench.data.tasks import AlignedTask, Equality, RelationalTask
from vflbench.seeding import stream
from vflbench.types import Metric, Problem, refuse

# --- files ------------------------------------------------------------------------------------------------------------

_ADDRESS = "https://files.grouplens.org/datasets/movielens"


_SHA256 = {
    "ml-1m-sample100k/users.dat": "1dc3a95300cb19f7c10e027daf29b8cdf1d908dab65b5edfb45950aa389a10a3",
    "ml-1m-sample100k/movies.dat": "0140fc2356357c1a851d0f52e893a1e4d3696df632c4141cea8d5bc3d621f0b9",
    "ml-1m-sample100k/ratings.dat": "734d8519445bcf4639f9709e56a700bbef7514bf12902620ca068aa63dcd93e8",
    "ml-100k-recbole/ml-100k.user": "4f670007d9cfbeb9807e757209af1555b9bcc186bde25e767f67cb67c6dd5972",
    "ml-100k-recbole/ml-100k.item": "51d7cdf777ce5c0f5b32c1d947a4a81fe07d75e78abbe761e0cd4d0756064532",
    "ml-100k-recbole/ml-100k.inter": "4edb74e2a81178c2ba9ff381495f754f996c4aea351b1272ca36b43da0935eff",
}


_DIGESTS = {  # those of ml-1m's users and movies are those of the sample, too
    "ml-1m/users.dat": _SHA256["ml-1m-sample100k/users.dat"],
    "ml-1m/movies.dat": _SHA256["ml-1m-sample100k/movies.dat"],
    "ml-1m/ratings.dat": "a89aa3591bc97d6d4e0c89459ff39362",
}


def _files(
    folder: str, names: tuple[str, ...], archive: str | None = None, digests: Mapping[str, str] = _DIGESTS
) -> tuple[RawFile, ...]:
    paths = (f"{folder}/{name}" for name in names)
    url = archive and f"{_ADDRESS}/{archive}"
    return tuple(RawFile(path, url, _SHA256.get(path), path if url else None, digests.get(path)) for path in paths)


# Users, movies and ratings of each variant, the fullest first; 100k has its original format and RecBole's.
_DAT = ("users.dat", "movies.dat", "ratings.dat")
_GROUPS: dict[str, tuple[tuple[RawFile, ...], ...]] = {
    "1m": (_files("ml-1m", _DAT, "ml-1m.zip"),),
    "1m_sample": (_files("ml-1m-sample100k", _DAT),),
    "100k": (
        _files("ml-100k", ("u.user", "u.item", "u.data"), "ml-100k.zip"),
        _files("ml-100k-recbole", ("ml-100k.user", "ml-100k.item", "ml-100k.inter")),
    ),
}


def _rows(name: str, group: tuple[RawFile, ...]) -> Iterator[Rows]:
    """What the published files hold; of the sample: what those of ML-1M hold."""
    counts = (943, 1_682, 100_000) if name == "100k" else (_USERS, 3_883, _RATINGS)
    forms = {"users.dat": ("::", 0, (5, 3, 4)), "u.user": ("|", 0, (5, 24, 4)), "ml-100k.user": ("\t", 1, (5, 4, 4))}
    separator, header, widths = forms[group[0].name]
    for what, count, width, file in zip(("users", "movies", "ratings"), counts, widths, group, strict=True):
        between = "\t" if file.name == "u.data" else separator
        yield Rows(what, (count,), width, (file.path,), Lines(between, header))


def _file_set(variant: str) -> FileSet:
    named = [(name, group) for name, groups in _GROUPS.items() for group in groups]
    variants, groups = zip(*named, strict=True)
    part = Part("users, movies and ratings", groups, variants=variants)
    rows = tuple(rows for name, group in named for rows in _rows(name, group))
    return FileSet("movielens", "ml-1m", (part,), rows=rows).only(variant)


# The paper's sizes: all ratings, training ratings, rows that these join.
_RATINGS, _TRAIN, _JOINED = 1_000_209, 850_177, 1_786_513
_USERS = 6_040
FILE_SETS = (_file_set("auto"),)

TITLE_WIDTH = 32


def check(config: Config, layout: str, parties: int) -> list[Problem]:
    """What is wrong with the configuration, before anything is read."""
    problems = check_fractions(config.validation, config.test)
    if config.source == "synthetic" and config.variant in ("1m_sample", "100k"):
        problems.append(Problem("dataset.variant", config.variant, "the synthetic twin is that of 1m: auto or 1m"))
    return problems + text.check_encoder(config.text_encoder)


def load(config: Config, layout: str, parties: int, seed: int, root: Path | None) -> RelationalTask | AlignedTask:
    """Ratings, movies and users, each in `parties` horizontal parts."""
    refuse(check(config, layout, parties))
    has_twin = config.variant in ("auto", "1m")
    found = sources.locate(_file_set(config.variant), root, config.source, config.verify, has_twin)
    if found is None:
        raw, splits = kept("movielens-twin", lambda: twin(config.width), config.width)
        narrowed = "" if config.width is None else f"; at most {config.width} features per table"
        note = f"synthetic twin of MovieLens-1M with its sizes and a split of its own{narrowed}"
        source = twins.twin_source("1m", note)
    else:
        variant, group = next(
            (name, g) for name, groups in _GROUPS.items() for g in groups if all(file in found for file in g)
        )
        encode = text.features_of(config.text_encoder, TITLE_WIDTH)
        content = read(found, group)
        encode.fit(content.title)
        raw = _tables(content, encode(content.title))
        splits = split_rows(len(raw.labels), config.validation, config.test, seed)
        source = found.source(variant, encode.note, group)
    metric = Metric("rmse", "min")
    if config.task == "classes":
        raw = RawTables(raw.tables, raw.label_table, raw.labels.astype(np.int64) - 1, 5, raw.joins)
        metric = Metric("accuracy", "max")
    return divide(config.name, raw, splits, source, metric, layout=layout, parts=parties)


# --- the tables -------------------------------------------------------------------------------------------------------

_JOINS = (Equality(("ratings", "movieid"), ("movies", "movieid")), Equality(("ratings", "userid"), ("users", "userid")))


def _tables(content: Content, titles: np.ndarray) -> RawTables:
    """The three tables. A movie has a row for each genre, in the order of the file.

    Parameters
    ----------
    titles : coordinates of the movies' titles.
    """
    without = ~content.genre.any(axis=1)
    row, genre = np.nonzero(np.column_stack([content.genre, without]))
    one_hot = np.eye(len(GENRES) + 1, len(GENRES), dtype=np.float32)[genre]  # the last: without a genre
    movies = RawTable(
        "movies",
        {"movieid": content.movie[row]},
        np.column_stack([one_hot, content.year[row], titles[row]]).astype(np.float32),
        (*GENRES, "year", *(f"title_{i}" for i in range(titles.shape[1]))),
    )
    users = RawTable(
        "users",
        {"userid": content.user},
        np.column_stack([content.female, content.age, np.eye(len(OCCUPATIONS))[content.occupation]]).astype(np.float32),
        ("female", "age", *(f"occupation_{i}" for i in range(len(OCCUPATIONS)))),
    )
    ratings = RawTable(
        "ratings",
        {"movieid": content.rating_movie, "userid": content.rating_user},
        content.time[:, None].astype(np.float32),
        ("timestamp",),
    )
    return RawTables((ratings, movies, users), "ratings", content.rating, 0, _JOINS)


# --- the twin ---------------------------------------------------------------------------------------------------------

# Movies with 1, 2, ... 6 genres: 3,883 with 6,408 rows, as in MovieLens-1M. Without the unrated ones 6,170 rows join.
_RATED = (1870, 1288, 416, 100, 14, 1)
_UNRATED = (155, 34, 5, 0, 0, 0)
# Ratings per rated movie and per user: quantiles of MovieLens-1M's.
_QUANTILES = (0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1)
_PER_MOVIE = (1, 2, 7, 33, 123, 350, 730, 1052, 1785, 3428)
_PER_USER = (20, 23, 27, 44, 96, 208, 400, 556, 907, 2314)
_POPULAR = 0.45  # correlation of a movie's popularity with its number of genres


def twin(width: int | None = None) -> tuple[RawTables, dict[str, np.ndarray]]:
    """Made-up tables and their split: 850,177 training ratings, which join exactly 1,786,513 rows.

    The other ratings are for validation and test. Ratings per movie and per user are spread as in the real data. No
    user rates a movie twice, and popular movies have more genres.
    """
    rng = stream(0, "twin/movielens")
    genres = _genre_counts(rng)
    user, movie, kept = _pairs(rng)
    splits = _split(genres[movie], kept, rng)
    content, titles = _made_up(user, movie, genres, rng)
    raw = _tables(content, titles)
    tables = tuple(RawTable(t.name, t.keys, t.features[:, :width], t.columns[:width]) for t in raw.tables)
    return RawTables(tables, raw.label_table, raw.labels, raw.classes, raw.joins), splits


def _genre_counts(rng: np.random.Generator) -> np.ndarray:
    """How many genres each movie has: the rated ones, the most popular first, then the unrated ones."""
    count = np.repeat(np.arange(6, 0, -1), _RATED[::-1])
    popularity = np.sort(rng.standard_normal(len(count)))[::-1]
    score = _POPULAR * popularity + np.sqrt(1 - _POPULAR**2) * rng.standard_normal(len(count))
    genres = np.empty(len(count), np.int64)
    genres[np.argsort(-score)] = count
    return np.concatenate([genres, np.repeat(np.arange(1, 7), _UNRATED)])


def _pairs(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """User and movie of every rating, and which ratings training must have.

    The pairs are distinct, in the order of the users. User u rates movie m with probability 1 - exp(-a_u b_m), where a
    and b give the wanted numbers per user and per movie. Every user and every rated movie has one sure rating, so that
    all of them join.
    """
    wanted = 1.01 * _RATINGS  # so that there are always enough
    a, b = _rates(_spread(_PER_USER, _USERS, wanted), _spread(_PER_MOVIE, sum(_RATED), wanted))
    # Eager users get random numbers. So parts of the ratings, which are in the users' order, are alike.
    a = rng.permutation(a)
    rated = rng.random((len(a), len(b)), dtype=np.float32) > np.exp(-a[:, None] * b)
    sure = np.zeros_like(rated)
    sure[rng.integers(0, len(a), len(b)), np.arange(len(b))] = True
    sure[np.arange(len(a)), rng.integers(0, len(b), len(a))] = True
    user, movie = np.nonzero(rated | sure)
    kept = sure[user, movie]
    spare = rng.permutation(np.flatnonzero(~kept))[: len(user) - _RATINGS]
    chosen = np.setdiff1d(np.arange(len(user)), spare, assume_unique=True)
    # A user's ratings are in random order: in the real file they do not follow the movies' numbers.
    chosen = chosen[np.lexsort((rng.random(len(chosen)), user[chosen]))]
    return user[chosen], movie[chosen], kept[chosen]


def _rates(per_user: np.ndarray, per_movie: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rates a and b, float32, that give the wanted numbers.

    They are fitted at 200 users and 200 movies and interpolated, as both are in order.
    """
    users, movies = (np.linspace(0, len(wanted) - 1, 200).round().astype(int) for wanted in (per_user, per_movie))
    a, b = per_user[users].copy(), per_movie[movies] / per_user.sum()
    for _ in range(20):
        a *= per_user[users] / np.trapezoid(-np.expm1(-a[:, None] * b), movies, axis=1)
        b *= per_movie[movies] / np.trapezoid(-np.expm1(-a[:, None] * b), users, axis=0)
    wide = [
        np.exp(np.interp(np.arange(len(w)), at, np.log(r)))
        for w, at, r in ((per_user, users, a), (per_movie, movies, b))
    ]
    return wide[0].astype(np.float32), wide[1].astype(np.float32)


def _spread(quantiles: tuple[int, ...], size: int, total: float) -> np.ndarray:
    """Expected numbers, (size,), the largest first, with about the given quantiles and the sum `total`."""
    numbers = np.exp(np.interp(np.linspace(1, 0, size), _QUANTILES, np.log(quantiles)))
    scaled: np.ndarray = numbers * total / numbers.sum()
    return scaled


def _split(genres: np.ndarray, kept: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """The ratings of train, val and test, with exactly the paper's numbers of training rows and of rows they join.

    Parameters
    ----------
    genres : how many rows each rating joins.
    kept : which ratings training must have.
    """
    train = kept.copy()
    train[rng.permutation(np.flatnonzero(~kept))[: _TRAIN - kept.sum()]] = True
    # Ratings of movies with one genre are swapped with those of two genres until the join has its size.
    lacking = _JOINED - int(genres[train].sum())
    leaves, comes = (1, 2) if lacking > 0 else (2, 1)
    out = rng.permutation(np.flatnonzero(train & ~kept & (genres == leaves)))[: abs(lacking)]
    into = rng.permutation(np.flatnonzero(~train & (genres == comes)))[: abs(lacking)]
    train[out], train[into] = False, True
    rest = rng.permutation(np.flatnonzero(~train))
    half = len(rest) // 2
    return {"train": np.flatnonzero(train), "val": np.sort(rest[:half]), "test": np.sort(rest[half:])}


def _made_up(
    user: np.ndarray, movie: np.ndarray, genres: np.ndarray, rng: np.random.Generator
) -> tuple[Content, np.ndarray]:
    """Users, movies and ratings for the pairs, and coordinates of titles.

    A rating is a rounded sum of four terms. One is linear in the features and explains about as much as in
    MovieLens-1M. A non-linear one can be found by a network for each table. Effects of movie and user show in no
    feature. The last one is noise.
    """
    users, movies = _USERS, len(genres)
    female = rng.random(users) < 0.283
    age = rng.choice([1, 18, 25, 35, 45, 50, 56], users, p=[0.037, 0.183, 0.347, 0.197, 0.091, 0.082, 0.063])
    occupation = (len(OCCUPATIONS) * rng.random(users) ** 1.8).astype(np.int64)
    joined = 9.567e8 + 2.2e7 * rng.random(users)
    time = joined[user] + rng.exponential(np.exp(rng.normal(8, 3, users)).clip(max=2e7))[user] * rng.random(len(user))

    # A movie's genres are the first ones in a random order, in which frequent genres come early.
    frequent = np.log(np.geomspace(1, 0.03, len(GENRES)))
    rank = (frequent + rng.gumbel(size=(movies, len(GENRES)))).argsort(axis=1)[:, ::-1].argsort(axis=1)
    genre = rank < genres[:, None]
    year = 2000 - rng.exponential(14, movies).clip(max=80).round()
    titles = rng.standard_normal((movies, TITLE_WIDTH))

    old, grown = (2000 - year) / 14 - 1, (age - 31) / 13
    of_movie = genre @ rng.normal(0, 0.26, len(GENRES)) / np.sqrt(genres) + 0.15 * old
    of_movie = of_movie + titles @ rng.normal(0, 0.03, TITLE_WIDTH)
    of_user = 0.08 * grown + 0.05 * female + rng.normal(0, 0.08, len(OCCUPATIONS))[occupation]
    bent = 0.2 * np.abs(titles[:, 0]) + 0.1 * np.minimum(old, 1) * genre[:, 0] + 0.1 * np.abs(titles[:, 1])
    hidden = rng.normal(0, 0.35, movies) + bent - bent.mean(), rng.normal(0, 0.35, users)
    score = 3.67 + (of_movie - of_movie.mean() + hidden[0])[movie] + (of_user + hidden[1])[user]
    rating = np.clip(np.round(score + rng.normal(0, 1.04, len(user))), 1, 5)
    ids = np.sort(rng.permutation(np.arange(1, 3953))[:movies])
    place = rng.permutation(movies)  # popular movies get random numbers
    content = Content(
        user=np.arange(1, users + 1),
        female=female,
        age=age,
        occupation=occupation,
        movie=ids,
        title=[],
        year=year[place],
        genre=genre[place],
        rating_user=user + 1,
        rating_movie=ids[np.argsort(place)][movie],
        rating=rating,
        time=time,
    )
    return content, titles[place]
