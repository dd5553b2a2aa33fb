"""A run that has ended, as it is re-priced: its files as ledger, traces and exchanges. Imports no torch."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from vflbench import registry
from vflbench.federation.links import LINK_KINDS
from vflbench.federation.phases import Exchange, Sized, Tapes, exchange
from vflbench.federation.replay import Program
from vflbench.results import parquet, run_schema
from vflbench.results.reader import OWN, Arrays, Run
from vflbench.runner.assumed import exchanges
from vflbench.runner.costs import Around, PartyInfo, link_code
from vflbench.types import ENDED, VflbenchError

OLDER = "an older vflbench made it: its manifest.json lacks"


class Trained(Run):
    """A run that has ended; its files are read once, however often it is re-priced.

    Its attributes raise VflbenchError where a file is damaged.
    """

    @cached_property
    def config(self) -> dict[str, Any]:
        """The configuration of the run."""
        config: dict[str, Any] = self.manifest["config"]
        if not isinstance(config.get("topology"), dict) or "accounting" not in config:
            raise VflbenchError("manifest.json has no complete configuration")
        return config

    def check(self) -> None:
        """Refuse a run that cannot be re-priced, as far as that is known without ledger and trace.

        Raises
        ------
        VflbenchError : the run cannot be re-priced so.
        """
        if self.status is None:
            raise VflbenchError("the run has not ended: continue it with resume=true, then re-price it")
        status = self.summary["status"]
        if status not in ENDED:
            why = f" ({self.summary['reason']})" if self.summary["reason"] else ""
            raise VflbenchError(f"the run is {status}{why}: only a run that came to its end can be re-priced")
        name = self.config["algorithm"].get("name")
        info = registry.algorithms().get(str(name))
        if info is None:
            raise VflbenchError(f"its algorithm {name} is not installed here: whether it depends on time is not known")
        if info.time_dependent:
            why = "which message comes first decides what its parties do next, so another network makes another run"
            raise VflbenchError(f"{name} depends on time: {why}. Train it under that network")
        if self.config.get("compute", {}).get("sharing") == "machine" and self.summary["compute_clock"] == "modelled":
            raise VflbenchError("its parties share one machine's cores: who waits for whom depends on the network")
        if "parties" not in self.manifest and "utilisation" in self.summary:
            raise VflbenchError(f"{OLDER} `parties`, without which its utilisation cannot be known. Train it again")

    @cached_property
    def columns(self) -> Arrays:
        """The columns of the ledger, of all phases."""
        return self.arrays("ledger")

    @cached_property
    def events(self) -> Arrays:
        """The columns of the trace, of all phases."""
        return self.arrays("trace")

    @cached_property
    def parties(self) -> dict[str, PartyInfo]:
        """The parties, in their order.

        An older run's manifest does not have them: all wrote a trace, in that order; `server` is one.
        """
        if "parties" in self.manifest:
            try:
                return {name: PartyInfo(**values) for name, values in self.manifest["parties"].items()}
            except (AttributeError, TypeError) as error:
                raise VflbenchError(f"manifest.json is malformed: parties: {error}") from error
        names = self.events.texts["party"].names
        return {name: PartyInfo("server" if name == "server" else "client") for name in names}

    @cached_property
    def traces(self) -> dict[str, np.ndarray]:
        """Party -> (events, 4) rows of the run's own program: kind, peer, seq, value."""
        return self._traces("train")

    def _traces(self, phase: str) -> dict[str, np.ndarray]:
        names = list(self.parties)
        codes = {"party": names, "kind": parquet.EVENT_KINDS, "peer": names, "phase": run_schema.PHASES}
        rows = _rows(self.events.of_phases([phase]), "trace", codes)
        party, rows = rows[:, 0], rows[:, 1:-1]
        bounds = np.searchsorted(party, np.arange(len(names) + 1))  # written party by party
        if (np.diff(party) < 0).any():
            raise VflbenchError("trace.parquet is malformed: its rows are not grouped by party")
        return {name: rows[bounds[i] : bounds[i + 1]] for i, name in enumerate(names)}

    @cached_property
    def tags(self) -> list[str]:
        """The names of the tags, by their codes in the ledger; behind them those of what is assumed."""
        return list(dict.fromkeys([*self.columns.texts["tag"].names, *(tag for _, (_, _, tag, _) in self.assumed)]))

    @cached_property
    def assumed(self) -> list[tuple[str, Sized]]:
        """What the method assumes to be there: (phase, message); nothing in an older run's manifest."""
        found = self.manifest.get("assumed", [])
        try:
            return [(str(phase), (str(a), str(b), str(tag), int(size))) for phase, (a, b, tag, size) in found]
        except (TypeError, ValueError, OverflowError) as error:
            raise VflbenchError(f"manifest.json is malformed: assumed: {error}") from error

    def _messages(self, *phases: str) -> np.ndarray:
        """The ledger's rows of `phases`, with codes as in federation.ledger."""
        names = list(self.parties)
        codes = {"src": names, "dst": names, "link": LINK_KINDS, "tag": self.tags, "phase": run_schema.PHASES}
        return _rows(self.columns.of_phases(phases), "ledger", codes)[:, :-1]

    @cached_property
    def program(self) -> Program:
        """What every party did, to be timed."""
        rows = self._messages(*OWN)
        return Program(rows, self.traces, {name: party.role for name, party in self.parties.items()})

    @cached_property
    def around(self) -> Around:
        """The exchanges before the run's own program, and that of its last evaluation."""
        aligned, served = (Exchange(self._messages(name), self._traces(name)) for name in ("align", "predict"))
        before = (self.summary.get("phases") or {}).get("predict")
        names = list(self.parties)

        def made(tapes: Tapes) -> Exchange:
            return exchange(tapes, names, lambda a, b: link_code(self.parties, a, b), self.tags.index)

        if unknown := {end for _, (src, dst, _, _) in self.assumed for end in (src, dst)} - self.parties.keys():
            raise VflbenchError(
                f"manifest.json is malformed: assumed: there is no party {sorted(map(str, unknown))[0]}"
            )
        return Around(
            aligned, exchanges(self.assumed, made), served if before else None, before["rows"] if before else 0
        )

    @cached_property
    def scores(self) -> list[dict[str, Any]]:
        """The curve's rows as they were written: a whole number stays one, an empty cell is None."""
        self.check_curve()
        columns, rows = self.cells
        # NaN, an empty cell, is the only one that differs from itself
        return [{name: cell if cell == cell else None for name, cell in zip(columns, row, strict=True)} for row in rows]


def _rows(found: Arrays, file: str, known: Mapping[str, Sequence[str]]) -> np.ndarray:
    """A file's columns side by side, (rows, columns) float64; each column lies in one piece.

    Texts become indices into those `known` (-1: none).
    """
    rows = np.empty((len(found), len(parquet.PARQUET[file])), order="F")
    for at, name in enumerate(parquet.PARQUET[file]):
        if name not in known:
            rows[:, at] = found.numbers[name]
            continue
        column, names = found.texts[name], known[name]
        if unknown := sorted(set(column.names) - set(names)):
            raise VflbenchError(
                f"{file}.parquet is malformed: its column {name} has {unknown[0]!r}, which is none of "
                f"{', '.join(names)}"
            )
        rows[:, at] = column.by({value: place for place, value in enumerate(names)})
    return rows
