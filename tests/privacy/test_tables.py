"""Noisy labels and noisy gradients against their formulas, brute force, and other accountants."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import dp_accounting
import numpy as np
import pytest
import torch
from scipy import integrate, stats

from tests.every import few_fast
from tests.options import check_keys, make_mechanism, privacy_config
from vflbench.cards.models import partial as partial_card
from vflbench.cards.privacy.keys import least_epsilon
from vflbench.models import partial
from vflbench.privacy import accountant, dp_sgd, label_dp, mechanisms, tablepuppet, tables
from vflbench.privacy.gradients import NoisyGradients, poisson
from vflbench.privacy.tables import NoisyLabels, TablePrivacy, part_of_a_batch
from vflbench.seeding import stream, torch_stream
from vflbench.types import ConfigError, FederationError, hook

# --- labels -----------------------------------------------------------------------------------------------------------


def flip_rate(deviation: float, classes: int) -> float:
    """1 - P(1 + L_1 exceeds the others' largest noise): exact."""
    noise = stats.laplace(scale=deviation / math.sqrt(2))
    kept = integrate.quad(
        lambda v: noise.pdf(v - 1) * noise.cdf(v) ** (classes - 1), -20, 20, points=[0, 1], limit=200
    )[0]
    return 1 - float(kept)


@pytest.mark.parametrize(("classes", "rate"), few_fast([(2, 0.0713), (5, 0.1901), (6, 0.2199)]))
def test_labels_flip_as_often_as_the_formula_says(classes: int, rate: float) -> None:
    assert flip_rate(0.5, classes) == pytest.approx(rate, abs=5e-5)
    n = 200_000
    labels = np.arange(n) % classes
    noisy = NoisyLabels(0.5, 5)
    sent = noisy.protect(labels, classes, stream(0, "noise"))
    assert sent.dtype == labels.dtype and sent.min() == 0 and sent.max() == classes - 1
    error = 4.5 * math.sqrt(rate * (1 - rate) / n)
    assert abs(float(np.mean(sent != labels)) - flip_rate(0.5, classes)) < error
    wrong = sent[(sent != labels) & (labels == 0)]  # where a label goes, it goes to each other class alike
    if classes > 2:
        assert stats.chisquare(np.bincount(wrong, minlength=classes)[1:]).pvalue > 1e-4


def test_the_noise_has_standard_deviation_lambda() -> None:
    drawn: list[np.ndarray] = []

    class Recording:
        def laplace(self, scale: float, size: tuple[int, int]) -> np.ndarray:
            drawn.append(stream(1, "noise").laplace(scale=scale, size=size))
            return drawn[-1].copy()

    NoisyLabels(0.7, 5).protect(np.zeros(100_000, dtype=np.int64), 3, Recording())  # type: ignore[arg-type]
    noise = drawn[0]
    # the fourth moment of a Laplace distribution is 6 sigma^4, so a standard deviation's relative error is sqrt(5 / 4n)
    assert abs(noise.std() / 0.7 - 1) < 4.5 * math.sqrt(5 / 4 / noise.size)
    assert abs(noise.mean()) < 4.5 * 0.7 / math.sqrt(noise.size)
    assert stats.kurtosis(noise, axis=None) == pytest.approx(3, abs=0.3)  # Laplace, not normal


def test_label_epsilon() -> None:
    noisy = NoisyLabels(0.5, 5)
    assert noisy.epsilon == 0.0  # nothing handed over
    noisy.protect(np.array([1, 0]), 2, stream(0, "noise"))
    assert noisy.epsilon == pytest.approx(5.657, abs=5e-4)
    with pytest.raises(FederationError, match="noised once"):
        noisy.protect(np.array([1, 0]), 2, stream(0, "noise"))


def test_labels_epsilon_is_that_of_the_mechanism() -> None:
    """The likelihood ratio of the noisy one-hot vectors of two labels is at most e^epsilon, and reaches it."""
    scales: list[float] = []

    class Recording:
        def laplace(self, scale: float, size: tuple[int, int]) -> np.ndarray:
            scales.append(scale)
            return np.zeros(size)

    noisy = NoisyLabels(0.5, 5)
    noisy.protect(np.array([0, 1]), 3, Recording())  # type: ignore[arg-type]
    (scale,) = scales
    values = np.random.default_rng(0).normal(scale=2, size=(10_000, 3))
    first, second = (stats.laplace(loc=np.eye(3)[c], scale=scale).logpdf(values).sum(axis=1) for c in (0, 1))
    assert np.abs(first - second).max() == pytest.approx(noisy.epsilon, rel=1e-9)


@pytest.mark.parametrize(("classes", "low"), [(5, 1), (6, 0)])
def test_ratings_are_classes(classes: int, low: int) -> None:
    ratings = np.tile(np.arange(1.0, 6.0), 4000)
    sent = NoisyLabels(0.5, classes).protect(ratings, 0, stream(0, "noise"))
    assert sent.dtype == np.float64 and set(sent) == set(map(float, range(low, 6)))
    assert np.mean(sent != ratings) == pytest.approx(flip_rate(0.5, classes), abs=0.015)
    assert np.array_equal(NoisyLabels(1e-9, classes).protect(ratings, 0, stream(0, "noise")), ratings)


@pytest.mark.parametrize("bad", [0.0, 6.0, 2.5, -1.0])
def test_other_regressions_are_refused_by_name(bad: float) -> None:
    labels = np.array([1.0, 5.0, bad])
    with pytest.raises(ConfigError, match=r"whole ratings from 1 to 5.*use privacy=dp_sgd"):
        NoisyLabels(0.5, 5).protect(labels, 0, stream(0, "noise"))
    assert [p.key for p in tablepuppet.check_labels(privacy_config("tablepuppet", epsilon=1.0), labels, 0)] == [
        "privacy"
    ]
    assert hook(dp_sgd, "check_labels") is None  # it noises none
    assert label_dp.check_labels(privacy_config("label_dp"), np.array([0, 99]), 100) == []


# --- gradients --------------------------------------------------------------------------------------------------------

MODELS = [
    {"name": "linear", "intercept": "none"},
    {"name": "linear", "intercept": "tables"},
    {"name": "linear", "relu_output": True, "intercept": "tables"},
    {"name": "mlp", "hidden": 4, "intercept": "tables"},
    {"name": "mlp", "hidden": 3, "relu_output": True, "intercept": "none"},
]


def made(how: dict[str, Any], rows: int = 7, outputs: int = 3) -> tuple[partial.Partial, torch.Tensor, torch.Tensor]:
    model = partial.Partial(
        partial_card.Config(**{"dtype": "float64", **how}), 5, outputs, True, np.random.default_rng(0), "cpu"
    )
    generator = torch.Generator().manual_seed(0)
    model.theta.copy_(torch.randn(model.theta.shape, generator=generator, dtype=torch.float64))
    x = torch.randn(rows, 5, generator=generator, dtype=torch.float64)
    return model, x, torch.randn(rows, outputs, generator=generator, dtype=torch.float64)


def row_gradients(model: partial.Partial, x: torch.Tensor, cotangent: torch.Tensor) -> torch.Tensor:
    """(n, |theta|) by autograd, one row at a time, of a forward pass written anew."""

    def value(theta: torch.Tensor, row: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        at, inside = 0, row
        if model.network.hidden:
            at = model.width * model.network.hidden
            first = theta[:at].view(model.width, model.network.hidden)
            inside = torch.relu(row @ first + theta[at : at + model.network.hidden])
            at += model.network.hidden
        size = len(inside) * model.outputs
        out = inside @ theta[at : at + size].view(len(inside), model.outputs)
        if model.bias:
            out = out + theta[at + size :]
        return ((torch.relu(out) if model.network.relu_output else out) * weight).sum()

    grad = torch.func.vmap(torch.func.grad(value), in_dims=(None, 0, 0))
    result: torch.Tensor = grad(model.theta.detach(), x, cotangent)
    return result


def noisy(noise: float = 0.0, clip: float = 1.0, steps: int = 10**6, rate: float = 0.1) -> NoisyGradients:
    private = NoisyGradients(clip, noise, None, 1e-5)
    private.prepare(rate, steps, stream(0, "batches"), torch_stream(0, "noise"))
    return private


def test_where_no_noise_is_enough_there_is_no_gradient() -> None:
    """A second try finds nothing prepared: it does not go on without noise."""
    model, x, cotangent = made({"name": "linear"})
    private = NoisyGradients(1.0, None, 1e-9, 1e-5)
    with pytest.raises(ValueError, match="epsilon"):
        private.prepare(0.1, 10, stream(0, "batches"), torch_stream(0, "noise"))
    private.prepare(0.1, 10, stream(0, "batches"), torch_stream(0, "noise"))
    with pytest.raises(FederationError):
        private.gradient(model, x, cotangent, *model.network.inside(model.theta, x))


@pytest.mark.parametrize("how", MODELS, ids=str)
def test_row_norms_and_clipped_sums_are_those_of_autograd(how: dict[str, Any]) -> None:
    model, x, cotangent = made(how)
    rows = row_gradients(model, x, cotangent)
    out, inside = model.network.inside(model.theta, x)
    torch.testing.assert_close(model.row_norms(x, cotangent, out, inside), rows.norm(dim=1), rtol=1e-12, atol=1e-12)
    clip = float(rows.norm(dim=1).mean())
    expected = (rows * (clip / rows.norm(dim=1)).clamp(max=1)[:, None]).sum(dim=0)
    torch.testing.assert_close(
        noisy(clip=clip).gradient(model, x, cotangent, out, inside), expected, rtol=1e-12, atol=1e-12
    )
    assert not torch.allclose(model.gradient(x, cotangent, out, inside), expected)
    torch.testing.assert_close(
        noisy(clip=1e9).gradient(model, x, cotangent, out, inside), rows.sum(dim=0), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("how", MODELS, ids=str)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e6])
def test_a_row_moves_the_sum_by_no_more_than_the_clip(how: dict[str, Any], scale: float) -> None:
    model, x, cotangent = made(how)
    x, cotangent = x * scale, cotangent * scale
    whole = noisy(clip=0.7).gradient(model, x, cotangent, *model.network.inside(model.theta, x))
    for row in range(len(x)):
        rest = torch.arange(len(x)) != row
        without = noisy(clip=0.7).gradient(model, x[rest], cotangent[rest], *model.network.inside(model.theta, x[rest]))
        assert float((whole - without).norm()) <= 0.7 * (1 + 1e-9)


def test_no_rows_and_rows_without_a_gradient() -> None:
    model, x, cotangent = made({"name": "linear"})
    assert torch.isfinite(noisy().gradient(model, x, 0 * cotangent, *model.network.inside(model.theta, x))).all()
    nothing = noisy(noise=2.0).gradient(model, x[:0], cotangent[:0], *model.network.inside(model.theta, x[:0]))
    assert nothing.shape == model.theta.shape and float(nothing.norm()) > 0  # a batch may be empty; its noise may not


@pytest.mark.slow
def test_gradient_noise_has_deviation_sigma_times_clip() -> None:
    model, x, cotangent = made({"name": "linear"})
    private, bare = noisy(noise=3.0, clip=0.5), noisy(noise=0.0, clip=0.5)
    passed = model.network.inside(model.theta, x)
    mean = bare.gradient(model, x, cotangent, *passed)
    drawn = torch.stack([private.gradient(model, x, cotangent, *passed) - mean for _ in range(4000)])
    assert abs(float(drawn.std()) / 1.5 - 1) < 4.5 / math.sqrt(2 * drawn.numel())
    assert abs(float(drawn.mean())) < 4.5 * 1.5 / math.sqrt(drawn.numel())
    assert abs(float((drawn[1:] * drawn[:-1]).mean()) / 1.5**2) < 4.5 / math.sqrt(drawn.numel())
    assert private.taken == 4000


def test_no_step_beyond_those_planned() -> None:
    model, x, cotangent = made({"name": "linear"})
    private = noisy(steps=2)
    for _ in range(2):
        private.gradient(model, x, cotangent, *model.network.inside(model.theta, x))
    with pytest.raises(FederationError, match="calibrated for 2 steps"):
        private.gradient(model, x, cotangent, *model.network.inside(model.theta, x))


@pytest.mark.parametrize(("rows", "rate"), few_fast([(20, 0.3), (500, 0.01), (50, 1.0)]))
def test_poisson_batches_hold_every_row_at_its_rate_and_independently(rows: int, rate: float) -> None:
    rng, draws = stream(0, "batches"), 4000
    held = np.zeros((draws, rows))
    for draw in held:
        chosen = poisson(rows, rate, rng)
        assert (np.diff(chosen) > 0).all()
        draw[chosen] = 1
    error = math.sqrt(rate * (1 - rate) / draws)
    assert np.abs(held.mean(axis=0) - rate).max() <= 5 * error
    size = held.sum(axis=1)  # binomial: a fixed or shuffled batch has variance 0, with replacement rows repeat
    expected = rows * rate * (1 - rate)
    assert size.var() == pytest.approx(expected, rel=5 * math.sqrt(2 / draws) + 0.05)
    if rate < 1:
        together = float((held[:, 0] * held[:, 1]).mean())
        assert abs(together - rate**2) < 5 * math.sqrt(rate**2 / draws) + 1e-12


def test_how_often_a_duplicated_row_is_part_of_a_batch() -> None:
    """A row behind G joined rows, each drawn with probability r, is missed with probability (1 - r)^G."""
    assert part_of_a_batch(np.array([1, 3, 2]), 0.1) == pytest.approx(1 - 0.9**3)
    assert part_of_a_batch(np.array([5]), 1.0) == 1.0
    assert part_of_a_batch(np.zeros(0, dtype=np.int64), 0.5) == part_of_a_batch(np.zeros(0, dtype=np.int64), 1.0) == 0.0
    rng, counts = np.random.default_rng(0), np.array([1, 3, 6])
    behind, hit = np.repeat(np.arange(3), counts), np.zeros(3)
    for _ in range(4000):
        hit[np.unique(behind[poisson(10, 0.1, rng)])] += 1
    assert hit.max() / 4000 == pytest.approx(part_of_a_batch(counts, 0.1), abs=0.04)


# --- accounting -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("noise", "rate", "steps"), [(1.1, 0.01, 1000), (5.0, 0.2, 300), (20.0, 1.0, 50)])
def test_epsilon_is_opacus_and_dp_accountings(noise: float, rate: float, steps: int) -> None:
    from opacus.accountants import RDPAccountant  # a second for every worker that collects tests

    found = accountant.spent_epsilon([(noise, rate, steps)], 1e-5)
    opacus = RDPAccountant()
    opacus.history = [(noise, rate, steps)]
    assert found == pytest.approx(opacus.get_epsilon(delta=1e-5), rel=1e-12)
    event = dp_accounting.SelfComposedDpEvent(
        dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise)), steps
    )
    other = dp_accounting.rdp.RdpAccountant(orders=list(accountant.ORDERS)).compose(event).get_epsilon(1e-5)
    assert found == pytest.approx(other, rel=1e-6)


