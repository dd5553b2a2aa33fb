"""What a paper claims about its figure, checked against what was measured.

    claims:
      - claim: PubSub-VFL is the fastest          what the paper says
        paper: "Fig. 3: 7x"                       where, and its number
        check: order                              how it is checked, below
        column: seconds_to_target
        ...

Checks compare means over seeds, for each combination of the keys `each`; `where` leaves other settings out.

- `order`: the settings `of`, as {key: value}, are in rising (`falling: true`: falling) order of the column; equal
  values are in order
- `ratio`, `difference`: of the first of `of` and the second, at least `at_least`, at most `at_most`; a difference may
  also compare two differences: that of the first two settings and that of the last two
- `value`: each of `of` (all settings, if it is empty) is at least `at_least`, at most `at_most`
- `best`: one of `of` has the smallest (`falling: true`: the largest) value of all settings
- `trend`: along the numbers of the key `along`, the column never falls (`falling: true`: never rises) by more than
  `slack`
- `interior`: along `along` the largest (`falling: true`: the smallest) value is at neither end
- `near`: each of the paper's numbers of this column is met within `at_most` (`relative: true`: times that number)
- `untestable`: `why` says why it cannot be checked

A claim with `model` is checked too, but its verdict is "follows from the model": `model` says which constants or rules
of the simulation, chosen by us, leave it no other outcome.

A claim with `band` names the figure that has the same runs over a band of constants that are ours. The page of results
tells for how many of them it holds (scripts/results.py).

A column that says when a target was reached is infinite where not all seeds reached it. Of two infinite values none is
smaller. A claim is not testable where its runs are missing, unless those that are there contradict it.

For two settings with the same seeds a verdict also shows their difference seed by seed. It is "within the spread" where
it is less than two of its standard errors. The verdict itself compares the means. It is `close` where other seeds might
turn it: what decides it is less than two standard errors away. (Of `near`, nothing is said.)

Part of the real data is enough, and the reason says what is missing. Made-up data decide nothing, unless the claim has
`made_up: true`: then the paper's data are made up too, or the claim depends only on sizes.
"""

import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from vflbench.plots.values import Names, line_label
from vflbench.results.texts import as_text
from vflbench.types import Problem, closest

# one setting of the table (measured.table): key -> value, column -> mean over seeds, <column>_sd -> spread
Row = dict[str, Any]
Verdict = Literal["holds", "does not hold", "follows from the model", "not testable"]
BUDGETED = ("epsilon", "classical_epsilon")  # no seed spends more than it was given
ROUNDING = 1e-6  # a smaller spread, as a share of the value, is none
CLOSE = 2.0  # standard errors: what decides a verdict by less might be otherwise with other seeds
CLOSELY = "close: other seeds might turn it"


@dataclass(frozen=True)
class Claim:
    """One claim, and how it is checked."""

    claim: str
    check: Literal["order", "ratio", "difference", "value", "best", "trend", "interior", "near", "untestable"]
    paper: str = ""
    column: str = "selected"
    of: list[dict[str, Any]] = field(default_factory=list)
    each: list[str] = field(default_factory=list)
    where: dict[str, Any] = field(default_factory=dict)
    along: str = ""
    falling: bool = False
    slack: float = 0.0
    at_least: float = -math.inf
    at_most: float = math.inf
    relative: bool = False
    made_up: bool = False
    why: str = ""
    model: str = ""  # which part of the simulation leaves no other outcome
    band: str = ""  # the figure that has this one's runs over a band of constants that are ours

    def problems(self, keys: Sequence[str], columns: Iterable[str]) -> list[Problem]:
        """What is wrong with the claim, for a figure's keys and the table's columns."""
        used = [
            *self.each,
            *self.where,
            *(key for chosen in self.of for key in chosen),
            *([self.along] if self.along else []),
        ]
        found = among("column", [self.column], columns) + among("key", used, keys)
        endless = math.isinf(self.at_most)
        no_limit = endless and math.isinf(self.at_least)
        for checks, key, refused, allowed in (
            (("ratio",), "of", len(self.of) != 2, "must be two settings"),
            (("difference",), "of", len(self.of) not in (2, 4), "must be two settings or four"),
            (("best",), "of", not self.of, "must be a setting or more"),
            (("order",), "of", len(self.of) < 2, "must be two settings or more"),
            (("trend", "interior"), "along", not self.along, "must be a key"),
            (("ratio", "difference", "value"), "at_least", no_limit, "or at_most must be given"),
            (("near",), "at_most", endless, "must be given"),
            (("untestable",), "why", not self.why, "must say why"),
        ):
            if self.check in checks and refused:
                found.append(Problem(key, getattr(self, key), allowed))
        return found


