"""privacy.secure_rng: noise and private batches come from a secret of each party; without it any party subtracts
another's noise."""

from __future__ import annotations

import errno
import os
import pickle
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

import vflbench
from vflbench import config, registry, seeding
from vflbench.federation.snapshot import Cut
from vflbench.privacy import accountant
from vflbench.privacy.gradients import poisson
from vflbench.privacy.tables import NoisyLabels
from vflbench.runner.evaluate import Observer
from vflbench.runner.run import Federation
from vflbench.seeding import Secret, key_file
from vflbench.types import FederationError, VflbenchError

GLASU = [
    "algorithm=glasu",
    "dataset=digits_graph",
    "model.hidden=8",
    "algorithm.local_steps=1",
    "eval_every=1",
    "plot=none",
]
NOISY = [*GLASU, "privacy=gaussian_embedding", "privacy.noise_multiplier=0.5"]
SGD = [
    "algorithm=vfl_sgd",
    "dataset=breast_cancer",
    "dataset.problem=learning",
    "privacy=dp_sgd",
    "privacy.epsilon=null",
    "privacy.noise_multiplier=1",
    "algorithm.batch_size=64",
]


@pytest.fixture(autouse=True)
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[Path]]:
    """The files with keys that there are, which are this test's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("vflbench.plots.curves.draw_run", lambda folder, *_: None)
    return lambda: sorted((tmp_path / "state" / "vflbench" / "secrets").glob("*"))


def known_key(byte: int = 0) -> Secret:
    secret = Secret()
    secret.key = bytes([byte]) * seeding.KEY_BYTES
    return secret


class Heard:
    """A simulated run, and every message that was read in it."""

    def __init__(self, *words: str, **options: Any) -> None:
        with config.session(words) as hydra:
            self.config = config.plan(hydra, list(words)).config
        assert self.config is not None
        self.federation = Federation(self.config, registry.algorithms()[self.config.algorithm.name])
        self.messages: list[tuple[str, str, int, Any]] = []
        self.engine = self.federation.engine(on_read=self.hear, **options)
        self.engine.run()

    def hear(self, src: str, _: str, tag: str, round: int, payload: Any) -> None:
        self.messages.append((src, tag, round, payload))

    def of(self, src: str, tag: str) -> list[Any]:
        return [payload for source, kind, _, payload in self.messages if (source, kind) == (src, tag)]


# --- the generator ----------------------------------------------------------------------------------------------------


def test_the_numbers_have_the_distributions_that_they_are_asked_for() -> None:
    """At level 1e-3 of Kolmogorov and Smirnov's test; the key is fixed, so the outcome is."""
    stream = known_key().stream("noise")
    assert stats.kstest(stream.random(100_000), "uniform").pvalue > 1e-3
    normal = stream.normal(2.0, (400, 500))
    assert stats.kstest(normal.ravel() / 2, "norm").pvalue > 1e-3
    assert normal.var() == pytest.approx(4, rel=0.01) and stats.kurtosis(normal, axis=None) == pytest.approx(
        0, abs=0.05
    )
    assert abs(np.corrcoef(normal.ravel()[:-1], normal.ravel()[1:])[0, 1]) < 0.01
    assert stats.kstest(stream.laplace(3.0, (50_000, 2)).ravel(), "laplace", args=(0, 3)).pvalue > 1e-3
    assert isinstance(float(stream.normal(scale=2.0)), float)


def test_long_draws_are_of_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeding, "AT_ONCE", 1000)
    draw = known_key().stream("noise").normal(size=(7, 500))
    assert draw.shape == (7, 500) and len(np.unique(draw)) == 3500
    assert known_key().stream("noise").normal(size=(0, 3)).shape == (0, 3)


def test_streams_differ_by_key_by_name_and_from_draw_to_draw() -> None:
    secret = known_key()
    draws = [secret.stream("noise").random(50), secret.stream("noise").random(50), secret.stream("batches").random(50)]
    draws += [
        known_key(1).stream("noise").random(50),
        Secret().stream("noise").random(50),
        Secret().stream("noise").random(50),
    ]
    assert len(np.unique(np.concatenate(draws))) == 300
    np.testing.assert_array_equal(draws[0], known_key().stream("noise").random(50))