def test_the_orders_are_opacus_own() -> None:
    from opacus.accountants import RDPAccountant

    np.testing.assert_allclose(accountant.ORDERS, RDPAccountant.DEFAULT_ALPHAS)


def test_composition_and_edges() -> None:
    one, two = (1.5, 0.1, 20), (8.0, 1.0, 5)
    both = accountant.spent_epsilon([one, two], 1e-5)
    assert both > max(accountant.spent_epsilon([one], 1e-5), accountant.spent_epsilon([two], 1e-5))
    assert accountant.spent_epsilon([one, one], 1e-5) == pytest.approx(accountant.spent_epsilon([(1.5, 0.1, 40)], 1e-5))
    assert accountant.spent_epsilon([(1.5, 0.1, 0), (0.0, 0.0, 9)], 1e-5) == 0.0
    assert accountant.spent_epsilon([(0.0, 0.1, 1)], 1e-5) == math.inf


@pytest.mark.slow
def test_epsilon_grows_with_steps_and_with_less_noise_and_sigma_with_both() -> None:
    by_steps = [accountant.spent_epsilon([(2.0, 0.05, steps)], 1e-5) for steps in (1, 10, 100, 1000)]
    by_noise = [accountant.spent_epsilon([(noise, 0.05, 100)], 1e-5) for noise in (8.0, 4.0, 2.0, 1.0)]
    assert by_steps == sorted(set(by_steps)) and by_noise == sorted(set(by_noise))
    sigma = accountant.calibrate_steps
    assert (
        sigma(1.0, 1e-5, 0.02, 100)
        < sigma(1.0, 1e-5, 0.02, 400)
        < sigma(1.0, 1e-5, 0.08, 400)
        < sigma(0.5, 1e-5, 0.08, 400)
    )
    assert sigma(0.5, 1e-5, 0.08, 400) < sigma(0.5, 1e-6, 0.08, 400)


