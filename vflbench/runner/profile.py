"""`vflbench data profile`: the constants of `compute=measured`, from this machine.

PubSub-VFL's fit protocol, spec section 2.2. Measured with one torch thread, batches of 2, 4, ..., 1024 random rows:

- each part of a batch, forward and backward, of the bottom networks of both parties and of the top network. An update
  of the parameters belongs to the backward pass of its network. Each gives a power law of the seconds per sample, by
  least squares in log space. It fits the least of the repetitions: other work on the machine can only slow them down;
- the latency of a batch: a round trip of an empty batch between two processes. A worker waits for it, and hardly any
  core works;
- the parameter server's cost per worker: receiving its parameters from another process, averaging, sending them back;
- the seconds of an operation, a flop and a written number (runner/rates.py), which compute=reference has of another
  machine;
- the largest number of cores of a worker: the speed-up of its computing by a second thread.
"""

import contextlib
import dataclasses
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vflbench.cards.models.split_learning import MODEL_NAMES, check
from vflbench.cards.models.split_learning import Config as NetworkConfig
from vflbench.data.tasks import AlignedPublic
from vflbench.defaults import filled
from vflbench.federation.delays import PARTS
from vflbench.models import split_learning
from vflbench.results import inventory
from vflbench.results.folder import atomic_write, write_json
from vflbench.runner import provenance
from vflbench.runner.rates import RATES, rates
from vflbench.seeding import torch_stream
from vflbench.types import Delay, Problem, VflbenchError, closest, refuse

SHIPPED = filled(NetworkConfig)
BATCHES = tuple(2**power for power in range(1, 11))
HEADER = 24  # bytes of a batch without rows
SERVED = (2, 4, 8)  # numbers of workers of which a parameter server is timed


@dataclass(frozen=True)
class Options:
    """What `vflbench data profile key=value ...` takes."""

    name: str = "compute"  # of the files
    features: tuple[int, int] = (250, 250)  # columns of the active party and of a passive one
    model: str = "mlp10"  # a split-learning model, with its keys:
    depth: int = SHIPPED.depth
    width: int = SHIPPED.width
    embedding: int = SHIPPED.embedding
    top_width: int = SHIPPED.top_width
    repetitions: int = 15  # of every timing

    def network(self) -> NetworkConfig:
        """The keys of the model."""
        sizes = {"depth": self.depth, "width": self.width, "embedding": self.embedding, "top_width": self.top_width}
        return filled(NetworkConfig, name=self.model, **sizes)


def parse(words: Sequence[str]) -> Options:
    """The options of a command line.

    Raises
    ------
    ConfigError
        Every unknown key, and every value that is out of its range.
    """
    problems: list[Problem] = []
    given: dict[str, Any] = {}
    known = [option.name for option in dataclasses.fields(Options)]
    for word in words:
        key, _, value = word.partition("=")
        if key not in known:
            problems.append(
                Problem(key, value, f"unknown; `vflbench data profile` has: {', '.join(known)}", closest(key, known))
            )
        elif key == "features":
            parts = value.strip("[]").split(",")
            if len(parts) != 2 or not all(part.strip().isdigit() and int(part) > 0 for part in parts):
                problems.append(
                    Problem(
                        key, value, "must be two numbers, of the active party's columns and of a passive one's: 50,450"
                    )
                )
            else:
                given[key] = (int(parts[0]), int(parts[1]))
        elif key == "model":
            given[key] = value
            if value not in MODEL_NAMES:
                allowed = f"must be one of {', '.join(MODEL_NAMES)}"
                problems.append(Problem(key, value, allowed, closest(value, MODEL_NAMES)))
        elif key == "name":
            given[key] = value
            if not value or Path(value).name != value or value.startswith("."):
                problems.append(Problem(key, value, "must be a file name without a folder"))
        elif not value.isdigit() or int(value) < 1:
            problems.append(Problem(key, value, "must be an integer of at least 1"))
        else:
            given[key] = int(value)
    if not problems:
        problems += [
            dataclasses.replace(p, key=p.key.removeprefix("model.")) for p in check(Options(**given).network())
        ]
    refuse(problems)
    return Options(**given)


