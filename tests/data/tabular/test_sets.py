"""Each data set on made files in its original formats, and its twin."""

import bz2
import gzip
import io
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xlwt
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import r2_score, roc_auc_score

from tests.options import card_of
from vflbench import registry
from vflbench.cards.data.tabular import bank as bank_card
from vflbench.cards.data.tabular import blog as blog_card
from vflbench.cards.data.tabular import breast_cancer as breast_cancer_card
from vflbench.cards.data.tabular import credit as credit_card
from vflbench.cards.data.tabular import digits as digits_card
from vflbench.cards.data.tabular import energy as energy_card
from vflbench.cards.data.tabular import gisette as gisette_card
from vflbench.cards.data.tabular import ridge as ridge_card
from vflbench.cards.data.tabular import synthetic as synthetic_card
from vflbench.config import convert
from vflbench.data.tabular import bank, blog, breast_cancer, credit, digits, energy, gisette, ridge, synthetic
from vflbench.types import ConfigError, DataError

RNG = np.random.default_rng(0)


def put(root: Path, name: str, data: bytes) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def zipped(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()


def whole(task) -> np.ndarray:
    """All blocks of all splits side by side, training rows first."""
    splits = [task.features, *task.held_out_features.values()]
    return np.concatenate([np.concatenate(blocks, axis=1) for blocks in splits])


def change(monkeypatch, module, **keys) -> None:
    """Give the one edition of a data set other forms, or another twin."""
    files = replace(module.FILES, editions=(replace(module.FILES.editions[0], **keys),))
    monkeypatch.setattr(module, "load", replace(module.SET, make=files.make).load)


# --- energy -----------------------------------------------------------------------------------------------------------


def energy_lines(rows: int = 40) -> list[str]:
    lines = [",".join(f'"{name}"' for name in ("date", "Appliances", *energy.COLUMNS))]
    for i, values in enumerate(RNG.normal(20, 5, (rows, 27))):
        fields = [f"2016-01-11 17:{i:02d}:00", f" {10 * (i + 1)}", *(f"{value:.17g}" for value in values)]
        lines.append(",".join(f'"{field}"' for field in fields))
    return lines


def test_energy(tmp_path):
    put(tmp_path, "appliances_energy/energydata_complete.csv.gz", gzip.compress("\n".join(energy_lines()).encode()))
    task = energy.load(energy_card.Config(), "aligned", 2, 0, tmp_path)
    assert [block.shape for block in task.features] == [(24, 14), (24, 13)] and (task.metric.name, task.classes) == (
        "rmse",
        0,
    )
    assert [name for name, _ in task.source.files] == ["appliances_energy/energydata_complete.csv.gz"] and (
        task.source.kind,
        task.source.lacks,
    ) == ("partial", "40 of 19,735 readings")
    assert sorted([*task.labels, *task.truth("val"), *task.truth("test")]) == [10.0 * (i + 1) for i in range(40)]
    convex = energy.load(energy_card.Config(problem="ridge"), "aligned", 27, 0, tmp_path)
    assert convex.parties == 27 and convex.objective.weight == 0.1 and len(convex.labels) == 40


def test_energy_in_time(tmp_path):
    """The target counts up with the time; lines may stand in any order."""
    first, *lines = energy_lines()
    mixed = "\n".join([first, *lines[::2], *lines[1::2]]).encode()
    put(tmp_path, "appliances_energy/energydata_complete.csv", mixed)
    task = energy.load(energy_card.Config(split="time"), "aligned", 2, 0, tmp_path)
    parts = (task.labels, task.truth("val"), task.truth("test"))
    assert [(min(own), max(own)) for own in parts] == [(10, 240), (250, 280), (290, 400)]
    refused = energy.check(energy_card.Config(split="time", problem="ridge"), "aligned", 2)
    assert [str(problem) for problem in refused] == ["dataset.split=time: problem=ridge holds no rows out: use random."]
    twin = energy.twin()
    assert twin.times is not None and len(twin.times) == len(twin.labels)


def test_energy_names_a_malformed_line(tmp_path):
    lines = energy_lines()
    lines[5] = lines[5].replace('"2016', '"2016", "')
    put(tmp_path, "appliances_energy/energydata_complete.csv", "\n".join(lines).encode())
    with pytest.raises(
        DataError, match=r"appliances_energy/energydata_complete\.csv, line 6: Expected 29 columns, got 30"
    ):
        energy.load(energy_card.Config(), "aligned", 2, 0, tmp_path)


# --- blog -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def posts(monkeypatch) -> dict[str, bytes]:
    """Two rows a file, the target counts up; of the 60 days only four, each read takes its time."""
    names = blog.NAMES[:5]
    packed, unpacked = blog.FILES.editions[0].forms
    change(monkeypatch, blog, forms=(replace(packed, members=names), replace(unpacked, files=unpacked.files[:5])))
    made = {}
    for i, name in enumerate(names):
        rows = np.column_stack([RNG.poisson(2.0, (2, 280)), [2 * i, 2 * i + 1]])
        made[name] = "\n".join(",".join(f"{value:.1f}" for value in row) for row in rows).encode()
    return made


def test_blogs_files_are_the_published_ones():
    names = blog.FILE_SETS[0].parts[0].groups[1]
    assert len(names) == len(set(names)) == 61 and names[0].name == "blogData_train.csv"
    assert {
        "blogData_test-2012.02.29.00_00.csv",
        "blogData_test-2012.03.25.00_00.csv",
        "blogData_test-2012.03.31.01_00.csv",
    } <= {file.name for file in names}


def test_blog_in_its_archive_and_unpacked(tmp_path, posts):
    put(tmp_path / "a", "blogfeedback/BlogFeedback.zip", zipped({**posts, "New Folder/": b""}))
    for name, data in posts.items():
        put(tmp_path / "b", f"blogfeedback/{name}", data)
    first, second = (blog.load(blog_card.Config(), "aligned", 2, 0, tmp_path / folder) for folder in "ab")
    np.testing.assert_array_equal(whole(first), whole(second))
    assert whole(first).shape == (10, 280) and [block.shape[1] for block in first.features] == [140, 140]
    assert sorted([*first.labels, *first.truth("val"), *first.truth("test")]) == list(range(10))
    assert len(first.source.files) == 1 and len(second.source.files) == 5
    # both: the archive is read, and only it is named
    put(tmp_path / "b", "blogfeedback/BlogFeedback.zip", zipped(posts))
    assert [name for name, _ in blog.load(blog_card.Config(), "aligned", 2, 0, tmp_path / "b").source.files] == [
        "blogfeedback/BlogFeedback.zip"
    ]


@pytest.mark.slow
def test_blog_in_time(tmp_path, posts):
    """The training file trains. Of four days, the later ones are for testing: no day is in two parts."""
    put(tmp_path, "blogfeedback/BlogFeedback.zip", zipped(posts))
    task = blog.load(blog_card.Config(split="time", validation=0.1, test=0.7), "aligned", 2, 0, tmp_path)
    assert (task.labels, task.truth("val"), task.truth("test"))[0].tolist() == [0, 1]
    assert task.truth("val").tolist() == [2, 3] and task.truth("test").tolist() == [4, 5, 6, 7, 8, 9]
    times = blog.twin().times
    assert times is not None and np.bincount(times)[0] == blog.TRAINING and times.max() == 60


def test_blog_names_a_malformed_line_of_a_member(tmp_path, posts):
    posts[blog.NAMES[3]] += b"\n1.0,2.0"
    put(tmp_path, "blogfeedback/BlogFeedback.zip", zipped(posts))
    with pytest.raises(
        DataError,
        match=r"BlogFeedback\.zip, blogData_test-2012\.02\.03\.00_00\.csv, line 3: Expected 281 columns, got 2",
    ):
        blog.load(blog_card.Config(), "aligned", 2, 0, tmp_path)
    del posts[blog.NAMES[3]]
    put(tmp_path, "blogfeedback/BlogFeedback.zip", zipped(posts))
    with pytest.raises(DataError, match=r"holds no file blogData_test-2012\.02\.03"):
        blog.load(blog_card.Config(), "aligned", 2, 0, tmp_path)


# --- bank -------------------------------------------------------------------------------------------------------------


def calls(variant: str, rows: int = 50) -> bytes:
    edition = bank.EDITIONS[variant]
    lines = [";".join(f'"{name}"' for name in (*edition.columns, "y"))]
    for i in range(rows):
        fields = [
            f'"{RNG.choice(edition.levels[c])}"' if c in edition.levels else f"{RNG.normal():.3f}"
            for c in edition.columns
        ]
        lines.append(";".join([*fields, '"yes"' if i < 10 else '"no"']))
    return "\n".join(lines).encode()


def test_bank_in_both_editions_and_both_packings(tmp_path):
    held = {variant: calls(variant) for variant in bank.EDITIONS}
    for variant, edition in bank.EDITIONS.items():
        put(tmp_path / "zip", edition.archive.path, zipped({edition.member: held[variant]}))
        put(tmp_path / variant, edition.unpacked.path, held[variant])
    for variant, columns in (("additional", 20), ("full", 16)):
        config = bank_card.Config(variant=variant, verify=False)
        tasks = [bank.load(config, "aligned", columns, 0, tmp_path / folder) for folder in ("zip", variant)]
        np.testing.assert_array_equal(whole(tasks[0]), whole(tasks[1]))
        assert (
            tasks[0].parties == columns
            and tasks[0].source.variant == variant
            and (tasks[0].metric.name, tasks[0].classes) == ("auroc", 2)
        )
        assert sum(len(labels) for labels in (tasks[0].labels, *tasks[0].held_out_labels.values())) == 50
        assert sum(int(labels.sum()) for labels in (tasks[0].labels, *tasks[0].held_out_labels.values())) == 10
    auto = bank.load(bank_card.Config(verify=False), "aligned", 2, 0, tmp_path / "zip")
    assert auto.source.variant == "additional" and [name for name, _ in auto.source.files] == [
        "bank_marketing/bank-additional.zip"
    ]
    assert bank.load(bank_card.Config(verify=False), "aligned", 2, 0, tmp_path / "full").source.variant == "full"
    with pytest.raises(DataError, match="wrong checksum"):
        bank.load(bank_card.Config(), "aligned", 2, 0, tmp_path / "zip")


def test_bank_names_a_malformed_line(tmp_path):
    put(tmp_path, "bank_marketing/bank-full.csv", calls("full").replace(b'"yes"', b'"maybe"', 3))
    with pytest.raises(DataError, match=r"bank_marketing/bank-full\.csv, line \d+: 'maybe' is not one of"):
        bank.load(bank_card.Config(), "aligned", 2, 0, tmp_path)


# --- credit -----------------------------------------------------------------------------------------------------------


def clients(rows: int = 40) -> list[list[float]]:
    rng = np.random.default_rng(1)
    made = []
    for i in range(rows):
        head = [
            20000.0,
            *(int(rng.choice([int(level) for level in credit.LEVELS[c]])) for c in ("SEX", "EDUCATION", "MARRIAGE")),
            24 + i,
        ]
        made.append(
            [i + 1, *head, *rng.integers(-2, 9, 6).tolist(), *rng.integers(0, 50000, 12).tolist(), int(i % 4 == 0)]
        )
    return made


def write_xls(path: Path, rows: list[list[float]]) -> None:
    book = xlwt.Workbook()
    sheet = book.add_sheet("Data")
    heads = ["", *(f"X{i}" for i in range(1, 24)), "Y"], ["ID", *credit.COLUMNS, "default payment next month"]
    for i, row in enumerate([*heads, *rows]):
        for j, cell in enumerate(row):
            sheet.write(i, j, cell)
    path.parent.mkdir(parents=True)
    book.save(str(path))


def test_credit_as_uci_and_as_kaggle_publish_it(tmp_path):
    write_xls(tmp_path / "uci/credit_default/default of credit card clients.xls", clients())
    lines = [
        ",".join(["ID", *credit.COLUMNS, "default.payment.next.month"]),
        *(",".join(map(str, row)) for row in clients()),
    ]
    put(tmp_path / "kaggle", "credit_default/UCI_Credit_Card.csv", "\n".join(lines).encode())
    lines[0] = ",".join(["ID", *(f'"X{number}"' for number in range(1, 24)), "Y"])
    put(tmp_path / "renamed", "credit_default/UCI_Credit_Card.csv", "\r\n".join(lines).encode("utf-8-sig"))
    first, *others = (
        credit.load(credit_card.Config(), "aligned", 23, 0, tmp_path / folder)
        for folder in ("uci", "kaggle", "renamed")
    )
    for other in others:
        np.testing.assert_array_equal(whole(first), whole(other))
        np.testing.assert_array_equal(first.labels, other.labels)
    assert first.parties == 23 and first.classes == 2 and first.source.files[0][0].endswith(".xls")


def test_credit_says_what_an_xls_needs(tmp_path, monkeypatch):
    write_xls(tmp_path / "credit_default/default of credit card clients.xls", clients())
    monkeypatch.setitem(sys.modules, "python_calamine", None)
    with pytest.raises(DataError, match=r"needs python-calamine: pip install 'vflbench\[excel\]'"):
        credit.load(credit_card.Config(), "aligned", 2, 0, tmp_path)


def test_credit_names_a_malformed_row(tmp_path):
    rows = clients()
    rows[4][2] = 7  # SEX
    write_xls(tmp_path / "credit_default/default of credit card clients.xls", rows)
    with pytest.raises(DataError, match=r"credit card clients\.xls, line 7: '7' is not one of 1, 2 \(SEX\)"):
        credit.load(credit_card.Config(), "aligned", 2, 0, tmp_path)
    (tmp_path / "credit_default/default of credit card clients.xls").write_bytes(b"<html>not found</html>")
    with pytest.raises(DataError, match=r"not an Excel \.xls file"):
        credit.load(credit_card.Config(), "aligned", 2, 0, tmp_path)


# --- gisette ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pictures() -> tuple[np.ndarray, np.ndarray]:
    """12 samples of 5,000 integers, 13 % not zero, and their signs; column 0 is constant."""
    values = RNG.integers(1, 1000, (12, 5000)) * (RNG.random((12, 5000)) < 0.13)
    values[:, 0] = 7
    return values, np.array([1, -1] * 6)


def libsvm(values: np.ndarray, signs: np.ndarray) -> bytes:
    """As svm-scale writes it: each column from -1 to 1, constant columns and zeros left out."""
    low, spread = values.min(axis=0), np.ptp(values, axis=0)
    lines = []
    for row, sign in zip(values, signs, strict=True):
        scaled = np.where(spread > 0, 2 * (row - low) / np.maximum(spread, 1) - 1, 0)
        lines.append(" ".join([f"{sign:+d}", *(f"{j + 1}:{scaled[j]:.9g}" for j in np.flatnonzero(scaled))]))
    return ("\n".join(lines) + "\n").encode()


def test_gisette_in_all_its_formats(tmp_path, pictures):
    values, signs = pictures
    dense = "\n".join(" ".join(map(str, row)) + " " for row in values) + "\n"
    put(tmp_path / "uci", "gisette/gisette_train.data", dense.encode())
    put(tmp_path / "uci", "gisette/gisette_train.labels", "".join(f"{sign}\n" for sign in signs).encode())
    put(tmp_path / "svm", "gisette/gisette_scale", libsvm(values, signs))
    put(tmp_path / "bz2", "gisette/gisette_scale.bz2", bz2.compress(libsvm(values, signs)))
    tasks = {
        folder: gisette.load(gisette_card.Config(beta=0.05), "aligned", 40, 0, tmp_path / folder)
        for folder in ("uci", "svm", "bz2")
    }
    expected = (values - values.min(axis=0)) / np.maximum(np.ptp(values, axis=0), 1)
    for task in tasks.values():
        assert [block.shape for block in task.features] == [(12, 125)] * 40 and task.metric.name == "suboptimality"
        np.testing.assert_allclose(np.concatenate(task.features, axis=1), expected, atol=1e-6)
        assert task.labels.tolist() == [1, 0] * 6
        assert task.optimum == pytest.approx(tasks["uci"].optimum, rel=1e-6)
    assert [name for name, _ in tasks["uci"].source.files] == [
        "gisette/gisette_train.data",
        "gisette/gisette_train.labels",
    ]


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("gisette_train.data", b"\n7 ", b"\n", r"gisette_train\.data, line 2: Expected 5000 columns, got 4999"),
        ("gisette_train.data", b"\n7 ", b"\nseven ", r"gisette_train\.data, line 2, column x1: .*'seven'"),
        ("gisette_train.labels", b"\n1\n", b"\n2\n", r"gisette_train\.labels, line 3: '2' is not one of -1, 1"),
        ("gisette_train.labels", b"1\n-1\n", b"1\n", r"6 labels for the 12 samples|\d+ labels for the 12 samples"),
        ("gisette_scale", b"\n+1 ", b"\n+1 5001:1 ", r"gisette_scale, line 3: Feature indices .* sorted"),
        ("gisette_scale", b"\n+1 ", b"\n+1 x:1 ", r"gisette_scale, line 3: .*'x'"),
        ("gisette_scale", b"\n+1 ", b"\n+3 ", r"gisette_scale, line 3: a label is not \+1 or -1"),
        ("gisette_scale", b"\n+1 ", b"\n+1 1:nan ", r"gisette_scale, line 3: a value is not finite"),
    ],
)
def test_gisette_names_a_malformed_line(tmp_path, pictures, file, old, new, message):
    values, signs = pictures
    held = {"gisette_scale": libsvm(values, signs)}
    if file != "gisette_scale":
        held = {
            "gisette_train.data": "\n".join(" ".join(map(str, row)) + " " for row in values).encode(),
            "gisette_train.labels": "".join(f"{sign}\n" for sign in signs).encode(),
        }
    assert old in held[file]
    held[file] = held[file].replace(old, new, 1)
    for name, data in held.items():
        put(tmp_path, f"gisette/{name}", data)
    with pytest.raises(DataError, match=message):
        gisette.load(gisette_card.Config(), "aligned", 2, 0, tmp_path)


