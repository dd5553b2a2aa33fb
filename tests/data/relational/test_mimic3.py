import gzip
import logging
import os
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import skew

from tests.conftest import absent
from vflbench.cards.data.relational.mimic3 import Config
from vflbench.config import convert
from vflbench.data import sources
from vflbench.data.readers import csv_files
from vflbench.data.relational import mimic3 as module
from vflbench.data.relational import mimic3_events as measured
from vflbench.data.relational import mimic3_statistics
from vflbench.data.relational.mimic3 import load, split_patients
from vflbench.data.relational.mimic3_events import COLUMNS, NEVER, Stays, parse_values
from vflbench.data.relational.mimic3_statistics import statistics, window_statistics
from vflbench.types import ConfigError, DataError

START = datetime(2150, 1, 1)


def at(hours: float) -> str:
    return str(START + timedelta(hours=hours))


HEADERS = {
    "PATIENTS": "ROW_ID,SUBJECT_ID,GENDER,DOB,DOD",
    "ADMISSIONS": "ROW_ID,SUBJECT_ID,HADM_ID,ADMITTIME,DEATHTIME,ETHNICITY,DIAGNOSIS",
    "ICUSTAYS": "ROW_ID,SUBJECT_ID,HADM_ID,ICUSTAY_ID,DBSOURCE,FIRST_CAREUNIT,LAST_CAREUNIT,FIRST_WARDID,LAST_WARDID,"
    "INTIME,OUTTIME,LOS",
    "DIAGNOSES_ICD": "ROW_ID,SUBJECT_ID,HADM_ID,SEQ_NUM,ICD9_CODE",
    "D_ICD_DIAGNOSES": "ROW_ID,ICD9_CODE,SHORT_TITLE",
    "CHARTEVENTS": "ROW_ID,SUBJECT_ID,HADM_ID,ICUSTAY_ID,ITEMID,CHARTTIME,VALUE,VALUENUM,VALUEUOM",
    "LABEVENTS": "ROW_ID,SUBJECT_ID,HADM_ID,ITEMID,CHARTTIME,VALUE,VALUENUM,VALUEUOM,FLAG",
}


class Made:
    """Raw files of twelve patients. Patient p has admission 100 + p and stay 200 + p from hour 0 to 10; the first six
    die at hour 30.

    A heart rate is charted in every hour, at half past.
    """

    def __init__(self) -> None:
        self.rows: dict[str, list[str]] = {name: [] for name in HEADERS}
        for p in range(1, 13):
            self.rows["PATIENTS"].append(f'{p},{p},"{"FM"[p % 2]}",{START - timedelta(days=365 * 60)},')
            died = at(30) if p <= 6 else ""
            self.rows["ADMISSIONS"].append(f'{p},{p},{100 + p},{at(-1)},{died},"WHITE","FALL, ""SEVERE"""')
            self.stay(p, 100 + p, 200 + p, 0, 10)
            self.rows["DIAGNOSES_ICD"] += [f'{p},{p},{100 + p},1,"{code}"' for code in ("0389", "V5861", "X")]
            for hour in range(10):
                self.chart(p, 200 + p, 211, hour + 0.5, 60 + p + hour * hour)
        self.rows["D_ICD_DIAGNOSES"] = ['1,"0389","SEPSIS"', '2,"V5861","ANTICOAGULANTS"', '3,"00845","CLOSTRIDIUM"']
        self.lab(1, 50931, 1, 100)

    def stay(self, subject, admission, stay, begin, end, unit="MICU", last_unit=None) -> None:
        units = f'"carevue","{unit}","{last_unit or unit}",52,52'
        self.rows["ICUSTAYS"].append(
            f"{stay},{subject},{admission},{stay},{units},{at(begin)},{at(end)},{(end - begin) / 24:.4f}"
        )

    def chart(self, subject, stay, item, hour, value, admission=None) -> None:
        admission = 100 + subject if admission is None else admission
        self.rows["CHARTEVENTS"].append(f'1,{subject},{admission},{stay},{item},{at(hour)},"{value}",,"?F"')

    def lab(self, subject, item, hour, value) -> None:
        self.rows["LABEVENTS"].append(f'1,{subject},{100 + subject},{item},{at(hour)},"{value}",,,')

    def write(self, root: Path, folder="mimic3", lower=False, gz=False) -> Path:
        (root / folder).mkdir(parents=True, exist_ok=True)
        for name, rows in self.rows.items():
            header = ",".join(f'"{column.lower() if lower else column}"' for column in HEADERS[name].split(","))
            text = "\n".join([header, *rows]) + "\n"
            path = root / folder / f"{name}.csv{'.gz' if gz else ''}"
            path.write_bytes(gzip.compress(text.encode()) if gz else text.encode())
        return root


@pytest.fixture
def made() -> Made:
    return Made()


