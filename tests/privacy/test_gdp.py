"""`gdp_embedding`: its noise, its bound on publications, what it reports, what it refuses."""

import math

import numpy as np
import pytest
import torch
from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.options import check_keys, make_mechanism, privacy_config
from vflbench import config as configuration
from vflbench.privacy import accountant
from vflbench.privacy.gdp import GdpEmbedding
from vflbench.seeding import torch_stream
from vflbench.types import ConfigError, FederationError


def mechanism(
    epochs: int = 3, batch_size: int | None = None, samples: int | None = None, **keys: object
) -> GdpEmbedding:
    made = make_mechanism(privacy_config("gdp_embedding", **keys), epochs, "aligned", batch_size, samples)  # type: ignore[arg-type]
    assert isinstance(made, GdpEmbedding)
    return made


def generator() -> torch.Generator:
    return torch_stream(0, "noise/passive_1")


# One may read 24.39, 66.12 and 92.65 for mu = 4, 8 and 10: those are not the epsilons of the formula.
VECTORS = {0.1: 0.341, 0.35: 1.341, 0.5: 1.993, 1.0: 4.377, 2.0: 9.997, 4.0: 24.3816, 8.0: 65.319, 10.0: 91.817}


@pytest.mark.parametrize(("mu", "epsilon"), VECTORS.items())
def test_mu_is_this_epsilon_at_1e_5(mu: float, epsilon: float) -> None:
    found = accountant.epsilon(mu, 1e-5)
    assert found == pytest.approx(epsilon, abs=6e-4)
    # delta(epsilon) of another library's analytic Gaussian mechanism
    assert GaussianPrivacyLoss(standard_deviation=1 / mu).get_delta_for_epsilon(found) == pytest.approx(1e-5, rel=1e-6)


def test_noise_by_hand() -> None:
    # R = 16 epochs; sigma = 2 C sqrt(16) / mu = 8 C / 0.5 = 16 C
    private = mechanism(16, mu=0.5, clip=3.0)
    assert (private.limit, private.noise_multiplier, private.norm) == (16, 16.0, 3.0)
    # paper: K = 4 epochs * 25 batches = 100; sigma = 2 C * 40 * sqrt(100) / (0.5 * 1000) = 1.6 C
    paper = mechanism(4, 40, 1000, mu=0.5, clip=3.0, calibration="paper")
    assert (paper.limit, paper.noise_multiplier) == (4, pytest.approx(1.6))
    # 1001 rows: one more batch an epoch, K = 104
    assert mechanism(4, 40, 1001, mu=0.5, calibration="paper").noise_multiplier == pytest.approx(
        2 * 40 * math.sqrt(104) / (0.5 * 1001)
    )
    # a batch is at most all rows: N_m = N, K = 4
    assert mechanism(4, 40, 10, mu=0.5, calibration="paper").noise_multiplier == pytest.approx(2 * math.sqrt(4) / 0.5)
    # a target epsilon stands for its mu
    assert mechanism(4, epsilon=4.377).noise_multiplier == pytest.approx(2 * math.sqrt(4), rel=1e-3)
    assert mechanism(4, 40, 1000, epsilon=4.377, calibration="paper").noise_multiplier == pytest.approx(0.8, rel=1e-3)
    assert mechanism(4, noise_multiplier=3.0).noise_multiplier == 3.0


def test_noise_moments() -> None:
    # n draws of N(0, s^2): the standard deviation's standard error is s / sqrt(2n); 4.5 of it
    private = mechanism(1, mu=2.0, clip=0.5)
    rows = torch.full((4000, 50), 3.0, dtype=torch.float64)
    residual = private.protect(rows, np.arange(4000), generator()) - private.clip(rows)
    assert abs(residual.std() - 0.5) < 4.5 * 0.5 / math.sqrt(2 * residual.numel())  # 2 * 0.5 * sqrt(1) / 2
    again = private.noised(rows, generator()) - private.clip(rows)
    assert torch.equal(again, residual) and private.releases == 1  # the same noise, counted by nobody


@settings(deadline=None, max_examples=10)
@given(st.floats(0.05, 10.0), st.integers(1, 6), st.integers(0, 2))
def test_the_whole_budget_is_mu(mu: float, epochs: int, retries: int) -> None:
    private, row, rng = mechanism(epochs, mu=mu), torch.ones(1, 2), generator()
    assert private.spent()["mu"] == 0.0 == private.spent()["epsilon"]
    for epoch in range(epochs):
        assert private.spent()["mu"] == pytest.approx(mu * math.sqrt(epoch / epochs))
        sent = private.protect(row, np.array([7]), rng, release=epoch)
        for _ in range(retries):  # of another parameter vector, and still the same row
            assert torch.equal(private.protect(2 * row, np.array([7]), rng, release=epoch), sent)
    spent = private.spent()
    assert spent["mu"] == pytest.approx(mu, rel=1e-12) and spent["epsilon"] == accountant.epsilon(spent["mu"], 1e-5)
    assert spent["spent_of_target"] == pytest.approx(1, rel=1e-12)
    with pytest.raises(FederationError, match="row 7 would be released"):
        private.protect(row, np.array([7]), rng, release=epochs)
    assert private.releases == epochs