@pytest.mark.parametrize(
    ("target", "rate", "steps"),
    few_fast(
        [
            (1.0, 0.02, 500),
            (1.0, 1.0, 100),
            *(
                pytest.param(*other, marks=pytest.mark.slow)
                for other in ((8.0, 0.3, 60), (0.15, 0.01, 100), (1.0, 0.97, 9), (30.0, 0.001, 50))
            ),
        ]
    ),
)
def test_calibration_is_tight_and_never_overshoots(target: float, rate: float, steps: int) -> None:
    from opacus.accountants.utils import get_noise_multiplier

    noise = accountant.calibrate_steps(target, 1e-5, rate, steps)
    assert target * 0.99 < accountant.spent_epsilon([(noise, rate, steps)], 1e-5) <= target
    assert accountant.spent_epsilon([(noise * 0.997, rate, steps)], 1e-5) > target
    if target < 10:  # Opacus stops within 0.01 of epsilon, on the same side
        assert get_noise_multiplier(
            target_epsilon=target, target_delta=1e-5, sample_rate=rate, steps=steps, epsilon_tolerance=1e-4
        ) == pytest.approx(noise, rel=3e-3)


def test_targets_that_rdp_cannot_prove() -> None:
    least = least_epsilon(1e-5)
    assert least == pytest.approx(accountant.spent_epsilon([(1e6, 1.0, 1)], 1e-5), abs=1e-6)
    with pytest.raises(ValueError, match="RDP proves nothing below"):
        accountant.calibrate_steps(least, 1e-5, 0.1, 10)
    (problem,) = check_keys(privacy_config("dp_sgd", epsilon=0.1))
    assert problem.key == "privacy.epsilon" and "must be above 0.1029" in problem.allowed


