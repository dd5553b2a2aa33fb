"""A figure's page in Markdown and HTML, and the index of all pages.

A page has the picture, the paper's numbers beside ours, and every claim with its verdict.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markdown_it import MarkdownIt

from vflbench.papers.claims import Judged, Row, mean_and_spread, reason, select, setting_of
from vflbench.papers.definition import Definition, Numbers
from vflbench.papers.measured import columns
from vflbench.plots.report_html import page_template
from vflbench.plots.style import PAPERS, dataset_label
from vflbench.plots.values import line_label, named
from vflbench.results.folder import atomic_write, write_json
from vflbench.results.reader import natural
from vflbench.results.texts import content_policy, in_line, markdown_table
from vflbench.results.texts import markdown as md
from vflbench.types import VflbenchError

PAGES = Path(__file__).parent / "pages"
CLASSES = {"holds": "holds", "does not hold": "not", "follows from the model": "model", "not testable": "open"}


def write(
    folder: Path,
    definition: Definition,
    table: Sequence[Row],
    judged: Sequence[Judged],
    pictures: Sequence[str],
    facts: Mapping[str, Any],
) -> None:
    """Write `page.md`, `page.html` and, for the index, `result.json`.

    Parameters
    ----------
    table : the measured settings (measured.table).
    pictures : file stems, in order.
    facts : scale, command, data, runs, failures, wall_seconds, versions: how it was made.
    """
    text = markdown(definition, table, judged, pictures, facts)
    atomic_write(folder / "page.md", text)
    atomic_write(folder / "page.html", _document("page.html", title=heading(definition), body=to_html(text)))
    claims = [{"claim": j.claim.claim, "paper": j.claim.paper, "verdict": j.verdict, "why": reason(j)} for j in judged]
    about = {
        "name": definition.name,
        "heading": heading(definition),
        "title": definition.title,
        "picture": f"{pictures[0]}.png",
    }
    write_json(folder / "result.json", {**about, "claims": claims, **facts})


def heading(definition: Definition) -> str:
    """Paper and source: `GLASU, Table 3`."""
    return f"{PAPERS.get(folder := definition.name.partition('/')[0], folder)}, {definition.source}"


def markdown(
    definition: Definition,
    table: Sequence[Row],
    judged: Sequence[Judged],
    pictures: Sequence[str],
    facts: Mapping[str, Any],
) -> str:
    """The page as Markdown."""
    parts = [f"# {md(heading(definition))}: {md(definition.title)}"]
    if facts["warning"]:
        parts.append(f"**{md(facts['warning'])}**")
    for picture, name in zip(definition.pictures, pictures, strict=True):
        parts += [f"### {md(picture.title)}"] if picture.title else []
        parts.append(f"![{md(picture.title or definition.title)}]({name}.png)")
    about = [f"Scale: {facts['scale']}. Data: {facts['data']}."]
    about += [f"Target: {_goals(definition.target)}."] if definition.target else []
    about += [f"Easier target {number}: {_goals(goals)}." for number, goals in enumerate(definition.easier, 1)]
    about += [f"Scaled down from the paper: {definition.scaled}"] if definition.scaled else []
    about += [f"Tuning: {definition.tuning}"] if definition.tuning else []
    parts.append("\n".join(f"- {md(line)}" for line in about))
    if judged:
        rows = [[j.claim.claim, j.claim.paper or "-", j.verdict, reason(j)] for j in judged]
        parts += ["## What the paper claims", _table(["claim", "the paper", "verdict", "because"], rows)]
    beside = [row for numbers in definition.numbers for row in _beside(numbers, table, definition)]
    if beside:
        parts += [
            "## The paper's numbers beside ours",
            _table(["setting", "what", "the paper", "ours", "seeds"], beside),
        ]
        parts.append(
            md(
                "The paper's numbers: "
                + "; ".join(dict.fromkeys(numbers.provenance for numbers in definition.numbers))
                + "."
            )
        )
    if table:
        parts += ["## Measured", _measured(definition, table)]
        known = columns(definition.columns)
        parts += ["Means over seeds, ± one sample standard deviation; in brackets of how many, where not of all."]
        parts += ["\n".join(f"- {md(f'{column}: {known[column]}')}" for column in _shown(definition, table))]
    made = [
        f"    {in_line(facts['command'])}",
        "",
        f"{facts['runs']}; {facts['wall_seconds'] / 60:.1f} minutes of training in all.",
    ]
    parts += ["## How it was made", "\n".join(made)]
    if facts["failures"]:
        parts += ["Runs that are not in it:", "\n".join(f"- {md(line)}" for line in facts["failures"])]
    return "\n\n".join(parts) + "\n"


def _goals(targets: Mapping[str, Any]) -> str:
    """The targets as text: `accuracy 0.8 (Cora), 0.82 (PubMed)`."""
    goals = []
    for metric, value in targets.items():
        each = (
            [f"{goal} ({dataset_label(name)})" for name, goal in value.items()]
            if isinstance(value, Mapping)
            else [str(value)]
        )
        goals.append(f"{metric.replace('_', ' ')} {', '.join(each)}")
    return "; ".join(goals)


def _seeds(row: Row) -> str:
    """The number of seeds, and how many diverged or are missing."""
    notes = [f"{row['diverged']} diverged"] if row["diverged"] else []
    notes += [f"{len(row['missing'])} missing"] if row["missing"] else []
    return ", ".join([str(row["seeds"]), *notes])


def _beside(numbers: Numbers, table: Sequence[Row], definition: Definition) -> list[list[str]]:
    rows = []
    for number in numbers.rows():
        setting = setting_of(number)
        own = select(table, setting)
        ours, seeds = "not run", ""
        if len(own) == 1:
            ours, seeds = mean_and_spread(own[0], numbers.column), _seeds(own[0])
        elif len(own) > 1:
            ours = "several settings"
        theirs = mean_and_spread({"": number["mean"], "_sd": math.nan if number["sd"] is None else number["sd"]}, "")
        rows.append([line_label(setting, list(setting), definition.names), numbers.column, theirs, ours, seeds])
    return rows


def _shown(definition: Definition, table: Sequence[Row]) -> list[str]:
    """The columns that the page shows; all others are only in table.csv."""
    about = {*definition.columns, "selected", "megabytes", "communication_seconds"}
    return [
        column
        for column in columns(definition.columns)
        if column in about and any(row[column] == row[column] for row in table)
    ]


def _measured(definition: Definition, table: Sequence[Row]) -> str:
    shown = _shown(definition, table)
    rows = []
    for row in table:
        rows.append(
            [definition.names.get(key, {}).get(str(row[key])) or _plain(key, row[key]) for key in definition.keys]
            + [_seeds(row)]
        )
        rows[-1] += [mean_and_spread(row, column) for column in shown]
    heads = (key.removesuffix(".name").rpartition(".")[2].replace("_", " ") for key in definition.keys)
    return _table([*heads, "seeds", *shown], rows)


def _plain(key: str, value: Any) -> str:
    """A cell in the column of its key."""
    return (named(key, value) or "-") if key.endswith(".name") else str(value)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(markdown_table(heads, rows, {"verdict": lambda verdict: f"**{verdict}**"}))


def to_html(text: str) -> str:
    """Markdown as HTML, with verdicts in colour."""
    found: str = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
    for verdict, name in CLASSES.items():
        found = found.replace(f"<strong>{verdict}</strong>", f'<span class="{name}">{verdict}</span>')
    return found


def _document(template: str, **values: Any) -> str:
    """A whole HTML document, which runs nothing and loads only pictures beside it."""
    css = (PAGES / "page.css").read_text(encoding="utf-8")
    return page_template(PAGES / template).render(css=css, policy=content_policy(css, images="'self' file:"), **values)


def write_index(folder: Path) -> Path:
    """Write `index.html` of all figures below `folder`: their pictures, and every claim with its verdict.

    Raises
    ------
    VflbenchError : a figure's `result.json` is not as `write` wrote it, or the index cannot be written.
    """
    paths = sorted(folder.glob("*/*/result.json"), key=lambda path: natural(str(path)))
    results = [_result(path) | {"link": quote(path.parent.relative_to(folder).as_posix())} for path in paths]
    counts = {
        verdict: sum(claim["verdict"] == verdict for result in results for claim in result["claims"])
        for verdict in CLASSES
    }
    path = folder / "index.html"
    atomic_write(
        path, _document("index.html", title="The papers' figures", results=results, counts=counts, classes=CLASSES)
    )
    return path


def _result(path: Path) -> dict[str, Any]:
    """The content of a `result.json`, checked to have the form that `write` gives it."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        texts = [found[key] for key in ("heading", "title", "picture", "scale", "data")]
        texts += [claim[key] for claim in found["claims"] for key in ("claim", "paper", "verdict", "why")]
        whole = all(isinstance(text, str) for text in texts) and all(
            claim["verdict"] in CLASSES for claim in found["claims"]
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        whole = False
    if not whole or not re.fullmatch(r"[\w-]+\.png", found["picture"]):
        raise VflbenchError(f"{path} is no figure's result: draw the figure again, or remove its folder")
    result: dict[str, Any] = found
    return result
