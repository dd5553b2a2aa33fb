"""IDs: exact or refused, compared in one writing, never joined because they are merely similar."""

import unicodedata

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vflbench.data.readers import cells, identifiers, spreadsheets
from vflbench.data.readers.cells import Column, Wrong, as_type, concatenate, of_arrow, of_objects

NFD = unicodedata.normalize("NFD", "Müller")
INVISIBLE = "\ufeff\u200b\u200c\u200d\u00ad\u200e\u202a\u2060\u034f\ufe0f\x00"
signs = st.sampled_from(list("aAzZüÜßſﬁＡ019 '.,-\u0308\u00a0\t") + list(INVISIBLE))
texts = st.text(signs, max_size=8) | st.text(max_size=8)


def column(*cells) -> Column:
    return of_objects(list(cells))


def values(*cells) -> list:
    return identifiers.ids(column(*cells)).values.tolist()


@pytest.mark.parametrize(
    ("written", "compared"),
    [
        (NFD, "Müller"), ("\ufeffA1", "A1"), ("A\u200b1\u00ad", "A1"), ("\u202aA1\u202c", "A1"), ("A1\ufe0f", "A1"),
        ("'007", "007"), (" 'A1\u00a0 ", "A1"), ("O'Neil", "O'Neil"), ("A 1", "A 1"), ("007", "007"), ("Ａ1", "Ａ1"),
        ("\u200b", None), (" ", None), ("", None),
    ],
)  # fmt: skip
def test_what_cannot_be_seen_is_no_difference(written, compared):
    assert values(written, "x") == [compared, "x"]


@given(texts)
def test_normalising_twice_is_normalising_once(text):
    once = identifiers.normal(text)
    assert identifiers.normal(once) == once and unicodedata.is_normalized("NFC", once)


@given(texts, texts)
def test_only_what_cannot_be_seen_is_ignored(one, other):
    def seen(text):
        kept = "".join(sign for sign in text if not identifiers._invisible().search(sign))
        return unicodedata.normalize("NFC", kept)

    if identifiers.normal(one) == identifiers.normal(other):
        assert identifiers._ENDS.sub("", seen(one)) == identifiers._ENDS.sub("", seen(other))
    if identifiers.normal(one).casefold() != identifiers.normal(other).casefold():
        assert values(one, "x")[0] != values(other, "x")[0] or not identifiers.normal(one + other)


@given(st.lists(texts, min_size=2, max_size=6, unique=True))
def test_ids_of_one_column_stay_apart_unless_they_look_alike(cells):
    """Grouping and a final .0 are taken from a whole column without making two IDs one."""
    found = identifiers.ids(Column("text", np.array(cells, dtype=object))).values.tolist() if _exact(cells) else []
    apart = {identifiers.normal(cell) for cell in cells if identifiers.normal(cell)}
    assert not found or len(set(found) - {None}) == len(apart)


def _exact(cells) -> bool:
    try:
        identifiers.ids(Column("text", np.array(cells, dtype=object)))
    except Wrong:
        return False
    return True


@pytest.mark.parametrize("sign", [",", ".", "'", "\u2019", " ", "\u00a0", "\u202f"])
def test_digit_grouping_goes_where_a_whole_column_has_it(sign):
    grouped = [f"1{sign}234", f"12{sign}345{sign}678", "17", "-5"]
    assert values(*grouped) == ["1234", "12345678", "17", "-5"]
    for other in ("1234", "a", f"1{sign}23", f"1234{sign}567"):
        mixed = values(*grouped, other)
        assert len(set(mixed)) == 5 and mixed[3:] == ["-5", other]
    assert "digit grouping is ignored" in identifiers.ids(column(*grouped)).note


def test_a_final_zero_goes_where_a_whole_column_has_it():
    assert values("1017.0", "8.0") == ["1017", "8"] and values("1017,00", "8,00") == ["1017", "8"]
    assert values("1017.0", "8") == ["1017.0", "8"] and values("1.0", "1.5") == ["1.0", "1.5"]
    assert values("1,017.00", "8.00") == ["1017", "8"]
    assert values("1,000", "17,000") == ["1000", "17000"]  # grouping, not 1 and 17


