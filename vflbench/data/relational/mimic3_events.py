"""MIMIC-III's measurements: raw CHARTEVENTS and LABEVENTS, reduced to 17 channels of each stay.

Item ids, units and statistics follow the published variable map and feature definition of mimic3-benchmarks
(Harutyunyan et al.: Multitask learning and benchmarking with clinical time series data, Scientific Data 2019). The
statistics are computed in `mimic3_statistics`. We differ from the benchmark's code in these points:

- A window without a measurement has the count 0 (there: missing, thus the mean); its other statistics are missing.
- The skewness of equal values is 0 (there: 0 or missing, depending on scipy's version).
- Eye opening "None" scores 1, as "1 No Response" does (there: 0, which the scale does not have).
- The item decides the unit, not the free text. As there, the size decides for saturations, oxygen fractions and
  temperatures.
- A measurement without ICUSTAY_ID belongs to the admission's stay at that time (there, admissions have one stay).

As there, urine's glucose and pH count as glucose and pH, and entries marked as errors are kept. Of several values of a
channel at one time the largest one counts.
"""

import contextlib
import hashlib
import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vflbench.data import sources
from vflbench.data.readers import csv_files
from vflbench.types import DataError

log = logging.getLogger(__name__)

# Items of CareVue, MetaVision (220,000 and above) and the laboratory (50,800 to 51,600).
CHANNELS = {
    "capillary_refill_rate": (3348, 115, 8377),
    "diastolic_blood_pressure": (8368, 220051, 225310, 8555, 8441, 220180, 8502, 8440, 8503, 8504, 8507, 8506, 224643),
    "fraction_inspired_oxygen": (3420, 223835, 3422, 189, 727),
    "gcs_eye": (184, 220739),
    "gcs_motor": (454, 223901),
    "gcs_total": (198,),
    "gcs_verbal": (723, 223900),
    "glucose": (50931, 807, 811, 1529, 50809, 51478, 3745, 225664, 220621, 226537),
    "heart_rate": (211, 220045),
    "height": (226707, 226730, 1394),
    "mean_blood_pressure": (52, 220052, 225312, 224, 6702, 224322, 456, 220181, 3312, 3314, 3316, 3322, 3320),
    "oxygen_saturation": (834, 50817, 8498, 220227, 646, 220277),
    "ph": (50820, 51491, 3839, 1673, 50831, 51094, 780, 1126, 223830, 4753, 4202, 860, 220274),
    "respiratory_rate": (618, 220210, 3603, 224689, 614, 651, 224422, 615, 224690),
    "systolic_blood_pressure": (
        *(51, 220050, 225309, 6701, 455, 220179, 3313, 3315, 442, 3317, 3323, 3321, 224167, 227243),
    ),
    "temperature": (3655, 677, 676, 223762, 3654, 678, 223761, 679),
    "weight": (763, 224639, 226512, 3580, 3693, 3581, 226531, 3582),
}
_INCHES = (226707, 1394)
_POUNDS = (3581, 226531)
_OUNCES = (3582,)
# Scores written as words (MetaVision). CareVue's texts begin with the score.
_MOTOR = "no response; abnormal extension; abnormal flexion; flex-withdraws; localizes pain; obeys commands"
_VERBAL = "no response; incomprehensible sounds; inappropriate words; confused; oriented"
_WORDS = {
    "capillary_refill_rate": {"normal <3 secs": 0, "brisk": 0, "abnormal >3 secs": 1, "delayed": 1},
    "gcs_eye": {"none": 1, "to pain": 2, "to speech": 3, "spontaneously": 4},
    "gcs_motor": {words: score for score, words in enumerate(_MOTOR.split("; "), 1)},
    "gcs_verbal": {"no response-ett": 1, **{words: score for score, words in enumerate(_VERBAL.split("; "), 1)}},
}
# first or last per cent of the time from first to last measurement
SUB_PERIODS = ("full", "first_10", "first_25", "first_50", "last_10", "last_25", "last_50")
STATISTICS = ("min", "max", "mean", "std", "skew", "count")
COLUMNS = tuple(
    f"{channel}/{period}/{statistic}" for channel in CHANNELS for period in SUB_PERIODS for statistic in STATISTICS
)

