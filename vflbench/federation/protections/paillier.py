"""Paillier's encryption, whose ciphertexts can be added up: priced, not performed.

Paillier, EUROCRYPT 1999. A ciphertext is an array of its true length whose first bytes hold the numbers in clear. So
the ledger charges what encryption would send, and links take its time. Nothing is hidden inside the simulator.

A plaintext has room for several numbers side by side (packing). The seconds below were measured on one core of a server
(AMD EPYC; phe 1.5.0 with gmpy2 2.3.2, 2026): a default for comparisons, not the truth about another machine.
"""

import numpy as np

from vflbench.cards.federation.protections.paillier import PRICES, Config

MANTISSA = 53  # bits of a number in fixed point


def slots(config: Config, terms: int, numbers: int) -> int:
    """How many groups of `numbers` fit into a plaintext, if up to `terms` ciphertexts are added up; at least one."""
    return max(1, (config.key_bits - 1) // (numbers * (MANTISSA + max(terms - 1, 1).bit_length())))


def seal(config: Config, values: np.ndarray, slots: int) -> np.ndarray:
    """Ciphertexts of (m, k) numbers, `slots` rows each: (ceil(m / slots), bytes of a ciphertext) uint8."""
    rows, size = -(-len(values) // slots), PRICES[config.key_bits].size
    raw = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1)
    width = raw.shape[1] * slots
    sealed = np.zeros((rows, size), np.uint8)
    full = np.zeros((rows * slots, raw.shape[1]), np.uint8)
    full[: len(raw)] = raw
    sealed[:, :width] = full.reshape(rows, width)
    return sealed


def unseal(sealed: np.ndarray, values: int, numbers: int, dtype: type, slots: int) -> np.ndarray:
    """The (values, numbers) that `seal` was given, of `dtype`."""
    width = numbers * np.dtype(dtype).itemsize
    return np.ascontiguousarray(sealed[:, : slots * width]).reshape(-1, width)[:values].view(dtype)


def seconds(config: Config, encrypted: int = 0, decrypted: int = 0, added: int = 0, multiplied: int = 0) -> float:
    """Of one party, for so many operations; only encryption and decryption are shared between threads."""
    price = PRICES[config.key_bits]
    encrypt = price.encrypt if price.encrypt_short is None or not config.short_exponent else price.encrypt_short
    shared = encrypted * encrypt + decrypted * price.decrypt
    return shared / config.threads + added * price.add + multiplied * price.multiply
