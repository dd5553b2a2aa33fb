"""What holds for every algorithm on a GPU: it computes there, has the CPU's curve, and its checkpoints move.

Without a GPU `PretendedGpu` stands in for one. The tests marked `gpu` are the same on a real one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vflbench
from tests.contracts.test_algorithms import (
    CASES,
    CONVEX,
    DATASET,
    ON_CONVEX,
    REPRESENTATIVES,
    SPLIT,
    SPLIT_WORKERS,
    TABLES,
    no_pictures,
    same,
)
from tests.every import few_fast
from tests.pretended_gpu import PretendedGpu
from vflbench import registry
from vflbench.federation.clock import ComputeClock
from vflbench.models import pyg
from vflbench.results.reader import Run
from vflbench.runner.evaluate import Observer
from vflbench.runner.federation import Federation, resolve_device
from vflbench.types import ComputeConfig, ConfigError, VflbenchError, hook

__all__ = ["no_pictures"]  # a fixture

# Methods for convex objectives compute those in NumPy. Three of them also train networks, which is what a GPU is for.
NETWORKS = {
    "mtcd": ["algorithm.tokens=2", "algorithm.hops=2", "algorithm.local_steps=3"],
    "svfl": [],
    "centralized_gd": [],
}
# Methods whose learner is scikit-learn's by default, and a network's with this.
LEARNERS = {"send_once": ["algorithm.learner=model", "model.width=8", "model.depth=3"]}
ONLY_CONVEX = ON_CONVEX - set(NETWORKS)
NUMPY = {"gram_once", "secureboost"}  # on any data
TRAINED = [case for case in CASES if case[0] not in ONLY_CONVEX | NUMPY]
# those that draw noise for tensors
NOISY = ("dp_sgd", "gaussian_embedding", "gdp_embedding", "gaussian_gradient", "embedding_and_label")
PRIVATE = [
    (name, mechanism)
    for name, info in registry.algorithms().items()
    for mechanism in info.privacy
    if name not in ONLY_CONVEX  # they compute in NumPy
    if mechanism in NOISY
]
# One algorithm of each family.
DRAWS = {("rfl_admm_v", "dp_sgd"), ("glasu", "gaussian_embedding"), ("vfl", "embedding_and_label")}
# An algorithm for each mechanism in each family, which draws by the family's functions. A secret's noise differs from
# run to run, so it need only be drawn.
DRAWN = {(registry.algorithms()[name].family, mechanism): (name, mechanism) for name, mechanism in reversed(PRIVATE)}
# keys of a mechanism's noise, where they are others than these
NOISE = {"gdp_embedding": [], "embedding_and_label": ["dataset.task=classes", "privacy.debias=true"]}
# Largest difference from the CPU's curve on a real GPU: sums in another order, on as many rounds. Accuracies of some
# hundred rows move by a row.
TOLERANCE = {"float32": 1e-2, "float64": 1e-6}
REAL = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch has no CUDA device here")


def words(algorithm: str, layout: str) -> list[str]:
    if algorithm in NETWORKS:
        data = [*TABLES, "algorithm.parties=3", "algorithm.lr=0.01", "model=split_mlp", *NETWORKS[algorithm]]
    else:
        data = [
            *DATASET[layout],
            *LEARNERS.get(algorithm, []),
            *(SPLIT + SPLIT_WORKERS[algorithm] if algorithm in SPLIT_WORKERS else []),
        ]
    small = ["rounds=2", "eval_every=1", "checkpoint_every=1", "engine.threads=1", "plot=none"]
    return [f"algorithm={algorithm}", *data, *small]


def run(folder: Path, device: str, given: list[str], *more: str) -> Run:
    return vflbench.run([*given, f"device={device}", *more, f"hydra.run.dir={folder}"])


def stopped(folder: Path, device: str, given: list[str], *more: str, last: int = 2) -> None:
    """A run whose power goes in its `last` round, a checkpoint behind it."""
    ended = Observer.on_round

    def breaks(self: Observer, round: int, engine: Any) -> bool:
        if round == last:
            raise VflbenchError("the power went")
        return ended(self, round, engine)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Observer, "on_round", breaks)
        with pytest.raises(VflbenchError, match="the power went"):
            run(folder, device, given, *more)


def differences(one: Run, other: Run) -> dict[str, float]:
    """The largest difference of each column of two curves; NaN differs from a number."""
    assert list(one.curve.columns) == list(other.curve.columns)
    found = {}
    for column in one.curve.select_dtypes("number"):
        a, b = (run.curve[column].to_numpy(float) for run in (one, other))
        assert a.shape == b.shape and (np.isnan(a) == np.isnan(b)).all(), column
        found[column] = float(np.nanmax(np.abs(a - b), initial=0.0))
    return found


@contextlib.contextmanager
def pretended(device: str) -> Iterator[None]:
    """A pretended GPU, on which all matrix products are computed, if the device is one."""
    if device == "cpu":
        yield
        return
    with PretendedGpu() as gpu:
        yield
    assert gpu.products["cuda"] > 0 and gpu.products["cpu"] == 0


# --- without a GPU ----------------------------------------------------------------------------------------------------


def test_an_algorithm_computes_on_the_device_also_after_a_stop(tmp_path: Path) -> None:
    """A CPU's curve, bytes and models; all do so in the slow test below."""
    given = words("rfl_admm_v", "relational")
    whole = run(tmp_path / "cpu", "cpu", given)
    with pretended("cuda"):
        stopped(tmp_path / "moved", "cuda", given)
        moved = run(tmp_path / "moved", "cuda", given, "resume=true")
    assert (whole.summary["device"], moved.summary["device"]) == ("cpu", "cuda")
    same(whole, moved)


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "layout"), TRAINED)
def test_every_algorithm_computes_on_the_device(algorithm: str, layout: str, tmp_path: Path) -> None:
    """A CPU's run; one of each family, whose checkpoints are alike, goes on there, and on the CPU, and there again."""
    given = [*words(algorithm, layout), "rounds=3"]
    whole = run(tmp_path / "cpu", "cpu", given)
    if stops := algorithm in REPRESENTATIVES:
        with pretended("cuda"):
            stopped(tmp_path / "moved", "cuda", given)
        stopped(tmp_path / "moved", "cpu", given, "resume=true", last=3)
    with pretended("cuda"):
        moved = run(tmp_path / "moved", "cuda", given, *(["resume=true"] if stops else []))
    assert (whole.summary["device"], moved.summary["device"]) == ("cpu", "cuda")
    same(whole, moved)


