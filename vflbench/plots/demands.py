"""What others may see: the demands that the report asks for first, and the best setting under each.

A demand hides some of what methods disclose, and all that the weaker ones hide. What is sent with noise is hidden, too,
up to an epsilon. Epsilons of another unit, neighbouring relation or coverage are a demand of their own.
`report_page/demands.js` answers it for the reader's own axis, target and limits.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vflbench import exposure, registry
from vflbench.plots import style
from vflbench.results.selection import Setting
from vflbench.results.texts import guarantee, human_bytes, label_epsilon, shown_to
from vflbench.types import SHOWN

NOISE = 10.0  # noise counts up to this epsilon: "reasonable", Ponomareva et al. 2023, arXiv 2303.00654
HEADS = ("others may see", "best method", "sent to target", "selected", "epsilon", "others see")
# Key, what others may still see, and what it hides beside those before it; weakest first.
LADDER: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("anything", "anything", ()),
    ("columns", "no raw columns", ("raw",)),
    ("labels", "no raw columns, no labels", ("labels",)),
    ("forms", "no columns in any form, no labels", ("binned", "projection")),
    ("rows", "only models and sums", ("embedding", "gradient", "prediction", "split bitmaps", "edges")),
    ("noise", "nothing without noise", ("model", "sums")),
)
COLUMNS = {"raw": "raw columns", "binned": "binned columns", "projection": "projected columns"}  # in a sentence
POOLED = {"raw", "labels"}  # what a method shows that has all data in one place


@dataclass(frozen=True)
class Seen:
    """What a setting's runs show others."""

    clear: tuple[str, ...] | None  #: without noise, of `types.SHOWN`; None: not known
    noised: tuple[str, ...]  #: with noise of `epsilon`
    epsilon: float | None  #: finite
    guarantee: str | None  #: unit, neighbouring relation and coverage of a finite epsilon
    to_whom: str | None  #: in words; None: not known
    label_epsilon: float | None = None  #: of labels, where they have one of their own

    def epsilon_of(self, what: str) -> float | None:
        """The epsilon behind the noise of what is sent, one of `noised`."""
        return self.epsilon if what != "labels" or self.label_epsilon is None else self.label_epsilon

    @property
    def words(self) -> str:
        """What it shows."""
        if self.clear is None:
            return "not known"
        clear, noised = ([COLUMNS.get(what, what) for what in whats] for whats in (self.clear, self.noised))
        return ", ".join([*clear, *(f"{what} with noise" for what in noised)]) or "nothing"


@dataclass(frozen=True)
class Demand:
    """What others may see at most."""

    key: str
    words: str
    hides: tuple[str, ...]
    guarantee: str | None = None  #: that every epsilon must be of; None: no epsilon is asked for


def seen(setting: Setting) -> Seen:
    """What the runs of a setting show others, by the method's EXPOSES and the mechanism's noise."""
    privacy = setting.runs[0].summary["privacy"]
    epsilons = [run.summary["privacy"]["epsilon"] for run in setting.runs]
    finite = not {None, math.inf} & set(epsilons)
    epsilon, about = (float(max(epsilons)), guarantee(privacy)) if finite else (None, None)
    if setting.algorithm not in registry.algorithms():
        return Seen(None, (), epsilon, about, None)
    keys = {key.removeprefix("algorithm."): value for key, value in setting.config.items()}
    keys["protection"] = setting.config.get("protection.name", "none")
    private = {
        key.removeprefix("privacy."): value for key, value in setting.config.items() if key.startswith("privacy.")
    }
    private["name"] = privacy["mechanism"]
    clear, hidden, to_whom = shown(setting.algorithm, keys, private if about else None)
    labels = label_epsilon(run.summary["privacy"] for run in setting.runs)
    return Seen(clear, hidden, epsilon, about, to_whom, labels)


def noised(algorithm: str, keys: Mapping[str, Any], private: Mapping[str, Any]) -> set[str]:
    """What is sent with a mechanism's noise alone, of `types.SHOWN`; `private` has the mechanism's keys."""
    entries = exposure.table(algorithm, keys, private)["entries"]
    sent = [one for one in entries if one["how"] == "sent" and one["phase"] != "evaluation" and one["kind"] in SHOWN]
    clear, covered = (
        {SHOWN[one["kind"]] for one in sent if bool(one["covered_by"]) == noisy} for noisy in (False, True)
    )
    return covered - clear


def shown(
    algorithm: str, keys: Mapping[str, Any], private: Mapping[str, Any] | None
) -> tuple[tuple[str, ...], tuple[str, ...], str]:
    """What a method shows others without noise and with it, of `types.SHOWN`, and to whom, in words.

    Parameters
    ----------
    keys, private : those of the algorithm and of the mechanism, with their values; None: no noise counts.
    """
    triples = registry.discloses(algorithm, keys)
    assumes = registry.algorithms()[algorithm].assumes
    whats = {what for _, _, what in triples} | (POOLED if "pooled" in assumes else set())
    hidden = noised(algorithm, keys, private) if private is not None else set[str]()
    every = [what for what in dict.fromkeys(SHOWN.values()) if what in whats - {SHOWN["ciphertext"]}]
    clear, covered = (tuple(what for what in every if (what in hidden) == noisy) for noisy in (False, True))
    return clear, covered, shown_to(triples)