def config(**changes) -> Config:
    return Config(**{"cohort": "all", "validation": 0.25, "test": 0.25, **changes})


def read(root: Path, variant="full"):
    found = module.sources.locate(module._file_set(variant), root, "real")
    held = module._Raw.read(found, variant)
    return held, measured.read_events(held.stays, held.files["CHARTEVENTS"], held.files["LABEVENTS"])


def hours(rows, stays) -> dict[int, list[int]]:
    """ICUSTAY_ID -> prediction hours."""
    stay, hour = rows
    return {int(stays.ids[s]): hour[stay == s].tolist() for s in np.unique(stay)}


def events_of(series: dict[tuple[str, int], list[tuple[int, float]]]) -> measured.Events:
    """Events from (channel, stay) -> (second, value)."""
    names = list(measured.CHANNELS)
    rows = sorted((names.index(c), s, t, v) for (c, s), pairs in series.items() for t, v in pairs)
    channel, stay, second, value = (np.array(part) for part in zip(*rows, strict=True))
    nothing = np.empty(0, np.int32)
    return measured.Events(
        channel.astype(np.int8), stay.astype(np.int32), second.astype(np.int32), value.astype(float), nothing, nothing
    )


# --- statistics -------------------------------------------------------------------------------------------------------


def test_statistics_by_hand():
    # Heart rate at hours 0, 1, 2.5, 5, 9 and 10: 60, 70, 65, 80, 90, 100. From the first to the last until hour 10: 10
    # hours.
    series = [(0, 60.0), (3600, 70.0), (9000, 65.0), (18000, 80.0), (32400, 90.0), (36000, 100.0)]
    events = events_of({("heart_rate", 3): series, ("heart_rate", 2): [(60, 1.0)], ("heart_rate", 4): [(60, 1000.0)]})
    out = np.empty((2, 1 + len(COLUMNS)), np.float32)
    statistics(events, np.array([3, 3]), np.array([2, 10]), out, np.array([1, 0]))  # row 1: hour 2, row 0: hour 10
    of = {name: out[:, 1 + i] for i, name in enumerate(COLUMNS)}
    np.testing.assert_array_equal(out[:, 0], [10, 2])

    def row(period, row):
        return [of[f"heart_rate/{period}/{s}"][row] for s in ("min", "max", "mean", "std", "skew", "count")]

    # Until hour 10 the first 10 % end at hour 1, the first 25 % at 2.5 and the first 50 % at 5, all inclusive; the last
    # begin at 9, 7.5, 5.
    np.testing.assert_allclose(row("first_10", 0), [60, 70, 65, 5, 0, 2])
    # 60, 70, 65: deviations -5, 5, 0
    np.testing.assert_allclose(row("first_25", 0), [60, 70, 65, np.sqrt(50 / 3), 0, 3], rtol=1e-6)
    # 60, 70, 65, 80: mean 68.75, deviations -8.75, 1.25, -3.75, 11.25; squares 76.5625 + 1.5625 + 14.0625 + 126.5625 =
    #   218.75;
    # cubes -669.921875 + 1.953125 - 52.734375 + 1423.828125 = 703.125; skew (703.125 / 4) / (218.75 / 4)^1.5
    np.testing.assert_allclose(
        row("first_50", 0), [60, 80, 68.75, np.sqrt(54.6875), 175.78125 / 54.6875**1.5, 4], rtol=1e-6
    )
    np.testing.assert_allclose(row("last_10", 0), [90, 100, 95, 5, 0, 2])
    np.testing.assert_allclose(row("last_25", 0), [90, 100, 95, 5, 0, 2])
    np.testing.assert_allclose(row("last_50", 0)[:3], [80, 100, 90])
    np.testing.assert_allclose(row("full", 0)[:3] + row("full", 0)[5:], [60, 100, 77.5, 6])
    # Until hour 2: only 60 and 70 are known, from hour 0 to 1, so each of the parts is one value.
    np.testing.assert_allclose(row("full", 1), [60, 70, 65, 5, 0, 2])
    np.testing.assert_allclose(row("first_50", 1), [60, 60, 60, 0, 0, 1])
    np.testing.assert_allclose(row("last_50", 1), [70, 70, 70, 0, 0, 1])
    # A channel that was never measured: count 0, the rest missing.
    assert of["ph/full/count"].tolist() == [0, 0] and np.isnan(of["ph/full/mean"]).all()


