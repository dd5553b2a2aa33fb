"""Reviews of restaurants from the Yelp Open Dataset's JSON lines: three tables, joined by business and user.

Stars are predicted. The tables are built as in TablePuppet (Xu et al., arXiv 2403.15839): open restaurants, their
reviews, and the users who wrote them, so that every row joins. Features of reviews: useful, funny, cool and 768 of the
text. Of restaurants: the number of reviews. Of users: 18 numbers.

We differ from the authors' tables in two points. (1) A restaurant's stars and a user's average stars are means of the
very labels to predict, also of test rows. They are features with star_averages=true only. (2) Missing values are
imputed; the authors leave the row out.

Features of reviews are many (11.6 GB). They are computed once into a memory-mapped file of the cache folder. Above
2 GB they are never held in memory whole. Rows are in the order train, val, test, so that each split is a view.
The split therefore has a seed of its own, and one file serves all runs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vflbench.cards.data.relational.yelp import Config
from vflbench.data import prepared, sources, twins
from vflbench.data.divide.raw_tables import RawTable, RawTables, divide, in_order, standardize
from vflbench.data.divide.splits import SPLITS, check_fractions, split_rows
from vflbench.data.published_files import Lines, Rows
from vflbench.data.relational import text, yelp_lines
from vflbench.data.sources import FileSet, Found, Part, RawFile
from vflbench.data.tasks import AlignedTask, Equality, RelationalTask
from vflbench.seeding import stream
from vflbench.types import DataError, Metric, Problem, refuse

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)


# --- files ------------------------------------------------------------------------------------------------------------

# Yelp gives the files out under an agreement: there is no public address.
_REVIEW, _BUSINESS, _USER = (
    RawFile(f"yelp/yelp_academic_dataset_{name}.json") for name in ("review", "business", "user")
)
_PUBLISHED = {  # editions of 2022, 2021, 2020, 2019
    "reviews": (_REVIEW, (6_990_280, 8_635_403, 8_021_122, 6_685_900)),
    "businesses": (_BUSINESS, (150_346, 160_585, 209_393, 192_609)),
    "users": (_USER, (1_987_897, 2_189_457, 1_968_703, 1_637_138)),
}
_JSON = Lines(header=0, columns=False)
_HELD = tuple(Rows(what, counts, 0, (file.path,), _JSON) for what, (file, counts) in _PUBLISHED.items())
_FILES = FileSet("yelp", "yelp", (Part("JSON lines", ((_REVIEW, _BUSINESS, _USER),)),), rows=_HELD)
FILE_SETS = (_FILES,)

_VOTES = ("useful", "funny", "cool")
TEXT_WIDTH = 768
MEMORY = 2e9  # bytes: larger features are never held in memory whole
_REVIEW_COLUMNS = (*_VOTES, *(f"text_{i}" for i in range(TEXT_WIDTH)))
_RESTAURANT_COLUMNS = ("stars", "review_count")
_COMPLIMENTS = "hot more profile cute list note plain cool funny writer photos"
_USER_NUMBERS = (
    *("average_stars", "review_count", "useful", "funny", "cool", "fans"),
    *(f"compliment_{name}" for name in _COMPLIMENTS.split()),
)
_USER_COLUMNS = (*_USER_NUMBERS, "friends", "yelping_since")
_JOINS = (
    Equality(("review", "business_id"), ("restaurant", "business_id")),
    Equality(("review", "user_id"), ("user", "user_id")),
)


def check(config: Config, layout: str, parties: int) -> list[Problem]:
    """What is wrong with the configuration, before anything is read."""
    return check_fractions(config.validation, config.test) + text.check_encoder(config.text_encoder)


def load(config: Config, layout: str, parties: int, seed: int, root: Path | None) -> RelationalTask | AlignedTask:
    """Reviews, restaurants and users, each in `parties` horizontal parts."""
    refuse(check(config, layout, parties))
    found = sources.locate(_FILES, root, config.source, config.verify)
    if found is None:
        raw, splits = twin(config.width)
        narrowed = "" if config.width is None else f"; at most {config.width} features per table"
        note = f"synthetic twin of Yelp's restaurants with their sizes and a split of its own{narrowed}"
        source = twins.twin_source(note=note)
    else:
        encode = text.features_of(config.text_encoder, TEXT_WIDTH)
        raw, splits = _read(found, config, encode, seed)
        source = found.source(note=encode.note)
    metric = Metric("accuracy", "max")
    return divide("yelp", raw, splits, source, metric, layout=layout, parts=parties, standardized=True)


def _task(
    review: np.ndarray, keys: tuple[np.ndarray, np.ndarray], stars: np.ndarray, others: tuple[RawTable, ...]
) -> RawTables:
    """The tables, from standardised features of the reviews and raw ones of restaurants and users."""
    named = {"business_id": keys[0], "user_id": keys[1]}
    reviews = RawTable("review", named, review, _REVIEW_COLUMNS[: review.shape[1]])
    rest = (replace(table, features=standardize(table)) for table in others)
    return RawTables((reviews, *rest), "review", stars.astype(np.int64) - 1, 5, _JOINS)


# --- the format -------------------------------------------------------------------------------------------------------

_SAMPLE = 200_000  # training reviews on which the text features are fitted


def _read(
    found: Found, config: Config, encode: text.Hashed | text.Encoder, seed: int
) -> tuple[RawTables, dict[str, np.ndarray]]:
    """The tables in the files, with reviews in the order train, val, test, and the splits.

    Raises
    ------
    DataError : naming file and line.
    """
    business, restaurant = _businesses(found)
    user, person = _users(found)
    kept, at_business, at_user, stars = _reviews(found, business, user)
    split_seed = seed if config.split_seed is None else config.split_seed
    splits = split_rows(len(stars), config.validation, config.test, split_seed)
    order = np.concatenate([splits[name] for name in SPLITS])
    place = np.argsort(order)
    training = len(splits["train"])

    def blocks() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        sample: list[str] = []
        for rows, table in _kept_reviews(found, kept, {"text": "text"}):
            sample += _texts(table, place[rows] < training)
            if len(sample) >= _SAMPLE:
                break
        encode.fit(sample)
        for rows, table in _kept_reviews(found, kept, {**dict.fromkeys(_VOTES, "number"), "text": "text"}):
            votes = _numbers(table, _VOTES)
            yield place[rows], np.column_stack([votes, encode(_texts(table))])

    checksums = sorted(checksum for _, checksum in found.files)
    name = f"yelp-{prepared.key(checksums, encode.fingerprint(), config.validation, config.test, split_seed)}"
    review = _gathered(blocks, (len(order), len(_REVIEW_COLUMNS)), training, name)
    # As in the paper, only restaurants and users with a review; the files have more.
    used, wrote = np.unique(at_business), np.unique(at_user)
    others: tuple[RawTable, ...] = (
        RawTable("restaurant", {"business_id": business[used]}, restaurant[used], _RESTAURANT_COLUMNS),
        RawTable("user", {"user_id": user[wrote]}, person[wrote], _USER_COLUMNS),
    )
    if not config.star_averages:
        others = tuple(replace(table, features=table.features[:, 1:], columns=table.columns[1:]) for table in others)
    keys = business[at_business[order]], user[at_user[order]]
    return _task(review, keys, stars[order], others), in_order(splits)


def _businesses(found: Found) -> tuple[np.ndarray, np.ndarray]:
    """Open restaurants: ids, (n,) objects; stars and number of reviews, (n, 2)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    label, ids, numbers = found.label(_BUSINESS), [], []
    fields = dict.fromkeys(("business_id", "categories"), "text")
    fields |= dict.fromkeys((*_RESTAURANT_COLUMNS, "is_open"), "number")
    for table in yelp_lines.blocks(found, _BUSINESS, fields):
        ids.append(table.select(["business_id", "line"]))
        about = table["categories"]
        about = pc.binary_join(about, ",") if pa.types.is_list(about.type) else about
        chosen = pc.and_(pc.match_substring(about, "restaurants", ignore_case=True), pc.equal(table["is_open"], 1))
        numbers.append(np.column_stack([_numbers(table, _RESTAURANT_COLUMNS), pc.fill_null(chosen, False).to_numpy()]))
    every = np.concatenate(numbers)
    chosen = every[:, -1] == 1
    if not chosen.any():
        criteria = "`is_open` 1, `categories` with Restaurants"
        raise DataError(f"{label}: holds no open restaurants ({criteria}). Is this the whole file?")
    return _ids(label, ids)[chosen], every[chosen, :-1]