def profile(options: Options, folder: Path) -> Path:
    """Measure and fit.

    Writes `folder`/<name>.json, which `compute.file` names, and .csv with every timing.

    Returns
    -------
    The JSON's path.
    """
    inventory.claim(folder, "Choose another name=...", (f"{options.name}.csv", f"{options.name}.json"))
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None  # processes that wanted a core in the last minute
    with _threads(1):
        timings = measure(options)
        measured_rates = rates(options.repetitions)
        theta = _Work(options, 2).active.theta
    fits = fit(timings)
    values = {
        "delays": {part: dataclasses.asdict(fits[part].delay) for part in PARTS},
        **measured_rates,
        "core_cap": _speed_up(options),
        "batch_latency": latency(options.repetitions),
        "server_seconds": server_seconds(theta.nbytes, options.repetitions),
        "residuals": {part: fits[part].residuals for part in PARTS},
        "options": options,
        "batch_sizes": BATCHES,
        "load": load,
        "machine": provenance.collect("vflbench data profile", threads=1, device="cpu"),
    }
    atomic_write(folder / f"{options.name}.csv", timings.to_csv(index=False))
    write_json(folder / f"{options.name}.json", values)
    return folder / f"{options.name}.json"


# --- computing --------------------------------------------------------------------------------------------------------


class _Work:
    """One batch of both parties: what each part computes, on random rows."""

    def __init__(self, options: Options, batch: int) -> None:
        config, generator = options.network(), torch_stream(0, "profile")
        labels = np.arange(batch) % 2
        public = AlignedPublic(batch, parties=2, classes=2, owner=0)
        self.active = split_learning.Active(config, options.features[:1], public, labels, generator)
        self.passive = split_learning.Passive(config, options.features[1:], generator)
        self.rows = [torch.randn(batch, columns, generator=generator) for columns in options.features]
        self.labels = torch.from_numpy(labels)
        self.bottom, self.top = (
            part.clone() for part in self.active.theta.split([self.active.bottom.size, self.active.top.size])
        )

    def seconds(self) -> dict[str, float]:
        """One timing of each part."""
        found: dict[str, float] = {}
        za = self._pass("active", self.active.bottom, self.bottom, self.rows[0], found)
        zp = self._pass("passive", self.passive.network, self.passive.theta.data, self.rows[1], found)
        theta, z = self.top.requires_grad_(), torch.cat([za, zp], dim=1).requires_grad_()
        start = time.perf_counter()
        loss = torch.nn.functional.cross_entropy(self.active.top(theta, z), self.labels)
        found["top_forward"] = time.perf_counter() - start
        start = time.perf_counter()
        gradient, _ = torch.autograd.grad(loss, (theta, z))
        self.top = theta.detach().sub_(gradient, alpha=1e-6)
        found["top_backward"] = time.perf_counter() - start
        return found

    def _pass(
        self, party: str, network: Callable[[Tensor, Tensor], Tensor], theta: Tensor, x: Tensor, found: dict[str, float]
    ) -> Tensor:
        """Time a bottom network's passes; returns its embeddings."""
        theta = theta.requires_grad_()
        start = time.perf_counter()
        z = network(theta, x)
        found[f"{party}_forward"] = time.perf_counter() - start
        dz = torch.full_like(z, 1e-3)
        start = time.perf_counter()
        (gradient,) = torch.autograd.grad(z, theta, dz)
        theta.detach().sub_(gradient, alpha=1e-6)
        found[f"{party}_backward"] = time.perf_counter() - start
        return z.detach()


def measure(options: Options) -> pd.DataFrame:
    """Every timing: columns part, batch, repetition, seconds.

    The sizes take turns, so a busy moment of the machine hits all.
    """
    works = {batch: _Work(options, batch) for batch in BATCHES}
    for work in works.values():
        work.seconds()  # the first pass allocates
    rows = [
        (part, batch, repetition, seconds)
        for repetition in range(options.repetitions)
        for batch, work in works.items()
        for part, seconds in work.seconds().items()
    ]
    return pd.DataFrame(rows, columns=["part", "batch", "repetition", "seconds"])


@dataclass(frozen=True)
class Fit:
    """A power law of the seconds per sample, and how far the least timings are from it."""

    delay: Delay
    residuals: tuple[float, ...]  # ln(measured / fitted) of each batch size, in their order


