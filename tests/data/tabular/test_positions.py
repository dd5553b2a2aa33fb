"""Two files of the same rows, and no ID is named: what disproves that row i of both is the same sample."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.every import few_fast
from vflbench.cards.data.tabular.tabular_files import Config, Entry
from vflbench.data.tabular import tabular_files
from vflbench.types import ConfigError, DataError

N = 40
RNG = np.random.default_rng(1)
ORDER = RNG.permutation(N)
IDS = np.array([f"P{i:03d}" for i in range(100, 100 + N)])
SPARSE = 5000 + 37 * np.arange(N)


@pytest.fixture
def frames() -> tuple[pd.DataFrame, pd.DataFrame]:
    x = np.random.default_rng(0).normal(size=N).round(4)
    return pd.DataFrame({"x": x, "y": (x > 0).astype(int)}), pd.DataFrame({"z": 2 * x, "w": np.arange(N) % 3})


def load(folder: Path, first: pd.DataFrame, second: pd.DataFrame, index: tuple[bool, bool] = (False, False), **keys):
    for name, table, own in zip("ab", (first, second), index, strict=True):
        table.to_csv(folder / f"{name}.csv", index=own)
    return tabular_files.load(Config(files=["a.csv", "b.csv"], label="y", **keys), "aligned", 2, 0, folder)


def told(folder: Path, *tables: pd.DataFrame, **keys) -> str:
    with pytest.raises((ConfigError, DataError)) as error:
        load(folder, *tables, **keys)
    return str(error.value).replace(f"{folder}/", "")


# --- one column -------------------------------------------------------------------------------------------------------

WRITINGS = [
    (IDS, [f"p{i}" for i in range(100, 100 + N)]),
    (IDS, [f"P {i}" for i in range(100, 100 + N)]),
    (IDS, [f"Ｐ{i}" for i in range(100, 100 + N)]),
    ([f"{i:05d}" for i in SPARSE], SPARSE),
    ([f"{i:05d}" for i in range(1, N + 1)], np.arange(1, N + 1)),
    ([f"A{i}" for i in SPARSE], [f"A{i:,}" for i in SPARSE]),
    ([f"a{i}" for i in SPARSE], [f"Ａ{i:,}" for i in SPARSE]),
]


@pytest.mark.parametrize("name", few_fast(["id", "kunde"]))
@pytest.mark.parametrize(("one", "other"), few_fast(WRITINGS, 3))
def test_ids_that_are_written_differently(tmp_path, frames, one, other, name):
    """Their order is evidence; they are not joined."""
    a, b = frames[0].assign(id=one), frames[1].assign(**{name: other})
    text = told(tmp_path, a, b.iloc[ORDER])
    assert "differ only in" in text and "write it alike in all files" in text and "dataset.leave_out=[id" in text
    task = load(tmp_path, a, b)
    assert [block.shape[1] for block in task.features] == [1, 2]
    assert "confirms" in task.source.note
    assert "have no ID in common in column id" in told(tmp_path, a, b.rename(columns={name: "id"}), id="id")


def test_codes_that_are_alike_in_one_file_only(tmp_path, frames):
    """Without capitals half of them are in both files; but no two of these differ in their writing."""
    both = [f"k{i}m" for i in range(18)]
    one, other = (
        [*both, *(f"{p}{q}{i}" for i in range(9) for q in "qQ"), *(f"{p}z{i}" for i in range(4))] for p in "xw"
    )
    load(tmp_path, frames[0].assign(code=one), frames[1].assign(ref=other).iloc[ORDER])


def gap(ids):
    return np.where(np.arange(N) == 7, None, ids)


def twice(ids):
    return np.where(np.arange(N) == 7, ids[8], ids)


@pytest.mark.parametrize("flaw", [gap, twice])
@pytest.mark.parametrize("ids", few_fast([IDS, SPARSE, np.arange(1, N + 1)]))
def test_an_empty_or_repeated_cell_hides_nothing(tmp_path, frames, flaw, ids):
    a, b = frames[0].assign(id=ids), frames[1].assign(id=flaw(ids.astype(object)))
    assert "row i of both is not the same sample" in told(tmp_path, a, b.iloc[ORDER])
    assert "row i of both is not the same sample" in told(tmp_path, b.assign(y=a.y), frames[1].assign(id=ids[ORDER]))
    if flaw is gap:
        assert [block.shape[1] for block in load(tmp_path, a, b).features] == [1, 2]
    if ids is not IDS:
        return
    assert "row i of both" in told(tmp_path, a, b.rename(columns={"id": "customer"}).iloc[ORDER])


@pytest.mark.parametrize("name", ["id", "vertrag"])
@pytest.mark.parametrize("kind", ["texts", "numbers"])
def test_files_that_share_part_of_the_ids(tmp_path, frames, kind, name):
    every = np.array([f"K{i}" for i in range(65)]) if kind == "texts" else 5000 + 37 * np.arange(65)
    a, b = frames[0].assign(**{name: every[:N]}), frames[1].assign(**{name: every[25:]})
    for own in (b, b.iloc[ORDER]):
        text = told(tmp_path, a, own)
        assert f"have 15 of 40 values in column {name} in common, but not all in the same rows" in text
        assert f"type dataset.id={name} and dataset.alignment=psi or hashed" in text
    load(tmp_path, a, b, leave_out=[name])


@pytest.mark.parametrize("name", few_fast(["id", "patient", "customer_id", "kundenId", "Pat.-Nr.", "Fallnummer"], 2))
def test_ids_of_one_name_without_a_common_value(tmp_path, frames, name):
    for ids, others in ((IDS, [f"X{i}" for i in range(N)]), (np.arange(1, N + 1), np.arange(41, 41 + N))):
        a, b = frames[0].assign(**{name: ids}), frames[1].assign(**{name: others})
        assert f"have no value in column {name} in common" in told(tmp_path, a, b)
        load(tmp_path, a, b, leave_out=[name])
        # another column proves the order
        key = SPARSE[ORDER]
        load(tmp_path, a.assign(key=key), b.assign(key=key))


@pytest.mark.slow
def test_columns_of_one_name_that_prove_nothing(tmp_path, frames):
    """What two parties measured, or wrote, themselves."""
    for seed in range(5):
        r = np.random.default_rng(seed)
        a, b = (own.copy() for own in frames)
        for own in (a, b):
            own["income"] = (30000 + 50 * r.integers(0, 1200, N)).astype(int)
            own["salary"] = (1000 * np.exp(r.normal(size=N))).astype(int)
            own["age"] = r.integers(18, 95, N)
            own["year"] = r.permutation(np.arange(1950, 2030))[:N]
            own["score"] = r.integers(0, 100, N)
            own["zip"] = r.choice([f"{i:05d}" for i in range(1000, 99999, 100)], N)
            own["price"] = r.gamma(2, 100, N).round(2)
            own["note"] = [f"{own.columns[0]} {i} {r.integers(1e6)}" for i in range(N)]
            own["paid"], own["grid"] = r.integers(0, 10**6, N), r.integers(0, 10**6, N)
        assert "aligned by the order of their rows;" in load(tmp_path, a, b).source.note
    # of two years: what stayed the same stands in the same row
    a["turnover"] = r.integers(0, 10**6, N)
    b["turnover"] = np.where(np.arange(N) % 5 < 2, a.turnover, r.integers(0, 10**6, N))
    load(tmp_path, a, b)
    a["ordered"] = [f"T{i}" for i in r.permutation(N)]
    b["delivered"] = np.where(np.arange(N) % 5 < 4, a.ordered, [f"U{i}" for i in range(N)])
    load(tmp_path, a, b)
    text = told(tmp_path, a, b.drop(columns="turnover").iloc[ORDER])
    assert "have 32 of 40 values in columns ordered and delivered in common" in text


# --- several columns together -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "patients", [np.arange(N) // 4, [f"P{i // 4}" for i in range(N)], 700 + 31 * (np.arange(N) // 4)]
)
def test_columns_that_name_the_rows_together(tmp_path, frames, patients):
    a, b = (own.assign(patient=patients, visit=np.arange(N) % 4) for own in frames)
    text = told(tmp_path, a, b.iloc[ORDER])
    assert "have the same values in columns patient and visit, but in another order" in text
    assert "type 'dataset.id=[patient,visit]" in text
    load(tmp_path, a, b.iloc[ORDER], id=["patient", "visit"])
    load(tmp_path, a, b)
    three = [
        own.assign(site=np.arange(N) // 20, patient=np.arange(N) // 4 % 5, visit=np.arange(N) % 4) for own in (a, b)
    ]
    assert "dataset.id=[patient,visit,site]" in told(tmp_path, three[0], three[1].iloc[ORDER])
    assert "perhaps 'dataset.id=[patient,visit]" in told(tmp_path, a, b.iloc[ORDER[:-1]])


def test_an_entity_is_evidence_as_well(tmp_path, frames):
    a, b = (own.assign(patient=IDS) for own in frames)
    assert "have the same values in column patient" in told(tmp_path, a, b.iloc[ORDER], entity="patient", split="group")
    load(tmp_path, a, b, entity="patient", split="group")


def test_answers_of_one_name_name_no_rows_together(tmp_path, frames):
    for seed in range(5):
        r = np.random.default_rng(seed)
        own = [
            part.assign(**{f"q{i}": r.integers(1, 6, N) for i in range(6)}, age=r.integers(18, 90, N))
            for part in frames
        ]
        load(tmp_path, *own)


@pytest.mark.parametrize("names", [("patient", "patient"), ("patient", "person")])
def test_several_rows_of_an_id(tmp_path, frames, names):
    a, b = (
        own.assign(visit=np.arange(N) % 4, **{name: np.arange(N) // 4}) for own, name in zip(frames, names, strict=True)
    )
    b = b.iloc[ORDER]
    entry = Entry("b.csv", id=names[1])
    for name, own in zip("ab", (a, b), strict=True):
        own.to_csv(tmp_path / f"{name}.csv", index=False)
    config = Config(files=["a.csv", entry], label="y", id="patient")
    with pytest.raises(DataError) as error:
        tabular_files.load(config, "aligned", 2, 0, tmp_path)
    assert str(error.value).count("the ID '") == 2
    hint = (
        "type 'dataset.id=[patient,visit]" if len({*names}) == 1 else "add it to the id of each file in dataset.files"
    )
    assert str(error.value).count(f"column visit tells such rows apart: {hint}") == 2
    (tmp_path / "b.csv").write_text((tmp_path / "b.csv").read_text().replace("visit", "stay"))
    with pytest.raises(DataError, match="each ID must be there once in each file"):
        tabular_files.load(config, "aligned", 2, 0, tmp_path)
    with pytest.raises(DataError, match=r"If patient says whose .*dataset\.entity=patient in place of dataset\.id"):
        tabular_files.load(Config(files=["a.csv"], label="y", id="patient"), "aligned", 1, 0, tmp_path)


@pytest.mark.slow
def test_several_rows_of_an_id_in_another_order(tmp_path, frames):
    visits, often = np.repeat(SPARSE[: N // 4], 4), np.append(np.arange(1, N - 3), [5, 5, 8, 30])
    for ids, others in ((visits, visits[ORDER]), ([f"P{i}" for i in visits], [f"P{i}" for i in visits[::-1]])):
        text = told(tmp_path, frames[0].assign(patient=ids), frames[1].assign(patient=others))
        assert "have the same values in column patient, but in another order" in text
    a, b = (own.assign(id=often) for own in frames)
    assert "have the same values in column id" in told(tmp_path, a, b.iloc[ORDER])
    load(tmp_path, a, b)
    load(tmp_path, a.assign(key=IDS), b.iloc[ORDER].assign(key=IDS))  # another column proves the order
    for seed in range(5):
        r = np.random.default_rng(seed)
        for name, most in (("number", 12), ("children_no", 25), ("device_id", 20)):
            load(tmp_path, *(own.assign(**{name: r.integers(0, most, N)}) for own in frames))
        raters = np.arange(N) % 8
        load(tmp_path, *(own.assign(rater_id=r.permutation(raters)) for own in frames))


def test_quantiles_are_no_evidence(tmp_path, frames):
    r = np.random.default_rng(0)
    a, b = frames[0].assign(q=(r.permutation(N) + 1) / N), frames[1].assign(p=(r.permutation(N) + 1) / N)
    load(tmp_path, a, b)
    assert "have the same values in column q" in told(tmp_path, a, b.rename(columns={"p": "q"}))


# --- numbers of rows, and columns without a name ----------------------------------------------------------------------


@pytest.mark.parametrize("name", few_fast([None, "index", "Unnamed: 0"]))
@pytest.mark.parametrize("first", [0, 1])
def test_a_number_of_the_rows_in_another_order(tmp_path, frames, name, first):
    """As after `df.sample(frac=1).to_csv()`, in one file only."""
    a, b = frames
    b.index = pd.Index(np.arange(first, first + N), name=name)
    text = told(tmp_path, a, b.iloc[ORDER], index=(False, True))
    assert text.startswith("b.csv, column ") and "it numbers the rows, but in another order (" in text
    left = name or ""
    task = load(tmp_path, a, b.iloc[ORDER], index=(False, True), leave_out=[left])
    assert task.features[1].shape[1] == 2
    assert load(tmp_path, a, b, index=(False, True)).features[1].shape[1] == 2
    # an ID in the same order, which the other file has, too, proves that it is right
    load(tmp_path, a.assign(id=IDS), b.assign(id=IDS).iloc[ORDER].assign(id=IDS), index=(False, True))


@pytest.mark.parametrize(("name", "refused"), [("id", True), ("patient_nr", True), ("rank", False), ("score", False)])
def test_an_id_in_one_file_that_numbers_the_rows_in_another_order(tmp_path, frames, name, refused):
    a, b = frames[0], frames[1].assign(**{name: range(1, N + 1)}).iloc[ORDER]
    if refused:
        assert f"b.csv, column {name}: it numbers the rows, but in another order (" in told(tmp_path, a, b)
    assert load(tmp_path, a, b, leave_out=[name]).features[1].shape[1] == 2
    if not refused:
        load(tmp_path, a, b)


def test_rows_that_were_dropped_before_they_were_shuffled(tmp_path, frames):
    a, b = frames
    b.index = np.sort(np.random.default_rng(0).permutation(2 * N)[:N])
    assert "it numbers the rows" in told(tmp_path, a, b.iloc[ORDER], index=(False, True))
    load(tmp_path, a, b, index=(False, True))
    load(tmp_path, a, b.rename_axis("rank").iloc[ORDER], index=(False, True))  # a column with a name of its own


def test_a_column_without_a_name_is_an_id(tmp_path, frames):
    a, b = (own.set_axis(IDS) for own in frames)
    text = told(tmp_path, a, b.iloc[ORDER], index=(True, True))
    assert """type 'dataset.id=""'""" in text and """as 'dataset.leave_out=[""]'""" in text
    for keys in ({"id": ""}, {"id": [""]}, {"files": [Entry(f"{name}.csv", id="") for name in "ab"]}):
        config = Config(**{"files": ["a.csv", "b.csv"], "label": "y", **keys})
        task = tabular_files.load(config, "aligned", 2, 0, tmp_path)
        assert [block.shape[1] for block in task.features] == [1, 2]
        assert np.allclose(task.features[0][:, 0], task.features[1][:, 0], atol=1e-5)
    assert "dataset.id=: " in told(tmp_path, *frames, id="")
    assert "column '' (it has no name): the ID 'P100' is there twice" in told(
        tmp_path, a, b.set_axis(["P100"] * N), index=(True, True), id=""
    )
