"""The handwritten digits of scikit-learn: 1,797 images of 64 pixels, in ten classes, or odd against even.

They are real data that every machine has.
"""

from pathlib import Path

import numpy as np

from vflbench.cards.data.tabular.digits import DATASETS, Config
from vflbench.data.digit_images import images
from vflbench.data.tabular.sets import TabularSet
from vflbench.data.tabular.table import Table
from vflbench.types import DataSource, Metric


def _make(config: Config, root: Path | None) -> tuple[Table, DataSource]:
    """The pixels of the images, row by row."""
    pixels, digits = images()
    labels, classes = (digits, 10) if config.problem == "learning" else (digits % 2, 2)
    columns = tuple(f"pixel_{row}_{column}" for row in range(8) for column in range(8))
    source = DataSource("real", note="comes with scikit-learn" + ("; odd (1) against even (0)" if classes == 2 else ""))
    return Table(pixels, columns, {}, labels.astype(np.int64), classes), source


SET = TabularSet(DATASETS[0], Metric("accuracy", "max"), lambda config: 64, _make, shape=(1, 8, 8))
check, load = SET.check, SET.load
