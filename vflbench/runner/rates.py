"""What a unit of work takes on this machine: the constants of `compute=reference` (federation/counted_work.py).

The steps of split learning are timed in several widths and batches, by the thread's own processor time: other work on
the machine disturbs it least. The constants are those with the least squares of the relative errors, none below 0.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.optimize import nnls

from vflbench.cards.models.split_learning import Config as NetworkConfig
from vflbench.data.tasks import AlignedPublic
from vflbench.defaults import filled
from vflbench.federation import counted_work
from vflbench.federation.counted_work import Work
from vflbench.models import split_learning
from vflbench.seeding import torch_stream

WIDTHS = (64, 512)
BATCHES = (16, 256, 1024)
RATES = ("operation_seconds", "flop_seconds", "number_seconds")


def rates(repetitions: int) -> dict[str, float]:
    """Seconds of one core for each operation, flop and written number, and `rates_off`.

    `rates_off` is the largest factor by which a timed step differs from them.
    """
    steps = [step for width in WIDTHS for batch in BATCHES for step in _steps(width, batch)]
    works = [counted_work.counted(step)[1] for step in steps]
    least = np.full(len(steps), np.inf)
    for _ in range(repetitions):  # the steps take turns, so a busy moment of the machine hits all
        for place, step in enumerate(steps):
            start = time.thread_time()
            step()
            least[place] = min(least[place], time.thread_time() - start)
    return fitted(works, least)


def fitted(works: list[Work], seconds: np.ndarray) -> dict[str, float]:
    """The constants for steps that do `works` in `seconds`, (n,); as `rates`."""
    table = np.array([[done.operations, done.flops, done.numbers] for done in works], dtype=float)
    size = table.max(axis=0)  # of one order, so that the solver's tolerance fits all
    found, _ = nnls(table / size / seconds[:, None], np.ones(len(seconds)))
    off = np.abs(np.log((table / size @ found) / seconds)).max()
    return dict(zip(RATES, (found / size).tolist(), strict=True)) | {"rates_off": float(np.exp(off))}


def _steps(width: int, batch: int) -> list[Callable[[], Any]]:
    """What a passive and an active worker do with a batch: embed, go back and step, learn."""
    config, generator = filled(NetworkConfig, width=width), torch_stream(0, "profile")
    labels = np.arange(batch) % 2
    public = AlignedPublic(batch, parties=2, classes=2, owner=0)
    passive = split_learning.Passive(config, (width,), generator)
    active = split_learning.Active(config, (width,), public, labels, generator)
    rows, target = torch.randn(batch, width, generator=generator), torch.from_numpy(labels)
    optimisers = [torch.optim.Adam([model.theta], 1e-6) for model in (passive, active)]
    made = passive.embed(rows)
    z = made.z.detach()
    dz = torch.full_like(z, 1e-3)

    def back() -> None:
        again = passive.embed(rows)
        passive.theta.grad = passive.gradient(again, lambda: rows, dz)
        optimisers[0].step()

    def learn() -> None:
        _, active.theta.grad, _ = active.gradients(rows, target, [z])
        optimisers[1].step()

    for step in (back, learn):
        step()  # the first one makes the moments
    return [lambda: passive.embed(rows), back, learn]
