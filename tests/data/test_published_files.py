"""Real data are what they claim to be: fewer rows, other bytes and files of another variant are told."""

import bz2
import gzip
import hashlib
import http.server
import io
import json
import pickle
import shutil
import tarfile
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests.data.test_sources import CONTENT, REAL_CONNECT, SHA, file_set, left
from tests.options import card_of
from vflbench import cli
from vflbench.cards.data.relational import movielens as movielens_card
from vflbench.cards.data.tabular import credit as credit_card
from vflbench.cards.data.tabular import energy as energy_card
from vflbench.data import locks, published_files, sources
from vflbench.data.graph import planetoid
from vflbench.data.images import cifar
from vflbench.data.published_files import Arrays, Idx, Lines, Named, Pickled, Records, Rows
from vflbench.data.relational import movielens
from vflbench.data.sources import FileSet, Part, RawFile
from vflbench.data.tabular import bank, blog, credit, energy, gisette
from vflbench.types import DataError


def put(root: Path, path: str, data: bytes) -> Path:
    place = root / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(data)
    return place


# --- counting ---------------------------------------------------------------------------------------------------------


def test_rows_and_columns_are_counted_in_every_form(tmp_path):
    text = b"a,b,c\n1,2,3\n\n4,5,6\r\n \n7,8,9"
    for name, data in (("t.csv", text), ("t.csv.gz", gzip.compress(text)), ("t.csv.bz2", bz2.compress(text))):
        assert Lines()(put(tmp_path, name, data)) == (3, 3)
        assert Lines(header=0)(tmp_path / name) == (4, 3) and Lines(header=2)(tmp_path / name) == (2, 3)
        assert Lines(header=0, columns=False)(tmp_path / name) == (4, 0)
    assert Lines("::", header=0)(put(tmp_path, "r.dat", b"1::2::3::4\n5::6::7::8\n")) == (2, 4)
    assert Lines(None, header=0)(put(tmp_path, "g.data", b"1 2 3 \n4 5 6 \n")) == (2, 3)
    assert Lines()(put(tmp_path, "empty.csv", b"")) == (0, 0)
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.writestr("one.csv", text)
        archive.writestr("two.csv", b"a,b,c\n1,2,3\n")
        archive.writestr("T/chair/train/x.off", b"")
    assert Lines(members=("one.csv", "two.csv"))(tmp_path / "t.zip") == (4, 3)
    assert Named("T/*/*/*.off")(tmp_path / "t.zip") == (1, 0)
    np.savez(tmp_path / "a.npz", x=np.zeros((5, 7)), y=np.zeros(3))
    assert Arrays(("x", "y"))(tmp_path / "a.npz") == (8, 7)


def test_a_count_is_kept_until_the_file_changes(tmp_path, monkeypatch):
    path, counts = put(tmp_path, "t.csv", b"a\n1\n"), tmp_path / "counts"
    assert published_files.measured(Lines(), path, (1,), counts) == (1, 1)
    path.write_bytes(b"a\n1\n2\n")
    assert published_files.measured(Lines(), path, (1,), counts) == (1, 1)  # the same state: not read again
    assert published_files.measured(Lines(), path, (2,), counts) == (2, 1)
    assert published_files.measured(Lines(), path, None, counts) == (2, 1)  # just changed: read, and not kept
    for kept in counts.iterdir():
        kept.write_text("{damaged")
    assert published_files.measured(Lines(), path, (1,), counts) == (2, 1)


def test_what_is_missing_is_said_in_words():
    rows = Rows("ratings", (1_000_209, 900), 4, ("r",), Lines())
    assert rows.missing([(1_000_209, 4)]) == rows.missing([(900, 4)]) == ""
    assert rows.missing([(60_000, 4), (40_000, 4)]) == "100,000 of 1,000,209 ratings"
    assert rows.missing([(1_000_210, 4)]) == "1,000,210 instead of 1,000,209 ratings"
    assert rows.missing([(900, 3)]) == "3 of 4 columns" and rows.missing([(900, 5)]) == "5 instead of 4 columns"


