"""What a paper says of its figure, checked against what was measured.

    claims:
      - claim: PubSub-VFL is the fastest          what the paper says
        paper: "Fig. 3: 7x"                       where, and its number
        check: order                              how it is checked, below
        column: seconds_to_target
        ...

Checks compare means over seeds, in every combination of the keys `each` by itself; `where` leaves other settings out.

- `order`: `of`, settings as {key: value}, is in falling (`falling: true`) or rising order of the column; equal counts as in order
- `ratio`, `difference`: of the first of `of` to the second, at least `at_least`, at most `at_most`; a difference may be of two differences,
  of the first two settings and of the last two
- `value`: each of `of` (all, if it is empty), at least, at most
- `best`: the smallest (`falling: true`: the largest) value is that of one of `of`, all settings of which are compared with all others
- `trend`: along the numbers of the key `along`, the column never falls (rises with `falling: true`) by more than `slack`
- `interior`: along `along` the largest (`falling: true`: the smallest) value is at neither end
- `near`: every number of the paper of this column, within `at_most` (`relative: true`: times that number)
- `untestable`: `why`

A column that says when a target was reached is infinite where not all seeds reached it.
Made-up data say nothing, unless the claim has `made_up: true`: the paper's are made up too, or it is about what depends on sizes alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from vflbench.results.identity import said
from vflbench.types import Problem, closest

Row = dict[str, Any]  # a setting of the table: key -> value, column -> mean over seeds, <column>_sd -> its spread
Verdict = Literal["holds", "does not hold", "not testable"]
CHECKS = ("order", "ratio", "difference", "value", "best", "trend", "interior", "near", "untestable")


@dataclass(frozen=True)
class Claim:
    """One claim, and how it is checked."""

    claim: str
    check: str
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

    def problems(self, keys: Sequence[str], columns: Iterable[str]) -> list[Problem]:
        """What is wrong with it, for a figure's keys and the table's columns."""
        found = []
        if self.check not in CHECKS:
            found.append(Problem("check", self.check, f"must be one of {', '.join(CHECKS)}", closest(self.check, CHECKS)))
        if self.column not in columns:
            found.append(Problem("column", self.column, f"must be one of {', '.join(columns)}", closest(self.column, columns)))
        used = [*self.each, *self.where, *(key for chosen in self.of for key in chosen), *([self.along] if self.along else [])]
        found += [Problem("key", key, f"must be one of `keys`: {', '.join(keys)}", closest(key, keys)) for key in used if key not in keys]
        if self.check in ("ratio", "difference") and len(self.of) not in ((2, 4) if self.check == "difference" else (2,)):
            found.append(Problem("of", self.of, "must be two settings" + (" or four" if self.check == "difference" else "")))
        if self.check == "best" and not self.of:
            found.append(Problem("of", self.of, "must be a setting or more"))
        if self.check == "order" and len(self.of) < 2:
            found.append(Problem("of", self.of, "must be two settings or more"))
        if self.check in ("trend", "interior") and not self.along:
            found.append(Problem("along", self.along, "must be a key"))
        if self.check in ("ratio", "difference", "value") and math.isinf(self.at_least) and math.isinf(self.at_most):
            found.append(Problem("at_least", None, "or at_most must be given"))
        if self.check == "near" and math.isinf(self.at_most):
            found.append(Problem("at_most", None, "must be given"))
        if self.check == "untestable" and not self.why:
            found.append(Problem("why", self.why, "must say why"))
        return found


@dataclass(frozen=True)
class Judged:
    """A claim's verdict and the numbers behind it."""

    claim: Claim
    verdict: Verdict
    why: str


