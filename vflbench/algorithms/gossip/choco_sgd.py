"""CHOCO-SGD: workers average what their neighbours know of each other, and send compressed changes of that.

Koloskova, Stich, Jaggi, ICML 2019, arXiv 1902.00340, Algorithm 2; with local steps, Koloskova et al., ICLR 2020,
arXiv 1907.09356.

    worker i    x_i <- x_i - eta g_i, local_steps times
                q_i = Q(x_i - y_i)                       -> all neighbours, tag `change`
                y_j <- y_j + q_j                         for itself and every neighbour
                x_i <- x_i + gamma (sum_j W_ij y_j - y_i)

y_j is what all neighbours know of worker j: at first the model that all start from (in the paper 0). A worker keeps its
own, and the sum of W_ij y_j: W never changes. So error feedback comes with the method, and the compressor Q is a key of
its own in place of `codec`.

    compression     bytes of a change of D numbers in L tensors
    none            4 D
    topk            8 k, the k = fraction D largest entries with their places; 4 D where that is less
    int8            D + 4
    sign            ceil(d / 8) + 4 for each tensor of d numbers: the signs and the mean magnitude

With `d_psgd codec=topk codec.feedback=true` a worker's own model is exact in its average, and gamma is 1: that is not
CHOCO, and top-k has no guarantee there. Without compression and with gamma = 1 this is `d_psgd mixing=after`.

A gamma too large for the compressor diverges, also late: with 1 % of the entries 0.3 does.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from vflbench.algorithms.gossip.averaging import averaging
from vflbench.algorithms.gossip.worker_sgd import LocalSgd
from vflbench.cards.algorithms.gossip.choco_sgd import Config
from vflbench.cards.federation.codecs.int8 import Config as Int8
from vflbench.cards.federation.codecs.topk import Config as TopK
from vflbench.data.tasks import Shard, ShardedPublic, ShardedTask
from vflbench.defaults import filled
from vflbench.federation.codecs import int8, topk
from vflbench.federation.party import Party, PartySpec
from vflbench.types import RunConfig


def parties(task: ShardedTask, config: RunConfig[Config]) -> dict[str, PartySpec]:
    """One worker per shard, each with its row of W; raises as `averaging`."""
    return averaging(worker, task, config)


class Compressor:
    """Q, and what arrives of it; `sizes` are those of the model's tensors."""

    def __init__(self, cfg: Config, sizes: list[int], rng: np.random.Generator) -> None:
        self.kind, self.sizes, self.rng = cfg.compression, sizes, rng
        self.module: Any = {"topk": topk, "int8": int8}.get(self.kind)
        self.keys = filled(TopK, fraction=cfg.fraction) if self.kind == "topk" else filled(Int8)

    def encode(self, change: Tensor) -> tuple[Tensor, ...]:
        """What is sent of a change (D,)."""
        if self.kind == "none":
            return (change,)
        if self.kind != "sign":
            sent: tuple[Tensor, ...] = self.module.encode(change, self.rng, self.keys)
            return sent if sum(part.nbytes for part in sent) < change.nbytes else (change,)
        parts = change.split(self.sizes)
        scales = torch.stack([part.abs().mean() for part in parts])
        bits = [torch.from_numpy(np.packbits((part >= 0).cpu().numpy())).to(change.device) for part in parts]
        return scales.float(), torch.cat(bits)

    def decode(self, sent: tuple[Tensor, ...], like: Tensor) -> Tensor:
        """What arrives, (D,), of the type of `like`."""
        if len(sent) == 1:
            return sent[0]
        if self.kind != "sign":
            arrived: Tensor = self.module.decode(sent, len(like), like.dtype, self.keys)
            return arrived
        scales, packed = sent
        bits, signs = packed.cpu().numpy(), []
        for scale, size in zip(scales.to(like.dtype), self.sizes, strict=True):
            own, bits = bits[: -(-size // 8)], bits[-(-size // 8) :]
            up = torch.from_numpy(np.unpackbits(own, count=size)).to(like)
            signs.append(scale * (2 * up - 1))
        return torch.cat(signs)


async def worker(
    me: Party, data: Shard, public: ShardedPublic, config: RunConfig[Config], weights: dict[str, float]
) -> None:
    """Train on the worker's own rows, and move towards its neighbours; `weights` by name: its own and theirs."""
    cfg = config.algorithm
    sgd = LocalSgd(me, data, public, config)
    me.state.model = sgd.model
    q = Compressor(cfg, [parameter.numel() for parameter in sgd.model.parameters()], me.rng("compression"))
    start = torch.nn.utils.parameters_to_vector(sgd.model.parameters()).detach()
    me.state.known = start  # y_i: what the neighbours know of this worker
    me.state.mixed = start.clone()  # sum_j W_ij y_j

    async for t in me.rounds():
        for i in sgd.begin(t):
            sgd.w = await sgd.step(me, old_needed=False)
            if (i + 1) % cfg.local_steps:
                continue
            known, mixed = me.state.known, me.state.mixed
            sent = q.encode(sgd.w - known)
            await me.send_many(me.neighbours, sent, tag="change")
            received = await me.recv_all(me.neighbours, tag="change")
            own = q.decode(sent, known)
            known, mixed = known + own, mixed.add(own, alpha=weights[me.name])
            for name, one in zip(me.neighbours, received, strict=True):
                mixed = mixed.add(q.decode(one, known), alpha=weights[name])
            me.state.known, me.state.mixed = known, mixed
            sgd.w = sgd.w + cfg.gamma * (mixed - known)
        me.report(**sgd.end(t, me.evaluates(t)))
