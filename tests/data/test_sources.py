import hashlib
import http.server
import logging
import socket
import threading
import time
import urllib.request
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from vflbench import cli
from vflbench.data import sources
from vflbench.data.sources import FileSet, Part, RawFile, Unreachable
from vflbench.types import DataError, VflbenchError

REAL_CONNECT = sources._connect  # before the `offline` fixture replaces it
CONTENT = b"the published file"
SHA = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def server(monkeypatch):
    """An HTTP server on this host that gives /file, /archive.zip, a broken-off /short, and 404 for the rest."""
    monkeypatch.setattr(sources, "_connect", REAL_CONNECT)
    monkeypatch.setenv("no_proxy", "*")
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("inner/a.npz", CONTENT)
        archive.writestr("inner/b.npz", b"other")

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = {"/file": CONTENT, "/archive.zip": packed.getvalue(), "/short": CONTENT}.get(self.path)
            self.send_response(200 if body else 404)
            self.send_header("Content-Length", str(len(body or b"") + (100 if self.path == "/short" else 0)))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


def file_set(url: str | None, sha256: str | None = SHA) -> FileSet:
    return FileSet("toy", "toy", (Part("files", ((RawFile("toy/file", url, sha256),),)),))


def left(root: Path) -> list[str]:
    return sorted(path.name for path in root.rglob("*") if path.is_file())


def test_a_missing_file_is_downloaded_verified_and_recorded(server, tmp_path):
    found = sources.locate(file_set(f"{server}/file"), tmp_path)
    assert found.files == (("toy/file", SHA),) and left(tmp_path) == ["file"]
    assert found.read(RawFile("toy/file")) == CONTENT and found.source().kind == "real"


def test_without_a_data_root_the_cache_is_used(server, tmp_path):
    found = sources.locate(file_set(f"{server}/file"), None)
    assert found.root == tmp_path / "cache" / "vflbench"
    assert sources.locate(file_set(None), None).paths == found.paths  # the second time nothing is downloaded


def test_a_wrong_checksum_after_download_removes_the_file(server, tmp_path):
    with pytest.raises(
        DataError, match=rf"toy/file: wrong checksum of what .* expected {'0' * 64}, got {SHA}"
    ) as error:
        sources.locate(file_set(f"{server}/file", "0" * 64), tmp_path)
    assert not isinstance(error.value, Unreachable) and left(tmp_path) == []


@pytest.mark.parametrize("page", ["nothing", "short"])
def test_what_does_not_come_whole_leaves_nothing(server, tmp_path, page):
    with pytest.raises(DataError, match="Download failed"):
        sources.locate(file_set(f"{server}/{page}"), tmp_path)
    assert left(tmp_path) == []


def test_members_of_an_archive_come_from_one_download(server, tmp_path):
    url = f"{server}/archive.zip"
    files = (RawFile("toy/a.npz", url, SHA, "inner/a.npz"), RawFile("toy/b.npz", url, None, "inner/b.npz"))
    found = sources.locate(FileSet("toy", "toy", (Part("files", (files,)),)), tmp_path)
    assert left(tmp_path) == ["a.npz", "b.npz", "downloads.lock.json"] and found.read(files[1]) == b"other"
    with pytest.raises(Unreachable, match="no item named 'inner/c'"):
        sources.download(url, [RawFile("toy/c", url, None, "inner/c")], tmp_path)


def test_no_network_gives_up_with_the_reason_and_builds_the_twin(monkeypatch, caplog):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    monkeypatch.setattr(sources, "_connect", REAL_CONNECT)
    monkeypatch.setenv("no_proxy", "*")
    with caplog.at_level(logging.WARNING):
        assert sources.locate(file_set(f"http://127.0.0.1:{port}/file"), None) is None
    assert "SYNTHETIC TWIN" in caplog.text and "refused" in caplog.text


