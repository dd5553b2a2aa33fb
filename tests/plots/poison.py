"""Run folders in which every text is poisoned: what a stranger's folder may hold."""

from __future__ import annotations

import csv
import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from vflbench.results.folder import curve_columns

# As an address, in an attribute, in a script and as markup: in a page that takes it for more than text it sets
# `window.hit`.
MARKUP = (
    "javascript:window.hit=1//{mark}';window.hit=1;alert(1)//'\"><script>window.hit=1</script></script><script>window.hit=1</script>"
    '<img src=x onerror="window.hit=1"><svg onload=window.hit=1></svg><!-- '
    "[a](javascript:window.hit=1) ![b](http://198.51.100.1/c.png) \u2028"
)
# Colours, a window's title, the clipboard and a link by escape sequences; rich's markup; a line that runs backwards;
# formulas; surrogates.
COMMANDS = (
    "=cmd|' /C calc'!A0 "
    "{mark}\x1b[31m\x1b]0;owned\x07\x1b]52;c;aGk=\x07\x9b2J\x08\r[red]x[/red][link=http://a.b]y[/link]\u202e$\\frac{$\x00\ud800"
)

FOLDER_NAME = "<img src=x onerror=window.hit=1>\"'onload='window.hit=1' {mark} javascript:window.hit=1"


def texts(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the texts in what was read of a JSON file are."""
    if isinstance(value, str):
        yield path
    elif isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from texts(item, (*path, key))


def put(value: Any, path: tuple[Any, ...], text: str) -> None:
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = text


def in_header(text: str) -> str:
    """Without what ends a line of a CSV: a curve whose header is two lines is refused."""
    return "".join(text.splitlines())


class Poisoner:
    """Copies of a run with other texts in them; which text is where is told by its mark."""

    def __init__(self, run: Path, root: Path, poison: str) -> None:
        self.run, self.root, self.poison = run, root, poison
        self.seeds = itertools.count(1000)  # apart, or a copy would be left out as another one's double
        self.marks: dict[str, str] = {}  # mark -> what is poisoned by it

    def text(self, what: str) -> str:
        mark = f"m{len(self.marks):04d}m"
        self.marks[mark] = what
        return self.poison.replace("{mark}", mark)

    def copy(self, name: str, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> Path:
        """A copy of the run whose summary and manifest are changed, without the list by which that would be noticed."""
        folder = self.root / name
        shutil.copytree(
            self.run, folder, ignore=shutil.ignore_patterns("files.jsonl", "model", "checkpoint", "*.png", "*.svg")
        )
        summary, manifest = (json.loads((folder / f"{file}.json").read_text()) for file in ("summary", "manifest"))
        summary["seed"] = manifest["config"]["seed"] = next(self.seeds)
        change(summary, manifest)
        for file, content in (("summary", summary), ("manifest", manifest)):
            (folder / f"{file}.json").write_text(json.dumps(content))
        return folder

    def one_by_one(self) -> None:
        """A copy for every text of summary and manifest, in which it alone is poisoned."""
        for place, file in enumerate(("summary", "manifest")):
            for number, path in enumerate(texts(json.loads((self.run / f"{file}.json").read_text()))):
                text = self.text(f"{file}.{'.'.join(map(str, path))}")
                text = in_header(text) if path == ("metric", "name") else text
                folder = self.copy(
                    f"{file}{number}", lambda *both, place=place, path=path, text=text: put(both[place], path, text)
                )
                if path == ("metric", "name"):
                    self.rename_metric(folder, text)
        texts_of_none = {"reason": "budget", "data_variant": "completed"}
        for key, status in texts_of_none.items():
            text = self.text(f"summary.{key}")
            self.copy(key, lambda s, m, key=key, status=status, text=text: s.update({key: text, "status": status}))
        key, value = self.text("a key of the configuration"), self.text("its value")
        for name, other in (("key", value), ("other", 1)):  # a key is shown where runs differ in it
            self.copy(name, lambda s, m, other=other: m["config"]["algorithm"].update({key: other}))
        failed = self.text("a failed run's reason")
        self.copy("failed", lambda s, m: s.update({"status": "failed", "reason": failed}))

    def all_at_once(self) -> Path:
        """A run that is shown, with every text poisoned that does not decide whether it is: the names of parties and
        tags too."""
        decides = {
            "status",
            "data_source",
            "goal",
            "neighbouring",
            "covers",
            "metric_of",
            "compute_clock",
            "timing",
            "accounting",
            "started",
            "ended",
        }

        def change(summary: dict[str, Any], manifest: dict[str, Any]) -> None:
            for content in (summary, manifest):
                for path in list(texts(content)):
                    if path[-1] not in decides:
                        put(content, path, self.text(f"all: {'.'.join(map(str, path))}"))
            summary["reason"] = self.text("all: reason")
            metric = summary["metric"]
            metric["name"] = in_header(metric["name"])
            metric |= {
                "selected": metric["final"],
                "selected_validation": metric["final"],
                "selected_round": summary["rounds"],
            }
            manifest["parties"] = {self.text("all: a party"): {"role": self.text("all: its role")}}
            manifest["versions"][self.text("all: a package")] = "1"
            manifest["data"] = {
                **manifest["data"],
                "note": self.text("all: note"),
                "files": [[self.text("all: a file"), "0" * 64]],
            }

        folder = self.copy(FOLDER_NAME.replace("{mark}", "all"), change)
        self.rename_metric(folder, json.loads((folder / "summary.json").read_text())["metric"]["name"])
        for file in ("ledger", "trace"):
            self.rename_parties(folder / f"{file}.parquet", {"src", "dst", "tag", "party", "peer"})
        words = [f"algorithm={self.text('all: a word of the command')}"]
        (folder / ".hydra" / "overrides.yaml").write_text(yaml.safe_dump(words, allow_unicode=False))
        return folder

    @staticmethod
    def rename_metric(folder: Path, name: str) -> None:
        """A curve by another metric, which is taken on two splits: both have the scores that the last column has."""
        header, *rows = csv.reader((folder / "curve.csv").read_text().splitlines())
        kept = len(curve_columns("")) - 2
        lines = [[*header[:kept], f"val_{name}", f"test_{name}"], *([*row[:kept], row[-1], row[-1]] for row in rows)]
        with (folder / "curve.csv").open("w", newline="", encoding="utf-8", errors="replace") as file:
            csv.writer(file, lineterminator="\n").writerows(lines)

    def rename_parties(self, path: Path, columns: set[str]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pq.read_table(path)
        for place, name in enumerate(table.column_names):
            if name in columns:
                column = table[name].combine_chunks()
                names = [
                    self.text(f"all: {path.stem} {name} {text}").encode(errors="replace").decode()
                    for text in column.dictionary.to_pylist()
                ]
                table = table.set_column(place, name, pa.DictionaryArray.from_arrays(column.indices, pa.array(names)))
        pq.write_table(table, path)