def slow_statistics(series, hour) -> list[float]:
    """The 42 statistics of one channel of one stay, as the definition reads; NaN and 0 where there is nothing."""
    known = [(t, v) for t, v in series if t <= hour * 3600]
    result = []
    for period in measured.SUB_PERIODS:
        values = []
        if known:
            first, last = known[0][0], known[-1][0]
            side, _, percent = period.partition("_")
            part = (last - first) * int(percent or 100) / 100
            low, high = (last - part, last) if side == "last" else (first, first + part)
            values = [v for t, v in known if low - 1e-3 < t < high + 1e-3]
        if not values:
            result += [np.nan] * 5 + [0]
            continue
        lopsided = 0.0 if np.ptp(values) == 0 else float(skew(values))
        result += [min(values), max(values), np.mean(values), np.std(values), lopsided, len(values)]
    return result


@pytest.mark.slow
def test_statistics_equal_a_slow_reference(monkeypatch):
    rng = np.random.default_rng(0)
    names = list(measured.CHANNELS)
    series = {}
    for channel in names[:5]:
        for stay in range(4):
            times = np.unique(rng.integers(0, 30 * 3600, rng.integers(0, 60)))
            values = np.round(rng.normal(80, 10, len(times)), 1)
            values[rng.random(len(times)) < 0.05] = 999999.0
            if rng.random() < 0.2:
                values[:] = 7.3
            series[channel, stay] = list(zip(times.tolist(), values.tolist(), strict=True))
    events = events_of(series)
    stay, hour = (part.ravel() for part in np.meshgrid(np.arange(4), np.arange(1, 31), indexing="ij"))
    place = rng.permutation(len(stay))
    expected = np.array(
        [
            [h, *(x for c in names for x in slow_statistics(series.get((c, s), []), h))]
            for s, h in zip(stay, hour, strict=True)
        ]
    )
    for at_once in (7, 20_000):  # also across the borders of the blocks
        monkeypatch.setattr(mimic3_statistics, "_ROWS", at_once)
        out = np.empty((len(stay), 1 + len(COLUMNS)), np.float32)
        statistics(events, stay, hour, out, place)
        np.testing.assert_allclose(out[place], expected.astype(np.float32), rtol=2e-6, atol=2e-6)


def test_an_outlier_costs_no_digit_elsewhere():
    values = np.random.default_rng(0).normal(7.4, 0.01, 300)
    values[150] = 9_999_999.0
    starts, ends = np.array([0, 20, 151, 160]), np.array([150, 20, 300, 161])
    low, high, mean, std, skewness, count = window_statistics(values, starts, ends)
    np.testing.assert_array_equal(count, [150, 0, 149, 1])
    for i in (0, 2):
        inside = values[starts[i] : ends[i]]
        expected = [inside.min(), inside.max(), inside.mean(), inside.std(), skew(inside)]
        np.testing.assert_allclose([low[i], high[i], mean[i], std[i], skewness[i]], expected, rtol=1e-9)
    assert np.isnan([low[1], high[1], mean[1], std[1], skewness[1]]).all()
    assert std[3] == 0 and skewness[3] == 0 and mean[3] == values[160]


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("item", "text", "expected"),
    [
        (211, "88", 88),
        (211, " 88.5 ", 88.5),
        (211, "see note", np.nan),
        (211, "", np.nan),
        (678, "98.6", 37),  # Fahrenheit
        (223761, "100.4", 38),
        (676, "37.2", 37.2),  # Celsius
        (226707, "66", 168),  # inches: 167.64, whole centimetres
        (226730, "168.4", 168.4),
        (226531, "200", 90.7184),  # pounds
        (3582, "32", 0.907184),  # ounces
        (224639, "80.5", 80.5),
        (3420, "40", 0.4),  # per cent of oxygen
        (223835, "0.4", 0.4),
        (646, "97", 97),
        (834, "0.97", 97),  # a fraction
        (455, "120/80", 120),
        (8441, "120/80", 80),
        (8441, "75", 75),
        (50820, "7.35", 7.35),
        (50931, "ERROR", np.nan),
        (50931, "inf", np.inf),  # left out when the rows are chosen
        (184, "4 Spontaneously", 4),
        (220739, "To Speech", 3),
        (220739, "None", 1),
        (454, "2 Abnorm extensn", 2),
        (223901, "Obeys Commands", 6),
        (723, "1.0 ET/Trach", 1),
        (223900, "No Response-ETT", 1),
        (223900, "Inappropriate Words", 3),
        (198, "15", 15),
        (3348, "Brisk", 0),
        (3348, "Abnormal >3 secs", 1),
        (3348, "Comment", np.nan),
    ],
)
def test_values_in_the_channels_unit(item, text, expected):
    other = "12"
    got = parse_values(np.array([211, item]), [other, text], np.array([0, 1]))
    np.testing.assert_allclose(got, [12, expected])


def test_every_item_has_one_channel():
    items = [item for channel in measured.CHANNELS.values() for item in channel]
    assert len(measured.CHANNELS) == 17 and len(set(items)) == len(items)
    assert len(COLUMNS) == len(set(COLUMNS)) == 714


# --- which events, which hours ----------------------------------------------------------------------------------------


