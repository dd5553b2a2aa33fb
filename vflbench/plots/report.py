"""`vflbench report`: runs side by side in one self-contained HTML file, and their table as CSV and Markdown."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vflbench.plots import baseline_lines, demands, life, running_time, style
from vflbench.results import pricing, selection, texts
from vflbench.results.compare import middle
from vflbench.results.folder import score_of
from vflbench.results.network import network_label
from vflbench.results.reader import OWN, Run
from vflbench.results.selection import Setting
from vflbench.results.texts import data_warning, human_bytes, markdown
from vflbench.types import TRAINING_METRIC, VflbenchError

COMMAND = "run it again"  # the column of commands
CHOICE_HEADS = ("group", "selected setting", "validation", "test", COMMAND, "why")


@dataclass
class Panel:
    """Runs on one data set with one metric, which share a picture."""

    settings: list[Setting]
    target: float | None
    target_why: str
    choices: list[selection.Choice]
    apart: str = ""  # what tells it from another panel of the same data set and metric

    @property
    def runs(self) -> list[Run]:
        """The runs of all settings."""
        return [run for setting in self.settings for run in setting.runs]

    @property
    def title(self) -> str:
        """Data set and metric, and what tells it from another panel of both."""
        s = self.settings[0].runs[0].summary
        title = f"{style.dataset_label(s['dataset'], s['data_variant'])}, {s['metric']['name']}"
        return f"{title} ({self.apart})" if self.apart else title

    @property
    def alarm(self) -> str | None:
        """A warning where the data are made up, not all there, or a column gives the label away."""
        s = self.settings[0].runs[0].summary
        name = style.dataset_label(s["dataset"], s["data_variant"])
        return data_warning(s, name, "Nothing on this page says anything about real data.")


@dataclass
class Report:
    """All that is shown, read once."""

    panels: list[Panel]
    priced: dict[Path, pricing.Priced] = field(default_factory=dict)  # by run folder
    traffic: dict[Path, pricing.Traffic | None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    time_dependent: set[Path] = field(default_factory=set)  # folders of runs whose course depends on time
    charged: pricing.Charged = field(default_factory=pricing.Charged)  # phases beside training
    noise: float = demands.NOISE  # the epsilon up to which noise hides what is sent


def read(
    paths: Sequence[str | Path], time_dependent: Mapping[str, bool], charged: pricing.Charged | None = None
) -> Report:
    """The runs at or below `paths`.

    `time_dependent`: for every known algorithm, whether it depends on time. Runs of such an algorithm, or of an unknown
    one, are not re-priced. `charged`: the phases that "to target" has.

    Raises
    ------
    VflbenchError : no run can be shown; the message says why.
    """
    found = selection.collect(paths)
    if not found.runs:
        raise VflbenchError("\n".join(["none of the runs can be shown:", *found.notes]))
    report = Report([], notes=found.notes, charged=charged or pricing.Charged())
    for runs in selection.unlike(found.runs):
        settings = selection.settings(runs)
        report.panels.append(Panel(settings, *selection.target(settings), selection.choose(settings)))
        older = [run for run in runs if "phases" not in run.summary]
        for run in older if len(older) < len(runs) else ():
            report.notes.append(f"{run.folder}: an older vflbench made it; only others are charged for predictions")
    titles = Counter(panel.title for panel in report.panels)
    for title in [title for title, count in titles.items() if count > 1]:
        alike = [panel for panel in report.panels if panel.title == title]
        for panel, apart in zip(alike, selection.apart([panel.runs for panel in alike]), strict=True):
            panel.apart = apart
    for run in found.runs:
        if "phases" in run.summary and run.summary["phases"].get("predict") is None:
            report.notes.append(f"{run.folder}: what its predictions cost is not known, and not charged")
        if time_dependent.get(run.summary["algorithm"]):
            report.time_dependent.add(run.folder)
        try:
            ledger = run.arrays("ledger")
            report.traffic[run.folder] = pricing.traffic(ledger.of_phases(OWN))
            report.priced[run.folder] = priced = pricing.price(
                run, ledger, time_dependent.get(run.summary["algorithm"])
            )
            if priced.damaged:
                report.notes.append(f"{str(priced.why).rstrip('.')}: no re-pricing")
        except VflbenchError as damaged:
            report.notes.append(f"{str(damaged).rstrip('.')}: no re-pricing, and not who sent how much to whom")
            report.traffic[run.folder] = None
            report.priced[run.folder] = pricing.Priced(why="its ledger cannot be read")
    return report


# --- the table --------------------------------------------------------------------------------------------------------


def table(report: Report) -> list[dict[str, Any]]:
    """One row per setting, with the runs' own numbers; None where one does not apply."""
    return [row(report, panel, setting) for panel in report.panels for setting in panel.settings]


