"""TensorBoard's event files."""

from collections.abc import Mapping
from typing import Any

from vflbench.runner.loggers import summaries
from vflbench.runner.logs import LoggedRun


class Events:
    """The event files of one run; a resumed run starts another file, which continues the curves."""

    def __init__(self, config: Any, run: LoggedRun) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer: Any = SummaryWriter(str(summaries.folder_of(config, run, own=True)))
        self.parameters = {
            key: value if isinstance(value, bool | int | float | str) else str(value)
            for key, value in run.parameters.items()
        }
        if not run.logged:
            lines = [f"| {key} | {value} |" for key, value in self.parameters.items()]
            self.writer.add_text("configuration", "\n".join(["| key | value |", "| --- | --- |", *lines]), 0)
            self.writer.flush()

    def log(self, row: Mapping[str, float]) -> None:
        """Add a point to each curve."""
        for key in row.keys() - {"round"}:
            self.writer.add_scalar(key, row[key], int(row["round"]))
        self.writer.flush()

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Add the run to TensorBoard's table of hyper-parameters."""
        found = {f"summary/{key}": value for key, value in summaries.numbers(summary).items()}
        self.writer.add_hparams(self.parameters, found, run_name=".")
        self.writer.close()


def start(config: Any, run: LoggedRun) -> Events:
    """The logger of one run."""
    return Events(config, run)
