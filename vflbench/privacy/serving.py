"""How the rows of a prediction are served: `privacy.serving`, a key of mechanisms that noise what is sent of a row.

clean   held-out rows are clipped, and get no noise. The score is that of the model. No epsilon covers a row so served.
noisy   they get the clip and the noise of training rows. The score is what is left if served rows are covered, too.

Every score is made both ways, so that the summary has both. Validation rows served the chosen way choose the round. The
noise has a stream of its own, so that training does not depend on the key.

A prediction spends the releases that it takes: `one_prediction` of the mechanism's report. An evaluation of every round
is an observer's look, and is counted nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from vflbench.cards.privacy.keys import Serving as Serving  # where plug-ins look for it
from vflbench.cards.privacy.keys import serving_of
from vflbench.types import PrivacyConfig

if TYPE_CHECKING:
    from torch import Tensor


class Way(NamedTuple):
    """One way of serving held-out rows."""

    noisy: bool
    chosen: bool  # by the key; the other way is scored beside it, and is in no phase

    def report(self, me: Any, scores: Mapping[str, Any]) -> None:
        """Report the scores of rows that were served this way; split -> (rows, outputs)."""
        if self.chosen:
            me.report(predictions=scores)
        else:
            me.report(otherwise=scores)


def ways(privacy: PrivacyConfig) -> list[Way]:
    """The ways in which a score is made, the chosen one first; one alone where no mechanism noises rows."""
    if (way := serving_of(privacy)) is None:
        return [Way(noisy=False, chosen=True)]
    noisy = way == "noisy"
    return [Way(noisy, chosen=True), Way(not noisy, chosen=False)]


def served(me: Any, held_out: Mapping[str, Tensor], noisy: bool) -> dict[str, Tensor]:
    """What a party sends of its held-out rows; split -> (rows, d). Without a mechanism they stay as they are."""
    if me.privacy is None:
        return dict(held_out)
    if not noisy:
        return {split: me.privacy.clip(rows) for split, rows in held_out.items()}
    generator = me.secret_torch_rng("serving")
    return {split: me.privacy.noised(rows, generator) for split, rows in held_out.items()}
