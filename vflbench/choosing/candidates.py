"""The methods that enter, with every mechanism that gives the epsilon; and why the others do not."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from vflbench import adapt, config, registry
from vflbench.choosing import spaces
from vflbench.choosing.disclosure import violation
from vflbench.choosing.question import DIVISION, SHIPPED, SHIPPED_PRIVATE, Question
from vflbench.choosing.record import Excluded, Method
from vflbench.types import AlgorithmInfo, ConfigError, RunConfig, VflbenchError, messages, refuse

if TYPE_CHECKING:
    from vflbench.config.hydra import Session

#: what else may be asked: a method whose data are divided otherwise
ROWS = (
    "it divides rows between workers, and these data are divided by columns (name it with algorithm= to let it enter)"
)


def enter(question: Question) -> tuple[list[Method], list[Excluded]]:
    """The methods that enter, in the registry's order, and those that do not, each with its reason.

    Raises
    ------
    ConfigError : a word of the user's is wrong for every method.
    """
    methods: list[tuple[Method, RunConfig]] = []
    excluded: list[Excluded] = []
    refused: list[ConfigError] = []
    words = _common(question)
    with config.session([*words, "algorithm=*"], question.config_dir) as hydra:  # any, those of other packages too
        words = config.for_all_links(hydra, words)
        for option, info in _entering(hydra, question, words):
            if why := _no_answer(info, question):
                excluded.append(Excluded(option, None, why))
                continue
            for mechanism in _mechanisms(info, question):
                once = info.one_shot and not info.epochs  # no number of epochs changes what it does
                asked = [word for word in words if not (once and word.startswith("epochs="))]
                own = [f"algorithm={option}", *asked, *_division(info, question), *_private(question, mechanism)]
                try:
                    run = config.plan(hydra, own).config
                except ConfigError as error:
                    _raise_if_general(error)
                    refused.append(error)
                    excluded.append(Excluded(option, _given(mechanism), _reason(error)))
                    continue
                assert run is not None
                run = adapt.parties(run, info)
                if (shows := violation(run, question)) is not None:
                    excluded.append(Excluded(option, _given(mechanism), shows))
                    continue
                methods.append((Method(option, mechanism, own, {}, kind=info.name), run))
            if question.epsilon is not None and question.mechanism is None and info.privacy == ("none",):
                excluded.append(Excluded(option, None, _no_mechanism(info)))
        _divide_alike(methods, excluded, refused, hydra, question)
        if not methods:
            shared = Counter(reason for _, reason in {(one.algorithm, one.reason) for one in excluded})
            if refused and (len(shared) == 1 or max(shared[_reason(error)] for error in refused) > 1):
                raise max(refused, key=lambda error: shared[_reason(error)])  # it is general
            raise VflbenchError("no method enters:" + "".join(f"\n  {line}" for line in _alike(excluded)))
        for method, run in methods:
            method.space = spaces.applicable(method.algorithm, run, question)
    return [method for method, _ in methods], excluded


def _entering(hydra: Session, question: Question, words: list[str]) -> Iterator[tuple[str, AlgorithmInfo]]:
    """The options that may enter, each with what the registry knows of the algorithm that it configures.

    Raises
    ------
    ConfigError : an option file of the user's names no algorithm.
    """
    known, own = registry.algorithms(), config.own_options("algorithm", question.config_dir)
    for option in known if question.algorithms is None else question.algorithms:
        name = config.name_of(hydra, "algorithm", option) if option in own else option
        if name not in known:
            config.plan(hydra, [f"algorithm={option}", *words])  # says what is wrong with the file
            raise VflbenchError(f"algorithm={option}: its file names no algorithm")
        yield option, known[name]


def _common(question: Question) -> list[str]:
    """The overrides of every run."""
    words = [word for word in question.words if not word.startswith(("privacy=", *DIVISION))]
    typed = {word.partition("=")[0] for word in words}
    if question.cost == "seconds" and not {"compute", "engine.compute_clock"} & typed:
        words += ["compute=reference", "engine.compute_clock=modelled"]  # one clock for all
    words = [word for word in words if not word.startswith("privacy.")]
    return [*words, SHIPPED]


def _private(question: Question, mechanism: str) -> list[str]:
    """The overrides of a mechanism."""
    if mechanism == "none":
        return []
    return [f"privacy={mechanism}", SHIPPED_PRIVATE, *(word for word in question.words if word.startswith("privacy."))]


def _given(mechanism: str) -> str | None:
    return None if mechanism == "none" else mechanism


def _raise_if_general(error: ConfigError) -> None:
    """Raise what has nothing to do with the method: an unknown data set or key, or several values for one key."""
    refuse(
        [
            problem
            for problem in error.problems
            if problem.allowed.startswith("several values")
            or ("unknown" in problem.allowed and not problem.key.startswith("privacy."))
        ]
    )


def _no_answer(info: AlgorithmInfo, question: Question) -> str:
    """Why a method cannot answer any question about these data; empty if it can.

    Without a target, as in `tune`, baselines that send nothing may enter.
    """
    if question.target is not None:
        if "pooled" in info.assumes:
            return "one party has all data: it is a ceiling, not a federation"
        if not messages(registry.exposed(info.name)):
            return "it sends nothing: it is the floor that methods are compared with"
    data = question.data
    if data is None or question.algorithms is not None:
        return ""
    layout = registry.fit(info, data)
    if layout is None:
        return f"it needs {' or '.join(info.layouts)} data, and {data.name} gives {' or '.join(data.layouts)}"
    return ROWS if layout == "sharded" and data.layouts[0] != "sharded" else ""


def _mechanisms(info: AlgorithmInfo, question: Question) -> Iterator[str]:
    if question.mechanism is not None:
        yield question.mechanism
    elif question.epsilon is None:
        yield "none"
    else:
        yield from (name for name in registry.options("privacy", info, info.privacy) if name != "none")


def _alike(excluded: list[Excluded]) -> list[str]:
    """Reasons, each with all methods that have it; first those of the fewest: they come nearest to what is asked."""
    found: dict[str, list[str]] = {}
    for one in excluded:
        found.setdefault(re.sub(rf"\b{re.escape(one.algorithm)}\b", "it", one.reason), []).append(one.algorithm)
    lines = {reason: ", ".join(dict.fromkeys(names)) for reason, names in found.items()}
    return [f"{names}: {reason}" for reason, names in sorted(lines.items(), key=lambda item: item[1].count(","))]


def _no_mechanism(info: AlgorithmInfo) -> str:
    reason = dict(info.refuses).get("any")
    return "no mechanism gives it an epsilon" + (f": {reason}" if reason else "")


def _reason(error: ConfigError) -> str:
    return "; ".join(str(problem).rstrip(".") for problem in error.problems)


def _division(info: AlgorithmInfo, question: Question) -> list[str]:
    """The words that were typed about how the data are divided, those of keys that the method has."""
    keys = {field.name for field in dataclasses.fields(registry.option_config("algorithm", info.name))}
    return [
        word
        for word in question.words
        if word.startswith(DIVISION) and word.partition("=")[0].removeprefix("algorithm.") in keys
    ]


def _divide_alike(
    methods: list[tuple[Method, RunConfig]],
    excluded: list[Excluded],
    refused: list[ConfigError],
    hydra: Session,
    question: Question,
) -> None:
    """Where it was not typed, divide the data between as many organisations for every method: the smallest default.

    Tables to be joined have as many as there are tables. A method that cannot run so, as its links do not allow it, is
    excluded.
    """
    joined = question.data is not None and question.data.layouts[0] == "relational"
    for key in DIVISION:
        own = key.removeprefix("algorithm.")
        divided = [(method, run) for method, run in methods if vars(run.algorithm).get(own) is not None]
        defaults = {vars(run.algorithm)[own] for _, run in divided}
        typed = any(word.startswith(f"{key}=") for word in question.words)
        if typed or len(defaults) < 2 or (joined and own == "parties"):
            continue
        for method, run in divided:
            method.words.append(f"{key}={min(defaults)}")
            try:
                config.plan(hydra, method.words)
            except ConfigError as error:
                refused.append(error)
                excluded.append(Excluded(method.algorithm, _given(method.privacy), _reason(error)))
                methods.remove((method, run))