def test_events_go_to_their_stay(made, tmp_path):
    made.rows["CHARTEVENTS"], made.rows["LABEVENTS"] = [], []
    made.stay(1, 101, 301, 20, 30)  # a second stay of the admission
    made.chart(1, 201, 211, 2, 61)
    made.chart(1, 201, 220045, 2, 63)  # the same channel and time: the largest stays
    made.chart(1, 201, 211, 2, 62)
    made.chart(1, 201, 211, 11, 64)  # after the stay
    made.chart(1, 201, 211, -1, 64)  # before it
    made.chart(1, 999, 211, 3, 64)  # a stay that does not exist
    made.chart(1, "", 211, 25, 65)  # no stay: by admission and time
    made.chart(1, "", 211, 15, 66)  # between the stays
    made.chart(1, 201, 211, 10, 67)  # the end belongs to the stay
    made.chart(1, 201, 5, 4, 68)  # another item
    made.lab(1, 50809, 21, 110)
    made.lab(2, 50817, 9, 95)
    made.rows["LABEVENTS"].append(f"1,2,,50817,{at(9)},97,,,")  # no admission
    made.rows["CHARTEVENTS"].append(f'1,1,101,201,220739,{at(5)},"None",,')
    held, events = read(made.write(tmp_path))
    names = list(measured.CHANNELS)
    ids = held.stays.ids
    got = {
        (names[c], int(ids[s]), t / 3600, v)
        for c, s, t, v in zip(events.channel, events.stay, events.second, events.value, strict=True)
    }
    assert got == {
        ("heart_rate", 201, 2, 63),
        ("heart_rate", 201, 10, 67),
        ("heart_rate", 301, 5, 65),
        ("glucose", 301, 1, 110),
        ("oxygen_saturation", 202, 9, 95),
        ("gcs_eye", 201, 5, 1),
    }
    # Charted: anything with an ICUSTAY_ID, in the hour that ends at h.
    charted = {(int(ids[s]), int(h)) for s, h in zip(events.charted_stay, events.charted_hour, strict=True)}
    assert charted == {(201, 2), (201, 11), (201, 10), (201, 4), (201, 5)}


def test_find_by_time():
    stays = Stays(
        np.array([1, 2, 3]),
        np.array([7, 5, 7]),
        np.zeros(3),
        np.array([100, 50, 200]),
        np.full(3, 10),
        np.full(3, NEVER),
    )
    found = stays.find_by_time(
        np.array([7, 7, 7, 7, 5, 5, 6, -1, 9]), np.array([99, 100, 150, 10**9, 49, 50, 100, 100, 100])
    )
    assert found.tolist() == [-1, 0, 0, 2, -1, 1, -1, -1, -1]


def test_charted_hours_and_their_labels(made, tmp_path):
    made.rows["CHARTEVENTS"] = [row for row in made.rows["CHARTEVENTS"] if at(3.5) not in row]  # nothing in hour 4
    made.rows["ADMISSIONS"][1] = f'2,2,102,{at(-1)},{at(7)},"WHITE","X"'  # patient 2 dies at hour 7
    held, events = read(made.write(tmp_path))
    rows = module.charted_hours(held.stays, events)
    got = hours(rows, held.stays)
    assert got[201] == [1, 2, 3, 5, 6, 7, 8, 9, 10]  # until the end of the stay, inclusive
    assert got[202] == [1, 2, 3, 5, 6]  # before death
    task = load(config(), "relational", 1, 0, tmp_path)
    labels = np.concatenate([part.labels for part in task.clients if part.table == "events"])
    # Death at hour 30: positive from hour 7 on (30 - 6 = 24 is not less than 24), 4 of 9 hours; patient 2: all of 5.
    total = labels.sum() + sum(held.labels.sum() for held in task.held_out.values())
    assert total == 5 * 4 + 5
    note = task.source.note
    assert note.startswith(f"cohort all: {11 * 9 + 5} stay-hours, 25 positive") and "of 46,520 rows of PATIENTS" in note


def test_benchmark_hours(made, tmp_path):
    made.rows["PATIENTS"][1] = f'2,2,"F",{START - timedelta(days=365 * 17)},'  # a minor
    made.stay(3, 103, 303, 20, 30)  # a second stay of the admission
    made.stay(4, 104, 304, 20, 30, "MICU", "SICU")  # one with a transfer, which does not count as a second
    made.rows["ICUSTAYS"][4] = made.rows["ICUSTAYS"][4].replace('"MICU","MICU"', '"MICU","CCU"')  # a transfer
    made.rows["CHARTEVENTS"] = [row for row in made.rows["CHARTEVENTS"] if ",206,211," not in row]
    made.chart(6, 206, 211, 6.5, 70)
    made.rows["ADMISSIONS"][0] = f'1,1,101,{at(-1)},{at(7)},"WHITE","X"'
    held, events = read(made.write(tmp_path))
    got = hours(module.benchmark_hours(held, events), held.stays)
    assert got[201] == [5, 6, 7]  # later than hour 4, until death
    assert got[206] == [7, 8, 9, 10]  # after the first measurement
    assert got[204] == got[212] == [5, 6, 7, 8, 9, 10]
    assert not {202, 203, 303, 304, 205} & set(got)
    assert load(config(cohort="auto"), "relational", 1, 0, tmp_path).source.note.startswith("cohort benchmark: ")


