"""A party's random streams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from vflbench import seeding
from vflbench.federation.snapshot import freeze, thaw
from vflbench.types import FederationError, VflbenchError

if TYPE_CHECKING:
    from vflbench.federation.runtime.member import Member


class PartyStreams:
    """A party's random streams by name; an evaluation has its own."""

    __slots__ = ("generators", "party", "torch_generators")

    def __init__(self, party: Member) -> None:
        self.party = party
        self.generators: dict[str, np.random.Generator] = {}
        self.torch_generators: dict[str, torch.Generator] = {}

    def _key(self, name: str) -> str:
        party = self.party
        return f"evaluation/{name}/{party.name}" if party.in_evaluation else f"{name}/{party.name}"

    def rng(self, name: str) -> np.random.Generator:
        """As `Party.rng`."""
        key = self._key(name)
        if key not in self.generators:
            self.generators[key] = seeding.stream(self.party.runtime.seed, key)
        return self.generators[key]

    def torch_rng(self, name: str) -> torch.Generator:
        """As `Party.torch_rng`."""
        key = self._key(name)
        if key not in self.torch_generators:
            self.torch_generators[key] = seeding.torch_stream(self.party.runtime.seed, key)
        return self.torch_generators[key]

    def secret_rng(self, name: str) -> np.random.Generator | seeding.SecretStream:
        """As `Party.secret_rng`."""
        secret = self.party.secret
        return self.rng(name) if secret is None else secret.stream(name)

    def secret_torch_rng(self, name: str) -> torch.Generator | seeding.SecretStream:
        """As `Party.secret_torch_rng`."""
        secret = self.party.secret
        return self.torch_rng(name) if secret is None else secret.stream(name)

    def save(self) -> dict[str, Any]:
        """What a cut has of them."""
        secret = self.party.secret
        return {
            "generators": {k: freeze(g.bit_generator.state) for k, g in self.generators.items()},
            "torch_generators": {k: g.get_state() for k, g in self.torch_generators.items()},
            "secret": secret and secret.state_dict(),
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """The inverse of `save`, in place: the program may hold a generator already.

        Raises
        ------
        FederationError : the party's secret cannot be read.
        """
        for key, state in saved["generators"].items():
            self.generators.setdefault(key, np.random.Generator(np.random.PCG64())).bit_generator.state = thaw(state)
        for key, state in saved["torch_generators"].items():
            self.torch_generators.setdefault(key, torch.Generator()).set_state(state)
        if self.party.secret is not None:
            try:
                self.party.secret.load_state_dict(saved["secret"])
            except VflbenchError as error:
                raise FederationError(f"{self.party.name}: {error}") from None
