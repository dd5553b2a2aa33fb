"""The answer in the terminal: at most 25 lines, the answer first."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from vflbench.choosing.formatting import PAGE, scored, spent_words, unfinished
from vflbench.results.texts import human_bytes, in_line

MOST = 25
BEST = {
    "anything": "Best whatever others may see",
    "columns": "Best without sharing raw columns",
    "labels": "Best without sharing raw columns or labels",
    "forms": "Best without sharing columns in any form, or labels",
    "rows": "Best sharing only models and sums",
    "noise": "Best with noise on all that is shared in training",
}


def show(found: Mapping[str, Any], folder: Path, console: Console | None = None) -> None:
    """Write `lines` to `console` (stdout if None)."""
    if console is None:
        console = Console(highlight=False)
    for text, style in lines(found, folder):
        console.print(Text(in_line(text) if text.strip() else "", style), soft_wrap=True)


def lines(found: Mapping[str, Any], folder: Path) -> list[tuple[str, str]]:
    """(text, style) of each line."""
    said: list[tuple[str, str]] = []
    if found["data"]["alarm"]:
        said.append((found["data"]["alarm"], "bold red"))
    said += [(text, "yellow") for text in unfinished(found)]
    said.append((found["sentence"], "bold"))
    row = next((row for row in found["methods"] if row["name"] == found["winner"]), None)
    if row is not None:
        said += [("", ""), (row["command"], "")]
        said += [(text, "") for text in (found["sure"], found["tried"]["words"], found["shipping"]) if text]
        said.append((_about(row, found), ""))
    elif found["closest"]:
        said += [("", ""), (found["closest"]["command"], "")]
    if row is None and found["tried"]["words"]:
        said.append((found["tried"]["words"], ""))
    said += [("", ""), *((text, "") for text in _others(found))]
    said += [(text, "") for text in changes(found)]
    tuning = found["tuning"]
    if tuning["trials"]:
        sent = human_bytes(tuning["bytes"])
        text = f"Tuning: {tuning['trials']} trials, {tuning['pruned']} stopped early; they sent {sent} in all."
        said.append((text, "dim"))
    counts = {"did not enter": len(found["excluded"]), "did not come to confirmation runs": len(found["out"])}
    left = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    if left:
        said.append((f"Left out: {left}; the page says why.", "dim"))
    return [*said[: MOST - 1], (f"Page: {_shown(folder / PAGE)}", "")]


def _about(row: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """Accuracy and privacy of the winner."""
    metric = found["data"]["metric"]
    text = f"Its {metric} on test rows: {scored(row['test'], row['test_sd'])}. Others see: {row['others_see']}."
    if row["guarantee"] is not None:
        text += f" Epsilon {row['epsilon']:.4g} (of {row['guarantee']})."
    return text


def _others(found: Mapping[str, Any]) -> list[str]:
    """The next, and the floor."""
    by_name, said = {row["name"]: row for row in found["methods"]}, []
    for name in found["next"]:
        row = by_name[name]
        part = f"{row['reached']} of {row['of']} seeds"
        said.append(f"Next: {row['label']}, {spent_words(row, 'bytes')}, {spent_words(row, 'seconds')}, {part}")
    floor = {line["name"]: line for line in found["floor"]}
    levels = [f"{line['label']} {_line(line)}" for line in floor.values()]
    return [*said, *([f"To compare: {'; '.join(levels)}"] if levels else [])]


def _line(line: Mapping[str, Any]) -> str:
    level = line["test"] if line["validation"] is None else line["validation"]
    value = None if level is None else f"{level:.4g}"
    sent = human_bytes(line["bytes"]) if line["bytes"] else None
    return ", ".join(filter(None, [value, sent]))


def changes(found: Mapping[str, Any], most: int = 4) -> list[str]:
    """What would change the answer, in words."""
    said = []
    network, by_name = found["map"], {row["name"]: row["label"] for row in found["methods"]}
    left_out = [left["name"] for left in network["left_out"]]
    own = network["cells"][network["you"][0]][network["you"][1]]["winner"] if network["you"] else None
    if own not in (None, found["winner"]):
        said.append(f"Counted in seconds, {by_name[own]} is first on your network.")
    if network["words"]:
        fastest = "; ".join(one["words"] for one in network["words"][:most])
        said.append(f"On another network the fastest is: {fastest}")
    elif network["cells"] and network["you"] and not left_out:
        said.append("At no other latency or bandwidth on the map is another of its methods the fastest.")
    if left_out:
        named = ", ".join(by_name[name] for name in left_out)
        said.append(f"Known on your network only: {named}; the page says why.")
    easier = [one for one in found["targets"] if one["winner"] not in (None, found["winner"])]
    if easier:
        winners = "; ".join(f"{one['label']} up to {one['to']:.4g}" for one in easier[-most:])
        said.append(f"At an easier target: {winners}")
    others = [one for one in found["kinds"] if one["name"] != found["winner"] and one["reached"]]
    for one in others[: most // 2]:
        part = f"{one['reached']} of {one['of']} seeds"
        said.append(f"With another guarantee, not compared: {one['label']}, {part} ({one['guarantee']})")
    said += _by_demand(found["demands"], found["winner"], most)
    if found["unverified"]:
        named = ", ".join(found["unverified"])
        said.append(f"Unverified, so under no privacy requirement: {named} (see the page).")
    return said


def _by_demand(answers: Sequence[Mapping[str, Any]], winner: str | None, most: int) -> list[str]:
    """A line for each privacy requirement under which another method is the best."""
    others = [one for one in answers if one["winner"] != winner and "covers the" not in one["others_may_see"]]
    return [f"{BEST[one['key'].partition('-')[0]]}: {one['label'] or one['why']}" for one in others[:most]]


def _shown(path: Path) -> str:
    path = path.absolute()
    inside = path.is_relative_to(Path.cwd())
    return os.fspath(path.relative_to(Path.cwd()) if inside else path)