def test_images_and_pickles_are_counted(tmp_path):
    header = bytes((0, 0, 8, 3)) + np.array([5, 2, 3], ">u4").tobytes()
    assert Idx(3)(put(tmp_path, "i.gz", gzip.compress(header + bytes(30)))) == (5, 6)
    assert Records(10)(put(tmp_path, "b.gz", gzip.compress(bytes(40)))) == (4, 10)
    batch = pickle.dumps({b"data": np.zeros((4, 3072), np.uint8), b"labels": [0] * 4})
    assert Pickled(cifar._size)(put(tmp_path, "data_batch_1", batch)) == (4, 3072)
    for name, binary, data in (("py", False, batch), ("bin", True, bytes(4 * 3073))):
        with tarfile.open(tmp_path / name, "w:gz") as archive:
            for member in ("data_batch_1", "data_batch_2", "test_batch"):
                about = tarfile.TarInfo(f"cifar/{member}")
                about.size = len(data)
                archive.addfile(about, io.BytesIO(data))
        assert cifar._Archived("data_batch", binary)(tmp_path / name) == (8, 3073 if binary else 3072)
        assert cifar._Archived("test_batch", binary)(tmp_path / name)[0] == 4
    assert planetoid._pairs({0: [1, 2, 0], 1: [0], 2: []}) == (2, 0)
    for size, damaged in ((Idx(3), b"ab"), (Pickled(cifar._size), b"no"), (cifar._Archived("data", True), b"no")):
        with pytest.raises(published_files.UNREADABLE):
            size(put(tmp_path, "damaged", damaged))


def test_full_variants_have_counts():
    """Of rows and of columns, where the files have any."""
    for option in ("mnist", "cora", "citeseer", "pubmed", "cifar10"):
        files = next(files for files in sources.file_sets() if files.option == option)
        counted = {path for rows in files.rows for path in rows.files}
        assert any(rows.columns for rows in files.rows)
        for part in files.parts:
            for variant, group in zip(part.variants or ("full",) * len(part.groups), part.groups, strict=True):
                assert variant != "full" or counted & {file.path for file in group}


def test_every_published_file_has_a_checksum_or_is_counted():
    """Or lies beside one that is counted, and its reader compares the two."""
    beside = {"gisette_train.labels", "labels.npz", "Visual_Features.npy", "A_TEM.npz", "A_SOC.npz", "A_SPA.npz"}
    for files in sources.file_sets():
        counted = {path for rows in files.rows for path in rows.files}
        for file in (file for part in files.parts for group in part.groups for file in group):
            assert file.checksum or file.path in counted or file.name in beside, file.path
            assert file.url is None or file.url.startswith("https://") or file.checksum, file.url


# --- truncated tables -------------------------------------------------------------------------------------------------


def energy_rows(count: int) -> bytes:
    header = ",".join(f'"{name}"' for name in ("date", "Appliances", *energy.COLUMNS))
    line = ",".join(['"2016-01-11 17:00:00"', *('"1"' for _ in range(28))])
    return "\n".join([header, *[line] * count, ""]).encode()


def bank_rows(variant: str, count: int) -> bytes:
    calls = bank.EDITIONS[variant]
    cells = [f'"{calls.levels[name][0]}"' if name in calls.levels else "1" for name in calls.columns]
    answers = ["no", "yes"] * count
    lines = [";".join([*cells, f'"{answer}"']) for answer in answers[:count]]
    return "\n".join([";".join(f'"{name}"' for name in (*calls.columns, "y")), *lines, ""]).encode()


def credit_rows(count: int) -> bytes:
    header = ",".join(("ID", *credit.COLUMNS, "default.payment.next.month"))
    return "\n".join([header, *(f"{i},{','.join(['1'] * 23)},{i % 2}" for i in range(count)), ""]).encode()


TRUNCATED = {
    "300 of 19,735 readings": (energy, {"appliances_energy/energydata_complete.csv": energy_rows(300)}),
    "40 of 41,188 calls": (bank, {"bank_marketing/bank-additional-full.csv": bank_rows("additional", 40)}),
    "41 of 45,211 calls": (bank, {"bank_marketing/bank-full.csv": bank_rows("full", 41)}),
    "50 of 30,000 clients": (credit, {"credit_default/UCI_Credit_Card.csv": credit_rows(50)}),
    "10 of 6,000 training samples": (
        gisette,
        {
            "gisette/gisette_train.data": b"\n".join([b"1 " * 5000] * 10),
            "gisette/gisette_train.labels": b"1\n-1\n" * 5,
        },
    ),
    "12 of 6,000 training samples": (gisette, {"gisette/gisette_scale": b"+1 1:1\n-1 2:1\n" * 6}),
    "122 of 60,021 posts": (
        blog,
        {f"blogfeedback/{name}": b",".join([b"1"] * 281) + b"\n" + b",".join([b"2"] * 281) for name in blog.NAMES},
    ),
}


