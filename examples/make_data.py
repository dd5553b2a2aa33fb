"""The made-up tables of the examples, the same on every machine: python examples/make_data.py [folder]

A hospital and a laboratory have a CSV file each about the same patients. Two other hospitals have one each, and know
some of the same patients; so do a German clinic and its laboratory, whose files are written as Excel does. A grocer's
purchases lie in SQLite, a bank's customers in Parquet, a town's list of the shops' departments in CSV.
"""

from __future__ import annotations

import contextlib
import sqlite3
import sys
from pathlib import Path

import numpy as np
import pandas as pd

WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat")
DEPARTMENTS = ("bakery", "drinks", "fruit", "household")


def patients() -> dict[str, pd.DataFrame]:
    """What a hospital and a laboratory know of the same 2,000 patients; each has half of what tells who died."""
    rng = np.random.default_rng(20241)
    count = 2000
    patient = rng.permutation(np.arange(10_000, 10_000 + count))
    hospital = pd.DataFrame({"patient": patient, "age": rng.normal(66, 15, count).round().clip(18, 99).astype(int)})
    hospital["ward"] = rng.choice(["surgery", "internal", "cardiac", "intensive"], count, p=[0.3, 0.4, 0.2, 0.1])
    hospital["emergency"] = rng.integers(0, 2, count)
    hospital["pulse"] = (82 + 12 * rng.normal(size=count)).round()
    laboratory = pd.DataFrame(
        {
            "patient": patient,
            "lactate": rng.gamma(3, 0.6, count).round(2),
            "creatinine": rng.gamma(4, 0.3, count).round(2),
        }
    )
    laboratory["albumin"] = rng.normal(3.6, 0.6, count).round(1)
    laboratory["crp"] = rng.gamma(1.2, 45, count).round(1)
    risk = (
        0.05 * (hospital.age - 66)
        + 0.9 * hospital.emergency
        + 1.4 * (hospital.ward == "intensive")
        + 0.02 * (hospital.pulse - 82)
    )
    risk += 0.8 * (laboratory.lactate - 1.8) + 0.9 * (laboratory.creatinine - 1.2) - 1.0 * (laboratory.albumin - 3.6)
    hospital["died"] = (rng.random(count) < 1 / (1 + np.exp(1.6 - risk))).astype(int)
    hospital.loc[rng.choice(count, 60, replace=False), "pulse"] = np.nan  # not measured
    laboratory.loc[rng.choice(count, 90, replace=False), "crp"] = np.nan
    # each in an order of its own
    return {"hospital": hospital, "laboratory": laboratory.sample(frac=1, random_state=1)}


def hospitals() -> dict[str, pd.DataFrame]:
    """What two hospitals know of their patients; 1,500 of the first's 1,800 and of the second's 1,900 are both's."""
    rng = np.random.default_rng(20242)
    patient = np.array([f"P{number:05d}" for number in rng.permutation(20_000)[:2200]])
    count = len(patient)
    age = rng.normal(61, 16, count).round().clip(18, 99)
    smoker = rng.choice(["never", "former", "current"], count, p=[0.5, 0.3, 0.2])
    pressure, sugar = rng.normal(132, 18, count).round(), rng.gamma(9, 0.7, count).round(1)
    scan, stay = rng.choice(["clear", "unclear", "finding"], count, p=[0.6, 0.25, 0.15]), rng.poisson(4, count)
    risk = 0.04 * (age - 61) + 1.1 * (smoker == "current") + 0.02 * (pressure - 132)
    risk += 0.5 * (sugar - 6.3) + 1.6 * (scan == "finding") + 0.15 * (stay - 4)
    readmitted = np.where(rng.random(count) < 1 / (1 + np.exp(0.9 - risk)), "yes", "no")
    city = pd.DataFrame({"patient": patient, "age": age.astype(int), "smoker": smoker, "pressure": pressure})
    city["readmitted"] = readmitted
    clinic = pd.DataFrame({"patient": patient, "sugar": sugar, "scan": scan, "stay": stay})
    city.loc[rng.choice(count, 120, replace=False), "pressure"] = np.nan  # not measured
    clinic.loc[rng.choice(count, 150, replace=False), "sugar"] = np.nan
    clinic.loc[rng.choice(count, 80, replace=False), "scan"] = None
    return {"city": city[:1800], "clinic": clinic[300:].sample(frac=1, random_state=2)}


