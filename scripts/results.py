"""The pages docs/results/<paper>.md, made of their templates (<paper>.md.j2) and of the measured CSVs in
docs/results/<paper>/.

    python scripts/results.py             # writes the pages
    python scripts/results.py --check     # writes nothing; exit code 1 where a page is out of date
    python scripts/results.py --picture   # draws docs/front.svg and docs/front.png from docs/results/glasu/front.csv
    python scripts/results.py --front FOLDER ...   # writes that CSV, of the runs in these folders

In a template, `row('mtcd/fig2', algorithm='stcd', topology='path')` is the one line of docs/results/mtcd/fig2.csv with
these keys, `rows` all of them; `row(...).selected` is a number of it and `pm(row(...), 'selected')` the same with its
spread over seeds. `check(condition, text)` stops the rendering where what a sentence says is no longer true;
`claims('mtcd/fig2')` has the figure's claims with their verdicts, by `vflbench/papers/claims.py`.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import functools
import math
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, get_args

import jinja2
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from vflbench.papers import definition, measured
from vflbench.papers.claims import CLOSELY, Claim, Verdict, judge, select
from vflbench.plots import demands
from vflbench.plots.style import PALETTE, QUIET, RC, look
from vflbench.results import reader
from vflbench.results.texts import as_text

ROOT = Path(__file__).resolve().parent.parent
# What a claim's numbers are, where measured.COLUMNS has more words.
UNITS = {
    "selected": "test metric",
    "final": "test metric at the end",
    "excess": "rise of the test error",
    "cost": "weighted cost, MB",
}


figure_file = functools.cache(definition.load)  # what conf/figure/<name>.yaml says


class ResultsError(Exception):
    """What a template asks for is not in the CSVs, or is no longer true."""


class Row(dict[str, Any]):
    """A line of a CSV: column -> number or text. A cell that is not there is an error that names the file."""

    file = ""

    def __getitem__(self, column: str) -> Any:
        if (value := self.get(column)) is None:
            raise ResultsError(f"{self.file}: no value in column {column!r}; there are {', '.join(self)}")
        return value


class Pages:
    """The templates of a folder, and the CSVs in its subfolders."""

    def __init__(self, folder: Path = ROOT / "docs" / "results") -> None:
        self.folder = folder
        loader = jinja2.FileSystemLoader(folder)
        self.jinja = jinja2.Environment(loader=loader, undefined=jinja2.StrictUndefined, extensions=["jinja2.ext.do"])
        self.jinja.trim_blocks = self.jinja.lstrip_blocks = self.jinja.keep_trailing_newline = True
        self.jinja.filters |= {"fixed": fixed, "short": short}
        self.jinja.globals |= {
            "row": self.row,
            "rows": self.rows,
            "claims": self.claims,
            "label": lambda name: look(name).label,
            "discloses": lambda name, **keys: seen(name, keys).to_whom,
            "shows": lambda name, **keys: seen(name, keys).clear,
            "ladder": demands.LADDER,
        }
        functions = (pm, paper, profile, check, tally, tallied, split, priced, cheapest)
        self.jinja.globals |= {function.__name__: function for function in functions} | {"inf": math.inf}
        self.read = functools.cache(self._read)

    def render(self, name: str) -> str:
        return re.sub(r"\n{3,}", "\n\n", self.jinja.get_template(f"{name}.md.j2").render())

    def changed(self) -> dict[Path, str]:
        """The pages that are not what their templates and the CSVs say, and what they should be."""
        names = [path.name.removesuffix(".md.j2") for path in sorted(self.folder.glob("*.md.j2"))]
        found = {self.folder / f"{name}.md": self.render(name) for name in names}
        return {
            page: text for page, text in found.items() if not page.exists() or page.read_text(encoding="utf-8") != text
        }

    def _read(self, name: str) -> list[Row]:
        with (self.folder / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            found = [Row({column: _value(text) for column, text in line.items()}) for line in csv.DictReader(file)]
        for row in found:
            row.file = f"{name}.csv"
        return found

    def rows(self, name: str, **where: Any) -> list[Row]:
        """The lines with these keys; `hops=2` means algorithm.hops, `algorithm` algorithm.name."""
        found = self.read(name)
        for key, wanted in where.items():
            column = full(f"{name}.csv", key, found[0])
            found = [row for row in found if as_text(row.get(column)) == as_text(wanted)]
            if not found:
                raise ResultsError(f"{name}.csv: no row with {column}={wanted} of {where}")
        return found

    def row(self, name: str, **where: Any) -> Row:
        found = self.rows(name, **where)
        if len(found) != 1:
            raise ResultsError(f"{name}.csv: {len(found)} rows with {where}, not one")
        return found[0]

    def claims(self, figure: str, table: Iterable[Row] | None = None, **constant: Any) -> str:
        """Lines of a table: where in the paper, each claim of the figure, the paper's number, the verdict and what it
        rests on.

        `table` in place of the figure's own CSV; `constant`: keys that the CSV lacks, `network__name='us_uk'`.
        """
        known = {key.replace("__", "."): value for key, value in constant.items()}
        about = figure_file(figure)
        lines = [known | dict(row) for row in (self.read(figure) if table is None else table)]
        for place, line in enumerate(lines):  # of which seeds a target was reached by is told, where not by all
            reached, seeds = int(line.get("reached") or 0), int(line.get("seeds") or 0)
            never = {column: value for column, value in line.items() if value == math.inf}
            line["by_seed"] = {
                (place, n): dict.fromkeys(never, math.inf if n >= reached else 0.0)
                for n in range(seeds if never else 0)
            }
            line |= {column: math.nan for column in line if line[column] is None and column not in about.keys}
        found = []
        for claim in about.claims:
            numbers = [number for part in about.numbers if part.column == claim.column for number in part.rows()]
            judged = judge(claim, lines, numbers, "", about.names)
            unit = UNITS.get(claim.column, measured.columns([claim.column])[claim.column])
            metrics = {line.get("metric", "metric") for line in select(lines, claim.where)}
            unit = unit.replace(
                "metric",
                {"rmse": "RMSE", "auroc": "AUROC"}.get(*metrics, "accuracy") if len(metrics) == 1 else "metric",
            )
            parts = judged.why.split("; ")
            why = "; ".join(parts if len(parts) < 4 else [parts[0], "...", parts[-1]]).replace("_", " ")
            why += f" ({unit})" if any(map(str.isdigit, why)) and claim.check != "untestable" else ""
            why += f" ({CLOSELY})" if judged.close else ""
            why += self.over_band(claim, figure) if claim.band else ""
            cells = (about.source, claim.claim, str(claim.paper), judged.verdict, why)
            found.append("| " + " | ".join(text.replace("|", "/") for text in cells) + " |")
        return "\n".join(found)

    def over_band(self, claim: Claim, figure: str) -> str:
        """For how many settings of the constants that are ours a claim holds."""
        constants = [key for key in figure_file(claim.band).keys if key not in figure_file(figure).keys]
        settings: dict[tuple[Any, ...], list[Row]] = {}
        for row in self.read(claim.band):
            settings.setdefault(tuple(row[key] for key in constants), []).append(row)
        plain = dataclasses.replace(claim, model="")
        verdicts = [judge(plain, lines, [], "", {}).verdict for lines in settings.values()]
        check("not testable" not in verdicts, f"{claim.band} has all runs of {claim.claim!r}")
        return f"; it holds for {verdicts.count('holds')} of {len(verdicts)} settings of our own constants"


def seen(name: str, keys: dict[str, Any]) -> demands.Seen:
    """What a method shows others; a key that its CSV lacks has its default."""
    return demands.of_method(name, {key: value for key, value in keys.items() if value is not None})


def full(where: str, key: str, columns: Iterable[str]) -> str:
    """The column that a short key means."""
    found = [column for column in columns if column in (key, f"{key}.name") or column.rpartition(".")[2] == key]
    if len(found) != 1:
        raise ResultsError(f"{where}: no single column for {key!r}; there are {', '.join(columns)}")
    return found[0]


def paper(figure: str, column: str, **where: Any) -> float:
    """The paper's own number, from conf/figure/<figure>.yaml."""
    numbers = [number for part in figure_file(figure).numbers if part.column == column for number in part.rows()]
    found = [
        n for n in numbers if all(as_text(n[full(figure, key, n)]) == as_text(value) for key, value in where.items())
    ]
    if len(found) != 1:
        raise ResultsError(
            f"conf/figure/{figure}.yaml: {len(found)} numbers of the paper for {column} with {where}, not one"
        )
    return float(found[0]["mean"])