@pytest.mark.parametrize("lacks", TRUNCATED)
def test_a_truncated_table_is_partial_and_says_what_is_missing(tmp_path, caplog, lacks):
    module, files = TRUNCATED[lacks]
    for path, data in files.items():
        put(tmp_path, path, data)
    source = module.load(card_of(module).Config(problem="learning"), "aligned", 2, 0, tmp_path).source
    assert (source.kind, source.lacks) == ("partial", lacks) and lacks in source.note
    assert f"PARTIAL DATA: dataset {card_of(module).Config().name}: {lacks}" in caplog.text
    row = next(row for row in sources.status(tmp_path) if row.option == card_of(module).Config().name)
    assert (row.found, row.lacks) == ("partial", lacks)


def test_a_whole_table_with_other_values_is_not_as_published(tmp_path):
    put(tmp_path, "appliances_energy/energydata_complete.csv", energy_rows(energy.SAMPLES))
    source = energy.load(energy_card.Config(), "aligned", 2, 0, tmp_path).source
    assert source.kind == "partial"
    assert source.lacks == "energydata_complete.csv: not as published, by the checksum"


def test_a_whole_table_without_a_published_checksum_is_real(tmp_path):
    put(tmp_path, "credit_default/UCI_Credit_Card.csv", credit_rows(30_000))
    source = credit.load(credit_card.Config(), "aligned", 2, 0, tmp_path).source
    assert (source.kind, source.lacks) == ("real", "")


def test_a_damaged_file_is_no_crash_of_status(tmp_path, capsys):
    put(tmp_path, "blogfeedback/BlogFeedback.zip", b"no archive")
    put(tmp_path, "appliances_energy/energydata_complete.csv.gz", b"no gzip")
    put(tmp_path, "mnist/MNIST/raw/train-images-idx3-ubyte.gz", b"no gzip")
    rows = {row.option: row for row in sources.status(tmp_path)}
    assert "posts cannot be counted" in rows["blog"].lacks and "cannot be read" in rows["energy"].lacks
    assert cli.command(["data", "status", f"data_root={tmp_path}"]) == 0
    assert "it is partial: posts cannot be counted" in capsys.readouterr().out


# --- one variant under another's name ---------------------------------------------------------------------------------


A, B = b"1,2\n3,4\n", b"1,2\n"


def two(asked: str = "auto") -> FileSet:
    """A full set and a sample of it, each of two files; all but the full set's second file have checksums."""
    sha = lambda data: hashlib.sha256(data).hexdigest()  # noqa: E731
    groups = (
        (RawFile("full/rows", digest=sha(A)), RawFile("full/names")),
        (RawFile("some/rows", sha256=sha(B)), RawFile("some/names", sha256=sha(b"n"))),
    )
    rows = tuple(Rows("rows", (2,), 2, (f"{folder}/rows",), Lines(header=0)) for folder in ("full", "some"))
    return FileSet("two", "full", (Part("files", groups, variants=("full", "some")),), rows=rows).only(asked)


@pytest.mark.parametrize("packed", [False, True])
def test_a_sample_in_the_full_sets_folder_is_the_sample(tmp_path, packed):
    for name, data in (("rows", B), ("names", b"n")):
        put(tmp_path, f"full/{name}{'.gz' if packed else ''}", gzip.compress(data) if packed else data)
    found = sources.locate(two(), tmp_path)
    assert set(found.paths) == {"some/rows", "some/names"} and found.label(RawFile("some/rows")).startswith("full/rows")
    source = found.source("some")
    assert (source.kind, source.variant, source.lacks) == ("partial", "some", "1 of 2 rows")
    with pytest.raises(DataError, match=r"full/rows.* are the files of some, not of full: use dataset\.variant=auto"):
        sources.locate(two("full"), tmp_path)
    assert sources.locate(two("some"), tmp_path).source("some").variant == "some"


