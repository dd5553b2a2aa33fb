"""Files as people have them: every separator, encoding, decimal sign and packing is inferred, and reported."""

import bz2
import csv
import gzip
import io
import itertools
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.every import few_fast
from vflbench.data.readers import table_sources
from vflbench.data.readers.table_sources import Source
from vflbench.types import DataError

NAMES = ["id", "größe", "umsatz", "ort", "notiz"]
N = 40
ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "cp1252")
PACKERS = {"": lambda data: data, ".gz": gzip.compress, ".bz2": bz2.compress}


def zipped(**members):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return made.getvalue()


def numbers():
    r = np.random.default_rng(0)
    return r.normal(170, 10, N).round(2), r.uniform(1, 9e6, N).round(2)


def written(number, decimal, group=""):
    return f"{number:,.2f}".replace(",", "G").replace(".", decimal).replace("G", group)


NOTES = ("gut", "a, b; c|d\te", 'er "x"', "zwei\nZeilen", "")


def table(separator=",", decimal=".", group="", header=True):
    size, sales = numbers()
    rows = [
        [str(100 + i), written(size[i], decimal), written(sales[i], decimal, group), ("Köln", "Bonn")[i % 2], note]
        for i, note in zip(range(N), itertools.cycle(NOTES), strict=False)
    ]
    text = io.StringIO()
    csv.writer(text, delimiter=separator, lineterminator="\r\n").writerows([*([NAMES] if header else []), *rows])
    return text.getvalue()


def save(folder, text, name="a.csv", encoding="utf-8"):
    (folder / name).write_bytes(text.encode(encoding) if isinstance(text, str) else text)
    return Source(str(folder / name))


def held(source):
    return table_sources.read(source, table_sources.columns(source), {})


def check(source, names=NAMES):
    found = held(source)
    assert list(found) == names
    for name, expected in zip(names[1:], numbers(), strict=False):
        assert found[name].kind == "number"
        np.testing.assert_allclose(found[name].values, expected)
    assert found[names[3]].values[0] == "Köln"
    assert found[names[4]].values[:5].tolist() == ["gut", "a, b; c|d\te", 'er "x"', "zwei\nZeilen", None]


@pytest.mark.parametrize("separator", few_fast([",", ";", "\t", "|"]))
@pytest.mark.parametrize(("decimal", "group"), [(".", ""), (",", ""), (",", "."), (".", ","), (",", " "), (".", "'")])
@pytest.mark.parametrize("header", [True, False])
def test_separators_decimal_and_thousands_signs(tmp_path, separator, decimal, group, header):
    source = save(tmp_path, table(separator, decimal, group, header))
    check(source, NAMES if header else [f"column{i}" for i in range(1, 6)])
    form = table_sources.form(source)
    assert form.details["separator"] == separator and form.details["header"] is header
    assert form.details["decimal"] == [decimal] and form.details["thousands"] == ([group] if group else [])
    assert form.plain == ((separator, decimal, group, header) == (",", ".", "", True))


@pytest.mark.parametrize("encoding", few_fast(ENCODINGS))
@pytest.mark.parametrize("packed", [*PACKERS, ".zip"])
@pytest.mark.parametrize("top", ["", "sep=;\r\n", "\r\n\r\n", "Bericht 2024\r\nStand: Köln\r\n\r\n"])
def test_encodings_packings_and_what_stands_above(tmp_path, encoding, packed, top):
    data = (top + table(";", ",")).encode(encoding)
    name = f"a.csv{packed}"
    source = save(tmp_path, zipped(**{"a.csv": data}) if packed == ".zip" else PACKERS[packed](data), name)
    check(source)
    form = table_sources.form(source)
    assert form.details["encoding"] == encoding and form.details["skipped"] == top.count("\n")
    lines = data.decode(encoding).splitlines()
    assert lines[int(table_sources.place(source, N - 1).rpartition(" ")[2]) - 1].startswith(f"{100 + N - 1};")


