"""Send once: every passive party sends its columns, or what stands for them, once; the label owner learns at home.

Bins are vertical FederBoost's: Tian et al., arXiv 2011.02796. The other forms are what an engineer would send.

    passive k:  code = fit(form, own training rows)                no labels; own rows only
                round 1: send code(X_train)                        tag `features`
                         send code(X_val), code(X_test)            the same tag, within the evaluation
                         (once more, for the score of the other value of privacy.serving)
    active:     round 1: Z = [X_active | what arrived]
                every round: an iteration of the learner on (Z, y), and one of the same learner on (X_active, y);
                             predict with whichever validation has preferred so far, at its best iteration
                a learner stops after `patience` iterations without a better validation metric

    form   bytes of a passive party's one message, n rows, d columns
    bins   d + ceil(n sum_j bits_j / 8): bits_j of the column's own number of bins; 0 for a constant column
    raw    4 n d for float32; codec=fp16 2 n d; codec=int8 (n + 4) d
    pca    4 n r, codecs as above

No label and no gradient leaves the active party. Its rounds are iterations of the learner, so bytes are constant from
round 1 on.

Departures, and what the source leaves open
1. A column's bins are as many as it has distinct values, at most `bins`, and it is packed by that number.
2. Bin numbers arrive standardised by the training rows' mean and spread. Trees do not notice, other learners need it.
3. Without columns worth their noise, trees are worse than alone. So the active party trains alone, too, and validation
   chooses. The summary says which was chosen, as `one_shot`. fallback=false leaves that out.
4. privacy=gaussian_embedding and gdp_embedding add noise to a row before it is binned or projected: what is sent is
   post-processing of one release, and the unit is the row itself. Edges and directions are fitted on noisy rows.
   Held-out rows carry no noise, or under privacy.serving=noisy that of training rows.
5. privacy=rr_bins is FederBoost's randomised response on the bin number of every cell.
6. dataset.own_rows=train: labelled rows that only the active party has are training rows, too. The others' columns are
   missing there, which trees can do with.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch

from vflbench.algorithms.oneshot import forms, learners
from vflbench.algorithms.oneshot.learners import Boosted, Examples, Linear, Network, Networks
from vflbench.cards.algorithms.oneshot.send_once import HELD_OUT, Config
from vflbench.cards.models.model_facts import IMAGES
from vflbench.data.tasks import AlignedPart, AlignedPublic, AlignedTask
from vflbench.federation.party import Party, PartySpec, party_names
from vflbench.models.bins import Bins, pack, table
from vflbench.privacy import serving
from vflbench.privacy.rr_bins import RandomisedBins
from vflbench.types import (
    DEVICES,
    ConfigError,
    Problem,
    RunConfig,
)

NOT_COVERED = (  # by epsilon of a row: nothing comes back, and no model is trained on it where it is sent
    "evaluation exchanges",
    "means and scales of columns, where they are standardised: they are taken without noise",
)
ACTIVE = "active"
OTHERWISE = "otherwise"  # the test rows, served as privacy.serving does not say


def max_releases(config: RunConfig[Config], rounds: int) -> int:
    """How often a row is released: once."""
    return 1


def most(task: AlignedTask, config: RunConfig[Config]) -> dict[str, int]:
    """The rows of a network's batch, at most: there are no more."""
    return {"algorithm.batch_size": len(task.labels)} if config.algorithm.learner == "model" else {}


def devices(task: AlignedTask, config: RunConfig[Config]) -> tuple[str, ...]:
    """What the active party can compute on: trees and linear models are scikit-learn's."""
    return DEVICES if config.algorithm.learner == "model" else ("cpu",)


@dataclass(frozen=True)
class Owner(AlignedPart):
    """The active party's part: it knows the labels of its validation rows, too."""

    labels: np.ndarray
    val_labels: np.ndarray = field(kw_only=True)