def _value(text: str) -> Any:
    """A cell: None, True, False, a number (whole ones as int) or text, without the apostrophe that keeps it from being
    a formula."""
    text = text.removeprefix("'")
    if text in ("", "True", "False"):
        return {"": None, "True": True, "False": False}[text]
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() else number


def fixed(value: float, digits: int = 0) -> str:
    if not math.isfinite(value):
        raise ResultsError(f"{value} is not a number to be shown")
    return f"{value:,.{digits}f}"


def short(value: float) -> str:
    """Three digits, of large numbers all before the point: 0.0301, 5.99, 75.1, 2,477."""
    return fixed(value, max(0, 2 - math.floor(math.log10(abs(value))))) if value else "0"


def profile(tasks: Sequence[Sequence[tuple[str, float]]], factors: Sequence[float]) -> list[dict[str, Any]]:
    """Performance profiles (Dolan and Moré 2002): how often a method costs at most so many times the least.

    Parameters
    ----------
    tasks : of each, the methods that ran and what each cost; inf where it did not get there.
    factors : of the least cost of a task.

    Returns
    -------
    Of each method its `name`, on how many `tasks` it ran, and `within`: how many of these, for each factor. First is
    the largest mean share. A task that no method solves is left out.
    """
    found: dict[str, list[float]] = {}
    for costs in tasks:
        least = min(cost for _, cost in costs)
        for name, cost in costs if math.isfinite(least) else ():
            found.setdefault(name, []).append(cost / least)
    lines: list[dict[str, Any]] = [
        {"name": name, "tasks": len(times), "within": [sum(time <= factor for time in times) for factor in factors]}
        for name, times in found.items()
    ]
    return sorted(lines, key=lambda line: (-sum(line["within"]) / line["tasks"], line["name"]))