def test_the_full_set_in_the_samples_folder_is_the_full_set(tmp_path):
    put(tmp_path, "some/rows", A)
    put(tmp_path, "some/names", b"all names")
    found = sources.locate(two(), tmp_path)
    assert set(found.paths) == {"full/rows", "full/names"} and found.source("full").kind == "real"


def test_a_copy_of_the_sample_beside_the_sample_is_not_the_full_set(tmp_path):
    for folder in ("full", "some"):
        put(tmp_path, f"{folder}/rows", B)
        put(tmp_path, f"{folder}/names", b"n")
    found = sources.locate(two(), tmp_path)
    assert set(found.paths) == {"some/rows", "some/names"} and found.label(RawFile("some/rows")) == "some/rows"


def test_files_of_neither_stay_what_their_folder_says_but_partial(tmp_path):
    put(tmp_path, "full/rows", b"9,9\n" * 2)
    put(tmp_path, "full/names", b"n")
    source = sources.locate(two(), tmp_path).source("full", used=two().parts[0].groups[0])
    assert (source.kind, source.variant) == ("partial", "full")
    assert source.lacks == "rows: not as published, by the checksum"


def test_a_pinned_checksum_that_is_not_kept_is_accepted_as_partial_only(tmp_path):
    put(tmp_path, "toy/file", b"changed")
    source = sources.locate(file_set(None), tmp_path, verify=False).source()
    assert (source.kind, source.lacks) == ("partial", "file: not as published, by the checksum")


def test_a_random_sample_in_ml_1m_is_partial(tmp_path):
    for name in movielens._DAT:
        put(tmp_path, f"ml-1m/{name}", b"1::1::5::978300760\n" if name == "ratings.dat" else b"")
    put(tmp_path, "ml-1m/users.dat", b"1::F::1::10::48067\n")
    put(tmp_path, "ml-1m/movies.dat", b"1::Toy Story (1995)::Animation\n")
    row = next(row for row in sources.status(tmp_path) if row.option == "movielens")
    assert (row.found, row.variants) == ("partial", ("1m",))
    assert row.lacks == "1 of 6,040 users; 1 of 3,883 movies; 1 of 1,000,209 ratings"


@pytest.mark.realdata
def test_the_real_sample_in_ml_1m_is_never_called_1m(shared_data, tmp_path):
    (tmp_path / "ml-1m").mkdir()
    for name in movielens._DAT:
        shutil.copy(shared_data / "ml-1m-sample100k" / name, tmp_path / "ml-1m" / name)
    source = movielens.load(movielens_card.Config(), "relational", 1, 0, tmp_path).source
    assert (source.kind, source.variant) == ("partial", "1m_sample")
    assert source.lacks == "100,000 of 1,000,209 ratings"
    with pytest.raises(DataError, match=r"ml-1m/users\.dat and those beside it are the files of 1m_sample, not of 1m"):
        movielens.load(movielens_card.Config(variant="1m"), "relational", 1, 0, tmp_path)


@pytest.mark.slow
@pytest.mark.realdata
def test_the_real_demo_in_mimic3_is_the_demo(shared_data, tmp_path):
    shutil.copytree(shared_data / "mimic3_demo", tmp_path / "mimic3")
    row = next(row for row in sources.status(tmp_path) if row.option == "mimic3")
    assert (row.found, row.variants, row.lacks) == ("real", ("demo",), "")


@pytest.mark.slow
@pytest.mark.realdata
def test_jpeg10k_is_a_variant_of_its_own(shared_data, tmp_path):
    images = cifar.read("auto", "real", True, shared_data)
    assert (images.source.kind, images.source.variant) == ("partial", "jpeg10k")
    assert "lossy: decoded from JPEG" in images.source.note
    assert (images.train.shape, images.test.shape) == ((10_000, 3, 32, 32), (2_000, 3, 32, 32))
    counts = np.bincount(images.train_labels)
    assert (counts.min(), counts.max()) == (960, 1037)
    place = tmp_path / "cifar10-sample1000" / "cifar-10-batches-py"
    shutil.copytree(shared_data / "cifar10-jpeg10k" / "cifar-10-batches-py", place)
    assert cifar.read("auto", "real", True, tmp_path).source.variant == "jpeg10k"
    with pytest.raises(DataError, match="are the files of jpeg10k, not of sample1000"):
        cifar.read("sample1000", "real", True, tmp_path)
    assert cifar.read("sample1000", "real", True, shared_data).source.variant == "sample1000"


