"""Criteo's lines: parsed as a slow reader does, refused by line; hashed and encoded as by hand; on disk, whatever the
size of a block."""

import functools
import gzip
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from vflbench.cards.data.tabular.criteo import Config
from vflbench.config import convert
from vflbench.data import sources
from vflbench.data.divide.splits import split_rows
from vflbench.data.readers import csv_files
from vflbench.data.tabular import criteo
from vflbench.data.tabular.criteo import load
from vflbench.types import ConfigError, DataError

LINE = "\t".join(["1", "5", "-2", "", "0", "1382", *["3"] * 8, "68fd1e64", "", "FB936136", "0", *["a"] * 22])


def as_text(block: criteo.Block) -> bytes:
    """The lines of a block, as Criteo writes them."""
    lines = []
    for label, numbers, tokens, present in zip(
        *(a.tolist() for a in (block.labels, block.numbers, block.tokens, block.present)), strict=True
    ):
        known = (f"{token:08x}" if there else "" for token, there in zip(tokens, present, strict=True))
        lines.append(
            "\t".join([str(label), *("" if number != number else str(int(number)) for number in numbers), *known])
        )
    return "".join(f"{line}\n" for line in lines).encode()


@functools.cache
def lines(rows: int = 300) -> bytes:
    """The twin's first rows as text."""
    return b"".join(map(as_text, criteo.twin(rows)))


def put(root: Path, data: bytes, name: str = "criteo/train.txt") -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return root


def parse(root: Path, text: bytes) -> criteo.Block:
    """The only block of the lines."""
    found = sources.locate(criteo._file_set("kaggle", 1), put(root, text))
    (block,) = criteo.read(found, criteo._groups(1)["kaggle"][0])
    return block


def slowly(text: bytes) -> list[list]:
    """Label, numbers, tokens of each line; None where one is empty."""
    rows = []
    for line in text.decode().splitlines():
        label, *fields = line.split("\t")
        numbers = [None if field == "" else int(field) for field in fields[:13]]
        rows.append([int(label), *numbers, *(None if field == "" else int(field, 16) for field in fields[13:])])
    return rows


def mixed(column: int, token: int | None) -> int:
    """The hash in Python's own integers."""
    top = 2**64 - 1
    z = (column << 33 | (token is not None) << 32 | (token or 0)) * 0x9E3779B97F4A7C15 & top
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & top
    z = (z ^ z >> 27) * 0x94D049BB133111EB & top
    return (z ^ z >> 31) >> 32


def whole(task) -> np.ndarray:
    splits = [task.features, *task.held_out_features.values()]
    return np.concatenate([np.concatenate(blocks, axis=1) for blocks in splits])


def test_a_line_by_hand(tmp_path):
    block = parse(tmp_path, f"{LINE}\n".encode())
    assert block.labels.tolist() == [1] and block.labels.dtype == np.uint8
    assert (
        block.numbers[0, :5].tolist()[:2] == [5, -2]
        and np.isnan(block.numbers[0, 2])
        and block.numbers[0, 3:5].tolist() == [0, 1382]
    )
    assert block.tokens[0, :5].tolist() == [0x68FD1E64, 0, 0xFB936136, 0, 10] and block.present[0, :4].tolist() == [
        True,
        False,
        True,
        True,
    ]
    found = criteo.hashes(block.tokens, block.present)[0].tolist()
    expected = [mixed(i, token) for i, token in enumerate([0x68FD1E64, None, 0xFB936136, 0, *[10] * 22], 1)]
    assert found == expected and len(set(found)) == 26  # a token in two columns, an empty one and 0 are not the same
    assert found[0] == 670523709  # for ever: a cache of another version would be wrong


def test_parses_as_a_slow_reader_does(tmp_path):
    text = lines()
    block = parse(tmp_path, text.replace(b"\n", b"\r\n"))
    numbers = [[None if np.isnan(x) else x for x in row] for row in block.numbers.tolist()]
    tokens = [
        [t if p else None for t, p in zip(*row, strict=True)]
        for row in zip(block.tokens.tolist(), block.present.tolist(), strict=True)
    ]
    assert [[label, *n, *t] for label, n, t in zip(block.labels.tolist(), numbers, tokens, strict=True)] == slowly(text)
    assert as_text(block) == text


