"""The work of a computation, and cores that parties share."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.every import few_fast
from tests.federation.toys import run_programs
from tests.options import swept
from vflbench import config, registry
from vflbench.algorithms.split.worker_replica import Side
from vflbench.data.tasks import AlignedPart, AlignedPublic
from vflbench.federation import counted_work
from vflbench.federation.clock import ComputeClock
from vflbench.federation.counted_work import Work
from vflbench.federation.delays import Delays
from vflbench.federation.party import PartySpec, batchable
from vflbench.papers import definition
from vflbench.runner import rates
from vflbench.types import ComputeConfig, ConfigError, NetworkConfig, RunConfig

REFERENCE = ["vfl", "hetero_lr", "vfl_ps", "avfl", "avfl_ps", "pubsub_vfl", "leasgd_async", "fedbuff"]


def made(*overrides: str) -> RunConfig:
    with config.session(overrides) as hydra:
        found = config.plan(hydra, overrides).config
    assert found is not None
    return found


# --- the work ---------------------------------------------------------------------------------------------------------


def test_work_by_hand() -> None:
    """(3, 4) times (4, 5), plus 1: two operations, 2 x 60 flops, two results of 15 numbers."""
    result, done = counted_work.counted(lambda a, b: a @ b + 1, torch.ones(3, 4), torch.ones(4, 5))
    assert result.tolist() == [[5.0] * 5] * 3
    assert done == Work(2, 120, 30)
    constants = ComputeConfig(operation_seconds=1.0, flop_seconds=0.01, number_seconds=0.1)
    assert done.seconds(constants) == pytest.approx(2 + 1.2 + 3)
    assert counted_work.counted(lambda: np.ones(3) + 1)[1] == Work()


def test_work_is_linear_in_the_rows() -> None:
    def made(rows: int) -> Work:
        return counted_work.counted(torch.nn.Linear(4, 5), torch.ones(rows, 4))[1]

    assert made(3).at_rows(made(2), 100) == made(100)


def side(width: int, depth: int = 3, labelled: bool = False, **keys: Any) -> Side:
    found = made("algorithm=vfl", "dataset=digits", f"model.width={width}", f"model.depth={depth}")
    found.compute.cores = [4]
    for key, value in keys.items():
        setattr(found.compute, key, value)
    me = SimpleNamespace(name="active" if labelled else "passive_1", device="cpu", privacy=None)
    public = AlignedPublic(50, parties=2, classes=2, owner=0)
    labels = np.arange(50) % 2 if labelled else None
    return Side(me, AlignedPart(np.ones((50, 8), np.float32), labels, {}), public, found)


@pytest.mark.parametrize("labelled", [False, True])
def test_reference_grows_with_model_and_batch_and_changes_nothing(labelled: bool) -> None:
    step = "learn" if labelled else "backward"
    small = side(16, labelled=labelled)
    before = small.theta.clone()
    seconds = {rows: small.seconds(step, rows) for rows in (10, 100, 1000)}
    assert 0 < seconds[10] < seconds[100] < seconds[1000] < 100 * seconds[10]
    assert torch.equal(small.theta, before) and not small.optimiser.state
    assert side(256, labelled=labelled).seconds(step, 100) > seconds[100]
    assert side(16, 9, labelled=labelled).seconds(step, 100) > seconds[100]
    double = {key: 2 * getattr(small.config.compute, key) for key in rates.RATES}
    assert side(16, labelled=labelled, **double).seconds(step, 100) == pytest.approx(2 * seconds[100])


def test_what_a_batch_is_charged_is_the_work_it_does() -> None:
    """The linear rule against the work of the real step, after the optimiser's first."""
    passive = side(16)
    rows = np.arange(20)
    passive._embed(rows, 0)  # the first one measures the memory of a graph
    with torch.no_grad():
        made_, embed = counted_work.counted(lambda: torch.enable_grad()(passive._embed)(rows, 0))
    dz = torch.ones_like(made_.z)
    with torch.enable_grad():
        passive._backward(made_, rows, dz, True)
        back = counted_work.counted(lambda: passive._backward(passive._embed(rows, 0), rows, dz, True))[1]
    constants = passive.config.compute
    both = passive.seconds("embed", 20) + passive.seconds("backward", 20)
    assert passive.seconds("embed", 20) == pytest.approx(embed.seconds(constants), rel=0.15)
    assert both == pytest.approx(back.seconds(constants), rel=0.15)


def test_the_clock_charges_what_pytorch_does_and_else_the_cost() -> None:
    found = made("algorithm=leasgd_async", "dataset=digits").compute
    found.message_seconds = 0.0
    large, small = torch.ones(200, 200), torch.ones(20, 20)

    @batchable
    def product(a: torch.Tensor, factor: float) -> torch.Tensor:
        return (a @ a) * factor

    def by(function: Any, *args: Any) -> float:
        async def program(me: Any, data: Any, public: Any, config: Any) -> None:
            async for _ in me.rounds():
                await me.compute(function, *args, cost=7)

        clock = ComputeClock("modelled", found)
        alone = run_programs({"server": program}, clock=clock).order[0].now
        assert run_programs({"server": program}, clock=clock, batch_compute=False).order[0].now == alone
        return alone

    assert by(product, large, 0.5) == counted_work.counted(product, large, 0.5)[1].seconds(found)
    assert by(product, large, 0.5) == by(product, large, 0.25) > by(product, small, 0.5) > 0
    assert by(lambda: np.ones(3)) == found.base_seconds + 7 * found.seconds_per_unit