# --- the record of downloads ------------------------------------------------------------------------------------------


@pytest.fixture
def server(monkeypatch):
    """An HTTP server on this host, whose pages can be changed."""
    monkeypatch.setattr(sources, "_connect", REAL_CONNECT)
    monkeypatch.setenv("no_proxy", "*")
    pages = {"/file": CONTENT}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = pages.get(self.path)
            self.send_response(200 if body else 404)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}/file", pages
        running.shutdown()


def test_a_download_without_a_checksum_is_recorded_once_beside_the_data(server, tmp_path):
    url, pages = server
    files = file_set(url, None)
    assert sources.locate(files, tmp_path).source().kind == "real"
    lock = tmp_path / "toy" / locks.NAME
    entry = json.loads(lock.read_text())["file"]
    assert (entry["url"], entry["sha256"], entry["bytes"]) == (url, SHA, len(CONTENT)) and entry["date"]
    before = lock.read_bytes()
    (tmp_path / "toy" / "file").unlink()
    sources.locate(files, tmp_path)  # the same once more
    assert lock.read_bytes() == before and left(tmp_path) == [locks.NAME, "file"]
    (tmp_path / "toy" / "file").unlink()
    pages["/file"] = b"another edition"
    with pytest.raises(DataError, match=rf"toy/file: what {url} sends now is not what came on .*expected {SHA}, got"):
        sources.locate(files, tmp_path)
    assert left(tmp_path) == [locks.NAME] and lock.read_bytes() == before


def test_a_file_that_changed_since_its_download_is_told_by_name(server, tmp_path):
    files = file_set(server[0], None)
    sources.locate(files, tmp_path)
    place = put(tmp_path, "toy/file", b"changed")
    with pytest.raises(DataError, match=r"toy/file: toy/file is not what came on .*remove its entry from"):
        sources.locate(files, tmp_path)
    accepted = sources.locate(files, tmp_path, verify=False).source()
    assert accepted.kind == "partial" and place.read_bytes() == b"changed"
    place.unlink()
    put(tmp_path, "toy/file.gz", gzip.compress(CONTENT))  # packed since then: the same content
    assert sources.locate(files, tmp_path).source().kind == "real"


@pytest.mark.parametrize("text", ["{", "[]", '{"file": {"sha256": 1}}', '{"file": {}}', "\x00"])
def test_a_damaged_record_is_refused_and_stays(server, tmp_path, text):
    files = file_set(server[0], None)
    put(tmp_path, f"toy/{locks.NAME}", text.encode())
    with pytest.raises(DataError, match=r"downloads\.lock\.json: a damaged record of downloads .*remove it"):
        sources.locate(files, tmp_path)
    put(tmp_path, "toy/file", CONTENT)
    with pytest.raises(DataError, match="damaged record of downloads"):
        sources.locate(files, tmp_path)
    assert (tmp_path / "toy" / locks.NAME).read_text() == text


def test_a_download_with_a_published_md5_is_compared_and_not_recorded(server, tmp_path):
    url, pages = server
    md5 = hashlib.md5(CONTENT, usedforsecurity=False).hexdigest()
    files = FileSet("toy", "toy", (Part("files", ((RawFile("toy/file", url, digest=md5),),)),))
    assert sources.locate(files, tmp_path).source().kind == "real" and left(tmp_path) == ["file"]
    (tmp_path / "toy" / "file").unlink()
    pages["/file"] = b"tampered with"
    with pytest.raises(DataError, match=rf"toy/file: wrong checksum of what {url} sent: expected {md5}"):
        sources.locate(files, tmp_path)
    assert left(tmp_path) == []


def test_https_that_is_passed_on_to_http_needs_a_checksum(monkeypatch, tmp_path):
    class Answer(io.BytesIO):
        url = "http://example.invalid/file"
        headers: dict[str, str] = {}

    monkeypatch.setattr(sources, "_connect", lambda url, seconds: Answer(CONTENT))
    with pytest.raises(DataError, match=r"passed on to http://example\.invalid/file, without https"):
        sources.locate(file_set("https://example.invalid/file", None), tmp_path)
    assert sources.locate(file_set("https://example.invalid/file"), tmp_path).files == (("toy/file", SHA),)