def parties(task: AlignedTask, config: RunConfig[Config]) -> dict[str, PartySpec]:
    """One party per organisation: `active`, `passive_1` ...

    Raises
    ------
    ConfigError : the problem is convex, so that nothing is held out, or a network's keys do not go with the data.
    """
    cfg, problems, samples = config.algorithm, [], len(task.labels)
    if task.objective is not None:
        problems.append(Problem("dataset.problem", task.objective.kind, HELD_OUT))
    if cfg.learner == "model" and config.model.name in IMAGES and task.features[0].ndim == 2:
        allowed = "takes image views, and these are feature columns: use split_mlp"
        problems.append(Problem("model", config.model.name, allowed))
    if cfg.learner == "model" and cfg.batch_size > samples:
        allowed = f"there are {samples} training rows: at most that many in a batch"
        problems.append(Problem("algorithm.batch_size", cfg.batch_size, allowed))
    if problems:
        raise ConfigError(problems)
    shapes = [block.shape[1:] for block in task.features]
    if cfg.form != "raw" or config.privacy.name != "none":
        most = cfg.components if cfg.form == "pca" else 2**62
        shapes[1:] = [(min(int(np.prod(shape)), most),) for shape in shapes[1:]]
    labels = task.held_out_labels.get("val", task.labels[:0])
    names = [ACTIVE, *party_names("passive", task.parties)[1:]]
    specs = {
        ACTIVE: PartySpec(
            partial(active, shapes=shapes, metric=task.metric.name),
            Owner(**vars(task.part(0)), val_labels=labels),
            role="server",
        )
    }
    return specs | {name: PartySpec(passive, task.part(number)) for number, name in enumerate(names) if number}


async def passive(me: Party, data: AlignedPart, public: AlignedPublic, config: RunConfig[Config]) -> None:
    """Send the columns, once."""
    async for t in me.rounds():
        if t > 1:
            continue
        x, secret = data.features, me.privacy
        responds = secret is not None and config.privacy.name == "rr_bins"
        if secret is not None and not responds:
            secret.not_covered = NOT_COVERED
            rows = torch.tensor(table(x))
            x = secret.protect(rows, np.arange(len(x)), me.secret_torch_rng("noise")).numpy()
        form = await me.compute(forms.fit, config.algorithm, x, cost=len(x))
        message = forms.encode(form, x)
        if responds and isinstance(form, Bins):
            shown = secret.respond(form.codes(table(x)), form.last, me.secret_rng("noise"))
            message = form.last, pack(shown, form.last)
        await me.send(ACTIVE, message, tag="features")
        for way in serving.ways(config.privacy):
            async with me.evaluating(priced=way.chosen):
                await me.send(ACTIVE, _served(me, form, data.held_out, way.noisy), tag="features")


def _served(me: Party, form: Any, held_out: Mapping[str, np.ndarray], noisy: bool) -> dict[str, Any]:
    """What a passive party sends of its held-out rows, split -> message.

    Parameters
    ----------
    form : fitted to its training rows.
    noisy : with their noise.
    """
    responds = isinstance(me.privacy, RandomisedBins)
    if responds and noisy:
        last, noise, shown = form.last, me.secret_rng("serving"), me.privacy.noised
        return {s: (last, pack(shown(form.codes(table(rows)), last, noise), last)) for s, rows in held_out.items()}
    if me.privacy is not None and not responds:
        tensors = {split: torch.tensor(table(rows)) for split, rows in held_out.items()}
        held_out = {split: rows.numpy() for split, rows in serving.served(me, tensors, noisy).items()}
    return {split: forms.encode(form, rows) for split, rows in held_out.items()}


async def active(
    me: Party,
    data: Owner,
    public: AlignedPublic,
    config: RunConfig[Config],
    shapes: list[tuple[int, ...]],
    metric: str,
) -> None:
    """Learn from all columns, and from the own ones alone, and predict with what validation prefers.

    Parameters
    ----------
    shapes : of a row of every party's block, as it arrives.
    metric : the task's.
    """
    cfg = config.algorithm
    kinds = ["joint"]
    if cfg.fallback and me.clients and len(data.val_labels):
        kinds.append("alone")
    if cfg.learner == "model":
        made = {"joint": shapes, "alone": shapes[:1]}
        me.state.model = networks = torch.nn.ModuleDict(
            {kind: Networks(made[kind], public, data.labels, config).to(me.device) for kind in kinds}
        )
        optimiser = torch.optim.SGD if cfg.optimizer == "sgd" else torch.optim.Adam
        me.state.optimisers = {kind: optimiser(networks[kind].thetas, cfg.lr) for kind in kinds}  # type: ignore[arg-type]
    me.state.received, me.state.held_out = [], []
    me.state.best = {}  # joint, alone -> validation metric, iteration, scores and training loss
    made_here: dict[str, Any] = {}
    more = 0 if data.own is None else len(data.own.labels)

    async for t in me.rounds():
        if t == 1:
            await _receive(me, config)
        if not made_here:
            made_here = _learners(me, kinds, _examples(me, data, cfg), public, config, metric)
        best = me.state.best
        for kind, learner in made_here.items():
            if t > learner.iterations or (kind in best and t - best[kind]["iteration"] > cfg.patience):
                continue
            loss = await me.compute(learner.step, t, cost=public.samples + more)
            scores = learner.scores()
            value = learners.validated(scores, data.val_labels, metric)
            if kind not in best or value is None or learners.better(value, best[kind]["value"], metric):
                best[kind] = {"value": value, "iteration": t, "scores": scores}
            best[kind]["loss"] = loss
        chosen = "joint"
        if "alone" in best and learners.better(best["alone"]["value"], best["joint"]["value"], metric):
            chosen = "alone"
        me.report(train_loss=best["joint"]["loss"], epoch=t, iterations=t)
        if me.evaluates(t):
            facts = {"chosen": chosen, "iteration": best[chosen]["iteration"]}
            facts |= {"own_rows": more} if more else {}
            _report(me, best[chosen]["scores"], facts)