def test_poisson_batches_and_noisy_labels_of_a_secret_are_those_of_the_mechanism() -> None:
    stream, rows, rate = known_key().stream("batches"), 500, 0.2
    batches = [poisson(rows, rate, stream) for _ in range(400)]
    assert all((np.diff(batch) > 0).all() and batch.dtype == np.int64 for batch in batches)
    sizes = np.array([len(batch) for batch in batches])
    assert sizes.mean() == pytest.approx(rows * rate, abs=1.5) and sizes.var() == pytest.approx(
        rows * rate * (1 - rate), rel=0.2
    )
    counts = np.bincount(np.concatenate(batches), minlength=rows)
    assert stats.chisquare(counts).pvalue > 1e-3
    assert len(poisson(rows, 1.0, stream)) == rows and len(poisson(rows, 0.0, stream)) == 0
    labels = np.arange(20_000) % 3
    kept = {
        name: np.mean(NoisyLabels(1.0, 5).protect(labels, 3, rng) == labels)
        for name, rng in {"secret": stream, "seed": np.random.default_rng(0)}.items()
    }
    assert kept["secret"] == pytest.approx(kept["seed"], abs=0.015)


# --- its key ----------------------------------------------------------------------------------------------------------


def test_a_key_is_kept_where_its_user_alone_may_read_it(keys: Callable[[], list[Path]]) -> None:
    secret = Secret()
    before = secret.stream("noise").random(3)
    secret.keep()
    (path,) = keys()
    assert path == key_file(str(secret.kept)) and path.read_bytes() == secret.key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    state, after = secret.state_dict(), secret.stream("noise").random(3)
    assert secret.key not in pickle.dumps(state) and secret.key.hex() not in repr(state)
    other = Secret()
    held = other.stream("noise")  # a program may hold it before its state is back
    other.load_state_dict(state)
    np.testing.assert_array_equal(held.random(3), after)
    assert not np.array_equal(before, after)
    seeding.forget(secret.kept)
    assert keys() == []
    seeding.forget(secret.kept)
    with pytest.raises(VflbenchError, match="not on this machine"):
        Secret().load_state_dict(state)


@pytest.mark.parametrize("name", ["", "../../precious", "/etc/passwd", "A" * 32, "0" * 31])
def test_a_name_from_a_checkpoint_leads_to_no_other_file(name: str, tmp_path: Path) -> None:
    precious = tmp_path / "state" / "precious"
    precious.parent.mkdir()
    precious.write_bytes(b"mine")
    with pytest.raises(FileNotFoundError) as error:
        key_file(name)
    assert error.value.errno == errno.ENOENT
    seeding.forget(name)
    assert precious.read_bytes() == b"mine"


# --- the attack -------------------------------------------------------------------------------------------------------


def subtracted(run: Heard, clean: torch.Tensor) -> float:
    """How far from client_0's first embedding another party gets that subtracts the noise of the seed; the noise itself
    has length 1."""
    sent = run.of("client_0", "embedding")[0]
    noise = 0.5 * torch.randn(sent.shape, generator=seeding.torch_stream(run.config.seed, "noise/client_0"))  # type: ignore[union-attr]
    return float((sent - noise - clean).norm() / noise.norm())


def test_noise_of_the_seed_can_be_subtracted_and_noise_of_a_secret_cannot() -> None:
    clean = Heard(*GLASU, "privacy=gaussian_embedding", "privacy.noise_multiplier=0", "rounds=1").of(
        "client_0", "embedding"
    )[0]
    open_noise, hidden = Heard(*NOISY, "rounds=1"), Heard(*NOISY, "rounds=1", "privacy.secure_rng=true")
    assert subtracted(open_noise, clean) < 1e-6
    assert subtracted(hidden, clean) > 1.3  # two independent noises: sqrt(2)
    residual = hidden.of("client_0", "embedding")[0] - clean
    assert float(residual.std()) == pytest.approx(0.5, rel=0.05) and float(residual.mean()) == pytest.approx(
        0, abs=0.05
    )


def test_equal_seeds_give_other_noise_and_equal_everything_else() -> None:
    one, other = (Heard(*NOISY, "rounds=1", "privacy.secure_rng=true") for _ in range(2))
    assert not torch.equal(one.of("client_0", "embedding")[0], other.of("client_0", "embedding")[0])
    for run in (one, other):
        assert run.federation.secure and {party.secret.key for party in run.engine.order if party.secret} != {None}
    keys = [party.secret.key for run in (one, other) for party in run.engine.order if party.secret]
    assert len(set(keys)) == len(keys) == 2 * len(one.engine.order)
    # sent in clear: nothing rests on it
    np.testing.assert_array_equal(one.of("server", "batch")[0], other.of("server", "batch")[0])
    assert [message[:3] for message in one.messages] == [message[:3] for message in other.messages]
    plain = Heard(*GLASU, "rounds=1")
    np.testing.assert_array_equal(plain.of("server", "batch")[0], one.of("server", "batch")[0])