def _users(found: Found) -> tuple[np.ndarray, np.ndarray]:
    """Users: ids, (n,) objects, and numbers, (n, 19)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    label, ids, numbers = found.label(_USER), [], []
    fields = {"user_id": "text", **dict.fromkeys(_USER_NUMBERS, "number"), "friends": "text", "yelping_since": "text"}
    for table in yelp_lines.blocks(found, _USER, fields):
        ids.append(table.select(["user_id", "line"]))
        friends, since = table["friends"], table["yelping_since"]
        if pa.types.is_list(friends.type):
            count = pc.list_value_length(friends)
        else:
            none = pc.is_in(friends, value_set=pa.array(["", "None"]))
            count = pc.if_else(none, 0, pc.add(pc.count_substring(friends, ","), 1))
        undated = pc.invert(pc.match_substring_regex(since, r"^\d{4}-"))
        _refuse(label, table, undated, "yelping_since is not a date such as 2010-05-23")
        year = pc.cast(pc.utf8_slice_codeunits(since, 0, 4), pa.float64())
        more = [pc.cast(column, pa.float64()).to_numpy() for column in (count, year)]
        numbers.append(np.column_stack([_numbers(table, _USER_NUMBERS), *more]).astype(np.float32))
    return _ids(label, ids), np.concatenate(numbers)


def _reviews(
    found: Found, business: np.ndarray, user: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Which rows of the file are reviews of `business` by `user`, and the business, user and stars of these."""
    import pandas as pd
    import pyarrow as pa
    import pyarrow.compute as pc

    label, fields = found.label(_REVIEW), {"business_id": "text", "user_id": "text", "stars": "number"}
    businesses, users = pd.Index(business), pd.Index(user)
    kept, chosen = [], []
    for table in yelp_lines.blocks(found, _REVIEW, fields):
        for column in ("business_id", "user_id"):
            _refuse(label, table, pc.is_null(table[column]), f"has no {column}")
        other = pc.invert(pc.is_in(table["stars"], value_set=pa.array([1.0, 2, 3, 4, 5])))
        _refuse(label, table, other, "stars are not 1, 2, 3, 4 or 5")
        at_business = businesses.get_indexer(_objects(table["business_id"]))
        at_user = np.full(len(at_business), -1)
        near = np.flatnonzero(at_business >= 0)
        at_user[near] = users.get_indexer(_objects(table["user_id"].take(pa.array(near))))
        both = at_user >= 0
        kept.append(both)
        chosen.append(np.stack([at_business[both], at_user[both], table["stars"].to_numpy()[both]]).astype(np.int64))
    rows = np.concatenate(chosen, axis=1)
    if not rows.shape[1]:
        reason = f"no review is of an open restaurant and by a user in {found.label(_USER)}"
        raise DataError(f"{label}: {reason}. Do the files belong together?")
    return np.concatenate(kept), rows[0], rows[1], rows[2]


