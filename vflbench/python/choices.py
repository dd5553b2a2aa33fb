"""`vflbench.choose` and `vflbench.tune`."""

from __future__ import annotations

import contextlib
import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vflbench.python.runs import Runs, listed, with_data
from vflbench.python.tables import Tables, naming
from vflbench.results import reader
from vflbench.types import VflbenchError

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False)
class Answer:
    """The answer of `choose`; its folder has the runs, ``answer.json`` and the page ``answer.html``."""

    folder: Path
    answer: Mapping[str, Any]  #: the content of ``answer.json``

    @cached_property
    def table(self) -> pd.DataFrame:
        """A row for each method that was compared, the best one first."""
        import pandas as pd

        return pd.DataFrame(self.answer["methods"])

    @property
    def command(self) -> str | None:
        """The command that trains the winner, or else the method that came closest; None if nothing ran."""
        names = {row["name"]: row["command"] for row in self.answer["methods"]}
        closest: Mapping[str, Any] = self.answer["closest"] or {}
        found: str | None = names.get(self.answer["winner"]) or closest.get("command")
        return found

    @property
    def runs(self) -> Runs:
        """The runs behind the answer, the winner's first."""
        folders = [folder for row in self.answer["methods"] for folder in row["runs"]]
        return Runs(tuple(reader.load(self.folder / folder) for folder in folders))

    def html(self) -> str:
        """The text of the page."""
        path = self.folder / str(self.answer["page"])
        try:
            return path.read_text(encoding="utf-8")
        except OSError as error:
            raise VflbenchError(f"{path}: {error.strerror}") from None

    def __repr__(self) -> str:
        """The answer in a sentence, and the folder on a second line."""
        return f"{self.answer['sentence']}\n{self.folder}"

    def _repr_html_(self) -> str:
        """The answer, the command and the methods, for a notebook."""
        shown = ["name", "place", "reached", "of", "validation", "test", "bytes", "seconds", "epsilon", "others_see"]
        texts = [self.answer["data"]["alarm"], self.answer["sentence"], self.command, self.answer["sure"]]
        texts.append(self.answer["tried"]["words"])
        lines = [f"<p>{html.escape(str(line))}</p>" for line in texts if line]
        return "".join([*lines, self.table.reindex(columns=shown).to_html(index=False)])


def choose(overrides: Sequence[str], config_dir: str | Path | None = None, data: Tables | None = None) -> Answer:
    """Find the method that reaches a target at the least cost, as ``vflbench choose WORDS...`` does.

    Progress is printed on stderr. Add ``"resume=true"`` to go on with a search that was interrupted. In a program with
    ``"jobs=2"``, put the call below ``if __name__ == "__main__":``, because each process imports the program.

    Parameters
    ----------
    overrides : the words of the question, e.g. ``["dataset=cora", "target=0.8", "budget=20m"]``.
    config_dir : a folder with options of your own.
    data : DataFrames in place of ``dataset=``, as `tables` returns them.

    Returns
    -------
    Answer : ``.answer`` is a dict, ``.table`` a DataFrame, ``.folder`` a Path. ``.answer["reached"]`` is False if
        nothing reaches the target.

    Raises
    ------
    ConfigError : the question has problems; the error lists all of them.
    VflbenchError : data are missing or malformed, or the folder holds another question.
    """
    from vflbench.choosing import answer, question
    from vflbench.cli import choose as command

    words = listed(overrides) if data is None else with_data(listed(overrides), data)
    with naming(data) if data is not None else contextlib.nullcontext():
        asked = question.parse(words, "choose", None if config_dir is None else str(config_dir))
        folder, record = command.search(asked, command.PLACE)
        answer.write(folder, record)
    return Answer(folder, json.loads((folder / answer.FILE).read_text(encoding="utf-8")))


@dataclass(frozen=True, repr=False)
class Tuned:
    """The result of `tune`: `folder` has the runs, and an entry of `file` the best values."""

    folder: Path
    file: Path  #: the tuned values of the algorithm, which later runs use
    answer: Mapping[str, Any]  #: the content of ``record.json``

    @property
    def values(self) -> dict[str, Any]:
        """The best values: key -> value."""
        (method,) = self.answer["methods"]
        return next(dict(trial["values"]) for trial in method["trials"] if trial["number"] == method["best"])

    @cached_property
    def table(self) -> pd.DataFrame:
        """A row for each run: its values, its result, whether its setting is the best, and the `seed` of a repeat."""
        import pandas as pd

        (method,) = self.answer["methods"]
        trials = [{**trial.pop("values"), **trial} for trial in map(dict, [*method["trials"], *method["repeats"]])]
        return pd.DataFrame(trials).assign(best=lambda table: table.number == method["best"])

    def __repr__(self) -> str:
        """What was tuned and the best values, and the file on a second line."""
        (method,) = self.answer["methods"]
        values = ", ".join(f"{key}={value}" for key, value in self.values.items()) or "as shipped"
        tuned = f"{method['algorithm']} on {self.answer['question']['dataset']}, best of {len(method['trials'])} trials"
        return f"Tuned {tuned}: {values}\n{self.file}"

    def _repr_html_(self) -> str:
        """The trials, for a notebook."""
        return f"<p>{html.escape(repr(self))}</p>{self.table.to_html(index=False)}"


def tune(
    overrides: Sequence[str],
    out: str | Path | None = None,
    config_dir: str | Path | None = None,
    data: Tables | None = None,
) -> Tuned:
    """Search a method's settings for a data set, as ``vflbench tune WORDS...`` does.

    Parameters
    ----------
    overrides : what to tune, e.g. ``["algorithm=glasu", "dataset=citeseer", "trials=16"]``.
    out : a folder of options, for ``tuned/ALGORITHM.yaml``; None: the options of your checkout.
    config_dir : a folder with options of your own.
    data : DataFrames in place of ``dataset=``, as `tables` returns them.

    Returns
    -------
    Tuned : ``.values`` are the best ones, ``.table`` has a row for each run.

    Raises
    ------
    ConfigError : the words have problems; the error lists all of them.
    VflbenchError : the values already exist, no trial has a value, or data are missing or malformed.
    """
    from vflbench.cli import choose as search
    from vflbench.cli import tune as command

    words = listed(overrides) if data is None else with_data(listed(overrides), data)
    with naming(data) if data is not None else contextlib.nullcontext():
        where = (None if one is None else str(one) for one in (out, config_dir))
        asked, place = command.ask(words, *where)
        folder, record = search.search(asked, command.PLACE)
        command.keep(folder, record, place, asked.overwrite)
    return Tuned(folder, place.file, asdict(record))