def test_nothing_that_others_see_holds_a_partys_key(keys: Callable[[], list[Path]]) -> None:
    cuts: list[Cut] = []
    run = Heard(*NOISY, "rounds=3", "privacy.secure_rng=true", checkpoint_every=1, on_cut=cuts.append)
    assert len(cuts) == 2 and len(keys()) == len(run.engine.order)
    for party in run.engine.order:
        assert party.secret is not None
        others = {name: cut.parties[name] for cut in cuts for name in cut.parties}
        seen = pickle.dumps((run.config, run.messages, others, run.federation.task.public, list(run.federation.specs)))
        assert party.secret.key not in seen and party.secret.key.hex().encode() not in seen


def test_batches_that_an_accountant_takes_credit_for_are_secret_too() -> None:
    """vfl_sgd: the server draws them, and other clients would know them from the seed. Labels and parameters at the
    start stay equal."""
    found = {}
    for secure in ("false", "true"):
        run = Heard(*SGD, f"privacy.secure_rng={secure}", "rounds=1")
        samples, size = run.federation.task.public.samples, run.config.algorithm.batch_size  # type: ignore[union-attr]
        expected = poisson(samples, min(1.0, size / samples), seeding.stream(0, "batches/server"))
        found[secure] = np.array_equal(run.of("server", "rows")[0], expected)
    assert found == {"false": True, "true": False}


def test_batches_of_workers_are_secret_too() -> None:
    words = [
        "algorithm=local_sgd",
        "dataset=digits",
        "model.widths=[8]",
        "algorithm.workers=3",
        "privacy=dp_sgd",
        "rounds=1",
    ]
    run = Heard(*words, "privacy.epsilon=null", "privacy.noise_multiplier=1", "privacy.secure_rng=true")
    for party in run.engine.order:
        assert party.secret is not None
        drawn = party.secret.state_dict()["drawn"]
        assert not party.name.startswith("worker") or (drawn["batches"] > 0 and drawn["noise"] > 0)


# --- runs -------------------------------------------------------------------------------------------------------------


