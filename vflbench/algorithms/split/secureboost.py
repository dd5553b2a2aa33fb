"""SecureBoost: boosted trees on divided columns, grown level by level from the histograms of all parties.

Cheng et al., IEEE Intelligent Systems 36(6), 2021, arXiv 1901.08755. Packing, subtraction and compression are those of
SecureBoost+: Chen et al., arXiv 2110.10927.

    active    g, h: derivatives of the loss at every row's score     -> every passive, tag `gradient`, once a tree
    level     which nodes were split, and which rows went left       -> every passive, tag `nodes`, below the root
      passive sums of g and h up to each bin of its own columns      -> active, tag `histogram`
      active  the split of each node with the highest gain           -> the owner of its column, tag `split`
      owner   which of the node's rows go left                       -> active, tag `side`
    leaf      -learning_rate G / (H + l2), which stays at the active party

    gain = G_l^2 / (H_l + l2) + G_r^2 / (H_r + l2) - G^2 / (H + l2); of equals the lower party, column and bin
    a split needs H_l and H_r of at least min_child_weight

    bytes, per tree and passive party      in clear      paillier, of c bytes a ciphertext
    gradient, n rows                       8 n           2 c n; packing: c n
    rows (goss)                            ceil(n / 8)   the same; gradient: of the kept rows alone
    histogram of q' nodes and d bins       16 q' d       2 c q' d; packing: c q' d; compression: c ceil(q' d / eta)
    nodes, below the root                  ceil(q / 8) + ceil(n' / 8): q nodes before, n' rows of those that were split
    split, side                            16 a split, and ceil(m / 8) for the m rows of such nodes

q' is 1 at the root; below, subtraction sends the smaller of two children only. A plaintext has room for eta =
floor((key_bits - 1) / (2 (53 + log2 n))) pairs. A column has a bin for each of its values, at most `bins`. Before the
first round a passive party says how many bins it has (tag `bins`).

Departures
1. g and h are rounded to multiples of 2^-20, so that sums are exact: any division of the columns grows the same trees
   as one party with all columns, to the last bit.
2. Held-out rows: a passive party answers for all of its splits and all rows, so that it does not learn their paths.
3. More than two classes: a tree for each class in every round, on the softmax. A regression's targets are learnt with
   mean 0 and variance 1.
4. With goss=true (SecureBoost+) passive parties are told which rows are kept (tag `rows`), and keep all in their nodes.
   That tells much of the labels, encrypted or not: rows of a rare class are kept more often. Kept are the share
   top_rate with the largest gradients, and other_rate of all rows, drawn from the rest.
5. The public key of an encryption is not sent: a ciphertext's length, once.
6. scikit-learn grows trees leaf by leaf, not level by level, so no learner here that gets the data themselves equals
   this one to the last bit. One party with all columns does (departure 1).
7. first_tree=active is the paper's reduced leakage (RL-SecureBoost): the active party grows the first tree alone, as
   its nodes tell most about labels.
"""

from collections.abc import Sequence

import numpy as np

from vflbench.algorithms.split.boosting import FRACTION, LEAF, Labels, Trees, sampled
from vflbench.algorithms.split.organisations import ACTIVE
from vflbench.algorithms.split.sealing import Sealing
from vflbench.cards.algorithms.split.secureboost import Config
from vflbench.cards.algorithms.split.split_methods import HELD_OUT
from vflbench.data.tasks import AlignedPart, AlignedPublic, AlignedTask
from vflbench.federation.party import Party, PartySpec
from vflbench.models.bins import Bins, table
from vflbench.types import (
    ConfigError,
    Problem,
    RunConfig,
)


def devices(task: AlignedTask, config: RunConfig[Config]) -> tuple[str, ...]:
    """Histograms are NumPy's."""
    return ("cpu",)