# --- one party --------------------------------------------------------------------------------------------------------


def me(seed: int = 0) -> Any:
    return SimpleNamespace(
        secret_rng=lambda name: stream(seed, name), secret_torch_rng=lambda name: torch_stream(seed, name), privacy=None
    )


def party(
    config: Any, layout: str = "relational", rate: float = 0.1, steps: int = 50, by_server: bool = False, **more: Any
) -> TablePrivacy:
    private = make_mechanism(config, layout=layout)
    assert isinstance(private, TablePrivacy)
    private.prepare(me(), rate, steps, by_server, **{"releases": 1, **more})
    return private


def step(private: TablePrivacy, times: int = 1) -> torch.Tensor:
    assert private.steps is not None
    model, x, cotangent = made({"name": "linear"})
    for _ in range(times):
        found = private.steps.gradient(model, x, cotangent, *model.network.inside(model.theta, x))
    return found


def test_what_is_covered_is_said() -> None:
    private = party(privacy_config("tablepuppet", epsilon=1.0))
    assert private.spent()["epsilon"] == 0.0
    step(private, 50)
    spent = private.spent()
    assert {"mechanism", "epsilon", "delta", "unit", "neighbouring", "covers"} <= set(spent)
    assert (spent["mechanism"], spent["covers"], spent["neighbouring"], spent["delta"]) == (
        "tablepuppet",
        "model",
        "add_remove",
        1e-5,
    )
    assert spent["unit"] == "the features of one row of a table T_i" and "predictions sent over the wire" in "; ".join(
        spent["not_covered"]
    )
    assert "labels" not in spent["not_covered"] and spent["label_epsilon"] == 0.0  # this party has none
    assert 0.99 < spent["epsilon"] <= 1.0 and spent["steps"] == 50
    bare = party(privacy_config("dp_sgd", epsilon=1.0), layout="aligned", by_server=True).spent()
    assert "labels" in bare["not_covered"] and "the server, which draws the batches" in bare["not_covered"][-1]
    assert "the clients that it names their rows to" in bare["not_covered"][-1]  # they know the batches, too
    assert bare["unit"] == "the features of one row of the joined table" and "label_epsilon" not in bare
    labels = party(privacy_config("label_dp", label_noise=0.5))
    assert labels.steps is None and labels.spent()["epsilon"] == 0.0
    tables.protect_labels(SimpleNamespace(privacy=labels, secret_rng=me().secret_rng), np.array([0, 1]), 2)  # type: ignore[arg-type]
    spent = labels.spent()
    assert (spent["epsilon"], spent["delta"]) == (pytest.approx(5.657, abs=1e-3), 0.0)
    assert (spent["neighbouring"], spent["covers"], spent["unit"]) == (
        "replace_one",
        "transcript",
        "the label of one row of the label table",
    )
    assert any("labels of validation and test rows" in phrase for phrase in spent["not_covered"])


