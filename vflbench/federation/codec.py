"""Codecs: what is sent is compressed, the ledger charges what is sent, the receiver sees what arrives.

A codec works on the floating-point arrays of a payload, each by itself. Row ids, numbers, text and booleans cross as they are; so do
arrays that it would not make smaller, messages inside an organisation, those of an evaluation, and all that is sent before the first
round (keys, labels, the table mapping: data, not training). Encoding takes no virtual time. Noise of a privacy mechanism is added
before `send`: a codec is post-processing of it, and epsilon stays.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from vflbench.federation.party import Sized, copy_payload
from vflbench.types import CodecConfig, FederationError

LARGEST_HALF = 65504.0
LEVELS = 127  # of int8, on either side of 0

log = logging.getLogger(__name__)


class Codec(Protocol):
    """Both directions. `encode` takes (n,) floats, n > 0, and returns what is sent; `decode` makes (n,) floats of `dtype` of that."""

    def encode(self, values: Tensor, rng: np.random.Generator) -> tuple[Tensor, ...]: ...
    def decode(self, sent: tuple[Tensor, ...], size: int, dtype: torch.dtype) -> Tensor: ...


class Fp16:
    """2 bytes a value: IEEE half precision, rounded to nearest; off by at most 2^-11 |x|, below 2^-14 by 2^-25.

    What is larger than 65504 is sent as 65504, with a warning; infinity and NaN stay what they are.
    """

    def __init__(self) -> None:
        self.warned = False

    def encode(self, values: Tensor, rng: np.random.Generator) -> tuple[Tensor, ...]:
        if values.element_size() <= 2:
            return (values,)  # half precision already
        half = values.half()
        beyond = half.isinf() & values.isfinite()
        if bool(beyond.any()):
            if not self.warned:
                log.warning(
                    "codec=fp16: a number of size %.4g is sent as 65504, the largest that it has", float(values[beyond].abs().max())
                )
                self.warned = True
            half = torch.where(beyond, half.sign() * LARGEST_HALF, half)
        return (half,)

    def decode(self, sent: tuple[Tensor, ...], size: int, dtype: torch.dtype) -> Tensor:
        return sent[0].to(dtype)


class Int8:
    """1 byte a value and a float32 scale per array, max |x| / 127: stochastic rounding to its multiples.

    A value is off by less than one scale, and right in the mean (QSGD: Alistarh et al. 2017, arXiv 1610.02132, section 3.1, with the
    largest value as the norm). One scale per array and not per row: predictions and residuals are (n, 1), of which a scale per row
    would be larger than the rows. An array with infinity, NaN or a float64 beyond 127 float32s in it arrives as NaN.
    """

    def encode(self, values: Tensor, rng: np.random.Generator) -> tuple[Tensor, ...]:
        wide = values.double()
        largest = float(wide.abs().max())
        with np.errstate(over="ignore"):
            scale = np.float32(largest / LEVELS)
        if float(scale) * LEVELS < largest:  # exact in doubles; with a smaller scale the largest value would be cut off
            scale = np.nextafter(scale, np.float32(np.inf))
        draws = torch.from_numpy(rng.random(len(values))).to(values.device)
        if not np.isfinite(scale):
            scale, codes = np.float32(np.nan), torch.zeros_like(wide)
        else:
            codes = (wide / float(scale) + draws).floor().clamp(-LEVELS, LEVELS) if scale else torch.zeros_like(wide)
        return codes.to(torch.int8), torch.tensor([scale], device=values.device)

    def decode(self, sent: tuple[Tensor, ...], size: int, dtype: torch.dtype) -> Tensor:
        codes, scale = sent
        return (codes.double() * scale.double()).to(dtype)


class TopK:
    """The `fraction` of the entries that are largest in magnitude (rounded, at least one; of equals the first): float32 and an int32 index.

    Every other entry arrives as 0: off by at most sqrt(1 - k/n) of the array's norm. 8 bytes an entry: an array of float32 is smaller
    that way below a fraction of one half, and crosses as it is from there on.
    """

    def __init__(self, fraction: float) -> None:
        self.fraction = fraction

    def encode(self, values: Tensor, rng: np.random.Generator) -> tuple[Tensor, ...]:
        kept = max(1, round(self.fraction * len(values)))
        largest = values.abs().sort(descending=True, stable=True).indices[:kept].sort().values
        chosen = values[largest]
        return chosen.float() if chosen.element_size() > 4 else chosen, largest.to(torch.int32 if len(values) <= 2**31 else torch.int64)

    def decode(self, sent: tuple[Tensor, ...], size: int, dtype: torch.dtype) -> Tensor:
        values, places = sent
        whole = torch.zeros(size, dtype=dtype, device=values.device)
        whole[places.long()] = values.to(dtype)
        return whole


def make(config: CodecConfig) -> Codec | None:
    """The codec of a configuration; None where payloads cross as they are."""
    if config.name == "none":
        return None
    if config.name == "topk":
        return TopK(config.fraction)
    return Fp16() if config.name == "fp16" else Int8()


class Encoder:
    """What one party does to what it sends.

    Parameters
    ----------
    codec : as `make`.
    rng : the stream `codec/<party>`, for stochastic rounding.
    remembered : tags of which sender and receiver remember what has arrived: the *difference* to it is encoded, and both add that
        to what they remember. This is EF21 (Richtarik, Sokolov, Fatkhullin 2021, arXiv 2106.05203, Algorithm 2). What topk leaves out
        of one message crosses in a later one. Adding what was left out to the next message instead (Seide et al. 2014) would be right
        for gradients alone, not for predictions and models, which do not add up.

    The memory is per receiver, tag and place in the payload, and starts at 0, again where shape or dtype change. Messages between two
    parties never overtake each other, so both ends' memories are equal: the sender's stands for both, and goes into checkpoints.
    """

    def __init__(self, codec: Codec, rng: np.random.Generator, remembered: Collection[str] = ()) -> None:
        self.codec = codec
        self.rng = rng
        self.remembered = frozenset(remembered)
        self.memory: dict[str, Tensor] = {}

    def encode(self, payload: Any, receiver: str = "", tag: str = "") -> Sized:
        """What arrives of `payload`, a detached copy, with the bytes that were sent.

        Raises
        ------
        FederationError : as `copy_payload`, and for complex numbers and those wider than 64 bits.
        """
        value, nbytes, vectors = copy_payload(payload)
        arrived, saved = self._walk(value, f"{receiver}/{tag}" if tag in self.remembered else None)
        return Sized(nbytes - saved, vectors, arrived)

    def _walk(self, value: Any, place: str | None) -> tuple[Any, int]:
        """What arrives of a part of a payload, and how many bytes that saves."""
        if isinstance(value, (tuple, list, dict)):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            walked = {key: self._walk(part, place and f"{place}/{key}") for key, part in items}
            arrived = {key: part for key, (part, _) in walked.items()}
            return arrived if isinstance(value, dict) else type(value)(arrived.values()), sum(saved for _, saved in walked.values())
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
        before = self.memory.get(place) if place is not None else None
        if before is not None and (before.shape != value.shape or before.dtype != value.dtype):
            before = None
        before = before.to(value.device).reshape(-1) if before is not None else None  # a checkpoint's is on the CPU
        sent = self.codec.encode(flat if before is None else flat - before, self.rng)
        saved = value.nbytes - sum(part.nbytes for part in sent)
        if saved <= 0:
            return value, 0
        arrived = self.codec.decode(sent, len(flat), value.dtype)
        if before is not None:
            arrived = before + arrived
        arrived = arrived.reshape(value.shape)
        if place is not None:
            self.memory[place] = arrived.clone()
        return arrived, saved
