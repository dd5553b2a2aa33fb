"""As `strict`, and what comes before a run is charged: alignment, and what the method assumes to be there.

The alignment that a data set has performed is charged as it was. What is assumed is charged as if it were sent once
(vflbench/runner/assumed.py): labels to each client that is assumed to have them, private set intersection of the rows
where they came aligned, the join's rows.
"""

import numpy as np

from vflbench.federation.accounting import Payload
from vflbench.federation.ledger import COLUMN


def price(rows: np.ndarray, payload: Payload) -> np.ndarray:
    """The bytes of each message, as they were sent."""
    return rows[:, COLUMN["bytes"]]


def price_before(rows: np.ndarray, payload: Payload) -> np.ndarray:
    """The bytes of each message of the alignment, and of what is assumed."""
    return rows[:, COLUMN["bytes"]]