# --- made up, or with scikit-learn ------------------------------------------------------------------------------------


def test_ridge_is_the_papers_problem():
    task = ridge.load(ridge_card.Config(), "aligned", 40, 0, None)
    assert [block.shape for block in task.features] == [(1000, 50)] * 40 and task.source.kind == "synthetic"
    features = np.concatenate(task.features, axis=1)
    assert features.std() == pytest.approx(1 / np.sqrt(1000), rel=0.01) and task.labels.std() == pytest.approx(
        np.sqrt(2), rel=0.1
    )
    # primal; the code takes the smaller dual
    theta = np.linalg.solve(features.T @ features + np.eye(2000), features.T @ task.labels)
    assert task.optimum == pytest.approx(
        ((features @ theta - task.labels) ** 2).sum() / 2 + (theta**2).sum() / 2, rel=1e-10
    )
    assert ridge.load(ridge_card.Config(), "aligned", 40, 7, None).optimum == task.optimum
    learning = ridge.load(ridge_card.Config(problem="learning", samples=50, features=6), "aligned", 3, 0, None)
    assert learning.metric.name == "rmse" and [len(learning.labels), len(learning.truth("test"))] == [30, 15]


def test_scikit_learns_data_is_real():
    task = breast_cancer.load(breast_cancer_card.Config(), "aligned", 10, 0, None)
    assert (
        task.source.kind == "real"
        and [block.shape for block in task.features] == [(569, 3)] * 10
        and task.labels.sum() == 357
    )
    assert 0 < task.optimum < 0.3
    ten = digits.load(digits_card.Config(), "aligned", 4, 0, None)
    assert (
        ten.classes == 10 and ten.metric.name == "accuracy" and [block.shape[1] for block in ten.features] == [16] * 4
    )
    odd = digits.load(digits_card.Config(problem="sparse_logistic"), "aligned", 4, 0, None)
    assert odd.classes == 2 and len(odd.labels) == 1797 and odd.labels.sum() == 906 and "odd" in odd.source.note
    for module in (breast_cancer, digits):
        assert [problem.key for problem in convert(card_of(module).Config, {"source": "synthetic"})[1]] == ["source"]
    images = digits.load(digits_card.Config(), "sharded", 5, 0, None)
    assert images.public.shape == (1, 8, 8) and images.public.rows == (216, 216, 216, 215, 215) and images.classes == 10
    # of the aligned one the first party has the upper two rows
    pixels, first = images.joined().features[:, 0], ten.features[0]
    np.testing.assert_array_equal(np.sort(pixels[:, 0, 3]), np.sort(first[:, 3]))


