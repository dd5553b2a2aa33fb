"""The pages that people read: short sentences, and links that lead somewhere. `make docs` checks the rest."""

from __future__ import annotations

import re
from pathlib import Path

from markdown_it import MarkdownIt

from tests.every import for_each

ROOT = Path(__file__).resolve().parents[2]
TOP = [
    ROOT / name
    for name in (
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "examples/README.md",
        "conf/README.md",
    )
]
PAGES = [
    *TOP,
    *sorted(p for p in (ROOT / "docs").rglob("*.md") if not {"_build", "options"} & set(p.relative_to(ROOT).parts)),
]
WORDS = 25


def sentences(text: str) -> list[str]:
    """The sentences of a page's paragraphs and lists; tables and code have none."""
    found: list[str] = []
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    within = False
    for token in tokens:
        within = token.type == "table_open" or (within and token.type != "table_close")
        if token.type == "inline" and not within:
            plain = "".join(
                " " if t.type == "softbreak" else "X" if t.type == "code_inline" else t.content
                for t in token.children or []
            )
            found += re.split(r"(?<=[.!?:;])\s+", plain)
    return found


@for_each("page", PAGES)
def test_sentences_are_short(page: Path) -> None:
    long = [s for s in sentences(page.read_text(encoding="utf-8")) if len(re.findall(r"[\w'-]+", s)) > WORDS]
    assert not long, "\n".join(long)


@for_each("page", TOP)
def test_links_lead_somewhere(page: Path) -> None:
    """Those of the site are checked where it is built."""
    links = [link for link in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")) if "://" not in link]
    missing = [link for link in links if not (page.parent / link).exists() and "options/" not in link]
    assert not missing


def test_the_readme_is_two_screens() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 100