# --- the task ---------------------------------------------------------------------------------------------------------


def test_the_five_tables(made, tmp_path):
    made.rows["ADMISSIONS"][1] = f'2,2,102,{at(-1)},,"ASIAN","X"'
    made.rows["DIAGNOSES_ICD"] = [row for row in made.rows["DIAGNOSES_ICD"] if ",112," not in row] + ['9,12,112,1,"X"']
    made.stay(1, 101, 301, 20, 30, "CCU", "SICU")
    root = made.write(tmp_path)
    held, _ = read(root)
    stays, patients, admissions, diagnoses = held.tables(length_of_stay=False)
    assert {t.name: t.features.shape for t in (stays, patients, admissions, diagnoses)} == {
        "stays": (13, 3 + 6 + 6 + 1 + 1),
        "patients": (12, 1),
        "admissions": (12, 41),
        "diagnoses": (11, 128),  # an admission whose codes are all unknown has no row
    }
    assert stays.keys["ICUSTAY_ID"].tolist() == [*range(201, 213), 301] and stays.keys["HADM_ID"][-1] == 101
    last = dict(zip(stays.columns, stays.features[-1], strict=True))
    assert {name for name, value in last.items() if value} == {
        "DBSOURCE=carevue",
        "FIRST_CAREUNIT=CCU",
        "LAST_CAREUNIT=SICU",
        "FIRST_WARDID=52",
        "LAST_WARDID=52",
    }
    assert patients.features[:2, 0].tolist() == [1, 0]  # M, F
    assert [admissions.columns[i] for i in admissions.features[:2].argmax(axis=1)] == [
        "ETHNICITY=WHITE",
        "ETHNICITY=ASIAN",
    ]
    assert {diagnoses.columns[i] for i in np.flatnonzero(diagnoses.features[0])} == {"ICD9=0389", "ICD9=V5861"}
    assert held.tables(length_of_stay=True)[0].columns[-1] == "LOS"
    assert held.tables(length_of_stay=True)[0].features[0, -1] == np.float32(10 / 24)

    task = load(config(), "relational", 2, 0, root)
    assert task.tables == ("stays", "patients", "admissions", "diagnoses", "events") and task.label_table == "events"
    assert task.classes == 2 and task.metric.name == "auroc" and task.metric.goal == "max"
    assert [part.features.shape[1] for part in task.clients[::2]] == [17, 1, 41, 128, 715]
    joined = load(config(), "aligned", 1, 0, root)
    # patient 12 has no diagnoses row
    assert len(joined.labels) + sum(len(labels) for labels in joined.held_out_labels.values()) == 110


def test_a_value_outside_the_vocabulary_is_told(made, tmp_path, caplog):
    made.rows["ADMISSIONS"][1] = f'2,2,102,{at(-1)},,"MARTIAN","X"'
    held, _ = read(made.write(tmp_path))
    with caplog.at_level(logging.WARNING):
        assert not held.tables(False)[2].features[1].any()
    assert "mimic3/ADMISSIONS.csv: 1 rows with an unknown ETHNICITY (MARTIAN)" in caplog.text


@pytest.mark.parametrize("seed", range(5))
def test_splits_are_by_patients_with_both_classes(seed):
    rng = np.random.default_rng(seed)
    patients = rng.integers(0, 40, 500)
    positive = np.isin(patients, [3, 5, 8]) & (rng.random(500) < 0.5)
    splits = split_patients(patients, positive, 0.15, 0.15, seed)
    assert sorted(np.concatenate(list(splits.values())).tolist()) == list(range(500))
    for one, other in (("train", "val"), ("train", "test"), ("val", "test")):
        assert not set(patients[splits[one]]) & set(patients[splits[other]])
    for rows in splits.values():
        assert 0 < positive[rows].mean() < 1 and (np.diff(rows) > 0).all()
    assert len(set(patients[splits["test"]])) == round(0.15 * 37) + 1
    again = split_patients(patients, positive, 0.15, 0.15, seed + 1)
    assert not np.array_equal(again["test"], splits["test"])


def test_too_few_positive_patients():
    patients = np.repeat(np.arange(10), 3)
    with pytest.raises(DataError, match="only 2 patients have a positive hour"):
        split_patients(patients, patients < 2, 0.15, 0.15, 0)
    assert not len(split_patients(patients, patients < 2, 0.0, 0.15, 0)["val"])


