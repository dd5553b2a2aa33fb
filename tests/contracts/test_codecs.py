"""What holds for every algorithm of the registry and every codec: it runs with it and sends less, or refuses it and
says why."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest

import vflbench
from tests.contracts.test_algorithms import (
    CASES,
    CONVEX,
    DATASET,
    DEPENDS_ON_TIME,
    FEW,
    ON_CONVEX,
    REPRESENTATIVES,
    SPLIT,
    SPLIT_WORKERS,
    no_pictures,
    represented,
    same,
)
from tests.every import few_fast
from tests.options import codec_config
from vflbench import config, registry
from vflbench.attacks import transcript
from vflbench.federation.ledger import COLUMN
from vflbench.federation.links import LINK_KINDS, LOCAL
from vflbench.results.reader import Run
from vflbench.runner.evaluate import Observer
from vflbench.runner.run import Federation
from vflbench.types import ConfigError, VflbenchError

__all__ = ["no_pictures"]  # a fixture

INFOS = registry.algorithms()
TAKING = [case for case in CASES if not INFOS[case[0]].exact]
# By default these send mostly whole numbers.
FRACTIONS = {"send_once": ["algorithm.form=raw"], "graph_once": ["algorithm.form=propagated"]}
CODECS = ["fp16", "int8", "topk", "topk+"]  # topk+: with feedback
# of float32, without its headers; int8 of small arrays has its scales
SMALLER = {"fp16": 0.52, "int8": 0.4, "topk": 0.3, "topk+": 0.3}


def overrides(algorithm: str, layout: str) -> list[str]:
    data = CONVEX if algorithm in ON_CONVEX else DATASET[layout]
    if algorithm in SPLIT_WORKERS:
        data = [*data, *SPLIT, *SPLIT_WORKERS[algorithm]]
    small = ["rounds=2", "engine.threads=1", "plot=none"]
    return [f"algorithm={algorithm}", *data, *FRACTIONS.get(algorithm, []), *small]


def words(codec: str) -> list[str]:
    return [f"codec={codec.rstrip('+')}", *(["codec.feedback=true"] if codec == "topk+" else [])]


@functools.cache
def federation(algorithm: str, layout: str) -> Federation:
    with config.session(overrides(algorithm, layout)) as hydra:
        planned = config.plan(hydra, overrides(algorithm, layout))
    assert planned.config is not None
    return Federation(planned.config, INFOS[algorithm])


@functools.cache
def charged(algorithm: str, layout: str, codec: str) -> np.ndarray:
    """(messages, 2): tag and bytes of the rounds' messages between organisations."""
    chosen = codec_config(codec.rstrip("+"), **({"feedback": True} if codec == "topk+" else {}))
    engine = federation(algorithm, layout).engine(codec=chosen)
    engine.run()
    rows = engine.ledger.take()
    rows = rows[(rows[:, COLUMN["kind"]] != LINK_KINDS.index(LOCAL)) & (rows[:, COLUMN["round"]] > 0)]
    return rows[:, [COLUMN["tag"], COLUMN["bytes"]]]


@pytest.mark.parametrize(
    ("algorithm", "layout", "codec"),
    [
        *represented([(*case, "int8") for case in TAKING], FEW),
        # A codec sees arrays, not algorithms.
        *(
            pytest.param(*case, codec, marks=pytest.mark.slow)
            for case in TAKING
            for codec in CODECS
            if case[0] in REPRESENTATIVES and codec != "int8"
        ),
    ],
)
def test_every_algorithm_that_takes_codecs_sends_less(algorithm: str, layout: str, codec: str) -> None:
    if codec == "topk+" and not INFOS[algorithm].remembered:
        codec = "topk"
    plain, coded = charged(algorithm, layout, "none"), charged(algorithm, layout, codec)
    if algorithm not in DEPENDS_ON_TIME:
        assert len(plain) == len(coded) and (coded[:, 1] <= plain[:, 1]).all()
    sizes = {tag: plain[plain[:, 0] == tag, 1].sum() for tag in np.unique(plain[:, 0])}
    less = [coded[coded[:, 0] == tag, 1].sum() / total for tag, total in sizes.items() if total]
    assert min(less) <= SMALLER[codec], less


@pytest.mark.parametrize("algorithm", few_fast([name for name, info in INFOS.items() if info.exact], 2))
def test_every_other_algorithm_says_why_it_takes_none(algorithm: str) -> None:
    layout = next(layout for name, layout in CASES if name == algorithm)
    with pytest.raises(ConfigError) as refused:
        vflbench.run([*overrides(algorithm, layout), "codec=int8"])
    assert [problem.key for problem in refused.value.problems] == ["codec"]
    assert f"codec=int8: {algorithm} takes none: {INFOS[algorithm].exact}." in str(refused.value)


def test_those_that_send_nothing_take_none_and_those_that_remember_take_some() -> None:
    assert {name for name, info in INFOS.items() if info.exact and info.remembered} == set()
    silent = {name for name, info in INFOS.items() if info.exact == "it sends nothing"}
    assert silent == {
        "centralized_gd",
        "centralized_gnn",
        "centralized_join",
        "centralized_sgd",
        "local_sgd",
        "standalone_gnn",
    }