def test_the_numbers_and_the_hashed_categories_are_those_of_the_lines(tmp_path):
    """Party 0 has I1 to I13 and C1, party 1 the rest: fitted on training rows, counted by column of the hash."""
    text = lines()
    task = load(Config(hashed=7, columns=[14, 25]), "aligned", 2, 5, put(tmp_path, text))
    rows, splits = slowly(text), split_rows(300, 0.1, 0.3, 5)
    order = np.concatenate([splits[split] for split in ("train", "val", "test")])
    numbers = np.array([[np.nan if x is None else x for x in row[1:14]] for row in rows], float)
    logs = np.sign(numbers) * np.log1p(np.abs(numbers))
    fitted = logs[splits["train"]]
    expected = np.nan_to_num((logs - np.nanmean(fitted, axis=0)) / np.nanstd(fitted, axis=0))[order]
    encoded = whole(task)
    np.testing.assert_allclose(encoded[:, :13], expected, atol=1e-5)
    assert [block.shape for block in task.features] == [(180, 20), (180, 7)] and task.features[1].dtype == np.float32
    for place, row in enumerate(order):
        for first, columns in ((13, range(1, 2)), (20, range(2, 27))):
            counts = Counter(mixed(column, rows[row][13 + column]) * 7 >> 32 for column in columns)
            assert encoded[place, first : first + 7].tolist() == [counts[i] for i in range(7)]
    np.testing.assert_array_equal(
        np.concatenate([task.labels, *task.held_out_labels.values()]), [rows[row][0] for row in order]
    )
    assert (task.metric.name, task.classes, task.owner, task.labels.dtype) == ("auroc", 2, 0, np.int64)
    assert task.source.kind == "partial" and task.source.variant == "kaggle" and "300 rows" in task.source.note


def test_nothing_depends_on_the_size_of_a_block_or_on_gzip(tmp_path, monkeypatch):
    text = lines()
    first = load(Config(), "aligned", 3, 0, put(tmp_path / "a", text))
    put(tmp_path / "b", gzip.compress(text[:-1]), "criteo/train.txt.gz")  # the last line without its end
    monkeypatch.setattr(csv_files, "BLOCK", 1000)
    monkeypatch.setattr(criteo, "_ROWS", 17)
    second = load(Config(), "aligned", 3, 0, tmp_path / "b")
    np.testing.assert_allclose(whole(first), whole(second), atol=1e-6)
    assert [block.shape[1] for block in first.features] == [13, 128, 128]  # 13 columns each: only categories are hashed
    assert second.source.files[0][0] == "criteo/train.txt.gz" and all(
        isinstance(block, np.memmap) for block in second.features
    )
    assert not any(block.flags.writeable for block in second.features)


def test_what_was_read_and_encoded_is_kept(tmp_path, monkeypatch):
    root, read, encoded = put(tmp_path, lines()), [], []
    for name, calls in (("_block", read), ("moments", encoded)):
        function = getattr(criteo, name)
        monkeypatch.setattr(
            criteo, name, lambda *given, function=function, calls=calls: (calls.append(0), function(*given))[1]
        )
    tasks = [load(Config(), "aligned", 2, 0, root) for _ in range(2)]
    assert (len(read), len(encoded)) == (1, 2)
    np.testing.assert_array_equal(whole(tasks[0]), whole(tasks[1]))
    load(Config(), "aligned", 2, 1, root)  # another split: nothing is read again
    load(Config(split_seed=0), "aligned", 2, 9, root)
    assert (len(read), len(encoded)) == (1, 4)
    assert load(Config(samples=50), "aligned", 2, 0, root).public.samples == 30 and len(read) == 2
    put(tmp_path, lines(200))  # another file of this name
    assert load(Config(), "aligned", 2, 0, root).public.samples == 120 and len(read) == 3
    assert not list((sources.cache_folder() / "criteo").rglob(".*"))  # nothing half-written