def interrupted(words: list[str], monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """The run, which fails in its observer once `after` rounds are finished."""
    on_round = Observer.on_round

    def fails(self: Observer, round: int, engine: Any) -> bool:
        if round > after:
            raise FederationError("the power is off")
        return on_round(self, round, engine)

    with monkeypatch.context() as patch:
        patch.setattr(Observer, "on_round", fails)
        with pytest.raises(FederationError, match="the power is off"):
            vflbench.run(words)


@pytest.mark.slow
def test_a_resumed_run_keeps_the_noise_that_it_had_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It rehearses nothing again; rows beyond the quantile go on repeating what was sent before the checkpoint."""
    words = [*GLASU, "privacy=gaussian_embedding", "privacy.release_quantile=0.5", "rounds=6", "checkpoint_every=2"]
    whole = vflbench.run([*words, f"hydra.run.dir={tmp_path / 'whole'}"])
    apart = [*words, f"hydra.run.dir={tmp_path / 'apart'}"]
    interrupted(apart, monkeypatch, 3)
    resumed = vflbench.run([*apart, "resume=true"])
    assert resumed.summary["privacy"] == whole.summary["privacy"]
    assert resumed.summary["privacy"]["spent_of_target"] > 0.9999
    assert resumed.curve.equals(whole.curve) and resumed.summary["bytes"] == whole.summary["bytes"]


@pytest.mark.slow
def test_a_resumed_run_repeats_its_noise_and_forgets_the_keys_at_its_end(
    keys: Callable[[], list[Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it sends again, after the checkpoint, tells nothing new. The operating system's numbers are replaced, so
    that runs compare."""
    words = [*NOISY, "rounds=6", "checkpoint_every=2", "privacy.secure_rng=true"]
    made: list[Secret] = []

    def numbered(secret: Secret, begin: Callable[[Secret], None] = Secret.__init__) -> None:
        begin(secret)
        made.append(secret)
        secret.key = len(made).to_bytes(seeding.KEY_BYTES, "big")

    monkeypatch.setattr(Secret, "__init__", numbered)
    whole = vflbench.run([*words, f"hydra.run.dir={tmp_path / 'whole'}"])
    assert whole.summary["secure_rng"] is True and keys() == []
    parties = len(made)
    made.clear()
    broken = [*words, f"hydra.run.dir={tmp_path / 'broken'}", "resume=true"]
    interrupted(broken, monkeypatch, 4)
    assert len(keys()) == parties and len(made) == parties
    run = vflbench.run(broken)  # begins with other secrets, and takes up the old ones
    assert [secret.key for secret in made[:parties]] == [secret.key for secret in made[parties:]]
    assert run.summary["status"] == "completed" and keys() == []
    assert run.summary["privacy"] == whole.summary["privacy"]
    for path in (whole.folder / "model").iterdir():
        assert path.read_bytes() == (run.folder / "model" / path.name).read_bytes()


@pytest.mark.slow
def test_a_run_whose_keys_are_gone_is_not_continued_with_other_noise(
    keys: Callable[[], list[Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [
        *NOISY,
        "rounds=3",
        "checkpoint_every=1",
        "privacy.secure_rng=true",
        f"hydra.run.dir={tmp_path / 'run'}",
        "resume=true",
    ]
    interrupted(words, monkeypatch, 2)
    for path in keys():
        os.unlink(path)
    with pytest.raises(
        FederationError, match=r"the key of its noise is not on this machine .* start anew in another folder"
    ):
        vflbench.run(words)


@pytest.mark.slow
def test_a_run_whose_messages_depend_on_real_time_is_not_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would send other things with the noise that it has used; the processes are left out here."""
    words = [
        "algorithm=leasgd_async",
        "dataset=digits",
        "model.widths=[8]",
        "algorithm.workers=3",
        "privacy=dp_sgd",
        "rounds=3",
    ]
    words += [
        "privacy.epsilon=null",
        "privacy.noise_multiplier=1",
        "privacy.secure_rng=true",
        "checkpoint_every=1",
        "resume=true",
    ]
    words += [f"hydra.run.dir={tmp_path / 'run'}"]
    interrupted(words, monkeypatch, 2)
    begin = Federation.__init__

    def live(self: Federation, *given: Any) -> None:
        begin(self, *given)
        self.live = True

    monkeypatch.setattr(Federation, "__init__", live)
    with pytest.raises(
        VflbenchError, match=r"leasgd_async with noise of the parties' own cannot be continued.*another folder"
    ):
        vflbench.run(words)


@pytest.mark.slow
def test_the_simulation_says_that_its_noise_is_for_simulation_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runs = {}
    for secure in ("null", "true"):
        caplog.clear()
        words = [*NOISY, "rounds=1", f"privacy.secure_rng={secure}", f"hydra.run.dir={tmp_path / secure}"]
        with caplog.at_level("INFO"):
            runs[secure] = vflbench.run(words)
        assert ("for simulation only" in caplog.text) == (secure == "null")
    assert [run.summary["secure_rng"] for run in runs.values()] == [False, True]
    assert runs["null"].manifest["config_hash"] != runs["true"].manifest["config_hash"]
    assert "secure_rng" not in vflbench.run([*GLASU, "rounds=1", f"hydra.run.dir={tmp_path / 'plain'}"]).summary


@pytest.mark.slow
@pytest.mark.minutes
@pytest.mark.usefixtures("ray_pool")
def test_parties_in_processes_of_their_own_have_secrets_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their noise differs from that of the simulation, epsilon does not; a run that failed goes on, and its keys are
    gone at the end."""
    monkeypatch.delenv("XDG_STATE_HOME")
    # what the pool's processes were started with
    monkeypatch.setenv("XDG_STATE_HOME", os.environ["VFLBENCH_TEST_STATE"])
    words = [*NOISY, "rounds=4", "checkpoint_every=2", "engine.threads=1"]
    simulated = vflbench.run([*words, f"hydra.run.dir={tmp_path / 'simulated'}"])
    apart = [*words, "engine=ray", "engine.address=auto", f"hydra.run.dir={tmp_path / 'ray'}", "resume=true"]
    folder = key_file("0" * 32).parent
    before = set(folder.glob("*"))
    interrupted(apart, monkeypatch, 3)
    assert len(set(folder.glob("*")) - before) == len(simulated.manifest["parties"])
    ray = vflbench.run(apart)
    assert ray.summary["status"] == "completed" and ray.summary["secure_rng"] is True
    assert set(folder.glob("*")) == before
    apart, together = ray.summary["privacy"], simulated.summary["privacy"]
    for measured in (apart["serving"], together["serving"]):
        del measured["round"], measured["clean"], measured["noisy"]  # other noise, other scores
    assert apart == together and ray.summary["bytes"] == simulated.summary["bytes"]
    assert (ray.folder / "model" / "client_0.safetensors").read_bytes() != (
        simulated.folder / "model" / "client_0.safetensors"
    ).read_bytes()


def test_epsilon_of_a_secret_is_the_accountants() -> None:
    """Nothing but where the numbers come from has changed."""
    spent = [
        Heard(*NOISY, "rounds=2", f"privacy.secure_rng={secure}").engine.order[1].privacy.spent()
        for secure in ("true", "false")
    ]
    for one in spent:
        del one["clipped_share"]  # other noise, other rows
    assert spent[0] == spent[1]
    mu = accountant.composed_mu(2.0, 0.5, spent[0]["releases"]["done"])
    assert spent[0]["epsilon"] == accountant.epsilon(mu, spent[0]["delta"])