def among(where: str, values: Iterable[str], allowed: Iterable[str]) -> list[Problem]:
    """A problem of the key `where` for each of `values` that is not among `allowed`."""
    known = list(allowed)
    return [
        Problem(where, v, f"must be one of {', '.join(known)}", closest(str(v), known))
        for v in values
        if v not in known
    ]


@dataclass(frozen=True)
class Judged:
    """A claim's verdict and the numbers behind it."""

    claim: Claim
    verdict: Verdict
    why: str
    close: bool = False  #: what decides the verdict is less than two standard errors away


def reason(judged: Judged) -> str:
    """What a verdict rests on, and whether it is close."""
    return judged.why + (f" ({CLOSELY})" if judged.close else "")


def judge(
    claim: Claim, table: Sequence[Row], numbers: Sequence[dict[str, Any]], excuse: str = "", names: Names | None = None
) -> Judged:
    """The verdict on `claim`.

    Parameters
    ----------
    table : a row per setting, also for settings whose runs are missing.
    numbers : the paper's numbers of this column: keys, mean.
    excuse : why no claim can be tested (the runs have two rounds); empty: it can.
    names : what to call a value of a key.
    """
    if claim.check == "untestable":
        return Judged(claim, "not testable", claim.why)
    if excuse:
        return Judged(claim, "not testable", excuse)
    chosen = select(table, claim.where)
    if not any(row.get("seeds", 1) for row in chosen):
        return Judged(claim, "not testable", "no run of it is there")
    lacks = [row["data_lacks"] for row in chosen if isinstance(row.get("data_lacks"), str)]
    made_up = [row.get("data_source") for row in chosen if not isinstance(row.get("data_lacks"), str)]
    sources = [kind for kind in ("synthetic", "partial") if kind in made_up]
    if sources and not claim.made_up:
        return Judged(claim, "not testable", f"{' and '.join(sources)} data")
    numbers = [n for n in numbers if select([n], {key: value for key, value in claim.where.items() if key in n})]
    verdicts: list[bool | None] = []
    reasons, margins = [], []
    for group, rows in grouped(chosen, claim.each):
        own_numbers = [n for n in numbers if _fits(n, group)]
        holds, reason, *decided = _CHECKS[claim.check](claim, rows, own_numbers, names)
        if lacking := _lacking(claim, rows, own_numbers, names):
            holds, reason = False if holds is False else None, f"{reason}; {lacking}"
        verdicts.append(holds)
        margins += [(holds, margin) for each in decided for margin in each]
        reasons.append(f"{_label(group, names)}: {reason}" if group else reason)
    for key, wanted in claim.where.items():
        # The page itself says which data sets a scale leaves out.
        for value in wanted if isinstance(wanted, list) and key != "dataset.name" else []:
            if not select(chosen, {key: value}):
                verdicts.append(None)
                reasons.append(f"{_label({key: value}, names)}: no run of it is there")
    why = "; ".join([*reasons, *(f"on part of the real data: {lack}" for lack in dict.fromkeys(lacks))])
    verdict: Verdict = "does not hold" if False in verdicts else "not testable" if None in verdicts else "holds"
    if claim.model and verdict != "not testable":
        return Judged(claim, "follows from the model", f"it {verdict}: {why}; {claim.model}")
    return Judged(claim, verdict, why, verdict != "not testable" and _close(margins, verdict == "holds"))


