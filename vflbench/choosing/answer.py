"""The answer of `vflbench choose`: what was found, as data first (docs/concepts/choosing.md has the schema)."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vflbench.choosing import baselines, method_ranking, network_map, trial_counts
from vflbench.choosing.commands import training_command
from vflbench.choosing.formatting import PAGE, label, spent_words
from vflbench.choosing.method_ranking import Contender, Ranked
from vflbench.choosing.question import COSTS
from vflbench.choosing.record import Record
from vflbench.choosing.trial_ranking import best as best_trial
from vflbench.exposure import UNVERIFIED
from vflbench.plots import demands, style
from vflbench.results import selection, texts
from vflbench.results.compare import Paired, middle, moments
from vflbench.results.folder import atomic_write, score_of, splits, write_json
from vflbench.results.reader import Run
from vflbench.results.run_schema import infinities
from vflbench.version import __version__

FILE, SCHEMA = "answer.json", 1
LEVELS = 16  # targets between which the winner is looked for
NEXT = 2  # how many come behind the winner
ONCE = ("send_once", "graph_once", "gram_once")  # rows, of a graph or not, and sums: sent once


def finish(folder: Path, record: Record) -> int:
    """Write the answer into `folder`, and say it.

    Returns
    -------
    0, or 2 where nothing reaches the target.
    """
    from vflbench.choosing import terminal

    found = write(folder, record)
    terminal.show(found, folder)
    return 0 if found["reached"] else 2


def write(folder: Path, record: Record) -> dict[str, Any]:
    """Write the answer and its page into `folder`; the answer."""
    from vflbench.choosing import page

    found = answer(folder, record)
    write_json(folder / FILE, infinities(found))
    atomic_write(folder / PAGE, page.to_html(found, folder))
    return found


def answer(folder: Path, record: Record) -> dict[str, Any]:
    """The content of `answer.json`; `folder` has the runs."""
    question = record.question
    target, goal, cost = float(question["target"]), question["goal"], question["cost"]
    found = method_ranking.contenders(folder, record)
    kinds = method_ranking.kinds(found, question)
    pool = kinds[0][1] if kinds else []
    ranked = method_ranking.rank(pool, cost, target, goal)
    runs = [run for one in found for run in one.runs]
    winner = ranked[0] if ranked and ranked[0].spent else None
    lines = baselines.lines(record, runs, target)
    rows = [_row(row, place, question, folder) for place, row in enumerate(ranked, start=1)]
    rows += [_row(Ranked(one, {}, None), None, question, folder) for one in found if one not in pool]
    beside = [row["name"] for row in rows[1 : 1 + NEXT] if winner and row["place"] and row["reached"]]
    closest = None if winner else _closest(rows, goal)
    best = target if winner else closest["validation"] if closest else None
    often = trial_counts.count(record)
    verdict = baselines.verdict(lines, target, goal, question["metric"], best, even=not often["less"])
    return {
        "schema": SCHEMA,
        "made_by": f"vflbench {__version__}",
        "status": record.status,
        "missing": record.missing(),
        "question": question,
        "data": _data(question, runs),
        "reached": winner is not None or verdict["kind"] == "not needed",
        "verdict": verdict,
        "sentence": _sentence(rows, verdict, winner, closest, question, often),
        "winner": None if winner is None else winner.contender.name,
        "next": beside,
        "closest": closest,
        "sure": _sure(rows, winner, often),
        "tried": often | {"words": trial_counts.in_words(often)},
        "shipping": _shipping(rows, lines, winner),
        "methods": rows,
        "floor": [*lines, *_once(rows, record, target)],
        "kinds": [_kind(kind, ones, question) for kind, ones in kinds if kind is not None],
        "map": network_map.draw_up(ranked, target, goal),
        "targets": _targets(pool, question, lines),
        "demands": _demands(found, kinds, question, "" if not often["less"] else " so far"),
        "unverified": _unverified(found, record),
        "tuning": _tuning(record),
        "excluded": [{"name": label(one.algorithm, one.privacy), "why": one.reason} for one in record.excluded],
        "out": [
            {
                "name": method.name,
                "label": label(method.algorithm, method.privacy),
                "why": method.out,
                "trials": len(method.trials),
            }
            for method in record.methods
            if method.out and not any(one.method is method for one in found)
        ],
        "notes": [*record.notes, *(f"{one.label}: {why}" for one in found for why in one.lost)],
        "page": PAGE,
    }


# --- rows -------------------------------------------------------------------------------------------------------------


def _row(row: Ranked, place: int | None, question: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """All that is known of a method; None where a number does not apply."""
    one, target = row.contender, float(question["target"])
    method, runs = one.method, one.runs
    best = next((trial for trial in method.trials if trial.number == method.best), None)
    spent = {axis: one.spent(axis, target) for axis in (*COSTS, "communication_seconds")}
    test = moments([value for run in runs if (value := score_of(run.summary["metric"])) is not None])
    known = moments(one.best())
    return {
        "name": one.name,
        "label": one.label,
        "algorithm": method.algorithm,
        "privacy": method.privacy,
        "place": place,
        "why": one.why,
        "values": dict(best.values) if best else {},
        "command": training_command(method, best, runs, target, question.get("config_dir")),
        "runs": [_relative(run.folder, folder) for run in runs],
        "basis": "tuning" if one.tuned else "finals",
        "seeds": [run.summary["seed"] for run in runs],
        "reached": len(spent["bytes"]),
        "of": one.of,
        "validation": known[0],
        "validation_sd": known[1],
        "test": test[0],
        "test_sd": test[1],
        **{axis: middle(list(values.values())) if values else None for axis, values in spent.items()},
        "sent": moments([run.summary["bytes"]["total"] for run in runs])[0],
        **_privacy(one),
        "behind": _interval(row.behind),
        "edges": method.edges,
    }


def _privacy(one: Contender) -> dict[str, Any]:
    """Epsilon, what it covers, and what others see."""
    if one.seen is None:
        return dict.fromkeys(("epsilon", "epsilon_words", "guarantee", "others_see"))
    first = one.runs[0].summary["privacy"]
    words = texts.epsilon_in_words(one.seen.epsilon, first["covers"], None, one.seen.label_epsilon)
    return {
        "epsilon": one.seen.epsilon,
        "epsilon_words": words,
        "guarantee": one.seen.guarantee,
        "others_see": one.seen.words,
    }


def _interval(found: Paired | None) -> dict[str, Any] | None:
    if found is None:
        return None
    keys = ("seeds", "centre", "low", "high", "ratio", "tie")
    return {key: getattr(found, key) for key in keys}


def _relative(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.as_posix()


def _kind(kind: str, ones: Sequence[Contender], question: Mapping[str, Any]) -> dict[str, Any]:
    """The best method among those with one kind of guarantee."""
    first = method_ranking.rank(ones, question["cost"], float(question["target"]), question["goal"])[0]
    row = {"guarantee": kind, "name": first.contender.name, "label": first.contender.label, "cost": first.value}
    return {**row, "reached": len(first.spent), "of": first.contender.of}


def _once(rows: Sequence[Mapping[str, Any]], record: Record, target: float) -> list[dict[str, Any]]:
    """Rows or sums sent once, as a line of the floor: its final, else its best trial."""
    note = "one exchange, then every party learns from what it has"
    once = [method for method in record.methods if method.registered in ONCE]
    for row in rows:
        if row["name"] in [method.name for method in once]:
            line = {key: row[key] for key in ("label", "validation", "test", "seconds")}
            reaches = row["reached"] == row["of"]
            return [line | {"name": ONCE[0], "bytes": row["bytes"] or row["sent"], "reaches": reaches, "note": note}]
    tried = [(method, trial) for method in once if (trial := best_trial(record, method))]
    if not tried:
        return []
    sign = -1 if record.question["goal"] == "max" else 1
    method, trial = min(tried, key=lambda pair: (not pair[1].reached, sign * (pair[1].metric or 0.0)))
    line = {"name": ONCE[0], "label": label(method.algorithm, method.privacy), "validation": trial.metric, "test": None}
    reaches = baselines.reaches(trial.metric, target, record.question["goal"])
    line |= {"bytes": trial.bytes, "seconds": trial.seconds, "reaches": reaches}
    return [line | {"note": f"{note}; its best trial, without a confirmation run"}]


def _data(question: Mapping[str, Any], runs: Sequence[Run]) -> dict[str, Any]:
    """The data, and a warning where they are made up, or not all there."""
    s = runs[0].summary if runs else {}
    source = s.get("data_source")
    name = style.dataset_label(question["dataset"], s.get("data_variant"))  # the option, as it was typed
    alarm = texts.data_warning(s, name, "This answer says nothing about real data.")
    metric = s["metric"]["name"] if s else question["metric"]
    return {"name": name, "source": source, "alarm": alarm, "metric": metric, "judged_on": splits(metric)[0]}


# --- in words ---------------------------------------------------------------------------------------------------------


def _sentence(
    rows: Sequence[Mapping[str, Any]],
    verdict: Mapping[str, Any],
    winner: Ranked | None,
    closest: Mapping[str, Any] | None,
    question: Mapping[str, Any],
    often: Mapping[str, Any],
) -> str:
    """The answer in one or two sentences; the floor comes first."""
    begin = [verdict["words"]] if verdict["words"] else []
    if winner is not None:
        row, cost = rows[0], question["cost"]
        keys = [cost, *(key for key in ("bytes", "seconds") if key != cost)]
        took = " and ".join(spent_words(row, key) for key in keys if row[key] is not None)
        lead = "If you want one all the same, use" if verdict["kind"] == "not needed" else "Use"
        text = f"{lead} {row['label']}: {question['metric']} {question['target']:g} with {took}"
        begin.append(f"{text}, in {row['reached']} of {row['of']} seeds.")
    elif closest is not None:
        value = f"{question['metric']} {closest['validation']:.4g} where {question['target']:g} was asked for"
        nobody = "No method has reached the target so far" if often["less"] else "No method reached the target"
        begin.append(f"{nobody}. {closest['label']} came closest: {value}.")
    elif not verdict["words"]:
        begin.append("No method was compared: there is no answer.")
    return " ".join(begin)


def _shipping(rows: Sequence[Mapping[str, Any]], lines: Sequence[Mapping[str, Any]], winner: Ranked | None) -> str:
    """That sending the data themselves takes less, where it does."""
    shipped = next((line for line in lines if line["name"] == "ship_it" and line["bytes"]), None)
    if winner is None or shipped is None or rows[0]["bytes"] <= shipped["bytes"]:
        return ""
    times = rows[0]["bytes"] / shipped["bytes"]
    sent = texts.human_bytes(shipped["bytes"])
    return f"Sending the data themselves once takes {sent}, {times:.3g} times less, but then others have them."


def _closest(rows: Sequence[Mapping[str, Any]], goal: str) -> dict[str, Any] | None:
    """Who came closest to the target: of those that are ranked, else of none."""
    scored = [row for row in rows if row["place"] is not None and row["validation"] is not None]
    if not scored:
        return None
    best = (max if goal == "max" else min)(scored, key=lambda row: row["validation"])
    return {key: best[key] for key in ("name", "label", "validation", "sent", "command")}


def _sure(rows: Sequence[Mapping[str, Any]], winner: Ranked | None, often: Mapping[str, Any]) -> str:
    """How sure the first place is; of methods that were tried less often than others nothing is said."""
    if winner is None:
        return ""
    first, less = rows[0], {one["name"] for one in often["less"]}
    share = f"It reached the target in {first['reached']} of {first['of']} seeds{' so far' * (first['name'] in less)}"
    if first["basis"] == "tuning":
        return f"{share}. There were no confirmation runs: this is a single run of tuning, and it may have been lucky."
    others = [row for row in rows[1:] if row["place"] is not None and row["reached"]]
    if not others:
        return f"{share}. {_no_other(rows, often)}."
    so_far = " so far" * bool(less)
    ties = [row["label"] for row in others if row["behind"] and row["behind"]["tie"]]
    if ties:
        return (
            f"{share}. It is a tie with {', '.join(ties)} (95 %, paired by seed): take the one that is easier for you."
        )
    behind = others[0]["behind"]
    if behind is None:
        if others[0]["reached"] < first["reached"]:
            why = f"reached it in {others[0]['reached']}"
        elif first["reached"] < first["of"]:
            why = "did so too; not every seed did, so that there is no interval"
        else:
            why = "did so too; with one seed nothing is said of chance"
        return f"{share}. The next{so_far}, {others[0]['label']}, {why}."
    if not behind["ratio"]:
        return f"{share}. The next{so_far}, {others[0]['label']}, takes more (95 %, paired by seed)."
    same = math.isclose(behind["low"], behind["high"], rel_tol=1e-9)  # every seed has the same ratio
    interval = "with each of" if same else f"95 %: {behind['low']:.3g} to {behind['high']:.3g},"
    more = f"takes {behind['centre']:.3g} times as much ({interval} {behind['seeds']} seeds)"
    return f"{share}. The next{so_far}, {others[0]['label']}, {more}."


def _no_other(rows: Sequence[Mapping[str, Any]], often: Mapping[str, Any]) -> str:
    """That no method but the first reached the target: of those that were tried as often, and are ranked."""
    first = rows[0]
    beside = [row for row in rows[1:] if row["reached"] and row["place"] is None]
    kind = "other method with such a guarantee" if first["guarantee"] else f"other {'ranked ' * bool(beside)}method"
    others = {*often["as_often"]} - {first["name"]}
    if not others:
        return f"No other method was tried{' as often' * bool(often['less'])}"
    said = f"{kind} reached it{' before its trials were ended' * bool(others & {*often['ended']})}"
    return f"Of the {len(others) + 1} methods that were tried as often, no {said}" if often["less"] else f"No {said}"


# --- what would change it ---------------------------------------------------------------------------------------------


def _targets(
    pool: Sequence[Contender], question: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Who wins at easier targets: from, to and the winner. Curves end where they reach what was asked."""
    starts = [float(run.curve[column].iloc[0]) for one in pool for run in one.runs if (column := selection.judged(run))]
    if not starts:
        return []
    target, goal = float(question["target"]), question["goal"]
    known = next((line["validation"] for line in lines if line["name"] == "alone"), None)
    begin = float(np.median(starts)) if known is None else known
    if (begin >= target) == (goal == "max"):
        begin = min(starts) if goal == "max" else max(starts)
    found: list[dict[str, Any]] = []
    for level in np.linspace(begin, target, LEVELS).tolist():
        first = next(iter(method_ranking.rank(pool, question["cost"], level, goal)), None)
        name = first.contender.name if first is not None and first.spent else None
        called = first.contender.label if first is not None and name else None
        if found and found[-1]["winner"] == name:
            found[-1]["to"] = level
        else:
            found.append({"from": level, "to": level, "winner": name, "label": called})
    return found