def parties(task: AlignedTask, config: RunConfig[Config]) -> dict[str, PartySpec]:
    """One party per organisation: `active`, `passive_1` ...

    Raises
    ------
    ConfigError : the problem is convex, so that nothing is held out; or goss would keep none of the other rows.
    """
    cfg = config.algorithm
    if task.objective is not None:
        raise ConfigError([Problem("dataset.problem", task.objective.kind, HELD_OUT)])
    if cfg.goss and cfg.top_rate < 1 and not round(cfg.other_rate * len(task.labels)):
        allowed = f"of {len(task.labels)} training rows that is none: more"
        raise ConfigError([Problem("algorithm.other_rate", cfg.other_rate, allowed)])
    names = [ACTIVE, *(f"passive_{number}" for number in range(1, task.parties))]
    specs = {ACTIVE: PartySpec(active, task.part(0), role="server")}
    return specs | {name: PartySpec(passive, task.part(number)) for number, name in enumerate(names) if number}


class Columns:
    """A party's columns as bin numbers; `places` number the bins of all columns one after the other."""

    def __init__(self, data: AlignedPart, bins: int) -> None:
        self.form = Bins.fit(table(data.features), bins)
        each = self.form.last.astype(np.int64) + 1
        self.starts = np.cumsum(each) - each
        self.total = int(each.sum())
        self.places = self.numbered(data.features)
        self.held_out = {split: self.numbered(x) for split, x in data.held_out.items()}

    def numbered(self, x: np.ndarray) -> np.ndarray:
        """The place of each row's value in each column, (n, d)."""
        places: np.ndarray = self.form.codes(table(x)) + self.starts
        return places

    def sums(self, gradient: np.ndarray, node: np.ndarray, count: int) -> np.ndarray:
        """Sums of g and h, (n, 2), over the rows of each of `count` nodes whose values are at most a bin's edge.

        `node` (n,) is -1 for rows in none of them. Sums are exact: floats hold whole numbers below 2^53.

        Returns
        -------
        (count, total, 2) int64.
        """
        rows = np.flatnonzero(node >= 0)
        keys = (node[rows, None] * self.total + self.places[rows]).ravel()
        d, size = self.places.shape[1], count * self.total
        each = [np.bincount(keys, np.repeat(gradient[rows, i], d), size) for i in (0, 1)]
        upto = np.cumsum(np.stack(each, axis=1).reshape(count, self.total, 2).astype(np.int64), axis=1)
        lengths = np.diff(self.starts, append=self.total)
        before = np.concatenate([np.zeros_like(upto[:, :1]), upto[:, self.starts[1:] - 1]], axis=1)
        left: np.ndarray = upto - np.repeat(before, lengths, axis=1)
        return left

    def below(self, places: np.ndarray, splits: np.ndarray) -> np.ndarray:
        """Whether the values of rows (n, d) are at most the edges of `splits` (s,): (s, n)."""
        column = np.searchsorted(self.starts, splits, side="right") - 1
        below: np.ndarray = places.T[column] <= splits[:, None]
        return below


class Rows:
    """Where all training rows are in the tree that is being grown; all parties keep the same."""

    def __init__(self, samples: int) -> None:
        self.position = np.zeros(samples, np.int64)  # node i has the children 2 i + 1 (left) and 2 i + 2
        self.live = np.zeros(1, np.int64)  # the nodes of this level
        self.node = np.zeros(samples, np.int64)  # each row's place among them; -1: it is in a leaf

    def inside(self, nodes: np.ndarray) -> np.ndarray:
        """The rows in those nodes of this level for which `nodes` (q,) is true, ascending."""
        return np.flatnonzero((self.node >= 0) & nodes[self.node])

    def descend(self, nodes: np.ndarray, left: np.ndarray) -> None:
        """Go down: `left` says which rows of `inside(nodes)` go left."""
        rows = self.inside(nodes)
        self.position[rows] = 2 * self.position[rows] + np.where(left, 1, 2)
        self.live = (2 * self.live[nodes, None] + np.array([1, 2])).ravel()
        place = np.cumsum(nodes) - 1
        node = np.full_like(self.node, -1)
        node[rows] = 2 * place[self.node[rows]] + ~left
        self.node = node

    def asked(self, subtraction: bool) -> np.ndarray:
        """The nodes of this level whose histograms are sent, ascending: of two children the smaller, or the left."""
        if len(self.live) == 1 or not subtraction:
            return np.arange(len(self.live))
        sizes = np.bincount(self.node[self.node >= 0], minlength=len(self.live)).reshape(-1, 2)
        return 2 * np.arange(len(sizes)) + (sizes[:, 0] > sizes[:, 1])

    def among(self, nodes: np.ndarray) -> np.ndarray:
        """Each row's place among `nodes`, ascending; -1: in none of them."""
        place = np.full(len(self.live) + 1, -1)  # the last one is of the rows in leaves
        place[nodes] = np.arange(len(nodes))
        among: np.ndarray = place[self.node]
        return among