def _close(margins: Sequence[tuple[bool | None, float]], holds: bool) -> bool:
    """Whether a verdict is close: of one that holds, any comparison is; of another, all that speak against it are.

    `margins` has, for each comparison, whether its group holds, and how many standard errors it is on the claim's side.
    """
    if holds:
        return any(margin < CLOSE for _, margin in margins)
    against = [-margin for held, margin in margins if held is False and margin < 0]
    return bool(against) and all(margin < CLOSE for margin in against)


def _lacking(claim: Claim, rows: Sequence[Row], numbers: Sequence[dict[str, Any]], names: Names | None) -> str:
    """The runs of the claim that are missing, as a text; empty where none is."""
    needed: Sequence[dict[str, Any]] = [{}]  # all settings
    if claim.check == "near":
        needed = [setting_of(number) for number in numbers]
    elif claim.of and claim.check != "best":
        needed = claim.of
    found = [row for row in rows if row.get("missing") and any(select([row], wanted) for wanted in needed)]
    keys = list(dict.fromkeys(key for wanted in [*needed, *claim.of] for key in wanted)) or (
        [claim.along] if claim.along else []
    )
    runs = (
        f"{_label({key: row[key] for key in keys}, names)} seed {', '.join(map(str, row['missing']))}".strip()
        for row in found
    )
    return f"missing: {' / '.join(dict.fromkeys(runs))}" if found else ""


def select(table: Sequence[Row], where: dict[str, Any]) -> list[Row]:
    """The rows whose keys have the values of `where`; a list means any of them."""
    allowed = {
        key: [as_text(value) for value in (wanted if isinstance(wanted, list) else [wanted])]
        for key, wanted in where.items()
    }
    return [row for row in table if all(as_text(row[key]) in values for key, values in allowed.items())]


def grouped(table: Sequence[Row], keys: Sequence[str]) -> list[tuple[Row, list[Row]]]:
    """The rows by their values of `keys`, as (key -> value, rows), in the order in which these values first occur."""
    found: dict[tuple[str, ...], tuple[Row, list[Row]]] = {}
    for row in table:
        names = {key: row[key] for key in keys}
        found.setdefault(tuple(map(as_text, names.values())), (names, []))[1].append(row)
    return list(found.values())


def _fits(number: dict[str, Any], names: dict[str, Any]) -> bool:
    return all(as_text(number[key]) == as_text(value) for key, value in names.items() if key in number)


def setting_of(number: Mapping[str, Any]) -> dict[str, Any]:
    """The setting that a number of the paper belongs to."""
    return {key: value for key, value in number.items() if key not in ("mean", "sd")}


def _label(keys: Mapping[str, Any], names: Names | None) -> str:
    return line_label(keys, list(keys), names) or ", ".join(str(value) for value in keys.values())


def mean_and_spread(row: Mapping[str, Any], column: str) -> str:
    """Mean and sample standard deviation as text: `0.0785 ± 0.0220`.

    Where some seeds have no value, it says how many have one: `(4 of 5 seeds)`. It is `-` where none has.
    """
    value, sd = row[column], row.get(f"{column}_sd", math.nan)
    seeds = [one[column] for one in row.get("by_seed", {}).values() if column in one]
    used = sum(map(math.isfinite, seeds))
    if math.isinf(value):
        return f"reached by {used} of {len(seeds)}" if used else "never reached"
    return (
        "-"
        if math.isnan(value)
        else fixed(value, sd) + (f" ({used} of {len(seeds)} seeds)" if used < len(seeds) else "")
    )