def _demands(
    found: Sequence[Contender],
    kinds: Sequence[tuple[str | None, list[Contender]]],
    question: Mapping[str, Any],
    so_far: str,
) -> list[dict[str, Any]]:
    """The best method under each privacy requirement: of the answer's kind of guarantee, else of another."""
    known = [one for one in found if one.seen is not None and "sends nothing" not in (one.why or "")]
    seen = [one.seen for one in known if one.seen is not None]
    answers = []
    for demand in demands.relevant(seen):
        met, first, guarantee, noise = False, None, demand.guarantee, method_ranking.noise(question)
        whole = guarantee is not None or len(kinds) < 2
        for kind, pool in [(guarantee, known)] if whole else kinds:
            able = [one for one in pool if one.seen and demands.unmet(one.seen, demand, noise) is None]
            ranked = method_ranking.rank(able, question["cost"], float(question["target"]), question["goal"])
            met = met or bool(able)
            if ranked and ranked[0].spent:
                first, guarantee = ranked[0], kind if whole or kind != kinds[0][0] else None
                break
        words = f"{demand.words} ({guarantee})" if guarantee else demand.words
        why = None if first else f"none reaches the target{so_far}" if met else f"no method here{so_far}"
        apart = [one.label for one in known if one.seen and demands.unverified(one.seen, demand, noise)]
        row: dict[str, Any] = dict.fromkeys(("winner", "label", "cost", "others_see"))
        if first is not None and (sees := first.contender.seen) is not None:
            one = first.contender
            row |= {"winner": one.name, "label": one.label, "cost": first.value, "others_see": sees.words}
        answers.append({"key": demand.key, "others_may_see": words, **row, "why": why, "unverified": apart})
    return answers