@pytest.mark.parametrize(
    ("module", "keys"),
    [
        (breast_cancer, {"problem": "learning"}),
        (synthetic, {"samples": 300, "features": 30, "informative": 6, "redundant": 4}),
        (ridge, {"problem": "learning", "features": 6}),
        (energy, {"source": "synthetic", "samples": 300}),
        (bank, {"source": "synthetic", "samples": 300}),
        (credit, {"source": "synthetic", "samples": 300}),
    ],
    ids=["breast_cancer", "synthetic", "ridge", "energy", "bank", "credit"],
)
def test_rows_are_dealt_to_more_workers_than_there_are_columns(module, keys):
    config = card_of(module).Config(**keys)
    shards = module.load(config, "sharded", 40, 0, None)
    columns = module.load(config, "aligned", 1, 0, None)
    assert len(shards.shards) == 40 and shards.public.samples == len(columns.labels) and shards.metric == columns.metric
    assert shards.public.shape == columns.features[0].shape[1:] and shards.source == columns.source
    skewed = card_of(module).Config(**keys, sharding="dirichlet", dirichlet_alpha=100.0)
    if columns.classes:
        assert len(set(module.load(skewed, "sharded", 4, 0, None).public.rows)) > 2
    else:
        with pytest.raises(ConfigError, match=r"dataset\.sharding=dirichlet: deals classes"):
            module.load(skewed, "sharded", 4, 0, None)