def test_a_row_that_is_asked_for_once_more_is_sent_as_it_was() -> None:
    private, rng = mechanism(2), generator()
    first = private.protect(torch.ones(3, 2), torch.tensor([0, 40, 2]), rng, release=1)
    mixed = private.protect(torch.ones(3, 2), torch.tensor([2, 1, 0]), rng, release=1)  # 1 is new
    assert torch.equal(mixed[[0, 2]], first[[2, 0]]) and private.counts[[0, 1, 2, 40]].tolist() == [1, 1, 1, 1]
    restored = mechanism(2)
    restored.load_state_dict(private.state_dict())
    for one in (private, restored):
        assert torch.equal(one.protect(torch.ones(1, 2), [1], rng, release=1), mixed[[1]])  # type: ignore[arg-type]
    private.forget()
    assert private.state_dict()["kept"] == {}
    fresh = private.protect(torch.ones(1, 2), [1], rng, release=2)  # type: ignore[arg-type]
    assert not torch.equal(fresh, mixed[[1]]) and private.counts[1] == 2 and restored.counts[1] == 1


def test_what_it_says() -> None:
    private = mechanism(4, mu=1.0)
    private.protect(torch.ones(2, 3), [4, 5], generator())  # type: ignore[arg-type]
    spent = private.spent()
    assert (spent["mechanism"], spent["neighbouring"], spent["covers"]) == (
        "gdp_embedding",
        "replace_one",
        "transcript",
    )
    assert (spent["target"], spent["calibration"], spent["guaranteed"]) == ({"mu": 1.0}, "guaranteed", True)
    assert (spent["releases"], spent["mu"]) == ({"planned": 4, "done": 1}, pytest.approx(0.5))
    for word in ("gradients", "labels", "evaluation", "how often a batch is tried again", "through the bottom model"):
        assert word in "; ".join(spent["not_covered"])


def test_the_papers_formula_is_reported_for_what_it_is_worth() -> None:
    """It takes credit for sampling batches, so its noise is sqrt(N_m / N) of what one publication an epoch needs."""
    epochs, batch_size, samples = 4, 10, 1000
    paper = mechanism(epochs, batch_size, samples, mu=1.0, calibration="paper")
    honest = mechanism(epochs, mu=1.0)
    assert paper.noise_multiplier == pytest.approx(honest.noise_multiplier * math.sqrt(batch_size / samples))
    for _ in range(epochs):
        paper.protect(torch.ones(1, 2), [0], generator())  # type: ignore[arg-type]
    spent = paper.spent()
    assert (spent["target"], spent["calibration"], spent["guaranteed"]) == ({"mu": 1.0}, "paper", False)
    assert spent["spent_of_target"] == spent["mu"]
    assert spent["mu"] == pytest.approx(math.sqrt(samples / batch_size))  # 10 where 1 was asked for
    assert spent["epsilon"] == pytest.approx(91.817, abs=1e-3)


@pytest.mark.parametrize("calibration", ["guaranteed", "paper"])
def test_no_noise_with_infinite_mu(calibration: str) -> None:
    private, rows = (
        mechanism(2, 10, 100, mu=math.inf, calibration=calibration),
        5 * torch.randn(6, 3, generator=generator()),
    )
    assert torch.equal(private.protect(rows, np.arange(6), generator()), private.clip(rows))
    spent = private.spent()
    assert spent["epsilon"] == spent["mu"] == math.inf and not spent["guaranteed"]
    assert spent["not_covered"][0] == "the embeddings: they are clipped and get no noise"
    assert spent["spent_of_target"] is None


@pytest.mark.parametrize(
    ("keys", "wrong"),
    [
        ({"mu": 0.1}, []),
        ({"mu": math.inf, "calibration": "paper"}, []),
        ({"mu": 0.0}, ["mu"]),
        ({"mu": -1.0}, ["mu"]),
        ({"mu": math.nan}, ["mu"]),
        ({"clip": 0.0}, ["clip"]),
        ({"clip": math.inf}, ["clip"]),
        ({"delta": 0.0}, ["privacy.delta"]),
        ({"delta": 1.0}, ["privacy.delta"]),
        ({"mu": 1.0, "epsilon": 1.0}, ["privacy.epsilon"]),
        ({"calibration": "papper"}, ["calibration"]),
        ({"clip": -1.0, "delta": 2.0, "mu": 0.0}, ["clip", "mu"]),
    ],
)
def test_check(keys: dict, wrong: list[str]) -> None:
    assert [problem.key for problem in check_keys(privacy_config("gdp_embedding", **keys))] == wrong


def test_an_algorithm_must_say_what_it_publishes() -> None:
    with pytest.raises(ConfigError, match="max_releases"):
        make_mechanism(privacy_config("gdp_embedding"))
    with pytest.raises(ConfigError, match="needs an algorithm with batches"):
        make_mechanism(privacy_config("gdp_embedding", calibration="paper"), 10)


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("privacy.mu=much", "privacy.mu=much: must be a number"),
        ("privacy.epsilon=-1", "privacy.epsilon=-1.0: must be greater than 0, or null"),
        ("privacy.calibration=papper", "must be one of guaranteed, paper. Did you mean 'paper'?"),
        ("privacy.clip=inf", "privacy.clip=inf: must be a number"),
    ],
)
def test_what_is_typed_is_checked(typed: str, message: str) -> None:
    overrides = ["privacy=gdp_embedding", typed]
    with configuration.session(overrides) as hydra, pytest.raises(ConfigError) as error:
        configuration.plan(hydra, overrides)
    assert message in str(error.value)


def test_infinity_may_be_typed() -> None:
    overrides = ["privacy=gdp_embedding", "privacy.mu=inf"]
    with configuration.session(overrides) as hydra:
        found = configuration.to_config(configuration.plain(configuration.compose(hydra, overrides)))
    assert found.privacy.mu == math.inf