def test_the_words_that_a_reader_sees(tmp_path):
    source = save(tmp_path, "sep=;\n" + table(";", ",", ".", header=False), "a.txt", "cp1252")
    assert table_sources.form(source).words == (
        "separated by ';', decimal comma, thousands sign '.', cp1252 (as in 'Köln'), without a header line, so its "
        "columns are column1 to column5, 1 line above the table skipped"
    )
    assert table_sources.form(save(tmp_path, table())).words == "separated by ',', UTF-8, with a header line"


@pytest.mark.parametrize(
    ("encoding", "words", "right"),
    [
        ("cp850", ["Köln", "Größe", "Bonn"], "'Köln' in cp850"),
        ("cp850", ["général", "Lille"], "'général' in cp850"),
        ("mac-roman", ["Mädchen", "Straße"], "'Mädchen' in mac-roman"),
        ("cp1250", ["Kraków", "Wrocław"], "'Wrocław' in cp1250"),
        ("cp1251", ["Москва", "Казань"], "'Москва' in cp1251"),
        ("cp1252", ["Köln", "GRÖßE", "Übung", "5 µm", "10 °C", "m³/h", "mg/m²", "§12", "£5", "Foo™"], ""),
        ("cp1252", ["O’Brien", "“x”y", "„x“", "a–b", "und…aber", "«été»", "l’été", "¿Qué?", "FRANÇOIS", "naïf"], ""),
        ("cp1252", ["Åse", "Škoda", "Miloš", "Žižek", "São", "cœur", *["Öl"] * 9, "Fehl”er"], ""),
    ],
)
def test_a_text_that_may_have_another_encoding_is_told(tmp_path, caplog, encoding, words, right):
    text = "".join(f"{i};{words[i % len(words)]}\n" for i in range(2 * len(words)))
    form = table_sources.form(save(tmp_path, f"id;w\n{text}", encoding=encoding))
    assert form.details["encoding"] == "cp1252" and ("looks wrong" in form.words) == bool(right)
    assert right in caplog.text and ("encoding: cp850" in caplog.text) == bool(right)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_rows_and_columns_of_nothing_are_no_data(tmp_path, separator):
    """Excel writes lines of separators below a table, and a separator at the end of each line."""
    lines = table(separator).replace("zwei\nZeilen", "").splitlines()
    wide = "\n".join([*(f"{line}{separator}{separator}" for line in lines), separator * 6, "", separator * 6, ""])
    found = held(save(tmp_path, wide))
    assert list(found) == NAMES and len(found["id"].values) == N
    below = "\n".join([lines[0], *(line + separator for line in lines[1:])])  # the header has none
    found = held(save(tmp_path, below))
    assert list(found) == NAMES and len(found["id"].values) == N


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("1,0.5,a\n2,0.6,b\n3,0.1,c\n", False),
        ("id,2019,2020\n1,5,6\n2,7,8\n", True),
        ("0,1,2\n0.5,0.1,0.2\n0.4,0.3,0.1\n", True),  # names that programs give
        (",0,1,2\n0,0.5,0.1,0.2\n1,0.4,0.3,0.1\n", True),
        ("0,1\n1,2\n2,3\n", False),  # edges
        ("name,city\n" + "Ann,Bonn\nBob,Rome\n" * 9, True),
        ("Ann,Bonn\nBob,Rome\n" * 9, False),
        ("2024-01-01,5\n2024-01-02,6\n2024-01-03,7\n", False),
        ("day,n\n01.02.2024,5\n02.02.2024,6\n", True),
        ("x\n1,5\n2,25\n", True),
        ("x\n5\n6\n", True),
        ("NA,1,x\n2,3,y\n4,5,z\n", False),
    ],
)
def test_whether_there_is_a_header(tmp_path, text, header):
    source = save(tmp_path, text)
    assert table_sources.form(source).details["header"] is header
    assert len(next(iter(held(source).values())).values) == len(text.splitlines()) - header
    said = Source(source.url, header=not header)
    assert table_sources.form(said).details["header"] is not header and table_sources.form(said).details["given"] == [
        "header"
    ]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("id;x;y\n1;1,234;0,5\n2;5,678;1,5\n", [1.234, 5.678]),
        ("id;x;y\n1;1,234;0.5\n2;5,678;1.5\n", [1234, 5678]),
        ("id;x;y\n1;1.234;0,5\n2;5.678;1,5\n", [1234, 5678]),
        ('id,x,y\n1,"1,234",a\n2,"5,678",b\n', [1234, 5678]),  # a comma that separates is no decimal sign
        ("id,x\n1,1.234\n2,5.678\n", [1.234, 5.678]),
        ("id;x\n1;1,234\n2;1000\n", [1.234, 1000]),  # a thousand without a sign
        ("id;x\n1;1.234.567\n2;1.000\n", [1234567, 1000]),
        ("id;x\n1;12,34,567\n2;1,000\n", [1234567, 1000]),  # as in India
        ("id;x\n1;1 234\n2;5\u202f678\n", [1234, 5678]),
        ("id;x\n1;1e3\n2;+2,5E-1\n", [1000, 0.25]),
        ("id;x\n1;NA\n2;2,5\n", [np.nan, 2.5]),
    ],
)
def test_what_a_sign_means_follows_from_all_cells(tmp_path, text, values):
    np.testing.assert_array_equal(held(save(tmp_path, text))["x"].values, values)