def test_synthetic_at_a_small_size():
    config = synthetic_card.Config(samples=2000, features=30, informative=6, redundant=4)
    task = synthetic.load(config, "aligned", 2, 0, None)
    assert [block.shape for block in task.features] == [(1200, 15)] * 2 and task.features[0].dtype == np.float32
    assert auroc_of(task) > 0.8
    problems = synthetic.check(synthetic_card.Config(features=5), "aligned", 6)
    assert [problem.key for problem in problems] == ["algorithm.parties", "dataset.informative + dataset.redundant"]

    def wrong(module, **keys):
        return {problem.key for problem in convert(card_of(module).Config, keys)[1]} == keys.keys()

    assert wrong(synthetic, source="real", features=1, informative=1, redundant=-1, beta=0, samples=9)
    assert wrong(ridge, source="real", alpha=0, features=0, noise=-1, samples=9)
    assert wrong(bank, variant="fll", beta=-1, problem="ridge") and wrong(
        energy, variant="x", problem="sparse_logistic"
    )


# --- twins ------------------------------------------------------------------------------------------------------------


def auroc_of(task) -> float:
    """Of a logistic regression on the test rows."""
    model = LogisticRegression(max_iter=200).fit(np.concatenate(task.features, axis=1), task.labels)
    return float(
        roc_auc_score(
            task.truth("test"), model.decision_function(np.concatenate(task.held_out_features["test"], axis=1))
        )
    )