def of(found: Sequence[Seen]) -> list[Demand]:
    """The demands that matter for these settings, weakest first: each hides more of what they show."""
    every = {what for one in found for what in (*(one.clear or ()), *one.noised)}
    kinds = dict.fromkeys(one.guarantee for one in found if one.noised and not one.clear)
    hidden = tuple[str, ...]()
    demands = [Demand("anything", "anything", hidden)]
    for key, words, more in LADDER[1:]:
        hidden += more
        if key == "noise" and every:
            for place, kind in enumerate(kinds or (None,), start=1):
                demands.append(Demand(key if place == 1 else f"{key}-{place}", words, hidden, kind))
        elif every & set(more):
            demands.append(Demand(key, words, hidden))
    return demands


def unmet(one: Seen, demand: Demand, noise: float = NOISE) -> str | None:
    """Why a setting does not meet a demand, where noise counts up to that epsilon; None where it does."""
    if not demand.hides:
        return None
    if one.clear is None:
        return "what it shows is not known"
    shown = [what for what in one.clear if what in demand.hides]
    weak = [(what, one.epsilon_of(what)) for what in one.noised if what in demand.hides]
    shown += [f"{what} at epsilon {own:.4g}" for what, own in weak if own is not None and own > noise]
    if shown:
        return f"it shows {', '.join(shown)}"
    if demand.guarantee and one.guarantee != demand.guarantee:
        return f"its epsilon is of another kind: {one.guarantee}" if one.guarantee else "it has no epsilon"
    return None


def caveat(settings: Sequence[Setting]) -> str:
    """That epsilons are of several kinds, where they are."""
    kinds: dict[str, list[str]] = {}
    for setting in settings:
        if (kind := seen(setting).guarantee) is not None:
            kinds.setdefault(kind, []).append(style.look(setting.algorithm).label)
    if len(kinds) < 2:
        return ""
    named = "; ".join(f"{', '.join(dict.fromkeys(names))}: {kind}" for kind, names in kinds.items())
    return f"Epsilons are of {len(kinds)} kinds, which are not compared ({named})"


def cells(
    settings: Sequence[Setting],
    rows: Sequence[Mapping[str, Any]],
    score: Callable[[float | None, float | None, str], str],
    noise: float = NOISE,
) -> list[list[str]]:
    """The answer to each demand as texts, for `HEADS`.

    Parameters
    ----------
    rows : of the report's table, one for each setting.
    score : writes a metric with its deviation.
    noise : the epsilon up to which noise counts.
    """
    sign = -1 if settings[0].runs[0].summary["metric"]["goal"] == "max" else 1
    return list(_cells([seen(setting) for setting in settings], rows, score, noise, sign))


def lines(answers: Sequence[Sequence[str]]) -> Iterator[str]:
    """The answers that `cells` gives, one line each."""
    for may, best, sent, value, epsilon, see in answers:
        spent = f", epsilon {epsilon}" if epsilon != "–" else ""
        figures = f", {sent} to the target, {value}{spent}; they see: {see}" if see != "–" else ""
        yield f"others may see {may}: {best}{figures}"


def _cells(
    found: Sequence[Seen], rows: Sequence[Mapping[str, Any]], score: Callable[..., str], noise: float, sign: int
) -> Iterator[list[str]]:
    seeds = max(row["runs"] for row in rows)
    for demand in of(found):
        words = demand.words + (f" of epsilon ≤ {noise:g}" if demand.key.startswith("noise") else "")
        words += f" ({demand.guarantee})" if demand.guarantee else ""
        # who sends nothing is no answer
        met = [
            (one, row)
            for one, row in zip(found, rows, strict=True)
            if unmet(one, demand, noise) is None and (row["bytes"] or row["bytes_to_target"])
        ]
        there = [(one, row) for one, row in met if row["reached"] == seeds]
        if not there:
            near = [
                f"; {_name(row)} has epsilon {max(one.epsilon_of(what) or 0 for what in one.noised):.4g}"
                for one, row in zip(found, rows, strict=True)
                if unmet(one, demand, noise) is not None and unmet(one, demand, math.inf) is None
            ]
            lacking = f"no run here{''.join(near)}" if not met else "none reaches the target in every seed"
            yield [words, "there is no target" if met and met[0][1]["target"] is None else lacking, *"––––"]
            continue
        one, row = min(there, key=lambda pair: (pair[1]["bytes_to_target"], sign * (pair[1]["selected"] or 0)))
        value = score(row["selected"], row["selected_sd"], row["metric"])
        yield [words, _name(row), human_bytes(row["bytes_to_target"]), value, row["epsilon_words"] or "–", one.words]


def _name(row: Mapping[str, Any]) -> str:
    return " · ".join(filter(None, [style.look(row["algorithm"]).label, row["differs"]]))
