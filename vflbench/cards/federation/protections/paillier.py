"""Paillier encryption, and its prices."""

from dataclasses import dataclass
from typing import Literal

from vflbench.defaults import from_conf
from vflbench.types import Count, OptionConfig, OptionInfo, Problem

OPTIONS = (OptionInfo("paillier", "ciphertexts that can be added up: priced (bytes, seconds), not performed"),)


@dataclass(frozen=True)
class Price:
    """Of a key length: bytes of a ciphertext, and seconds of one core for an operation."""

    size: int
    encrypt: float
    encrypt_short: float | None  # with a short exponent; None: not measured
    add: float
    multiply: float  # by a number of 64 bits in clear
    decrypt: float


PRICES = {
    1024: Price(256, 3.64e-3, None, 7.8e-6, 76e-6, 1.31e-3),
    2048: Price(512, 13.97e-3, 1.59e-3, 6.0e-6, 384e-6, 2.78e-3),
    3072: Price(768, 36.3e-3, 2.74e-3, 12.1e-6, 737e-6, 8.62e-3),
}


@from_conf()
class Config(OptionConfig):
    """The keys of protection=paillier."""

    name: str
    key_bits: Literal[1024, 2048, 3072]
    short_exponent: bool
    threads: Count


def check(config: Config) -> list[Problem]:
    """A price that is not known."""
    if config.short_exponent and PRICES[config.key_bits].encrypt_short is None:
        return [Problem("protection.short_exponent", True, f"is not measured with {config.key_bits} bits: false")]
    return []
