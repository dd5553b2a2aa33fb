"""PubSub-VFL's bookkeeping of one epoch: who has which batch, which attempt counts, who waits until when.

A hub tells its epoch what came and when. Before it waits, it calls `serve` and sends what is in the outbox. Nothing
here waits, sends, or reads a clock.
"""

import bisect
import math
from collections import deque
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from vflbench.algorithms.split.broker import Broker
from vflbench.algorithms.split.organisations import ACTIVE
from vflbench.algorithms.split.worker_replica import Embedding, Gradient
from vflbench.types import FederationError

# per worker, given up one after the other without a step of their party: more only where no attempt can be in time
MOST_ATTEMPTS = 1000


class Task(NamedTuple):
    """What a hub gives a worker to do."""

    kind: Literal["forward", "backward", "forget", "average", "end"]
    batch: int = 0
    attempt: int = 0
    # backward: d loss / d z. forward, of an active worker: the embeddings, in the passive parties' order
    tensors: Any = None
    steps: bool = False  # whether parameters change: a party steps once on a batch, whatever the attempts


class Result(NamedTuple):
    """What a worker answers to its task."""

    outcome: Literal["embedded", "stepped", "failed"]
    batch: int
    attempt: int
    value: Any = None  # embedded: z. stepped, of an active worker: the loss, and d loss / d z for each passive party


class Notice(NamedTuple):
    """An attempt at a batch is given up; both sides send these."""

    batch: int
    attempt: int


class Epoch:
    """What the hubs of both sides keep; all times are the hub's."""

    def __init__(
        self, workers: list[str], count: int, brokers: list[Broker], deadline: float | None, every: int | None
    ) -> None:
        self.brokers, self.deadline, self.every = brokers, deadline, every
        self.steps = self.averaged = 0  # of the party; how many there were when the replicas were last averaged
        self.attempt = [0] * count
        self.idle = deque(workers)
        self.task: dict[str, Task | None] = dict.fromkeys(workers)  # what each worker works on
        self.given_up: list[int] = []  # passive: batches whose attempts were given up since the party's last step
        self.outbox: list[tuple[str, Any, str]] = []  # receiver, message, tag

    def current(self, j: int, attempt: int) -> bool:
        """Whether this is the attempt under way."""
        return attempt == self.attempt[j]

    def posted(self) -> list[tuple[str, Any, str]]:
        """Empty the outbox, and return what has to be sent now, in this order."""
        posted, self.outbox = self.outbox, []
        return posted

    def give(self, worker: str, task: Task) -> None:
        """Give a worker a task."""
        self.task[worker] = task
        self.outbox.append((worker, tuple(task), "task"))

    def full(self) -> bool:
        """Whether enough steps are done or in hand for an average within the epoch: workers get no task before it."""
        if self.every is None or self.steps == len(self.attempt):
            return False
        steps = self.steps + sum(task.steps for task in self.task.values() if task)
        return steps >= self.averaged + self.every

    def averages(self) -> bool:
        """Whether the replicas are averaged now: all workers are idle. Messages may be under way."""
        if not self.full() or any(self.task.values()):
            return False
        self.averaged = self.steps
        return True

    def patience(self, now: float) -> float | None:
        """Seconds until the next deadline; None where nobody waits."""
        ends = [end for broker in self.brokers if (end := broker.deadline()) is not None]
        return max(0.0, min(ends) - now) if ends else None

    def expired(self, now: float) -> Iterator[int]:
        """Batches whose deadline has come, one by one: what is done about one may end the wait for another."""
        for broker in self.brokers:
            yield from broker.expired(now)

    def _put_down(self, worker: str, result: Result) -> Task:
        """Take the task from a worker that has answered, and return it."""
        task, self.task[worker] = self.task[worker], None
        assert task is not None, f"{worker} answers without a task"
        self.steps += result.outcome == "stepped" and task.steps
        self.idle.append(worker)
        return task

    def _dismiss(self, worker: str) -> Task | None:
        """Remove a worker that has died, and return the task that it had."""
        if worker in self.idle:
            self.idle.remove(worker)
        return self.task.pop(worker)