def test_a_server_that_never_answers_is_given_up_after_the_deadline(monkeypatch, tmp_path):
    monkeypatch.setattr(sources, "_connect", REAL_CONNECT)
    monkeypatch.setenv("no_proxy", "*")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/file"
        start = time.monotonic()
        with pytest.raises(Unreachable, match=r"no answer within|timed out"):
            sources.download(url, [RawFile("toy/file", url)], tmp_path, seconds=0.2)
        assert time.monotonic() - start < 4
    assert not (tmp_path / "toy").exists()


def test_the_deadline_is_five_seconds_and_covers_a_hanging_name_lookup(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(
        sources, "_connect", lambda url, seconds: asked.append(seconds) or (_ for _ in ()).throw(OSError("gone"))
    )
    with pytest.raises(DataError, match="gone"):
        sources.locate(file_set("http://example.invalid/file"), tmp_path)
    assert asked == [sources.CONNECT_SECONDS] == [5.0]
    monkeypatch.setattr(urllib.request, "urlopen", lambda url, timeout: time.sleep(5))
    with pytest.raises(OSError, match=r"no answer within 0\.1 s"):
        REAL_CONNECT("http://example.invalid/file", 0.1)


def test_a_read_only_data_root_is_a_reason_not_a_crash(server, tmp_path):
    (tmp_path / "toy").write_text("a file where the folder belongs")
    with pytest.raises(DataError, match="Download failed: file cannot be had"):
        sources.locate(file_set(f"{server}/file"), tmp_path)


def test_a_local_file_with_another_checksum_is_an_error_unless_accepted(tmp_path):
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "file").write_bytes(b"changed")
    with pytest.raises(DataError, match=rf"toy/file: wrong checksum: sha256 expected {SHA}, got .*verify=false"):
        sources.locate(file_set(None), tmp_path)
    assert sources.locate(file_set(None), tmp_path, verify=False).files[0][1] == hashlib.sha256(b"changed").hexdigest()


def test_a_git_lfs_pointer_is_named_as_such(tmp_path):
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "file").write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    with pytest.raises(DataError, match=r"toy/file: is a Git LFS pointer"):
        sources.locate(file_set(None, None), tmp_path).read(RawFile("toy/file"))


def test_a_part_with_a_twin_makes_the_data_partial(tmp_path, caplog):
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "file").write_bytes(CONTENT)
    files = FileSet("toy", "toy", (*file_set(None).parts, Part("images", ((RawFile("toy/images"),),), twin=True)))
    found = sources.locate(files, tmp_path)
    assert found.made_up == ("images",) and found.source().kind == "partial" and "PARTIAL DATA" in caplog.text
    with pytest.raises(DataError, match=r"missing toy/images.*dataset\.source=auto \(synthetic images"):
        sources.locate(files, tmp_path, source="real")


def test_data_root_is_the_key_then_the_environment_then_none(monkeypatch):
    assert sources.data_root(None) is None
    monkeypatch.setenv("VFLBENCH_DATA", "from_environment")
    assert sources.data_root(None) == Path("from_environment") and sources.data_root("from_key") == Path("from_key")


def test_status_says_what_is_there(planetoid):
    rows = {row.option: row for row in sources.status(planetoid["root"])}
    graphs, tables = (
        {"cora", "citeseer", "pubmed", "suzhou", "amsterdam", "venice", "reddit"},
        {"movielens", "mimic3", "yelp"},
    )
    columns, images = (
        {"energy", "blog", "bank", "credit", "gisette", "criteo"},
        {"modelnet10", "modelnet40", "cifar10", "mnist"},
    )
    assert set(rows) == graphs | tables | columns | images
    assert rows["citeseer"].found == "partial" and rows["citeseer"].missing == ()  # made files have other checksums
    assert "62 of 3,312 papers, 12 of 3,703 columns" in rows["citeseer"].lacks
    assert "ind.citeseer.x, ind.citeseer.y, ind.citeseer.test.index: not as published" in rows["citeseer"].lacks
    assert (
        rows["citeseer"].folder == "planetoid/CiteSeer/raw"
        and rows["citeseer"].present[0] == "planetoid/CiteSeer/raw/ind.citeseer.x"
    )
    assert rows["cora"].found == "missing" and len(rows["cora"].missing) == 8