def equal(a, b) -> None:
    """Equal tasks."""
    assert len(a.clients) == len(b.clients)
    for one, other in zip(a.clients, b.clients, strict=True):
        np.testing.assert_allclose(one.features, other.features, rtol=1e-5, atol=1e-5)
        assert {k: v.tolist() for k, v in one.keys.items()} == {k: v.tolist() for k, v in other.keys.items()}
        assert (one.labels is None) == (other.labels is None)
        if one.labels is not None:
            np.testing.assert_array_equal(one.labels, other.labels)
        for split in one.held_out:
            np.testing.assert_allclose(one.held_out[split], other.held_out[split], rtol=1e-5, atol=1e-5)
    for split in a.held_out:
        np.testing.assert_array_equal(a.held_out[split].labels, b.held_out[split].labels)


def test_gzip_and_lower_case_headers_are_the_same_data(made, tmp_path):
    plain = load(config(), "relational", 2, 1, made.write(tmp_path / "plain"))
    packed = load(
        config(variant="demo"), "relational", 2, 1, made.write(tmp_path / "packed", "mimic3_demo", lower=True, gz=True)
    )
    assert plain.source.variant == "full" and packed.source.variant == "demo"
    assert ("mimic3_demo/CHARTEVENTS.csv.gz" in dict(packed.source.files)) and len(packed.source.files) == 7
    equal(plain, packed)


def test_auto_takes_the_fullest_variant(made, tmp_path):
    made.write(tmp_path, "mimic3_demo")
    assert load(config(variant="auto"), "relational", 1, 0, tmp_path).source.variant == "demo"
    made.write(tmp_path, "mimic3")
    assert load(config(variant="auto"), "relational", 1, 0, tmp_path).source.variant == "full"
    (tmp_path / "mimic3" / "LABEVENTS.csv").unlink()
    assert load(config(variant="auto"), "relational", 1, 0, tmp_path).source.variant == "demo"
    with pytest.raises(DataError, match=r"missing mimic3/LABEVENTS\.csv.*no public address of LABEVENTS\.csv"):
        load(config(variant="full"), "relational", 1, 0, tmp_path)


def test_features_on_disk_that_are_not_finite_are_told(made, tmp_path, monkeypatch):
    root = made.write(tmp_path)

    def infinite(events, stay, hour, out, place):
        out[:] = 1.0
        out[:, 3] = np.inf

    monkeypatch.setattr(module, "_LARGE", 0)
    monkeypatch.setattr(module, "statistics", infinite)
    with pytest.raises(DataError, match=rf"table events, column {COLUMNS[2]}: values that are not finite"):
        load(config(), "relational", 1, 0, root)


def test_features_on_disk_are_the_same_task(made, tmp_path, monkeypatch):
    made.chart(3, 203, 50820, 2, 7.4)
    root = made.write(tmp_path)
    small = load(config(), "relational", 2, 3, root)
    monkeypatch.setattr(module, "_LARGE", 0)
    monkeypatch.setattr(module, "SLICE", 17)
    monkeypatch.setattr(mimic3_statistics, "_ROWS", 13)
    large = load(config(), "relational", 2, 3, root)
    equal(small, large)
    events = [part.features for part in large.clients if part.table == "events"]
    assert all(isinstance(part if isinstance(part, np.memmap) else part.base, np.memmap) for part in events)
    # The second time nothing is worked out again.
    monkeypatch.setattr(module, "statistics", None)
    monkeypatch.setattr(sources, "atomic", None)
    equal(small, load(config(), "relational", 2, 3, root))


def test_measurements_are_read_once(made, tmp_path, monkeypatch):
    root = made.write(tmp_path)
    before = load(config(), "relational", 1, 0, root)
    reads = []
    whole = measured.read_events
    monkeypatch.setattr(measured, "read_events", lambda *given: reads.append(1) or whole(*given))
    equal(before, load(config(), "relational", 1, 0, root))
    assert not reads
    path = root / "mimic3" / "CHARTEVENTS.csv"
    os.utime(path, (1, 1))  # the file is another one now
    load(config(), "relational", 1, 0, root)
    assert len(reads) == 1
    for cached in measured.cache_file("x").parent.glob("*.parquet"):
        cached.write_bytes(b"damaged")
    equal(before, load(config(), "relational", 1, 0, root))
    assert len(reads) == 2


