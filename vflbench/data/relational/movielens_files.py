"""The files of MovieLens, in three formats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vflbench.data.readers import csv_files
from vflbench.data.sources import Found, RawFile

if TYPE_CHECKING:
    import pandas as pd

GENRES = (
    *("Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary", "Drama", "Fantasy"),
    *("Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western"),
)
NO_GENRE = "unknown"  # of ML-100K: such a movie has one row without a genre
_OCCUPATIONS = """
    administrator artist doctor educator engineer entertainment executive healthcare homemaker lawyer librarian
    marketing none other programmer retired salesman scientist student technician writer
"""
OCCUPATIONS = tuple(_OCCUPATIONS.split())


_FLAGS = tuple(f"flag {name}" for name in (NO_GENRE, *GENRES))
_TEXTS = ("title", "date", "year", "genres")  # cells that may be empty
_KINDS = {
    **dict.fromkeys(("user", "movie", *_FLAGS), "integer"),
    **dict.fromkeys(("age", "rating", "time"), "number"),
    **dict.fromkeys(("gender", "occupation", *_TEXTS), "text"),
}


@dataclass(frozen=True)
class _Format:
    """Lines of a file: with a header RecBole's, in UTF-8; without one the original's, in Latin-1."""

    separator: str
    columns: tuple[str, ...]
    header: tuple[str, ...] = ()


_FORMATS = {
    "users.dat": _Format("::", ("user", "gender", "age", "occupation", "zip")),
    "movies.dat": _Format("::", ("movie", "title", "genres")),
    "ratings.dat": _Format("::", ("user", "movie", "rating", "time")),
    "u.user": _Format("|", ("user", "age", "gender", "occupation", "zip")),
    "u.item": _Format("|", ("movie", "title", "date", "video", "address", *_FLAGS)),
    "u.data": _Format("\t", ("user", "movie", "rating", "time")),
    "ml-100k.user": _Format(
        "\t",
        ("user", "age", "gender", "occupation", "zip"),
        ("user_id:token", "age:token", "gender:token", "occupation:token", "zip_code:token"),
    ),
    "ml-100k.item": _Format(
        "\t",
        ("movie", "title", "year", "genres"),
        ("item_id:token", "movie_title:token_seq", "release_year:token", "class:token_seq"),
    ),
    "ml-100k.inter": _Format(
        "\t", ("user", "movie", "rating", "time"), ("user_id:token", "item_id:token", "rating:float", "timestamp:float")
    ),
}


def _lines(found: Found, file: RawFile) -> pd.DataFrame:
    """The lines of a file, indexed by their numbers.

    Raises
    ------
    DataError : naming the first line that is not of the format.
    """
    import pandas as pd

    label, form = found.label(file), _FORMATS[file.name]
    data = found.read(file).rstrip(b"\r\n") + b"\n"
    if form.header:
        csv_files.check_header(data, label, form.header, form.separator)
    else:
        data = data.decode("latin-1").encode().replace(form.separator.encode(), b"\t")
    kinds = {name: _KINDS[name] for name in form.columns if name in _KINDS}
    separator, skip = form.separator if form.header else "\t", int(bool(form.header))
    frame = pd.DataFrame(
        csv_files.read(data, label, form.columns, kinds, optional=_TEXTS, skip=skip, separator=separator, quotes=False)
    )
    frame.index += skip + 1
    return frame


def _refuse(label: str, values: pd.Series, wrong: pd.Series, why: str) -> None:
    """Raise DataError for the first line that is `wrong`, if there is one."""
    csv_files.refuse(label, values.index[0], values.to_numpy(), wrong.to_numpy(), why)


@dataclass(frozen=True)
class Content:
    """The content of the files, the same for all variants."""

    user: np.ndarray  # (users,) int64 ids
    female: np.ndarray  # (users,) bool
    age: np.ndarray
    occupation: np.ndarray  # (users,) 0 to 20
    movie: np.ndarray  # (movies,) int64 ids
    title: list[str]  # without the year
    year: np.ndarray  # (movies,) NaN: unknown
    genre: np.ndarray  # (movies, 18) bool
    rating_user: np.ndarray  # (ratings,) int64
    rating_movie: np.ndarray
    rating: np.ndarray  # (ratings,) 1.0 to 5.0
    time: np.ndarray  # (ratings,) seconds since 1970


def read(found: Found, group: tuple[RawFile, ...]) -> Content:
    """The content of one group of files.

    Raises
    ------
    DataError : naming file and line.
    """
    users, movies, ratings = (_lines(found, file) for file in group)
    labels = [found.label(file) for file in group]
    _refuse(labels[0], users["user"], users["user"].duplicated(), "is there twice as a user")
    _refuse(labels[0], users["gender"], ~users["gender"].isin(["F", "M"]), "is none of the genders F and M")
    _refuse(labels[1], movies["movie"], movies["movie"].duplicated(), "is there twice as a movie")
    _refuse(labels[2], ratings["rating"], ~ratings["rating"].isin([1, 2, 3, 4, 5]), "is not a rating from 1 to 5")
    _refuse(labels[2], ratings["time"], ~np.isfinite(ratings["time"]), "is not a time in seconds")
    title, year = _titles(movies)
    return Content(
        user=users["user"].to_numpy(np.int64),
        female=(users["gender"] == "F").to_numpy(),
        age=users["age"].to_numpy(np.float32),
        occupation=_occupations(users["occupation"], labels[0]),
        movie=movies["movie"].to_numpy(np.int64),
        title=title,
        year=year,
        genre=_genres(movies, labels[1]),
        rating_user=ratings["user"].to_numpy(np.int64),
        rating_movie=ratings["movie"].to_numpy(np.int64),
        rating=ratings["rating"].to_numpy(np.float64, copy=True),
        time=ratings["time"].to_numpy(np.float64),
    )


def _occupations(column: pd.Series, label: str) -> np.ndarray:
    """Numbers of the occupations, which ML-1M has as numbers and ML-100K as names."""
    number = column.map({form: i for i, name in enumerate(OCCUPATIONS) for form in (name, str(i))})
    why = f"is none of the occupations {', '.join(OCCUPATIONS)}, nor a number from 0 to 20"
    _refuse(label, column, number.isna(), why)
    return number.to_numpy(np.int64)


def _titles(movies: pd.DataFrame) -> tuple[list[str], np.ndarray]:
    """Titles without "(year)", and years: from the title, else from the date or year column, else NaN."""
    import pandas as pd

    # (V): made for video
    parts = movies["title"].fillna("").str.extract(r"^(?P<title>.*?)\s*(?:\((?P<year>\d{4})\)(?:\s*\(V\))?)?\s*$")
    year = parts["year"]
    for column, pattern in (("date", r"(\d{4})$"), ("year", r"^(\d{4})$")):
        if column in movies:
            year = year.where(year.notna(), movies[column].str.extract(pattern)[0])
    return parts["title"].tolist(), pd.to_numeric(year).to_numpy(np.float32)


def _genres(movies: pd.DataFrame, label: str) -> np.ndarray:
    """Which genres each movie has, (movies, 18) bool."""
    if _FLAGS[0] in movies:
        flags = movies[list(_FLAGS)]
        _refuse(label, movies["movie"], ~flags.isin([0, 1]).all(axis=1), "has a genre flag that is not 0 or 1")
        return (flags == 1).to_numpy(bool)[:, 1:]
    named = movies["genres"].fillna("").str.replace(" ", "|").str.get_dummies("|").astype(bool)
    unknown = [name for name in named if name not in (*GENRES, NO_GENRE)]
    _refuse(label, movies["genres"], named[unknown].any(axis=1), f"names a genre that is none of {', '.join(GENRES)}")
    return named.reindex(columns=list(GENRES), fill_value=False).to_numpy(bool)
