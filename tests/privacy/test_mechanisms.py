"""Clipping, noise, counting and checks of `gaussian_embedding`."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import vflbench
from tests.options import check_keys, make_mechanism, privacy_config
from vflbench.privacy.gaussian import GaussianEmbedding
from vflbench.seeding import torch_stream
from vflbench.types import ConfigError, FederationError, VflbenchError


def mechanism(
    clip: float = 1.0, noise: float = 1.0, neighbouring: str = "replace_one", limit: int | None = None
) -> GaussianEmbedding:
    return GaussianEmbedding(clip, noise, 1e-5, neighbouring, limit)


def generator() -> torch.Generator:
    return torch_stream(0, "noise/client_0")


def test_clipping_by_hand() -> None:
    # norms 5, 0.5, 0, 2 against clip 2: the first is scaled by 2/5, the others are as they were
    rows = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0], [0.0, -2.0]], dtype=torch.float64)
    clipped = mechanism(clip=2.0).clip(rows)
    assert torch.allclose(clipped[0], torch.tensor([1.2, 1.6], dtype=torch.float64), rtol=0, atol=1e-15)
    assert torch.equal(clipped[1:], rows[1:])


@given(st.integers(0, 2**32), st.floats(1e-2, 1e2), st.floats(1e-3, 1e6))
def test_clipping_bounds_every_norm(seed: int, clip: float, scale: float) -> None:
    rows = scale * torch.randn(5, 7, generator=torch.Generator().manual_seed(seed))
    clipped = mechanism(clip=clip).clip(rows)
    assert (clipped.norm(dim=1) <= clip * (1 + 1e-6)).all()
    short = rows.norm(dim=1) <= clip * (1 - 1e-6)
    assert torch.equal(clipped[short], rows[short])


def test_clipping_has_finite_gradients() -> None:
    rows = torch.tensor([[3.0, 4.0], [0.0, 0.0], [0.1, 0.0]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda r: mechanism().clip(r)[[0, 2]], (rows,))
    (grad,) = torch.autograd.grad(mechanism().clip(rows).sum(), rows)
    # inside the ball clipping is the identity, at 0 too
    assert torch.equal(grad[1], torch.ones(2, dtype=torch.float64))


def test_noise_moments() -> None:
    # n draws of N(0, s^2): the mean's standard error is s/sqrt(n), the standard deviation's s/sqrt(2n); 4.5 of each
    n, d, clip, noise = 4000, 50, 2.0, 1.5
    rows = torch.nn.functional.normalize(torch.ones(n, d, dtype=torch.float64)) * 10
    private = mechanism(clip, noise)
    sent = private.protect(rows, np.arange(n), generator())
    residual = sent - private.clip(rows)
    sigma, count = noise * clip, n * d
    assert abs(residual.mean()) < 4.5 * sigma / math.sqrt(count)
    assert abs(residual.std() - sigma) < 4.5 * sigma / math.sqrt(2 * count)
    # independent over rows and columns: correlation of neighbours has standard error 1/sqrt(count)
    for a, b in ((residual[1:], residual[:-1]), (residual[:, 1:], residual[:, :-1])):
        assert abs((a * b).mean() / sigma**2) < 4.5 / math.sqrt(a.numel())


def test_no_noise_is_clipping_and_no_guarantee() -> None:
    rows = torch.randn(6, 3, generator=generator())
    private = mechanism(noise=0.0)
    assert torch.equal(private.protect(rows, np.arange(6), generator()), private.clip(rows))
    assert private.spent()["epsilon"] == math.inf
    noisy = mechanism(noise=1.0)
    assert not torch.equal(noisy.protect(rows, np.arange(6), generator()), private.clip(rows))
    assert math.isfinite(noisy.spent()["epsilon"])


def test_protect_detaches_copies_and_is_reproducible() -> None:
    rows = torch.full((2, 3), 0.1, requires_grad=True)
    private = mechanism(noise=0.0)
    sent = private.protect(rows, torch.tensor([0, 1]), generator())
    assert not sent.requires_grad and sent.data_ptr() != rows.data_ptr()
    noisy = mechanism()
    first, again = (noisy.protect(rows, [0, 1], generator()) for _ in range(2))  # type: ignore[arg-type]
    assert torch.equal(first, again) and first.dtype == rows.dtype


def test_counts_releases() -> None:
    private = mechanism(noise=4.0)
    assert private.spent()["epsilon"] == 0.0 and private.releases == 0
    ones = torch.ones(3, 2)
    private.protect(ones, torch.tensor([0, 2, 2]), generator())  # an id that is there twice is released twice
    private.protect(ones, np.array([7, 2, 0]), generator())
    private.protect(torch.ones(0, 2), np.zeros(0, dtype=np.int64), generator())
    assert private.counts.tolist() == [2, 0, 3, 0, 0, 0, 0, 1] and private.counts.dtype == np.int64
    spent = private.spent()
    assert spent["releases"] == {"planned": None, "done": 3}
    assert spent["mu"] == pytest.approx(math.sqrt(3) * 2.0 / 4.0)  # replace_one: a clipped row moves by at most 2 clip
    assert {"mechanism", "epsilon", "delta", "unit", "neighbouring", "covers"} <= set(spent) and spent[
        "covers"
    ] == "transcript"
    half = mechanism(noise=4.0, neighbouring="add_remove")
    half.load_state_dict(private.state_dict())
    assert half.spent()["mu"] == pytest.approx(math.sqrt(3) * 1.0 / 4.0)


def test_state_continues() -> None:
    whole, first, second = mechanism(), mechanism(), mechanism()
    rows = torch.ones(2, 2)
    whole.protect(rows, [0, 5], generator())  # type: ignore[arg-type]
    first.protect(rows, [0, 5], generator())  # type: ignore[arg-type]
    saved = first.state_dict()
    first.protect(rows, [0, 5], generator())  # type: ignore[arg-type]
    second.load_state_dict(saved)  # untouched by what came after the checkpoint
    for private in (whole, second):
        private.protect(rows, [5, 1], generator())  # type: ignore[arg-type]
    assert whole.spent() == second.spent() and whole.counts.tolist() == second.counts.tolist() == [1, 1, 0, 0, 0, 2]


@pytest.mark.parametrize("ids", [[0], [0, -1], [[0, 1]]])
def test_ids_must_fit(ids: list[int]) -> None:
    with pytest.raises(ValueError, match="need one id each"):
        mechanism().protect(torch.ones(2, 2), np.array(ids), generator())


@pytest.mark.slow
@settings(deadline=None, max_examples=15)
@given(st.floats(0.05, 100.0), st.integers(1, 60))
def test_target_is_kept_and_its_bound_enforced(target: float, bound: int) -> None:
    private = make_mechanism(privacy_config("gaussian_embedding", clip=0.7, epsilon=target), bound)
    assert private is not None
    row, rng = torch.ones(1, 2), generator()
    for _ in range(bound):
        private.protect(row, np.array([3]), rng)
    assert private.spent()["epsilon"] <= target
    assert private.spent()["epsilon"] == pytest.approx(target, rel=1e-5)
    with pytest.raises(FederationError, match=f"row 3 would be released {bound + 1} times"):
        private.protect(row, np.array([3]), rng)
    assert private.releases == bound


def test_make() -> None:
    assert make_mechanism(privacy_config(), None) is None
    given_noise = make_mechanism(privacy_config("gaussian_embedding", noise_multiplier=0.5), 10)
    assert given_noise is not None and given_noise.noise_multiplier == 0.5 and given_noise.limit is None
    with pytest.raises(ConfigError, match="bounds how often a row is released"):
        make_mechanism(privacy_config("gaussian_embedding", epsilon=1.0), None)


@pytest.mark.parametrize(
    ("keys", "wrong"),
    [
        ({"epsilon": 1.0}, []),
        ({"noise_multiplier": 0.0, "neighbouring": "add_remove"}, []),
        ({}, []),
        ({"epsilon": 1.0, "noise_multiplier": 1.0}, ["privacy.epsilon"]),
        ({"mu": 1.0, "noise_multiplier": 1.0}, ["privacy.mu"]),
        ({"epsilon": 0.0}, ["epsilon"]),
        ({"epsilon": math.inf}, []),
        ({"mu": math.inf, "delta": None}, []),
        ({"noise_multiplier": -1.0}, ["noise_multiplier"]),
        ({"epsilon": 1.0, "clip": 0.0}, ["clip"]),
        ({"epsilon": 1.0, "clip": math.nan}, ["clip"]),
        ({"epsilon": 1.0, "delta": 0.0}, ["privacy.delta"]),
        ({"epsilon": 1.0, "delta": 1.0}, ["privacy.delta"]),
        ({"clip": -1.0, "delta": 2.0, "neighbouring": "replace"}, ["clip", "neighbouring"]),
    ],
)
def test_check(keys: dict, wrong: list[str]) -> None:
    assert [problem.key for problem in check_keys(privacy_config("gaussian_embedding", **keys))] == wrong


@pytest.mark.parametrize("plus", ["", "+"])
def test_a_key_of_another_mechanism_is_refused_by_name(plus: str) -> None:
    words = [
        "algorithm=glasu",
        "dataset=digits_graph",
        "privacy=gaussian_embedding",
        "privacy.noise_multiplier=1",
        f"{plus}privacy.calibration=paper",
    ]
    with pytest.raises(
        ConfigError,
        match=r"^privacy\.calibration=paper: privacy=gaussian_embedding has no such key; "
        r"embedding_and_label, gdp_embedding have it\.$",
    ):
        vflbench.run(words)


def test_what_lacks_what_every_mechanism_has_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vflbench.privacy.gaussian.make", lambda config, facts: object())
    with pytest.raises(
        VflbenchError, match=r"gaussian\.py: what make returns has no spent, state_dict, load_state_dict"
    ):
        make_mechanism(privacy_config("gaussian_embedding", noise_multiplier=1.0))


def test_a_row_beyond_the_limit_is_sent_as_it_was_last_of_its_kind() -> None:
    private = make_mechanism(privacy_config("gaussian_embedding", epsilon=8.0, release_quantile=0.5), 9)
    private.plan(np.array([1, 1, 1, 1, 5, 0, 0]))
    assert private.limit == private.planned == 1
    rows, rng = torch.ones(2, 3), generator()
    first = private.protect(rows, np.array([4, 0]), rng, place="layer 1")
    again = private.protect(2 * rows, np.array([4, 1]), rng, place="layer 1")
    assert torch.equal(again[0], first[0]) and not torch.equal(again[1], first[1])
    other = private.protect(rows, np.array([4, 2]), rng, place="layer 2")  # never sent at this place: nothing is told
    assert torch.equal(other[0], torch.zeros(3)) and private.counts.tolist() == [1, 1, 1, 0, 1]
    restored = make_mechanism(privacy_config("gaussian_embedding", epsilon=8.0, release_quantile=0.5), 9)
    restored.load_state_dict(private.state_dict())
    assert torch.equal(restored.protect(rows, np.array([4, 3]), rng, place="layer 1")[0], first[0])
    assert restored.limit == 1 and restored.noise_multiplier == private.noise_multiplier
    assert private.spent()["epsilon"] <= 8.0