class PassiveEpoch(Epoch):
    """A passive hub's view of an epoch.

    Parameters
    ----------
    outstanding : the most batches of a worker that wait for their gradient.
    deadline : seconds that an embedding waits for its gradient.
    every : steps of the party between two averages of its replicas; None: none within an epoch.
    """

    def __init__(
        self,
        workers: list[str],
        count: int,
        outstanding: int,
        deadline: float | None,
        every: int | None = None,
    ) -> None:
        self.gradients = Broker()
        super().__init__(workers, count, [self.gradients], deadline, every)
        self.outstanding = outstanding
        # batch IDs that no worker has, smallest first: all passive parties take them in one order
        self.queue = list(range(count))
        # batches that a worker waits for, in its order
        self.held: dict[str, dict[int, None]] = {worker: {} for worker in workers}
        self.owner: dict[int, str] = {}  # batch -> the worker that has it, or had it last
        # batches whose gradient is there for a worker
        self.arrived: dict[str, deque[int]] = {worker: deque() for worker in workers}
        self.finished: set[int] = set()  # stepped on
        self.begun: dict[int, int] = {}  # batch -> the party's steps when its latest attempt began
        self.staleness: list[int] = []  # of each step: the party's steps between the embedding and it
        self.notices, self.reported = 0, -1  # notices that came; how many the active party knows were heeded
        self.ended = False  # the active party says so

    def over(self) -> bool:
        """Whether the epoch is over."""
        return self.ended and self.complete()

    def complete(self) -> bool:
        """Whether nothing of the epoch is left to do, as far as this party knows."""
        return (
            len(self.finished) == len(self.attempt)
            and not self.queue
            and not any(self.held.values())
            and not any(self.task.values())
        )

    def serve(self, now: float) -> None:
        """Give every idle worker a gradient if one is there, else a new batch; report when all is done."""
        for _ in range(0 if self.full() else len(self.idle)):
            worker = self.idle.popleft()
            if task := self._step(worker) or self._batch(worker):
                self.give(worker, task)
            else:
                self.idle.append(worker)
        if self.reported != self.notices and self.complete():
            self.reported = self.notices
            self.outbox.append((ACTIVE, self.notices, "epoch"))

    def on_result(self, worker: str, result: Result) -> bool:
        """Note a worker's answer, and return whether it is an embedding to publish."""
        task = self._put_down(worker, result)
        if result.outcome == "stepped" and task.steps:
            self.given_up.clear()
        elif result.outcome == "failed":
            self._take_back(worker, task)
        return result.outcome == "embedded" and self.current(result.batch, result.attempt)

    def on_published(self, j: int, now: float) -> None:
        """Note that the embedding of batch j is on its way: its gradient is due."""
        if self.deadline is not None:
            self.gradients.wait(j, now + self.deadline)

    def on_gradient(self, gradient: Gradient) -> None:
        """Keep a gradient for the worker that has the parameters of its embedding."""
        if self.current(gradient.batch, gradient.attempt):
            self.gradients.publish(gradient.batch, gradient)
            self.arrived[self.owner[gradient.batch]].append(gradient.batch)

    def on_notice(self, notice: Notice) -> None:
        """Heed a notice: another party has given an attempt up."""
        j, attempt = notice
        self.notices += 1
        if attempt >= self.attempt[j]:
            self.attempt[j] = attempt
            self._requeue(j)

    def on_loss(self, worker: str) -> None:
        """Give the work of a worker whose process has died to the others."""
        self._take_back(worker, self._dismiss(worker))

    def abandon(self, j: int) -> None:
        """Give up the attempt at batch j, and tell the active party."""
        self.outbox.append((ACTIVE, tuple(Notice(j, self.attempt[j])), "notice"))
        self._requeue(j)

    def _step(self, worker: str) -> Task | None:
        """A task for a worker that has a gradient; None where none is there."""
        held = self.held[worker]
        while self.arrived[worker]:
            j = self.arrived[worker].popleft()
            if j in held and (gradient := self.gradients.next(j)) is not None:  # else it was abandoned
                del held[j]
                steps = j not in self.finished
                if steps:
                    self.staleness.append(len(self.finished) - self.begun[j])
                self.finished.add(j)
                return Task("backward", j, gradient.attempt, gradient.dz, steps)
        return None

    def _batch(self, worker: str) -> Task | None:
        """The next batch of the queue, for a worker that may have one more."""
        if not self.queue or len(self.held[worker]) >= self.outstanding:
            return None
        j = self.queue.pop(0)
        self.held[worker][j] = None
        self.owner[j] = worker
        self.begun[j] = len(self.finished)
        return Task("forward", j, self.attempt[j])

    def _take_back(self, worker: str, task: Task | None) -> None:
        """Put back into the queue what a worker had in hand, and what it waits for."""
        # the batch of a "forward" task is among those held
        if task and task.kind == "backward" and task.steps:
            self.finished.discard(task.batch)
            self.abandon(task.batch)
        for j in list(self.held[worker]):
            self.abandon(j)

    def _requeue(self, j: int) -> None:
        """Put batch j back into the queue, with the next attempt number."""
        self.attempt[j] += 1
        self.given_up.append(j)
        self._forget(j)
        if j not in self.queue:
            bisect.insort(self.queue, j)

    def _forget(self, j: int) -> None:
        """End the wait for the gradient of batch j; its worker drops the parameters that it kept."""
        self.gradients.discard(j)
        owner = self.owner.get(j)
        if owner is not None and j in self.held[owner]:
            del self.held[owner][j]
            self.outbox.append((owner, tuple(Task("forget", j)), "task"))


