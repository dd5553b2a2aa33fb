"""The answer's page: one file that needs nothing else."""

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from vflbench.choosing import page_figures, terminal
from vflbench.choosing.commands import choose_command
from vflbench.choosing.formatting import scored, spent_words, unfinished
from vflbench.plots.report_html import page_template
from vflbench.results import texts

TEMPLATES = Path(__file__).parent / "answer_page"


def to_html(found: Mapping[str, Any], folder: Path) -> str:
    """The page of an answer in `folder`, from which its links go."""
    looks = page_figures.looks(found)
    places = {name: place for place, name in enumerate(looks)}
    css = (TEMPLATES / "answer.css").read_text(encoding="utf-8")
    css += "".join(f"\n.m{place} {{ --method: {look['color']}; }}" for place, look in enumerate(looks.values()))
    drawn = page_figures.timeline(found)
    winner = next((row for row in found["methods"] if row["name"] == found["winner"]), None)
    return page_template(TEMPLATES / "answer.html").render(
        css=css,
        policy=texts.content_policy(css),
        found=found,
        winner=winner,
        command=winner["command"] if winner else (found["closest"] or {}).get("command"),
        changes=terminal.changes(found, most=20),
        places=places,
        labels={row["name"]: row["label"] for row in found["methods"]},
        fronts=[(name, _picture(svg)) for name, svg in page_figures.fronts(found)],
        timeline=drawn and _picture(drawn),
        asked=choose_command(found["question"]),
        so_far=unfinished(found),
        scored=scored,
        spent=spent_words,
        human_bytes=texts.human_bytes,
        latency=lambda value: f"{value:g} ms",
        bandwidth=_bandwidth,
        link=lambda path: quote(path) if not Path(path).is_absolute() else Path(path).as_uri(),
        outcome=lambda trial: page_figures.MEANINGS[page_figures.outcome(trial)],
    )


def _picture(svg: str) -> str:
    """As an address, which neither runs a script nor mixes its names with those of other pictures."""
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"


def _bandwidth(value: float | None) -> str:
    if value is None:
        return "no limit"
    return f"{value / 1000:g} Gbit/s" if value >= 1000 else f"{value:g} Mbit/s"