@pytest.mark.parametrize(
    ("algorithm", "conv"),
    [("glasu", "SAGEConv"), ("glasu_exact", "GATv2Conv")],
)
@pytest.mark.slow
def test_a_convolution_of_torch_geometric_computes_there_also_after_a_stop(
    algorithm: str, conv: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyg, "failure", lambda name, options, width: "")  # it tries them on the CPU
    given = [*words(algorithm, "graph"), "model=pyg", f"model.conv={conv}"]
    whole = run(tmp_path / "cpu", "cpu", given)
    with pretended("cuda"):
        stopped(tmp_path / "moved", "cuda", given)
        moved = run(tmp_path / "moved", "cuda", given, "resume=true")
    assert (whole.summary["device"], moved.summary["device"]) == ("cpu", "cuda")
    same(whole, moved)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "mechanism", "secret"),
    [
        *((*pair, False) for pair in sorted({*DRAWN.values(), *DRAWS})),
        *((*pair, True) for pair in sorted(DRAWS)),
    ],
)
def test_noise_is_that_of_the_cpu(algorithm: str, mechanism: str, secret: bool, tmp_path: Path) -> None:
    layout = registry.algorithms()[algorithm].layouts[0]
    noise = NOISE.get(mechanism, ["privacy.epsilon=null", "privacy.noise_multiplier=1.5"])
    given = [*words(algorithm, layout), f"privacy={mechanism}", *noise, f"privacy.secure_rng={secret}"]
    with pretended("cuda"):
        there = run(tmp_path / "cuda", "cuda", given)
    if not secret:
        same(run(tmp_path / "cpu", "cpu", given), there)


@pytest.mark.parametrize("algorithm", few_fast(sorted(ON_CONVEX | NUMPY | set(LEARNERS)), 2))
def test_what_numpy_computes_is_no_gpus(algorithm: str, tmp_path: Path) -> None:
    data = CONVEX if algorithm in ON_CONVEX else TABLES
    given = [f"algorithm={algorithm}", *data, "rounds=1", "engine.threads=1", "plot=none"]
    with PretendedGpu() as gpu:
        with pytest.raises(ConfigError) as refused:
            run(tmp_path / "cuda", "cuda", given)
        chosen = run(tmp_path / "auto", "auto", given)
    assert str(refused.value) == ("device=cuda: this algorithm computes on cpu only with these data: use auto or cpu.")
    assert not (tmp_path / "cuda").exists()
    assert chosen.summary["device"] == "cpu" and not gpu.products


