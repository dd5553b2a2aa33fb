"""How the rows of the user's own tables are divided: what of the labels' file decides it, and what came of it."""

from dataclasses import dataclass
from typing import Literal

from vflbench.cards.data.columns import judging
from vflbench.cards.data.divide import splits
from vflbench.cards.data.divide.splits import SplitKeys
from vflbench.cards.data.tabular import table


@dataclass
class OwnKeys(SplitKeys, judging.Keys, table.Clipped):
    """Keys of a table of the user's own."""

    task: Literal["classes", "regression"] = "classes"  # classes (AUROC of two, accuracy of more) | regression (RMSE)

    @property
    def plan(self) -> splits.Plan:
        """How rows are divided, as the keys say."""
        return splits.plan(self, self.task == "classes")
