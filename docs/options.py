"""Writes the reference of all options: a page per group, from the comments of `conf/` and the docstrings of the
algorithms."""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path

from vflbench import exposure, registry
from vflbench.config import tuned
from vflbench.config.layers import LINE

ROOT = Path(__file__).resolve().parent.parent
CONF = ROOT / "conf"
ABOUT = {
    "algorithm": "What the parties do.",
    "attack": "What somebody in the federation tries to find out.",
    "broker": "What carries the messages that are published.",
    "codec": "How messages are compressed.",
    "compute": "How long computing takes on the virtual clock.",
    "dataset": "What the parties hold.",
    "engine": "What drives the parties.",
    "logger": "Who is told of a run while it trains.",
    "model": "The network that is trained.",
    "network": "Latency and bandwidth between the parties.",
    "privacy": "The noise that the parties add, and how it is accounted for.",
    "topology": "Which clients exchange messages.",
}


def _cell(text: str) -> str:
    """`text` in a cell of a table."""
    return text.replace("|", "\\|").replace("<", "&lt;")


def described(path: Path) -> tuple[str, list[tuple[str, str, str]]]:
    """The comment at the top of a YAML file, and (key, default, comment) of each of its keys."""
    lines = path.read_text(encoding="utf-8").splitlines()
    top = [line for line in lines if not line.startswith("# @package")]
    about = []
    while top and top[0].startswith("#"):
        about.append(top.pop(0).lstrip("# "))
    keys: list[tuple[str, str, str]] = []
    above: list[str] = []
    for line in lines:
        found = LINE.match(line)
        if (
            not found
            or line.lstrip().startswith("- ")
            or (found["key"] in ("defaults", "name") and not found["indent"])
        ):
            continue
        depth = len(found["indent"]) // 2
        above = [*above[:depth], found["key"]]
        keys.append((".".join(above), (found["value"] or "").strip(), found["comment"] or ""))
    return " ".join(about), keys


def table(keys: list[tuple[str, str, str]], prefix: str = "") -> list[str]:
    """A Markdown table of keys."""
    rows = [f"| `{prefix}{key}` | {f'`{value}`' if value else ''} | {_cell(comment)} |" for key, value, comment in keys]
    return ["| key | default | what it is |", "| --- | --- | --- |", *rows, ""] if rows else []


def algorithm(name: str) -> list[str]:
    """The paper, the pseudo-code and the departures of an algorithm, from its module."""
    entry = registry.algorithm_entries()[name]
    module = ROOT.joinpath(*entry.module.split(".")).with_suffix(".py")
    text = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    file = CONF / "tuned" / f"{name}.yaml"
    found = [entry for entry in (tuned.read(file) if file.is_file() else ()) if "/" not in entry]
    note = (
        [f"Tuned values (`conf/tuned/{name}.yaml`) take the place of these defaults on: {', '.join(found)}.", ""]
        if found
        else []
    )
    return [*note, f"Paper: {entry.info.paper}. Source: `{module.relative_to(ROOT)}`.", "", *markdown(text)]


def markdown(text: str) -> list[str]:
    """A docstring as Markdown: indented blocks are code, and a line before a numbered list is its title."""
    out: list[str] = []
    for block in re.split(r"\n\s*\n", text):
        if all(line.startswith("    ") for line in block.splitlines()):
            out += ["```text", textwrap.dedent(block), "```", ""]
            continue
        pieces = re.split(r"(`[^`]*`)", block)  # code stays as it is
        pieces[::2] = [re.sub(r"([\\*_\[\]{}$#|~<>])", r"\\\1", piece) for piece in pieces[::2]]
        out += [re.sub(r"(?m)^(\S.*)\n(?=1\. )", r"**\1**\n\n", "".join(pieces)), ""]
    return out


def page(group: str) -> str:
    """The page of a group: its options, each with what it is and its keys."""
    out = [
        f"# {group}",
        "",
        f"{ABOUT[group]} Choose one with `{group}=NAME`; set its keys with `{group}.KEY=VALUE`.",
        "",
    ]
    for path in sorted((CONF / group).glob("*.yaml")):
        about, keys = described(path)
        out += [f"## {path.stem}", "", _cell(about), "", *table(keys, f"{group}.")]
        if group == "algorithm":
            out += algorithm(path.stem)
    return "\n".join(out)


def learnt() -> str:
    """The page of who learns what under every algorithm, with its defaults and without a mechanism."""
    heads = ("observer", "subject", "kind", "form", "how, phase: tags, times", "exact", "proof: note")
    out = [
        "# Who learns what, by method",
        "",
        "These are the defaults, without privacy. [Who learns what](../../concepts/exposure.md) explains the columns.",
        "",
    ]
    for name in registry.algorithms():
        keys = vars(registry.option_config("algorithm", name)())
        found = exposure.table(name, keys, {})
        rows = [[_joined(entry, head) for head in heads] for entry in found["entries"]]
        out += [f"## {name}", "", *([found["note"], ""] if found["note"] else [])]
        out += (
            [f"| {' | '.join(line)} |" for line in (heads, ["---"] * len(heads), *rows)]
            if rows
            else ["It sends nothing."]
        )
        out.append("")
    return "\n".join(out)


def _joined(entry: dict[str, object], head: str) -> str:
    """The cell of a column that has several values of an entry, with what its head has between them."""
    parts = re.split(r"([:,] )", head)
    found = ""
    for key, before in zip(parts[::2], ["", *parts[1::2]], strict=True):
        words = _words(entry[key])
        if words != found:  # what is there from the setup is so in the phase of that name
            found += (before if found and words else "") + words
    return found


def _words(value: object) -> str:
    """A cell of the table of who learns what."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else "" if value is None else _cell(str(value))


def write(folder: Path) -> None:
    """Write `folder`/options/: a page per group, one of the keys that every run has, and one of who learns what."""
    place = folder / "options"
    place.mkdir(parents=True, exist_ok=True)
    pages = {group: page(group) for group in ABOUT}
    pages["exposure"] = learnt()
    keys = [key for key in described(CONF / "config.yaml")[1] if not key[0].startswith("hydra")]
    pages["run"] = "\n".join(["# Keys of every run", "", "Set them with `KEY=VALUE`.", "", *table(keys)])
    for name, text in pages.items():
        file = place / f"{name}.md"
        if not file.is_file() or file.read_text(encoding="utf-8") != text:  # an unchanged page is not built anew
            file.write_text(text, encoding="utf-8")
