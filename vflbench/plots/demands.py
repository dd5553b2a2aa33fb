"""Privacy requirements: what others may see at most. The report asks for them first; here are the best settings.

A requirement hides some of what methods disclose, and all that the weaker ones hide. What is worked out exactly from
messages is disclosed, too. What has noise is hidden up to an epsilon. Epsilons of another unit, neighbouring relation
or coverage are a requirement of their own. An unverified method meets none.
`report_page/demands.js` answers it for the reader's own axis, target and limits.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vflbench import exposure, registry
from vflbench.plots import style
from vflbench.results.selection import Setting
from vflbench.results.texts import guarantee, human_bytes, label_epsilon
from vflbench.types import SHOWN, TRAINING_METRIC, VflbenchError

NOISE = 10.0  # noise counts up to this epsilon: "reasonable", Ponomareva et al. 2023, arXiv 2303.00654
HEADS = ("others may see", "best method", "sent to target", "selected", "epsilon", "others see")
# Key, what others may still see, and what it hides beside those before it; weakest first.
LADDER: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("anything", "anything", ()),
    ("columns", "no raw columns", ("raw",)),
    ("labels", "no raw columns, no labels", ("labels",)),
    ("forms", "no columns in any form, no labels", ("binned", "projection")),
    ("rows", "only models and sums", ("embedding", "gradient", "prediction", "split bitmaps", "edges")),
    ("noise", "in training nothing without noise", ("model", "sums")),
)
COLUMNS = {"raw": "raw columns", "binned": "binned columns", "projection": "projected columns"}  # in a sentence


@dataclass(frozen=True)
class Seen:
    """What a method, with its keys and a mechanism, shows others, or lets them work out exactly."""

    clear: tuple[str, ...] | None  #: without noise, of `types.SHOWN`; None: not known
    noised: tuple[str, ...]  #: with noise of `epsilon`
    epsilon: float | None  #: finite
    guarantee: str | None  #: unit, neighbouring relation and coverage of a finite epsilon
    to_whom: str | None  #: in words; None: not known
    label_epsilon: float | None = None  #: of labels, where they have one of their own
    inferred: tuple[str, ...] = ()  #: of `clear` and `noised`, what no message carries
    served: tuple[str, ...] = ()  #: of `noised`, what is sent without noise about rows that are predicted
    verified: bool = True  #: whether the method declares what follows from its messages

    def epsilon_of(self, what: str) -> float | None:
        """The epsilon behind the noise of what is sent, one of `noised`."""
        return self.epsilon if what != "labels" or self.label_epsilon is None else self.label_epsilon

    @property
    def words(self) -> str:
        """What it shows."""
        if self.clear is None:
            return "not known"
        said = ", ".join(map(self._in_words, (*self.clear, *self.noised))) or "nothing"
        return said if self.verified else f"{said} (unverified)"

    def _in_words(self, what: str) -> str:
        noised = " with noise" * (what in self.noised)
        notes = {"inferred": what in self.inferred, "predicted rows without": what in self.served}
        more = ", ".join(note for note, true in notes.items() if true)
        return f"{COLUMNS.get(what, what)}{noised}{f' ({more})' * bool(more)}"


@dataclass(frozen=True)
class Demand:
    """A privacy requirement: what others may see at most."""

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
        return Seen(None, (), epsilon, about, None, verified=False)
    keys = {key.removeprefix("algorithm."): value for key, value in setting.config.items()}
    keys |= {"protection": setting.config.get("protection.name", "none"), "convex": setting.metric == TRAINING_METRIC}
    private = {
        key.removeprefix("privacy."): value for key, value in setting.config.items() if key.startswith("privacy.")
    }
    private["name"] = privacy["mechanism"]
    labels = label_epsilon(run.summary["privacy"] for run in setting.runs)
    return of_method(setting.algorithm, keys, private if about else None, epsilon, about, labels)


def of_method(
    algorithm: str,
    keys: Mapping[str, Any],
    private: Mapping[str, Any] | None = None,
    epsilon: float | None = None,
    about: str | None = None,
    labels: float | None = None,
) -> Seen:
    """What a method shows others, by `exposure.disclosed`: every requirement is judged by this.

    Parameters
    ----------
    keys, private : as in `exposure.keys_of`, and of the mechanism, with their values; None: no noise counts. Keys of
        the algorithm that are not there have their defaults.
    epsilon, about, labels : `epsilon`, `guarantee` and `label_epsilon` of the result.
    """
    default = vars(registry.option_config("algorithm", algorithm)())
    found = exposure.disclosed(algorithm, {**default, **keys}, private)
    training = [one for one in found if one.how != "served"]
    noised = {one.what for one in training if one.noised} - {one.what for one in training if not one.noised}
    in_clear = {one.what for one in found if not one.noised}
    carried = {one.what for one in found if one.how != "implied"}
    whats = [what for what in dict.fromkeys(SHOWN.values()) if what in noised | in_clear and what != "ciphertext"]
    return Seen(
        tuple(what for what in whats if what not in noised),
        tuple(what for what in whats if what in noised),
        epsilon,
        about,
        exposure.in_words(found),
        labels,
        inferred=tuple(what for what in whats if what not in carried),
        served=tuple(what for what in whats if what in noised & in_clear),
        verified=not exposure.unverified(algorithm),
    )


def wanted(text: str | None) -> Demand | None:
    """The requirement of that key, or in these words; None: others may see anything.

    Raises
    ------
    VflbenchError : there is no such requirement.
    """
    hidden = tuple[str, ...]()
    for key, words, more in LADDER if text is not None else ():
        hidden += more
        if text in (key, words):
            return Demand(key, words, hidden)
    if text is None:
        return None
    raise VflbenchError(f"there is no privacy requirement {text!r}; there are: {', '.join(key for key, *_ in LADDER)}")


def relevant(found: Sequence[Seen]) -> list[Demand]:
    """The requirements that matter for these settings, weakest first: each hides more of what they show."""
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
    """Why a setting does not meet a requirement, where noise counts up to that epsilon; None where it does."""
    if not demand.hides:
        return None
    if one.clear is None:
        return "what it shows is not known"
    if not one.verified:
        return exposure.UNVERIFIED
    shown = [what for what in one.clear if what in demand.hides]
    weak = [(what, one.epsilon_of(what)) for what in one.noised if what in demand.hides]
    shown += [f"{what} at epsilon {own:.4g}" for what, own in weak if own is not None and own > noise]
    if shown:
        return f"it shows {', '.join(shown)}"
    if demand.guarantee and one.guarantee != demand.guarantee:
        return f"its epsilon is of another kind: {one.guarantee}" if one.guarantee else "it has no epsilon"
    return None


def unverified(one: Seen, demand: Demand, noise: float = NOISE) -> bool:
    """Whether a setting would meet a requirement if it were verified."""
    return bool(demand.hides) and not one.verified and unmet(replace(one, verified=True), demand, noise) is None


def caveat(settings: Sequence[Setting]) -> str:
    """That epsilons are of several kinds, and which methods are unverified, where that is so."""
    kinds: dict[str, list[str]] = {}
    unknown: dict[str, None] = {}
    for setting in settings:
        one, label = seen(setting), style.look(setting.algorithm).label
        if one.guarantee is not None:
            kinds.setdefault(one.guarantee, []).append(label)
        if not one.verified:
            unknown[label] = None
    said = []
    if len(kinds) > 1:
        named = "; ".join(f"{', '.join(dict.fromkeys(names))}: {kind}" for kind, names in kinds.items())
        said.append(f"Epsilons are of {len(kinds)} kinds, which are not compared ({named})")
    if unknown:
        said.append(f"Unverified, so no privacy requirement is met: {', '.join(unknown)}")
    return ". ".join(said)


def cells(
    settings: Sequence[Setting],
    rows: Sequence[Mapping[str, Any]],
    score: Callable[[float | None, float | None, str], str],
    noise: float = NOISE,
) -> list[list[str]]:
    """The answer to each requirement as texts, for `HEADS`.

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
    for demand in relevant(found):
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