def fixed(value: float, sd: float = math.nan) -> str:
    """A number with four significant digits, and a spread with as many places; exponents only below 0.0001."""
    size = max(abs(value), 0.0 if math.isnan(sd) else sd)
    if 0 < size < 1e-4:
        return f"{value:.4g}" + ("" if math.isnan(sd) else f" ± {sd:.2g}")
    places = max(0, 3 - math.floor(math.log10(size))) if size else 0
    if math.isnan(sd):
        text = f"{value:.{places}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{value:.{places}f} ± {sd:.{places}f}"


def _shown(row: Row, column: str) -> str:
    """A number of a verdict, with the number of runs that diverged."""
    return mean_and_spread(row, column) + (f" ({row['diverged']} diverged)" if row.get("diverged") else "")


def _by_seed(row: Row, column: str) -> dict[Any, float]:
    return {seed: one[column] for seed, one in row.get("by_seed", {}).items() if column in one}


def _paired(left: Row, right: Row, column: str) -> str:
    """How much larger the first is than the second, seed by seed; empty unless both have the same two or more seeds."""
    first, second = (_by_seed(row, column) for row in (left, right))
    gaps = [
        first[seed] - second[seed] for seed in first if seed in second and math.isfinite(first[seed] - second[seed])
    ]
    if set(first) != set(second) or len(gaps) < 2:
        return ""
    mean, sd = statistics.fmean(gaps), statistics.stdev(gaps)
    within = ", within the spread" if abs(mean) < 2 * sd / math.sqrt(len(gaps)) else ""
    return f" [difference by seed {fixed(mean, sd)}, {len(gaps)} seeds{within}]"


def _settings(claim: Claim, rows: Sequence[Row], names: Names | None) -> list[tuple[str, Row]]:
    """Name and row of each setting of `of` that is exactly one row and has a value."""
    found = []
    for wanted in claim.of:
        inside = select(rows, wanted)
        if len(inside) == 1 and not math.isnan(inside[0][claim.column]):
            found.append((_label(wanted, names), inside[0]))
    return found


def _listed(claim: Claim, found: Sequence[tuple[str, Row]]) -> str:
    """The settings with their numbers and differences, as a text."""
    pairs = "".join(_paired(left, right, claim.column) for (_, left), (_, right) in itertools.pairwise(found))
    text = ", ".join(f"{name}: {_shown(row, claim.column)}" for name, row in found)
    return (
        text
        + pairs
        + ("" if len(found) == len(claim.of) else "; not all of its runs are there").removeprefix("" if text else "; ")
    )


# whether the claim holds, None where that is not known; the numbers; and the margin of each comparison that decides it
Found = tuple[bool | None, str] | tuple[bool | None, str, list[float]]


def _margin(column: str, terms: Sequence[tuple[float, Row]], bound: float = 0.0) -> float:
    """How many standard errors the sum of factors times means is above a bound; infinite where it has no spread.

    Of rows with the same seeds it is the error of the sum seed by seed, else that of independent means. Means and
    spreads that are equal to the last digit are those of the same values.
    """
    gap: float = sum(factor * row[column] for factor, row in terms) - bound
    seeds = [_by_seed(row, column) for _, row in terms]
    if math.isnan(gap) or column in BUDGETED:
        return math.nan
    if math.isinf(gap):  # where some seeds reach the target, the others decide
        partly = any(math.isfinite(value) for one in seeds if math.inf in one.values() for value in one.values())
        return math.copysign(CLOSE / 2 if partly else math.inf, gap)
    if len(seeds[0]) > 1 and all(set(one) == set(seeds[0]) for one in seeds):
        sums = [sum(factor * own[s] for (factor, _), own in zip(terms, seeds, strict=True)) for s in seeds[0]]
        error = statistics.stdev(sums) / math.sqrt(len(sums)) if all(map(math.isfinite, sums)) else math.nan
    else:
        spreads = [(row.get(f"{column}_sd") or 0.0) / math.sqrt(row.get("seeds") or 1) for _, row in terms]
        parts = [factor * spread for (factor, _), spread in zip(terms, spreads, strict=True)]
        same = all(row[column] == terms[0][1][column] for _, row in terms) and len(set(spreads)) == 1
        error = abs(sum(parts)) if same else math.hypot(*parts)
    if error > ROUNDING * max(abs(row[column]) for _, row in terms):
        return gap / error
    return math.copysign(math.inf, gap) if gap else math.nan


