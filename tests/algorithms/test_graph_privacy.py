"""Methods on graphs under privacy: noise up and back, counted as rehearsed, and edges that are randomised."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from tests.algorithms.small_graphs import Result, config, differ, run, task
from tests.every import few_fast
from tests.options import make_mechanism, privacy_config
from vflbench.algorithms.graph import glasu, glasu_exact, simulated_centralized
from vflbench.algorithms.oneshot import graph_once
from vflbench.cards.algorithms.graph import glasu as glasu_card
from vflbench.data.tasks import GraphTask
from vflbench.federation.party import SERVER
from vflbench.types import ConfigError, RunConfig

EXACT = (glasu_exact, simulated_centralized)
ALL = (glasu, *EXACT)


def private(module: ModuleType, graph: GraphTask, cfg: RunConfig, mechanism: Any, **options: Any) -> Result:
    """A run with a mechanism for each client."""
    cfg = replace(cfg, privacy=mechanism)
    bound = module.max_releases(cfg, cfg.rounds)
    made = {f"client_{m}": make_mechanism(mechanism, bound, "graph") for m in range(graph.parties)}
    return run(module, graph, cfg, privacy=made, **options)


def guards(result: Result) -> dict[str, Any]:
    return {name: result.engine.parties[name].privacy for name in result.clients}


def same_bits(a: Result, b: Result) -> None:
    assert a.losses == b.losses and a.ledger() == b.ledger()
    for client in a.clients:
        mine, theirs = a.parameters(client), b.parameters(client)
        assert all(torch.equal(mine[name], theirs[name]) for name in mine)
        for one, other in zip(a.predictions(client), b.predictions(client), strict=True):
            assert all(torch.equal(one[split], other[split]) for split in one)


@pytest.mark.parametrize("how", few_fast(["avg", "cat"]))
@pytest.mark.parametrize("module", ALL)
def test_a_wide_clip_without_noise_is_no_privacy_to_the_last_bit(module: ModuleType, how: str) -> None:
    options = {"fanout": 2, "batch_size": 3, "aggregate": how, "optimizer": "adam", "weight_decay": 0.01}
    cfg, graph = config(module, {"dropout": 0.3}, **options), task(parties=3)
    plain = run(module, graph, cfg)
    wide = privacy_config("gaussian_embedding", noise_multiplier=0.0, clip=1e9)
    same_bits(private(module, graph, cfg, wide), plain)
    for keys in ({"noise_multiplier": 1e-3, "clip": 1e9}, {"noise_multiplier": 0.0, "clip": 0.1}):
        narrow = private(module, graph, cfg, privacy_config("gaussian_embedding", **keys))
        assert differ(narrow.parameters("client_0"), plain.parameters("client_0"))


@pytest.mark.parametrize("module", EXACT)
def test_rows_of_gradients_have_a_clip_of_their_own(module: ModuleType) -> None:
    """Which scales their noise too: at 1e-9 the gradient of what is below an aggregation is next to nothing."""
    silent = privacy_config("gaussian_embedding", noise_multiplier=0.5, clip=1e3)
    seen: list[tuple[str, torch.Tensor]] = []

    def on_read(src: str, dst: str, tag: str, round: int, payload: Any) -> None:
        if src != SERVER and tag in ("embedding", "gradient"):
            seen.append((tag, payload))

    cfg = config(module, rounds=1, gradient_clip=1e-9)
    private(module, task(parties=2), cfg, silent, on_read=on_read)
    scale = {
        tag: float(torch.cat([rows for one, rows in seen if one == tag]).std()) for tag in ("embedding", "gradient")
    }
    assert scale["embedding"] == pytest.approx(500, rel=0.2) and scale["gradient"] == pytest.approx(5e-10, rel=0.3)
    seen.clear()
    private(module, task(parties=2), config(module, rounds=1, batch_size=4), silent, on_read=on_read)
    gradients = torch.cat([rows for tag, rows in seen if tag == "gradient"])
    assert float(gradients.std()) == pytest.approx(125, rel=0.2)  # of 0.5 clip / batch_size


@pytest.mark.parametrize("how", ["avg", "cat"])
@pytest.mark.parametrize("module", EXACT)
def test_a_client_takes_out_its_own_noise(module: ModuleType, how: str) -> None:
    """With one party noise changes nothing."""
    graph = task(parties=1)
    cfg = config(module, aggregate=how)
    noisy = private(module, graph, cfg, privacy_config("gaussian_embedding", clip=1e4, noise_multiplier=1.0))
    plain = run(module, graph, cfg)
    for name, value in noisy.parameters("client_0").items():
        torch.testing.assert_close(value, plain.parameters("client_0")[name], rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("options", few_fast([{}, {"aggregate": "cat"}, {"layers": 4, "fanout": 1}]))
@pytest.mark.parametrize("module", ALL)
def test_every_row_that_is_sent_is_counted_as_rehearsed_and_what_was_asked_is_spent(
    module: ModuleType, options: dict[str, Any]
) -> None:
    """The rows of the transcript: a level's ids are those of the last union, or of the batch."""
    cfg = config(module, **{"fanout": 2, "batch_size": 5, "rounds": 6, **options}, seed=3)
    graph, rows = task(parties=3, nodes=60, keep=0.5), dict[str, int]()

    def on_read(src: str, dst: str, tag: str, round: int, payload: Any) -> None:
        if src != SERVER and tag in ("embedding", "gradient"):
            rows[src] = rows.get(src, 0) + len(payload)

    result = private(module, graph, cfg, privacy_config("gaussian_embedding", epsilon=8.0), on_read=on_read)
    for name, guard in guards(result).items():
        spent = guard.spent()
        assert guard.counts.sum() == rows[name] > 0
        assert spent["releases"]["planned"] == spent["releases"]["done"] == guard.counts.max()
        assert 0.99 <= spent["spent_of_target"] <= 1
        assert "labels" in spent["not_covered"] and any("imply edges" in one for one in spent["not_covered"])
    assert guard.counts.max() < module.max_releases(cfg, 6)
    noise = privacy_config("gaussian_embedding", noise_multiplier=guard.noise_multiplier)
    assert private(module, graph, cfg, noise).ledger() == result.ledger()  # the rehearsal sends nothing


