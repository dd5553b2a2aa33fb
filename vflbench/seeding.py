"""Named random streams, from one seed or from a secret that only one party has.

No global generator is ever used.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vflbench.types import VflbenchError

if TYPE_CHECKING:
    import torch


def derive(seed: int, name: str) -> int:
    """A 63-bit seed for the stream `name` of `seed`, equal on every machine and Python (never `hash`)."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def stream(seed: int, name: str) -> np.random.Generator:
    """NumPy generator of the stream `name`.

    Names are `init`, `partition`, `batches/<party>`, `noise/<party>`, `topology`, `evaluation`.
    """
    return np.random.Generator(np.random.PCG64(derive(seed, name)))


def torch_stream(seed: int, name: str) -> torch.Generator:
    """Generator of torch's for the stream `name`, on the CPU: a seed then means the same numbers on every device."""
    import torch

    return torch.Generator().manual_seed(derive(seed, name))


def batches(seed: int, epoch: int, samples: int, size: int) -> list[np.ndarray]:
    """The rows of each batch of an epoch, by its ID 0 .. ceil(samples / size) - 1; the last may be shorter.

    All parties draw the same permutation of the aligned rows, from the public seed.
    """
    order = stream(seed, f"batches/{epoch}").permutation(samples)
    return [order[first : first + size] for first in range(0, samples, size)]


# --- from a secret ----------------------------------------------------------------------------------------------------


KEY_BYTES = 32
AT_ONCE = 2**20  # a larger draw is made in pieces of so many numbers


class Secret:
    """256 random bits from the operating system that only one party has, and streams of random numbers made from them.

    A stream is SHAKE-256 of the key, its name and a counter. Nobody can predict a number without the key, even from
    many others. NumPy's and torch's generators do not promise that (torch's on a CPU has a seed of 32 bits).

    A checkpoint has `state_dict`: the counters, and the name of a file with the key (`keep`). That file is on the
    party's machine, and only its user may read it. A resumed run draws the same numbers again: the messages that it
    repeats tell nothing new.
    """

    def __init__(self) -> None:
        self.key = secrets.token_bytes(KEY_BYTES)
        self.kept: str | None = None  # name of the key's file
        self._streams: dict[str, SecretStream] = {}

    def stream(self, name: str) -> SecretStream:
        """The stream `name`, always the same object."""
        return self._streams.setdefault(name, SecretStream(self, name))

    def keep(self) -> None:
        """Write the key to a file of its own.

        Raises
        ------
        VflbenchError : it cannot be written.
        """
        name = secrets.token_hex(16)
        try:
            path = key_file(name)
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(self.key)
                file.flush()
                os.fsync(file.fileno())
        except (OSError, RuntimeError) as error:  # RuntimeError: the user's home is not known
            advice = "name a folder of yours with XDG_STATE_HOME, or do without checkpoints: checkpoint_every=null"
            raise VflbenchError(f"a party's key for its noise cannot be kept ({error}): {advice}") from error
        self.kept = name

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint has of it."""
        return {"kept": self.kept, "drawn": {name: one.drawn for name, one in self._streams.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken, also with streams that are in use.

        Raises
        ------
        VflbenchError : the key's file is not there.
        """
        path = key_file(state["kept"])
        try:
            self.key, self.kept = path.read_bytes(), state["kept"]
        except OSError:
            raise VflbenchError(
                f"the key of its noise is not on this machine ({path}). With other noise it would publish the same "
                "values twice, and epsilon would count them once: start anew in another folder"
            ) from None
        for name, drawn in state["drawn"].items():
            self.stream(name).drawn = drawn


class SecretStream:
    """One stream of a party's secret, with the methods of NumPy's generators that privacy needs."""

    def __init__(self, secret: Secret, name: str) -> None:
        self.secret, self.name = secret, name
        self.drawn = 0  # draws so far

    def random(self, size: int) -> np.ndarray:
        """(size,) float64, uniform in (0, 1), of 53 bits each."""
        head = self.secret.key + self.drawn.to_bytes(8, "big") + self.name.encode()
        self.drawn += 1
        words = np.frombuffer(hashlib.shake_256(head).digest(8 * size), dtype="<u8")
        return ((words >> np.uint64(11)) + 0.5) * 2.0**-53

    def normal(self, scale: float = 1.0, size: int | tuple[int, ...] = ()) -> np.ndarray:
        """Gaussian numbers, of mean 0.

        The possible values of one Box-Muller number have gaps, which may reveal what it was added to (Mironov 2012;
        Holohan and Braghin 2021). So each number is half the sum of four, as in Opacus' secure mode: then the gaps are
        of no practical use. The sum's own rounding to the type of the model is not treated.
        """
        count = int(np.prod(size))
        parts = [self._normal(min(AT_ONCE, count - start)) for start in range(0, count, AT_ONCE)]
        return scale * np.concatenate([*parts, np.empty(0)]).reshape(size)

    def _normal(self, count: int) -> np.ndarray:
        u = self.random(4 * count).reshape(4, count)
        radii, angles = np.sqrt(-2 * np.log(u[:2])), 2 * np.pi * u[2:]
        numbers: np.ndarray = (radii * (np.cos(angles) + np.sin(angles))).sum(axis=0) / 2
        return numbers

    def laplace(self, scale: float, size: tuple[int, ...]) -> np.ndarray:
        """Laplace numbers, of mean 0."""
        u = self.random(2 * int(np.prod(size))).reshape(2, *size)
        numbers: np.ndarray = scale * (np.log(u[0]) - np.log(u[1]))  # the difference of two exponential ones
        return numbers


def key_file(name: str) -> Path:
    """Where a party that runs on this machine keeps a key.

    Raises
    ------
    FileNotFoundError : no key can have this name.
    """
    base = os.environ.get("XDG_STATE_HOME") or os.environ.get("LOCALAPPDATA")
    folder = (Path(base) if base else Path.home() / ".local" / "state") / "vflbench" / "secrets"
    if not re.fullmatch(r"[0-9a-f]{32}", name):  # it was read from a checkpoint, and must not lead elsewhere
        raise FileNotFoundError(errno.ENOENT, "no key has this name", name)
    return folder / name


def forget(kept: str | None) -> None:
    """Remove the key of a run that has ended, if it is on this machine."""
    if kept is not None:
        with contextlib.suppress(OSError):
            key_file(kept).unlink()