def test_noise_on_predictions_is_counted_and_composed() -> None:
    private = party(privacy_config("dp_sgd", noise_multiplier=3.0, prediction_noise=20.0, prediction_clip=0.5))
    assert private.predictions is not None
    step(private, 30)
    rows = torch.ones(4, 1, dtype=torch.float64)
    sent = [private.predictions.protect(rows, np.arange(4), torch_stream(0, "noise")) for _ in range(7)]
    assert float((sent[0] - 0.5).abs().max()) > 1  # clipped to 0.5, noise of deviation 10
    spent = private.spent()
    assert spent["covers"] == "transcript" and "predictions" not in "; ".join(spent["not_covered"])
    assert spent["model_epsilon"] == accountant.spent_epsilon([(3.0, 0.1, 30)], 1e-5)
    assert spent["prediction_epsilon"] == accountant.epsilon(math.sqrt(7) / 20.0, 1e-5)
    assert spent["epsilon"] == accountant.spent_epsilon([(3.0, 0.1, 30), (20.0, 1.0, 7)], 1e-5)
    assert max(spent["model_epsilon"], spent["prediction_epsilon"]) < spent["epsilon"]
    assert spent["epsilon"] < spent["model_epsilon"] + spent["prediction_epsilon"] + 0.2
    # a server that draws the batches knows who is in them: 7 of 30, each in full
    known = party(privacy_config("dp_sgd", noise_multiplier=3.0, prediction_noise=20.0), by_server=True)
    known.load_state_dict({**private.state_dict(), "drawn_by_server": True})
    assert (
        known.spent()["epsilon"] == accountant.spent_epsilon([(3.0, 1.0, 7), (20.0, 1.0, 7)], 1e-5) > spent["epsilon"]
    )


