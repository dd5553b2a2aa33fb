"""MLflow: a SQLite file here, unless a key names a server."""

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vflbench.runner.loggers import summaries
from vflbench.runner.logs import LoggedRun
from vflbench.types import ENDED_WELL

MOST, LONGEST = 100, 500  # entries of one call, characters of a value: what every version of MLflow takes
ALLOWED = re.compile(r"[^\w\-. /]")  # characters that its names do not take
TOKEN = "vflbench.token"  # the tag by which a run that goes on is found


class Tracked:
    """One run of MLflow. It uses a client of its own, so that other runs of the user's program are not touched."""

    def __init__(self, config: Any, run: LoggedRun) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # before it is imported
        from mlflow import entities
        from mlflow.tracking import MlflowClient

        self.entities, uri = entities, config.uri
        if uri is None:
            place = summaries.folder_of(config, run, own=False)
            place.mkdir(parents=True, exist_ok=True)
            uri = f"sqlite:///{place / 'mlflow.db'}"
        self.client = MlflowClient(tracking_uri=uri)
        found = self.client.get_experiment_by_name(config.experiment)
        number = found.experiment_id if found else self.client.create_experiment(config.experiment)
        known = self.client.search_runs([number], f"tags.`{TOKEN}` = '{run.token}'")
        if known:
            self.id = known[0].info.run_id
            self.client.update_run(self.id, status="RUNNING")
            return
        self.id = self.client.create_run(number, run_name=run.name, tags={TOKEN: run.token}).info.run_id
        keys = [entities.Param(_name(key), str(value)[:LONGEST]) for key, value in run.parameters.items()]
        for some in _parts(keys):
            self.client.log_batch(self.id, params=some)

    def _metrics(self, values: Mapping[str, float], step: int) -> None:
        now = int(time.time() * 1000)
        every = [self.entities.Metric(_name(key), float(value), now, step) for key, value in values.items()]
        for some in _parts(every):
            self.client.log_batch(self.id, metrics=some)

    def log(self, row: Mapping[str, float]) -> None:
        """Add a point to each curve."""
        self._metrics({key: value for key, value in row.items() if key != "round"}, int(row["round"]))

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Log the summary's numbers as metrics and its texts as tags, and end the run."""
        found = {f"summary/{key}": value for key, value in summaries.numbers(summary).items()}
        self._metrics(found, int(summary.get("rounds") or 0))
        tags = [self.entities.RunTag(_name(key), text[:LONGEST]) for key, text in summaries.texts(summary).items()]
        for some in _parts(tags):
            self.client.log_batch(self.id, tags=some)
        ended = {"interrupted": "KILLED", **dict.fromkeys(ENDED_WELL, "FINISHED")}
        self.client.set_terminated(self.id, ended.get(summary["status"], "FAILED"))


def _name(key: str) -> str:
    return ALLOWED.sub("_", key)


def _parts(entries: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for begin in range(0, len(entries), MOST):
        yield entries[begin : begin + MOST]


def start(config: Any, run: LoggedRun) -> Tracked:
    """The logger of one run."""
    return Tracked(config, run)