def test_auto_takes_the_gpu_where_the_algorithm_can(tmp_path: Path) -> None:
    with pretended("cuda"):
        assert run(tmp_path / "run", "auto", words("vfl_sgd", "aligned")).summary["device"] == "cuda"


@pytest.mark.parametrize("devices", few_fast([("cpu",), (("cuda",),), (("cpu", "gpu"),), ((),)]))
def test_devices_that_are_none_are_told(devices: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = registry.load_algorithm("vfl_sgd")
    assert hook(module, "devices") is None
    monkeypatch.setattr(module, "devices", lambda task, config: devices, raising=False)
    with pytest.raises(VflbenchError, match=r"vfl_sgd\.py: devices\(task, config\) gives .*: it must have 'cpu', and"):
        run(tmp_path / "run", "cpu", words("vfl_sgd", "aligned"))


def test_a_partys_own_device_is_refused_by_its_key() -> None:
    with pytest.raises(ConfigError, match=r"^engine\.devices\.client_0=cuda: this algorithm computes on cpu only"):
        resolve_device("cuda", ("cpu",), "engine.devices.client_0")
    with PretendedGpu(), pytest.raises(ConfigError, match=r"^device=cuda:1: this machine has 1 GPUs"):
        resolve_device("cuda:1")


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["glasu", "d_psgd"])
def test_a_measured_clock_waits_for_the_gpu(algorithm: str, tmp_path: Path) -> None:
    """Before each computation, and after it."""
    given = words(algorithm, registry.algorithms()[algorithm].layouts[0])
    with PretendedGpu() as gpu:
        measured = run(tmp_path / "measured", "cuda", given, "engine.compute_clock=measured")
    computed = int((measured.trace["kind"] == "compute").sum())
    if algorithm == "d_psgd":  # the workers' steps are one call
        computed //= len({*measured.trace["party"]})
    assert computed > 0 and gpu.waits == 2 * computed
    with PretendedGpu() as gpu:
        run(tmp_path / "modelled", "cuda", given, "engine.compute_clock=modelled")
        assert gpu.waits == 0
        ComputeClock("measured", ComputeConfig(), "cpu").moment()
        assert gpu.waits == 0
        ComputeClock("measured", ComputeConfig(), "cuda").moment()
        assert gpu.waits == 1


# --- the pretended GPU itself -----------------------------------------------------------------------------------------


def mixtures() -> dict[str, Any]:
    """What a GPU refuses, by what is wrong."""
    there, here = torch.ones(3, 4, device="cuda"), torch.ones(4)
    index = torch.tensor([0, 1])
    return {
        "sum": lambda: there + here,
        "product": lambda: there @ here,
        "under vmap": lambda: torch.func.vmap(lambda row: row @ here)(there),
        "backward": lambda: torch.autograd.grad(there.requires_grad_() @ there.T, there, torch.ones(3, 3)),
        "joined": lambda: torch.cat([there[0], here]),
        "numbers joined": lambda: torch.stack([there.sum(), here.sum()]),
        "added to a number": lambda: here.sum().add_(there.sum()),
        "rows of the CPU": lambda: here[index.to("cuda")],
        "rows selected": lambda: there.index_select(0, index),
        "as an array": there.numpy,
        "as any array": lambda: np.asarray(there),
        "a generator of the CPU": lambda: there.normal_(generator=torch.Generator()),
        "a generator of the GPU": lambda: torch.randn(3, generator=torch.Generator("cuda")),
        "a list of parameters": lambda: torch.nn.utils.parameters_to_vector([there, here]),
    }


@pytest.mark.parametrize("wrong", [
    "sum", "product", "under vmap", "backward", "joined", "numbers joined", "added to a number", "rows of the CPU",
    "rows selected", "as an array", "as any array", "a generator of the CPU", "a generator of the GPU",
    "a list of parameters",
])  # fmt: skip
def test_the_pretended_gpu_refuses(wrong: str) -> None:
    told = r"same device|on different devices|can't convert cuda:0|device type for generator"
    with PretendedGpu(), pytest.raises((RuntimeError, TypeError), match=told):
        mixtures()[wrong]()


