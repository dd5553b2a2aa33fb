"""The pages of docs/results say what their CSVs say, and nothing that is typed."""

import importlib.util
import re
import shutil
from pathlib import Path
from typing import get_args

import pytest

from tests.every import few_fast
from vflbench.papers.claims import Verdict

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(path.name.removesuffix(".md.j2") for path in (ROOT / "docs" / "results").glob("*.md.j2"))


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("results_script", ROOT / "scripts" / "results.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def copy(tmp_path, script):
    """The templates, pages and CSVs, to be spoilt."""
    return script.Pages(Path(shutil.copytree(ROOT / "docs" / "results", tmp_path / "results")))


def test_every_paper_has_a_page():
    assert {"glasu", "leasgd", "mtcd", "pubsub_vfl", "tablepuppet"} <= set(PAGES)


@pytest.mark.slow
def test_pages_are_what_templates_and_csvs_say(script, capsys):
    assert script.main(["--check"]) == 0, capsys.readouterr().err


@pytest.mark.slow
def test_another_number_is_told(copy):
    """A CSV that changes makes its page and that of the verdicts stale, and no other."""
    path = copy.folder / "glasu" / "table2.csv"
    text = path.read_text()
    path.write_text(text.replace("0.8322,", "0.8333,"))
    assert [page.name for page in copy.changed()] == ["glasu.md", "verdicts.md"]


def test_a_sentence_that_is_no_longer_true(copy, script):
    path = copy.folder / "glasu" / "table2.csv"
    path.write_text(path.read_text().replace("0.8322,", "0.9322,"))
    with pytest.raises(script.ResultsError, match="no longer true: GLASU is as accurate as one party with everything"):
        copy.render("glasu")


def test_a_verdict_follows_the_csv(copy):
    before = copy.claims("pubsub_vfl/table4")
    (row,) = copy.rows("pubsub_vfl/table4", dataset="bank", planner="epoch")
    row["running_seconds"] = 1000.0
    changed = [
        new
        for old, new in zip(before.split("\n"), copy.claims("pubsub_vfl/table4").split("\n"), strict=True)
        if old != new
    ]
    assert len(changed) == 1 and "the planner makes training faster" in changed[0]
    assert "| does not hold | " in changed[0]


def test_the_front_picture(script, tmp_path):
    """It is drawn from the CSVs, and small enough for a README."""
    script.picture(script.Pages(), tmp_path / "front")
    assert {path.name for path in tmp_path.iterdir()} == {"front.svg", "front.png"}
    for path in [*tmp_path.iterdir(), ROOT / "docs" / "front.svg", ROOT / "docs" / "front.png"]:
        assert path.stat().st_size < 150_000


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (
            "{{ row('mtcd/fig2', algorithm='stcd', topology='tree') }}",
            r"mtcd/fig2\.csv: no row with topology\.name=tree",
        ),
        ("{{ row('mtcd/fig2', algorithm='stcd') }}", r"mtcd/fig2\.csv: 4 rows with {'algorithm': 'stcd'}, not one"),
        ("{{ row('mtcd/fig2', colour='red') }}", r"mtcd/fig2\.csv: no single column for 'colour'"),
        (
            "{{ row('mtcd/fig2', algorithm='stcd', topology='path').bytes }}",
            r"mtcd/fig2\.csv: no value in column 'bytes'",
        ),
        (
            "{{ row('comparison/bank', algorithm='gd_join').seconds_to_target | fixed }}",
            "inf is not a number to be shown",
        ),
        ("{{ paper('pubsub_vfl/table1', 'selected', dataset='bank', algorithm='mtcd') }}", "0 numbers of the paper"),
        ("{{ nothing }}", "'nothing' is undefined"),
    ],
)
def test_what_is_not_there_is_told(copy, call, told):
    with pytest.raises(Exception, match=told):
        copy.jinja.from_string(call).render()


def shown(expression):
    """The texts in an expression, but for names of files, columns and settings."""
    texts = [double or single for double, single in re.findall(r'"([^"]*)"|\'((?:[^\'\\\\]|\\\\.)*)\'', expression)]
    return " ; ".join(text for text in texts if not re.fullmatch(r"(?=.*[a-z])[a-z0-9_/.%]+", text))


