"""Which of two methods is cheaper, and how sure that is: plots/report_page/compare.js has the same statistic."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


def middle(values: Sequence[float]) -> float:
    """The geometric mean where all values are positive, as intervals are of ratios; else the mean."""
    if min(values) <= 0 or min(values) == max(values):
        return float(np.mean(values))
    return float(np.exp(np.mean(np.log(values))))


def moments(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Mean and standard deviation; None for one that needs more values."""
    mean = float(np.mean(values)) if len(values) else None
    return mean, float(np.std(values, ddof=1)) if len(values) > 1 else None


@dataclass(frozen=True)
class Paired:
    """The 95 % interval of the paired difference over common seeds: of ratios where all values are positive."""

    seeds: int
    centre: float
    low: float
    high: float
    ratio: bool

    @property
    def tie(self) -> bool:
        """Whether the interval holds no difference."""
        return self.low <= (1.0 if self.ratio else 0.0) <= self.high


def paired(a: Mapping[Any, float], b: Mapping[Any, float]) -> Paired | None:
    """What `b` takes beside `a`, both by seed; None with fewer than two common seeds."""
    pairs = [(a[seed], b[seed]) for seed in a if seed in b]
    if len(pairs) < 2:
        return None
    from scipy import stats

    ratio = all(x > 0 and y > 0 for x, y in pairs)
    found = np.array([math.log(y) - math.log(x) if ratio else y - x for x, y in pairs])
    half = float(stats.t.ppf(0.975, len(pairs) - 1)) * float(found.std(ddof=1)) / math.sqrt(len(pairs))
    centre, low, high = (float(found.mean()) + shift for shift in (0.0, -half, half))
    if ratio:
        centre, low, high = math.exp(centre), math.exp(low), math.exp(high)
    return Paired(len(pairs), centre, low, high, ratio)