def test_the_pretended_gpu_allows_what_a_gpu_does() -> None:
    with PretendedGpu() as gpu:
        there, here = torch.ones(3, 4, device="cuda"), torch.ones(4)
        assert str(there.device) == "cuda:0" and there.is_cuda and str(here.device) == "cpu"
        for made in (
            there * here.sum(), there[torch.tensor([0, 1])], there + here.to("cuda"), torch.zeros_like(there),
            there.new_zeros(2), here.to(there), torch.nn.functional.one_hot(there[0].long(), 3), there.double(),
        ):  # fmt: skip
            assert made.is_cuda
        assert not there.cpu().is_cuda and float(there.cpu().numpy().sum()) == 12.0
        assert not gpu.products
        network = torch.nn.Linear(4, 2).to("cuda")
        optimiser = torch.optim.Adam(network.parameters())
        network(there).sum().backward()
        optimiser.step()
        assert network.weight.grad is not None and network.weight.grad.is_cuda
        assert optimiser.state[network.weight]["exp_avg"].is_cuda
        assert gpu.products["cuda"] and not gpu.products["cpu"]
        here @ here
        assert gpu.products["cpu"] == 1
    assert not torch.empty(1).is_cuda and type(torch.Generator()) is torch.Generator


def test_a_method_that_leaves_the_gpu_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The test above can fail: labels that stay on the CPU, and products that do."""
    from vflbench.algorithms.joins import table_parties

    tensor = table_parties.tensor
    given = words("vfl_sgd", "aligned")
    monkeypatch.setattr(table_parties, "tensor", lambda values, dtype, device: tensor(values, dtype, "cpu"))
    with pytest.raises(RuntimeError, match="same device"), pretended("cuda"):
        run(tmp_path / "mixed", "cuda", given)
    monkeypatch.undo()
    arguments = Federation.engine_arguments
    monkeypatch.setattr(Federation, "engine_arguments", lambda self: arguments(self) | {"device": "cpu"})
    with pytest.raises(AssertionError), pretended("cuda"):
        assert run(tmp_path / "elsewhere", "cuda", given).summary["device"] == "cuda"  # as it would be recorded


# --- on a GPU ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def memory() -> Iterator[None]:
    """The test has used the GPU's memory."""
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.max_memory_allocated()
    yield
    assert torch.cuda.max_memory_allocated() > before


@pytest.mark.gpu
@REAL
@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize(("algorithm", "layout"), TRAINED)
def test_every_algorithm_has_the_curve_of_the_cpu(algorithm: str, layout: str, tmp_path: Path) -> None:
    given = words(algorithm, layout)
    whole, there = run(tmp_path / "cpu", "cpu", given), run(tmp_path / "cuda", "cuda", given)
    assert there.summary["device"] == "cuda"
    assert max(differences(whole, there).values()) <= TOLERANCE["float32"]


@pytest.mark.gpu
@REAL
@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize(("algorithm", "layout"), TRAINED)
def test_every_checkpoint_moves_between_devices(algorithm: str, layout: str, tmp_path: Path) -> None:
    given = [*words(algorithm, layout), "model.dtype=float64"]
    whole = run(tmp_path / "cpu", "cpu", given)
    for first, then in (("cpu", "cuda"), ("cuda", "cpu")):
        folder = tmp_path / f"{first}_{then}"
        stopped(folder, first, given)
        moved = run(folder, then, given, "resume=true")
        assert moved.summary["device"] == then
        assert max(differences(whole, moved).values()) <= TOLERANCE["float64"]


@pytest.mark.gpu
@REAL
@pytest.mark.parametrize(("algorithm", "mechanism"), PRIVATE)
def test_noise_on_a_gpu_is_that_of_the_cpu(algorithm: str, mechanism: str, tmp_path: Path) -> None:
    layout = registry.algorithms()[algorithm].layouts[0]
    noise = NOISE.get(mechanism, ["privacy.epsilon=null", "privacy.noise_multiplier=1.5"])
    given = [*words(algorithm, layout), f"privacy={mechanism}", *noise, "model.dtype=float64"]
    found = differences(run(tmp_path / "cpu", "cpu", given), run(tmp_path / "cuda", "cuda", given))
    assert max(found.values()) <= TOLERANCE["float64"]


@pytest.mark.gpu
@REAL
def test_a_measured_computation_takes_as_long_as_the_gpu_does() -> None:
    """Kernels are launched and left to run: without waiting, a product of large matrices takes no time."""
    large, clock = torch.ones(4096, 4096, device="cuda"), ComputeClock("measured", ComputeConfig(), "cuda")
    large @ large  # the first one loads libraries
    start, launched = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    began = clock.moment()
    start.record()
    for _ in range(20):
        large @ large
    launched.record()
    measured = clock.moment() - began
    assert measured >= start.elapsed_time(launched) / 1e3 * 0.99
