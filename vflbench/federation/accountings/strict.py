"""Every message costs its payload; framing is not charged. Times are the engine's."""

import numpy as np

from vflbench.federation.accounting import Payload
from vflbench.federation.ledger import COLUMN


def price(rows: np.ndarray, payload: Payload) -> np.ndarray:
    """The bytes of each message, as they were sent."""
    return rows[:, COLUMN["bytes"]]
