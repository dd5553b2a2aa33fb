"""Named random streams derived from one seed, or from a secret that one party alone has. No global generator is ever
used."""

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
    """A 63-bit seed for the stream `name` of `seed`: equal on every machine and Python (never `hash`)."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def stream(seed: int, name: str) -> np.random.Generator:
    """NumPy generator of the stream `name` (`init`, `partition`, `batches/<party>`, `noise/<party>`, `topology`,
    `evaluation`)."""
    return np.random.Generator(np.random.PCG64(derive(seed, name)))


def torch_stream(seed: int, name: str, device: str = "cpu") -> torch.Generator:
    """torch generator of the stream `name` on `device`."""
    import torch

    return torch.Generator(device=device).manual_seed(derive(seed, name))


def batches(seed: int, epoch: int, samples: int, size: int) -> list[np.ndarray]:
    """The rows of each batch of an epoch, by its ID 0 .. ceil(samples / size) - 1; the last may be shorter.

    All parties draw the same from the public seed: a shared permutation of the aligned rows.
    """
    order = stream(seed, f"batches/{epoch}").permutation(samples)
    return [order[first : first + size] for first in range(0, samples, size)]


# --- from a secret ----------------------------------------------------------------------------------------------------


KEY_BYTES = 32
AT_ONCE = 2**20  # numbers of one draw that are made at a time


class Secret:
    """256 bits of the operating system's that one party alone has, and streams of random numbers that come of them.

    A stream is SHAKE-256 of the key, its name and a counter. Who lacks the key cannot foretell a number, however many
    others he knows; NumPy's and torch's generators do not promise that (torch's on a CPU has a seed of 32 bits).

    A checkpoint has `state_dict`: the counters, and the name of a file with the key (`keep`) on the machine where the
    party runs, which its user alone may read. A resumed run draws the same numbers again: the messages that it repeats
    tell nothing new.
    """

    def __init__(self) -> None:
        self.key = secrets.token_bytes(KEY_BYTES)
        self.kept: str | None = None  # name of the key's file
        self._streams: dict[str, SecretStream] = {}

    def stream(self, name: str) -> SecretStream:
        """The stream `name`, always the same object."""
        return self._streams.setdefault(name, SecretStream(self, name))

    def keep(self) -> None:
        """Write the key to a file of its own. Raises VflbenchError where there is no place for it."""
        name = secrets.token_hex(16)
        try:
            path = key_file(name)
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(self.key)
                file.flush()
                os.fsync(file.fileno())
        except (OSError, RuntimeError) as error:  # RuntimeError: nobody knows where the user's home is
            where = "name a folder of yours with XDG_STATE_HOME, or do without checkpoints: checkpoint_every=null"
            raise VflbenchError(f"a party's key for its noise cannot be kept ({error}): {where}") from error
        self.kept = name

    def state_dict(self) -> dict[str, Any]:
        return {"kept": self.kept, "drawn": {name: one.drawn for name, one in self._streams.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken; streams that are held already do. Errors: OSError where the key's file is
        not there."""
        self.key, self.kept = key_file(state["kept"]).read_bytes(), state["kept"]
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
        """Gaussian, of mean 0.

        Each is half the sum of four by Box and Muller, as Opacus' secure mode has it: that the possible values of one
        have gaps, which may tell what it was added to (Mironov 2012; Holohan and Braghin 2021), is then of no practical
        use. The sum's own rounding to the type of the model is not treated.
        """
        count = int(np.prod(size))
        parts = [self._normal(min(AT_ONCE, count - start)) for start in range(0, count, AT_ONCE)]
        return scale * np.concatenate([*parts, np.empty(0)]).reshape(size)

    def _normal(self, count: int) -> np.ndarray:
        u = self.random(4 * count).reshape(4, count)
        radii, angles = np.sqrt(-2 * np.log(u[:2])), 2 * np.pi * u[2:]
        return np.asarray((radii * (np.cos(angles) + np.sin(angles))).sum(axis=0) / 2)

    def laplace(self, scale: float, size: tuple[int, ...]) -> np.ndarray:
        """Laplace, of mean 0."""
        u = self.random(2 * int(np.prod(size))).reshape(2, *size)
        return scale * (np.log(u[0]) - np.log(u[1]))  # the difference of two exponential ones


def key_file(name: str) -> Path:
    """Where a party that runs on this machine keeps a key. Errors: FileNotFoundError for a name that no key has."""
    base = os.environ.get("XDG_STATE_HOME") or os.environ.get("LOCALAPPDATA")
    folder = (Path(base) if base else Path.home() / ".local" / "state") / "vflbench" / "secrets"
    if not re.fullmatch(r"[0-9a-f]{32}", name):  # it was read from a checkpoint, and must not lead elsewhere
        raise FileNotFoundError(errno.ENOENT, "no key has this name", name)
    return folder / name


def forget(kept: str | None) -> None:
    """Remove the key of a run that has ended, where it is on this machine."""
    if kept is not None:
        with contextlib.suppress(OSError):
            key_file(kept).unlink()
