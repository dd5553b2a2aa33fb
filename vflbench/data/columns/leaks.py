"""Columns that alone nearly determine the label: they may be known only after it.

A rule is fitted to four fifths of the rows and judged on the rest, five times, so that each row is held out once. It
predicts what the other rows with the same value have; of a number that no other row has, what its two neighbours have.
So other codes, texts, shifted numbers and a date that only one class has are found. What only arithmetic shows is not,
as whether a number is even. Of texts, their beginnings are judged, too, and what is between their digits.
Whoever loads the data checks this before the run, as a tool of the study: it needs a column and the label side by side,
which no party has.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from vflbench.data.columns.judging import Judged
from vflbench.seeding import stream

LIMIT = 0.995  # of AUROC, balanced accuracy, or of a target's R2
FOLDS = 5
MOST_ROWS = 4000  # that are judged, evenly of all classes
FEWEST = 3  # rows of a class that is judged
HOPELESS = 0.8  # of the first fold: below it the others are not tried


@dataclass(frozen=True)
class Sample:
    """The rows that are judged, and their labels."""

    rows: np.ndarray  #: (m,) of the rows that are used
    targets: np.ndarray  #: (m, c) a column for each class, or one of targets
    folds: np.ndarray  #: (m,) the fold in which a row is held out
    classes: int  #: 0: regression

    def __str__(self) -> str:
        """For a message."""
        rarest = f", {int(self.targets.sum(axis=0).min())} of the rarest class" if self.classes else ""
        return f"{len(self.rows):,} held-out rows{rarest}"


def mark(
    judged: Sequence[Sequence[Judged]],
    rows: Sequence[np.ndarray | slice],
    labels: np.ndarray,
    classes: int,
    label: str,
    entities: np.ndarray | None = None,
) -> list[list[Judged]]:
    """The columns per file, with a warning for each that nearly determines the label.

    Parameters
    ----------
    rows : per file those that are used.
    labels : of these rows classes, or targets where `classes` is 0.
    label : its name.
    entities : of these rows, where whole entities are held out; all rows of one are held out together.
    """
    sample = sampled(labels, classes, entities)
    if sample is None:
        return [list(own) for own in judged]
    return [[_marked(one, used, sample, label) for one in own] for own, used in zip(judged, rows, strict=True)]


def _marked(judged: Judged, used: np.ndarray | slice, sample: Sample, label: str) -> Judged:
    if judged.values is not None:
        codes = judged.values[used][sample.rows]
        measure, value = strength(codes, judged.levels is not None, sample)
        how, advice = "it alone", "If it is known only after the label, list it in dataset.leave_out"
        if value <= LIMIT and judged.levels:
            texts = np.array([*judged.levels, ""], dtype=object)  # the last one is for a missing value
            known = np.where(np.isnan(codes), len(judged.levels), codes).astype(np.int64)
            measure, value = _of_parts(texts[known], sample)
            how = "a part of its texts"
    elif judged.texts is not None:
        measure, value = _of_parts(judged.texts[used][sample.rows], sample)
        how, advice = "a part of its texts", "The column is left out already; list it in dataset.leave_out, too"
    else:
        return judged
    if value <= LIMIT:
        return judged
    found = f"{measure} {value:.4f} on {sample}"
    message = f"LEAK: {how} nearly determines the label {label} ({found}). {advice}"
    judged = replace(judged, report=replace(judged.report, leak=found))
    return judged.remark("warning", message, "dataset.leave_out")


def _of_parts(texts: np.ndarray, sample: Sample) -> tuple[str, float]:
    """As `strength`, of the part of the texts that does best."""
    return max((strength(codes, True, sample) for codes in _parts(texts)), key=lambda found: found[1])


def _parts(texts: np.ndarray) -> Iterator[np.ndarray]:
    """Codes of what each text begins with, letters or digits; and of what is left of it without digits."""
    known = [text or "" for text in texts]
    for pattern, replacement in ((r"^(\W*(?:\d+|[^\W\d_]*)).*$", r"\1"), (r"\d+", "0")):
        parts = [re.sub(pattern, replacement, text.casefold(), flags=re.DOTALL) for text in known]
        yield np.unique(parts, return_inverse=True)[1].astype(np.float64)


def sampled(labels: np.ndarray, classes: int, entities: np.ndarray | None = None) -> Sample | None:
    """The rows that are judged: of each class alike, without classes of too few rows. None where they are too few."""
    order = stream(0, "leaks").permutation(len(labels))
    if not classes:
        rows = order[:MOST_ROWS]
        ranks = np.unique(labels[rows], return_inverse=True)[1]  # far targets would outweigh all others
        targets = ranks[:, None].astype(np.float64)
        return Sample(rows, targets, _folds(rows, entities), 0) if len(np.unique(targets)) > 1 else None
    kept = np.flatnonzero(np.bincount(labels, minlength=classes) >= FEWEST)
    if len(kept) < 2:
        return None
    most = max(FEWEST, MOST_ROWS // len(kept))
    rows = np.concatenate([order[labels[order] == c][:most] for c in kept])
    return Sample(rows, (labels[rows, None] == kept).astype(np.float64), _folds(rows, entities), classes)


def _folds(rows: np.ndarray, entities: np.ndarray | None) -> np.ndarray:
    """The fold in which each row is held out."""
    who = np.arange(len(rows)) if entities is None else np.unique(entities[rows], return_inverse=True)[1]
    return who % FOLDS if who.max() >= FOLDS else np.arange(len(rows)) % FOLDS


def strength(values: np.ndarray, category: bool, sample: Sample) -> tuple[str, float]:
    """The measure, and how well the column alone does by it; 0 where the first fold shows that there is no leak.

    Parameters
    ----------
    values : (m,) numbers or codes of the sample's rows; NaN: missing.
    """
    own, predicted = np.where(np.isnan(values), np.inf, values), np.empty(sample.targets.shape)
    for fold in range(FOLDS):
        held = sample.folds == fold
        predicted[held] = _predicted(own[~held], sample.targets[~held], own[held], category)
        enough = sample.targets[held].sum(axis=0).min() > 1 if sample.classes else held.sum() > FEWEST
        if not fold and enough and _measure(sample.targets[held], predicted[held], sample.classes)[1] < HOPELESS:
            return "", 0.0
    return _measure(sample.targets, predicted, sample.classes)


def _predicted(known: np.ndarray, targets: np.ndarray, asked: np.ndarray, category: bool) -> np.ndarray:
    """The mean target of the rows with the same value, (m, c); without such rows, of its neighbours or of all rows."""
    order = np.argsort(known, kind="stable")
    ascending = known[order]
    sums = np.concatenate([np.zeros((1, targets.shape[1])), np.cumsum(targets[order], axis=0)])
    low, high = (np.searchsorted(ascending, asked, side) for side in ("left", "right"))
    new = low == high
    low = np.where(new, 0 if category else np.maximum(low - 1, 0), low)
    high = np.where(new, len(known) if category else np.minimum(high + 1, len(known)), high)
    means: np.ndarray = (sums[high] - sums[low]) / (high - low)[:, None]
    return means


def _measure(targets: np.ndarray, predicted: np.ndarray, classes: int) -> tuple[str, float]:
    if not classes:
        spread = ((targets - targets.mean()) ** 2).sum()
        return "R2 of ranks", 1 - float(((targets - predicted) ** 2).sum() / spread) if spread else 0.0
    right = predicted.argmax(axis=1) == targets.argmax(axis=1)
    there = targets.sum(axis=0)
    recalls = (targets * right[:, None]).sum(axis=0)[there > 0] / there[there > 0]
    balanced = ("balanced accuracy", float(recalls.mean()))
    if targets.shape[1] > 2:
        return balanced
    return max(("AUROC", _auroc(targets[:, 1] > 0, predicted[:, 1])), balanced, key=lambda found: found[1])


def _auroc(positive: np.ndarray, scores: np.ndarray) -> float:
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    n = int(positive.sum())
    if n in (0, len(positive)):
        return 0.0
    return float((ranks[positive].sum() - n * (n + 1) / 2) / (n * (len(positive) - n)))