def test_a_message_keeps_its_sender_busy() -> None:
    async def server(me: Any, data: Any, public: Any, config: Any) -> None:
        async for _ in me.rounds():
            await me.send_many(["a", "b"], 1.0)

    async def client(me: Any, data: Any, public: Any, config: Any) -> None:
        async for _ in me.rounds():
            await me.recv("server")

    engine = run_programs(
        {"server": server, "a": client, "b": client},
        clock=ComputeClock("modelled", ComputeConfig(message_seconds=0.25)),
        network=NetworkConfig("ideal"),
    )
    assert {name: party.now for name, party in engine.parties.items()} == {"server": 0.5, "a": 0.25, "b": 0.5}


def test_constants_are_found_again() -> None:
    works = [Work(operations, flops, 1e3 * operations) for operations in (10, 50) for flops in (1e5, 1e7, 1e9)]
    works += [Work(20, 1e6, 1e6), Work(20, 1e6, 1e7)]
    true = ComputeConfig(operation_seconds=4e-6, flop_seconds=1e-11, number_seconds=2e-10)
    found = rates.fitted(works, np.array([done.seconds(true) for done in works]))
    assert [found[name] for name in rates.RATES] == pytest.approx([4e-6, 1e-11, 2e-10])
    assert found["rates_off"] == pytest.approx(1)


# --- who takes which model --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", few_fast(REFERENCE, 2))
def test_what_depends_on_time_or_is_compared_with_it_takes_the_reference(algorithm: str) -> None:
    found = made(f"algorithm={algorithm}", "dataset=digits").compute
    assert found.name == "reference" and found.counts_work and not found.delays and found.sharing == "organisation"
    assert made(f"algorithm={algorithm}", "dataset=digits", "compute=paper_table8").compute.delays


def test_every_method_that_depends_on_time_takes_the_reference() -> None:
    assert {name for name, info in registry.algorithms().items() if info.time_dependent or info.modelled} == set(
        REFERENCE
    )


OURS = {
    "averages",
    "blog_order",
    "energy_settings",
}  # no figures of the paper: they take the reference, as the other tables do
FIGURES = sorted({path.stem for path in (registry.config_dir() / "figure/pubsub_vfl").iterdir()} - OURS)


@pytest.mark.slow
@pytest.mark.parametrize("figure", FIGURES)
def test_the_figures_of_pubsub_keep_the_papers_table(figure: str) -> None:
    taken = swept([runs.words("small") for runs in definition.load(f"pubsub_vfl/{figure}").runs], "compute")
    assert taken == ({"paper_table8", "measured"} if figure == "fig8" else {"paper_table8"})


def test_the_planner_says_which_models_it_plans_with() -> None:
    with pytest.raises(ConfigError, match="compute=paper_table8 or compute=measured"):
        made("algorithm=pubsub_vfl", "dataset=digits", "algorithm.planner=epoch", "algorithm.average_every=null")
    assert made(
        "algorithm=pubsub_vfl",
        "dataset=digits",
        "algorithm.planner=epoch",
        "algorithm.average_every=null",
        "compute=paper_table8",
    )


# --- cores ------------------------------------------------------------------------------------------------------------


def ended(parties: int, cores: int, starts: tuple[float, ...] = (), seconds: float = 1.0) -> list[float]:
    """When each of `parties` parties on one machine has computed; each first idles until its start."""

    def program(start: float) -> Any:
        async def body(me: Any, data: Any, public: Any, config: Any) -> None:
            async for _ in me.rounds():
                await me.compute(lambda: None, seconds=0.0, latency=start)
                await me.compute(lambda: None, seconds=seconds)

        return body

    begins = dict(enumerate(starts))
    programs = {f"p{n}": program(begins.get(n, 0.0)) for n in range(parties)}
    machines = dict.fromkeys(programs, ("one", cores))
    clock = ComputeClock("modelled", ComputeConfig())
    engine = run_programs({**programs}, machines=machines, clock=clock)
    return [party.now for party in engine.order]


def test_two_on_two_cores_compute_side_by_side_and_ten_do_not() -> None:
    assert ended(2, 2) == [1, 1]
    assert ended(10, 2) == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert ended(10, 10) == [1] * 10


def test_who_asks_first_computes_first() -> None:
    """On one core: the second asks at 0, the third at 0.5, the first at 0.75, the last when all are done."""
    assert ended(4, 1, (0.75, 0.0, 0.5, 5.0)) == [3.0, 1.0, 2.0, 6.0]


def test_machines_of_the_parties() -> None:
    specs = {
        name: PartySpec(None, None, "client", organisation)  # type: ignore[arg-type]
        for name, organisation in [("a", "a"), ("a_0", "a"), ("b", "b"), ("b_0", "b"), ("c", "c")]
    }

    def machines(sharing: Any) -> dict[str, tuple[str, int]]:
        return Delays(ComputeConfig(cores=[4, 2], sharing=sharing)).machines(specs)

    assert machines("evenly") == {}
    assert machines("machine") == dict.fromkeys(specs, ("all", 4))
    assert machines("organisation") == {"a": ("a", 4), "a_0": ("a", 4), "b": ("b", 2), "b_0": ("b", 2)}
    shared = Delays(ComputeConfig(cores=[4, 2], sharing="machine"))
    assert (shared.total_cores(3), shared.cores(0, 8)) == (4, 1.0)
