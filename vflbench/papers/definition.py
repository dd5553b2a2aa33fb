"""The definition of a figure: `conf/figure/<paper>/<id>.yaml`, checked as a whole before any work.

title: ...                      what the picture answers, in one line
source: Table 3                 where in the paper
runs:                           the runs that it needs
  - experiment: glasu/table3    a preset with its sweep
    overrides: [seed=0,1]       on top of it, at every scale; then those of `smoke`, `small` or `full`
keys: [dataset.name, ...]       configuration keys in which settings differ, a row of the table for each setting; all
                                other keys but the seed must be equal
target: {accuracy: 0.8}         what the validation metric must reach, by metric (and data set); else the preset's
                                target; or train_loss: what the training loss must reach; or alone+0.9: 90 % of the way
                                from label owner alone to centralised; or local_sgd*0.5: half of local SGD's lowest
                                training loss or fewest validation errors, so that it takes communication to get there
easier: [{accuracy: 0.7}]       targets on the way there: columns megabytes_to_easier_1, seconds_..., epsilon_...
against: {privacy.name: none}   `excess` compares a run with that of the same seed and setting, but for these keys
pictures:                       one below the other
  - kind: values                a column of the table against a key; or `curves`: the test metric against a column of
                                the curves
    x: algorithm.local_steps    `values`: a key; `curves`: a column of curve.csv
    y: selected                 `values`: a column of the table (measured.COLUMNS, or at_epoch_8: the test metric at
                                epoch 8); `curves`: train_loss, instead of the test metric
    panels: [dataset.name]      a panel per combination of these keys
    lines: [algorithm.name]     a line per combination of these
    log: [x]                    axes that are logarithmic
    title: ...                  above it on the page
    where: {key: value}         only settings with these values; a list means any of them
    levels: {key: value}        `values`: settings with these values, which have no x, are horizontal lines
    paired: true                `curves`: bands without what all lines of a seed share, e.g. a split that is hard for
                                every method
names: {key: {value: text}}     what pictures call a value of a key; `axis`: what they call its axis
numbers:                        the paper's own, drawn as hollow markers
  - provenance: ...             where they come from
    column: selected
    unit: 0.01                  of a number below, in the table's unit
    where: {}                   keys that all of them share
    by: [dataset.name, ...]     keys of the levels of `values`
    along: epoch                instead of `column`: points of a curve; x is the last level of `values`
    values: {cora: {1: 81.0, 2: [81.2, 0.4]}}     a value, or value and standard deviation
claims:                         what the paper says (claims.py has the checks)
scaled: ...                     what is smaller than in the paper
tuning: ...                     what was tuned, on which data, with how much effort for each method
presets:                        what `runs` name, and `vflbench experiment=NAME` starts; last in the file
  glasu/table3: {...}           a preset, in lines of its own; its name is the figure's, or begins with it and `_`
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from vflbench.config import config_dir, convert
from vflbench.config.source import SCHEME, Source, text_of
from vflbench.papers.claims import Claim, among
from vflbench.papers.measured import ALONE, LEAST_SQUARES, LOCAL, TRAIN_LOSS, columns, to_easier
from vflbench.plots.curves import Picture
from vflbench.results.folder import curve_columns
from vflbench.results.reader import natural
from vflbench.types import TRAINING_METRIC, Problem, closest, refuse

SCALES = ("smoke", "small", "full")
METRICS = "accuracy", "auroc", "rmse", TRAINING_METRIC, TRAIN_LOSS  # of which there are targets
RELATIVE = ALONE, LEAST_SQUARES, LOCAL  # how a target begins that depends on the data
GOALS = f"a number, or one after {', '.join(RELATIVE)}"


@dataclass(frozen=True)
class Runs:
    """The sweep of a preset, and the changes to it."""

    experiment: str
    overrides: list[str] = field(default_factory=list)
    smoke: list[str] = field(default_factory=list)
    small: list[str] = field(default_factory=list)
    full: list[str] = field(default_factory=list)

    def words(self, scale: str) -> list[str]:
        """The overrides of the sweep at `scale`."""
        return [f"experiment={self.experiment}", *self.overrides, *getattr(self, scale)]


@dataclass(frozen=True)
class Numbers:
    """Numbers of the paper."""

    provenance: str
    by: list[str]
    values: dict[Any, Any]
    column: str = ""
    along: str = ""
    unit: float = 1.0
    where: dict[str, Any] = field(default_factory=dict)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Each number as {key: value, ..., "mean": number, "sd": number or None}, in the table's unit."""
        yield from self._rows(self.values, self.by, dict(self.where))

    def parts(self) -> list[Numbers]:
        """These numbers, one object per column; points of a curve have the columns at_epoch_1, at_epoch_2, ..."""
        if not self.along:
            return [self]
        points = sorted({float(row[self.along]) for row in replace(self, by=[*self.by, self.along]).rows()})
        return [
            replace(self, column=f"at_{self.along}_{x:g}", along="", values=_at(self.values, len(self.by), x))
            for x in points
        ]

    def _rows(self, values: Any, by: list[str], found: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if by:
            for value, inside in values.items():
                yield from self._rows(inside, by[1:], {**found, by[0]: value})
            return
        mean, sd = values if isinstance(values, list) else (values, None)
        yield {**found, "mean": mean * self.unit, "sd": None if sd is None else sd * self.unit}


def _at(values: Mapping[Any, Any], levels: int, x: float) -> Any:
    """`values` without their last level, of which only the entry at `x` is taken; None where there is none."""
    if not levels:
        return values.get(x)
    found = {value: _at(inside, levels - 1, x) for value, inside in values.items()}
    return {value: inside for value, inside in found.items() if inside is not None}


@dataclass(frozen=True)
class Definition:
    """A figure."""

    title: str
    source: str
    runs: list[Runs]
    keys: list[str]
    pictures: list[Picture]
    target: dict[str, Any] = field(default_factory=dict)
    numbers: list[Numbers] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    scaled: str = ""
    tuning: str = ""
    against: dict[str, Any] = field(default_factory=dict)
    names: dict[str, dict[str, str]] = field(default_factory=dict)
    # the same runs also on these networks, re-priced where that is exact
    networks: list[str] = field(default_factory=list)
    easier: list[dict[str, Any]] = field(default_factory=list)
    name: str = ""  # paper/id: where the file is
    presets: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def columns(self) -> list[str]:
        """The columns of the table that the figure uses."""
        pictures, numbers = [picture.y for picture in self.pictures], [part.column for part in self.numbers]
        easier = to_easier(len(self.easier))
        return list(dict.fromkeys([*pictures, *numbers, *(claim.column for claim in self.claims), *easier]))


def names() -> list[str]:
    """Every figure, as paper/id."""
    folder = config_dir() / "figure"
    return sorted((path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.yaml")), key=natural)


def choose(words: list[str]) -> list[str]:
    """The figures that the words name: paper/id, a paper or `all`.

    Raises
    ------
    ConfigError : a word names none.
    """
    known = names()
    papers = list(dict.fromkeys(name.partition("/")[0] for name in known))
    problems, found = [], []
    for word in words:
        chosen = [name for name in known if word in ("all", name, name.partition("/")[0])]
        if not chosen:
            allowed = f"no such figure; there are: all, {', '.join([*papers, *known])}"
            problems.append(Problem("figures", word, allowed, closest(word, [*papers, *known, "all"])))
        found += chosen
    refuse(problems)
    return list(dict.fromkeys(found))


def load(name: str) -> Definition:
    """The figure paper/id.

    Raises
    ------
    ConfigError : every unknown key, missing key and mistyped value of its file.
    VflbenchError : the file is not UTF-8.
    """
    path = config_dir() / "figure" / f"{name}.yaml"
    values: Mapping[str, Any] = yaml.safe_load(text_of(path))
    definition, problems = convert(Definition, {**values, "name": name})
    if not problems:
        definition = replace(definition, numbers=[part for numbers in definition.numbers for part in numbers.parts()])
        problems = check(definition)
    refuse([replace(problem, key=f"figure/{name}: {problem.key}") for problem in problems])
    result: Definition = definition
    return result


def _values(goals: Any) -> list[Any]:
    return list(goals.values()) if isinstance(goals, Mapping) else [goals]


def _is_goal(value: Any) -> bool:
    if not isinstance(value, str):
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return re.fullmatch(rf"(?:{'|'.join(map(re.escape, RELATIVE))})\d+(?:\.\d+)?", value) is not None


def check(definition: Definition) -> list[Problem]:
    """Rules between keys that the definition breaks."""
    keys, known = definition.keys, columns(definition.columns)
    problems = among("against or names", [*definition.against, *definition.names], keys)
    for key, goals in [
        ("target", definition.target),
        *((f"easier[{i}]", one) for i, one in enumerate(definition.easier)),
    ]:
        problems += among(key, goals, METRICS)
        each = [(metric, value) for metric, found in goals.items() for value in _values(found)]
        problems += [Problem(f"{key}.{metric}", value, GOALS) for metric, value in each if not _is_goal(value)]
    for place, picture in enumerate(definition.pictures):
        where = f"pictures[{place}]"
        problems += among(f"{where}.x", [picture.x], keys if picture.kind == "values" else curve_columns("")[:-2])
        problems += among(f"{where}.y", [picture.y], known)
        problems += among(where, [*picture.panels, *picture.lines, *picture.where, *picture.levels], keys)
    for place, numbers in enumerate(definition.numbers):
        problems += among(f"numbers[{place}].column", [numbers.column], known)
        problems += among(f"numbers[{place}]", [*numbers.by, *numbers.where], keys)
    for place, claim in enumerate(definition.claims):
        problems += [replace(p, key=f"claims[{place}].{p.key}") for p in claim.problems(keys, known)]
    return [*problems, *_preset_problems(definition)]


def _preset_problems(definition: Definition) -> list[Problem]:
    """Presets that are not found by their names, here or for the runs."""
    options, problems = Source("vflbench", f"{SCHEME}://{config_dir()}"), list[Problem]()
    here = config_dir() / "figure" / f"{definition.name}.yaml"
    for name in definition.presets:
        if options.file(f"experiment/{name}") != here:
            allowed = f"is looked for elsewhere: call it {definition.name} or {definition.name}_..."
            problems.append(Problem("presets", name, allowed))
    known = options.options("experiment")
    for place, runs in enumerate(definition.runs):
        problems += among(f"runs[{place}].experiment", [runs.experiment], known)
    return problems
