"""PubSub-VFL's bookkeeping of an epoch, without messages, clocks or networks: what is decided, and what is laid into
the outbox."""

from __future__ import annotations

import random
from collections import Counter, defaultdict, deque
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from vflbench.algorithms.split.epoch import ActiveEpoch, Notice, PassiveEpoch, Result, Task
from vflbench.algorithms.split.organisations import ACTIVE
from vflbench.algorithms.split.worker_replica import Embedding, Gradient
from vflbench.federation.payload import copy_payload

Z = torch.zeros(2, 3)


def passive(workers: int = 1, count: int = 3, **options: Any) -> PassiveEpoch:
    keys = {"outstanding": 2, "deadline": 10.0} | options
    return PassiveEpoch([f"w{i}" for i in range(workers)], count, **keys)


def active(workers: int = 1, count: int = 3, passive: int = 2, deadline: float | None = 10.0) -> ActiveEpoch:
    return ActiveEpoch([f"w{i}" for i in range(workers)], count, [f"p{i}" for i in range(passive)], deadline)


def tasks(epoch: PassiveEpoch | ActiveEpoch, now: float = 0.0) -> list[tuple[str, Task]]:
    """What the workers get; everything else that is sent must have been looked at before."""
    epoch.serve(now)
    posted = epoch.posted()
    assert {tag for _, _, tag in posted} <= {"task"}
    return [(worker, Task(*message)) for worker, message, _ in posted]


def embed(epoch: PassiveEpoch, worker: str, j: int, attempt: int = 0, now: float = 0.0) -> bool:
    """A worker has embedded a batch, which is published where it still counts."""
    published = epoch.on_result(worker, Result("embedded", j, attempt, Z))
    if published:
        epoch.on_published(j, now)
    return published


def come(epoch: ActiveEpoch, j: int, attempt: int = 0, time: float = 0.0, now: float | None = None) -> None:
    """All embeddings of a batch come."""
    for name in epoch.embeddings:
        epoch.on_embedding(name, Embedding(j, attempt, time, Z), time if now is None else now)


def test_on_the_wire_a_record_is_a_plain_tuple_with_24_bytes_beside_its_tensor() -> None:
    for record in (Embedding(3, 1, 0.5, Z), Gradient(3, 1, 0.5, Z)):
        arrived, nbytes, vectors, _ = copy_payload(tuple(record))
        assert type(arrived) is tuple and (nbytes, vectors) == (24 + 4 * 6, 1)
        assert type(record)(*arrived)._replace(**{record._fields[-1]: Z}) == record
    assert copy_payload(tuple(Notice(7, 1)))[1] == 16
    assert Task("end") == ("end", 0, 0, None, False) and Result("failed", 1, 2)[3] is None


# --- passive ----------------------------------------------------------------------------------------------------------


def test_a_worker_gets_new_batches_until_enough_are_under_way_then_gradients_first() -> None:
    epoch = passive()
    assert tasks(epoch) == [("w0", Task("forward", 0))] and tasks(epoch) == []  # one at a time
    assert embed(epoch, "w0", 0) and tasks(epoch) == [("w0", Task("forward", 1))]
    assert embed(epoch, "w0", 1) and tasks(epoch) == []  # two are under way
    epoch.on_gradient(Gradient(1, 0, 1.0, Z))
    epoch.on_gradient(Gradient(0, 0, 1.0, Z))
    assert tasks(epoch) == [("w0", Task("backward", 1, 0, Z, True))]  # as they came
    assert not epoch.on_result("w0", Result("stepped", 1, 0))
    assert tasks(epoch) == [("w0", Task("backward", 0, 0, Z, True))]  # before a new batch
    epoch.on_result("w0", Result("stepped", 0, 0))
    assert tasks(epoch) == [("w0", Task("forward", 2))]