def pm(row: Row, column: str, digits: int = 1, times: float = 1.0) -> str:
    """Mean ± standard deviation over seeds; of one seed, the value alone."""
    spread = "" if row.get(f"{column}_sd") is None else f" ± {fixed(row[f'{column}_sd'] * times, digits)}"
    return fixed(row[column] * times, digits) + spread


def check(condition: bool, sentence: str) -> str:
    if not condition:
        raise ResultsError(f"no longer true: {sentence}")
    return ""


def tallied(claims: str, ours: bool = False) -> list[int]:
    """How many claims in the lines of a table have each verdict, in the order of `Verdict`; and are close.

    Those of the papers, or ours: of a figure of ours, or with a `paper` that begins so.
    """
    lines = [line.split(" | ") for line in claims.splitlines() if line.startswith("| ")]
    claims = "\n".join(" | ".join(line) for line in lines if (line[0] == "| ours" or line[2][:4] == "ours") == ours)
    return [*(claims.count(f"| {verdict} |") for verdict in get_args(Verdict)), claims.count(CLOSELY)]


def tally(claims: str) -> str:
    """How many of the papers' claims in the lines of a table hold, and how many verdicts are close."""
    holds, fails, _, _, close = tallied(claims)
    return f"{holds} of the {holds + fails} claims that can be tested here hold; {close} of these verdicts are close"


RATIO = 10  # MTCD's runs: network.ratio, of which their column cost_to_target is


def split(row: Row) -> tuple[float, float]:
    """MB to the target (client-server, client-client): cost = RATIO x client-server + client-client."""
    server = (row["cost_to_target"] - row["megabytes_to_target"]) / (RATIO - 1)
    return server, row["megabytes_to_target"] - server


def priced(rows: Iterable[Row], ratios: Sequence[float]) -> list[Row]:
    """The rows at each price of a byte client-server over one client-client."""
    costs = [(row, r, r * split(row)[0] + split(row)[1]) for row in rows for r in ratios]
    return [
        Row(row | {"network.ratio": r, "cost_to_target": cost, "cost_to_target_sd": None}) for row, r, cost in costs
    ]


def cheapest(rows: Sequence[Row]) -> list[tuple[float, Row]]:
    """(r, row): from this price on, row is the cheapest, up to the next one's."""
    server, between = zip(*map(split, rows), strict=True)
    best = min(range(len(rows)), key=lambda n: (between[n], server[n]))
    found = [(0.0, rows[best])]
    while later := [
        ((between[n] - between[best]) / (server[best] - server[n]), n)
        for n in range(len(rows))
        if server[n] < server[best]
    ]:
        r, best = min(later)
        found.append((r, rows[best]))
    return found