def row(report: Report, panel: Panel, setting: Setting) -> dict[str, Any]:
    """A setting's row of the table: means over its runs, geometric ones of what it takes to reach the target."""
    first = setting.runs[0].summary
    places = [] if panel.target is None else [(run, selection.reached(run, panel.target)) for run in setting.runs]
    hits = [(run, place) for run, place in places if place is not None]
    row: dict[str, Any] = {
        "dataset": style.dataset_label(first["dataset"], first["data_variant"]),
        "data_source": first["data_source"],
        "algorithm": setting.algorithm,
        "differs": setting.words,
        "seeds": " ".join(map(str, sorted(setting.seeds))),
        "runs": len(setting.runs),
        "metric": first["metric"]["name"],
    }
    for which in ("selected", "final"):
        row[which], row[f"{which}_sd"] = _moments(setting.scores(which))
    row["metric_of"] = _metric_of(setting)
    row["averaged"] = _moments(_averaged(setting))[0]
    row["bytes"] = float(np.mean([run.summary["bytes"]["total"] for run in setting.runs]))
    for key in ("communication_seconds", "cost"):
        values = [run.summary[key] for run in setting.runs]
        row[key] = None if None in values else float(np.mean(values))
    row |= {"target": panel.target, "reached": len(hits)}
    for key in ("bytes", "communication_seconds", "cost"):
        there = hits and row[key] is not None
        spent = [float(run.curve[key].iloc[place]) + report.charged.more(run, key) for run, place in hits if there]
        row[f"{key}_to_target"] = middle(spent) if spent else None
    seen = demands.seen(setting)
    row |= {"discloses": seen.to_whom, "in_clear": None if seen.clear is None else ", ".join(seen.clear)}
    row |= {key: first["privacy"][key] for key in ("unit", "neighbouring", "covers")}
    private = [run.summary["privacy"] for run in setting.runs]
    row["epsilon"] = max((float(one["epsilon"]) for one in private if one["epsilon"] is not None), default=None)
    attacked = next(filter(None, (texts.attack_in_words(run.summary.get("attack")) for run in setting.runs)), None)
    row["epsilon_words"] = texts.epsilon_in_words(row["epsilon"], row["covers"], attacked, texts.label_epsilon(private))
    return row


def _moments(values: np.ndarray) -> tuple[float | None, float | None]:
    """Mean and standard deviation; None for one that needs more values."""
    return float(values.mean()) if len(values) else None, float(values.std(ddof=1)) if len(values) > 1 else None


def to_csv(report: Report) -> str:
    """The table with all digits; empty where a number does not apply, and no text is a formula."""
    rows = pd.DataFrame(table(report), dtype=object)
    text: str = rows.map(texts.spreadsheet).to_csv(index=False, lineterminator="\n")
    return text


def to_markdown(report: Report) -> str:
    """The tables, the selected settings, and what was left out."""
    lines: list[str] = []
    for panel in report.panels:
        rows = [row(report, panel, setting) for setting in panel.settings]
        lines += [f"## {markdown(panel.title)}", ""] + ([f"**{markdown(panel.alarm)}**", ""] if panel.alarm else [])
        why = panel.target_why
        goal = why.capitalize() if panel.target is None else f"Target: {panel.target:g} ({why})"
        about = ". ".join(filter(None, [rule(panel), life.words(panel.runs, report.charged), caveat(panel)]))
        lines += ["What may others see?", "", *texts.markdown_table(demands.HEADS, answers(report, panel), {}), ""]
        lines += [markdown(f"{goal}. Times as the runs had them: {about}."), ""]
        lines += texts.markdown_table(HEADS, [*map(cells, rows), *baseline_lines.cells(panel.runs, scored)], {})
        lines += ["", "Selected settings", ""]
        choices = [list(choice_cells(choice).values()) for choice in panel.choices]
        lines += texts.markdown_table(CHOICE_HEADS, choices, {COMMAND: texts.code})
        lines.append("")
    if report.notes:
        lines += ["## Left out, or not whole", "", *(f"- {markdown(note)}" for note in report.notes), ""]
    return "\n".join(lines)


def answers(report: Report, panel: Panel) -> list[list[str]]:
    """What is best under each demand on what others see, as texts for `demands.HEADS`."""
    alike = [s for s in panel.settings if s.runs[0].summary["accounting"] == accounting_of(panel)]
    return demands.cells(alike, [row(report, panel, setting) for setting in alike], scored, report.noise)