@pytest.mark.parametrize("cells", [("1,234", "5,678"), ("1.234", "5.678")])
def test_what_nothing_tells_is_asked(tmp_path, cells):
    source = save(tmp_path, f"id;x;name\n1;{cells[0]};a\n2;{cells[1]};b\n")
    with pytest.raises(
        DataError, match=rf"a\.csv, line 2, column x: '{cells[0]}': .*say the decimal sign, as .path: FILE"
    ):
        held(source)
    assert set(table_sources.read(source, ["id", "name"], {})) == {"id", "name"}, "who does not use it is not asked"
    for decimal in ".,":
        found = held(Source(source.url, decimal=decimal))["x"].values.tolist()
        assert found == ([1.234, 5.678] if cells[0][1] == decimal else [1234, 5678])


def test_texts_stay_texts(tmp_path):
    text = "id;ip;code;day;size;mixed\n1;10.0.0.1;007;01.02.2024;1,5 kg;1,5\n2;10.0.0.2;011;02.02.2024;2,5 kg;1.5\n"
    found = held(save(tmp_path, text))
    assert all(found[name].kind != "number" for name in ("ip", "code", "day", "size", "mixed"))


def test_what_the_user_says_is_not_inferred(tmp_path):
    url = save(tmp_path, "id;a,b\n1;2,3\n2;3,4\n").url
    assert table_sources.columns(Source(url, separator=",")) == ["id;a", "b"]
    assert table_sources.columns(Source(url, separator=";")) == ["id", "a,b"]
    path = save(tmp_path, "id,x\n1,Łódź\n2,Kraków\n", "b.csv", "cp1250").url
    assert held(Source(path, encoding="cp1250"))["x"].values[0] == "Łódź"
    with pytest.raises(DataError, match=r"b\.csv, line 2: not UTF-8 text; say its encoding, as \{path: FILE"):
        held(Source(path, encoding="utf-8"))


def test_numbers_may_be_separated_by_single_blanks(tmp_path):
    """As lists of edges are; `1 234` in every line is one number with a thousands sign."""
    found = held(save(tmp_path, "from to\n0 12\n1 7\n12 130\n"))
    assert [*found] == ["from", "to"] and found["to"].values.tolist() == [12, 7, 130]
    assert [*held(save(tmp_path, "0 12\n1 7\n"))] == ["column1", "column2"]
    assert held(save(tmp_path, "x\n1 234\n12 345\n"))["x"].values.tolist() == [1234, 12345]
    assert [*held(save(tmp_path, "note\na b\nc d\n"))] == ["note"]