def fit(timings: pd.DataFrame) -> dict[str, Fit]:
    """The power law of each part: scale * B^exponent seconds per sample.

    Least squares of the logarithms of the least timings.
    """
    fits = {}
    for part, own in timings.groupby("part"):
        least = own.groupby("batch")["seconds"].min()
        size = np.log(least.index.to_numpy(dtype=float))
        per_sample = np.log(least.to_numpy()) - size
        exponent, intercept = np.polyfit(size, per_sample, 1)
        residuals = per_sample - (intercept + exponent * size)
        fits[str(part)] = Fit(Delay(float(np.exp(intercept)), float(exponent)), tuple(residuals.tolist()))
    return fits


def _speed_up(options: Options, batch: int = 256) -> float:
    """The seconds of a batch with one thread over those with two; 1 where there is one core, and never below."""
    if len(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)) < 2:
        return 1.0
    work, least = _Work(options, batch), [math.inf, math.inf]
    for _ in range(options.repetitions + 1):  # in turns
        for place, threads in enumerate((1, 2)):
            with _threads(threads):
                least[place] = min(least[place], sum(work.seconds().values()))
    return max(1.0, least[0] / least[1])


@contextlib.contextmanager
def _threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# --- between processes ------------------------------------------------------------------------------------------------

ECHO = """
import sys
size = int(sys.argv[1])
while data := sys.stdin.buffer.read(size):
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
"""


@contextlib.contextmanager
def _echo(size: int) -> Iterator[Callable[[bytes], bytes]]:
    """Another process that sends back what it is sent, `size` bytes at a time."""
    command = [sys.executable, "-S", "-c", ECHO, str(size)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        send, receive = process.stdin, process.stdout

        def exchange(data: bytes) -> bytes:
            send.write(data)
            send.flush()
            answer = receive.read(size)
            if len(answer) != size:
                raise VflbenchError("the second process, which sends the timed messages back, has ended")
            return answer

        try:
            exchange(bytes(size))  # it has started
            yield exchange
        finally:
            send.close()


def latency(repetitions: int) -> float:
    """Seconds of a round trip of an empty batch to another process, the median."""
    message, found = bytes(HEADER), []
    with _echo(HEADER) as exchange:
        for _ in range(20 * repetitions):
            start = time.perf_counter()
            exchange(message)
            found.append(time.perf_counter() - start)
    return float(np.median(found))


def server_seconds(size: int, repetitions: int) -> float:
    """Seconds of a parameter server per worker with `size` bytes of parameters.

    The slope through 0 over the numbers of workers.
    """
    message, least = bytes(size), dict.fromkeys(SERVED, math.inf)
    with _echo(size) as exchange:
        for _ in range(repetitions):
            for workers in SERVED:
                start = time.perf_counter()
                # receive each worker's, and send it one
                thetas = [np.frombuffer(exchange(message), dtype=np.float32) for _ in range(workers)]
                np.mean(thetas, axis=0).tobytes()
                least[workers] = min(least[workers], time.perf_counter() - start)
    served = np.array(SERVED, dtype=float)
    return float(served @ np.array([least[workers] for workers in SERVED]) / (served @ served))


def in_words(values: Mapping[str, Any]) -> str:
    """A profile in a few lines."""
    lines = []
    for part, delay in values["delays"].items():
        off = math.exp(max(map(abs, values["residuals"][part])))
        lines.append(
            f"{part:16} {delay['scale']:.3g} s x B^{delay['exponent']:+.3f} per sample, measured within a factor of "
            f"{off:.2f}"
        )
    lines.append(
        f"latency per batch {values['batch_latency']:.3g} s, parameter server {values['server_seconds']:.3g} s per "
        "worker"
    )
    units = (f"{1e9 * values[name]:.3g} ns" for name in RATES)
    within = f"measured within a factor of {values['rates_off']:.2f}"
    lines.append("an operation {}, a flop {}, a number {}, {}".format(*units, within))
    lines.append(f"a second thread speeds up {values['core_cap']:.3g} times")
    if (values["load"] or 0.0) > 0.5:
        lines.append(
            f"this machine was busy in the minute before (load {values['load']:.2g}): if that was other work, profile "
            "again"
        )
    return "\n".join(lines)