REFUSED = {
    ("codec.name=zip",): "codec.name=zip: names no codec; there are: none, fp16, int8, topk",
    ("codec=int9",): "codec=int9: unknown codec; there are: fp16, int8, none, topk. Did you mean 'int8'?",
    ("codec=topk", "codec.fraction=0"): "codec.fraction=0.0: must be greater than 0",
    ("codec=topk", "codec.fraction=-0.5"): "codec.fraction=-0.5: must be greater than 0",
    ("codec=topk", "codec.fraction=2"): "codec.fraction=2.0: must be at most 1",
    ("codec=topk", "codec.fraction=few"): "codec.fraction=few: must be a number",
    (
        "codec=topk",
        "codec.fractoin=0.1",
    ): "codec.fractoin=0.1: unknown key; codec=topk has: feedback, fraction. Did you mean 'codec.fraction'?",
    ("codec=int8", "codec.fraction=0.1"): "codec.fraction=0.1: codec=int8 has no such key; topk has it",
    ("codec=topk", "codec.feedback=true"): "codec.feedback=true: messages of glasu are about other entries every time",
    (
        "algorithm=rfl_admm_v",
        "dataset=star_schema",
        "accounting=tablepuppet",
        "codec=fp16",
    ): "codec=fp16: accounting=tablepuppet charges every",
}


@pytest.mark.parametrize("wrong", few_fast([(wrong,) for wrong in REFUSED], 3), ids=" ".join)
def test_what_a_codec_cannot_be_is_told(wrong: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as refused:
        vflbench.run(list(wrong))
    assert REFUSED[wrong] in str(refused.value) and len(refused.value.problems) == 1


# --- runs and their folders -------------------------------------------------------------------------------------------


def run(folder: Path, algorithm: str, layout: str, *more: str) -> Run:
    return vflbench.run(
        [
            *overrides(algorithm, layout),
            "rounds=4",
            "eval_every=2",
            "checkpoint_every=2",
            *more,
            f"hydra.run.dir={folder}",
        ]
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "layout", "codec"),
    [
        ("glasu", "graph", "int8"),
        ("mtcd", "aligned", "topk+"),
        ("vfl", "aligned", "topk+"),  # memory by row
        ("rfl_admm_v", "relational", "topk+"),
        ("leasgd_async", "sharded", "int8"),
    ],
)
def test_runs_repeat_themselves_and_go_on_where_they_were_stopped(
    algorithm: str, layout: str, codec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run(tmp_path / "whole", algorithm, layout, *words(codec))
    assert whole.summary["status"] == "completed" and whole.summary["codec"] == codec.rstrip("+")
    assert whole.manifest["config"]["codec"]["name"] == codec.rstrip("+") and whole.manifest["choices"][
        "codec"
    ] == codec.rstrip("+")
    assert whole.summary["bytes"]["total"] == int(whole.ledger.query("link != 'local'")["bytes"].sum())
    same(whole, run(tmp_path / "again", algorithm, layout, *words(codec)))
    on_round = Observer.on_round

    def breaks(self: Observer, round: int, engine: object) -> bool:
        if round == 3:
            raise VflbenchError("the power went")
        return on_round(self, round, engine)  # type: ignore[arg-type]

    monkeypatch.setattr(Observer, "on_round", breaks)
    with pytest.raises(VflbenchError, match="the power went"):
        run(tmp_path / "stopped", algorithm, layout, *words(codec))
    monkeypatch.undo()
    monkeypatch.setattr("vflbench.plots.curves.draw_run", lambda folder, summary: None)
    same(whole, run(tmp_path / "stopped", algorithm, layout, *words(codec), "resume=true"))


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "layout"), [("glasu", "graph"), ("d_psgd", "sharded")])
def test_all_entries_are_no_codec(algorithm: str, layout: str, tmp_path: Path) -> None:
    plain, all_of_it = (
        run(tmp_path / "none", algorithm, layout),
        run(tmp_path / "all", algorithm, layout, "codec=topk", "codec.fraction=1"),
    )
    same(plain, all_of_it)
    assert plain.summary["codec"] == "none"
    tenth = run(tmp_path / "tenth", algorithm, layout, "codec=topk")
    assert not plain.curve["train_loss"].equals(tenth.curve["train_loss"])


@pytest.mark.slow
@pytest.mark.parametrize("batch", ["null", "16"])
def test_a_memory_that_forgets_nothing_is_no_codec(batch: str, tmp_path: Path) -> None:
    """EF-VFL with all entries is SVFL, with mini-batches too."""
    words = [f"algorithm.batch_size={batch}", "algorithm.local_steps=1"]
    every = ["codec=topk", "codec.fraction=1", "codec.feedback=true"]
    plain = run(tmp_path / "none", "svfl", "aligned", *words)
    same(plain, run(tmp_path / "all", "svfl", "aligned", *words, *every))


@pytest.mark.slow
def test_what_arrived_is_in_the_transcript(tmp_path: Path) -> None:
    """Embeddings of 64 rows and 8 columns with at most 255 values; so are the answers to the adversary's questions."""
    attack = ["attack=embedding_inversion", "privacy=none"]
    kinds = {}
    for codec in ("none", "int8"):
        ended = vflbench.run(
            [*overrides("vfl", "aligned"), *attack, f"codec={codec}", f"hydra.run.dir={tmp_path / codec}"]
        )
        assert ended.summary["attack"]
        for message in transcript.read(tmp_path / codec / "transcript"):
            largest = max(message.arrays, key=np.size)
            if largest.size > 300 and largest.dtype.kind == "f":
                kinds.setdefault((codec, message.tag), []).append(len(np.unique(largest)) > 255)
    assert {tag for _, tag in kinds} == {"embedding", transcript.ANSWER}
    assert all(any(many) == (codec == "none") for (codec, _), many in kinds.items())
