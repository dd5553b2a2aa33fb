"""Who learns what: an algorithm's EXPOSES as a table, for a configuration. It reads no data, and imports no torch.

An entry has these keys:

    observer, subject  roles (`server`, `active`, `neighbour`, ...): who learns about whose data
    kind               of types.KINDS
    form               of types.FORMS: how it is seen
    how                sent (in a message) | implied (it follows from messages) | setup (known without any message)
    phase              setup | train | evaluation: messages that score held-out rows, in no total, and not in the
                       epsilon of training
    tags               of the messages
    times              a number, or of types.TIMES
    exact              whether the exact numbers are learnt
    covered_by         the mechanism whose noise is added; None: no epsilon covers it
    proof              for `implied`: the attack that shows it, or `argued`
    note

`disclosed` sums the table up: what others are shown, or work out exactly. All that says or asks what others may see
uses it.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vflbench import registry
from vflbench.types import (
    SHOWN,
    AlgorithmInfo,
    Exposed,
    Given,
    Implied,
    RunConfig,
    Sent,
    convex_problem,
    messages,
)

TRUSTED = "The server is trusted with the labels: that is how the method is set up, not what it needs."
ENUMERABLE = "enumerable: whoever can list the keys finds them by hashing the list"
TWO = "a sum over two parties hides nothing from either"
LEAST_SUMMED = 3  # parties, for a sum to hide any of them
UNVERIFIED = "unverified: it does not declare what follows from its messages"
# what a method assumes (types.ASSUMED) -> what is known without any message
ASSUMED = {
    "aligned_rows": (Given("all", "all", "ids", "row i is the same sample at every party"),),
    "join": (Given("all", "all", "ids", "which of its rows are behind every row of the join"),),
    "labels": (Given("all", "label_owner", "labels", "all parties have the training labels"),),
    "seed": (Given("all", "all", "ids", "walks, batches or first models come from a seed that all share"),),
    "edges": (Given("client", "client", "edges", "every client has all clients' edges"),),
    "pooled": tuple(
        Given("all", "all", kind, "one party has all data: by definition") for kind in ("features", "labels")
    ),
}
PARTIAL = "partial"  # the tag of a share of a sum that is the prediction (runner/inference.py)


@dataclass(frozen=True)
class Disclosure:
    """What a role is shown of others' data, or works out exactly."""

    source: str  #: the role that sends it; where no message carries it, the role that it is about
    observer: str
    what: str  #: of the values of types.SHOWN
    how: str  #: sent, implied, setup; or served: sent in evaluations, about held-out rows
    noised: bool  #: with a mechanism's noise

    @property
    def words(self) -> str:
        """It, with what else there is to know."""
        rows = self.how == "served" and self.what != SHOWN["predictions"]
        notes = {"predicted rows": rows, "inferred": self.how == "implied", "with noise": self.noised}
        said = ", ".join(note for note, true in notes.items() if true)
        return f"{self.what} ({said})" if said else self.what


