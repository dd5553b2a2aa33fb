"""Made files in the original formats. No test here looks beyond its own temporary folder or the local host."""

import io
import pickle
import struct
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

from vflbench.data import sources


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path):
    """No network, no cache of this machine, no VFLBENCH_DATA."""

    def refuse(url, seconds):
        raise OSError("no network in tests")

    monkeypatch.setattr(sources, "_connect", refuse)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("VFLBENCH_DATA", raising=False)


class Python2Pickler(pickle._Pickler):
    """Writes bytes as Python 2 wrote its strings, and the module names of that time."""

    def save_python2_string(self, data):
        self.write(b"T" + struct.pack("<i", len(data)) + data)

    dispatch = {**pickle._Pickler.dispatch, bytes: save_python2_string}


def python2_pickle(value) -> bytes:
    out = io.BytesIO()
    Python2Pickler(out, protocol=2).dump(value)
    old = (
        out.getvalue()
        .replace(b"scipy.sparse._csr\n", b"scipy.sparse.csr\n")
        .replace(b"numpy._core.multiarray\n", b"numpy.core.multiarray\n")
    )
    assert b"_codecs" not in old
    return old


def made_planetoid(root: Path, name: str = "citeseer", folder: str = "CiteSeer") -> dict:
    """64 nodes, 3 classes, 12 features: 40 in allx (6 of them public training nodes), test ids 40 to 63 without 45 and
    50 (isolated)."""
    rng = np.random.default_rng(0)
    test = rng.permutation(np.setdiff1d(np.arange(40, 64), [45, 50]))
    features = sparse.csr_matrix((rng.random((62, 12)) < 0.3).astype(np.float32))
    one_hot = np.eye(3, dtype=np.int32)[rng.integers(0, 3, 62)]
    graph = defaultdict(list)
    connected = np.concatenate([np.arange(40), test])
    for a, b in rng.choice(connected, (150, 2)):
        graph[int(a)] += [int(b), int(b)]  # duplicates, and self-loops where a == b
    graph[3].append(3)
    held = {
        "x": features[:6],
        "y": one_hot[:6],
        "allx": features[:40],
        "ally": one_hot[:40],
        "tx": features[40:],
        "ty": one_hot[40:],
        "graph": graph,
    }
    raw = root / "planetoid" / folder / "raw"
    raw.mkdir(parents=True)
    for suffix, value in held.items():
        (raw / f"ind.{name}.{suffix}").write_bytes(python2_pickle(value))
    (raw / f"ind.{name}.test.index").write_text("".join(f"{i}\n" for i in test))
    return {"raw": raw, "test": test, **held}


@pytest.fixture
def planetoid(tmp_path):
    """A made CiteSeer below tmp_path/root."""
    (tmp_path / "root").mkdir()
    return {"root": tmp_path / "root", **made_planetoid(tmp_path / "root")}


class Malicious:
    """A pickle of this would create the file `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        import os

        return os.system, (f"touch {self.path}",)


@pytest.fixture
def made():
    """The makers of files above, for tests (a test module cannot import its conftest)."""
    return SimpleNamespace(python2_pickle=python2_pickle, Malicious=Malicious)
