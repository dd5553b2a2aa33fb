"""`dataset.files`: plain paths, and entries that say how a file is written."""

import numpy as np
import pandas as pd
import pytest

from vflbench.cards.data.tabular.tabular_files import Config
from vflbench.config import convert
from vflbench.data.tabular.tabular_files import check, load
from vflbench.types import ConfigError, DataError

N = 60


@pytest.fixture
def frames():
    r = np.random.default_rng(0)
    ids = [f"P{i:03d}" for i in range(N)]
    first = pd.DataFrame({"id": ids, "alter": r.integers(20, 90, N), "krank": np.tile([0, 1], N // 2)})
    second = pd.DataFrame({"id": ids, "wert": np.arange(N) / 1000 + 1.001, "ort": ["Köln", "Bonn"] * (N // 2)})
    return first, second


def config(*files, **keys):
    made, problems = convert(Config, {"files": [*files], "label": "krank", "id": "id"} | keys)
    assert not problems, problems
    return made


def test_an_entry_says_what_nothing_tells(tmp_path, frames):
    """Each of its values is like 1,234: a thousand, or a little above one."""
    first, second = frames
    first.to_csv(tmp_path / "a.csv", index=False)
    (tmp_path / "b.csv").write_bytes(
        second.to_csv(index=False, sep=";", decimal=",", float_format="%.3f").encode("cp1252")
    )
    with pytest.raises(DataError, match=r"b\.csv, line 2, column wert: '1,001': .*say the decimal sign"):
        load(config("a.csv", "b.csv"), "aligned", 2, 0, tmp_path)
    task = load(config("a.csv", {"path": "b.csv", "decimal": ","}), "aligned", 2, 0, tmp_path)
    written = task.source.tables[1]["written"]
    assert written["details"]["given"] == ["decimal"] and "decimal comma" in written["words"]


def test_what_an_entry_may_say_is_checked_at_once(tmp_path):
    _, problems = convert(Config, {"files": [{"path": "a.csv", "seperator": ";", "header": 3}, 1.5, {"id": "x"}]})
    told = "\n".join(map(str, problems))
    assert "files[0].seperator=;: unknown key; there are: path, id" in told and "Did you mean 'separator'?" in told
    assert "files[0].header=3: must be true or false, or null" in told and "files[2].path=(missing)" in told
    wrong = {"path": "a.csv", "separator": "ab", "decimal": ";", "encoding": "cp1253x", "sheet": 2}
    told = "\n".join(map(str, check(config(wrong), "aligned", 2)))
    for key in (
        "separator=ab: must be one",
        "decimal=;: must be",
        "encoding=cp1253x: is no encoding",
        "sheet=2: is for",
    ):
        assert f"dataset.files[0].{key}" in told
    assert "Did you mean 'cp125" in told
    (problem,) = check(config({"path": "a.parquet", "decimal": ","}), "aligned", 2)
    assert "is for a text file, and a.parquet is none" in str(problem)
    with pytest.raises(ConfigError, match=r"files=c\.csv: there is no such file"):
        load(config({"path": "c.csv"}), "aligned", 2, 0, tmp_path)


def test_tab_has_a_name(tmp_path, frames):
    frames[0].to_csv(tmp_path / "a.csv", index=False, sep="\t")
    for separator in ("tab", "\\t", "\t", None):
        made = config({"path": "a.csv", "separator": separator}, columns=[1])
        assert load(made, "aligned", 1, 0, tmp_path).source.tables[0]["written"]["details"]["separator"] == "\t"