def test_status_names_the_variants_that_are_there(tmp_path, capsys):
    """Of MovieLens its sample whole and ML-100K in RecBole's format; of ML-1M and the MIMIC demo a file each, which is
    no variant."""
    whole = {
        "ml-1m-sample100k": ("users.dat", "movies.dat", "ratings.dat"),
        "ml-100k-recbole": ("ml-100k.user", "ml-100k.item", "ml-100k.inter"),
    }
    for folder, names in {**whole, "ml-1m": ("movies.dat",), "mimic3_demo": ("PATIENTS.csv.gz",)}.items():
        (tmp_path / folder).mkdir()
        for name in names:
            (tmp_path / folder / name).touch()
    rows = {row.option: row for row in sources.status(tmp_path)}
    assert rows["movielens"].found == "partial" and rows["movielens"].variants == ("1m_sample", "100k")
    assert "0 of 1,000,209 ratings" in rows["movielens"].lacks
    assert rows["mimic3"].found == "missing" and rows["mimic3"].variants == ()
    for name in ("ADMISSIONS", "ICUSTAYS", "DIAGNOSES_ICD", "D_ICD_DIAGNOSES", "CHARTEVENTS", "LABEVENTS"):
        (tmp_path / "mimic3_demo" / f"{name}.csv").touch()
    assert cli.command(["data", "status", f"data_root={tmp_path}"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()[1:]}
    assert lines["movielens"].endswith("variants 1m_sample, 100k") and lines["mimic3"].endswith("variant demo")


def test_a_huge_file_is_read_once(tmp_path, monkeypatch):
    """Its checksum is remembered for other processes, until its size or time changes."""
    (tmp_path / "toy").mkdir()
    path, read = tmp_path / "toy" / "file", []
    path.write_bytes(CONTENT)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sources, "HASHED", len(CONTENT) - 1)
    digest = sources._sha256
    monkeypatch.setattr(sources, "_sha256", lambda path: read.append(path) or digest(path))
    for _ in range(3):
        assert sources.locate(file_set(None, None), tmp_path).files == (("toy/file", SHA),)
    assert len(read) == 1
    path.write_bytes(CONTENT[::-1])
    assert sources.stamp(path) == hashlib.sha256(CONTENT[::-1]).hexdigest() and len(read) == 2
    for memo in (tmp_path / "cache/vflbench/checksums").iterdir():
        memo.write_text("damaged")
    assert sources.stamp(path) == hashlib.sha256(CONTENT[::-1]).hexdigest() and len(read) == 3
    (tmp_path / "cache").rename(tmp_path / "other")
    (tmp_path / "cache").write_text("a file is in the way")
    assert sources.stamp(path) == hashlib.sha256(CONTENT[::-1]).hexdigest() and len(read) == 4


def test_get_names_the_closest_option_and_says_why_it_failed(tmp_path):
    with pytest.raises(VflbenchError, match=r"no data set 'corra' to download\. Did you mean 'cora'"):
        sources.get("corra", tmp_path)
    with pytest.raises(Unreachable, match=r"ind\.cora\.x cannot be had from https://.*no network in tests"):
        sources.get("cora", tmp_path)
    assert left(tmp_path) == []


def test_get_downloads_and_verifies(server, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "file_sets", lambda: iter([file_set(f"{server}/file")]))
    assert sources.get("toy", tmp_path).found == "real"
    (tmp_path / "toy" / "file").write_bytes(b"damaged")
    with pytest.raises(DataError, match="wrong checksum"):
        sources.get("toy", tmp_path)