def test_the_active_party_is_told_once_that_all_is_done_and_again_after_a_notice() -> None:
    epoch = passive(count=1)
    tasks(epoch)
    embed(epoch, "w0", 0)
    epoch.on_gradient(Gradient(0, 0, 1.0, Z))
    tasks(epoch)
    epoch.on_result("w0", Result("stepped", 0, 0))
    for _ in range(2):
        epoch.serve(0.0)
    assert epoch.posted() == [(ACTIVE, 0, "epoch")] and not epoch.over()
    epoch.on_notice(Notice(0, 0))  # it is to be embedded again, for another party's sake
    assert tasks(epoch) == [("w0", Task("forward", 0, 1))]
    embed(epoch, "w0", 0, 1)
    epoch.on_gradient(Gradient(0, 1, 2.0, Z))
    assert tasks(epoch) == [("w0", Task("backward", 0, 1, Z, False))]  # it has stepped
    epoch.on_result("w0", Result("stepped", 0, 1))
    epoch.serve(0.0)
    assert epoch.posted() == [(ACTIVE, 1, "epoch")]
    epoch.ended = True
    assert epoch.over()


def test_no_worker_gets_a_task_until_the_replicas_are_averaged() -> None:
    for epoch in (passive(2), active(2)):
        epoch.every = 2
        if isinstance(epoch, ActiveEpoch):
            for j in range(3):
                come(epoch, j)
        first = tasks(epoch)
        assert [task.batch for _, task in first] == [0, 1] and not epoch.averages()
        if isinstance(epoch, PassiveEpoch):
            for worker, task in first:
                embed(epoch, worker, task.batch)
                epoch.on_gradient(Gradient(task.batch, 0, 0.0, Z))
            first = tasks(epoch)
            assert [task.kind for _, task in first] == ["backward"] * 2
        epoch.on_result("w0", Result("stepped", 0, 0, (0.5, [])))
        assert not epoch.averages() and tasks(epoch) == []  # w1 is at work
        epoch.on_result("w1", Result("stepped", 1, 0, (0.5, [])))
        assert epoch.averages() and not epoch.averages()
        assert [task.batch for _, task in tasks(epoch)] == [2]
        assert not epoch.full()


def test_a_deadline_begins_with_the_embedding_and_ends_with_the_gradient() -> None:
    epoch = passive(count=2)
    tasks(epoch)
    assert epoch.patience(0.0) is None
    embed(epoch, "w0", 0, now=1.0)
    tasks(epoch)
    embed(epoch, "w0", 1, now=3.0)
    assert (epoch.patience(5.0), epoch.patience(12.0)) == (6.0, 0.0)
    epoch.on_gradient(Gradient(0, 0, 6.0, Z))
    assert epoch.patience(6.0) == 7.0 and list(epoch.expired(12.9)) == []
    for j in epoch.expired(13.0):
        epoch.abandon(j)
    assert epoch.posted() == [(ACTIVE, (1, 0), "notice"), ("w0", Task("forget", 1), "task")]
    assert epoch.patience(13.0) is None and (epoch.queue, epoch.attempt, epoch.given_up) == ([1], [0, 1], [1])
    patient = passive(deadline=None)
    tasks(patient)
    embed(patient, "w0", 0)
    assert patient.patience(0.0) is None


def test_what_belongs_to_an_earlier_attempt_is_discarded() -> None:
    epoch = passive(workers=2)
    tasks(epoch)  # batches 0 and 1
    epoch.on_notice(Notice(0, 0))
    assert epoch.posted() == [("w0", Task("forget", 0), "task")] and epoch.queue == [0, 2]
    assert not embed(epoch, "w0", 0)  # it was under way
    assert tasks(epoch) == [("w0", Task("forward", 0, 1))]
    epoch.on_notice(Notice(0, 0))  # another party gave the same attempt up
    assert epoch.notices == 2 and epoch.attempt[0] == 1 and epoch.posted() == []
    assert embed(epoch, "w0", 0, 1)
    epoch.on_gradient(Gradient(0, 0, 1.0, Z))
    assert not epoch.gradients.holds(0)
    epoch.on_gradient(Gradient(0, 1, 1.0, Z))
    epoch.abandon(0)  # the gradient is there, and nobody has taken it
    assert not epoch.gradients.holds(0) and not any(0 in held for held in epoch.held.values())


