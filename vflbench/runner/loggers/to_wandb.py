"""Weights & Biases: files here, unless a key says that they are sent."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vflbench.runner.loggers import summaries
from vflbench.runner.logs import LoggedRun


class Tracked:
    """One run of wandb. It gets what is logged, but nothing about this machine, its packages or its output."""

    def __init__(self, config: Any, run: LoggedRun) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # before it is imported
        import wandb

        place = summaries.folder_of(config, run, own=False)
        place.mkdir(parents=True, exist_ok=True)
        settings = wandb.Settings(
            silent=True,
            console="off",
            symlink=False,
            disable_git=True,
            disable_code=True,
            disable_job_creation=True,
            x_disable_meta=True,
            x_disable_stats=True,
            x_save_requirements=False,
        )
        self.run: Any = wandb.init(
            project=config.project,
            entity=config.entity,
            name=run.name,
            id=run.token,
            resume="allow",
            dir=str(place),
            mode=config.mode,
            config=dict(run.parameters),
            settings=settings,
            reinit="create_new",
        )

    def log(self, row: Mapping[str, float]) -> None:
        """Add a point to each curve."""
        self.run.log({key: value for key, value in row.items() if key != "round"}, step=int(row["round"]))

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Log the summary, and end the run."""
        self.run.summary.update({f"summary/{key}": value for key, value in summaries.numbers(summary).items()})
        self.run.summary.update(summaries.texts(summary))
        place = Path(self.run.dir).parent
        self.run.finish(exit_code=1 if summary["status"] == "failed" else 0)
        for path in place.rglob("*.log"):  # one is a link to a file elsewhere, and would be taken for the user's
            if path.is_symlink():
                path.unlink()


def start(config: Any, run: LoggedRun) -> Tracked:
    """The logger of one run."""
    return Tracked(config, run)