def test_state_continues() -> None:
    config = privacy_config("tablepuppet", epsilon=2.0, split=[0.3, 0.7])
    first, second = party(config), make_mechanism(config)
    assert isinstance(second, TablePrivacy) and first.labels is not None and first.predictions is not None
    first.labels.protect(np.array([0, 1]), 2, stream(0, "noise"))
    first.predictions.protect(torch.ones(2, 1), np.arange(2), torch_stream(0, "noise"))
    step(first, 20)
    second.load_state_dict(first.state_dict())
    second.prepare(me(), 0.1, 50, False)  # the program does, again
    assert second.spent() == first.spent() and second.spent()["steps"] == 20
    step(second, 30)
    with pytest.raises(FederationError, match="calibrated for 50"):
        step(second)


def test_a_party_without_rows_hides_nothing() -> None:
    private = party(privacy_config("dp_sgd", epsilon=1.0), rate=0.0)
    assert private.steps is not None and private.steps.noise_multiplier == 0.0 and private.spent()["epsilon"] == 0.0


def test_the_summary_names_the_largest_and_every_party() -> None:
    few, many = (
        party(privacy_config("tablepuppet", noise_multiplier=2.0, label_noise=0.5)),
        party(privacy_config("tablepuppet", noise_multiplier=2.0, label_noise=0.5)),
    )
    assert few.labels is not None
    few.labels.protect(np.array([0, 1]), 2, stream(0, "noise"))
    step(few), step(many, 9)
    spent = {"client_0": few.spent(), "client_1": many.spent()}
    together = mechanisms.together(spent)
    assert together is not None and together["epsilon"] == spent["client_1"]["epsilon"] and together["steps"] == 9
    assert together["label_epsilon"] == pytest.approx(5.657, abs=1e-3)  # the other party's
    assert together["epsilon_by_party"] == {name: s["epsilon"] for name, s in spent.items()}
    assert mechanisms.together({}) is None


