"""Finished runs under another network or accounting: re-timed from ledger and trace, without training.

The result is a run folder like any other, equal to the last bit to that of a fresh run
(tests/contracts/test_reprice.py). A run whose course depends on time is refused, with the reason. Imports no torch:
re-pricing takes seconds.
"""

import contextlib
import copy
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vflbench import registry
from vflbench.federation.accounting import Payload
from vflbench.federation.ledger import COLUMN
from vflbench.federation.links import LINK_KINDS
from vflbench.federation.replay import Retimed
from vflbench.results import folder as files
from vflbench.results import inventory, lock, parquet, reader, run_schema
from vflbench.results.identity import config_hash
from vflbench.results.network import network_label
from vflbench.results.reader import Run
from vflbench.runner import provenance, task_baselines
from vflbench.runner.costs import Costs, clock, link_problems, network_config
from vflbench.runner.finished import OLDER, Trained
from vflbench.types import ConfigError, NetworkConfig, VflbenchError, refuse

TIMED_OUT = "max_virtual_seconds"
LIVE = ("start_seconds", "cores", "utilisation", "waiting_seconds")  # of a run in real time
Draw = Callable[[Path, dict[str, Any], Sequence[str]], None]


@dataclass(frozen=True)
class Profile:
    """A network and an accounting to price runs by."""

    typed: Mapping[str, Any]  # key -> value: `network` (an option's name), `network.<key>`, `accounting`
    # the whole option, typed keys included; None: a run's own, with the typed keys changed
    network: Mapping[str, Any] | None

    def applied(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The configuration of a run that is priced so: what a fresh run would have."""
        changed = copy.deepcopy(dict(config))
        if self.network is not None:
            changed["network"] = copy.deepcopy(dict(self.network))
        for key, value in self.typed.items():
            *groups, last = key.split(".")
            if groups and self.network is None:
                place = changed
                for group in groups:
                    place = place.setdefault(group, {})
                place[last] = value
        changed["accounting"] = self.typed.get("accounting", config["accounting"])
        return changed

    def label(self, network: str) -> str:
        """A name for a folder: `us_us`, `us_us_timing-round`; `network` is that of a run for which none is typed."""
        words = [f"{key.removeprefix('network.')}-{value}" for key, value in self.typed.items() if key != "network"]
        name = re.sub(r"[^\w.-]+", "-", "_".join([str(self.typed.get("network", network)), *words]))
        return name if len(name) <= 80 else f"{name[:60]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"


@dataclass(frozen=True)
class Result:
    """One run under one profile."""

    source: Path
    folder: Path
    profile: str
    kept: bool  # whether it was there already


def reprice(
    words: Sequence[str],
    profiles: Sequence[Profile],
    out: Path,  # the results are `<out>/<run>_<profile>/`, a sweep's job `<out>/<sweep>/<job>_<profile>/`
    *,
    command: str,  # for the manifests
    overwrite: bool = False,  # replace what an earlier re-pricing has left there
    draw: Draw | None = None,  # called with a folder, its summary and the names of the pictures to draw
    refused: Callable[[str], None],  # called with the reason for every run that cannot be re-priced
) -> list[Result]:
    """Re-price every run named by `words` under every profile.

    The words are run folders, or folders with runs below, such as a sweep's.

    Raises
    ------
    VflbenchError : there are no runs at all, or two results for one folder.
    """
    jobs: list[tuple[Finished, Profile, Path]] = []
    places: dict[Path, Path] = {}
    for name, run in _named(words):
        try:
            finished = Finished(run.folder)
            finished.check()
        except VflbenchError as error:
            refused(_naming(run.folder, str(error)))
            continue
        for profile in profiles:
            place = out / f"{name}_{profile.label(network_label(finished.config['network']))}"
            if other := places.get(place):
                raise VflbenchError(
                    f"{other} and {run.folder} would both be re-priced to {place}: "
                    "re-price them one by one, each with its own --out"
                )
            places[place] = run.folder
            jobs.append((finished, profile, place))
    results = []
    reported: set[str] = set()  # a damaged file is the same under every profile
    jobs.reverse()
    while jobs:
        finished, profile, place = jobs.pop()  # removed, so that its ledger can be freed
        source, label = finished.folder, profile.label(network_label(finished.config["network"]))
        try:
            results.append(Result(source, place, label, kept=finished.write(profile, place, command, overwrite, draw)))
        except VflbenchError as error:
            reason = _naming(
                source, "; ".join(map(str, error.problems)) if isinstance(error, ConfigError) else str(error)
            )
            if reason not in reported:
                refused(reason)
            reported.add(reason)
    return results


def _naming(folder: Path, reason: str) -> str:
    return reason if reason.startswith(f"{folder}{os.sep}") else f"{folder}: {reason}"


def _named(words: Sequence[str]) -> list[tuple[str, Run]]:
    """(name, run) of every run at or below the folders `words`, each once."""
    found: dict[Path, tuple[str, Run]] = {}
    for word in words:
        root = Path(word)
        if not root.is_dir():
            raise VflbenchError(f"{word}: there is no such folder; name a run's folder, or one with runs below")
        whole = (root / "manifest.json").is_file() or (root / "summary.json").is_file()
        runs = [Run(root)] if whole else reader.find(root)
        if not runs:
            raise VflbenchError(f"{word}: there are no runs at or below it (a run's folder has a manifest.json)")
        for run in runs:
            place = run.folder.resolve()
            top = root.resolve()
            if whole and top.name.isdecimal():  # the job of a sweep: its name is only a number
                top = top.parent
            found.setdefault(place, (place.relative_to(top.parent).as_posix(), run))
    return list(found.values())


class Finished(Trained):
    """A run to be re-priced."""

    replacing = "overwrite=true"  # what to type so that another run is replaced

    # --- under another network ----------------------------------------------------------------------------------------

    def write(self, profile: Profile, place: Path, command: str, overwrite: bool, draw: Draw | None) -> bool:
        """Write the run folder `place`, whole or not at all. True: it was there already.

        Raises
        ------
        VflbenchError : the run cannot be re-priced so, or the folder cannot be written.
        """
        config = profile.applied(self.config)
        origin = self._origin()
        if self._kept(place, config_hash(config), origin, overwrite):
            return True
        network = network_config(config["network"])
        self._refuse(config, network)
        done = self._retimed(network)
        now = clock(done.ends)
        payload = Payload(self.tags, **self.manifest.get("payload", {"value_bytes": 0, "outputs": 0}))
        costs = Costs(
            self.program.rows,
            self.traces,
            self.parties,
            network,
            config["accounting"],
            payload,
            program=self.program,
            around=self.around,
        )
        curve = costs.curve([{**row, "virtual_seconds": now(row["round"])} for row in self.scores])
        summary = self._summary(config, network, costs, now)
        manifest = self._manifest(config, profile, command, origin)
        columns = list(self.program.rows.T)
        columns[COLUMN["sent"]], columns[COLUMN["delivered"]] = done.sent, done.delivered
        # Against rounds, and mostly against bytes, the curve is the run's own.
        pictures = ["curve"] if config["accounting"] == self.config["accounting"] else ["curve", "bytes"]
        with _whole(place) as folder:
            more = {phase: one.rows for phase, one in costs.others().items()}
            parquet.ledger_parquet(folder / "ledger.parquet", columns, list(self.parties), self.tags, LINK_KINDS, more)
            with files.atomic(folder / "trace.parquet") as trace:  # what parties did is the same
                shutil.copyfile(self.folder / "trace.parquet", trace)
            files.write_curve(folder / "curve.csv", curve, self.summary["metric"]["name"])
            files.write_manifest(folder, manifest)
            if draw is not None and curve:
                draw(folder, summary, pictures)
            files.write_summary(folder, summary)
        return False

    def _summary(
        self, config: Mapping[str, Any], network: NetworkConfig, costs: Costs, now: Callable[[int], float]
    ) -> dict[str, Any]:
        """The run's summary with what it costs on `network`; `now` has the seconds at the end of a round."""
        rounds = self.summary["rounds"]
        status, reason = self._end(config, now, rounds)
        found = costs.summary(rounds, now(rounds))
        by_tag, by_link = found.pop("bytes_by_tag"), found.pop("bytes_by_link")
        summary = {
            **self.summary,
            **found,
            "bytes": {"total": run_schema.charged(by_link), "by_tag": by_tag, "by_link": by_link},
            "status": status,
            "reason": reason,
            "timing": network.timing,
            "accounting": config["accounting"],
        }
        if shipped := self.summary.get("ship_it"):
            shipped = task_baselines.on_network(shipped, network)
            summary |= {"ship_it": shipped, "times_ship_it": task_baselines.times(run_schema.charged(by_link), shipped)}
        summary.pop("before", None)
        summary |= costs.life(rounds, now(rounds)) if "phases" in summary else {}
        # how a machine was used, and how long it took to start, has nothing to do with another network
        if self.summary.get("engine") == "ray":
            summary = {key: value for key, value in summary.items() if key not in LIVE}
        else:
            summary |= costs.use(self.manifest.get("cores", 0), now(rounds), rounds)
        return summary

    def _manifest(
        self, config: Mapping[str, Any], profile: Profile, command: str, origin: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The run's manifest with the network of `profile`, and the run that was trained as its origin."""
        return {
            **self.manifest,
            "config": config,
            "config_hash": config_hash(config),
            "command": provenance.without_home(command),
            "choices": self.manifest.get("choices", {}) | {k: v for k, v in profile.typed.items() if k == "network"},
            "repriced_from": {**origin, "at": provenance.now()},
        }

    def seconds(self, network: NetworkConfig, until: int, predictions: int) -> float:
        """What a fresh run under `network` shows on its clock after round `until`, without writing anything.

        With the alignment and so many predictions, as results/pricing.py `Charged` adds them. A limit of the run's own
        does not count.

        Raises
        ------
        VflbenchError : the run cannot be re-priced so.
        """
        self._refuse(self.config, network)
        roles, around = {name: party.role for name, party in self.parties.items()}, self.around
        more = around.aligned.seconds(network, roles)
        if predictions and around.served is not None and around.predictions:
            served = around.served.seconds(network, roles, files.PER / around.predictions)
            more += served * predictions / files.PER
        return clock(self._retimed(network).ends)(until) + more

    def _origin(self) -> dict[str, Any]:
        """What the manifest says of the run that was trained."""
        try:
            digest = hashlib.sha256((self.folder / "summary.json").read_bytes()).hexdigest()
        except OSError as error:
            raise VflbenchError(f"{self.folder / 'summary.json'} cannot be read: {error.strerror}") from error
        return {
            "run": provenance.without_home(str(self.folder)),
            "config_hash": self.manifest.get("config_hash"),
            "summary_sha256": digest,
            "network": network_label(self.config["network"]),
            "command": self.manifest.get("command"),
        }

    def _kept(self, place: Path, identity: str, origin: Mapping[str, Any], overwrite: bool) -> bool:
        """Whether `place` holds this very result.

        Raises
        ------
        VflbenchError : it holds something that is not to be replaced.
        """
        if not place.exists():
            return False
        inventory.refuse(
            place, inventory.foreign(place) if place.is_dir() else [place.name], "Choose another folder with --out"
        )
        if overwrite:
            return False
        manifest = Run(place).manifest if (place / "summary.json").is_file() else {}
        before = manifest.get("repriced_from") or {}
        if manifest.get("config_hash") == identity and all(
            before.get(key) == origin[key] for key in ("config_hash", "summary_sha256")
        ):
            return True
        raise VflbenchError(
            f"{place} holds another run: choose another place with --out, or replace it with {self.replacing}"
        )

    def _refuse(self, config: Mapping[str, Any], network: NetworkConfig) -> None:
        """Refuse what does not go with this run.

        Raises
        ------
        VflbenchError : the run cannot be re-priced so.
        """
        name, accounting = config["algorithm"]["name"], config["accounting"]
        info = registry.algorithms()[name]
        allowed = registry.options("accounting", info, info.accounting)
        if accounting not in allowed:
            raise VflbenchError(f"accounting={accounting}: {name} can have: {', '.join(allowed)}")
        for entry, needed in (
            ("payload", accounting != "strict"),
            ("assumed", accounting == "everything"),
            ("parties", network.timing == "round" or network.server_bandwidth_gbps),
        ):
            if needed and entry not in self.manifest:
                what = (
                    f"accounting={accounting}" if entry != "parties" else "timing=round and a shared server bandwidth"
                )
                raise VflbenchError(f"{OLDER} `{entry}`, which {what} must know. Train it again")
        if network.links:
            from vflbench.federation import topology  # imports torch

            servers = [party for party, info in self.parties.items() if info.role == "server"]
            clients = [party for party in self.parties if party not in servers]
            shape = registry.option_config("topology", config["topology"]["name"])(**config["topology"])
            graph = topology.build(shape, servers, clients, config["seed"])
            refuse(link_problems(network, self.parties, graph.connected))

    def _retimed(self, network: NetworkConfig) -> Retimed:
        """The run's times under `network`.

        Raises
        ------
        VflbenchError : they would not be a fresh run's.
        """
        done = self.program.retime(network)
        rounds = self.summary["rounds"]
        if rounds and max(done.ends, default=0) != rounds:
            raise VflbenchError(
                f"its trace ends with round {max(done.ends, default=0)}, its summary with round {rounds}"
            )
        if unsent := int(np.isnan(done.sent).sum()):
            raise VflbenchError(
                f"{unsent} messages of its ledger are not in its trace: they were sent after the last round"
            )
        if rounds < self.manifest.get("rounds", rounds) and not done.closed:
            what = "a shared server bandwidth" if network.timing == "causal" else "timing=round"
            raise VflbenchError(
                f"it stopped after round {rounds} of {self.manifest['rounds']} ({self.summary['status']}): under "
                f"{what} messages of later rounds would have come in between, and they were never sent. Train it under "
                "that network"
            )
        return done

    def _end(self, config: Mapping[str, Any], now: Callable[[int], float], rounds: int) -> tuple[str, str | None]:
        """(status, reason) of a fresh run.

        Raises
        ------
        VflbenchError
            max_virtual_seconds would end it in another round.
        """
        status, reason = self.summary["status"], self.summary["reason"]
        limit = config.get(TIMED_OUT)
        if limit is None or not self.scores:
            return status, reason
        timed_out = status == "budget" and str(reason).startswith(TIMED_OUT)
        reached = next((round for round in range(self.scores[0]["round"], rounds + 1) if now(round) >= limit), None)
        if reached == rounds:
            by_time = timed_out or status == "completed"  # a run checks for other ends first
            return ("budget", f"{TIMED_OUT}: {now(rounds):.6g} s after round {rounds}") if by_time else (status, reason)
        if reached is not None:
            raise VflbenchError(
                f"{TIMED_OUT}={limit}: a fresh run would have ended after round {reached}, not {rounds}. Train it "
                "under that network"
            )
        if timed_out and rounds < self.manifest.get("rounds", rounds + 1):
            raise VflbenchError(
                f"it ended at {TIMED_OUT}={limit} after round {rounds}, where a fresh run would not have stopped "
                f"({now(rounds):.6g} s): train it under that network"
            )
        return ("completed", None) if timed_out else (status, reason)


@contextlib.contextmanager
def _whole(place: Path) -> Iterator[Path]:
    """A new folder that becomes `place` when the block ends well, and is gone otherwise.

    What was at `place` stays until then.
    """
    # what a killed process left there is known by its list of files
    folder, before = (place.with_name(f".{place.name}.{end}") for end in ("tmp", "old"))
    if place.is_symlink():
        raise VflbenchError(f"{place} is a link: choose another folder with --out")
    for left in (folder, before):
        if left.exists():
            inventory.refuse(left, inventory.foreign(left), "Choose another folder with --out")
    try:
        if before.exists() and not place.exists():
            before.rename(place)
        files.prepare(folder, "--out DIR")
        with lock.held(folder):
            inventory.clear(folder)
            try:
                yield folder
                if place.exists():
                    inventory.refuse(place, inventory.foreign(place), "Choose another folder with --out")
                    place.rename(before)
                folder.rename(place)
            finally:
                if before.exists() and not place.exists():
                    before.rename(place)
                for left in (folder, before):
                    if left.exists():
                        inventory.clear(left, first="summary.json")
                        inventory.leave(left)
                        # keep what is not ours: files of a file manager, runs below
                        for other in left.iterdir() if left == before else ():
                            with contextlib.suppress(OSError):
                                other.rename(place / other.name)
                        with contextlib.suppress(OSError):
                            left.rmdir()
    except OSError as error:
        raise VflbenchError(f"cannot write {place}: {error.strerror or error}") from error