@pytest.mark.parametrize("page", PAGES)
def test_no_measured_number_is_typed(page):
    """Outside expressions a template has no digits but those of the phrases that its head lists, each with a reason."""
    template = (ROOT / "docs" / "results" / f"{page}.md.j2").read_text(encoding="utf-8")
    head, rest = re.fullmatch(r"\{# typed:\n(.*?)#\}\n(.*)", template, re.DOTALL).groups()
    allowed = dict(line.split(" -- ") for line in head.strip().splitlines())
    assert not re.search(r"\{\{ *['\"(]?\d", rest)
    text = re.sub(r"\{% do check\(.*?%\}|\{#.*?#\}|`[^`]*`|(?m:^    [^\n]*$)", " ", rest, flags=re.DOTALL)
    text = re.sub(r"\{[{%].*?[}%]\}", lambda found: shown(found[0]), text, flags=re.DOTALL)
    unused = []
    for phrase in sorted(allowed, key=len, reverse=True):
        text, count = re.subn(rf"(?<![\d.,]){re.escape(phrase)}(?![\d]|[.,]\d)", " ", text)
        unused += [phrase] if not count else []
    assert not unused
    assert not [line for line in text.split("\n") if re.search(r"\d", line)]


@pytest.mark.parametrize(
    "page",
    few_fast(
        [
            pytest.param(page, marks=[pytest.mark.slow] if page in ("comparison", "pubsub_vfl", "tablepuppet") else [])
            for page in PAGES
            if page not in ("gpu", "verdicts")  # empty until there is a GPU; made of other pages
        ],
        2,
    ),
)
def test_a_number_that_is_read_counts(page, script, monkeypatch):
    """A cell that a template asks for changes the page, or stops a sentence, where it is far smaller or far larger.

    Thirty of them for each page, evenly spread: each takes a page or two to be rendered.
    """
    pages = script.Pages()
    # they have copies of their own, and a test of their own
    monkeypatch.setitem(pages.jinja.globals, "claims", lambda *_, **__: "")
    asked = {}
    plain = script.Row.__getitem__

    def watched(row, column):
        asked[id(row), column] = row
        return plain(row, column)

    with monkeypatch.context() as patch:
        patch.setattr(script.Row, "__getitem__", watched)
        before = pages.render(page)

    def rendered(row, column, value):
        row[column] = value
        try:
            return pages.render(page)
        except Exception:
            return "refused"

    cells = [(row, column) for (_, column), row in asked.items() if row.file and type(row[column]) in (int, float)]
    assert len(cells) > 50
    for row, column in cells[:: max(1, len(cells) // 30)]:
        value, far = row[column], 1000 * min(abs(row[column]), 1e9) + 1000
        assert any(rendered(row, column, other) != before for other in (far, -far)), (row.file, column, value)
        row[column] = value


@pytest.mark.slow
def test_every_verdict_stands_with_its_evidence(copy):
    """The page of verdicts has a line for each claim of a paper's figures, and counts those that are not ours."""

    def counted(text):
        asked = "\n".join(line for line in text.splitlines() if "| ours" not in line)
        return " | ".join(str(asked.count(f"| {verdict} |")) for verdict in get_args(Verdict))

    top, *papers = copy.render("verdicts").split("\n## ")
    assert len(papers) == 5
    for section in papers:
        label, lines = section.split("\n", 1)
        counts = [lines.count(f"| {verdict} |") for verdict in get_args(Verdict)]
        assert sum(counts) == lines.count("\n| ") - 2 > 10
        assert f"[{label}](#{label.lower()}) | {counted(lines)} |" in top
        assert all(line.split(" | ")[4].strip(" |") for line in lines.splitlines() if line.startswith("| "))
    assert f"| all | {counted(''.join(papers))} |" in top


def test_a_claim_is_told_for_how_many_settings_of_our_constants_it_holds(copy):
    times: dict[tuple, dict] = {}
    for row in copy.read("pubsub_vfl/bands_fig3"):
        setting = tuple(row[f"compute.{key}"] for key in ("core_cap", "server_seconds", "batch_latency"))
        times.setdefault(setting, {})[row["algorithm.name"]] = row["running_seconds_to_target"]
    holds = sum(one["vfl"] >= 2 * one["pubsub_vfl"] for one in times.values())
    (line,) = (line for line in copy.claims("pubsub_vfl/fig3").split("\n") if "at most half of VFL's time" in line)
    assert len(times) == 12 and f"; it holds for {holds} of 12 settings of our own constants |" in line
    lines = [*copy.claims("pubsub_vfl/table2").split("\n"), *copy.claims("pubsub_vfl/table3").split("\n")]
    assert all(re.search(r"; it holds for [0-8] of 8 settings of our own constants \|$", line) for line in lines)


def test_a_profile_by_hand(script):
    """Task one: A 2, B 10, C never. Two: B 5, A 100. Nobody solves the third."""
    inf = float("inf")
    tasks = [[("A", 2.0), ("B", 10.0), ("C", inf)], [("B", 5.0), ("A", 100.0)], [("A", inf), ("C", inf)]]
    lines = script.profile(tasks, [1, 5, 20])
    assert [(line["name"], line["tasks"], line["within"]) for line in lines] == [
        ("B", 2, [1, 2, 2]), ("A", 2, [1, 1, 2]), ("C", 1, [0, 0, 0]),
    ]  # fmt: skip