def judge(claim: Claim, table: Sequence[Row], numbers: Sequence[dict[str, Any]], excuse: str = "") -> Judged:
    """The verdict on `claim`.

    Parameters
    ----------
    table : a row per setting.
    numbers : the paper's own of this column: keys, mean.
    excuse : why nothing can be said of any claim (runs of two rounds); empty: nothing speaks against it.
    """
    if claim.check == "untestable":
        return Judged(claim, "not testable", claim.why)
    if excuse:
        return Judged(claim, "not testable", excuse)
    chosen = select(table, claim.where)
    sources = [kind for kind in ("synthetic", "partial") if any(row.get("data_source") == kind for row in chosen)]
    if sources and not claim.made_up:
        return Judged(claim, "not testable", f"{' and '.join(sources)} data")
    numbers = [n for n in numbers if select([n], {key: value for key, value in claim.where.items() if key in n})]
    verdicts, reasons = [], []
    for names, rows in grouped(chosen, claim.each):
        holds, reason = _CHECKS[claim.check](claim, rows, [n for n in numbers if _fits(n, names)])
        verdicts.append(holds)
        reasons.append(f"{', '.join(str(value) for value in names.values())}: {reason}" if names else reason)
    known = [holds for holds in verdicts if holds is not None]
    why = "; ".join(reasons)
    if False in known:
        return Judged(claim, "does not hold", why)
    if not known or len(known) < len(verdicts):
        return Judged(claim, "not testable", why or "no run of it is there")
    return Judged(claim, "holds", why)


def select(table: Sequence[Row], where: dict[str, Any]) -> list[Row]:
    """The rows whose keys have the values of `where`; a list means any of them."""
    allowed = {key: [said(value) for value in (wanted if isinstance(wanted, list) else [wanted])] for key, wanted in where.items()}
    return [row for row in table if all(said(row[key]) in values for key, values in allowed.items())]


def grouped(table: Sequence[Row], keys: Sequence[str]) -> list[tuple[Row, list[Row]]]:
    """The rows by their values of `keys`: (key -> value, rows), in the order in which these come."""
    found: dict[tuple[str, ...], tuple[Row, list[Row]]] = {}
    for row in table:
        names = {key: row[key] for key in keys}
        found.setdefault(tuple(map(said, names.values())), (names, []))[1].append(row)
    return list(found.values())


def _fits(number: dict[str, Any], names: dict[str, Any]) -> bool:
    return all(said(number[key]) == said(value) for key, value in names.items() if key in number)


def _told(row: Row, column: str) -> str:
    value, sd = row[column], row.get(f"{column}_sd", math.nan)
    if math.isinf(value):
        return "never"
    return f"{value:.4g}" + (f" ± {sd:.2g}" if sd == sd else "")


def _settings(claim: Claim, rows: Sequence[Row]) -> list[tuple[str, Row]] | None:
    """Name and row of each setting of `of`; None where one is not there, or is not one row."""
    found = []
    for wanted in claim.of:
        inside = select(rows, wanted)
        if len(inside) != 1 or math.isnan(inside[0][claim.column]):
            return None
        found.append((" ".join(str(value) for value in wanted.values()), inside[0]))
    return found


Found = tuple[bool | None, str]  # whether it holds, None where that cannot be said; and the numbers


def _order(claim: Claim, rows: Sequence[Row], _: Any) -> Found:
    found = _settings(claim, rows)
    if found is None:
        return None, "not all of its runs are there"
    values = [row[claim.column] for _, row in found]
    told = ", ".join(f"{name} {_told(row, claim.column)}" for name, row in found)
    return values == sorted(values, reverse=claim.falling), told


def _pair(claim: Claim, rows: Sequence[Row], _: Any) -> Found:
    found = _settings(claim, rows)
    if found is None:
        return None, "not all of its runs are there"
    told = ", ".join(f"{name} {_told(row, claim.column)}" for name, row in found)
    left, right = (row[claim.column] for _, row in found[:2])
    if len(found) == 4:
        left, right = left - right, found[2][1][claim.column] - found[3][1][claim.column]
    if (math.isinf(left) and math.isinf(right)) or math.isnan(left) or math.isnan(right) or (claim.check == "ratio" and right == 0):
        return None, told
    value = left / right if claim.check == "ratio" else left - right
    return claim.at_least <= value <= claim.at_most, f"{told}: {claim.check} {value:.3g}"