def test_blocks_of_the_file_do_not_matter(made, tmp_path, monkeypatch):
    root = made.write(tmp_path)
    _, whole = read(root)
    monkeypatch.setattr(csv_files, "BLOCK", 500)
    _, pieces = read(root)
    for name in ("channel", "stay", "second", "value", "charted_stay", "charted_hour"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(pieces, name))


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", [400, 1 << 20])
@pytest.mark.parametrize(
    ("name", "row", "text", "message"),
    [
        ("CHARTEVENTS", 50, "1,2,3", r"CHARTEVENTS\.csv, line 52: Expected 9 columns, got 3"),
        (
            "CHARTEVENTS",
            50,
            f'1,1,101,201,"HR",{at(1)},"88",,',
            r"CHARTEVENTS\.csv, line 52, column ITEMID: .*invalid value 'HR'",
        ),
        (
            "CHARTEVENTS",
            50,
            '1,1,101,201,211,2150-13-01 00:00:00,"88",,',
            r"CHARTEVENTS\.csv, line 52, column CHARTTIME: ",
        ),
        ("LABEVENTS", 0, f"1,1,x,50931,{at(1)},100,,,", r"LABEVENTS\.csv, line 2, column HADM_ID: .*'x'"),
        ("PATIENTS", 3, "4,,F,2100-01-01 00:00:00,", r"PATIENTS\.csv, line 5: SUBJECT_ID is empty"),
        ("PATIENTS", 3, "4,1,F,2100-01-01 00:00:00,", r"PATIENTS\.csv, line 5: '1' is there twice as SUBJECT_ID"),
        ("ADMISSIONS", 2, f"3,3,103,{at(-1)},never,WHITE,X", r"ADMISSIONS\.csv, line 4, column DEATHTIME: .*'never'"),
        (
            "ICUSTAYS",
            1,
            f"2,2,777,202,carevue,MICU,MICU,52,52,{at(0)},{at(1)},1",
            r"ICUSTAYS\.csv, line 3: '777' is not a HADM_ID of mimic3/ADM",
        ),
        (
            "ICUSTAYS",
            1,
            f"2,99,102,202,carevue,MICU,MICU,52,52,{at(0)},{at(1)},1",
            r"ICUSTAYS\.csv, line 3: '99' is not a SUBJECT_ID of",
        ),
        ("DIAGNOSES_ICD", 4, "5,2,102,1,X,Y", r"DIAGNOSES_ICD\.csv, line 6: Expected 5 columns, got 6"),
    ],
)
def test_a_malformed_line_is_named(made, tmp_path, monkeypatch, name, row, text, message, block):
    monkeypatch.setattr(csv_files, "BLOCK", block)
    made.rows[name][row] = text
    with pytest.raises(DataError, match=message):
        load(config(), "relational", 1, 0, made.write(tmp_path))


def test_a_damaged_file_is_named(made, tmp_path):
    root = made.write(tmp_path, gz=True)
    path = root / "mimic3" / "CHARTEVENTS.csv.gz"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"mimic3/CHARTEVENTS\.csv\.gz"):
        load(config(), "relational", 1, 0, root)
    path.write_bytes(gzip.compress(b'"ROW_ID","SUBJECT_ID"\n1,2\n'))
    with pytest.raises(
        DataError,
        match=r"CHARTEVENTS\.csv\.gz, line 1: no column ICUSTAY_ID, HADM_ID, ITEMID, CHARTTIME, VALUE; it has ROW",
    ):
        load(config(), "relational", 1, 0, root)
    path.write_bytes(gzip.compress(b""))
    with pytest.raises(DataError, match=r"CHARTEVENTS\.csv\.gz, line 1: no column .*; it has none"):
        load(config(), "relational", 1, 0, root)
    assert not list(measured.cache_file("x").parent.iterdir())  # nothing half-done stays


def test_no_deaths(made, tmp_path):
    made.rows["ADMISSIONS"] = [row.replace(at(30), "") for row in made.rows["ADMISSIONS"]]
    with pytest.raises(
        DataError, match=r"none of its 120 prediction hours \(cohort all\) is within 24 hours of a death"
    ):
        load(config(), "relational", 1, 0, made.write(tmp_path))


def test_wrong_configuration_is_told_together():
    with pytest.raises(ConfigError, match=r"dataset\.test"):
        load(Config(test=1.5), "relational", 1, 0, None)
    _, problems = convert(Config, {"variant": "ful", "cohort": "benchmrk", "width": 0})
    assert {problem.key: problem.closest for problem in problems} == {
        "variant": "full",
        "cohort": "benchmark",
        "width": None,
    }


# --- the twin ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def twin_task():
    return load(Config(source="synthetic"), "relational", 1, 0, None)