def test_a_notice_of_a_later_attempt_is_caught_up_with() -> None:
    epoch = passive()
    epoch.on_notice(Notice(2, 3))
    assert epoch.attempt == [0, 0, 4] and epoch.queue == [0, 1, 2]


@pytest.mark.parametrize("process_dies", [False, True])
def test_what_a_failed_worker_had_goes_back_to_its_place_in_the_queue(process_dies: bool) -> None:
    epoch = passive(workers=2, count=4)
    tasks(epoch)
    embed(epoch, "w0", 0)
    assert tasks(epoch) == [("w0", Task("forward", 2))]
    if process_dies:
        epoch.on_loss("w0")
    else:
        epoch.on_result("w0", Result("failed", 2, 0))
    assert epoch.posted() == [
        m for j in (0, 2) for m in ((ACTIVE, (j, 0), "notice"), ("w0", Task("forget", j), "task"))
    ]
    assert epoch.queue == [0, 2, 3] and epoch.attempt == [1, 0, 1, 0]
    assert list(epoch.task) == (["w1"] if process_dies else ["w0", "w1"])
    embed(epoch, "w1", 1)
    assert tasks(epoch)[-1] == ("w1", Task("forward", 0 if process_dies else 2, 1))  # one that lives takes part


def test_a_step_that_is_lost_is_done_again_and_one_that_changes_nothing_is_not() -> None:
    epoch = passive(count=1)
    for attempt in (0, 1):
        assert tasks(epoch) == [("w0", Task("forward", 0, attempt))]
        embed(epoch, "w0", 0, attempt)
        epoch.on_gradient(Gradient(0, attempt, 1.0, Z))
        assert tasks(epoch) == [("w0", Task("backward", 0, attempt, Z, True))]
        if attempt == 0:
            epoch.on_result("w0", Result("failed", 0, 0))
            assert epoch.finished == set() and epoch.posted() == [(ACTIVE, (0, 0), "notice")] and epoch.given_up == [0]
    epoch.on_result("w0", Result("stepped", 0, 1))
    assert epoch.given_up == [] and epoch.finished == {0}
    epoch.on_notice(Notice(0, 1))
    tasks(epoch)
    embed(epoch, "w0", 0, 2)
    epoch.on_gradient(Gradient(0, 2, 1.0, Z))
    assert tasks(epoch) == [("w0", Task("backward", 0, 2, Z, False))]
    epoch.on_result("w0", Result("failed", 0, 2))
    assert epoch.queue == [] and epoch.finished == {0}
    epoch.on_notice(Notice(0, 2))
    tasks(epoch)
    embed(epoch, "w0", 0, 3)
    epoch.on_gradient(Gradient(0, 3, 1.0, Z))
    tasks(epoch)
    epoch.on_result("w0", Result("stepped", 0, 3))
    assert epoch.given_up == [0, 0]  # that was no step


# --- active -----------------------------------------------------------------------------------------------------------


def test_a_batch_is_dealt_when_all_its_embeddings_are_there_the_oldest_first() -> None:
    epoch = active(workers=1)
    for j in (2, 0):
        epoch.on_embedding("p0", Embedding(j, 0, 0.0, Z), 0.0)
    assert tasks(epoch) == [] and epoch.patience(4.0) == 6.0
    for j in (0, 2):
        epoch.on_embedding("p1", Embedding(j, 0, 1.0, Z), 1.0)
    assert epoch.patience(4.0) is None
    ((worker, task),) = tasks(epoch)
    assert (worker, task.kind, task.batch, task.steps, len(task.tensors)) == ("w0", "forward", 0, True, 2)
    assert epoch.on_result("w0", Result("stepped", 0, 0, (0.5, [Z, Z])))
    assert tasks(epoch)[0][1].batch == 2