def _kept_reviews(found: Found, kept: np.ndarray, fields: dict[str, str]) -> Iterator[tuple[np.ndarray, pa.Table]]:
    """The kept rows of the review file, block by block, after their numbers among the kept ones."""
    import pyarrow as pa

    start = number = 0
    for table in yelp_lines.blocks(found, _REVIEW, fields):
        mask = kept[start : start + len(table)]
        start += len(table)
        rows = np.arange(number, number + mask.sum())
        number += len(rows)
        yield rows, table.filter(pa.array(mask))


def _ids(label: str, blocks: Sequence[pa.Table]) -> np.ndarray:
    """The key column of a table, given as blocks of key and line.

    Raises
    ------
    DataError : a key is missing or there twice.
    """
    import pandas as pd
    import pyarrow as pa
    import pyarrow.compute as pc

    table = pa.concat_tables(blocks)
    _refuse(label, table, pc.is_null(table[0]), "has no id")
    ids = _objects(table[0])
    again = pd.Index(ids).duplicated()
    _refuse(label, table, pa.chunked_array([again]), f"{ids[again.argmax()]!r} is there twice")
    return ids


def _objects(column: pa.ChunkedArray) -> np.ndarray:
    return np.asarray(column.to_numpy(), dtype=object)


def _numbers(table: pa.Table, names: Iterable[str]) -> np.ndarray:
    """The columns `names` as (n, names) float32, NaN where null."""
    return np.column_stack([table[name].to_numpy() for name in names]).astype(np.float32)


