"""`vflbench explain`."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from itertools import islice
from typing import Any, cast

from omegaconf import DictConfig

from vflbench import adapt, config, registry
from vflbench.cli.words import complain, one_line, say
from vflbench.config import layers, typed
from vflbench.config.hydra import Session
from vflbench.config.overrides import LINK_KEYS
from vflbench.results.texts import align
from vflbench.types import ADAPTABLE, ConfigError, Problem, VflbenchError, closest, refuse

COMPOSED = 100  # jobs of a sweep whose values are compared: a job takes some 20 ms


def command(args: list[str]) -> int:
    """`vflbench explain KEY [group=option ...] [key=value ...]`: a value, and where it comes from."""
    parser = ArgumentParser(
        prog="vflbench explain",
        usage="vflbench explain KEY [-m] [--config-dir DIR] [group=option ...] [key=value ...]",
        description="What a key is for, what it may be, its value in this configuration, and where that comes from.",
    )
    parser.add_argument("key", help="a key, as algorithm.lr, or a group, as algorithm")
    parser.add_argument("words", nargs="*", default=[], help="the configuration")
    parser.add_argument("-m", "--multirun", action="store_true", help="the configuration is a sweep")
    parser.add_argument("--config-dir", metavar="DIR", help="a folder with options of your own")
    flags = parser.parse_intermixed_args(args)
    with config.session(flags.words, flags.config_dir) as hydra:
        words, used = config.for_all_links(hydra, flags.words), dict[str, Any]()
        several = dict[str, tuple[str, str]]()
        try:
            plan = config.plan(hydra, words, flags.multirun)
            cfg, several = plan.cfg, _several(hydra, plan)
            if plan.jobs:
                cfg = _first_job(hydra, words, plan)
            if plan.config is not None:
                info = registry.algorithms()[plan.config.algorithm.name]
                used = adapt.changes(plan.config, adapt.parties(plan.config, info))
        except ConfigError as error:  # a key that a run still needs may be what is asked about
            try:
                cfg = config.compose(hydra, words)
                values = config.plain(cfg)
            except VflbenchError:
                raise error from None
            if any(not typed.lists(values, problem.key) for problem in error.problems):
                raise
            complain(f"a run would be refused: {one_line(error)}")
        say(_explained(flags.key, config.plain(cfg), layers.layers(cfg.hydra), used, several))
    return 0


def _first_job(hydra: Session, words: list[str], plan: config.Plan) -> DictConfig:
    """A sweep's configuration with the options of its first job; its other keys have all of their values."""
    job = {word.partition("=")[0]: word for word in (plan.jobs or [[]])[0]}
    first = {key: word for key, word in job.items() if key in hydra.groups() & plan.swept}
    if first:
        say(f"the sweep has several options; explained with {' '.join(first.values())}")
    typed = {word: word.partition("=")[0] for word in words}
    others = [word for word, key in typed.items() if key not in first and (key in job or key.startswith("hydra"))]
    return config.compose(hydra, [*others, *first.values()], sweep=True)


def _several(hydra: Session, plan: config.Plan) -> dict[str, tuple[str, str]]:
    """Key -> its values in a sweep's jobs, and why it has more than one; no values where the sweep itself has them."""
    different = dict.fromkeys(tuple(word for word in job if not word.startswith("seed=")) for job in plan.jobs or [])
    found = dict[str, list[str]]()
    for job in islice(different, COMPOSED):
        for key, value in _keys(config.plain(config.compose(hydra, job))).items():
            if (text := _shown(value)) not in found.setdefault(key, []):
                found[key].append(text)
    several = {key: (",".join(texts), "differs between jobs") for key, texts in found.items() if len(texts) > 1}
    return several | dict.fromkeys(plan.swept, ("", "a sweep"))