@pytest.mark.parametrize(
    ("name", "shape", "positive", "auroc"),
    [("bank", (41188, 20), 0.113, 0.85), ("credit", (30000, 23), 0.2212, 0.7)],
)
def test_twins_of_classifications(name, shape, positive, auroc, caplog):
    module = registry.load_dataset(name)
    task = module.load(card_of(module).Config(source="synthetic", samples=4000), "aligned", shape[1], 0, None)
    assert "SYNTHETIC TWIN" in caplog.text and task.source.kind == "synthetic" and task.parties == shape[1]
    made = module.twin("additional") if name == "bank" else module.twin()
    assert made.values.shape == shape and made.labels.mean() == pytest.approx(positive, abs=0.002)
    for i, column in enumerate(made.columns):
        if column in made.levels:
            assert set(np.unique(made.values[:, i])) <= set(range(len(made.levels[column])))
    assert auroc < auroc_of(task) < 0.98
    assert (
        module.load(card_of(module).Config(), "aligned", 2, 0, None).source.kind == "synthetic"
    )  # without any data_root


@pytest.mark.parametrize("name", ["energy", "blog"])
def test_twins_of_regressions(name, monkeypatch):
    module = registry.load_dataset(name)
    assert {"energy": (19735, 27), "blog": (60021, 280)}[name] == (module.SAMPLES, len(module.COLUMNS))
    if name == "blog":
        change(monkeypatch, module, twin=lambda: module.twin(4000))
    task = module.load(card_of(module).Config(source="synthetic", samples=4000), "aligned", 2, 0, None)
    assert whole(task).shape == (4000, len(module.COLUMNS)) and task.labels.min() >= 0
    model = Ridge(300.0).fit(np.concatenate(task.features, axis=1), task.labels)
    assert (
        0.1 < r2_score(task.truth("test"), model.predict(np.concatenate(task.held_out_features["test"], axis=1))) < 0.9
    )
    assert np.mean(task.labels) > np.median(task.labels)  # skewed, as the real targets


def test_gisettes_twin_learns(monkeypatch):
    change(monkeypatch, gisette, twin=lambda: gisette.twin(500))
    task = gisette.load(gisette_card.Config(source="synthetic", problem="learning"), "aligned", 2, 0, None)
    assert whole(task).shape == (500, 5000) and 0.12 < np.mean(whole(task) > 0) < 0.14
    assert 0.75 < auroc_of(task) < 1


@pytest.mark.parametrize("name", ["energy", "blog", "bank", "credit", "gisette"])
def test_a_data_root_without_the_files_is_an_error(name, tmp_path):
    module = registry.load_dataset(name)
    with pytest.raises(DataError, match=rf"dataset {name}: not complete .* dataset\.source=synthetic"):
        module.load(card_of(module).Config(), "aligned", 2, 0, tmp_path)
    with pytest.raises(ConfigError, match=r"algorithm\.parties=5001"):
        module.load(card_of(module).Config(), "aligned", 5001, 0, tmp_path)