def _texts(table: pa.Table, chosen: np.ndarray | None = None) -> list[str]:
    import pyarrow as pa
    import pyarrow.compute as pc

    column = table["text"] if chosen is None else table["text"].filter(pa.array(chosen))
    texts: list[str] = pc.fill_null(column, "").to_pylist()
    return texts


def _refuse(label: str, table: pa.Table, wrong: pa.ChunkedArray, why: str) -> None:
    """Raise DataError for the first line that is `wrong`, if there is one."""
    lines = table["line"].filter(wrong)
    if len(lines):
        raise DataError(f"{label}, line {lines[0]}: {why}. Correct the line, or get the file again.")


# --- features that may be larger than memory --------------------------------------------------------------------------


def _gathered(
    blocks: Callable[[], Iterable[tuple[np.ndarray, np.ndarray]]],
    shape: tuple[int, int],
    training: int,
    name: str,
) -> np.ndarray:
    """Features, (rows, columns) float32, imputed by the mean and standardised by the first `training` rows.

    Parameters
    ----------
    blocks : gives (rows, their raw features), each row once.
    name : of the folder in the cache folder that keeps the features.

    Raises
    ------
    DataError : the file cannot be written, or a value is not finite.
    """
    size, folder = 4 * shape[0] * shape[1], sources.cache_folder() / "features" / name

    def made() -> dict[str, np.ndarray]:
        features = np.empty(shape, np.float32)
        _fill(features, blocks(), training)
        return {"values": features}

    if size <= MEMORY:
        return prepared.arrays(folder, made)["values"]

    def fill(out: np.ndarray) -> None:
        log.info("computing %.1f GB of review features once, into %s", size / 1e9, folder)
        _fill(out, blocks(), training)

    return prepared.memory_map(folder, shape, fill)


_ROWS = 1 << 12  # at a time, so that they stay in the processor's cache between two steps


def _fill(features: np.ndarray, blocks: Iterable[tuple[np.ndarray, np.ndarray]], training: int) -> None:
    """Write the blocks into `features`, then standardise it in place."""
    count, total, squares = (np.zeros(features.shape[1]) for _ in range(3))
    pivot = None  # near the mean, so that the sum of squares loses nothing
    for rows, values in blocks:
        infinite = np.isinf(values)
        if infinite.any():
            at, place = np.argwhere(infinite)[0]
            where = f"table review, column {_REVIEW_COLUMNS[place]}, row {rows[at]}"
            raise DataError(f"{where}: {values[at, place]} is not a finite number")
        features[rows] = values
        own = values[rows < training]
        for start in range(0, len(own), _ROWS):
            part = own[start : start + _ROWS]
            if pivot is None:
                known = ~np.isnan(part)
                sums = np.where(known, part, 0).sum(axis=0, dtype=np.float64)
                pivot = np.float32(sums / np.maximum(known.sum(axis=0), 1))
            off = part - pivot
            known = ~np.isnan(off)
            np.nan_to_num(off, copy=False, nan=0.0)
            count += known.sum(axis=0)
            total += off.sum(axis=0, dtype=np.float64)
            squares += (off * off).sum(axis=0, dtype=np.float64)
    if pivot is None:
        raise DataError("table review: holds no training rows")
    shift = total / np.maximum(count, 1)
    spread = np.sqrt(np.maximum(squares / np.maximum(count, 1) - shift**2, 0))
    mean = np.float32(pivot + shift)
    scale = np.float32(np.where(spread > 1e-5 * np.abs(shift), 1 / np.maximum(spread, 1e-30), 0))
    for start in range(0, len(features), _ROWS):
        part = features[start : start + _ROWS]
        part -= mean
        part *= scale
        np.nan_to_num(part, copy=False, nan=0.0)


# --- the twin ---------------------------------------------------------------------------------------------------------

_TRAIN, _HELD_OUT = 3_207_696, 566_064  # the paper's training rows are 85 % of 3,773,760
_RESTAURANTS, _USERS = 34_987, 1_158_106
_STARS = (0.13, 0.09, 0.13, 0.26, 0.39)  # share of 1 to 5 stars
_INFORMATIVE = 8  # coordinates of the text that the stars depend on