def accounting_of(panel: Panel) -> str:
    """By which most settings are charged."""
    return Counter(str(setting.runs[0].summary["accounting"]) for setting in panel.settings).most_common(1)[0][0]


HEADS = (
    *("method", "differs", "seeds", "selected", "final", "averaged model", "sent", "communication"),
    *("sent to target", "time to target", "epsilon", "discloses"),
)


def cells(row: Mapping[str, Any]) -> list[str]:
    """A row of the table as texts, one for each of `HEADS`."""
    part = f" ({row['reached']} of {row['runs']})" if 0 < row["reached"] < row["runs"] else ""
    missed = "–" if row["target"] is None else "not reached"
    nbytes, seconds = row["bytes_to_target"], row["communication_seconds_to_target"]
    timed = row["communication_seconds"] is None
    return [
        style.look(row["algorithm"]).label,
        row["differs"],
        row["seeds"],
        *(scored(row[which], row[f"{which}_sd"], row["metric"]) for which in ("selected", "final")),
        scored(row["averaged"], None, row["metric"]),
        human_bytes(row["bytes"]),
        "–" if timed else f"{row['communication_seconds']:.4g} s",
        missed if nbytes is None else human_bytes(nbytes) + part,
        "–" if timed else missed if seconds is None else f"{seconds:.4g} s{part}",
        row["epsilon_words"] or "–",
        row["discloses"] or "–",
    ]


def scored(value: float | None, sd: float | None, metric: str) -> str:
    """A value of `metric` with its deviation, as a text."""
    form = ".2e" if metric == TRAINING_METRIC else ".4f"
    return "–" if value is None else f"{value:{form}}" + ("" if sd is None else f" ± {sd:{form}}")


def choice_cells(choice: selection.Choice) -> dict[str, str]:
    """A choice as texts."""
    group, _, rest = choice.group.partition(" · ")
    named = " · ".join(filter(None, [style.look(group).label, rest]))
    if choice.setting is None:
        return {"group": named, "setting": "none", "validation": "–", "test": "–", "command": "", "why": choice.why}
    tuned = {key: value for key, value in choice.setting.differs.items() if selection.searched(key)}
    return {
        "group": named,
        "setting": selection.in_words(tuned) or "the only one",
        "validation": scored(*_moments(choice.validation), choice.setting.metric),
        "test": scored(*_moments(choice.setting.scores("selected")), choice.setting.metric),
        "command": choice.command or "",
        "why": choice.why,
    }


def rule(panel: Panel) -> str:
    """The networks, timings and accountings behind a panel's times."""
    found = {
        "network": {network_of(run) for run in panel.runs},
        "timing": {run.summary["timing"] for run in panel.runs},
        "accounting": {run.summary["accounting"] for run in panel.runs},
    }
    return ", ".join(f"{name} {' and '.join(sorted(map(str, values)))}" for name, values in found.items())


def caveat(panel: Panel) -> str:
    """Whose metrics they are, where methods differ in it, defaults that were adapted, and who has no running time."""
    hidden = ". ".join(filter(None, [_adapted(panel), demands.caveat(panel.settings), running_time.caveat(panel.runs)]))
    of = {whose: [s.algorithm for s in panel.settings if _metric_of(s) == whose] for whose in ("mean worker", "server")}
    if not all(of.values()):
        return hidden
    means, single = (", ".join(sorted({style.look(name).label for name in names})) for names in of.values())
    whose = f"The metric of {means} is the mean over workers, that of {single} one model's"
    return ". ".join(filter(None, [whose, hidden]))


def _adapted(panel: Panel) -> str:
    """Which defaults were other values, to fit the data."""
    used = {
        f"{style.look(run.summary['algorithm']).label} used {key}={values['used']}": None
        for run in panel.runs
        for key, values in run.summary.get("adapted", {}).items()
    }
    return f"Defaults that did not fit the data: {', '.join(used)}" if used else ""


def _averaged(setting: Setting) -> np.ndarray:
    """The averaged model's metric of every run that has one, (runs,); selected by validation where it can be."""
    values = [score_of(run.summary.get("averaged_model") or {}) for run in setting.runs]
    return np.array([value for value in values if value is not None], dtype=float)


def _metric_of(setting: Setting) -> str | None:
    """Whose metric it is: `server`, one model's, or `mean worker`; None in older runs."""
    of: str | None = setting.runs[0].summary.get("metric_of")
    return of


def network_of(run: Run) -> str:
    """What the run's network is called."""
    return style.NO_NETWORK if run.summary["timing"] == "measured" else network_label(run.manifest["config"]["network"])