async def _receive(me: Party, config: RunConfig[Config]) -> None:
    """Keep what the passive parties send: rows to train on, held-out rows, and these as they are served otherwise."""
    me.state.received = await me.recv_all(me.clients, tag="features")
    for way in serving.ways(config.privacy):
        async with me.evaluating(priced=way.chosen):
            held_out = await me.recv_all(me.clients, tag="features")
        if way.chosen:
            me.state.held_out = held_out
        else:  # of them the test rows alone are scored, as a split of their own
            for apart, other in zip(me.state.held_out, held_out, strict=True):
                apart[OTHERWISE] = other["test"]


def _report(me: Party, scores: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> None:
    """Report the scores of held-out rows by split, those of `OTHERWISE` apart."""
    me.report(
        predictions={split: own for split, own in scores.items() if split != OTHERWISE}, facts={"one_shot": facts}
    )
    if OTHERWISE in scores:
        me.report(otherwise={"test": scores[OTHERWISE]})


def _examples(me: Party, data: Owner, cfg: Config) -> Examples:
    """What the active party has once everything has arrived."""
    apart = dict(data.held_out)
    if any(OTHERWISE in message for message in me.state.held_out):
        apart[OTHERWISE] = apart["test"]
    rows = {split: len(own) for split, own in apart.items()}
    blocks, held_out = [data.features], {split: [own] for split, own in apart.items()}
    for message, sent in zip(me.state.received, me.state.held_out, strict=True):
        train = forms.decode(cfg, message, len(data.features))
        others = {split: forms.decode(cfg, sent[split], count) for split, count in rows.items()}
        if cfg.form == "bins":
            mean, spread = train.mean(axis=0), train.std(axis=0)
            spread = np.where(spread > 0, spread, 1).astype(train.dtype)
            train, others = (train - mean) / spread, {s: (x - mean) / spread for s, x in others.items()}
        blocks.append(train)
        for split, x in others.items():
            held_out[split].append(x)
    labels = data.labels
    if (own := data.own) is not None:
        unknown = [np.full((len(own.labels), block.shape[1]), np.nan, block.dtype) for block in blocks[1:]]
        blocks = [np.concatenate(pair) for pair in zip(blocks, [own.features, *unknown], strict=True)]
        labels = np.concatenate([labels, own.labels])
    return Examples(blocks, labels, held_out, data.val_labels)


def _learners(
    me: Party, kinds: list[str], examples: Examples, public: AlignedPublic, config: RunConfig[Config], metric: str
) -> dict[str, Any]:
    """The learner of all columns (joint), and of the own ones (alone)."""
    if config.algorithm.learner == "model":
        given = {"joint": examples, "alone": examples.alone}
        parts = me.state.model, me.state.optimisers
        return {kind: Network(given[kind], config, me.device, *(part[kind] for part in parts)) for kind in kinds}
    learner, own = Boosted if config.algorithm.learner == "trees" else Linear, table(examples.blocks[0]).shape[1]
    tables = {"joint": examples.tables, "alone": {split: x[:, :own] for split, x in examples.tables.items()}}
    rest = examples.labels, examples.val_labels, public.classes, config, metric
    return {kind: learner(tables[kind], *rest) for kind in kinds}