@pytest.mark.parametrize(
    ("name", "keys", "wrong"),
    [
        ("label_dp", {}, []),
        ("dp_sgd", {"epsilon": 1.0}, []),
        ("tablepuppet", {"noise_multiplier": 1.0, "prediction_noise": 2.0}, []),
        ("label_dp", {"label_noise": 0.0, "rating_classes": 4}, ["label_noise", "rating_classes"]),
        ("dp_sgd", {}, []),
        ("dp_sgd", {"delta": None}, []),
        ("dp_sgd", {"epsilon": math.inf}, []),
        ("label_dp", {"epsilon": 1.0, "label_noise": 1.0}, ["privacy.epsilon"]),
        ("dp_sgd", {"epsilon": 1.0, "prediction_noise": 2.0}, ["privacy.prediction_noise"]),
        ("dp_sgd", {"split": [0.25, 0.75]}, []),
        ("tablepuppet", {"split": [0.5, 0.6]}, ["privacy.split"]),
        ("tablepuppet", {"split": [1.0, 0.0]}, ["privacy.split"]),
        ("dp_sgd", {"split": [1.0]}, ["privacy.split"]),
        ("dp_sgd", {"split": [0.5, 0.5], "noise_multiplier": 1.0, "prediction_noise": 1.0}, ["privacy.split"] * 2),
        ("tablepuppet", {"epsilon": 1.0, "label_noise": 1.0}, []),
        ("tablepuppet", {"epsilon": 1.0, "noise_multiplier": 1.0}, ["privacy.epsilon"]),
        ("tablepuppet", {"epsilon": 1.0, "clip": 0.0, "label_noise": -1.0}, ["label_noise", "clip"]),
        (
            "dp_sgd",
            {"epsilon": 1.0, "prediction_noise": 0.0, "prediction_clip": math.inf},
            ["prediction_noise", "prediction_clip"],
        ),
    ],
)
def test_check(name: str, keys: dict[str, Any], wrong: list[str]) -> None:
    assert [problem.key for problem in check_keys(privacy_config(name, **keys))] == wrong
