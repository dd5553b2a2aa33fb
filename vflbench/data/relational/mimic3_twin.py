"""A synthetic twin of MIMIC-III's tables."""

import numpy as np

from vflbench.data.divide.raw_tables import RawTable, RawTables
from vflbench.data.divide.splits import SPLITS
from vflbench.data.relational import mimic3_events as measured
from vflbench.data.tasks import Equality
from vflbench.seeding import stream

JOINS = (
    Equality(("events", "ICUSTAY_ID"), ("stays", "ICUSTAY_ID")),
    Equality(("stays", "SUBJECT_ID"), ("patients", "SUBJECT_ID")),
    Equality(("stays", "HADM_ID"), ("admissions", "HADM_ID")),
    Equality(("stays", "HADM_ID"), ("diagnoses", "HADM_ID")),
)
SLICE = 20_000  # rows that are written or standardised at once
# Rows of each table; rows that join with training rows of `events`; features (stays: without keys and MORTALITY).
ROWS = {"stays": 52_302, "patients": 46_520, "admissions": 58_976, "diagnoses": 58_925, "events": 3_431_622}
JOINED = {"stays": 35_381, "patients": 29_081, "admissions": 35_381, "diagnoses": 35_381, "events": 2_908_992}
WIDTHS = {"stays": 47, "patients": 1, "admissions": 41, "diagnoses": 128, "events": 1 + len(measured.COLUMNS)}
_HELD_OUT = 20_000  # rows of val, and of test
_HELD_OUT_STAYS = 250
_POSITIVE = 0.03
_INFORMATIVE = 8  # features of a table that the label depends on
_WEIGHTS = {"stays": 0.6, "patients": 0.3, "admissions": 0.3, "diagnoses": 0.8, "events": 1.2}


def twin(width: int | None) -> tuple[RawTables, dict[str, np.ndarray]]:
    """Tables with the paper's exact numbers of training rows and of joined rows, and their splits.

    Features are standardised already. Each admission has one stay, as in the benchmark's cohort. Lengths of stays are
    heavy-tailed. Val and test have stays and patients of their own.
    """
    rng = stream(0, "twin/mimic3")
    keys = {name: rng.permutation(ROWS[name]) + 1 for name in ("stays", "patients", "admissions")}
    admitted = rng.permutation(keys["admissions"])  # in the order of their stays
    # The first stays have training rows, the next ones rows of val and test, the others none.
    used = JOINED["stays"] + 2 * _HELD_OUT_STAYS
    taken = np.concatenate([np.arange(used), rng.integers(used, ROWS["admissions"], ROWS["stays"] - used)])
    owners, own = JOINED["patients"], 2 * _HELD_OUT_STAYS
    several = rng.integers(0, owners, JOINED["stays"] - owners)  # patients with more than one stay
    others = rng.integers(0, ROWS["patients"], ROWS["stays"] - used)
    who = np.concatenate([np.arange(owners), several, np.arange(owners, owners + own), others])
    # Admissions without a diagnosis are the last ones, which have no rows in `events`.
    behind = {
        "stays": np.arange(ROWS["stays"]),
        "patients": who,
        "admissions": taken,
        "diagnoses": np.minimum(taken, ROWS["diagnoses"] - 1),
    }
    all_keys = {
        "stays": {"SUBJECT_ID": keys["patients"][who], "HADM_ID": admitted[taken], "ICUSTAY_ID": keys["stays"]},
        "patients": {"SUBJECT_ID": keys["patients"]},
        "admissions": {"HADM_ID": admitted},
        "diagnoses": {"HADM_ID": admitted[: ROWS["diagnoses"]]},
    }

    hours = _lengths(JOINED["stays"], JOINED["events"], rng)
    apart = np.concatenate(
        [np.repeat(np.arange(JOINED["stays"]), hours), np.full(ROWS["events"] - JOINED["events"], -1)]
    )
    own_stays = JOINED["stays"] + np.arange(own)
    stay = np.concatenate([rng.permutation(apart), np.repeat(own_stays, 2 * _HELD_OUT // own)])
    # stays that are not in the table, as the paper's test stays
    unknown = ROWS["stays"] + rng.integers(1, 9_230, len(stay))
    event_keys = np.where(stay >= 0, keys["stays"][stay], unknown)

    tables, signal = [], np.zeros(len(stay), np.float32)
    for name in WIDTHS:
        rows = len(stay) if name == "events" else ROWS[name]
        features, score = _features(name, rows, min(width or WIDTHS[name], WIDTHS[name]))
        signal += score if name == "events" else np.where(stay >= 0, score[behind[name]][stay], 0)
        columns = tuple(f"feature_{i}" for i in range(features.shape[1]))
        if name == "events":
            tables.append(RawTable(name, {"ICUSTAY_ID": event_keys}, features, columns))
        else:
            order = rng.permutation(rows)
            shuffled = {column: values[order] for column, values in all_keys[name].items()}
            tables.append(RawTable(name, shuffled, features[order], columns))
    signal += rng.logistic(scale=0.3, size=len(signal)).astype(np.float32)
    labels = (signal > np.quantile(signal, 1 - _POSITIVE)).astype(np.int64)
    bounds = np.cumsum([0, ROWS["events"], _HELD_OUT, _HELD_OUT])
    splits = {split: np.arange(low, high) for split, low, high in zip(SPLITS, bounds[:-1], bounds[1:], strict=True)}
    return RawTables(tuple(tables), "events", labels, 2, JOINS), splits


def _features(name: str, rows: int, wanted: int) -> tuple[np.ndarray, np.ndarray]:
    """Features of a table (rows, wanted), and the part of the label's signal in each row, (rows,)."""
    informative = min(_INFORMATIVE, WIDTHS[name])
    narrow = stream(0, f"twin/mimic3/{name}").standard_normal((rows, informative), dtype=np.float32)
    direction = stream(0, f"twin/mimic3/{name}/direction").standard_normal(informative).astype(np.float32)
    score: np.ndarray = narrow @ (direction * (_WEIGHTS[name] / np.linalg.norm(direction)))
    features = np.empty((rows, wanted), np.float32)
    features[:, :informative] = narrow[:, :wanted]
    more = stream(0, f"twin/mimic3/{name}/more")
    for first in range(0, rows if wanted > informative else 0, SLICE):  # in slices: the largest table has 10 GB
        shape = min(SLICE, rows - first), wanted - informative
        features[first : first + SLICE, informative:] = more.standard_normal(shape, dtype=np.float32)
    return features, score


def _lengths(stays: int, hours: int, rng: np.random.Generator) -> np.ndarray:
    """Hours of each stay, log-normal, at least one, `hours` in all."""
    share = rng.lognormal(0, 1, stays)
    lengths: np.ndarray = 1 + np.floor(share * ((hours - stays) / share.sum())).astype(np.int64)
    lengths[rng.permutation(stays)[: hours - lengths.sum()]] += 1
    return lengths
