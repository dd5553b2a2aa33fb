"""Spreadsheets: the sheet, the header, the types that their cells have, and the row that a message names."""

import datetime
import io
import zipfile
from xml.sax.saxutils import escape

import numpy as np
import pytest
import xlwt

from vflbench.cards.data.relational import sql as sql_card
from vflbench.data.readers import table_sources
from vflbench.data.readers.table_sources import Source
from vflbench.data.relational import sql
from vflbench.types import DataError, Problem

DAY = datetime.date(2024, 1, 31)
ROWS = [
    ["id", "größe", "tag", "raucher", "code", "umsatz"],
    ["P01", 171.5, DAY, True, "007", "1,5"],
    ["P02", 180, DAY + datetime.timedelta(1), False, "011", "2,25"],
    ["P03", None, DAY + datetime.timedelta(2), True, "012", "3"],
]


def serial(day):
    return (day - datetime.date(1899, 12, 30)).days


def xlsx(path, **sheets):
    def cell(value):
        if value is None:
            return "<c/>"
        if isinstance(value, bool):
            return f'<c t="b"><v>{int(value)}</v></c>'
        if isinstance(value, datetime.date):
            return f'<c s="1"><v>{serial(value)}</v></c>'
        if isinstance(value, str):
            return f'<c t="inlineStr"><is><t>{escape(value)}</t></is></c>'
        return f"<c><v>{value}</v></c>"

    main = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006"
    ids = list(enumerate(sheets, 1))
    with zipfile.ZipFile(path, "w") as archive:
        types = 'ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml'
        parts = "".join(f'<Override PartName="/xl/worksheets/{i}.xml" {types}.worksheet+xml"/>' for i, _ in ids)
        archive.writestr(
            "[Content_Types].xml",
            f'<Types xmlns="{package}/content-types"><Default Extension="rels" ContentType="application/vnd.openxml'
            f'formats-package.relationships+xml"/>{parts}'
            f'<Override PartName="/xl/workbook.xml" {types}.sheet.main+xml"/>'
            f'<Override PartName="/xl/styles.xml" {types}.styles+xml"/></Types>',
        )
        archive.writestr(
            "_rels/.rels",
            f'<Relationships xmlns="{package}/relationships"><Relationship Id="r" Type="{office}/officeDocument" '
            'Target="xl/workbook.xml"/></Relationships>',
        )
        listed = "".join(f'<sheet name="{escape(name)}" sheetId="{i}" r:id="r{i}"/>' for i, name in ids)
        archive.writestr("xl/workbook.xml", f'<workbook {main} xmlns:r="{office}"><sheets>{listed}</sheets></workbook>')
        targets = "".join(
            f'<Relationship Id="r{i}" Type="{office}/worksheet" Target="worksheets/{i}.xml"/>' for i, _ in ids
        )
        archive.writestr(
            "xl/_rels/workbook.xml.rels",
            f'<Relationships xmlns="{package}/relationships">{targets}<Relationship Id="s" Type="{office}/styles" '
            'Target="styles.xml"/></Relationships>',
        )
        archive.writestr(
            "xl/styles.xml",
            f'<styleSheet {main}><cellXfs count="2"><xf numFmtId="0"/><xf numFmtId="14"/></cellXfs></styleSheet>',
        )
        for i, (_, rows) in enumerate(sheets.items(), 1):
            lines = "".join(f"<row>{''.join(map(cell, row))}</row>" for row in rows)
            archive.writestr(f"xl/worksheets/{i}.xml", f"<worksheet {main}><sheetData>{lines}</sheetData></worksheet>")


def ods(path, **sheets):
    def cell(value):
        if value is None:
            return "<table:table-cell/>"
        if isinstance(value, bool):
            return f'<table:table-cell office:value-type="boolean" office:boolean-value="{str(value).lower()}"/>'
        if isinstance(value, datetime.date):
            return f'<table:table-cell office:value-type="date" office:date-value="{value}"/>'
        if isinstance(value, str):
            return f'<table:table-cell office:value-type="string"><text:p>{escape(value)}</text:p></table:table-cell>'
        return f'<table:table-cell office:value-type="float" office:value="{value}"/>'

    tables = "".join(
        f'<table:table table:name="{escape(name)}">'
        + "".join(f"<table:table-row>{''.join(map(cell, row))}</table:table-row>" for row in rows)
        + "</table:table>"
        for name, rows in sheets.items()
    )
    names = " ".join(
        f'xmlns:{short}="urn:oasis:names:tc:opendocument:xmlns:{short}:1.0"' for short in ("office", "table", "text")
    )
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        manifest = "urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"
        archive.writestr("META-INF/manifest.xml", f'<m:manifest xmlns:m="{manifest}"/>')
        archive.writestr(
            "content.xml",
            f"<office:document-content {names}><office:body><office:spreadsheet>{tables}</office:spreadsheet>"
            "</office:body></office:document-content>",
        )