def test_embeddings_that_do_not_come_together_are_given_up() -> None:
    epoch = active(passive=3)
    epoch.on_embedding("p0", Embedding(1, 0, 0.0, Z), 2.0)
    epoch.on_embedding("p1", Embedding(2, 0, 0.0, Z), 3.0)
    assert epoch.patience(4.0) == 8.0
    epoch.on_embedding("p0", Embedding(2, 0, 0.0, Z), 5.0)  # the third has not more time for that
    assert epoch.embeddings["p2"].deadlines == {1: 12.0, 2: 13.0}
    assert list(epoch.expired(11.9)) == []
    for j in epoch.expired(12.0):  # two are missing of batch 1, and it is given up once
        epoch.abandon(j)
    assert epoch.posted() == [(f"p{i}", (1, 0), "notice") for i in range(3)]
    assert epoch.counts() == {"trained": 0, "repeated": 1, "discarded": 1, "dropped": 0}
    epoch.on_embedding("p1", Embedding(1, 0, 3.0, Z), 12.0)  # of the attempt before
    assert epoch.counts()["discarded"] == 2 and epoch.patience(12.0) == 1.0
    come(epoch, 1, attempt=1)
    assert tasks(epoch)[0][1][:3] == ("forward", 1, 1)


def test_after_an_attempt_was_given_up_young_batches_come_first() -> None:
    epoch = active(workers=1, count=6)
    for j in range(4):
        come(epoch, j, time=float(j))
    assert tasks(epoch, 9.0)[0][1].batch == 0  # old, but nothing was late so far
    epoch.on_notice("p0", Notice(0, 0))
    assert epoch.posted() == [("p1", (0, 0), "notice")]
    come(epoch, 0, attempt=1, time=6.0)
    epoch.idle.append("w1")
    # the oldest that is at most half of the deadline old: a worker is at batch 0 still
    assert tasks(epoch, 7.0)[0][1].batch == 2
    assert not epoch.on_result("w0", Result("stepped", 0, 0, (0.5, [Z, Z])))  # its gradients are of no use
    # none is young: the newest, on which it has stepped
    assert tasks(epoch, 20.0)[0][1]._replace(tensors=None) == Task("forward", 0, 1)


def test_a_batch_is_as_old_as_its_last_embedding_was_when_it_was_published() -> None:
    epoch = active(workers=2)
    epoch.on_notice("p0", Notice(2, 0))
    epoch.posted()
    come(epoch, 0, time=0.0, now=3.0)
    come(epoch, 1, time=9.0, now=4.0)  # of a clock that is ahead
    assert [task.batch for _, task in tasks(epoch, 7.0)] == [1, 0]


def test_two_workers_are_never_at_one_batch() -> None:
    epoch = active(workers=2)
    come(epoch, 0)
    tasks(epoch)
    epoch.on_notice("p0", Notice(0, 0))
    epoch.posted()
    come(epoch, 0, 1)
    assert tasks(epoch) == []
    assert not epoch.on_result("w0", Result("failed", 0, 0))  # of an attempt that is over: nobody is told
    assert [task[:3] for _, task in tasks(epoch)] == [("forward", 0, 1)]
    epoch.on_notice("p0", Notice(0, 1))
    epoch.posted()
    epoch.on_loss("w1")
    assert epoch.posted() == []


def test_a_step_counts_once_and_gradients_of_the_attempt_under_way_are_published() -> None:
    epoch = active()
    for attempt in (0, 1):
        come(epoch, 0, attempt)
        assert [task.steps for _, task in tasks(epoch)] == [attempt == 0]
        assert epoch.on_result("w0", Result("stepped", 0, attempt, (0.5 + attempt, [Z, Z])))
        epoch.on_notice("p1", Notice(0, attempt))
        epoch.posted()
    assert epoch.losses == [0.5] and epoch.stepped == {0}
    come(epoch, 0, 2)
    tasks(epoch)
    assert not epoch.on_result("w0", Result("failed", 0, 2))
    assert epoch.posted() == [("p0", (0, 2), "notice"), ("p1", (0, 2), "notice")]
    assert epoch.counts() == {"trained": 1, "repeated": 3, "discarded": 0, "dropped": 0}