def test_the_first_rows_and_several_days(tmp_path):
    text = lines()
    at = text.index(b"\n", 20000) + 1
    put(tmp_path, text[:at], "criteo/day_0")
    put(tmp_path, gzip.compress(text[at:]), "criteo/day_1.gz")
    both = load(Config(days=2), "aligned", 2, 0, tmp_path)
    one = load(Config(), "aligned", 2, 0, put(tmp_path / "one", text))
    np.testing.assert_array_equal(whole(both), whole(one))
    assert both.source.variant == "terabyte" and [name for name, _ in both.source.files] == [
        "criteo/day_0",
        "criteo/day_1.gz",
    ]
    some = load(Config(variant="terabyte", samples=20), "aligned", 2, 0, tmp_path)
    assert sorted([*some.labels, *some.truth("val"), *some.truth("test")]) == sorted(
        row[0] for row in slowly(text)[:20]
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (LINE, LINE.rsplit("\t", 2)[0], ": Expected 40 columns, got 38"),
        (LINE, f"{LINE}\ta", ": Expected 40 columns, got 41"),
        (LINE, "", ": 'None' is no label, 0 or 1"),
        ("1\t5", "2\t5", ": '2' is no label, 0 or 1"),
        ("1\t5", "\t5", ": 'None' is no label, 0 or 1"),
        ("\t-2", "\t-", ", column I2: CSV conversion error to int64: invalid value '-'"),
        ("\t1382", "\t13.5", ", column I5: CSV conversion error to int64: invalid value '13.5'"),
        ("\t1382", "\t1-2", ", column I5: CSV conversion error to int64: invalid value '1-2'"),
        ("\t1382", "\t12345678901234567890", ", column I5: CSV conversion error to int64: invalid value '1234"),
        ("FB936136", "FB93613G", ": 'FB93613G' is no hexadecimal token of at most 8 digits (C3)"),
        ("FB936136", "FB9361361", ": 'FB9361361' is no hexadecimal token"),
        ("FB936136", "\xe9", ": 'é' is no hexadecimal token"),
    ],
)
@pytest.mark.parametrize("block", [1 << 24, 600])
def test_a_malformed_line_is_named(tmp_path, monkeypatch, old, new, message, block):
    monkeypatch.setattr(csv_files, "BLOCK", block)
    assert old in LINE
    text = "\n".join([LINE, LINE, LINE.replace(old, new, 1), *[LINE] * 5])
    with pytest.raises(DataError) as error:
        load(Config(), "aligned", 2, 0, put(tmp_path, text.encode()))
    assert str(error.value).startswith(f"criteo/train.txt, line 3{message}")


def test_what_is_no_such_file_is_named(tmp_path, monkeypatch):
    with pytest.raises(DataError, match=r"criteo/train\.txt\.gz: cannot be read"):
        load(Config(), "aligned", 2, 0, put(tmp_path / "a", gzip.compress(lines())[:-2000], "criteo/train.txt.gz"))
    with pytest.raises(DataError, match=r"criteo/train\.txt: Empty"):
        load(Config(), "aligned", 2, 0, put(tmp_path / "b", b""))
    with pytest.raises(DataError, match="9 rows; at least 10"):
        load(Config(), "aligned", 2, 0, put(tmp_path / "c", lines(9)))
    monkeypatch.setattr(csv_files, "BLOCK", 100)
    with pytest.raises(DataError, match=r"criteo/train\.txt: .*block"):
        load(Config(), "aligned", 2, 0, put(tmp_path / "d", b"\t" * 300))
    (tmp_path / "e").mkdir()
    with pytest.raises(DataError, match=r"missing criteo/train\.txt"):
        load(Config(), "aligned", 2, 0, tmp_path / "e")


def test_every_wrong_key_is_named():
    _, problems = convert(Config, {"variant": "kagle", "days": 25, "samples": 5, "hashed": 0})
    assert [problem.key for problem in problems] == ["variant", "days", "samples", "hashed"] and problems[
        0
    ].closest == "kaggle"
    problems = criteo.check(Config(columns=[13, 13], validation=0.5, test=0.5), "aligned", 2)
    assert [problem.key for problem in problems] == ["dataset.validation, dataset.test", "dataset.columns"]
    assert "adds up to 26, but there are 39 columns" in problems[-1].allowed
    with pytest.raises(ConfigError, match=r"algorithm\.parties=40: must lie between 1 and 39"):
        load(Config(), "aligned", 40, 0, None)


def test_the_twin_can_be_learnt_and_is_a_prefix_of_a_larger_one():
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    task = load(Config(source="synthetic", samples=4000, hashed=64), "aligned", 10, 0, None)
    assert task.source.kind == "synthetic" and task.parties == 10 and 0.15 < task.labels.mean() < 0.4
    model = LogisticRegression(C=0.01, max_iter=500).fit(np.concatenate(task.features, axis=1), task.labels)
    held_out = np.concatenate(task.held_out_features["test"], axis=1)
    assert roc_auc_score(task.truth("test"), model.predict_proba(held_out)[:, 1]) > 0.65
    small, large = next(criteo.twin(10)), next(criteo.twin(100))
    np.testing.assert_array_equal(small.tokens, large.tokens[:10])
    np.testing.assert_array_equal(small.labels, large.labels[:10])
