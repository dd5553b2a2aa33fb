"""What predictions cost, by the exchange of the last evaluation; and how good they are, served clean and noisy."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from vflbench.data.tasks import Task
from vflbench.federation.phases import Event, Served, Tapes
from vflbench.results import folder
from vflbench.types import Metric, RunConfig

PARTIAL = "partial"  # the tag of a party's share of a sum that is the prediction
Shares = tuple[
    int, Mapping[str, tuple[int, int]]
]  # the round of an evaluation; party -> bytes and vectors of its share


def rows(task: Task) -> int:
    """The predictions of an evaluation: held-out rows; of a convex problem, which has none, the training rows."""
    held_out = [len(truth) for split in ("val", "test") if (truth := task.truth(split)) is not None]
    return int(np.sum(held_out)) if held_out else len(task.training_labels())


def asked(config: RunConfig, task: Task) -> int:
    """The predictions that a report charges: as many as there are test rows, unless the user says."""
    if config.predictions is not None:
        return config.predictions
    truth = task.truth("test")
    return 0 if truth is None else len(truth)


def tapes(
    scored: int,
    served: Mapping[str, Served],
    shares: Shares,
    roles: Mapping[str, str],
    connected: Callable[[str, str], bool],
    once: bool = False,
) -> Tapes | None:
    """What every party sent and read for the predictions of round `scored`; None where that is not known.

    `once`: of a one-shot method, whose held-out rows may have crossed in round 1, for all evaluations.

    Where the prediction is a sum, parties report their shares to the observer, and nothing crosses. Served, each would
    send its share towards the server, or else the first party, along the edges; who passes shares on adds them up.
    """
    rounds = {round for round, events in served.values() if events}
    of = 1 if once and rounds == {1} else scored
    found: dict[str, list[Event]] = {
        name: list(events) if round == of else [] for name, (round, events) in served.items()
    }
    if rounds and max(rounds) != of:  # of a run that was stopped within an evaluation, or before any was done again
        return None
    round, sizes = shares
    if not sizes:
        return found
    if round != scored:
        return None
    root = next((name for name, role in roles.items() if role == "server"), next(iter(sizes)))
    parents = _tree(root, list(roles), connected)
    if not sizes.keys() <= {root, *parents}:
        return None
    largest, bearing = max(sizes.values()), set[str]()  # those that have something to pass on
    for name in reversed(parents):  # the farthest first
        if name in sizes or name in bearing:
            found[name].append((parents[name], PARTIAL, *sizes.get(name, largest)))
            found[parents[name]].append((name, PARTIAL))
            bearing.add(parents[name])
    return found


def _tree(root: str, names: Sequence[str], connected: Callable[[str, str], bool]) -> dict[str, str]:
    """Party -> the next one on its shortest way to `root`; the nearest first."""
    parents: dict[str, str] = {}
    level = [root]
    while level:
        here, level = level, []
        for near in here:
            for name in names:
                if name != root and name not in parents and connected(near, name):
                    parents[name] = near
                    level.append(name)
    return parents


def both_ways(
    privacy: Any,
    release: Mapping[str, Any] | None,
    rows: Sequence[Mapping[str, Any]],
    metric: Metric,
    otherwise: Mapping[int, float],
) -> dict[str, Any]:
    """The summary's privacy.serving: the test metric of one model, whose held-out rows were served clean and noisy.

    It is that of the selected round, or else of the last one. Empty where rows were served in one way alone.

    Parameters
    ----------
    privacy : its keys.
    release : what one prediction spends of a row, {epsilon, mu}.
    otherwise : round -> test metric, of rows served as the key does not say.
    """
    row = folder.select(rows, metric) or (rows[-1] if rows else {})
    own, other = row.get(f"test_{metric.name}"), otherwise.get(row.get("round", 0))
    if own is None or other is None:
        return {}
    clean, noisy = (own, other) if privacy.serving == "clean" else (other, own)
    spent = {f"noisy_{key}": value for key, value in (release or {}).items()}
    return {"chosen": privacy.serving, "round": row["round"], "clean": clean, "noisy": noisy, **spent}