@pytest.mark.slow
def test_the_twin_has_the_papers_sizes(twin_task, caplog):
    from vflbench.data.tasks.join import hand_over, join

    assert {part.table: part.rows for part in twin_task.clients} == {
        "stays": 52_302,
        "patients": 46_520,
        "admissions": 58_976,
        "diagnoses": 58_925,
        "events": 3_431_622,
    }
    behind = join({p.table: hand_over(p.keys, p.rows, "none") for p in twin_task.clients}, twin_task.joins, "events")
    assert len(behind["events"]) == 2_908_992
    joined = {table: len(np.unique(rows)) for table, rows in behind.items()}
    assert joined == {
        "stays": 35_381,
        "patients": 29_081,
        "admissions": 35_381,
        "diagnoses": 35_381,
        "events": 2_908_992,
    }
    assert twin_task.source.kind == "synthetic"
    hours = np.bincount(behind["stays"])
    assert hours.max() > 10 * hours[hours > 0].mean()  # heavy-tailed


@pytest.mark.slow
def test_the_twin_is_learnable(twin_task):
    from sklearn.metrics import roc_auc_score

    labels = next(part.labels for part in twin_task.clients if part.table == "events")
    assert 0.02 < labels.mean() < 0.04
    # The mean of the positives' features is the direction that matters: its score orders the test rows.
    train = next(part for part in twin_task.clients if part.table == "events")
    direction = train.features[train.labels == 1].mean(axis=0)
    test = twin_task.held_out["test"]
    assert 0.02 < test.labels.mean() < 0.05 and len(test.labels) == len(twin_task.held_out["val"].labels) == 20_000
    assert roc_auc_score(test.labels, (train.held_out["test"] @ direction)[test.rows[-1]]) > 0.7


@pytest.mark.slow
def test_the_twins_rows_do_not_depend_on_its_width():
    narrow, _ = module.twin(3)
    wide, _ = module.twin(12)
    np.testing.assert_array_equal(narrow.labels, wide.labels)
    for a, b in zip(narrow.tables, wide.tables, strict=True):
        np.testing.assert_array_equal(a.features, b.features[:, : a.features.shape[1]])
        assert all(np.array_equal(a.keys[key], b.keys[key]) for key in a.keys)
    assert [table.features.shape[1] for table in wide.tables] == [12, 1, 12, 12, 12]


@pytest.mark.slow
def test_without_a_data_root_the_twin_is_announced(caplog):
    with caplog.at_level(logging.WARNING):
        task = load(Config(), "relational", 1, 0, None)
    assert task.source.kind == "synthetic" and "SYNTHETIC TWIN: dataset mimic3" in caplog.text


# --- the real demo ----------------------------------------------------------------------------------------------------


@pytest.fixture
def demo(shared_data) -> Path:
    if not (shared_data / "mimic3_demo" / "CHARTEVENTS.csv.gz").is_file():
        absent("no MIMIC-III demo here")
    return shared_data


@pytest.mark.slow
@pytest.mark.realdata
def test_the_demo_has_the_counted_hours(demo):
    held, events = read(demo, "demo")
    stay, hour = module.charted_hours(held.stays, events)
    positive = held.stays.death[stay] - hour.astype(np.int64) * 3600 < 24 * 3600
    assert (len(stay), positive.sum()) == (13_683, 599)
    assert len(np.unique(stay)) == 132 and len(np.unique(held.stays.subjects[stay])) == 98
    assert len(np.unique(held.stays.subjects[stay[positive]])) == 33
    stay, hour = module.benchmark_hours(held, events)
    positive = held.stays.death[stay] - hour.astype(np.int64) * 3600 < 24 * 3600
    assert (len(stay), positive.sum()) == (10_863, 459)
    # Medians of the channels, in their units.
    names = list(measured.CHANNELS)
    median = {name: np.median(events.value[events.channel == i]) for i, name in enumerate(names)}
    assert 36.5 < median["temperature"] < 37.5 and 0.35 < median["fraction_inspired_oxygen"] < 0.6
    assert 60 < median["weight"] < 100 and 155 < median["height"] < 185 and 95 < median["oxygen_saturation"] < 100


@pytest.mark.slow
@pytest.mark.realdata
def test_the_demo_as_a_task(demo, tmp_path, monkeypatch):
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    scores = []
    for seed in range(5):
        task = load(Config(source="real", variant="demo"), "aligned", 1, seed, demo)
        assert task.source.kind == "real" and task.source.variant == "demo"
        assert task.source.note == "cohort all: 13683 stay-hours, 599 positive"
        assert [block.shape[1] for block in task.features] == [33, 1, 41, 128, 715]
        answers = [task.labels, task.held_out_labels["val"], task.held_out_labels["test"]]
        assert sum(map(len, answers)) == 13_683 and all(0 < labels.mean() < 1 for labels in answers)
        train = np.concatenate(task.features, axis=1)
        model = LogisticRegression(C=1e-3, max_iter=200).fit(train, task.labels)
        scores.append(
            roc_auc_score(answers[2], model.decision_function(np.concatenate(task.held_out_features["test"], axis=1)))
        )
    assert np.mean(scores) > 0.6