def test_a_header_without_a_name_for_the_names_of_the_rows(tmp_path):
    """As `write.table(frame, sep="\t")` of R writes it."""
    source = save(tmp_path, 'x\ty\n"r1"\t1\t5\n"r2"\t2\t6\n')
    found = held(source)
    assert [*found] == ["", "x", "y"] and found[""].values.tolist() == ["r1", "r2"]
    assert found["x"].values.tolist() == [1, 2] and table_sources.place(source, 1).endswith("line 3")
    assert [*held(save(tmp_path, "x,y\n1,5,\n2,6,\n"))] == ["x", "y"]  # a separator at the ends
    with pytest.raises(DataError, match="line 3: 3 cells, but there are 2 columns"):
        held(save(tmp_path, "x,y\n1,5\n2,6,7\n"))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"id,x\n1,\x81\n", r"line 2: neither UTF-8 nor Windows-1252 \(byte 0x81\)"),
        ("id,x\n1,ä\n2,ö\n".encode() + b"3,\xe4\n", r"line 4: not UTF-8 \(byte 0xE4\), as other lines are"),
        (b"id,x\n1,\x00\n2,\x00\x00\n", "has bytes of zero, so it is no text file"),
        (b"PAR1\x15\x04\x15\x00\x00\x00", "is a Parquet file; name it .parquet"),
        (b"", "empty"),
        (zipped(**{"a.csv": b"x", "b.csv": b"y"}), r"the archive holds 2 files: a\.csv, b\.csv; one is needed"),
        (zipped(**{"[Content_Types].xml": b"x", "b.xml": b"y"}), r"its name has to end in \.xlsx or \.ods"),
        (gzip.compress(b"id,x\n" + bytes(range(65, 91)) * 999)[:-20], "cannot be read"),
        (bz2.compress(b"id,x\n1,2\n" * 99)[:-20], "cannot be read"),
        (zipped(**{"a.csv": b"id,x\n1,2\n" * 99})[:-90], "cannot be read"),
        (b"id;x;y\n1;2;3\n\n4;5\n", "line 4: 2 cells, but there are 3 columns"),
        (b'id;x\n1;"a\nb"\n2;3;4\n', "line 4: 3 cells, but there are 2 columns"),
        (b'id;x\n1;"a\nb\n2;3\n', "line 2: malformed, a quotation mark may lack its partner"),
        (b"id,x,\n" + b"1,2,\n" * 2000 + b"1,2,3\n", "line 2002: a value in column 3, which has no name"),
        (b"id,x,x\n1,2,3\n", "several columns are called x"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(tmp_path, data, reason):
    with pytest.raises(DataError, match=rf"a\.csv.*{reason}"):
        held(save(tmp_path, data))


def test_a_folder_of_macos_in_an_archive_is_no_file(tmp_path):
    data = zipped(**{"data/a.csv": table(";", ",").encode(), "__MACOSX/data/._a.csv": b"x", "data/.DS_Store": b"y"})
    check(save(tmp_path, data, "a.zip"))


def test_packed_files_are_known_by_their_bytes(tmp_path):
    check(save(tmp_path, gzip.compress(table().encode()), "a.csv"))
    check(save(tmp_path, table().encode(), "a.csv.gz"))


cells = st.text(
    st.characters(codec="utf-8", exclude_characters="\x00\r\n\ufeff", exclude_categories=["Cs", "Cc"]), max_size=9
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(st.tuples(st.integers(-(10**6), 10**6), cells, cells), min_size=6, max_size=20),
    separator=st.sampled_from(",;\t|"),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
)
def test_any_texts_come_back_as_they_were_written(tmp_path, rows, separator, encoding):
    text = io.StringIO()
    writer = csv.writer(text, delimiter=separator, quoting=csv.QUOTE_NONNUMERIC)
    writer.writerows([["number", "first", "second"], *rows])
    source = save(tmp_path, text.getvalue(), f"{abs(hash((tuple(rows), separator, encoding)))}.csv", encoding)
    found = table_sources.read(source, ["number", "first", "second"], {"first": "text", "second": "text"})
    assert found["number"].values.tolist() == [number for number, *_ in rows]
    if any(first for _, first, _ in rows):
        assert found["first"].values.tolist() == [first or None for _, first, _ in rows]
    lines = [int(table_sources.place(source, row).rpartition(" ")[2]) for row in range(len(rows))]
    assert lines == list(range(2, len(rows) + 2))


def test_a_file_that_changes_is_read_again(tmp_path):
    assert held(save(tmp_path, "id;x\n1;2,5\n2;3,5\n"))["x"].values.tolist() == [2.5, 3.5]
    assert held(save(tmp_path, "id,x\n1,2.5\n2,3.75\n"))["x"].values.tolist() == [2.5, 3.75]
    assert Path(tmp_path / "a.csv").exists()