_FORMAT = 1  # of the cached files


# --- measurements of stays --------------------------------------------------------------------------------------------

NEVER = np.iinfo(np.int64).max // 4  # seconds


@dataclass(frozen=True)
class Stays:
    """The ICU stays, by ascending ICUSTAY_ID; times in seconds."""

    ids: np.ndarray  # (n,) ICUSTAY_ID
    admissions: np.ndarray  # (n,) HADM_ID
    subjects: np.ndarray  # (n,) SUBJECT_ID
    begin: np.ndarray  # (n,) int64 since 1970
    length: np.ndarray  # (n,) int64; -1: the end is unknown
    death: np.ndarray  # (n,) int64 after the begin; NEVER: not in this admission

    @property
    def stride(self) -> int:
        """A number of seconds larger than any stay's."""
        return int(self.length.max(initial=0)) + 1

    def find_by_time(self, admissions: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Row of each admission's latest stay that began by the given time; -1 where there is none."""
        order = np.lexsort([self.begin, self.admissions])
        names, code = np.unique(self.admissions[order], return_inverse=True)
        origin, stride = self.begin.min(), np.ptp(self.begin) + 2
        own = lookup(names, admissions)
        after = np.clip(times - origin + 1, 0, stride - 1)  # 0: before every stay
        at = np.searchsorted(code * stride + self.begin[order] - origin + 1, own * stride + after, side="right") - 1
        found = np.maximum(at, 0)
        return np.where((own >= 0) & (at >= 0) & (code[found] == own), order[found], -1)


def lookup(names: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Place of each of `wanted` in the ascending `names`; -1 where it is not there."""
    at = np.minimum(np.searchsorted(names, wanted), len(names) - 1)
    return np.where(names[at] == wanted, at, -1)


@dataclass(frozen=True)
class Events:
    """Measurements within their stay, by (channel, stay, second), and the hours in which anything was charted."""

    channel: np.ndarray  # (n,) int8
    stay: np.ndarray  # (n,) int32: row of Stays
    second: np.ndarray  # (n,) int32 since the begin of the stay
    value: np.ndarray  # (n,) float64
    charted_stay: np.ndarray  # (m,) int32, ascending
    charted_hour: np.ndarray  # (m,) int32: h for the hour from h - 1 (exclusive) to h


@dataclass(frozen=True)
class CsvFile:
    """A raw file, whose header may be in upper or lower case."""

    path: Path
    label: str  # its name in errors

    def names(self, wanted: Collection[str]) -> list[str]:
        """The names of all columns, in upper case.

        Raises
        ------
        DataError : one of `wanted` is not there.
        """
        names = [name.strip().upper() for name in csv_files.header(self.path, self.label)]
        if missing := ", ".join(name for name in wanted if name not in names):
            raise DataError(f"{self.label}, line 1: no column {missing}; it has {', '.join(names) or 'none'}.")
        return names

    def batches(self, columns: Mapping[str, str]) -> Iterator[tuple[int, Any]]:
        """Some rows at a time, as `csv_files.batches`."""
        return csv_files.batches(self.path, self.label, self.names(columns), columns)

    @property
    def stamp(self) -> str:
        """Name, size and time of the file: a checksum of 33 GB would take longer than using them."""
        facts = self.path.stat()
        return f"{self.path.name}/{facts.st_size}/{facts.st_mtime_ns}"


def cached_events(stays: Stays, chart: CsvFile, labs: CsvFile, stays_file: CsvFile) -> tuple[str, Events]:
    """The measurements and their key in the cache folder, from which they are read if they are there."""
    import pyarrow as pa
    from pyarrow import parquet

    stamps = "|".join([str(_FORMAT), *(file.stamp for file in (chart, labs, stays_file))])
    key = hashlib.sha256(stamps.encode()).hexdigest()[:16]
    parts = {"measured": ("channel", "stay", "second", "value"), "charted": ("charted_stay", "charted_hour")}
    paths = {part: cache_file(f"{part}-{key}.parquet") for part in parts}
    if all(path.is_file() for path in paths.values()):
        with contextlib.suppress(OSError, pa.ArrowInvalid, KeyError):  # damaged: as if it were not there
            tables = {part: parquet.read_table(path) for part, path in paths.items()}
            arrays = {name: tables[part][name].to_numpy() for part, names in parts.items() for name in names}
            return key, Events(**arrays)
    events = read_events(stays, chart, labs)
    for part, names in parts.items():
        table = pa.table({name: getattr(events, name) for name in names})
        with sources.atomic(paths[part]) as place:
            parquet.write_table(table, place, compression="zstd")
    return key, events


def cache_file(name: str) -> Path:
    """Path of a file in the cache, in a folder that other users cannot read, as it holds patients' data."""
    folder = sources.cache_folder() / "mimic3"
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    return folder / name


def read_events(stays: Stays, chart: CsvFile, labs: CsvFile) -> Events:
    """Reduce the raw files to what the 17 channels need, block by block."""
    log.info("reading %s and %s (once; the result is kept in the cache folder)", chart.label, labs.label)
    keys, values, charted = [np.empty(0, np.int64)], [np.empty(0)], [np.empty(0, np.int64)]

    def keep(batch: Any, times: np.ndarray, stay: np.ndarray) -> None:
        key, value = _measurements(batch, times, stay, stays)
        keys.append(key)
        values.append(value)

    columns = {"HADM_ID": "integer", "ITEMID": "integer", "CHARTTIME": "time", "VALUE": "bytes"}
    for _, batch in chart.batches({"ICUSTAY_ID": "integer", **columns}):
        ids, times = _integers(batch, "ICUSTAY_ID"), _integers(batch, "CHARTTIME")
        stay = lookup(stays.ids, ids)
        known = np.flatnonzero((stay >= 0) & (times >= 0))
        hour = -(-(times[known] - stays.begin[stay[known]]) // 3600)
        inside = (hour >= 1) & (hour < 1 << 20)
        charted.append(np.unique((stay[known[inside]] << 20) + hour[inside]))
        keep(batch, times, np.where(ids < 0, -2, stay))
    for _, batch in labs.batches(columns):
        keep(batch, _integers(batch, "CHARTTIME"), np.full(batch.num_rows, -2))
    hours = np.unique(np.concatenate(charted))
    key, value = np.concatenate(keys), np.concatenate(values)
    keys.clear()
    values.clear()
    order = np.lexsort([value, key])
    key, value = key[order], value[order]
    # of one channel, stay and second: the largest value
    last = np.append(key[1:] != key[:-1], np.ones(min(len(key), 1), bool))
    series, second = np.divmod(key[last], stays.stride)
    channel, stay = np.divmod(series, len(stays.ids))
    return Events(
        channel.astype(np.int8),
        stay.astype(np.int32),
        second.astype(np.int32),
        value[last],
        charted_stay=(hours >> 20).astype(np.int32),
        charted_hour=(hours & ((1 << 20) - 1)).astype(np.int32),
    )


def _integers(batch: Any, name: str) -> np.ndarray:
    """Whole numbers or times as (n,) int64; -1: empty (MIMIC-III has no negative ids and no years before 2100)."""
    import pyarrow as pa

    numbers: np.ndarray = batch.column(name).cast(pa.int64()).fill_null(-1).to_numpy()
    return numbers


def _measurements(batch: Any, times: np.ndarray, stay: np.ndarray, stays: Stays) -> tuple[np.ndarray, np.ndarray]:
    """The batch's measurements of the 17 channels within their stays.

    Parameters
    ----------
    times : of each row.
    stay : of each row: row of Stays; -1: none; -2: to be found by admission and time.

    Returns
    -------
    one number for (channel, stay, second), and the value.
    """
    import pyarrow as pa

    items = _integers(batch, "ITEMID")
    channels, _ = _item_tables()
    wanted = np.flatnonzero((items >= 0) & (items < len(channels)) & (times >= 0) & (stay != -1))
    wanted = wanted[channels[items[wanted]] >= 0]
    batch, items, times, stay = batch.take(pa.array(wanted)), items[wanted], times[wanted], stay[wanted]
    unknown = np.flatnonzero(stay == -2)
    stay[unknown] = stays.find_by_time(_integers(batch, "HADM_ID")[unknown], times[unknown])
    second = times - stays.begin[stay]
    texts = batch.column("VALUE").dictionary_encode()
    decoded = [text.decode("latin1") for text in texts.dictionary.to_pylist()]
    value = parse_values(items, decoded, texts.indices.fill_null(-1).to_numpy())
    good = np.flatnonzero((stay >= 0) & (second >= 0) & (second <= stays.length[stay]) & (np.abs(value) < _ABSURD))
    series = channels[items[good]].astype(np.int64) * len(stays.ids) + stay[good]
    return series * stays.stride + second[good], value[good]


_ABSURD = 1e18  # a measurement is never so large in any unit, and float32 cannot hold its square


def _item_tables() -> tuple[np.ndarray, np.ndarray]:
    """Tables by item id: the channel (-1: none), and the factor to the channel's unit."""
    size = max(max(items) for items in CHANNELS.values()) + 1
    channels, factors = np.full(size, -1, np.int8), np.ones(size)
    for number, items in enumerate(CHANNELS.values()):
        channels[list(items)] = number
    factors[list(_INCHES)], factors[list(_POUNDS)], factors[list(_OUNCES)] = 2.54, 0.453592, 0.453592 / 16
    return channels, factors


def parse_values(items: np.ndarray, texts: list[str], codes: np.ndarray) -> np.ndarray:
    """Measurements of VALUE `texts[code]` in the units of their channels, (n,) float64; NaN: not a measurement.

    Temperatures from 79 on are Fahrenheit (none is between 50 and 79). Oxygen fractions above 1 and saturations up to 1
    are on the other scale. "120/80" is a systolic and a diastolic pressure.
    """
    import pandas as pd

    channels, factors = _item_tables()
    names = list(CHANNELS)
    words = pd.Series([*texts, ""], dtype=object).astype("str").str.strip().str.lower()  # code -1: empty
    numbers = pd.to_numeric(words, errors="coerce").to_numpy(np.float64, copy=True)
    channel = channels[items]
    value: np.ndarray = numbers[codes] * factors[items]

    def rows_of(*chosen: str) -> np.ndarray:
        return np.flatnonzero(np.isin(channel, [names.index(name) for name in chosen]))

    pressures = words.str.extract(r"^(\d+)/(\d+)$").astype(np.float64).to_numpy()
    for place, name in enumerate(("systolic_blood_pressure", "diastolic_blood_pressure")):
        rows = rows_of(name)
        pair = pressures[codes[rows], place]
        value[rows] = np.where(np.isnan(pair), value[rows], pair)
    leading = words.str.extract(r"^(\d+)", expand=False).astype(np.float64).to_numpy()
    for name, scores in _WORDS.items():
        rows = rows_of(name)
        score = words.map(scores).to_numpy(np.float64)
        value[rows] = np.where(np.isnan(score), leading if name.startswith("gcs") else np.nan, score)[codes[rows]]
    rows = rows_of("height")
    value[rows] = np.where(np.isin(items[rows], _INCHES), np.round(value[rows]), value[rows])
    rows = rows_of("fraction_inspired_oxygen")
    value[rows] = np.where(value[rows] > 1, value[rows] / 100, value[rows])
    rows = rows_of("oxygen_saturation")
    value[rows] = np.where(value[rows] <= 1, value[rows] * 100, value[rows])
    rows = rows_of("temperature")
    value[rows] = np.where(value[rows] >= 79, (value[rows] - 32) * 5 / 9, value[rows])
    return value