def klinik() -> dict[str, pd.DataFrame]:
    """What a German clinic and a laboratory know of their patients; both know 800, and call the number differently."""
    rng = np.random.default_rng(20243)
    count = 900
    number = np.array([f"K-{number:06d}" for number in rng.permutation(500_000)[:count]])
    admitted = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, count), unit="D")
    towns = [f"{begin}{end}" for begin in ("Neu", "Alt", "Groß", "Klein", "Ober") for end in ("stadt", "münster",
             "brück", "höfen", "dorf", "burg", "see", "roda")]  # fmt: skip
    age, weight = rng.normal(64, 15, count).round().clip(18, 99), rng.normal(80, 14, count).round(1)
    klinik = pd.DataFrame({"Patient": number, "Aufnahme": admitted.strftime("%d.%m.%Y"), "Alter": age.astype(int)})
    klinik["Größe"], klinik["Gewicht"] = rng.normal(1.72, 0.09, count).round(2), weight
    klinik["Wohnort"], klinik["Kosten"] = rng.choice(towns, count), rng.gamma(3, 1800, count).round(2)
    labor = pd.DataFrame({"Pat.-Nr.": number, "Laktat": rng.gamma(3, 0.6, count).round(2)})
    labor["Kreatinin"], labor["CRP"] = rng.gamma(4, 0.3, count).round(2), rng.gamma(1.2, 45, count).round(1)
    risk = 0.06 * (age - 64) + 1.1 * (labor.Laktat - 1.8) + 1.2 * (labor.Kreatinin - 1.2) + 0.01 * (labor.CRP - 54)
    klinik["verstorben"] = np.where(rng.random(count) < 1 / (1 + np.exp(1.2 - risk)), "ja", "nein")
    klinik.loc[rng.choice(count, 40, replace=False), "Gewicht"] = np.nan  # not measured
    return {"klinik": klinik[:850], "labor": labor[50:].sample(frac=1, random_state=3)}


def tables() -> dict[str, pd.DataFrame]:
    """purchases (1,500 rows), customers (300) and departments (60, of 24 shops)."""
    rng = np.random.default_rng(20240)
    ids = np.sort(rng.choice(np.arange(1000, 2000), 300, replace=False))
    customers = pd.DataFrame({"id": ids, "age": rng.integers(18, 85, 300), "household": rng.integers(1, 6, 300)})
    customers["income"] = (1800 + 25 * customers.age + rng.normal(0, 600, 300)).round(-1).clip(900)
    customers.loc[rng.choice(300, 12, replace=False), "income"] = np.nan  # not everybody says

    shops = [f"S{number:02d}" for number in range(1, 25)]
    some = [sorted(rng.choice(4, rng.integers(1, 5), replace=False)) for _ in shops]
    rows = [(shop, DEPARTMENTS[d]) for shop, chosen in zip(shops, some, strict=True) for d in chosen]
    departments = pd.DataFrame(rows, columns=["shop", "department"])
    departments["shelf_metres"] = rng.gamma(4, 6, len(rows)).round(1)
    departments["staff"] = (1 + departments.shelf_metres / 10 + rng.random(len(rows))).astype(int)

    buyer, shop = rng.integers(0, 300, 1500), rng.integers(0, 24, 1500)
    purchases = pd.DataFrame(
        {"customer": ids[buyer], "shop": np.array(shops)[shop], "weekday": rng.choice(WEEKDAYS, 1500)}
    )
    purchases["hour"] = rng.integers(8, 20, 1500)
    purchases["articles"] = 1 + rng.poisson(6, 1500)
    space = departments.groupby("shop").shelf_metres.mean().loc[shops].to_numpy()
    amount = (
        3.1 * purchases.articles
        + 4 * customers.household.to_numpy()[buyer]
        + 0.006 * customers.income.fillna(2900).to_numpy()[buyer]
    )
    amount += 0.35 * space[shop] + 6 * (purchases.weekday == "Sat") + rng.normal(0, 5, 1500)
    purchases["amount"] = (amount - 15).clip(1).round(2)
    purchases.loc[rng.choice(1500, 30, replace=False), "customer"] = None  # paid in cash: NULL, which joins with nobody
    purchases["customer"] = purchases.customer.astype("Int64")
    return {"purchases": purchases, "customers": customers, "departments": departments}


def write(folder: Path) -> None:
    """Each table where its organisation keeps it."""
    made = tables()
    folder.mkdir(parents=True, exist_ok=True)
    database = folder / "grocer.sqlite"
    database.unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(database)) as connection:
        made["purchases"].astype(object).to_sql(
            "purchases", connection, index=False,
            dtype={"customer": "INTEGER", "shop": "TEXT", "weekday": "TEXT", "hour": "INTEGER", "articles": "INTEGER",
                   "amount": "REAL"},
        )  # fmt: skip
    for name, table in {**patients(), **hospitals()}.items():
        table.to_csv(folder / f"{name}.csv", index=False)
    german = klinik()
    thousands = german["klinik"].Kosten.map("{:,.2f}".format).str.translate(str.maketrans(",.", ".,"))
    german["klinik"].assign(Kosten=thousands).to_csv(
        folder / "klinik.csv", index=False, sep=";", decimal=",", encoding="cp1252", lineterminator="\r\n"
    )
    german["labor"].to_csv(folder / "labor.csv", index=False, sep=";", decimal=",")
    made["customers"].to_parquet(folder / "customers.parquet", index=False)
    made["departments"].to_csv(folder / "departments.csv", index=False)


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "data")
