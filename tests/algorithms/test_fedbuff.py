"""FedBuff: buffers by hand, reductions, what is sent, who may send how much, going on after a stop."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.algorithms.small_shards import config, run, task
from tests.options import privacy_config
from vflbench.algorithms.gossip import fedavg, fedbuff, local_sgd
from vflbench.cards.algorithms.gossip import fedbuff as fedbuff_card
from vflbench.data.tasks import ShardedTask
from vflbench.federation.clock import ComputeClock
from vflbench.federation.ledger import COLUMN
from vflbench.federation.snapshot import Cut
from vflbench.models import classifiers
from vflbench.types import ComputeConfig, ConfigError, LinkConfig, NetworkConfig

EXACT = {"rtol": 1e-9, "atol": 1e-11}
ENGINE = ("on_read", "clock", "checkpoint_every", "on_cut", "resume_from")


def network(*seconds: float) -> NetworkConfig:
    """Messages of worker k to the server take `seconds[k]`; back they take no time."""
    return NetworkConfig("ideal", links={f"worker_{k}->server": LinkConfig(1e3 * s) for k, s in enumerate(seconds)})


def options(**given: Any) -> dict[str, Any]:
    return {"graph": "star", "batch_size": 8, "lr": 0.2, "concurrency": 1.0} | given


def trained(data: ShardedTask, rounds: int, links: NetworkConfig, **given: Any) -> Any:
    """A run whose computing takes no time, unless a clock is given."""
    engine = {key: given.pop(key) for key in ENGINE if key in given}
    cfg = config(fedbuff, rounds, workers=len(data.shards), **options(**given))
    return run(fedbuff, data, cfg, network=links, **engine)


def server_model(result: Any) -> torch.Tensor:
    return classifiers.flat(result.engine.parties["server"].state.model)


def sent(result: Any) -> dict[str, list[float]]:
    """Bytes of each message, by tag."""
    tags, rows = list(result.engine.tags), result.engine.ledger.take()
    return {tag: rows[rows[:, COLUMN["tag"]] == code][:, COLUMN["bytes"]].tolist() for code, tag in enumerate(tags)}


class Read:
    """What was read of models and updates: (from, to, tag, copy), as an engine's `on_read`."""

    def __init__(self) -> None:
        self.found: list[tuple[str, str, str, torch.Tensor]] = []

    def __call__(self, src: str, dst: str, tag: str, round: int, payload: Any) -> None:
        if tag != "round":
            self.found.append((src, dst, tag, payload.clone()))

    def of(self, tag: str) -> list[torch.Tensor]:
        return [payload for _, _, found, payload in self.found if found == tag]


# --- steps by hand ----------------------------------------------------------------------------------------------------


def test_three_buffers_by_hand() -> None:
    """Updates are 2, 3 and 5.5 s on their way; computing and models take no time. K = 2, server_lr 0.5, six updates.

    s    update of    began at         version it began with, and now: staleness
    2    worker 0     0                0, 0: 0
    3    worker 1     0                0, 0: 0      full: w_1 = w_0 + 0.5 (d_1 + d_2) / 2
    4    worker 0     2                0, 1: 1
    5.5  worker 2     0                0, 1: 1      full: w_2 = w_1 + 0.5 (d_3 + d_4) / sqrt(2) / 2
    6    worker 0     4                1, 2: 1
    6    worker 1     3                1, 2: 1      full: w_3 = w_2 + 0.5 (d_5 + d_6) / sqrt(2) / 2
    """
    read, links = Read(), network(2.0, 3.0, 5.5)
    result = trained(task(3), 2, links, buffer=2, server_lr=0.5, on_read=read)
    assert [src for src, _, tag, _ in read.found if tag == "update"] == [f"worker_{k}" for k in (0, 1, 0, 2, 0, 1)]
    d, w0 = read.of("update"), read.of("model")[0]
    w3 = w0 + 0.5 * (d[0] + d[1]) / 2 + 0.5 * (d[2] + d[3] + d[4] + d[5]) / math.sqrt(2) / 2
    torch.testing.assert_close(server_model(result), w3, **EXACT)
    (last,) = [values for name, round, values in result.reports if name == "server" and round == 2]
    assert last["facts"] == {"staleness": pytest.approx(4 / 6)} and last["iterations"] == 3


def test_an_update_is_the_change_by_its_steps() -> None:
    """One worker with all its rows in the batch, one step: the update is -eta times the gradient."""
    data, read = task(1), Read()
    trained(data, 1, network(1.0), batch_size=24, buffer=1, weight_decay=0.05, on_read=read)
    w = read.of("model")[0].requires_grad_()
    x, y = torch.tensor(data.shards[0].features, dtype=torch.float64), torch.tensor(data.shards[0].labels)
    scores = x @ w[:9].view(3, 3).T + w[9:]
    loss = torch.nn.functional.cross_entropy(scores, y) + 0.025 * w.square().sum()
    torch.testing.assert_close(read.of("update")[0], -0.2 * torch.autograd.grad(loss, w)[0], **EXACT)


# --- reductions -------------------------------------------------------------------------------------------------------


def test_equal_speeds_and_a_buffer_for_all_are_fedavg() -> None:
    data = task(4)
    theirs = server_model(run(fedavg, data, config(fedavg, 3, workers=4, fraction=1.0, **options())))
    ours = trained(data, 3, network(1.0, 1.0, 1.0, 1.0), buffer=4)
    torch.testing.assert_close(server_model(ours), theirs, **EXACT)
    for changed in ({"buffer": 3}, {"server_lr": 0.9}):
        other = trained(data, 3, network(1.0, 1.0, 1.0, 1.0), **{"buffer": 4} | changed)
        assert not torch.allclose(server_model(other), theirs, rtol=1e-3)
    assert not torch.allclose(server_model(trained(data, 3, network(1, 1, 1, 2), buffer=4)), theirs, rtol=1e-3)