def table(
    name: str,
    keys: Mapping[str, Any],
    privacy: Mapping[str, Any],
    codec: str = "none",
    model: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Who learns what under algorithm `name`: {algorithm, note, entries}; as `exposure`.

    Raises
    ------
    VflbenchError : there is no such algorithm, or its module cannot be loaded.
    """
    return exposure(registry.algorithm_entries()[name].info, registry.exposed(name), keys, privacy, codec, model)


def exposure(
    info: AlgorithmInfo,
    exposes: Iterable[Exposed],
    keys: Mapping[str, Any],
    privacy: Mapping[str, Any],
    codec: str = "none",
    model: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Who learns what: {algorithm, note, entries}.

    Parameters
    ----------
    keys, privacy : as in `keys_of`, and of the mechanism, with their values; {}: no mechanism.
    codec : its name.
    model : keys of the model with their values; None: none, or not known.
    """
    found = _rows(info, exposes, keys, privacy, codec, model)
    trusted = any(one.kind == "labels" and isinstance(one, Sent) and one.receiver == "server" for one, _ in found)
    notes = [TRUSTED] * trusted + [f"{UNVERIFIED.capitalize()}."] * unverified(info.name)
    return {"algorithm": info.name, "note": " ".join(notes), "entries": list(_merged(row for _, row in found))}


def keys_of(run: RunConfig) -> dict[str, Any]:
    """What a table needs to know of a configuration, beside mechanism, codec and model."""
    convex = convex_problem(run.dataset) is not None
    return {**vars(run.algorithm), "protection": run.protection.name, "convex": convex}


def disclosed(name: str, keys: Mapping[str, Any], privacy: Mapping[str, Any] | None = None) -> tuple[Disclosure, ...]:
    """As `disclosures`, for algorithm `name`; raises as `table`."""
    return disclosures(registry.algorithm_entries()[name].info, registry.exposed(name), keys, privacy)


def disclosures(
    info: AlgorithmInfo, exposes: Iterable[Exposed], keys: Mapping[str, Any], privacy: Mapping[str, Any] | None = None
) -> tuple[Disclosure, ...]:
    """What others are shown, work out exactly, or have without any message: each once, messages first.

    Ids, sizes, times, statistics that are known before training, and shares of a prediction are left out. What follows
    from a message with noise has that noise.

    Parameters
    ----------
    keys : as in `exposure`; of a key that is not there all values count.
    privacy : as in `exposure`; None: no noise counts.
    """
    found: dict[tuple[str, str, str, bool], Disclosure] = {}
    order = ("sent", "implied", "served", "setup")
    counting = [one for one in _rows(info, exposes, keys, privacy or {}) if _counts(*one)]
    for entry, row in sorted(counting, key=lambda one: order.index(_how(one[1]))):
        ends = (entry.sender, entry.receiver) if isinstance(entry, Sent) else (entry.about, entry.observer)
        source, observer = (_role(role).replace("_", " ") for role in ends)
        noised = not row["exact"] if isinstance(entry, Implied) else bool(row["covered_by"])
        one = Disclosure(source, observer, SHOWN[entry.kind], _how(row), noised)
        found.setdefault((one.source, one.observer, one.what, one.noised), one)
    return tuple(found.values())


def _counts(entry: Exposed, row: Mapping[str, Any]) -> bool:
    """Whether an entry is one of `disclosures`."""
    if (isinstance(entry, Implied) and not entry.exact) or (isinstance(entry, Given) and entry.kind == "sums"):
        return False
    return entry.kind in SHOWN and PARTIAL not in row["tags"]


def in_words(found: Iterable[Disclosure]) -> str:
    """What is disclosed to whom."""
    whats: dict[str, list[str]] = {}
    for one in found:
        whats.setdefault(f"{one.source} to {one.observer}", []).append(one.words)
    return "; ".join(f"{ends}: {', '.join(words)}" for ends, words in whats.items()) or "nothing"


def unverified(name: str) -> bool:
    """Whether an algorithm of another package declares neither what follows from its messages nor that nothing does.

    Tests show that ours declare it.
    """
    entry = registry.algorithm_entries().get(name)
    if entry is None or not entry.plugin or entry.info.implies_nothing:
        return False
    return not any(isinstance(one, Implied) for one in registry.exposed(name))


def _rows(
    info: AlgorithmInfo,
    exposes: Iterable[Exposed],
    keys: Mapping[str, Any],
    privacy: Mapping[str, Any],
    codec: str = "none",
    model: Mapping[str, Any] | None = None,
) -> list[tuple[Exposed, dict[str, Any]]]:
    """What holds for a configuration, each with its entry of the table; parameters as in `exposure`."""
    known = {**keys, "privacy": privacy.get("name", "none"), "privacy.split": privacy.get("split") is not None}
    chosen = [entry for entry in exposes if registry.chosen(entry, known)]
    given = [entry for entry in chosen if isinstance(entry, Given)]
    sent = [entry for entry in messages(chosen) if not _inside(entry)]
    view = _View(info, keys, privacy, codec, (model or {}).get("aggregate") == "concat")
    found: list[tuple[Exposed, dict[str, Any]]] = []
    found += [(one, view.given(one)) for one in (*(one for what in info.assumes for one in ASSUMED[what]), *given)]
    found += [(entry, view.sent(entry)) for entry in sent if entry.times != "per evaluation"]
    found += [(entry, view.implied(entry, sent)) for entry in chosen if isinstance(entry, Implied)]
    found += [(entry, view.served(entry)) for entry in sent if entry.served or entry.times == "per evaluation"]
    if PARTIAL in info.reports and "pooled" not in info.assumes:
        receiver = "server" if any(entry.sender == "server" for entry in sent) else "client"
        share = Sent(PARTIAL, "client", receiver, "predictions", "client", times="per evaluation")
        found.append((share, view.partial(share)))
    return found


def _how(row: Mapping[str, Any]) -> str:
    """How it becomes known, of `Disclosure.how`."""
    return "served" if row["phase"] == "evaluation" else str(row["how"])


def _role(role: str) -> str:
    """An organisation's workers are that organisation."""
    return role.removesuffix("_worker")


def _often(entry: Sent | Implied) -> str | int:
    """How often the message is sent, whatever the round."""
    return "once" if entry.times == "round 1" else entry.times


def _inside(entry: Sent) -> bool:
    """Whether the message stays inside an organisation."""
    return entry.sender != entry.receiver and _role(entry.sender) == _role(entry.receiver)


class _View:
    """Makes the entries of a table, for one configuration."""

    def __init__(
        self, info: AlgorithmInfo, keys: Mapping[str, Any], privacy: Mapping[str, Any], codec: str, beside: bool
    ) -> None:
        self.info, self.keys, self.privacy, self.codec = info, keys, privacy, codec
        self.beside = beside  # whether the model puts parts side by side, where the algorithm's key leaves it to it
        self.parties = keys.get(info.divided_by) if info.divided_by else None  # None: as many as the data have

    def sent(self, entry: Sent) -> dict[str, Any]:
        """A message's entry."""
        form, covered_by, notes = self._form(entry)
        rounded = self.codec != "none" and entry.kind not in ("ids", "sizes", "timing", "labels", "binned")
        if rounded:
            notes.append(f"codec={self.codec} rounds it, and protects nothing")
        before = entry.times in ("once", "per hop") or isinstance(entry.times, int)
        return self._entry(
            self._observer(entry.sender, entry.receiver),
            entry.about,
            entry.kind,
            form,
            "sent",
            "setup" if before else "train",
            (entry.tag,),
            _often(entry),
            form in ("clear", "summed") and not rounded,
            covered_by,
            notes,
        )

    def served(self, entry: Sent) -> dict[str, Any]:
        """The same message in an evaluation, about held-out rows."""
        noisy = self.privacy.get("serving") == "noisy"
        form, covered_by, notes = self._form(entry, private=noisy)
        graph = "graph" in self.info.layouts  # predictions take rows of all nodes
        of = "of all nodes' rows" if graph else "of held-out rows"
        how = f"{of}, without noise"
        if covered_by:
            beside = "adds to that of training" if graph else "is apart from that of training"
            how = f"{of}: noise is for one prediction of a row, whose epsilon {beside}"
        elif "serving" in self.privacy and self._mechanism(entry):
            how += ": epsilon is no guarantee for a row that is served"
        return self._entry(
            self._observer(entry.sender, entry.receiver),
            entry.about,
            entry.kind,
            form,
            "sent",
            "evaluation",
            (entry.tag,),
            "per evaluation",
            not covered_by,
            covered_by,
            [how, *notes],
        )

    def partial(self, share: Sent) -> dict[str, Any]:
        """The entry of shares of a sum that is the prediction; parties pass them on towards one party."""
        note = "its share of every prediction" + (", of a convex problem" if "predictions" in self.info.reports else "")
        return self._entry(
            "server" if share.receiver == "server" else "neighbour",
            share.about,
            share.kind,
            "clear",
            "sent",
            "evaluation",
            (PARTIAL,),
            "per evaluation",
            True,
            None,
            [note],
        )

    def implied(self, entry: Implied, sent: Iterable[Sent]) -> dict[str, Any]:
        """The entry of what follows from the messages `sent`."""
        covered_by = self._mechanism(entry)
        noised = covered_by or any(self._mechanism(one) for one in sent if one.tag in entry.tags)
        observer = self._observer(entry.about, entry.observer)
        return self._entry(
            observer,
            entry.about,
            entry.kind,
            "noised" if covered_by else "clear",
            "implied",
            "train",
            entry.tags,
            _often(entry),
            entry.exact and not noised,
            covered_by,
            [entry.note],
            entry.proof,
        )

    def given(self, entry: Given) -> dict[str, Any]:
        """The entry of what a role knows without any message."""
        return self._entry(
            entry.observer, entry.about, entry.kind, "clear", "setup", "setup", (), "once", True, None, [entry.note]
        )

    def _observer(self, sender: str, receiver: str) -> str:
        """The role of the receiver: along the edges of a graph it is a neighbour."""
        along = sender == receiver and self.info.topologies != ("complete",) and "star" not in self.info.topologies[:1]
        return "neighbour" if along else _role(receiver)

    def _form(self, entry: Sent, private: bool = True) -> tuple[str, str | None, list[str]]:
        """The form in which it is seen, the mechanism behind it, and notes."""
        form, *when = entry.form
        notes = [entry.note] if entry.note else []
        if when and (self.keys.get(when[0]) != when[1] or (form == "summed" and self.beside)):
            form = "clear"
        if entry.kind == "ciphertext":
            form = "encrypted"
        if form == "hashed":
            notes.append(ENUMERABLE)
        if form == "summed" and self.parties is not None and self.parties < LEAST_SUMMED:
            form, notes = "clear", [*notes, TWO]
        mechanism = self._mechanism(entry) if private else None
        return ("noised" if mechanism else form), mechanism, notes

    def _mechanism(self, entry: Sent | Implied) -> str | None:
        """The configured mechanism, if its noise is in the entry; else None."""
        name = str(self.privacy.get("name", "none"))
        for mechanism, _, key in (one.partition(".") for one in entry.noised):
            given = not key or self.privacy.get(key) is not None
            # a key that says noise itself needs no epsilon; a share of epsilon does
            own = key not in ("", "split")
            noise = self.privacy.get(key) != math.inf if own else not self._only_clips(entry.kind)
            if mechanism == name and given and noise:
                return name
        option = registry.option_entries("privacy").get(name)  # one of another package, which EXPOSES does not name
        return name if option and SHOWN.get(entry.kind) in option.info.noises else None

    def _only_clips(self, kind: str) -> bool:
        """Whether the mechanism adds no noise to a kind, so that no epsilon covers it."""
        keys = self.privacy
        if kind == "labels" and "label_noise" in keys:
            return keys["label_noise"] is None and keys.get("epsilon") == math.inf
        if kind == "labels" and "label_epsilon" in keys:  # without it labels have `epsilon`, or their default
            own = keys["label_epsilon"]
            return bool((keys.get("epsilon") if own is None else own) == math.inf)
        return math.inf in (keys.get("epsilon"), keys.get("mu")) or keys.get("noise_multiplier") == 0

    def _entry(
        self,
        observer: str,
        subject: str,
        kind: str,
        form: str,
        how: str,
        phase: str,
        tags: tuple[str, ...],
        times: str | int,
        exact: bool,
        covered_by: str | None,
        notes: list[str],
        proof: str | None = None,
    ) -> dict[str, Any]:
        return {
            "observer": observer,
            "subject": _role(subject),
            "kind": kind,
            "form": form,
            "how": how,
            "phase": phase,
            "tags": list(tags),
            "times": times,
            "exact": exact,
            "covered_by": covered_by,
            "proof": proof,
            "note": "; ".join(notes),
        }


def _merged(entries: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The entries; those that differ only in their tags become one."""
    found: dict[str, dict[str, Any]] = {}
    for entry in entries:
        key = str({name: value for name, value in entry.items() if name != "tags"})
        if key in found:
            found[key]["tags"] = list(dict.fromkeys((*found[key]["tags"], *entry["tags"])))
        else:
            found[key] = entry
    yield from found.values()