def xls(path, **sheets):
    book = xlwt.Workbook()
    for name, rows in sheets.items():
        sheet = book.add_sheet(name)
        for i, row in enumerate(rows):
            for j, value in enumerate(row):
                if value is not None:
                    style = xlwt.easyxf(num_format_str="YYYY-MM-DD") if isinstance(value, datetime.date) else None
                    sheet.write(i, j, value, *([style] if style else []))
    book.save(path)


WRITERS = {"xlsx": xlsx, "ods": ods, "xls": xls}


def test_a_spreadsheet_is_a_table_to_be_joined(tmp_path):
    where = {name: tmp_path / f"{name}.xlsx" for name in ("left", "right")}
    xlsx(where["left"], a=[["id", "x", "y"], *([i, i / 7, i % 2] for i in range(40))])
    xlsx(where["right"], a=[["id", "z"], *([i, i / 3] for i in range(40))])
    tables = {name: sql_card.Table(url=str(path), keys=["id"]) for name, path in where.items()}
    tables["left"].label = "y"
    task = sql.load(sql.Config(tables=tables, joins=["left.id = right.id"]), "relational", 1, 0, None)
    assert [name for name, _ in task.source.files] == ["left.xlsx", "right.xlsx"]
    assert "table left: spreadsheet" in task.source.note


@pytest.mark.parametrize("form", WRITERS)
@pytest.mark.parametrize("above", [[], [["Bericht 2024"], []]])
def test_cells_have_the_types_of_the_sheet(tmp_path, form, above):
    path = tmp_path / f"a.{form}"
    WRITERS[form](path, Patienten=[*above, *ROWS, [], [None] * 6], leer=[])
    source = Source(str(path))
    assert table_sources.columns(source) == ROWS[0]
    found = table_sources.read(source, ROWS[0], {"id": "text"})
    assert found["id"].values.tolist() == ["P01", "P02", "P03"]
    np.testing.assert_array_equal(found["größe"].values, [171.5, 180, np.nan])
    assert found["tag"].kind == "date" and str(found["tag"].values[0]).startswith("2024-01-31")
    assert found["raucher"].kind == "number" and found["raucher"].values.tolist() == [1, 0, 1]
    assert found["code"].kind == "text" and found["code"].values[0] == "007"
    np.testing.assert_array_equal(found["umsatz"].values, [1.5, 2.25, 3])  # texts are read as in a text file
    assert table_sources.place(source, 2) == f"{path}, row {len(above) + 4}"
    said = table_sources.form(source)
    assert said.words.startswith("sheet 'Patienten', with a header line") and said.plain == (not above)


@pytest.mark.parametrize("form", WRITERS)
def test_which_sheet(tmp_path, form):
    path = tmp_path / f"a.{form}"
    WRITERS[form](path, Info=[["Stand", "2024"]], Patienten=ROWS, Notizen=[])
    with pytest.raises(
        DataError, match=r"several sheets have cells: 1 \(Info\), 2 \(Patienten\); name one, as \{path: FILE, she"
    ):
        table_sources.columns(Source(str(path)))
    for sheet in ("2", "Patienten"):
        assert table_sources.columns(Source(str(path), sheet=sheet)) == ROWS[0]
    with pytest.raises(DataError, match=r"has no sheet 'Patiente'; it has 3: Info, .*Did you mean 'Patienten'\?"):
        table_sources.columns(Source(str(path), sheet="Patiente"))
    with pytest.raises(DataError, match="has no sheet '4'; it has 3"):
        table_sources.columns(Source(str(path), sheet="4"))


@pytest.mark.parametrize("form", WRITERS)
def test_a_sheet_without_a_header(tmp_path, form):
    path = tmp_path / f"a.{form}"
    WRITERS[form](path, a=ROWS[1:])
    assert table_sources.columns(Source(str(path))) == [f"column{i}" for i in range(1, 7)]


def test_what_is_no_spreadsheet(tmp_path):
    (tmp_path / "a.xlsx").write_text("id,x\n1,2\n")
    with pytest.raises(DataError, match=r"a\.xlsx: cannot be read as a spreadsheet"):
        table_sources.columns(Source(str(tmp_path / "a.xlsx")))
    xlsx(tmp_path / "b.xlsx", a=[], b=[])
    with pytest.raises(DataError, match=r"b\.xlsx: no sheet has any cell"):
        table_sources.columns(Source(str(tmp_path / "b.xlsx")))
    made = io.BytesIO()
    xlsx(made, a=ROWS)
    (tmp_path / "a.csv").write_bytes(made.getvalue())
    with pytest.raises(DataError, match=r"a\.csv.*its name has to end in \.xlsx or \.ods"):
        table_sources.columns(Source(str(tmp_path / "a.csv")))


def test_the_package_that_is_needed_is_named(tmp_path, monkeypatch):
    find = table_sources.importlib.util.find_spec
    monkeypatch.setattr(
        table_sources.importlib.util, "find_spec", lambda name: None if name == "python_calamine" else find(name)
    )
    xlsx(tmp_path / "a.xlsx", a=ROWS)
    (problem,) = table_sources.check(Source(str(tmp_path / "a.xlsx")), "t")
    assert isinstance(problem, Problem) and "pip install 'vflbench[excel]'" in problem.allowed