def _rising(values: Sequence[tuple[int, float]], slack: float = 0.0) -> bool | None:
    """Whether the values (place, value) never fall by more than `slack` a place; None after two infinite in a row."""
    pairs = list(itertools.pairwise(values))
    if any(b < a - slack * (later - place) for (place, a), (later, b) in pairs):
        return False
    return None if any(math.isinf(a) and a == b for (_, a), (_, b) in pairs) else True


def _order(claim: Claim, rows: Sequence[Row], _: Any, names: Names | None) -> Found:
    found = _settings(claim, rows, names)
    sign = -1 if claim.falling else 1
    holds = _rising([(place, sign * row[claim.column]) for place, (_, row) in enumerate(found)])
    pairs = itertools.pairwise(row for _, row in found)
    margins = [_margin(claim.column, [(sign, right), (-sign, left)]) for left, right in pairs]
    return holds if len(found) == len(claim.of) or holds is False else None, _listed(claim, found), margins


def _pair(claim: Claim, rows: Sequence[Row], _: Any, names: Names | None) -> Found:
    found = _settings(claim, rows, names)
    text = _listed(claim, found)
    if len(found) < len(claim.of):
        return None, text
    left, right = (row[claim.column] for _, row in found[:2])
    if len(found) == 4:
        left, right = left - right, found[2][1][claim.column] - found[3][1][claim.column]
    if (
        (math.isinf(left) and math.isinf(right))
        or math.isnan(left)
        or math.isnan(right)
        or (claim.check == "ratio" and right == 0)
    ):
        return None, text
    value = left / right if claim.check == "ratio" else left - right
    four = [row for _, row in found]
    margins = []
    for sign, bound in ((1, claim.at_least), (-1, claim.at_most)):
        if math.isfinite(bound) and claim.check == "ratio":
            margins.append(_margin(claim.column, [(sign, four[0]), (-sign * bound, four[1])]))
        elif math.isfinite(bound):
            terms = [(sign * factor, row) for factor, row in zip((1, -1, -1, 1), four, strict=False)]
            margins.append(_margin(claim.column, terms, sign * bound))
    return claim.at_least <= value <= claim.at_most, f"{text}: {claim.check} {value:.3g}", margins


def _value(claim: Claim, rows: Sequence[Row], _: Any, names: Names | None) -> Found:
    found = (
        _settings(claim, rows, names) if claim.of else [("", row) for row in rows if not math.isnan(row[claim.column])]
    )
    if not found:
        return None, "no run of it is there"
    inside = all(claim.at_least <= row[claim.column] <= claim.at_most for _, row in found)
    shown = (
        found
        if len(found) <= 6
        else [min(found, key=lambda f: f[1][claim.column]), max(found, key=lambda f: f[1][claim.column])]
    )
    text = (" to " if len(found) > 6 else ", ").join(
        (f"{name}: " if name else "") + _shown(row, claim.column) for name, row in shown
    )
    complete = len(found) == len(claim.of or rows)
    bounds = [(sign, bound) for sign, bound in ((1, claim.at_least), (-1, claim.at_most)) if math.isfinite(bound)]
    margins = [_margin(claim.column, [(sign, row)], sign * bound) for _, row in found for sign, bound in bounds]
    text += "" if complete else "; not all of its runs are there"
    return inside if complete or not inside else None, text, margins