def _explained(
    key: str,
    values: Mapping[str, Any],
    found: list[layers.Layer],
    used: Mapping[str, Any],
    several: Mapping[str, tuple[str, str]],
) -> str:
    """The text about a key, or about each key of a group. Raises ConfigError where there is no such key."""
    if key in LINK_KEYS:
        both = (f"network.{links}.{LINK_KEYS[key][1]}" for links in ("client_server", "client_client"))
        return "\n\n".join(_explained(one, values, found, used, several) for one in both)
    keys, chosen = _keys(values), [layer for layer in found if key in layer.values]
    inside = [one for one in keys if one.startswith(f"{key}.")]
    if key not in keys and not inside and not chosen:
        known = [*keys, *values]
        refuse([Problem("explain", key, "this configuration has no such key", closest(key, known))])
    if key in keys:
        return "\n".join(_of_key(key, values, found, used, several))
    head = [f"{key}={_shown(chosen[-1].values[key])}, {chosen[-1].name}, from {chosen[-1].place}", ""] if chosen else []
    rows = [["key", "value", "layer", "from"]]
    for one in inside:
        name, swept, place, _ = _rows(one, found, used)[-1]
        text = several[one][0] or swept if one in several else _shown(used[one]["used"] if one in used else keys[one])
        rows.append([one, text, name, place])
    return "\n".join([*head, align(rows)] if inside else head[:1])


def _of_key(
    key: str,
    values: Mapping[str, Any],
    found: list[layers.Layer],
    used: Mapping[str, Any],
    several: Mapping[str, tuple[str, str]],
) -> Iterator[str]:
    """The lines about one key."""
    rows, (texts, why) = _rows(key, found, used), several.get(key, ("", ""))
    value = texts or rows[-1][1] if why else _shown(used[key]["used"] if key in used else _keys(values)[key])
    yield ", ".join(filter(None, (f"{key} = {value}", rows[-1][0], why)))
    if about := _meaning(key, found):
        yield about
    if allowed := _allowed(key, values):
        yield allowed
    if key in ADAPTABLE and rows[-1][0] in ("default", "tuned"):
        yield "a run may adapt it to its data, and says so"
    yield ""
    yield align([["layer", "value", "from", ""], *rows])


def _rows(key: str, found: list[layers.Layer], used: Mapping[str, Any]) -> list[list[str]]:
    """The layers that have the key, the one that counts last: name, value, place, note."""
    rows = [[one.name, _shown(one.values[key]), one.place, one.note] for one in found if key in one.values]
    if key in used:
        place = next((number for number, row in enumerate(rows) if row[0] in ("preset", "typed")), len(rows))
        rows.insert(place, ["adapted", _shown(used[key]["used"]), "the data set has no other number", ""])
    return rows or [["default", "", "the option's own class", ""]]


def _keys(values: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Whole key -> value, of every key that has no keys itself."""
    found = dict[str, Any]()
    for name, value in values.items():
        found |= _keys(value, f"{above}{name}.") if isinstance(value, Mapping) and value else {f"{above}{name}": value}
    return found


def _meaning(key: str, found: list[layers.Layer]) -> str:
    """What the comment of the key says in the first option file that has one."""
    files = [one.file for one in found if one.file and one.name == "default" and key in one.values]
    comments = (layers.meaning(file, name) for file in files for name in (key.partition(".")[2], key))
    return next(filter(None, comments), "")


def _allowed(key: str, values: Mapping[str, Any]) -> str:
    """What the key may be, in the words of the errors that refuse other values."""
    kind: Any = None
    for depth, part in enumerate(key.split(".")):
        kinds = (
            config.kinds_of(values) if not depth else typed.fields_of(cast(type, kind)) if is_dataclass(kind) else {}
        )
        kind = kinds.get(part)
    problems: list[Problem] = []
    for impossible in (object(), -(10**18), 10**18) if kind is not None and kind is not Any else ():
        typed.convert_value(kind, impossible, key, problems)
    words = [one.allowed.removeprefix("must be ") for one in problems]
    told = [*dict.fromkeys(word.removesuffix(", or null") for word in words)]
    null = [", or null"] if any(word.endswith(", or null") for word in words) else []
    return ", ".join(one for one in told if not one.startswith("text") or len(told) == 1) + "".join(null)


def _shown(value: Any) -> str:
    return str(typed.as_typed(value))
