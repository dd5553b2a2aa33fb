from __future__ import annotations

import pytest
import torch

from vflbench.algorithms.graph.joint import Aggregation, aggregation_layers
from vflbench.cards.algorithms.graph.graph_methods import check_layers


def parts(widths: tuple[int, ...], seed: int = 0) -> list[torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    return [torch.randn(5, width, generator=g, dtype=torch.float64) for width in widths]


@pytest.mark.parametrize(("how", "widths"), [("avg", (6, 6, 6)), ("cat", (2, 2, 2)), ("avg", (6,)), ("cat", (6,))])
def test_insert_undoes_extract_for_every_party(how: str, widths: tuple[int, ...]) -> None:
    aggregation, own = Aggregation(how, len(widths)), parts(widths)
    total = aggregation.combine(own)
    assert total.shape == (5, 6)
    for m, part in enumerate(own):
        others = aggregation.extract(total, part, m)
        torch.testing.assert_close(aggregation.insert(others, part, m), total, rtol=1e-14, atol=1e-14)
        fresh = parts(widths, seed=1)[m]
        replaced = [fresh if k == m else p for k, p in enumerate(own)]
        torch.testing.assert_close(
            aggregation.insert(others, fresh, m), aggregation.combine(replaced), rtol=1e-14, atol=1e-14
        )
        if len(widths) > 1:
            assert not torch.allclose(aggregation.insert(others, fresh, m), total)


def test_what_the_average_and_the_concatenation_are() -> None:
    own = [torch.full((1, 2), float(v)) for v in (1, 2, 6)]
    assert Aggregation("avg", 3).combine(own).tolist() == [[3, 3]]
    assert Aggregation("cat", 3).combine(own).tolist() == [[1, 1, 2, 2, 6, 6]]
    assert Aggregation("cat", 3).extract(Aggregation("cat", 3).combine(own), own[1], 1).tolist() == [[1, 1, 6, 6]]
    assert [Aggregation("cat", 3).columns(6, m) for m in range(3)] == [(0, 2), (2, 4), (4, 6)]
    assert Aggregation("avg", 3).columns(6, 1) == (0, 6)


@pytest.mark.parametrize(("how", "width"), [("avg", 6), ("cat", 2)])
def test_gradients_are_the_chain_rule_of_the_sum_of_losses(how: str, width: int) -> None:
    aggregation = Aggregation(how, 3)
    own = [p.requires_grad_() for p in parts((width,) * 3)]
    total = aggregation.combine(own)
    weights = parts((6, 6, 6), seed=2)
    sum((total.tanh() * w).sum() for w in weights).backward()  # type: ignore[union-attr]
    at = total.detach()
    upstream = [(1 - at.tanh() ** 2) * w for w in weights]  # d loss_m / d aggregate
    for got, part in zip(aggregation.gradients(upstream), own, strict=True):
        torch.testing.assert_close(got, part.grad, rtol=1e-13, atol=1e-13)


def test_the_aggregation_layers() -> None:
    assert [aggregation_layers(4, k) for k in (1, 2, 4)] == [(3,), (1, 3), (0, 1, 2, 3)]
    assert aggregation_layers(4, 2, [0, 3]) == (0, 3)
    assert aggregation_layers(1, 1) == (0,)


def test_check() -> None:
    assert check_layers(4, 2, None) == [] and check_layers(4, 9, [0, 3]) == []
    for bad in (0, 3, 8):
        (problem,) = check_layers(4, bad, None)
        assert problem.key == "algorithm.aggregations" and "1, 2, 4" in problem.allowed
    for chosen in ([], [0, 1], [3, 1], [1, 1, 3], [-1, 3], [1, 4]):
        (problem,) = check_layers(4, 2, chosen)
        assert problem.key == "algorithm.aggregation_layers"
