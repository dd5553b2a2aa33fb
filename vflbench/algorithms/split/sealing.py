"""What a party seals under encryption, and what its operations take: counted and priced, not performed."""

from typing import Any

import numpy as np

from vflbench.types import RunConfig, module_of


class Sealing:
    """A party's operations; in clear (protection=none) there are none.

    Attributes
    ----------
    scheme : the module of the protection; None in clear.
    counts : of this party's operations so far, by name.
    """

    def __init__(self, config: RunConfig[object]) -> None:
        self.protection = config.protection
        self.scheme: Any = None if config.protection.name == "none" else module_of(config.protection)
        self.counts: dict[str, int] = {}

    def priced(self, **counts: int) -> float | None:
        """The seconds that these operations take; None where there is nothing to price."""
        if self.scheme is None:
            return None
        for name, count in counts.items():
            self.counts[name] = self.counts.get(name, 0) + count
        return float(self.scheme.seconds(self.protection, **counts))

    def facts(self, party: str) -> dict[str, Any]:
        """What the summary shows: the operations of this party so far."""
        return {"protection": {party: dict(self.counts), "performed": False}} if self.scheme is not None else {}

    def seal(self, values: np.ndarray, slots: int = 1) -> np.ndarray:
        """Ciphertexts of numbers (m, k), `slots` rows in each."""
        sealed: np.ndarray = self.scheme.seal(self.protection, values, slots)
        return sealed

    def unseal(self, sealed: np.ndarray, values: int, numbers: int, dtype: type, slots: int = 1) -> np.ndarray:
        """The numbers (values, numbers) that were sealed: what the simulator computes with."""
        found: np.ndarray = self.scheme.unseal(sealed, values, numbers, dtype, slots)
        return found
