"""Files of tuned values: an entry is found as it was written, and the others stay as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.every import few_fast
from vflbench import config
from vflbench.config import tuned
from vflbench.types import VflbenchError

#: what a user's file, and so a data set, may be called
NAMES = [
    *(
        "bank",
        "of/ours",
        "it's",
        '"quoted"',
        "'both\"",
        "a b",
        " edge ",
        "Zürich",
        "数据",
        "🏦",
        "a: b",
        "a #b",
        "#",
        "-",
    ),
    *("- a", "? a", "null", "~", "true", "on", "1", "1.5", "1e5", "1e-05", ".inf", "2026-11-30", "0x1f", "{a}", "[a]"),
    *("&a", "*a", "!a", "%a", "@a", "`a", "${a}", "$", "a.b", "a.yaml", "\\", "\\n", "a\u2028b", "a\x85b", "x" * 200),
]
VALUES: dict[str, Any] = {
    "algorithm.lr": 1e-05,
    "algorithm.batch_size": 512,
    "algorithm.proximal": True,
    "algorithm.weights": "1e-05",
    "algorithm.parties": None,
    "model.embedding": "${by:${model.name},{mlp:3,linear:1e-05}}",
    "model.layers": [1, 2.5, "a"],
    "rounds": 7,
}


@pytest.mark.parametrize("noise", few_fast(["", "label_dp"]))
def test_an_entry_of_any_name_is_found_as_it_was_written(noise: str, tmp_path: Path) -> None:
    file, found = tmp_path / "tuned" / "vfl.yaml", "best auroc: 0.9 # of 3, with seed='1' path='${x' \\"
    file.parent.mkdir()
    for name in NAMES:
        file.write_text("other:\n  rounds: 1\n")
        for text in ("an older search", found):
            file.write_text(tuned.written(file, f"{name}/{noise}" if noise else name, text, VALUES), encoding="utf-8")
        entry = tuned.find(tmp_path, f"private/{noise}/vfl/{name}" if noise else f"vfl/{name}")
        assert entry is not None and entry.file == file, name
        assert repr(entry.values) == repr(VALUES), name
        assert entry.found == found, name
        assert len(tuned.read(file)) == 2
        assert tuned.find(tmp_path, f"vfl/not {name}") is tuned.find(tmp_path, f"another/{name}") is None


def test_names_of_methods_and_mechanisms_may_have_slashes(tmp_path: Path) -> None:
    file = tmp_path / "tuned" / "my" / "own.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(tuned.written(file, "of/ours/my/noise", "typed", {"algorithm": {"lr": 1}}))
    entry = tuned.find(tmp_path, "private/my/noise/my/own/of/ours")
    assert entry is not None and (entry.name, entry.values) == ("of/ours/my/noise", {"algorithm.lr": 1})


OTHERS = """\
# What was found for vfl.

bank:  # the first
  found: by hand
  # its step
  algorithm.lr: 1.0e-3  # kept as it is written

# about blog
"blog":
    algorithm.lr: >-
      0.5

  # the end of blog
# about cora
cora: {algorithm.lr: 2}
# the last line
"""


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("bank", "# What was found for vfl.\n\n", OTHERS[OTHERS.index("\n# about blog") :]),
        ("blog", OTHERS[: OTHERS.index('"blog"')], OTHERS[OTHERS.index("# about cora") :]),
        ("cora", OTHERS[: OTHERS.index("cora: {")], "# the last line\n"),
        ("mnist", OTHERS, ""),
    ],
)
def test_the_other_entries_and_their_comments_stay(name: str, before: str, after: str, tmp_path: Path) -> None:
    (tmp_path / "vfl.yaml").write_text(OTHERS)
    text = tuned.written(tmp_path / "vfl.yaml", name, "a search", {"rounds": 1})
    assert text == f"{before}{name}:\n  found: a search\n  rounds: 1\n{after}"


@pytest.mark.parametrize(
    "text",
    [
        "{bank: {rounds: 1}}",
        "bank:\n  rounds: 1\n...\n",
        "an older file",
        "- bank",
        "bank: 1",
        "bank: {rounds: 1}\nbank: {rounds: 2}",
        "bank: {rounds: 1",
    ],
)
def test_a_file_of_another_form_is_left_as_it_is(text: str, tmp_path: Path) -> None:
    (tmp_path / "vfl.yaml").write_text(text)
    told = (
        r"vfl\.yaml: (holds no tuned values|is not a list of entries)|bank is there twice in .*vfl\.yaml|did not find"
    )
    with pytest.raises(VflbenchError, match=told):
        tuned.written(tmp_path / "vfl.yaml", "blog", "a search", {"rounds": 2})


@pytest.mark.slow
def test_a_file_of_an_older_vflbench_counts_where_there_is_no_entry(tmp_path: Path) -> None:
    for place, lr in (("vfl", 0.7), ("private/gdp_embedding/vfl", 0.25)):
        (tmp_path / "tuned" / place).mkdir(parents=True)
        (tmp_path / "tuned" / place / "breast_cancer.yaml").write_text(f"# @package _global_\nalgorithm:\n  lr: {lr}\n")
    words = ["algorithm=vfl", "dataset=breast_cancer", "dataset.problem=learning"]

    def steps() -> list[float]:
        with config.session([], tmp_path) as hydra:
            plans = [config.plan(hydra, [*words, *more]).config for more in ([], ["privacy=gdp_embedding"])]
        return [one.algorithm.lr for one in plans if one is not None]

    assert steps() == [0.7, 0.25]
    (tmp_path / "tuned" / "vfl.yaml").write_text("breast_cancer:\n  algorithm.lr: 1e-05\n")
    assert steps() == [1e-05, 0.25]
