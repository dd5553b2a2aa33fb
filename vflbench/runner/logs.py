"""A run's logger: it gets each evaluation as soon as it is made, and cannot harm the run."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vflbench import registry
from vflbench.results import inventory
from vflbench.results.folder import splits
from vflbench.results.identity import flat
from vflbench.types import RunConfig, VflbenchError

FOLDER = "logs"  # in the run's
KEYS = ("round", "epoch", "iterations", "bytes", "virtual_seconds", "epsilon", "train_loss")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoggedRun:
    """What a logger knows about the run when it starts."""

    name: str
    folder: Path  #: `logs/` in the run's folder: files that are written there belong to the run
    columns: tuple[str, ...]  #: all keys that a row can have, those of `curve.csv`
    parameters: Mapping[str, Any]  #: the whole configuration, by dotted names, without secrets
    token: str  #: hexadecimal digits, the same when the run is resumed
    logged: frozenset[int] = frozenset()  #: the rounds that were logged before the run was resumed


class Log:
    """The logger of one run, which may be `none`.

    If it fails, a warning says so, and the run goes on without it. `logs/<logger>.rounds` has the run's token and the
    rounds that were logged: a resumed run logs none of them again.
    """

    def __init__(self, config: RunConfig, folder: Path, metric: str, plain: Mapping[str, Any]) -> None:
        self.name, self.run, self.folder = config.logger.name, folder, folder / FOLDER
        self.rounds, self.logged = self.folder / f"{self.name}.rounds", set[int]()
        self.columns = (*KEYS, *(f"{split}_{metric}" for split in splits(metric)))
        self.claimed, self.made = set[Path](), set[Path]()  # the run's files, and folders that the logger made
        self.logger: Any = None
        self.ended = self.name == "none"
        if self.name != "none":
            with self._harmless():
                self.logger = self._start(config.logger, {k: v for k, v in flat(plain).items() if v is not None})

    def _start(self, config: Any, parameters: Mapping[str, Any]) -> Any:
        self.folder.mkdir(mode=0o700, exist_ok=True)
        names = [path.relative_to(self.run).as_posix() for path in self._files()]
        if foreign := [name for name in names if not inventory.owns(self.run, self.run / name)]:
            raise VflbenchError(f"{self.run} holds {foreign[0]}, which is not what vflbench wrote there")
        for path in {*self._files(), self.rounds}:  # they grow again
            self._claim(path)
        lines = self.rounds.read_text(encoding="utf-8").split() if self.rounds.exists() else []
        token = lines[0] if lines else secrets.token_hex(8)
        self.logged = {int(line) for line in lines[1:]}
        if not lines:
            self._note(token)
        parent = f"{self.run.parent.name}_" if self.run.name.isdecimal() else ""
        about = LoggedRun(parent + self.run.name, self.folder, self.columns, parameters, token, frozenset(self.logged))
        with self._listing():
            return registry.load_option("logger", self.name).start(config, about)

    def row(self, rows: list[dict[str, Any]], round: int) -> None:
        """Log the last of `rows`, if it belongs to this round."""
        if self.logger is None or not rows or rows[-1]["round"] != round or round in self.logged:
            return
        row = {key: rows[-1][key] for key in self.columns if rows[-1].get(key) is not None}
        plain = {key: value.item() if isinstance(value, np.generic) else value for key, value in row.items()}
        with self._harmless(), self._listing():
            self.logger.log(plain)
            self.logged.add(round)
            self._note(str(round))

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Log the summary; from now on the run's list has the hashes of the files.

        Files in folders that the logger made are left out: a process of the logger may still write there.
        """
        if self.logger is not None:
            with self._harmless(), self._listing():
                ending, self.logger = self.logger, None
                ending.finish(summary)
        if not self.ended and self.folder.is_dir():
            self.ended = True
            with contextlib.suppress(OSError):
                for path in self._files():
                    if inventory.owns(self.run, path) and not self.made & set(path.parents):
                        inventory.written(self.run, path.relative_to(self.run).as_posix())

    def _note(self, line: str) -> None:
        with os.fdopen(os.open(self.rounds, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "w") as file:
            file.write(f"{line}\n")

    def _claim(self, path: Path) -> None:
        name = path.relative_to(self.run).as_posix()
        self.claimed.add(path)
        if len(name.encode()) <= inventory.LONGEST:  # a longer one would damage the list
            inventory.writing(self.run, name)

    def _files(self) -> list[Path]:
        return [path for path in sorted(self.folder.rglob("*")) if path.is_file() or path.is_symlink()]

    @contextlib.contextmanager
    def _listing(self) -> Iterator[None]:
        """Files that the block makes in `logs/` belong to the run, as do all in folders that the logger made."""
        before, others = set(self.folder.rglob("*")), set(self._files()) - self.claimed
        known = {path for path in others if not self.made & set(path.parents)}  # somebody else's
        try:
            yield
        finally:
            self.made |= {path for path in set(self.folder.rglob("*")) - before if path.is_dir()}
            for path in set(self._files()) - self.claimed - known:
                self._claim(path)

    @contextlib.contextmanager
    def _harmless(self) -> Iterator[None]:
        """An error of the logger is logged, and ends the logger."""
        try:
            yield
        except Exception as error:
            self.logger = None
            reason = next(iter(str(error).strip().splitlines()), "")
            log.warning(
                "logger=%s has failed, and the run goes on without it: %s: %s", self.name, type(error).__name__, reason
            )