def _value(claim: Claim, rows: Sequence[Row], _: Any) -> Found:
    if claim.of:
        found = _settings(claim, rows) or []
        if not found:
            return None, "not all of its runs are there"
    else:
        found = [("", row) for row in rows if not math.isnan(row[claim.column])]
        if not found:
            return None, "no run of it is there"
    inside = [claim.at_least <= row[claim.column] <= claim.at_most for _, row in found]
    shown = found if len(found) <= 6 else [min(found, key=lambda f: f[1][claim.column]), max(found, key=lambda f: f[1][claim.column])]
    told = (" to " if len(found) > 6 else ", ").join(f"{name} {_told(row, claim.column)}".strip() for name, row in shown)
    return all(inside), told


def _best(claim: Claim, rows: Sequence[Row], _: Any) -> Found:
    known = [row for row in rows if not math.isnan(row[claim.column])]
    named = [row for row in known if any(select([row], wanted) for wanted in claim.of)]
    others = [row for row in known if not any(row is own for own in named)]
    if not named or not others:
        return None, "not all of its runs are there"
    sign = -1 if claim.falling else 1
    own, other = (min(group, key=lambda row: sign * row[claim.column]) for group in (named, others))
    told = f"{_told(own, claim.column)} against {_told(other, claim.column)}"
    if math.isinf(own[claim.column]) and math.isinf(other[claim.column]):
        return None, told
    return sign * own[claim.column] < sign * other[claim.column], told


def _along(claim: Claim, rows: Sequence[Row], least: int) -> tuple[list[float], str]:
    """The column along the key `along`, its sign turned where it is to fall; and the numbers. Nothing where fewer than `least` have one."""
    found = sorted(((float(row[claim.along]), row) for row in rows if not math.isnan(row[claim.column])), key=lambda item: item[0])
    if len(found) < least:
        return [], "not all of its runs are there"
    sign = -1 if claim.falling else 1
    return [sign * row[claim.column] for _, row in found], ", ".join(f"{at:g}: {_told(row, claim.column)}" for at, row in found)


def _trend(claim: Claim, rows: Sequence[Row], _: Any) -> Found:
    values, told = _along(claim, rows, least=2)
    return all(b >= a - claim.slack for a, b in itertools.pairwise(values)) if values else None, told


def _interior(claim: Claim, rows: Sequence[Row], _: Any) -> Found:
    values, told = _along(claim, rows, least=3)
    return max(values) not in (values[0], values[-1]) if values else None, told


def _near(claim: Claim, rows: Sequence[Row], numbers: Sequence[dict[str, Any]]) -> Found:
    gaps, lacking = [], 0
    for number in numbers:
        inside = select(rows, {key: value for key, value in number.items() if key not in ("mean", "sd")})
        if len(inside) != 1 or math.isnan(inside[0][claim.column]):
            lacking += 1
            continue
        gaps.append(abs(inside[0][claim.column] - number["mean"]) / (abs(number["mean"]) if claim.relative else 1.0))
    if not gaps:
        return None, "no run of it is there"
    near, last = sum(gap <= claim.at_most for gap in gaps), max(gaps)
    within, farthest = (f"{value:.3g}" + (" times the number" if claim.relative else "") for value in (claim.at_most, last))
    told = f"{near} of {len(gaps)} numbers within {within}, the farthest {farthest} off"
    return max(gaps) <= claim.at_most, told + (f"; {lacking} have no run" if lacking else "")


_CHECKS: dict[str, Any] = {
    **{"order": _order, "ratio": _pair, "difference": _pair, "value": _value, "best": _best},
    **{"trend": _trend, "interior": _interior, "near": _near},
}
