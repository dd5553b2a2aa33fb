"""MovieLens' files: three formats of one content."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vflbench.data import csv_files
from vflbench.data.sources import Found, RawFile
from vflbench.types import DataError

if TYPE_CHECKING:
    import pandas as pd

GENRES = (
    *("Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary", "Drama", "Fantasy"),
    *("Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western"),
)
NO_GENRE = "unknown"  # of ML-100K: such a movie has one row without a genre
OCCUPATIONS = (
    *("administrator", "artist", "doctor", "educator", "engineer", "entertainment", "executive", "healthcare", "homemaker"),
    *("lawyer", "librarian", "marketing", "none", "other", "programmer", "retired", "salesman", "scientist", "student"),
    *("technician", "writer"),
)


@dataclass(frozen=True)
class _Format:
    """Lines of a file: `pattern` takes one apart into named fields, `shape` is how an error says what one looks like."""

    pattern: str
    shape: str
    header: str | None = None
    encoding: str = "latin-1"


_FORMATS = {
    "users.dat": _Format(
        r"(?P<user>\d{1,18})::(?P<gender>[FM])::(?P<age>\d{1,3})::(?P<occupation>1?\d|20)::.*",
        "user::gender::age::occupation::zip, genders F and M, occupations 0 to 20",
    ),
    "movies.dat": _Format(r"(?P<movie>\d{1,18})::(?P<title>.*)::(?P<genres>[^:]*)", "movie::title (year)::genre|genre"),
    "u.user": _Format(
        r"(?P<user>\d{1,18})\|(?P<age>\d{1,3})\|(?P<gender>[FM])\|(?P<occupation>[a-z]+)\|.*",
        "user|age|gender|occupation|zip, genders F and M",
    ),
    "u.item": _Format(
        r"(?P<movie>\d{1,18})\|(?P<title>[^|]*)\|(?P<date>[^|]*)\|[^|]*\|[^|]*\|(?P<flags>(?:[01]\|){18}[01])",
        "movie|title (year)|date|video date|address|19 genre flags",
    ),
    "ml-100k.user": _Format(
        r"(?P<user>\d{1,18})\t(?P<age>\d{1,3})\t(?P<gender>[FM])\t(?P<occupation>[a-z]+)\t.*",
        "user, age, gender, occupation, zip between tabs, genders F and M",
        "user_id:token\tage:token\tgender:token\toccupation:token\tzip_code:token",
        "utf-8",
    ),
    "ml-100k.item": _Format(
        r"(?P<movie>\d{1,18})\t(?P<title>[^\t]*)\t(?P<year>[^\t]*)\t(?P<genres>[^\t]*)",
        "movie, title, year, genres between tabs",
        "item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq",
        "utf-8",
    ),
}


def _lines(data: bytes, label: str, form: _Format) -> pd.DataFrame:
    """Every line taken apart, as text; the index is the line's number. Empty lines at the end do not count.

    Raises DataError, naming the first line that is not of the format.
    """
    import pandas as pd

    try:
        content = data.decode(form.encoding)
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise DataError(f"{label}, line {line}: not {form.encoding} text. Get the file again.") from None
    lines = pd.Series(content.rstrip("\r\n").split("\n"), dtype=object).str.rstrip("\r")  # not splitlines: \x85 is a character of titles
    lines.index += 1
    if form.header is not None:
        if lines[1] != form.header:
            raise DataError(f"{label}, line 1: {lines[1][:80]!r} is not the header {form.header!r}.")
        lines = lines[1:]
    if not len(lines) or not lines.iloc[0]:
        raise DataError(f"{label}: holds no rows. Get the file again.")
    _refuse(label, lines, ~lines.str.fullmatch(form.pattern).astype(bool), f"is not {form.shape}")
    return lines.str.extract(f"^{form.pattern}$")


_INTER = ("user_id:token", "item_id:token", "rating:float", "timestamp:float")  # header of the only file of ratings that has one


def _ratings(data: bytes, file: RawFile, label: str) -> pd.DataFrame:
    """User, movie, rating, time of every line, between colons or tabs. Raises DataError."""
    import pandas as pd

    kinds = {"user": "integer", "movie": "integer", "rating": "number", "time": "number"}
    lines, header = data.rstrip(b"\r\n").replace(b"::", b"\t") + b"\n", int(file.name == "ml-100k.inter")
    if header:
        csv_files.check_header(lines, label, _INTER, "\t")
    frame = pd.DataFrame(csv_files.read(lines, label, list(kinds), kinds, skip=header, separator="\t", quotes=False))
    frame.index += header + 1
    _refuse(label, frame["rating"], ~frame["rating"].isin([1, 2, 3, 4, 5]), "is not a rating from 1 to 5")
    _refuse(label, frame["time"], ~np.isfinite(frame["time"]), "is not a time in seconds")
    return frame


def _refuse(label: str, values: pd.Series, wrong: pd.Series, why: str) -> None:
    """Raise for the first line of which `wrong` says so, if there is one."""
    places = np.flatnonzero(wrong.to_numpy())
    if len(places):
        line, value = values.index.to_numpy()[places[0]], str(values.to_numpy()[places[0]])[:80]
        raise DataError(f"{label}, line {line}: {value!r} {why}. Correct the line, or get the file again.")


@dataclass(frozen=True)
class Content:
    """What the files of any variant say."""

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
    """The content of one group of files. Raises DataError, naming file and line."""
    users, movies = (_lines(found.read(file), found.label(file), _FORMATS[file.name]) for file in group[:2])
    for frame, column, file in ((users, "user", group[0]), (movies, "movie", group[1])):
        _refuse(found.label(file), frame[column], frame[column].astype(np.int64).duplicated(), f"stands twice as a {column}")
    ratings = _ratings(found.read(group[2]), group[2], found.label(group[2]))
    title, year = _titles(movies)
    return Content(
        user=users["user"].to_numpy(np.int64),
        female=(users["gender"] == "F").to_numpy(),
        age=users["age"].to_numpy(np.float32),
        occupation=_occupations(users["occupation"], found.label(group[0])),
        movie=movies["movie"].to_numpy(np.int64),
        title=title,
        year=year,
        genre=_genres(movies, found.label(group[1])),
        rating_user=ratings["user"].to_numpy(np.int64),
        rating_movie=ratings["movie"].to_numpy(np.int64),
        rating=ratings["rating"].to_numpy(np.float64, copy=True),
        time=ratings["time"].to_numpy(np.float64),
    )


def _occupations(column: pd.Series, label: str) -> np.ndarray:
    """Numbers of ML-1M; the names of ML-100K have numbers too."""
    if column.str.isdigit().all():
        return column.to_numpy(np.int64)
    number = column.map({name: i for i, name in enumerate(OCCUPATIONS)})
    _refuse(label, column, number.isna(), f"is none of the occupations {', '.join(OCCUPATIONS)}")
    return number.to_numpy(np.int64)


def _titles(movies: pd.DataFrame) -> tuple[list[str], np.ndarray]:
    """Titles without "(year)", and years: of the title, else of the date or year column; NaN where there is none."""
    import pandas as pd

    parts = movies["title"].str.extract(r"^(?P<title>.*?)\s*(?:\((?P<year>\d{4})\)(?:\s*\(V\))?)?\s*$")  # (V): made for video
    year = parts["year"]
    for column, pattern in (("date", r"(\d{4})$"), ("year", r"^(\d{4})$")):
        if column in movies:
            year = year.where(year.notna(), movies[column].str.extract(pattern)[0])
    return parts["title"].tolist(), pd.to_numeric(year).to_numpy(np.float32)


def _genres(movies: pd.DataFrame, label: str) -> np.ndarray:
    """(movies, 18) bool."""
    if "flags" in movies:  # the first is `unknown`
        return (movies["flags"].str.split("|", expand=True) == "1").to_numpy(bool)[:, 1:]
    named = movies["genres"].str.replace(" ", "|").str.get_dummies("|").astype(bool)
    strange = [name for name in named if name not in (*GENRES, NO_GENRE)]
    _refuse(label, movies["genres"], named[strange].any(axis=1), f"names a genre that is none of {', '.join(GENRES)}")
    return named.reindex(columns=list(GENRES), fill_value=False).to_numpy(bool)