class ActiveEpoch(Epoch):
    """The active hub's view of an epoch.

    Parameters
    ----------
    passive : the passive parties' names.
    deadline : seconds within which all embeddings of a batch have to come.
    every : as for `PassiveEpoch`.
    """

    def __init__(
        self,
        workers: list[str],
        count: int,
        passive: list[str],
        deadline: float | None,
        every: int | None = None,
    ) -> None:
        self.embeddings = {name: Broker() for name in passive}
        super().__init__(workers, count, list(self.embeddings.values()), deadline, every)
        self.ready: deque[int] = deque()  # batches whose embeddings are all there, oldest first
        self.since: dict[int, float] = {}  # when the last embedding of a batch was published
        self.young = math.inf if deadline is None else deadline / 2
        self.stepped: set[int] = set()
        self.notices = dict.fromkeys(passive, 0)  # sent to each
        self.heeded: dict[str, int] = dict.fromkeys(passive, -1)  # how many of them each had heeded when it was done
        # whether an attempt was given up: a batch may then be ready while a worker is at an earlier attempt at it
        self.retried = False
        self.losses: list[float] = []
        self.repeated = self.discarded = 0

    def over(self) -> bool:
        """Whether the epoch is over."""
        return not any(self.task.values()) and self.heeded == self.notices

    def counts(self) -> dict[str, int]:
        """What became of the epoch's batches and messages."""
        dropped = sum(broker.dropped for broker in self.brokers)
        done = {"trained": len(self.stepped), "repeated": self.repeated, "discarded": self.discarded}
        return done | {"dropped": dropped}

    def serve(self, now: float) -> None:
        """Give idle workers the batches that are ready."""
        while self.idle and not self.full() and (j := self._next(now)) is not None:
            self.ready.remove(j)
            zs = [broker.next(j).z for broker in self.brokers]
            self.give(self.idle.popleft(), Task("forward", j, self.attempt[j], zs, j not in self.stepped))

    def on_result(self, worker: str, result: Result) -> bool:
        """Note a worker's answer, and return whether it has gradients to publish."""
        self._put_down(worker, result)
        j, current = result.batch, self.current(result.batch, result.attempt)
        if result.outcome == "stepped" and j not in self.stepped:
            self.losses.append(result.value[0])
            self.stepped.add(j)
        elif result.outcome == "failed" and current:
            self.abandon(j)
        return result.outcome == "stepped" and current

    def on_embedding(self, src: str, embedding: Embedding, now: float) -> None:
        """Keep an embedding: the last one makes its batch ready, and an earlier one sets the others a deadline."""
        j = embedding.batch
        if embedding.attempt < self.attempt[j]:
            self.discarded += 1
            return
        self.embeddings[src].publish(j, embedding)
        missing = [broker for broker in self.brokers if not broker.holds(j)]
        if not missing:
            self.ready.append(j)
            self.since[j] = min(embedding.time, now)
        elif self.deadline is not None:
            for broker in missing:
                if j not in broker.deadlines:
                    broker.wait(j, now + self.deadline)

    def on_notice(self, src: str, notice: Notice) -> None:
        """Pass on to the other passive parties that one has given a batch up."""
        j, attempt = notice
        others = [name for name in self.embeddings if name != src]
        if attempt >= self.attempt[j]:
            self._retry(j, attempt, others)

    def on_loss(self, worker: str) -> None:
        """Give up the attempt of a worker whose process has died, so that another one takes its batch."""
        task = self._dismiss(worker)
        if task and self.current(task.batch, task.attempt):
            self.abandon(task.batch)

    def abandon(self, j: int) -> None:
        """Give up the attempt at batch j, and tell all passive parties."""
        self._retry(j, self.attempt[j], list(self.embeddings))

    def _next(self, now: float) -> int | None:
        """The oldest ready batch.

        After a retry: of the ready batches that no worker has, the oldest young one, else the newest.
        """
        if not self.retried:
            return self.ready[0] if self.ready else None
        at_work = {task.batch for task in self.task.values() if task}
        free = [j for j in self.ready if j not in at_work]
        return next((j for j in free if now - self.since[j] <= self.young), free[-1] if free else None)

    def _retry(self, j: int, attempt: int, receivers: list[str]) -> None:
        """Have the passive parties embed batch j once more: discard what is there of the attempt, and tell them."""
        self.attempt[j] = attempt + 1
        self.repeated += 1
        self.retried = True
        for broker in self.brokers:
            self.discarded += broker.holds(j)
            broker.discard(j)
        if j in self.ready:
            self.ready.remove(j)
        for name in receivers:
            self.notices[name] += 1
            self.outbox.append((name, tuple(Notice(j, attempt)), "notice"))


def check_fruitful(given_up: list[int], workers: int, hub: str, deadline: float | None, failure_rate: float) -> None:
    """Check that attempts at batches can be in time.

    Raises
    ------
    FederationError : too many attempts were given up, one after the other.
    """
    most = MOST_ATTEMPTS * workers
    if len(given_up) > most:
        lossy = f", or algorithm.failure_rate={failure_rate} too high" if failure_rate else ""
        raise FederationError(
            f"{hub}: {most + 1} attempts at batches were given up one after the other, the last at batch "
            f"{given_up[most]}: algorithm.deadline={deadline} is too short for this network and these delays{lossy}"
        )