def _best(claim: Claim, rows: Sequence[Row], _: Any, names: Names | None) -> Found:
    named = [row for row in rows if any(select([row], wanted) for wanted in claim.of)]
    others = [row for row in rows if not any(row is own for own in named)]
    known, rivals = ([row for row in group if not math.isnan(row[claim.column])] for group in (named, others))
    if not known or not rivals:
        return None, "not all of its runs are there"
    sign = -1 if claim.falling else 1
    own, other = (min(group, key=lambda row: sign * row[claim.column]) for group in (known, rivals))
    keys = list(dict.fromkeys(key for wanted in claim.of for key in wanted))
    text = " against ".join(
        f"{_label({key: row[key] for key in keys}, names)}: {_shown(row, claim.column)}" for row in (own, other)
    )
    text += _paired(own, other, claim.column)
    if math.isinf(own[claim.column]) and math.isinf(other[claim.column]):
        return None, text
    holds = sign * own[claim.column] < sign * other[claim.column]
    if len(rivals) < len(others) if holds else len(known) < len(named):  # one that is missing may be better
        return None, f"{text}; not all of its runs are there"
    return holds, text, [_margin(claim.column, [(-sign, own), (sign, rival)]) for rival in rivals]


def _along(claim: Claim, rows: Sequence[Row], names: Names | None) -> tuple[list[tuple[int, float]], list[Row], str]:
    """The column along the key `along`: (place, value) of each that has one, all rows, and the numbers as text.

    Values of a column that should fall have the other sign.
    """
    found = sorted((row for row in rows if row[claim.along] != "-"), key=lambda row: float(row[claim.along]))
    sign = -1 if claim.falling else 1
    values = [(place, sign * row[claim.column]) for place, row in enumerate(found) if not math.isnan(row[claim.column])]
    text = ", ".join(f"{_label({claim.along: row[claim.along]}, names)}: {_shown(row, claim.column)}" for row in found)
    return values, found, text


def _trend(claim: Claim, rows: Sequence[Row], _: Any, names: Names | None) -> Found:
    values, found, text = _along(claim, rows, names)
    holds, sign = _rising(values, claim.slack) if len(values) > 1 else None, -1 if claim.falling else 1
    margins = [
        _margin(claim.column, [(sign, found[later]), (-sign, found[place])], claim.slack * (place - later))
        for (place, _), (later, _) in itertools.pairwise(values)
    ]
    return holds if len(values) == len(found) or holds is False else None, text, margins


def _interior(claim: Claim, rows: Sequence[Row], _: Any, names: Names | None) -> Found:
    places, found, text = _along(claim, rows, names)
    values = [value for _, value in places]
    if len(values) < len(found) or len(values) < 3 or len(set(values)) == 1:
        return None, text
    sign, inner = -1 if claim.falling else 1, found[1 + values[1:-1].index(max(values[1:-1]))]
    margins = [_margin(claim.column, [(sign, inner), (-sign, end)]) for end in (found[0], found[-1])]
    return max(values) not in (values[0], values[-1]), text, margins


def _near(claim: Claim, rows: Sequence[Row], numbers: Sequence[dict[str, Any]], _: Any) -> Found:
    gaps, lacking = [], 0
    for number in numbers:
        inside = select(rows, setting_of(number))
        if len(inside) != 1 or math.isnan(inside[0][claim.column]):
            lacking += 1
            continue
        gaps.append(abs(inside[0][claim.column] - number["mean"]) / (abs(number["mean"]) if claim.relative else 1.0))
    if not gaps:
        return None, "no run of it is there"
    near, last = sum(gap <= claim.at_most for gap in gaps), max(gaps)
    within, farthest = (
        f"{value:.3g}" + (" times the number" if claim.relative else "") for value in (claim.at_most, last)
    )
    text = f"{near} of {len(gaps)} numbers within {within}, the farthest {farthest} off" + (
        f"; {lacking} have no run" if lacking else ""
    )
    return (None if lacking and last <= claim.at_most else last <= claim.at_most), text


_CHECKS: dict[str, Any] = {
    **{"order": _order, "ratio": _pair, "difference": _pair, "value": _value, "best": _best},
    **{"trend": _trend, "interior": _interior, "near": _near},
}