def front(folders: Sequence[Path], path: Path) -> None:
    """Write the points of the front picture: MB sent, and the test accuracy at the best validation so far, means over
    the runs' seeds.

    Beside them, in front_targets.csv, what it took to a validation accuracy of 80 %.
    """
    keys, curves = ["algorithm.name", "algorithm.aggregations"], []
    runs = [run for folder in folders for run in reader.find(folder)]
    for run in runs:
        best = [run.curve["val_accuracy"].iloc[: n + 1].argmax() for n in range(len(run.curve))]
        accuracy = run.curve["test_accuracy"].to_numpy()[best]
        curves.append(
            run.curve.assign(megabytes=run.curve["bytes"] / 1e6, accuracy=accuracy, **measured.setting(run, keys))
        )
    columns = {"seeds": ("round", "size"), "megabytes": ("megabytes", "mean"), "accuracy": ("accuracy", "mean")}
    points = pd.concat(curves).groupby([*keys, "iterations"]).agg(**columns, accuracy_sd=("accuracy", "std"))
    points.to_csv(path, float_format="%.6g", lineterminator="\n")
    table = (
        pd.DataFrame(measured.table(runs, keys, {"accuracy": 0.8}))
        .drop(columns=["missing", "by_seed"])
        .dropna(axis=1, how="all")
    )
    table.to_csv(path.with_name("front_targets.csv"), index=False, float_format="%.6g", lineterminator="\n")


def picture(pages: Pages, stem: Path) -> None:
    """Draw the front picture, `stem`.svg and .png: accuracy against MB, a line per method with its name beside it."""
    lines = [  # algorithm, aggregations, its name, where that stands and which way it goes
        ("glasu", 1, "GLASU,\none exchange", (1.15, 68.5), "left"),
        ("glasu", 2, "GLASU,\ntwo exchanges", (7, 61), "right"),
        ("glasu_exact", 2, "exact\ngradients", (28.5, 61.5), "left"),
        ("simulated_centralized", "-", "exchange after\nevery layer", (150, 68), "left"),
    ]
    targets = {line: pages.row("glasu/front_targets", algorithm=line[0], aggregations=line[1]) for line in lines}
    ratio = targets[lines[3]]["megabytes_to_target"] / targets[lines[1]]["megabytes_to_target"]
    with plt.rc_context(RC | {"font.size": 12, "svg.fonttype": "path"}):
        figure, axes = plt.subplots(figsize=(8, 4.6), layout="constrained")
        for (line, target), color in zip(targets.items(), PALETTE, strict=False):
            rows = pages.rows("glasu/front", algorithm=line[0], aggregations=line[1])
            x, y = [row["megabytes"] for row in rows], [100 * row["accuracy"] for row in rows]
            axes.plot(x, y, color=color, linewidth=2.4)
            axes.annotate(line[2], line[3], color=color, va="center", ha=line[4])
            place = (target["megabytes_to_target"], np.interp(target["megabytes_to_target"], x, y))
            axes.plot(*place, "o", color=color, markersize=9)
            beside = {"xytext": (-7, 3), "ha": "right"} if line[0] == "glasu" else {"xytext": (7, -14), "ha": "left"}
            axes.annotate(
                f"{short(place[0])} MB", place, textcoords="offset points", color=color, fontweight="bold", **beside
            )
        for algorithm, name in (
            ("centralized_gnn", "one party with all data"),
            ("standalone_gnn", "every client alone"),
        ):
            level = 100 * pages.row("glasu/table2", algorithm=algorithm)["selected"]
            axes.axhline(level, color=QUIET, linestyle="--", linewidth=1.2)
            axes.annotate(name, (0.17, level), (0, 3), textcoords="offset points", color=QUIET)
        axes.set_title(
            f"GLASU needs {ratio:.0f} times less communication than an exchange after every layer",
            loc="left",
            fontsize=13,
        )
        axes.set(xscale="log", xlim=(0.16, 4000), ylim=(58, 87), ylabel="test accuracy, %")
        axes.set_xlabel("sent, MB (dots: a validation accuracy of 80 % is reached)")
        about = f"Cora (real), three clients,\nmean of {rows[0]['seeds']} seeds"
        axes.annotate(about, (0.99, 0.03), xycoords="axes fraction", color=QUIET, ha="right", fontsize=10)
        axes.xaxis.set_major_formatter(lambda x, _: f"{x:,g}")
        figure.savefig(stem.with_suffix(".svg"), metadata={"Date": None})
        figure.savefig(stem.with_suffix(".png"), dpi=120)
        plt.close(figure)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--picture", action="store_true")
    parser.add_argument("--front", nargs="+", type=Path, metavar="FOLDER")
    options = parser.parse_args(arguments)
    if options.front:
        front(options.front, ROOT / "docs" / "results" / "glasu" / "front.csv")
    if options.front or options.picture:
        picture(Pages(), ROOT / "docs" / "front")
        return 0
    changed = Pages().changed()
    for page, text in changed.items():
        if options.check:
            print(f"{page} is not what its template and the CSVs say: python scripts/results.py", file=sys.stderr)
        else:
            page.write_text(text, encoding="utf-8")
    return int(options.check and bool(changed))


if __name__ == "__main__":
    sys.exit(main())
