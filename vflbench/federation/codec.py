"""Codecs compress what is sent: the ledger charges the compressed size, the receiver gets what arrives.

A codec works on each floating-point array of a payload by itself. These cross unchanged:

- row ids, numbers, text and booleans;
- arrays that the codec would not make smaller;
- messages inside an organisation, and those of an evaluation;
- all that is sent before the first round (keys, labels, the table mapping), which is data and not training.

Encoding takes no virtual time. A privacy mechanism adds its noise before `send`. The codec is post-processing of
that, so epsilon stays the same.
"""

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from vflbench.federation.payload import Copied, Form, copy_payload
from vflbench.types import FederationError, module_of


class Encoded(NamedTuple):
    """As `Copied`: `value` is what arrives, for the bytes that were sent.

    It is no payload: a program cannot send it on.
    """

    value: Any
    nbytes: int
    vectors: int
    form: Form


class Encoder:
    """One party's encoder of what it sends, with the keys of a codec.

    Of the tags `remembered`, sender and receiver remember what has arrived. The *difference* to it is encoded, and both
    add that to what they remember. This is EF21 (Richtarik, Sokolov, Fatkhullin 2021, arXiv 2106.05203, Algorithm 2).
    What topk leaves out of one message crosses in a later one. Error feedback (Seide et al. 2014) adds what was left
    out to the next message instead. That is right for gradients only: predictions and models do not add up.

    The memory is kept per receiver, tag and place in the payload. It starts at 0, and again where shape or dtype
    change. Messages between two parties never overtake each other, so the memories of both ends are equal. The sender's
    stands for both, and goes into checkpoints.

    Where messages are about a batch, an entry is remembered for each row of the data, and the rows of the batch change
    (EF-VFL: Valdeira et al. 2025, arXiv 2406.14420, with batches).

    Parameters
    ----------
    rng : the stream `codec/<party>`, for stochastic rounding.

    Attributes
    ----------
    rows : of what is encoded from now on, (B,): the first array of a message is about them, where it has that length.
        None: about the same entries every time.
    """

    def __init__(self, codec: Any, rng: np.random.Generator, remembered: Collection[str] = ()) -> None:
        self.codec, self.module, self.rng = codec, module_of(codec), rng
        self.remembered = frozenset(remembered)
        self.memory: dict[str, Tensor] = {}
        self.rows: Tensor | None = None
        self.first = True  # the array is the first of its message

    def encode(self, payload: Any, receiver: str = "", tag: str = "") -> Encoded:
        """What arrives of `payload`, a detached copy, with the bytes that were sent.

        Raises
        ------
        FederationError
            As `copy_payload`, and for complex numbers and numbers wider than 64 bits.
        """
        return self.encode_copy(copy_payload(payload), receiver, tag)

    def encode_copy(self, copied: Copied, receiver: str = "", tag: str = "") -> Encoded:
        """As `encode`, of a copy that nobody else has."""
        value, nbytes, vectors, form = copied
        self.first = True
        arrived, saved = self._walk(value, f"{receiver}/{tag}" if tag in self.remembered else None)
        return Encoded(arrived, nbytes - saved, vectors, form)

    def _walk(self, value: Any, place: str | None) -> tuple[Any, int]:
        """What arrives of a part of a payload, and how many bytes that saves."""
        if isinstance(value, (tuple, list, dict)):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            walked = {key: self._walk(part, place and f"{place}/{key}") for key, part in items}
            arrived = {key: part for key, (part, _) in walked.items()}
            return arrived if isinstance(value, dict) else type(value)(arrived.values()), sum(
                saved for _, saved in walked.values()
            )
        if isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex()):
            return self._array(value, place)
        if isinstance(value, np.ndarray) and value.dtype.kind in "fc":
            if value.dtype.kind == "f" and value.dtype.itemsize > 8:
                raise FederationError(f"codec: arrays of {value.dtype} cannot be compressed: send float64 or float32")
            native = value.astype(value.dtype.newbyteorder("="), order="C", copy=False)
            tensor, saved = self._array(torch.from_numpy(native), place)
            return tensor.numpy(), saved
        return value, 0

    def _array(self, value: Tensor, place: str | None) -> tuple[Tensor, int]:
        if value.is_complex():
            raise FederationError("codec: complex numbers cannot be compressed: send their two parts")
        flat = value.reshape(-1)
        if not len(flat):
            return value, 0
        by_row = self.first and self.rows is not None and value.dim() > 0 and len(value) == len(self.rows)
        self.first = False
        before = None if place is None else self._recall(place, value, by_row)
        sent = self.module.encode(flat if before is None else flat - before, self.rng, self.codec)
        saved = value.nbytes - sum(part.nbytes for part in sent)
        if saved <= 0:
            return value, 0
        arrived: Tensor = self.module.decode(sent, len(flat), value.dtype, self.codec)
        if before is not None:
            arrived = before + arrived
        arrived = arrived.reshape(value.shape)
        if place is not None:
            self._remember(place, arrived, by_row)
        return arrived, saved

    def _recall(self, place: str, value: Tensor, by_row: bool) -> Tensor | None:
        """What has arrived at `place` before, flat, on the device of `value`; None: nothing like it."""
        known = self.memory.get(place)
        if known is None or known.dtype != value.dtype or known.shape[by_row:] != value.shape[by_row:]:
            return None
        if by_row:
            assert self.rows is not None
            known = _longer(known, self.rows)[self.rows]
        return known.to(value.device).reshape(-1)  # a checkpoint's is on the CPU

    def _remember(self, place: str, arrived: Tensor, by_row: bool) -> None:
        if not by_row:
            self.memory[place] = arrived.clone()
            return
        assert self.rows is not None
        known = self.memory.get(place)
        if known is None or known.dtype != arrived.dtype or known.shape[1:] != arrived.shape[1:]:
            known = arrived.new_zeros(0, *arrived.shape[1:])
        self.memory[place] = known = _longer(known.to(arrived.device), self.rows)
        known[self.rows] = arrived


def _longer(known: Tensor, rows: Tensor) -> Tensor:
    """`known`, with zeros up to the last of `rows`."""
    missing = int(rows.max()) + 1 - len(known)
    return torch.cat([known, known.new_zeros(missing, *known.shape[1:])]) if missing > 0 else known