def test_a_worker_whose_process_dies_leaves_its_batch() -> None:
    epoch = active(workers=2)
    epoch.on_loss("w1")
    come(epoch, 0)
    assert tasks(epoch)[0][0] == "w0" and list(epoch.task) == ["w0"] and not epoch.idle
    epoch.on_loss("w0")
    assert [message for _, message, _ in epoch.posted()] == [(0, 0), (0, 0)]


def test_an_epoch_is_over_when_every_party_was_done_with_all_notices() -> None:
    epoch = active(passive=2)
    epoch.heeded["p0"] = 0
    assert not epoch.over()
    epoch.heeded["p1"] = 0
    assert epoch.over()
    epoch.on_notice("p0", Notice(0, 0))
    assert not epoch.over() and epoch.notices == {"p0": 0, "p1": 1}
    epoch.heeded["p1"] = 1
    assert epoch.over()


# --- together ---------------------------------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    st.integers(0, 10_000),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from([0.0, 0.1, 0.3]),
)
def test_every_party_steps_once_on_every_batch(
    seed: int, parties: int, workers: int, outstanding: int, failures: float
) -> None:
    """Messages in any order that keeps each link's own, and workers that fail."""
    rng, count, now = random.Random(seed), 6, 0.0
    names = [f"p{i}" for i in range(parties)]
    epochs: dict[str, Any] = {ACTIVE: ActiveEpoch([f"{ACTIVE}_{i}" for i in range(workers)], count, names, 120.0)}
    for name in names:
        epochs[name] = PassiveEpoch([f"{name}_{i}" for i in range(workers)], count, outstanding, 120.0)
    links: dict[tuple[str, str], deque[tuple[str, Any]]] = defaultdict(deque)
    steps: Counter[tuple[str, int]] = Counter()

    def work(worker: str, task: Task) -> Result:
        hub = worker.rpartition("_")[0]
        if rng.random() < failures:
            return Result("failed", task.batch, task.attempt)
        if hub == ACTIVE or task.kind == "backward":
            steps[hub, task.batch] += task.steps
            return Result("stepped", task.batch, task.attempt, (0.0, [Z] * parties))
        return Result("embedded", task.batch, task.attempt, Z)

    def hear(src: str, dst: str, tag: str, message: Any) -> None:
        epoch = epochs[dst]
        if tag == "epoch":
            if dst == ACTIVE:
                epoch.heeded[src] = message
            else:
                epoch.ended = True
        elif tag == "notice":
            epoch.on_notice(*([src] if dst == ACTIVE else []), Notice(*message))
        elif tag == "embedding":
            epoch.on_embedding(src, Embedding(*message), now)
        elif tag == "gradient":
            epoch.on_gradient(Gradient(*message))
        elif epoch.on_result(src, result := Result(*message)):
            j, attempt = result.batch, result.attempt
            if dst != ACTIVE:
                links[dst, ACTIVE].append(("embedding", (j, attempt, now, Z)))
                epoch.on_published(j, now)
            else:
                for name in names:
                    links[ACTIVE, name].append(("gradient", (j, attempt, now, Z)))

    ended = False
    for _ in range(20_000):
        now += rng.random()
        for name, epoch in epochs.items():
            for j in epoch.expired(now):
                epoch.abandon(j)
            epoch.serve(now)
            for dst, message, tag in epoch.posted():
                links[name, dst].append((tag, message))
        if not ended and epochs[ACTIVE].over():
            ended = True
            for name in names:
                links[ACTIVE, name].append(("epoch", 1))
        full = [link for link, messages in links.items() if messages]
        if not full and all(epoch.over() for epoch in epochs.values()):
            break
        if full:
            src, dst = rng.choice(full)
            tag, message = links[src, dst].popleft()
            if tag != "task":
                hear(src, dst, tag, message)
            elif message[0] != "forget":
                links[dst, src].append(("worker", tuple(work(dst, Task(*message)))))
    else:
        pytest.fail("the epoch does not end")
    assert all(steps[name, j] == 1 for name in epochs for j in range(count)) and max(steps.values()) == 1