def test_noise_that_drowns_rows_is_told(caplog: pytest.LogCaptureFixture) -> None:
    loud = privacy_config("gaussian_embedding", epsilon=1.0)
    with caplog.at_level(logging.WARNING):
        glasu_exact.parties(task(), config(glasu_exact, rounds=5, privacy=loud))
    (said,) = caplog.messages
    assert said.startswith("A row is published up to 20 times, so each of its numbers (12) gets noise of")


# --- edges ------------------------------------------------------------------------------------------------------------

EDGE_CASES: list[tuple[ModuleType, dict[str, Any]]] = [
    (glasu, {"fanout": 2, "local_steps": 2}),
    (glasu_exact, {"fanout": 2}),
    (graph_once, {"form": "raw"}),
    (graph_once, {"form": "propagated", "components": 2}),
]


@pytest.mark.parametrize(("module", "options"), EDGE_CASES)
@pytest.mark.parametrize("rows", [None, 8.0])
def test_all_that_a_client_says_follows_from_the_edges_that_it_shows(
    module: ModuleType, options: dict[str, Any], rows: float | None
) -> None:
    """With other edges and the same response: the same messages to the last bit, those of the evaluation too."""
    settings = privacy_config("edge_rr", epsilon=4.0, row_epsilon=rows)
    graph = task(parties=2, nodes=40)
    other = replace(graph, edges=task(parties=2, nodes=40, seed=5).edges)
    cfg = replace(config(module, rounds=3, **options), privacy=settings)
    told: list[list[tuple[Any, ...]]] = []
    shown = [task(parties=2, nodes=40, seed=8).edges[m] for m in range(2)]
    for one in (graph, other):
        made = {f"client_{m}": make_mechanism(settings, module.max_releases(cfg, 3), "graph") for m in range(2)}
        for mechanism, edges in zip(made.values(), shown, strict=True):
            mechanism.shown = edges
        said: list[tuple[Any, ...]] = []
        result = run(
            module, one, cfg, privacy=made, eval_every=1, on_read=lambda *message, said=said: said.append(message)
        )
        said.append(("predictions", *(result.predictions(name) for name in sorted(result.engine.parties))))
        said.append(("losses", result.losses))
        told.append(said)
    assert len(told[0]) >= 5
    assert flat(told[0]) == flat(told[1])
    plain = run(module, graph, replace(cfg, privacy=privacy_config()))
    assert plain.losses != result.losses