def _unverified(found: Sequence[Contender], record: Record) -> list[str]:
    """The methods that do not declare what follows from their messages, those too that did not enter therefore."""
    excluded = [label(one.algorithm, one.privacy) for one in record.excluded if one.reason == UNVERIFIED]
    return [*(one.label for one in found if one.seen is not None and not one.seen.verified), *excluded]


def _tuning(record: Record) -> dict[str, Any]:
    """What tuning took: its traffic had it been real, and every trial in the order of time."""
    trials = sorted(
        ((method, trial) for method in record.methods for trial in method.trials), key=lambda pair: pair[1].began
    )
    keys = ("number", "status", "reached", "metric", "bytes", "seconds", "began", "wall_seconds", "reason")
    timeline = [
        {
            "name": method.name,
            "label": label(method.algorithm, method.privacy),
            "folder": trial.folder,
            "values": trial.values,
        }
        | {key: getattr(trial, key) for key in keys}
        for method, trial in trials
    ]
    return {
        "trials": len(trials),
        "trials_each": record.trials_each,
        "pruned": sum(trial.status == "pruned" for _, trial in trials),
        "bytes": float(sum(trial.bytes or 0.0 if trial.sent is None else trial.sent for _, trial in trials)),
        "wall_seconds": record.spent_seconds,
        "timeline": timeline,
    }