def completed(sent: np.ndarray, asked: np.ndarray, count: int, parents: np.ndarray | None) -> np.ndarray:
    """Histograms of all `count` nodes, from those that were `asked` and their parents'."""
    if len(asked) == count:
        return sent
    assert parents is not None
    whole = np.empty((count, *sent.shape[1:]), np.int64)
    whole[asked] = sent
    whole[asked ^ 1] = parents - sent
    return whole


class Sums(Sealing):
    """What of gradients and histograms crosses: whole numbers, or ciphertexts."""

    def __init__(self, config: RunConfig[Config], samples: int) -> None:
        super().__init__(config)
        self.cfg, self.samples = config.algorithm, samples
        self.width = 2 if self.cfg.packing else 1  # numbers in a ciphertext's slot

    @property
    def slots(self) -> int:
        """Pairs of sums in a ciphertext of a histogram."""
        many = self.cfg.packing and self.cfg.compression
        return int(self.scheme.slots(self.protection, self.samples, 2)) if many else 1

    def packed(self, bins: int) -> int:
        """How many of so many bins' ciphertexts are shifted, by a product, to be beside others in one."""
        return bins - -(-bins // self.slots) if self.scheme is not None else 0

    def gradient(self, gradient: np.ndarray) -> np.ndarray:
        """What is sent of g and h, (n, 2)."""
        if self.scheme is None:
            return gradient.astype(np.int32)
        return self.seal(gradient.reshape(-1, self.width))

    def gradient_of(self, sent: np.ndarray, kept: np.ndarray) -> np.ndarray:
        """What the simulator computes with for it, (n, 2) int64; 0 for rows that are not `kept` (n,)."""
        found = np.zeros((self.samples, 2), np.int64)
        values = int(kept.sum()) * 2 // self.width
        found[kept] = sent if self.scheme is None else self.unseal(sent, values, self.width, np.int64).reshape(-1, 2)
        return found

    def histogram(self, sums: np.ndarray) -> np.ndarray:
        """What is sent of sums (q', d, 2)."""
        if self.scheme is None:
            return sums
        return self.seal(sums.reshape(-1, self.width), self.slots)

    def histogram_of(self, sent: np.ndarray, nodes: int, bins: int) -> np.ndarray:
        """The sums (nodes, bins, 2) of what was sent."""
        if self.scheme is None:
            return sent
        values = nodes * bins * 2 // self.width
        return self.unseal(sent, values, self.width, np.int64, self.slots).reshape(nodes, bins, 2)


def best(left: np.ndarray, whole: np.ndarray, cfg: Config) -> np.ndarray:
    """Which of all parties' bins splits each node, (q,); -1: none gains.

    Parameters
    ----------
    left : sums of g and h up to each bin, (q, bins of all parties, 2).
    whole : of each node, (q, 2).
    """
    below, all_of_it = left / 2**FRACTION, whole[:, None] / 2**FRACTION
    above = all_of_it - below

    def score(of: np.ndarray) -> np.ndarray:
        return of[..., 0] ** 2 / np.maximum(of[..., 1] + cfg.l2, np.finfo(float).tiny)

    gain = score(below) + score(above) - score(all_of_it)
    least = np.minimum(below[..., 1], above[..., 1])
    gain = np.where(least >= max(cfg.min_child_weight, 2**-FRACTION), gain, -np.inf)
    chosen = gain.argmax(axis=1)
    return np.where(np.take_along_axis(gain, chosen[:, None], axis=1)[:, 0] > 0, chosen, -1)


async def passive(me: Party, data: AlignedPart, public: AlignedPublic, config: RunConfig[Config]) -> None:
    """Answer with histograms, and say which rows are left of the splits that were won."""
    cfg = config.algorithm
    outputs = public.classes if public.classes > 2 else 1
    columns, sealing = Columns(data, cfg.bins), Sums(config, public.samples)
    me.state.splits = np.empty(0, np.int64)  # own bins at which nodes of all trees were split
    me.state.counts = sealing.counts
    if me.fresh:
        await me.send(ACTIVE, columns.total, tag="bins")

    async for t in me.rounds():
        sealing.counts = me.state.counts  # a resumed run restores them
        for _ in range(outputs if t > 1 or cfg.first_tree == "all" else 0):
            kept = np.ones(public.samples, bool)
            if cfg.goss:
                kept = np.unpackbits(await me.recv(ACTIVE, tag="rows"), count=public.samples).astype(bool)
            gradient = sealing.gradient_of(await me.recv(ACTIVE, tag="gradient"), kept)
            rows = Rows(public.samples)
            for level in range(cfg.depth):
                if level:
                    flags, sides = await me.recv(ACTIVE, tag="nodes")
                    nodes = np.unpackbits(flags, count=len(rows.live)).astype(bool)
                    if not nodes.any():
                        break
                    count = len(rows.inside(nodes))
                    rows.descend(nodes, np.unpackbits(sides, count=count).astype(bool))
                asked = rows.asked(cfg.subtraction)
                among = np.where(kept, rows.among(asked), -1)
                entries = int((among >= 0).sum()) * columns.places.shape[1]
                bins = len(asked) * columns.total
                added = (entries + bins) * 2 // sealing.width
                seconds = sealing.priced(added=added, multiplied=sealing.packed(bins))
                sums = await me.compute(columns.sums, gradient, among, len(asked), cost=kept.sum(), seconds=seconds)
                await me.send(ACTIVE, sealing.histogram(sums), tag="histogram")
                won = await me.recv(ACTIVE, tag="split")
                if len(won):
                    me.state.splits = np.concatenate([me.state.splits, won[:, 1]])
                    sides = [
                        columns.below(columns.places[rows.inside(np.arange(len(rows.live)) == node)], won[[i], 1])[0]
                        for i, node in enumerate(won[:, 0])
                    ]
                    await me.send(ACTIVE, [np.packbits(side) for side in sides], tag="side")
        me.report(facts=sealing.facts(me.name))
        if me.evaluates(t):
            below = {split: columns.below(x, me.state.splits) for split, x in columns.held_out.items()}
            async with me.evaluating():
                await me.send(ACTIVE, {split: np.packbits(own, axis=1) for split, own in below.items()}, tag="side")


async def active(me: Party, data: AlignedPart, public: AlignedPublic, config: RunConfig[Config]) -> None:
    """Grow trees on the gradients of the labels."""
    assert data.labels is not None
    cfg = config.algorithm
    columns, sealing = Columns(data, cfg.bins), Sums(config, public.samples)
    labels = Labels(data.labels, public.classes)
    trees = Trees.none(cfg.depth)
    me.state.splits = np.empty(0, np.int64)
    me.state.won = np.zeros(1 + len(me.clients), np.int64)  # how many splits each party has
    me.state.trees = vars(trees)
    me.state.scores = np.repeat(labels.start[None], public.samples, axis=0)
    me.state.counts = sealing.counts
    me.state.bins = await me.recv_all(me.clients, tag="bins") if me.fresh else []

    async for t in me.rounds():
        trees, sealing.counts = Trees(**me.state.trees), me.state.counts
        others = me.clients if t > 1 or cfg.first_tree == "all" else ()
        for output in range(labels.outputs):
            gradient = labels.gradient(me.state.scores, output)
            owner, split, value, position = await _tree(me, columns, sealing, gradient, others, cfg)
            trees.add(owner, split, value)
            me.state.scores[:, output] += value[position]
        me.state.trees = vars(trees)
        me.report(train_loss=labels.loss(me.state.scores), epoch=t, iterations=t, facts=sealing.facts(me.name))
        if me.evaluates(t):
            async with me.evaluating():
                received = await me.recv_all(me.clients, tag="side")
            found = {}
            for name, x in columns.held_out.items():
                theirs = [np.unpackbits(bits[name], axis=1, count=len(x)).astype(bool) for bits in received]
                below = [columns.below(x, me.state.splits), *theirs]
                found[name] = labels.outcome(trees.scores(below, labels.outputs, labels.start))
            me.report(predictions=found)


async def _tree(
    me: Party, columns: Columns, sealing: Sums, gradient: np.ndarray, others: Sequence[str], cfg: Config
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Grow a tree with the parties `others`: owner, split and value of its nodes, and each row's leaf."""
    samples, size = len(gradient), 2 ** (cfg.depth + 1) - 1
    owner, split = np.full(size, LEAF), np.zeros(size, np.int64)
    kept = np.ones(samples, bool)
    if cfg.goss:
        kept, gradient = sampled(gradient, cfg.top_rate, cfg.other_rate, me.rng("goss"))
        await me.send_many(others, np.packbits(kept), tag="rows")
    if others:
        seconds = sealing.priced(encrypted=int(kept.sum()) * 2 // sealing.width)
        await me.send_many(others, await me.compute(sealing.gradient, gradient[kept], seconds=seconds), tag="gradient")
    rows, parents = Rows(samples), [None] * (1 + len(others))
    bounds = np.cumsum([0, columns.total, *me.state.bins])  # of the parties among all bins
    for level in range(cfg.depth):
        asked, count = rows.asked(cfg.subtraction), len(rows.live)
        among = np.where(kept, rows.among(asked), -1)
        sums = [await me.compute(columns.sums, gradient, among, len(asked), cost=kept.sum())]
        for sent, bins in zip(await me.recv_all(others, tag="histogram"), me.state.bins, strict=False):
            seconds = sealing.priced(decrypted=len(sent))
            sums.append(await me.compute(sealing.histogram_of, sent, len(asked), bins, seconds=seconds))
        whole = [completed(one, asked, count, known) for one, known in zip(sums, parents, strict=True)]
        inner = rows.node >= 0
        totals = [np.bincount(rows.node[inner], gradient[inner, i], count) for i in (0, 1)]
        found = await me.compute(best, np.concatenate(whole, axis=1), np.stack(totals, axis=1), cfg)
        nodes, party = found >= 0, np.searchsorted(bounds, found, side="right") - 1
        won = [np.flatnonzero(nodes & (party == number)) for number in range(1 + len(others))]
        places = [found[mine] - bounds[number] for number, mine in enumerate(won)]
        for name, mine, place in zip(others, won[1:], places[1:], strict=True):
            await me.send(name, np.stack([mine, place], axis=1), tag="split")
        left = np.zeros(samples, bool)
        for number, (mine, place) in enumerate(zip(won, places, strict=True)):
            if not len(mine):
                continue
            members = [np.flatnonzero(rows.node == node) for node in mine]
            if number:
                packed = await me.recv(others[number - 1], tag="side")
                sides = [np.unpackbits(p, count=len(m)).astype(bool) for p, m in zip(packed, members, strict=True)]
            else:
                sides = [columns.below(columns.places[m], p[None])[0] for m, p in zip(members, place, strict=True)]
                me.state.splits = np.concatenate([me.state.splits, place])
            for m, side in zip(members, sides, strict=True):
                left[m] = side
            heap = rows.live[mine]
            owner[heap], split[heap] = number, me.state.won[number] + np.arange(len(mine))
            me.state.won[number] += len(mine)
        left = left[rows.inside(nodes)]
        if level + 1 < cfg.depth:
            await me.send_many(others, (np.packbits(nodes), np.packbits(left)), tag="nodes")
        if not nodes.any():
            break
        parents = [one[nodes] for one in whole]
        rows.descend(nodes, left)
    g, h = (np.bincount(rows.position, gradient[:, i], size) / 2**FRACTION for i in (0, 1))
    value = -cfg.learning_rate * g / np.maximum(h + cfg.l2, np.finfo(float).tiny)
    return owner, split, np.where(owner == LEAF, value, 0.0), rows.position