def twin(width: int | None) -> tuple[RawTables, dict[str, np.ndarray]]:
    """Made-up tables and their split: 3,207,696 training reviews, which each join one restaurant and one user.

    All restaurants and users join. Most users write one review and some write hundreds; restaurants are similar. A
    review's stars depend on its text, its restaurant and its user.
    """
    rows = _TRAIN + _HELD_OUT
    drawn = prepared.arrays(sources.cache_folder() / "tables" / f"yelp-twin-{prepared.key(rows)}", _drawn_twin)
    praise = drawn["praise"]
    columns = len(_REVIEW_COLUMNS) if width is None else min(width, len(_REVIEW_COLUMNS))

    def blocks() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for start in range(0, rows, _ROWS):
            at = np.arange(start, min(start + _ROWS, rows))
            # Column by column, so that the first columns are the same for every width.
            values = stream(0, f"twin/yelp/{start}").standard_normal((columns, len(at)), dtype=np.float32)
            values[: len(_VOTES)] = np.floor(np.exp(values[: len(_VOTES)]))
            values[len(_VOTES) : len(_VOTES) + _INFORMATIVE] += 0.7 * praise[at]
            yield at, values.T

    review = _gathered(blocks, (rows, columns), _TRAIN, f"yelp-twin-{prepared.key(rows, columns)}")
    places = {"business_id": np.arange(_RESTAURANTS)}
    others = (
        RawTable("restaurant", places, drawn["restaurants"][:, :width], _RESTAURANT_COLUMNS[:width]),
        RawTable("user", {"user_id": np.arange(_USERS)}, drawn["users"][:, :width], _USER_COLUMNS[:width]),
    )
    val = _TRAIN + _HELD_OUT // 2
    splits = {"train": np.arange(_TRAIN), "val": np.arange(_TRAIN, val), "test": np.arange(val, rows)}
    return _task(review, (drawn["restaurant"], drawn["user"]), drawn["stars"], others), splits


def _drawn_twin() -> dict[str, np.ndarray]:
    """What the twin has but its reviews' features: keys, stars and `praise` of every review, and the other tables."""
    rng = stream(0, "twin/yelp")
    rows = _TRAIN + _HELD_OUT
    restaurant, user = (_drawn(*shape, rng) for shape in ((_RESTAURANTS, 1.3, 150), (_USERS, 1.15, 2000)))
    place, taste = rng.standard_normal(_RESTAURANTS, dtype=np.float32), rng.standard_normal(_USERS, dtype=np.float32)
    praise = rng.standard_normal(rows, dtype=np.float32)
    mood = 0.5 * place[restaurant] + 0.6 * taste[user] + praise
    stars = 1 + np.searchsorted(np.quantile(mood, np.cumsum(_STARS)[:-1]), mood)
    counts = np.log1p(np.bincount(user, minlength=_USERS))[:, None]
    person = np.exp(counts + rng.normal(0, 1, (_USERS, len(_USER_COLUMNS)))).astype(np.float32)
    person[:, 0], person[:, -1] = np.clip(3.8 + 0.8 * taste, 1, 5), rng.integers(2004, 2023, _USERS)
    place_stars = np.clip(np.round(2 * (3.5 + 0.7 * place)) / 2, 1, 5)
    of_place = np.column_stack([place_stars, np.bincount(restaurant, minlength=_RESTAURANTS)]).astype(np.float32)
    of_review = {"restaurant": restaurant, "user": user, "stars": stars, "praise": praise}
    return {**of_review, "restaurants": of_place, "users": person}


def _drawn(size: int, tail: float, most: float, rng: np.random.Generator) -> np.ndarray:
    """A key of `size` for each review, (reviews,) int64; frequencies are heavy-tailed, and training has every key."""
    weight = np.cumsum(rng.pareto(tail, size).clip(max=most) + 0.02)
    more = np.searchsorted(weight, rng.random(_TRAIN + _HELD_OUT - size) * weight[-1], side="right")
    training = np.concatenate([np.arange(size), more[: _TRAIN - size]])
    return np.concatenate([rng.permutation(training), more[_TRAIN - size :]])
