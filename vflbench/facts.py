"""Facts: what a card says of an option, and a task of its data. Others import them from `vflbench.types`."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Literal

SCORED = ("predictions", "partial", "parameters")  # reports that a party may be scored by (runner/evaluate.py)
#: One of what may be protected. feature_row: what one party's row is, or is computed to; example: a row of a worker or
#: of a table, with all that it changes in a sum or a model
Unit = Literal["feature_row", "label", "edge", "gradient_row", "example"]
#: What a message carries of somebody's data, and what one unit of that is; None: nothing to protect.
UNITS: dict[str, Unit | None] = {
    **dict.fromkeys(("features", "embeddings"), "feature_row"),
    **{"gradients": "gradient_row", "labels": "label", "predictions": "feature_row", "parameters": "example"},
    **dict.fromkeys(("sizes", "ids", "timing")),
    **dict.fromkeys(("raw", "binned", "projection"), "feature_row"),
    **{"sums": "example", "split_bitmaps": "feature_row", "ciphertext": "feature_row", "edges": "edge"},
}
KINDS = tuple(UNITS)


#: What a method may assume to be there for nothing, and what that means.
ASSUMED = {
    "aligned_rows": "row i is the same sample at every party",
    "join": "every party has its columns of the joined, matched rows",
    "labels": "every client has the training labels",
    "seed": "parties draw walks, batches or models from a common seed",
    "edges": "every client has all edges",
    "pooled": "one party has all data",
}


#: Kind of a message -> what its receiver is shown. Ids, sizes and times are left out.
SHOWN = {
    **{"features": "raw", "raw": "raw", "binned": "binned", "projection": "projection", "embeddings": "embedding"},
    **{"gradients": "gradient", "parameters": "model", "sums": "sums", "labels": "labels", "predictions": "prediction"},
    **{"split_bitmaps": "split bitmaps", "ciphertext": "ciphertext", "edges": "edges"},
}


#: How an observer sees it, from worst to best. `summed`: only a sum over three parties or more.
FORMS = ("clear", "hashed", "summed", "noised", "encrypted", "none")
# How often one party sends another such a message. once: before the first round; round 1: in that one alone.
TIMES = ("per round", "once", "per hop", "round 1", "per evaluation")  # once, per hop: before the first round


@dataclass(frozen=True)
class Sent:
    """One kind of message, an entry of an algorithm's `EXPOSES`: who sends what to whom, about whose data.

    A role is a party's name without its numbers: `client`, `passive_worker`.
    """

    tag: str
    sender: str
    receiver: str
    kind: str
    about: str  #: the role whose data it carries; `all`: everybody's
    keys: tuple[str, ...] = ()  #: all that its dicts can have; they are not charged
    #: a key of the algorithm, `privacy` or `privacy.split` (whether it is set), and values with which it is sent
    when: tuple[Any, ...] = ()
    form: tuple[Any, ...] = ("clear",)  #: of FORMS; with a key and a value: clear unless the algorithm's key has it
    times: str | int = "per round"  #: of TIMES; or so many messages from one party to another, before the first round
    noised: tuple[str, ...] = ()  #: mechanisms that noise it; `dp_sgd.prediction_noise`: where that key of it is set
    served: bool = False  #: evaluations send it, too, about held-out rows and without noise
    convex: bool = False  #: only for a convex problem
    note: str = ""
    unit: Unit | None = None  #: where it is not that of the kind (UNITS): a gradient of a whole model is of examples


@dataclass(frozen=True)
class Implied:
    """What an observer can compute from messages, an entry of `EXPOSES`; roles, kinds and keys as in `Sent`."""

    observer: str
    about: str
    kind: str
    tags: tuple[str, ...]  #: of the messages that it is computed from
    proof: str  #: the attack that shows it; `argued`: the note is the argument
    note: str
    exact: bool = False
    convex: bool = False
    times: str | int = "per round"
    when: tuple[Any, ...] = ()
    noised: tuple[str, ...] = ()
    unit: Unit | None = None


@dataclass(frozen=True)
class Given:
    """What a role has without any message, an entry of `EXPOSES`; roles, kinds and keys as in `Sent`.

    `all` is everybody.
    """

    observer: str
    about: str
    kind: str
    note: str
    when: tuple[Any, ...] = ()
    unit: Unit | None = None


Exposed = Sent | Implied | Given  # an entry of an `EXPOSES`


def unit_of(entry: Exposed) -> Unit | None:
    """What one protected unit is of what an entry shows; None where it shows nothing to protect."""
    return entry.unit or UNITS[entry.kind]


def messages(exposes: Iterable[Exposed]) -> tuple[Sent, ...]:
    """The messages among the entries of an `EXPOSES`."""
    return tuple(entry for entry in exposes if isinstance(entry, Sent))


@dataclass(frozen=True)
class Tolerates:
    """What a method does where a party does not send what others need."""

    #: in time. waits: who needs it does nothing else | goes_on: others work on, and take it when it comes | retries:
    #: who needs it gives up after a deadline, and it is asked for again
    late: Literal["waits", "goes_on", "retries"] = "waits"
    #: ever again. waits: the run ends without a result | replaces: others of its organisation take over its work
    absent: Literal["waits", "replaces"] = "waits"


@dataclass(frozen=True)
class AlgorithmInfo:
    """The facts of an algorithm: `ALGORITHM = AlgorithmInfo(...)` in its card."""

    name: str
    summary: str
    paper: str
    layouts: tuple[str, ...]  #: graph | relational | aligned | sharded, the preferred one first
    divided_by: str | None  #: its key, one of DIVISORS, for the number of parts of the data; None: they stay whole
    reports: tuple[str, ...]  #: of SCORED: what its parties report to be scored by
    label: str = ""  #: its name in pictures and reports; empty: `name`
    #: methods of one family differ in colour; empty: no family. Do not write it for ours: it is the folder's name
    family: str = ""
    place: int = 0  #: in its family, from 0: gives colour and marker. No two share one, and none ever changes
    privacy: tuple[str, ...] = ("none",)
    noisy_serving: bool = False  #: privacy.serving=noisy: held-out rows can be sent with the noise of training rows
    protections: tuple[str, ...] = ("none",)
    attacks: tuple[str, ...] = ("none",)
    models: tuple[str, ...] = ()  #: allowed options of the model group; empty: takes none
    topologies: tuple[str, ...] = ("star",)
    accounting: tuple[str, ...] = ("strict", "framed", "everything")  #: rules by which its ledger may be priced
    #: of ASSUMED: what is there for nothing. accounting=everything charges it, so `pooled` and `edges` go without that
    assumes: tuple[str, ...] = ()
    #: a round is a pass over the data: `epochs` and `rounds` are one key, and every round is evaluated
    epochs: bool = False
    eval_every: int = 10  #: rounds between evaluations, where the key is null and a round is no epoch
    one_shot: bool = False  #: all that it sends is in round 1
    own_rows: bool = False  #: learns also from rows that only the labels' owner has: dataset.own_rows=train
    tolerates: Tolerates = Tolerates()
    time_dependent: bool = False  #: control flow depends on virtual time: no replay, and engines may differ
    #: why it takes no mechanism of that name, or none at all ("any"): (name, reason), for reasons worth telling
    refuses: tuple[tuple[str, str], ...] = ()
    implies_nothing: str = ""  #: why nothing exact follows from its messages, where EXPOSES has no Implied
    #: why it takes no codec: it breaks unless exactly the numbers that were sent arrive; empty: it takes any
    exact: str = ""
    #: tags that codec.feedback may remember: messages about the same entries every time, or about rows (`me.about`)
    remembered: tuple[str, ...] = ()
    #: tags that a broker may pass on; payload[0] is the channel, which holds one message
    published: tuple[str, ...] = ()
    #: it is about running times: computing takes time unless engine.compute_clock says otherwise
    modelled: bool = False


@dataclass(frozen=True)
class DatasetInfo:
    """The facts of a data set: an entry of `DATASETS = (DatasetInfo(...), ...)` in its card."""

    name: str
    summary: str
    layouts: tuple[str, ...]
    sources: tuple[str, ...] = ("real", "synthetic")
    folder: str | None = None  #: below data_root
    comes_with: str | None = None  #: the library that has it: no files are needed


@dataclass(frozen=True)
class OptionInfo:
    """The facts of an option of an open group: an entry of `OPTIONS = (OptionInfo(...), ...)` in its card."""

    name: str
    summary: str
    #: for options of other packages: those that it goes with, beside those that name it themselves
    algorithms: tuple[str, ...] = ()
    #: privacy, of other packages: of SHOWN's values, what gets its noise before it is sent
    noises: tuple[str, ...] = ()
    units: tuple[Unit, ...] = ()  #: privacy: one of what its epsilon protects, apart for each


@dataclass(frozen=True)
class Interval:
    """A range of a key that `choose` and `tune` try, in a card's `SEARCH`; a user's file has the same fields."""

    low: float
    high: float
    log: bool = False  #: tried evenly in the logarithm
    int: bool = False  #: whole numbers only
    least: float | None = None  #: it is widened down to this at most; None: without a limit
    most: float | None = None
    where: dict[str, Any] | None = None  #: keys of the same space, with the values that make it count


def searched(given: Any) -> Any:
    """An entry of a `SEARCH` as a user's file has it: a list of choices, or the fields of an Interval that are set.

    What is neither is returned as it is.
    """
    if isinstance(given, Interval):
        return {each.name: value for each in fields(given) if (value := getattr(given, each.name)) != each.default}
    return list(given) if isinstance(given, tuple) else given


def searchable(given: Any) -> bool:
    """Whether `given` is a list of at least two choices, or a range with the fields of an Interval."""
    if isinstance(given, list) and len(given) > 1:
        return True
    if not (isinstance(given, dict) and {"low", "high"} <= set(given) <= {each.name for each in fields(Interval)}):
        return False
    numbers = [given[name] for name in ("low", "high", "least", "most") if name in given]
    sound = all(isinstance(number, int | float) and math.isfinite(number) for number in numbers)
    sound = sound and isinstance(given.get("where", {}), dict)
    return sound and given["low"] < given["high"] and (given["low"] > 0 or not given.get("log"))


TRAINING_METRIC = "suboptimality"  # measured on the training samples: it has no validation or test value


@dataclass(frozen=True)
class Metric:
    """What a run is judged by."""

    name: str
    goal: Literal["max", "min"]


@dataclass(frozen=True)
class DataSource:
    """Where a task's data came from."""

    kind: Literal["real", "partial", "synthetic"]
    variant: str | None = None
    note: str = ""  #: e.g. which parts are made up, or missing
    files: tuple[tuple[str, str], ...] = ()  #: (file name, sha256), no machine paths
    #: messages that brought rows together, before the run: part of the sender, of the receiver, tag, bytes
    alignment: tuple[tuple[int, int, str, int], ...] = ()
    #: of a user's own tables, per file: rows, matched, imputed, encoded (data/columns/inspection.py)
    tables: tuple[dict[str, Any], ...] = ()
    #: kind partial: what real data lack of the published data set; empty: parts of them are made up
    lacks: str = ""
