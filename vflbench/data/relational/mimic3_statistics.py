"""Statistics of measurements over windows of a stay.

Values are in arrays sorted by (channel, stay, second). A window is a range of them. Its moments are merged from blocks
of 1, 2, 4, 8 ... values.
"""

import itertools

import numpy as np

from vflbench.data.relational.mimic3_events import CHANNELS, COLUMNS, STATISTICS, SUB_PERIODS, Events

_ROWS = 20_000  # prediction hours at once


def statistics(events: Events, stay: np.ndarray, hour: np.ndarray, out: np.ndarray, place: np.ndarray) -> None:
    """Write each prediction hour and 714 statistics of what was measured in the stay until then (inclusive).

    A sub-period is a part of the time from a channel's first to its last measurement so far, both ends included.

    Parameters
    ----------
    stay, hour : (n,) the prediction hours, by ascending stay.
    out : (n, 715) float32, possibly a memory map.
    place : (n,) the row of `out` for each of them.
    """
    stride = 1 + max(int(events.second.max(initial=0)), int(hour.max(initial=0)) * 3600)
    bounds = np.searchsorted(events.channel, np.arange(len(CHANNELS) + 1))
    keys = events.stay.astype(np.int64) * stride + events.second
    width = len(SUB_PERIODS) * len(STATISTICS)
    for first in range(0, len(stay), _ROWS):
        rows = slice(first, first + _ROWS)
        origin = stay[rows].astype(np.int64) * stride
        until = origin + hour[rows].astype(np.int64) * 3600
        block = np.empty((len(origin), 1 + len(COLUMNS)), np.float32)
        block[:, 0] = hour[rows]
        for channel, (low, high) in enumerate(itertools.pairwise(bounds)):
            own = slice(*(low + np.searchsorted(keys[low:high], [origin[0], origin[-1] + stride])))
            starts, ends = _windows(keys[own], origin, until)
            values = window_statistics(events.value[own], starts.ravel(), ends.ravel())
            stacked = values.reshape(len(STATISTICS), len(SUB_PERIODS), -1).transpose(2, 1, 0)
            block[:, 1 + channel * width : 1 + (channel + 1) * width] = stacked.reshape(len(origin), width)
        out[place[rows]] = block


def _windows(keys: np.ndarray, origin: np.ndarray, until: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where each window begins and ends in the ascending `keys`, (sub-periods, n) each."""
    start, end = np.searchsorted(keys, origin), np.searchsorted(keys, until, side="right")
    padded = np.append(keys, 0)
    some = end > start
    begin = np.where(some, padded[np.minimum(start, len(keys))], origin)
    last = np.where(some, padded[end - 1], origin)
    starts, ends = [], []
    for period in SUB_PERIODS:
        side, _, percent = period.partition("_")
        part = (last - begin) * int(percent or 100) // 100  # whole seconds, so that no float rounding matters
        starts.append(np.searchsorted(keys, last - part) if side == "last" else start)
        ends.append(np.searchsorted(keys, begin + part, side="right") if side == "first" else end)
    return np.stack(starts), np.where(some, np.stack(ends), np.stack(starts))


def window_statistics(values: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """STATISTICS (the population's) of each window values[start:end], (6, windows).

    An empty window has the count 0, and NaN otherwise.

    A window is a chain of blocks of 2^k values, one for each bit of its length. All blocks of a size are made at once
    from those of half the size. Sums of powers over the whole series would lose every digit to one outlier, and
    MIMIC-III writes 999999 for an error.
    """
    length = ends - starts
    place = starts.copy()
    windows = np.zeros((6, len(starts)))
    windows[4:] = np.array([[np.inf], [-np.inf]])
    once, zeros = np.ones(len(values)), np.zeros(len(values))
    blocks = np.stack([once, values, zeros, zeros, values, values])
    for bit in range(int(length.max(initial=0)).bit_length()):
        if bit:
            half = 1 << (bit - 1)
            blocks = _merged(blocks[:, :-half], blocks[:, half:])
        chosen = np.flatnonzero(length >> bit & 1)
        windows[:, chosen] = _merged(windows[:, chosen], blocks[:, place[chosen]])
        place[chosen] += 1 << bit
    count, mean, squares, cubes, low, high = windows
    some = count > 0
    n = np.where(some, count, 1)
    variance = squares / n
    spread = variance > (np.finfo(np.float64).eps * mean) ** 2
    skew = np.where(spread, cubes / n / np.where(spread, variance, 1) ** 1.5, 0)
    result = np.stack([low, high, mean, np.sqrt(variance), skew])
    return np.concatenate([np.where(some, result, np.nan), count[None]])


def _merged(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Moments of unions of two sets of values (Chan et al.; Pébay).

    They are (6, sets): count, mean, sums of squared and of cubed deviations, smallest and largest value.
    """
    n, mean, squares, cubes, low, high = first
    m, other_mean, other_squares, other_cubes, other_low, other_high = second
    total = n + m
    step = other_mean - mean
    share = step * m / total
    return np.stack(
        [
            total,
            mean + share,
            squares + other_squares + step * share * n,
            cubes
            + other_cubes
            + step * share * n * (n - m) / total * step
            + 3 * (share * other_squares * n / m - share * squares),
            np.minimum(low, other_low),
            np.maximum(high, other_high),
        ]
    )