@pytest.mark.parametrize(
    "cells",
    [
        ("1.23457E+15", "P1"), ("1,23457E+15", "P1"), ("1E+15", "a"), ("1e16", "2"), ("9.1e5", "2"),
        ("9007199254740993.0", "a"), ("9007199254740993,00", "1,00"),
        ("10'000'000'000'000'120.0", "1.0"), ("10.000.000.000.000.120,00", "1"), ("10 000 000 000 000 120.0", "a"),
        (2.0**53, 1.0), (-(2.0**60), 1), (float("inf"), 1.0),
    ],
)  # fmt: skip
def test_ids_that_lost_digits_are_refused(cells):
    with pytest.raises(Wrong, match=r"save the IDs as whole numbers or as text"):
        identifiers.ids(column(*cells))


def test_what_is_exact_is_no_less_than_itself():
    big = 2**53 + 1
    assert values(big, None, 3) == [str(big), None, "3"] and values(str(big), "x") == [str(big), "x"]
    assert values(2.0**53 - 1, 3.0) == [str(2**53 - 1), "3"] and values(1.5, -2.0) == ["1.5", "-2"]
    assert values("12e5", "ab") == ["12e5", "ab"]  # a hash
    assert values("10,234,567,890,123,456,000", "7") == ["10234567890123456000", "7"]
    assert values(*map(np.datetime64("2024-01-31").astype(object).replace, [2024, 2023])) == [
        "2024-01-31",
        "2023-01-31",
    ]


@pytest.mark.parametrize(("kind", "limit"), [(pa.float64(), 2**53), (pa.float32(), 2**24), (pa.float16(), 2**11)])
def test_each_float_has_its_own_limit(kind, limit):
    def held(number):
        return of_arrow(pa.chunked_array([pa.array(np.array([number, 1], kind.to_pandas_dtype()))]))

    assert identifiers.ids(held(limit - 1)).values.tolist() == [str(limit - 1), "1"]
    for found in (held(limit), concatenate([held(limit), held(2)])):
        with pytest.raises(Wrong, match=f"from 2\\*\\*{limit.bit_length() - 1} on"):
            identifiers.ids(found)
        with pytest.raises(Wrong):
            as_type(found, "text")


def test_whole_numbers_beyond_64_bits_and_their_gaps():
    found = identifiers.ids(of_arrow(pa.chunked_array([pa.array([2**64 - 1, None, 0], pa.uint64())])))
    assert found.values.tolist() == [str(2**64 - 1), None, "0"]


def test_similar_ids_are_named_by_what_differs():
    found = dict(
        identifiers.near(
            ["Ａ1", "b2", "007", "1,234", "same", "Straße"], ["A1", "B 2", "7.0", "1234", "same", "STRASSE"]
        )
    )
    assert {kind.split(" (")[0]: len(pairs) for kind, pairs in found.items()} == {
        "blanks, capitals, leading zeros or a final .0": 3, "Unicode's compatibility forms": 1, "digit grouping": 1,
    }  # fmt: skip
    assert not identifiers.near(["a", "b"], ["b", "c"])


def test_what_differs_in_writing_alone_is_shown_by_code_points():
    assert identifiers.quoted_pair("Müller1", f"{NFD}1") == ("'Müller1' (U+00FC)", f"'{NFD}1' (U+0075 U+0308)")
    assert identifiers.quoted_pair("A1", "A1\u200b") == ("'A1'", "'A1\\u200b' (U+200B)")
    assert identifiers.quoted_pair("a1 ", "A1") == ("'a1 '", "'A1'")


def test_a_float_in_a_column_of_texts_has_lost_digits_too():
    """As in a spreadsheet, or a frame of Python objects."""
    assert [cells.without_point(cell) for cell in (7.0, 2.0**53 - 1, 2.0**53, 1.5, "7.0", 7)] == [
        *(7, 2**53 - 1, 2.0**53, 1.5, "7.0", 7)
    ]
    written = spreadsheets.as_texts([2.0**53, "A1", 7.0])
    assert written == ["9007199254740992.0", "A1", "7"]
    with pytest.raises(Wrong, match=r"from 2\*\*53 on"):
        identifiers.ids(Column("text", np.array(written, dtype=object)))


@pytest.mark.parametrize(
    "one, other", [("00P7", "p7"), (" p 7", "P7"), ("7.0", "007"), ("Ｐ7", "p7"), ("1,234", "1234")]
)
def test_the_plainest_writing_has_no_difference_that_is_named(one, other):
    assert identifiers.plainest(one) == identifiers.plainest(other) != identifiers.plainest("p8")
    assert identifiers.near([one], [other])