def flat(value: Any) -> Any:
    """With tensors and arrays as bytes."""
    if isinstance(value, dict):
        return {key: flat(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [flat(one) for one in value]
    if isinstance(value, torch.Tensor):
        value = value.detach().numpy()
    return value.tobytes() if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize("module", [glasu, glasu_exact])
def test_the_edges_are_drawn_once_whether_ids_are_rehearsed_or_not(module: ModuleType) -> None:
    graph, cfg = task(parties=2, nodes=40), config(module, fanout=2, batch_size=4, rounds=4)
    noisy = private(module, graph, cfg, privacy_config("edge_rr", epsilon=3.0, row_epsilon=8.0))
    alone = private(module, graph, cfg, privacy_config("edge_rr", epsilon=3.0))
    for name, guard in guards(noisy).items():
        assert np.array_equal(guard.shown, guards(alone)[name].shown)
        said = guard.spent()
        assert said["epsilon"] == 3 and 0.99 * 8 <= said["row_epsilon"] <= 8
        assert said["row_releases"] == {"planned": guard.rows.counts.max(), "done": guard.rows.counts.max()}
        assert "labels" in said["not_covered"] and not any("edges" in one for one in said["not_covered"])
    assert noisy.ledger() == alone.ledger()


@pytest.mark.parametrize("module", [glasu, glasu_exact])
def test_a_large_epsilon_of_an_edge_is_no_privacy_to_the_last_bit(module: ModuleType) -> None:
    graph, cfg = task(parties=2), config(module, fanout=2)
    same_bits(private(module, graph, cfg, privacy_config("edge_rr", epsilon=500.0)), run(module, graph, cfg))


def test_what_graph_once_leaves_out_is_its_own() -> None:
    for form, left in (("raw", ["labels", "edges"]), ("propagated", ["labels", "edges", "principal directions"])):
        cfg = config(graph_once, rounds=1, form=form, components=2)
        noisy = private(graph_once, task(), cfg, privacy_config("gaussian_embedding", noise_multiplier=1.0))
        assert guards(noisy)["client_0"].spent()["not_covered"][:3] == left
        both = privacy_config("edge_rr", epsilon=4.0, row_epsilon=1.0)
        said = guards(private(graph_once, task(), cfg, both))["client_0"].spent()["not_covered"]
        assert said == [
            one for one in (*left, *(["a node's raw features"] if form == "propagated" else [])) if one != "edges"
        ]


def test_edges_that_are_not_randomised_are_not_covered() -> None:
    settings = privacy_config("edge_rr", epsilon=math.inf, row_epsilon=8.0)
    said = guards(private(glasu, task(), config(glasu), settings))["client_0"].spent()
    assert said["epsilon"] == math.inf and said["spent_of_target"] is None
    assert any("imply edges" in one for one in said["not_covered"]) and said["row_epsilon"] <= 8


def test_a_swamped_graph_is_refused_before_a_round(caplog: pytest.LogCaptureFixture) -> None:
    graph = task(nodes=60)
    for module in (glasu, glasu_exact, graph_once):
        with pytest.raises(ConfigError, match=r"privacy\.epsilon=0\.1: would add about .* more than 5 for each"):
            module.parties(graph, config(module, privacy=privacy_config("edge_rr", epsilon=0.1)))
    with caplog.at_level(logging.INFO):
        glasu.parties(graph, config(glasu, privacy=privacy_config("edge_rr", epsilon=6.0)))
    assert [text.partition(" has ")[0] for text in caplog.messages] == [
        "privacy=edge_rr: client_0",
        "privacy=edge_rr: client_1",
    ]


def test_all_edges_hide_none() -> None:
    cfg = config(glasu, sampling="undropped", privacy=privacy_config("edge_rr"))
    assert [problem.key for problem in glasu_card.check(cfg)] == ["privacy"]


@pytest.mark.parametrize("how", ["avg", "cat"])
@pytest.mark.parametrize("module", ALL)
def test_rows_are_served_both_ways(module: ModuleType, how: str) -> None:
    """Training is the same; the scores of one run are those that the other has beside its own; own noise comes off."""
    graph, cfg = task(parties=3), config(module, aggregate=how)
    runs, sent = {}, {}
    for way in ("clean", "noisy"):
        keys = privacy_config("gaussian_embedding", noise_multiplier=0.5, clip=2.0, serving=way)
        runs[way] = private(module, graph, cfg, keys)
        sent[way] = runs[way].ledger()
    clean, noisy = runs["clean"], runs["noisy"]
    assert sent["clean"] == sent["noisy"] and clean.losses == noisy.losses
    scores = [values for _, _, values in noisy.reports if "otherwise" in values]
    assert len(scores) == graph.parties
    for client in clean.clients:
        (mine,), (theirs,) = clean.predictions(client), noisy.predictions(client)
        (beside,) = (
            values["otherwise"] for name, _, values in noisy.reports if name == client and "otherwise" in values
        )
        assert all(torch.equal(mine[split], beside[split]) for split in mine) and differ(mine, theirs)
    ends = len(clean.engine.parties["client_0"].state.model.ends)
    spent = guards(noisy)["client_0"].spent()
    assert spent["one_prediction"]["mu"] == pytest.approx(2 / 0.5 * math.sqrt(ends))
    # a party whose own rows alone are noised predicts as without noise
    alone = task(parties=1)
    keys = privacy_config("gaussian_embedding", noise_multiplier=0.5, clip=2.0, serving="noisy")
    lonely = private(module, alone, config(module, aggregate=how), keys)
    (own,), (beside,) = (
        lonely.predictions("client_0"),
        [r["otherwise"] for _, _, r in lonely.reports if "otherwise" in r],
    )
    for split, rows in own.items():
        torch.testing.assert_close(rows, beside[split], rtol=1e-9, atol=1e-9)