def test_alone_a_worker_is_local_sgd() -> None:
    theirs = run(local_sgd, task(1), config(local_sgd, 4, workers=1, **options()))
    ours = trained(task(1), 4, network(1.0), buffer=1)
    worker = theirs.engine.parties["worker_0"].state.model
    torch.testing.assert_close(server_model(ours), classifiers.flat(worker), **EXACT)


def test_one_worker_at_a_time_is_sequential_sgd() -> None:
    """The model passes from worker to worker: each one goes on where the last one stopped."""
    read = Read()
    result = trained(task(4), 5, network(1.0, 3.0, 1.0, 1.0), buffer=1, concurrency=0.25, on_read=read)
    assert [tag for _, _, tag, _ in read.found] == ["model", "update"] * 20  # by turns
    assert {src for src, _, _, _ in read.found} == {"server", *(f"worker_{k}" for k in range(4))}  # all take part
    w = read.of("model")[0]
    for model, change in zip(read.of("model"), read.of("update"), strict=True):
        torch.testing.assert_close(model, w, **EXACT)
        w = model + change
    torch.testing.assert_close(server_model(result), w, **EXACT)


# --- what is sent, and when -------------------------------------------------------------------------------------------


def test_what_is_sent() -> None:
    """A model and its update, here of float64, and one byte to each worker at the end of a round.

    At equal speeds all that was sent is used. With workers of 1, 1, 1, 1 and 3.5 s, not what comes after the 20th
    update: that is the third of 5 s, so one of 5 s and the second of worker 4 are not.
    """
    data, rounds, m = task(5), 4, 5
    size = 8 * 12
    found = sent(trained(data, rounds, network(*[1.0] * m), buffer=m))
    assert found == {"model": [size] * 20, "update": [size] * 20, "round": [1] * 20}
    found = sent(trained(data, rounds, network(1.0, 1.0, 1.0, 1.0, 3.5), buffer=2))
    assert {tag: set(sizes) for tag, sizes in found.items()} == {"model": {size}, "update": {size}, "round": {1}}
    assert len(found["round"]) == 20 and len(found["update"]) == len(found["model"]) == 4 * 5 + 2


def test_epochs_and_rounds_count_rows() -> None:
    """24 rows, 8 a batch: 3 steps an epoch. Of four workers, two epochs an update make two updates a round."""
    data = task(4)
    cfg = config(fedbuff, 3, workers=4, **options(local_epochs=2.0)).algorithm
    assert fedbuff.local_steps(cfg, data.public) == 6
    assert [fedbuff.updates(cfg, data.public, t) for t in range(4)] == [0, 2, 4, 6]
    short = replace(cfg, local_epochs=0.3, rounds_per_epoch=3)
    assert fedbuff.local_steps(short, data.public) == 1
    assert [fedbuff.updates(short, data.public, t) for t in range(4)] == [0, 4, 8, 12]


def test_the_end_of_a_round_interrupts_no_training_and_a_stop_changes_nothing() -> None:
    """Steps of 1 s, three for an update: rounds end amid training, and are over within a step of their last update."""
    data, cuts = task(3), dict[int, Cut]()
    clock, links = ComputeClock("modelled", ComputeConfig(base_seconds=1.0)), network(0.25, 0.5, 2.0)
    whole = trained(data, 5, links, clock=clock, checkpoint_every=1, on_cut=lambda cut: cuts.update({cut.round: cut}))
    workers = [(cut.parties[f"worker_{k}"], cut.parties["server"]["now"]) for cut in cuts.values() for k in range(3)]
    assert any(len(one["state"]["batches"]["__ndarray__"]) for one, _ in workers)
    assert max(one["now"] - end for one, end in workers) <= 1.0
    for cut in cuts.values():
        again = trained(data, 5, links, clock=clock, resume_from=cut)
        assert torch.equal(server_model(again), server_model(whole))
        assert again.engine.boundary_clock == whole.engine.boundary_clock
    assert len(cuts) == 4


# --- privacy, mistakes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("uneven", "most", "counts"), [(1.0, 3, [3, 3, 3]), (2.0, 6, [6, 2, 2])])
def test_private_workers_get_no_more_models_than_noise_is_for(uneven: float, most: int, counts: list[int]) -> None:
    """Nine updates of three workers, of which worker 0 is ten times as fast as the others."""
    secret, data = privacy_config("dp_sgd", clip=1.0, noise_multiplier=1.0), task(3)
    cfg = config(fedbuff, 3, privacy=secret, workers=3, **options(buffer=1, uneven=uneven))
    parties = run(fedbuff, data, cfg, network=network(0.1, 1.0, 1.1)).engine.parties
    assert fedbuff.most_models(cfg, data.public) == most and parties["server"].state.models.tolist() == counts
    workers = [parties[f"worker_{k}"].privacy for k in range(3)]
    assert [(one.planned, one.taken) for one in workers] == [(3 * most, 3 * count) for count in counts]  # steps


def test_what_cannot_be_is_told() -> None:
    data, links = task(3), network(1.0)
    with pytest.raises(ConfigError, match=r"algorithm\.buffer=7: must be at most 6, the updates of the whole run"):
        trained(data, 2, links, buffer=7)
    trained(data, 2, links, buffer=6)
    cfg = config(fedbuff, workers=3, **options())
    assert fedbuff_card.check(cfg) == []
    (problem,) = fedbuff_card.check(replace(cfg, network=NetworkConfig("ideal", timing="round")))
    assert problem.key == "network.timing" and problem.allowed == "fedbuff depends on when each message comes: causal"
